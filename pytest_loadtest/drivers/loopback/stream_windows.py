"""What each of a worker's streams has in flight at the loopback relay, and since when it has nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.columns import beyond

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Slots = NDArray[np.int32]

_MOST = 64  # bursts and answers that are counted together


class StreamWindows:
    """How much each of some streams may still send.

    As long as all of them together have no more in flight than one of them may have, nobody's window is full, and when they have nothing
    in flight everybody's is empty. So it is counted by stream only when there is more, and then for many bursts and answers at once.

    :param streams: their numbers; evenly spaced ones, as a worker's share is, cost memory for themselves only.
    :param size: messages that each may have in flight.
    """

    def __init__(self, streams: Sequence[int], size: int) -> None:
        numbers = np.sort(np.asarray(streams, np.int64))
        self._step = int(np.gcd.reduce(np.diff(numbers))) if len(numbers) > 1 else 1
        self._first = int(numbers[0]) // self._step
        count = int(numbers[-1]) // self._step - self._first + 1
        self._size = size
        self._total = 0  # in flight, of all streams
        self._room = np.full(count, size, np.int64)  # but for what is not counted yet
        self._uncounted: list[tuple[Slots, int]] = []  # who took room (-1) or gave it back (1), in order
        self._answered = np.zeros(count, np.int64)  # the instant of the last answer
        self._refused = np.zeros(count, np.bool_)  # and nothing was taken since
        self._any_refused = False
        self._position = np.zeros(count, np.int64)  # only while they are looked at

    def slots(self, stream: NDArray[np.int32]) -> Slots:
        """Places of streams in the columns here; a column of its own."""
        slots: Slots = stream.copy() if self._step == 1 else stream // self._step
        return slots - self._first if self._first else slots

    def admit(self, slot: Slots) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Messages that want to go, in this order: ``(idle, refused)`` as :meth:`Driver.send` has them. Those not refused are in flight."""
        idle = self._answered.take(slot)
        if self._total:
            idle *= self._counted().take(slot) == self._size
        if np.count_nonzero(idle) and len(set(slot.tolist())) < len(slot):
            self._keep_first(idle, slot)
        self._change(slot, -1)
        if self._any_refused:
            self._refused[slot] = False
            self._any_refused = bool(self._refused.any())
        return idle, self._refuse(slot) if self._total > self._size else None

    def _keep_first(self, idle: NDArray[np.int64], slot: Slots) -> None:
        """Only the first message of each stream finds its window empty: 0 for the others."""
        positions = np.arange(len(slot))
        self._position[slot[::-1]] = positions[::-1]  # what is written last stays: the first position of each
        idle *= self._position.take(slot) == positions

    def _refuse(self, slot: Slots) -> NDArray[np.int64] | None:
        """Take back those of the last messages that find no room; their positions, if any."""
        room = self._counted()
        if int(room.take(slot).min()) >= 0:
            return None
        np.add.at(room, slot, 1)
        refused = beyond(slot, room)
        np.subtract.at(room, np.delete(slot, refused), 1)
        self._total -= len(refused)
        self._refused[slot[refused]] = self._any_refused = True
        return refused

    def answered(self, slot: Slots, now: int) -> bool:
        """One message of each of these, a stream as often as it has answers, is in flight no more.

        :returns: whether a stream that was refused finds room now.
        """
        self._change(slot, 1)
        self._answered.put(slot, now)
        return self._any_refused and bool(self._refused.take(slot).any())

    def _change(self, slot: Slots, step: int) -> None:
        self._total -= step * len(slot)
        self._uncounted.append((slot, step))
        if len(self._uncounted) >= _MOST:
            self._counted()

    def _counted(self) -> NDArray[np.int64]:
        """Messages that each stream may still send."""
        if self._uncounted:
            slots, steps = zip(*self._uncounted, strict=True)
            np.add.at(self._room, np.concatenate(slots), np.repeat(steps, list(map(len, slots))))
            self._uncounted.clear()
        return self._room
