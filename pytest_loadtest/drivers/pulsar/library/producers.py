"""The producers of one worker on pulsar-client.

Messages are sent one by one, accounting is done in bulk.

The driver uses the client's compiled producers: the Python wrapper around them checks eleven
argument types per message, a tenth of the cost of sending one. The client's threads run our code
only in the callback of an answer. It only appends to a deque, which the engine's thread empties
without a lock. A callback that raises ends the process.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext
from pytest_loadtest.drivers.pulsar.in_flight import InFlight, all_but
from pytest_loadtest.drivers.pulsar.settings_facts import join_acks
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.carried import carried_values
from pytest_loadtest.message.due import AT_ONCE
from pytest_loadtest.message.envelope import encode_heads
from pytest_loadtest.message.payloads import whole_payloads
from pytest_loadtest.message.route import PROPERTY
from pytest_loadtest.message.samples import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.pulsar.in_flight import Taken

    Answer = tuple[int, int, int, int, Any]
    """Row, index of the producer here, bytes of the message, time and result of the answer."""

_KEY: Final = "key-{}"


class PulsarProducers:
    """All producers of one worker; each sends one stream.

    :param clients: the client's ``_pulsar.Producer`` for each of
        the ``streams``; it must not block.
    :param streams: numbers of streams, ascending.
    :param window: most messages of one stream in flight; None: as many as the client takes.
    :param memory: most bytes of all streams in flight, as pulsar-client for Python has no such
        limit; None: no limit. As in the Java client (PIP-74) a message is sent while there is any
        room, so that one larger than the limit passes.
    :ivar refused: True if the last :meth:`send` refused a message.
    """

    def __init__(
        self,
        clients: Sequence[Any],
        streams: Sequence[int],
        context: DriverContext,
        *,
        window: int | None,
        memory: int | None,
    ) -> None:
        self._clients = clients
        self._streams = np.array(streams, np.int32)
        self._send_to = [client.send_async for client in clients]
        self._pool = context.pool
        self._nonce = context.nonce
        self._clock = context.clock
        self._sizes = context.pool.sizes.astype(np.int64)
        self._blocks: bool = context.settings.block_if_queue_full
        self._in_flight = InFlight(len(streams), 1, window, memory, in_order=self._blocks)
        # Filled by the client's threads, emptied by the engine's: a
        # deque needs no lock for append and popleft.
        self._answers: deque[Answer] = deque()
        # Answers that are no longer in flight, but not yet returned to the engine.
        self._counted: list[Acks] = []
        self.refused = False
        self._answered = False  # True if a message was answered since the last send()

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Send the messages that fit into their stream's window and into memory.

        :returns: the positions of the others, None if there are none. With ``blockIfQueueFull`` off
            the others are FAILED at once, as the client does when its own queue is full.
        :raises TargetError: a producer was closed.
        """
        self._count_answers()
        indexes = np.searchsorted(self._streams, burst.stream)
        sizes = self._sizes.take(burst.payload)
        refused = self._in_flight.beyond(indexes, indexes, sizes)
        if len(refused) < len(burst):
            taken = all_but(refused, len(burst))
            self._hand_over(burst, taken, indexes[taken], sizes[taken])
        self.refused = len(refused) > 0 and self._blocks
        self._answered = False
        if self.refused:
            return refused
        if len(refused):
            burst.sent[refused] = now = self._clock()
            self._counted.append(
                Acks(
                    burst.row[refused],
                    np.full(len(refused), now),
                    np.full(len(refused), np.int8(Status.FAILED)),
                )
            )
        return None

    def _hand_over(
        self, burst: Burst, taken: Taken, indexes: NDArray[np.intp], sizes: NDArray[np.int64]
    ) -> None:
        """:param taken: the messages of the burst to send; the other columns are only for these."""
        burst.idle[taken] = self._in_flight.idle_since(indexes)
        self._in_flight.add(indexes, indexes, int(sizes.sum()))
        burst.sent[taken] = self._send_each(burst, taken, indexes.tolist(), sizes.tolist())

    def _send_each(
        self, burst: Burst, taken: Taken, indexes: list[int], sizes: list[int]
    ) -> list[int]:
        """Send each message through the client, with a callback of its own.

        :returns: the send times, ns.
        """
        pool = self._pool
        payload = burst.payload[taken]
        heads = encode_heads(
            pool,
            nonce=self._nonce,
            stream=burst.stream[taken],
            seq=burst.seq[taken],
            intended=burst.intended[taken],
            payload=payload,
        )
        key_numbers = None if burst.key is None else burst.key[taken]
        keys = repeat(None) if key_numbers is None else map(_KEY.format, key_numbers.tolist())
        values: Iterable[bytes | None] = repeat(None)
        if pool.place.outside:
            values = carried_values(pool.place.carrier, heads)
        dues = repeat(AT_ONCE) if burst.due is None else burst.due[taken].tolist()
        send_to = self._send_to
        clock = self._clock
        answered = self._answers.append
        build = _pulsar.MessageBuilder
        sent: list[int] = []
        stamp = sent.append
        try:
            for row, index, size, data, value, key, due in zip(
                burst.row[taken].tolist(),
                indexes,
                sizes,
                whole_payloads(pool, heads, payload, key_numbers),
                values,
                keys,
                dues,
                strict=False,
            ):
                message = build().content(data)
                if value is not None:
                    message.property(PROPERTY, value.decode())
                if key is not None:
                    message.partition_key(key)
                if due != AT_ONCE:
                    message.deliver_at(due)
                stamp(clock())
                # The client's answer does not name its message, so each message has a
                # callback of its own. Reading the result is slow, therefore _count_answers()
                # does it, outside of the client's threads.
                send_to[index](
                    message.build(),
                    lambda result, _id, row=row, index=index, size=size: answered(
                        (row, index, size, clock(), result)
                    ),
                )
        except _pulsar.PulsarException as error:
            raise TargetError(f"producer of stream {self._streams[index]}: {error}") from error
        return sent

    def acks(self) -> Acks | None:
        """Return the answers since the last call, or None."""
        self._count_answers()
        counted = self._counted
        self._counted = []
        return join_acks(counted)

    def _count_answers(self) -> None:
        """Remove the answered messages from those in flight."""
        n = len(self._answers)
        if n == 0:
            return
        pop = self._answers.popleft
        row, index, size, time, results = zip(*[pop() for _ in range(n)], strict=True)
        indexes = np.array(index)
        times = np.array(time, np.int64)
        self._in_flight.answered_each(indexes, times, sum(size))
        failed = np.fromiter(map(attrgetter("value"), results), np.int32, n) != 0
        self._counted.append(
            Acks(
                np.array(row, np.int64),
                times,
                np.where(failed, np.int8(Status.FAILED), np.int8(Status.ACKED)),
            )
        )
        self._answered = True

    @property
    def may_have_room(self) -> bool:
        """True if the last :meth:`send` refused messages and a message was answered since."""
        return self.refused and (self._answered or len(self._answers) > 0)

    def disconnected(self) -> list[str]:
        """Return the names of producers that are not connected at present."""
        streams = zip(self._streams.tolist(), self._clients, strict=True)
        return [
            f"producer of stream {stream}"
            for stream, client in streams
            if not client.is_connected()
        ]
