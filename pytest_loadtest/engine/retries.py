"""Streams whose windows are full: their messages wait in order, are offered again, and know what of their delay was the target's doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Burst
from pytest_loadtest.engine.waiting import Waiting

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
