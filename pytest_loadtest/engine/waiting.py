"""Messages that wait because the window of their stream is full: whose turn it is, and how much of their delay the target explains.

A stream that was refused has some of its messages waiting, all from one number on; younger ones of it join them. A window is *full* from
the attempt that it cut short until the next attempt; but when it ran empty in between, the target stood idle and only the time until then
counts: the rest is the generator's own lateness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

RETRY: Final = 10_000_000  # ns between two attempts of streams of which no answer came: a window may open for other reasons
AT_ONCE: Final = 1024  # streams that are tried without an answer; the next ones have their turn with the next attempt


class WindowState(NamedTuple):
    """Of some streams: the last attempt, and how long each was blocked until then since it began to wait."""

    tried: Column
    blocked: Column

    def blocked_at(self, at: Column, intended: Column, until: Column) -> Column:
        """How long a stream had been blocked when a message was intended to leave that has joined since the last attempt.

        :param at: of each message's stream in the columns here. :param until: the instant until which its window was full.
        """
        share: Column = self.blocked[at] + np.maximum(np.minimum(intended, until) - self.tried[at], 0)
        return share


class Waiting:
    """What waits on one worker in one phase; one entry a stream in every column. ns of the clock.

    :param streams: how many streams the worker has.
    """

    def __init__(self, streams: int) -> None:
        self.count = 0
        """Messages that wait."""
        self.first = np.zeros(streams, np.int64)
        """Number of the oldest message that waits; all from there to ``end`` do."""
        self.end = np.zeros(streams, np.int64)
        self._known = np.zeros(streams, np.int64)  # messages up to here have their share of blocked time before them subtracted
        self._tried = np.zeros(streams, np.int64)  # the last attempt
        self._blocked = np.zeros(streams, np.int64)  # in all, since the stream began to wait
        self._freed = np.zeros(streams, np.int64)  # answers since the last attempt
        self._retry_at = self._turn = 0

    @property
    def any(self) -> bool:
        return self.count > 0

    def streams(self) -> NDArray[np.bool_]:
        """Which streams wait."""
        mask: NDArray[np.bool_] = self.end > self.first
        return mask

    def begin(self, index: Column, first: Column, end: Column, now: int) -> None:
        """These streams were refused at ``now``, and did not wait before. :param first, end: numbers of the messages that wait."""
        self.first[index], self.end[index], self._known[index] = first, end, end
        self._tried[index] = now
        self._blocked[index] = self._freed[index] = 0
        if not self.count:
            self._retry_at = now + RETRY
        self.count += int((end - first).sum())

    def join(self, index: Column) -> None:
        """A message became due in each of these streams, of which all wait already; one entry a message."""
        np.add.at(self.end, index, 1)
        self.count += len(index)

    def answered(self, index: Column) -> None:
        """Answers came, one entry each: their streams may have room."""
        np.add.at(self._freed, index, 1)

    def candidates(self, now: int) -> tuple[Column, Column]:
        """Which streams to try now, and how many answers each had since it was tried: from time to time also those without."""
        waits = self.streams()
        index = np.flatnonzero(waits & (self._freed > 0))
        if now >= self._retry_at:
            self._retry_at = now + RETRY
            index = np.union1d(index, self._in_turn(np.flatnonzero(waits)))
        return index, self._freed[index]

    def _in_turn(self, waits: Column) -> Column:
        if len(waits) <= AT_ONCE:
            return waits
        start = int(np.searchsorted(waits, self._turn))
        chosen = np.take(waits, np.arange(start, start + AT_ONCE), mode="wrap")
        self._turn = int(chosen[-1]) + 1
        return chosen

    def newcomers(self, index: Column) -> tuple[Column, Column]:
        """Of these streams, the messages that joined since they were tried last, one entry a message: stream, number."""
        return _spread(index, self._known[index], self.end[index] - self._known[index])

    def offer(self, index: Column, most: Column) -> tuple[Column, Column]:
        """The first ``most`` messages of each of these streams, as far as so many wait, one entry a message: stream, number."""
        return _spread(index, self.first[index], np.minimum(most, self.end[index] - self.first[index]))

    def tried(self, index: Column, taken: Column, idle: Column, now: int) -> Column:
        """These streams were tried at ``now``.

        :param taken: messages of each that were taken. :param idle: when its window had run empty, 0 where it had not.
        :returns: the instant until which each window was full since it was tried before.
        """
        before = self._tried[index]
        end: Column = np.where((taken > 0) & (idle > 0), np.minimum(now, np.maximum(idle, before)), now)
        self._blocked[index] += end - before
        self._tried[index] = now
        self._freed[index] = 0
        self._known[index] = self.end[index]
        self.first[index] += taken
        self.count -= int(taken.sum())
        return end

    def state(self, index: Column) -> WindowState:
        """Of these streams, as it is now."""
        return WindowState(self._tried[index], self._blocked[index])

    def blocked(self, index: Column) -> Column:
        """How long each of these streams was blocked since it began to wait."""
        return self._blocked[index]

    def drop(self, index: Column) -> None:
        """The oldest message of each of these streams is given up, one entry a message."""
        np.add.at(self.first, index, 1)
        self.count -= len(index)
        np.maximum(self._known, self.first, out=self._known)


def _spread(index: Column, first: Column, count: Column) -> tuple[Column, Column]:
    """``count[i]`` numbers from ``first[i]`` on for each ``i``, one entry each."""
    starts = np.cumsum(count) - count
    number = np.repeat(first - starts, count) + np.arange(int(count.sum()))
    return np.repeat(index, count), number
