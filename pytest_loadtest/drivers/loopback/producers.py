"""The worker's producers at the loopback relay: what they send, and what is answered."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst
from pytest_loadtest.drivers.loopback.messages import Packer
from pytest_loadtest.drivers.loopback.numbers import first_topic, run_number
from pytest_loadtest.drivers.loopback.stream_windows import StreamWindows
from pytest_loadtest.message.envelope import encode_heads
from pytest_loadtest.message.samples import Status
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import DriverContext
    from pytest_loadtest.drivers.loopback.connection import RelayConnection

_COLUMNS = ("row", "stream", "seq", "intended", "payload", "sent", "idle")


class RelayProducers:
    """Sends bursts and collects answers; see :class:`~pytest_loadtest.drivers.base.Driver` for what each method promises."""

    def __init__(self, context: DriverContext, streams: Sequence[int], connection: RelayConnection) -> None:
        self._context = context
        self._connection = connection
        self._packer = Packer(context.pool)
        self._windows = StreamWindows(streams, context.settings.max_pending_messages)
        self._run, self._topics, self._topic = run_number(context), context.topology.topics, first_topic(context)
        self._unanswered: deque[tuple[NDArray[np.int64], NDArray[np.int32]]] = deque()  # rows and slots of what was sent, in that order
        self._answers: list[tuple[NDArray[np.int64], int, Status]] = []

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """As :meth:`Driver.send`; ``sent`` is stamped once for each frame, before the socket gets it."""
        self._connection.check()
        if not len(burst):
            return None
        slot = self._windows.slots(burst.stream)
        idle, refused = self._windows.admit(slot)
        if refused is None:
            burst.idle[:] = idle
            self._hand_over(burst, slot)
            return None
        taken = np.delete(np.arange(len(burst)), refused)
        burst.idle[taken] = idle[taken]
        if len(taken):
            part = _choose(burst, taken)
            self._hand_over(part, slot[taken])
            burst.sent[taken] = part.sent
        if self._context.settings.block_if_queue_full:
            return refused
        now = burst.sent[refused] = self._context.clock()
        self._answers.append((burst.row[refused], now, Status.FAILED))
        return None

    def _hand_over(self, burst: Burst, slot: NDArray[np.int32]) -> None:
        """Send all of it."""
        self._unanswered.append((burst.row.copy(), slot))
        size = self._packer.pool.sizes.take(burst.payload)
        if len(burst) * self._packer.largest <= frames.PORTION:
            self._send(burst, size)
        else:
            for part in frames.portions(size):
                self._send(_choose(burst, part), size[part])
        self._connection.check()

    def _send(self, burst: Burst, size: NDArray[np.int32]) -> None:
        context = self._context
        heads = encode_heads(
            context.pool, nonce=context.nonce, stream=burst.stream, seq=burst.seq, intended=burst.intended, payload=burst.payload
        )
        kind = Kind.PRODUCE
        columns: dict[str, NDArray[Any]] = {"seq": burst.seq, "stream": burst.stream, "size": size}
        if burst.due is not None:
            kind, columns = Kind.PRODUCE_LATER, {**columns, "due": burst.due}
        frame = frames.encode(
            kind, columns, run=self._run, topics=self._topics, topic=self._topic, payloads=self._packer.pack(heads, burst.payload),
        )  # fmt: skip
        burst.sent[:] = context.clock()
        self._connection.send(frame)

    def answered(self, count: int, now: int) -> bool:
        """So many more of the messages were answered. :returns: whether a stream that was refused finds room now.

        :raises FrameError: so many are not in flight.
        """
        room = False
        while count:
            if not self._unanswered:
                raise FrameError(f"{count} messages are acknowledged that were not sent")
            row, slot = self._unanswered.popleft()
            if len(row) > count:
                self._unanswered.appendleft((row[count:], slot[count:]))
                row, slot = row[:count], slot[:count]
            count -= len(row)
            self._answers.append((row, now, Status.ACKED))
            room |= self._windows.answered(slot, now)
        return room

    def acks(self) -> Acks | None:
        """As :meth:`Driver.acks`."""
        if not self._answers:
            return None
        rows, times, statuses = zip(*self._answers, strict=True)
        counts = [len(row) for row in rows]
        self._answers.clear()
        return Acks(np.concatenate(rows), np.repeat(np.array(times, np.int64), counts), np.repeat(np.array(statuses, np.int8), counts))


def _choose(burst: Burst, index: slice | NDArray[np.int64]) -> Burst:
    """Some of its messages: views of its columns where they are neighbours, copies otherwise."""
    due = None if burst.due is None else burst.due[index]
    return Burst(**{name: getattr(burst, name)[index] for name in _COLUMNS}, due=due)
