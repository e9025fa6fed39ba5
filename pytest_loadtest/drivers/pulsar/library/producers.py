"""Messages on their way out, one by one through pulsar-client: what is paid per message is short, sums are done in bulk.

The client is used by its compiled producers: the Python wrapper around them checks eleven argument types per message, a tenth of the
cost of sending one. Its threads run our code in one place here, the callback of an answer; it only appends to a deque, which the engine's
thread empties without a lock. A callback that raises ends the process.
"""

from __future__ import annotations

from collections import deque
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import _pulsar
import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst
from pytest_loadtest.drivers.columns import positions_without_room
from pytest_loadtest.drivers.pulsar.settings_facts import join_acks
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.due import AT_ONCE
from pytest_loadtest.message.envelope import encode_heads
from pytest_loadtest.message.payloads import whole_payloads
from pytest_loadtest.message.samples import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import DriverContext

    Answer = tuple[int, int, int, int, Any]
    """Row, index of the producer here, bytes of the message, instant, the client's result."""

    Taken = slice | NDArray[np.bool_]
    """Which messages of a burst are taken, to index its columns with."""

_KEY: Final = "key-{}"
_NONE: Final = np.empty(0, np.int64)


class PulsarProducers:
    """All producers of one worker; each sends one stream.

    :param clients: the client's ``_pulsar.Producer`` of each of the ``streams``, which must not block.
    :param streams: ascending.
    :param window: messages that one stream may have in flight; None: as many as the client takes.
    :param memory: bytes that all streams together may have in flight, for pulsar-client for Python has no such limit; None: no limit. As
        in the Java client (PIP-74) a message may begin while there is any room, so that one larger than the limit passes.
    :ivar refused: whether the last :meth:`send` refused something.
    """

    def __init__(
        self, clients: Sequence[Any], streams: Sequence[int], context: DriverContext, *, window: int | None, memory: int | None
    ) -> None:
        self._clients, self._streams = clients, np.array(streams, np.int32)
        self._send_to = [client.send_async for client in clients]
        self._pool, self._nonce, self._clock = context.pool, context.nonce, context.clock
        self._window, self._memory = window, memory
        self._blocks: bool = context.settings.block_if_queue_full
        self._in_flight = np.zeros(len(streams), np.int64)
        self._bytes_in_flight = 0
        self._last_answer = np.zeros(len(streams), np.int64)
        self._answers: deque[Answer] = deque()  # as the client's threads left them
        self._counted: list[Acks] = []  # no longer in flight, not yet handed to the engine
        self.refused = False
        self._answered = False  # anything, since the last send()

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Hand over what finds room in its stream's window and in memory.

        :returns: positions of the rest, None where there is none. With ``blockIfQueueFull`` off the rest is FAILED at once, as the client
            fails what finds its own queue full.
        :raises TargetError: a producer was closed under us.
        """
        self._count_answers()
        indexes = np.searchsorted(self._streams, burst.stream)
        sizes = self._pool.sizes.take(burst.payload)
        refused = self._without_room(indexes, sizes)
        if len(refused) < len(burst):
            taken = _all_but(refused, len(burst))
            self._hand_over(burst, taken, indexes[taken], sizes[taken])
        self.refused, self._answered = len(refused) > 0 and self._blocks, False
        if self.refused:
            return refused
        if len(refused):
            burst.sent[refused] = now = self._clock()
            self._counted.append(Acks(burst.row[refused], np.full(len(refused), now), np.full(len(refused), np.int8(Status.FAILED))))
        return None

    def _without_room(self, indexes: NDArray[np.intp], sizes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Positions, ascending, of the messages that may not go now."""
        refused = _NONE if self._window is None else positions_without_room(indexes, self._window - self._in_flight)
        if self._memory is None:
            return refused
        going = np.delete(np.arange(len(indexes)), refused)
        before = np.cumsum(sizes[going]) - sizes[going]
        room_for = int(np.searchsorted(before, self._memory - self._bytes_in_flight, side="left"))
        return np.sort(np.concatenate([refused, going[room_for:]]))

    def _hand_over(self, burst: Burst, taken: Taken, indexes: NDArray[np.intp], sizes: NDArray[np.int32]) -> None:
        """:param taken: which of the burst; the other columns are of those alone."""
        burst.idle[taken] = self._idle_since(indexes)
        self._in_flight += np.bincount(indexes, minlength=len(self._in_flight))
        self._bytes_in_flight += int(sizes.sum())
        burst.sent[taken] = self._send_each(burst, taken, indexes.tolist(), sizes.tolist())

    def _idle_since(self, indexes: NDArray[np.intp]) -> NDArray[np.int64]:
        """For the first message of each stream that has nothing in flight, the instant of its latest answer; 0 for all others."""
        idle = np.zeros(len(indexes), np.int64)
        empty = np.flatnonzero(self._in_flight[indexes] == 0)
        if len(empty):
            stream, first = np.unique(indexes[empty], return_index=True)
            idle[empty[first]] = self._last_answer[stream]
        return idle

    def _send_each(self, burst: Burst, taken: Taken, indexes: list[int], sizes: list[int]) -> list[int]:
        """Through the client, each with a callback of its own. :returns: the instants, ns."""
        pool, payload = self._pool, burst.payload[taken]
        heads = encode_heads(
            pool, nonce=self._nonce, stream=burst.stream[taken], seq=burst.seq[taken], intended=burst.intended[taken], payload=payload
        )
        keys = repeat(None) if burst.key is None else map(_KEY.format, burst.key[taken].tolist())
        dues = repeat(AT_ONCE) if burst.due is None else burst.due[taken].tolist()
        send_to, clock, answered, build = self._send_to, self._clock, self._answers.append, _pulsar.MessageBuilder
        sent: list[int] = []
        stamp = sent.append
        try:
            for row, index, size, data, key, due in zip(
                burst.row[taken].tolist(), indexes, sizes, whole_payloads(pool, heads, payload), keys, dues, strict=False
            ):
                message = build().content(data)
                if key is not None:
                    message.partition_key(key)
                if due != AT_ONCE:
                    message.deliver_at(due)
                stamp(clock())
                # The client's answer does not say which message it is for, so that each has a callback of its own. What the result says
                # is slow to ask for: _count_answers() does it, off the client's threads.
                send_to[index](
                    message.build(), lambda result, _id, row=row, index=index, size=size: answered((row, index, size, clock(), result))
                )
        except _pulsar.PulsarException as error:
            raise TargetError(f"producer of stream {self._streams[index]}: {error}") from error
        return sent

    def acks(self) -> Acks | None:
        """What was answered since the last call, or None."""
        self._count_answers()
        counted, self._counted = self._counted, []
        return join_acks(counted)

    def _count_answers(self) -> None:
        """What was answered is in flight no longer."""
        n = len(self._answers)
        if n == 0:
            return
        pop = self._answers.popleft
        row, index, size, time, results = zip(*[pop() for _ in range(n)], strict=True)
        indexes, times = np.array(index), np.array(time, np.int64)
        np.subtract.at(self._in_flight, indexes, 1)
        np.maximum.at(self._last_answer, indexes, times)
        self._bytes_in_flight -= sum(size)
        failed = np.fromiter(map(attrgetter("value"), results), np.int32, n) != 0
        self._counted.append(Acks(np.array(row, np.int64), times, np.where(failed, np.int8(Status.FAILED), np.int8(Status.ACKED))))
        self._answered = True

    @property
    def may_have_room(self) -> bool:
        """Whether the last :meth:`send` refused something and anything was answered since."""
        return self.refused and (self._answered or len(self._answers) > 0)

    def disconnected(self) -> list[str]:
        """Names of those that have no connection just now."""
        streams = zip(self._streams.tolist(), self._clients, strict=True)
        return [f"producer of stream {stream}" for stream, client in streams if not client.is_connected()]


def _all_but(positions: NDArray[np.int64], count: int) -> Taken:
    if not len(positions):
        return slice(None)
    chosen = np.ones(count, np.bool_)
    chosen[positions] = False
    return chosen
