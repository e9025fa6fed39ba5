"""Streams whose windows are full: their messages wait in order, are offered again, and know what of their delay was the target's doing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.base import Burst

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Driver
    from pytest_loadtest.engine.blocks import Block, Ledger
    from pytest_loadtest.schedule.schedules import Schedule

    Column = NDArray[np.int64]


class Retries:
    """What waits in one phase of one worker.

    :param first: int64, by stream, the sequence of the phase's first message.
    """

    def __init__(self, driver: Driver, schedule: Schedule, ledger: Ledger, streams: range, first: Column) -> None:
        self._driver, self._schedule, self._ledger, self._streams, self._first = driver, schedule, ledger, streams, first
        self.waiting = Waiting(len(streams))

    def refuse(self, burst: Burst, refused: Column, now: int) -> NDArray[np.bool_]:
        """Of a burst of streams that did not wait these positions were refused: their streams wait from now on.

        :returns: for each message of the burst, whether it was taken.
        """
        taken = np.ones(len(burst), np.bool_)
        taken[refused] = False
        index = self._index(burst.stream[refused])
        number = burst.seq[refused] - self._first[index]
        streams, oldest, counts = np.unique(index, return_index=True, return_counts=True)
        self.waiting.begin(streams, number[oldest], number[oldest] + counts, now)
        return taken

    def join(self, block: Block, start: int, stop: int) -> Column:
        """These rows of a block are due for the first time: those of streams that wait join them. :returns: the others' indexes."""
        index = self._index(block.stream[start:stop])
        waits = self.waiting.streams()[index]
        self.waiting.join(index[waits])
        return np.flatnonzero(~waits) + start

    def answered(self, row: Column) -> None:
        """These messages were answered; their blocks are still here."""
        self.waiting.answered(self._index(self._ledger.streams(row)))

    def drop(self, stream: NDArray[np.int32]) -> None:
        """The oldest message that waits of each of these streams is given up, one entry a message."""
        self.waiting.drop(self._index(stream))

    def retry(self, now: int) -> Iterator[Column]:
        """Offer again what waits, of each stream the oldest first; send delays, less blocked time, of what was taken."""
        index, freed = self.waiting.candidates(now)
        most = np.maximum(freed, 1)
        while len(index):
            taken, delays = self._offer(index, most, now)
            yield from delays
            # where answers made room there was room for as many; where it opened otherwise nobody knows how much there is
            more = (freed == 0) & (taken == most) & self.waiting.streams()[index]
            index, freed, most = index[more], freed[more], 2 * most[more]

    def _offer(self, index: Column, most: Column, now: int) -> tuple[Column, list[Column]]:
        """Offer the oldest ``most`` messages of each of these streams.

        :returns: how many of each were taken, and the send delays of all that were, less blocked time.
        """
        rows, place = self._rows(index, *self.waiting.offer(index, most))
        burst = _joined([block.copy(i) for block, i in self._ledger.parts(rows)])
        refused = self._driver.send(burst)
        took = np.ones(len(burst), np.bool_)
        if refused is not None:
            took[refused] = False
        taken, idle = np.bincount(place[took], minlength=len(index)), np.zeros(len(index), np.int64)
        np.maximum.at(idle, place[took], burst.idle[took])
        self._account(index, taken, idle, now)
        blocked = self.waiting.blocked(index)[place[took]]
        return taken, list(self._note(rows[took], burst.sent[took], blocked))

    def _account(self, index: Column, taken: Column, idle: Column, now: int) -> None:
        """These streams were tried. Who joined since the last time notes how long its stream had been blocked when it was intended."""
        newcomers, before = self.waiting.newcomers(index), self.waiting.state(index)
        until = self.waiting.tried(index, taken, idle, now)
        rows, place = self._rows(index, *newcomers)
        for block, i, part in self._parts(rows):
            at = place[part]
            block.blocked[i] = -before.blocked_at(at, block.intended[i], until[at])

    def _note(self, rows: Column, sent: Column, blocked: Column) -> Iterator[Column]:
        """These rows were taken. :param blocked: how long their streams were blocked in all."""
        for block, i, part in self._parts(rows):
            block.sent[i] = sent[part]
            block.blocked[i] += blocked[part]
            yield sent[part] - block.intended[i] - block.blocked[i]

    def _parts(self, rows: Column) -> Iterator[tuple[Block, Column, slice]]:
        """Ascending rows by block: their indexes in it, and which of them these are."""
        done = 0
        for block, i in self._ledger.parts(rows):
            yield block, i, slice(done, done + len(i))
            done += len(i)

    def _rows(self, index: Column, stream: Column, number: Column) -> tuple[Column, Column]:
        """Ascending rows of messages, and the place of each one's stream in ``index``, which ascends."""
        rows = self._schedule.find(stream, number) + self._ledger.row
        order = np.argsort(rows)
        return rows[order], np.searchsorted(index, stream[order])

    def _index(self, stream: NDArray[np.int32]) -> Column:
        """Place of each stream among the worker's."""
        return (stream.astype(np.int64) - self._streams.start) // self._streams.step


def _joined(bursts: Sequence[Burst]) -> Burst:
    if len(bursts) == 1:
        return bursts[0]
    names = ("row", "stream", "seq", "intended", "payload", "sent", "idle")
    columns = {name: np.concatenate([getattr(burst, name) for burst in bursts]) for name in names}
    keys = [burst.key for burst in bursts if burst.key is not None]
    dues = [burst.due for burst in bursts if burst.due is not None]
    return Burst(**columns, key=np.concatenate(keys) if keys else None, due=np.concatenate(dues) if dues else None)


# Messages that wait because the window of their stream is full: whose turn it is, and how much of their delay the target explains.
#
# A stream that was refused has some of its messages waiting, all from one number on; younger ones of it join them. A window is *full*
# from the attempt that it cut short until the next attempt; but when it ran empty in between, the target stood idle and only the time
# until then counts: the rest is the generator's own lateness.

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
