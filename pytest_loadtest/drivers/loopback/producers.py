"""The worker's producers at the loopback relay: sending, answers, and the windows of streams."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext
from pytest_loadtest.drivers.columns import positions_without_room
from pytest_loadtest.message.carried import VALUE_SIZES, carried_values
from pytest_loadtest.message.envelope import HEAD, encode_heads
from pytest_loadtest.message.payloads import PayloadPool, whole_payloads
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.wording import counted
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.loopback.connection import RelayConnection

    Slots = NDArray[np.int32]


# Bytes. Bodies of one size below this are copied from a table in one call; larger ones are passed
# to the system without copying.
_TABLE_BELOW = 2048
_COLUMNS = ("row", "stream", "seq", "intended", "payload", "sent", "idle")


class RelayProducers:
    """Sends bursts and collects answers.

    See :class:`~pytest_loadtest.drivers.base.Driver` for the contract.
    """

    def __init__(
        self, context: DriverContext, streams: Sequence[int], connection: RelayConnection
    ) -> None:
        self._context = context
        self._connection = connection
        self._packer = Packer(context.pool)
        self._windows = StreamWindows(streams, context.settings.max_pending_messages)
        self._topics = context.topology.topics
        # Rows and slots of messages without an answer. The relay answers in the order of sending,
        # so answers carry only their number.
        self._unanswered: deque[tuple[NDArray[np.int64], NDArray[np.int32]]] = deque()
        self._answers: list[tuple[NDArray[np.int64], int, Status]] = []

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """See :meth:`Driver.send`.

        ``sent`` is taken once for each frame, before the socket gets it.
        """
        self._connection.check()
        if not len(burst):
            return None
        slot = self._windows.slots(burst.stream)
        idle, rejected = self._windows.admit(slot)
        # Fast path: everything fits, and the burst's columns are used as they are.
        if rejected is None:
            burst.idle[:] = idle
            self._hand_over(burst, slot)
            return None
        taken = np.delete(np.arange(len(burst)), rejected)
        burst.idle[taken] = idle[taken]
        if len(taken):
            part = _choose(burst, taken)
            self._hand_over(part, slot[taken])
            burst.sent[taken] = part.sent
        if self._context.settings.block_if_queue_full:
            return rejected
        now = burst.sent[rejected] = self._context.clock()
        self._answers.append((burst.row[rejected], now, Status.FAILED))
        return None

    def _hand_over(self, burst: Burst, slot: NDArray[np.int32]) -> None:
        # A copy, because the engine overwrites the burst's columns after send().
        self._unanswered.append((burst.row.copy(), slot))
        size = self._packer.sizes.take(burst.payload)
        if len(burst) * self._packer.largest <= frames.PORTION:
            self._send(burst, size)
        else:
            for part in frames.portions(size):
                self._send(_choose(burst, part), size[part])
        self._connection.check()

    def _send(self, burst: Burst, size: NDArray[np.int32]) -> None:
        context = self._context
        heads = encode_heads(
            context.pool,
            nonce=context.nonce,
            stream=burst.stream,
            seq=burst.seq,
            intended=burst.intended,
            payload=burst.payload,
        )
        kind = Kind.PRODUCE
        columns: dict[str, NDArray[Any]] = {"seq": burst.seq, "stream": burst.stream, "size": size}
        if burst.due is not None:
            kind = Kind.PRODUCE_LATER
            columns = {**columns, "due": burst.due}
        frame = frames.encode_frame(
            kind,
            columns,
            run=self._connection.run,
            topics=self._topics,
            topic=self._connection.first_topic,
            payloads=self._packer.pack(heads, burst.payload, burst.key),
        )
        burst.sent[:] = context.clock()
        self._connection.send(frame)

    def answered(self, count: int, now: int) -> bool:
        """Handle an answer to the next ``count`` messages.

        Return True if a stream with rejected messages has room now.

        :raises FrameError: fewer messages are in flight.
        """
        room = False
        while count:
            if not self._unanswered:
                unsent = counted(count, "unsent message")
                raise FrameError(f"the relay acknowledged {unsent}")
            row, slot = self._unanswered.popleft()
            if len(row) > count:
                self._unanswered.appendleft((row[count:], slot[count:]))
                row = row[:count]
                slot = slot[:count]
            count -= len(row)
            self._answers.append((row, now, Status.ACKED))
            room |= self._windows.answered(slot, now)
        return room

    def acks(self) -> Acks | None:
        if not self._answers:
            return None
        rows, times, statuses = zip(*self._answers, strict=True)
        counts = [len(row) for row in rows]
        self._answers.clear()
        return Acks(
            np.concatenate(rows),
            np.repeat(np.array(times, np.int64), counts),
            np.repeat(np.array(statuses, np.int8), counts),
        )


def _choose(burst: Burst, index: slice | NDArray[np.int64]) -> Burst:
    key = None if burst.key is None else burst.key[index]
    due = None if burst.due is None else burst.due[index]
    return Burst(**{name: getattr(burst, name)[index] for name in _COLUMNS}, key=key, due=due)


_MOST = 64  # number of bursts and answers that are counted together


class StreamWindows:
    """The number of messages that each stream has in flight.

    It also has the time at which each window became empty.

    :param streams: numbers of the streams. Evenly spaced numbers, as
        in a worker's share, take one entry each.
    :param size: number of messages that each stream may have in flight.
    """

    # While all streams together have at most one window of messages in flight, no window is full;
    # while they have none, all are empty. So messages are counted by stream only when there are
    # more, and then for many bursts and answers in one call of numpy.

    def __init__(self, streams: Sequence[int], size: int) -> None:
        # A worker's share is every n-th stream of the run: with n
        # as the step, the columns have no gaps.
        numbers = np.sort(np.asarray(streams, np.int64))
        self._step = int(np.gcd.reduce(np.diff(numbers))) if len(numbers) > 1 else 1
        self._first = int(numbers[0]) // self._step
        count = int(numbers[-1]) // self._step - self._first + 1
        self._size = size
        self._total = 0  # messages in flight, over all streams
        self._room = np.full(count, size, np.int64)  # by slot, before the changes in _uncounted
        self._uncounted: list[
            tuple[Slots, int]
        ] = []  # slots that took room (-1) or gave it back (1), in order
        self._answered = np.zeros(count, np.int64)  # instant of the last answer
        self._rejected = np.zeros(
            count, np.bool_
        )  # a message was rejected and none was taken since
        self._any_rejected = False
        self._position = np.zeros(count, np.int64)  # scratch space of _keep_first()

    def slots(self, stream: NDArray[np.int32]) -> Slots:
        """Return the indexes of streams in the columns of this object, as a new array."""
        # New, because slots are kept until their messages are answered, and
        # the burst's columns are overwritten before.
        slots: Slots = stream.copy() if self._step == 1 else stream // self._step
        return slots - self._first if self._first else slots

    def admit(self, slot: Slots) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Take the messages that have room, in this order.

        Return ``(idle, rejected)`` as in :meth:`Driver.send`.
        """
        # Streams with an empty window have the time of their last answer, the others 0. With
        # nothing in flight all are empty.
        idle = self._answered.take(slot)
        if self._total:
            idle *= self._counted().take(slot) == self._size
        if np.count_nonzero(idle) and len(set(slot.tolist())) < len(slot):
            self._keep_first(idle, slot)
        self._change(slot, -1)
        if self._any_rejected:
            self._rejected[slot] = False
            self._any_rejected = bool(self._rejected.any())
        return idle, self._reject(slot) if self._total > self._size else None

    def _keep_first(self, idle: NDArray[np.int64], slot: Slots) -> None:
        """Set ``idle`` to 0 except for the first message of each stream.

        It is the only one that finds an empty window.
        """
        positions = np.arange(len(slot))
        # Of several writes to one slot the last one stays; written
        # backwards, that is the first position.
        self._position[slot[::-1]] = positions[::-1]
        idle *= self._position.take(slot) == positions

    def _reject(self, slot: Slots) -> NDArray[np.int64] | None:
        """Give back the room of admitted messages that exceed their window.

        Return their positions, or None.
        """
        # All messages of the burst were admitted: a negative room shows
        # by how many a stream exceeds its window.
        room = self._counted()
        if int(room.take(slot).min()) >= 0:
            return None
        np.add.at(room, slot, 1)
        rejected = positions_without_room(slot, room)
        np.subtract.at(room, np.delete(slot, rejected), 1)
        self._total -= len(rejected)
        self._rejected[slot[rejected]] = self._any_rejected = True
        return rejected

    def answered(self, slot: Slots, now: int) -> bool:
        """Handle one answer for each entry of ``slot``.

        Return True if a stream with rejected messages has room now.
        """
        self._change(slot, 1)
        self._answered.put(slot, now)
        return self._any_rejected and bool(self._rejected.take(slot).any())

    def _change(self, slot: Slots, step: int) -> None:
        self._total -= step * len(slot)
        self._uncounted.append((slot, step))
        if len(self._uncounted) >= _MOST:
            self._counted()

    def _counted(self) -> NDArray[np.int64]:
        """Return the number of messages that each stream may still send, after all changes."""
        if self._uncounted:
            slots, steps = zip(*self._uncounted, strict=True)
            np.add.at(self._room, np.concatenate(slots), np.repeat(steps, list(map(len, slots))))
            self._uncounted.clear()
        return self._room


class Packer:
    """Joins heads and payload bodies to the bytes of messages.

    An envelope outside of the body is a value before it, as the protocol has no properties.

    :ivar sizes: bytes of a message with each payload.
    :ivar largest: bytes of the largest message.
    """

    def __init__(self, pool: PayloadPool) -> None:
        self.pool = pool
        self.sizes = pool.sizes + np.int32(VALUE_SIZES.get(pool.place.carrier, 0))
        self.largest = int(self.sizes.max())
        if pool.filler is not None or pool.place.outside:
            return
        self._bodies = pool.bodies
        self._head_sizes = pool.head_size.tolist()
        self._table: NDArray[np.uint8] | None = (
            None  # all bodies as rows, if they are small and have one size
        )
        if len(set(pool.sizes.tolist())) == 1 and self.largest < _TABLE_BELOW:
            self._table = np.frombuffer(b"".join(pool.bodies), np.uint8).reshape(
                len(pool.bodies), -1
            )

    def pack(
        self,
        heads: NDArray[np.uint8],
        payload: NDArray[np.uint16],
        key: NDArray[np.int32] | None = None,
    ) -> Sequence[bytes | memoryview]:
        """Return the bytes of these messages as buffers. :param key: as in a burst."""
        if self.pool.place.outside:
            values = carried_values(self.pool.place.carrier, heads)
            bodies = whole_payloads(self.pool, heads, payload, key)
            return list(chain.from_iterable(zip(values, bodies, strict=True)))
        if self.pool.filler is not None:
            return whole_payloads(self.pool, heads, payload, key)
        if self._table is not None:
            whole = np.concatenate(
                [heads[:, : self._head_sizes[0]], self._table.take(payload, axis=0)], axis=1
            )
            return [whole.data.cast("B")]
        # Two buffers for each message: the system joins them when it sends, and no body is copied.
        parts: list[bytes | memoryview] = []
        front = heads.tobytes()
        for start, number in zip(range(0, len(front), HEAD), payload.tolist(), strict=True):
            parts += (front[start : start + self._head_sizes[number]], self._bodies[number])
        return parts
