"""Messages that wait because the in-flight window of their stream is full: in order, offered again,
with the delay that the target caused.

A stream with a rejected message has messages waiting, all from one number on, and its younger
messages join them. Its window counts as *full* from the attempt that it cut short until the next
attempt. If the window ran empty in between, the target was idle from then on, and only the time
until then counts as blocked: the rest is the generator's own lateness (docs/decisions/003).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.drivers.base import Burst
from pytest_loadtest.message.streams import position_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Acks, Clock, Driver
    from pytest_loadtest.engine.blocks import Block, Ledger
    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.schedule.schedules import Schedule

    Column = NDArray[np.int64]


# ns between two attempts of streams without an answer: a window may open for other reasons than an
# answer
RETRY: Final = 10_000_000
# ns without a tick after which the loop counts as stalled: the driver may have answers that it has
# not read.
STALL: Final = 2 * RETRY
# Streams that are tried at once without an answer; the others have their turn at later attempts.
# This bounds the cost of a tick, whatever the number of streams that wait.
AT_ONCE: Final = 1024


class Retries:
    """The waiting messages of one phase of one worker, and the attempts to send them.

    :param first: int64, by stream, the sequence of the phase's first message.
    :param clock: read after each attempt: a client that is slow to take messages did not find the
        window full before.
    """

    def __init__(
        self,
        driver: Driver,
        schedule: Schedule,
        ledger: Ledger,
        streams: Streams,
        first: Column,
        clock: Clock,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._schedule = schedule
        self._ledger = ledger
        self._streams = streams
        self._first = first
        self.waiting = Waiting(len(streams))

    def reject(self, burst: Burst, rejected: Column) -> NDArray[np.bool_]:
        """Make streams wait that were rejected and did not wait before.

        :param rejected: positions in the burst.

        :returns: a mask of the messages of the burst that were taken.
        """
        taken = np.ones(len(burst), np.bool_)
        taken[rejected] = False
        index = self._index(burst.stream[rejected])
        number = burst.seq[rejected] - self._first[index]
        # a stream's rejected messages are its last ones in the burst, so its first one here is the
        # oldest that waits
        streams, oldest, counts = np.unique(index, return_index=True, return_counts=True)
        self.waiting.begin(streams, number[oldest], number[oldest] + counts, self._clock())
        return taken

    def join(self, block: Block, start: int, stop: int) -> Column:
        """Add newly due rows of a block to the streams that wait.

        :returns: the indexes of the rows whose streams do not wait.
        """
        index = self._index(block.stream[start:stop])
        waits = self.waiting.streams()[index]
        self.waiting.join(index[waits])
        return np.flatnonzero(~waits) + start

    def answered(self, acks: Acks) -> None:
        """Note answers to messages, before they are removed from their blocks: their streams have
        room.
        """
        for stream, time in self._ledger.answers(acks):
            self.waiting.answered(self._index(stream), time)

    def drop(self, stream: NDArray[np.int32]) -> None:
        """Give up the oldest waiting message of each of these streams: one entry for each."""
        self.waiting.drop(self._index(stream))

    def full_until(self, now: int) -> Column:
        """Return, by stream, the instant until which its window was full, as far as is known at
        ``now``; 0 if it does not wait.
        """
        waits = self.waiting.streams()
        until: Column = np.where(waits, now, 0)
        # Streams with answers are tried at every tick, so an older attempt means that the loop
        # stalled. Until the next attempt only the answers tell whether the target was idle
        # meanwhile: it was, from the last answer on, if nothing is in flight any more.
        late = np.flatnonzero(waits & self.waiting.answered_since_attempt(now - STALL))
        if len(late):
            emptied = late[~np.isin(late, self._index(self._ledger.in_flight()))]
            answered = self.waiting.answered_at[emptied]
            until[emptied] = np.maximum(answered, self.waiting.tried_at[emptied])
        return until

    def blocked(self, block: Block, rows: Column, until: Column) -> Column:
        """Return how long unsent messages of a block have waited for their full windows, ns.

        :param rows: their positions in the block.
        :param until: from :meth:`full_until`, before any of them was dropped.
        """
        index = self._index(block.stream[rows])
        full_until = until[index]
        tried = self.waiting.tried_at[index]
        blocked = self.waiting.blocked[index]
        # The column of a message that was there at the last attempt has the time before it already:
        # see _account.
        counted = self.waiting.is_counted(index, block.seq[rows] - self._first[index])
        joined_before = blocked_before(block.intended[rows], tried, blocked, full_until)
        before = np.where(counted, -block.blocked[rows], joined_before)
        waited = np.maximum(blocked + full_until - tried - before, 0)
        return np.where(full_until > 0, waited, 0)

    def retry(self, now: int) -> Iterator[Column]:
        """Offer waiting messages again, the oldest of each stream first.

        Yields send delays, less blocked time, of those taken.
        """
        index, freed = self.waiting.candidates(now)
        most = np.maximum(freed, 1)
        while len(index):
            taken, delays = self._offer(index, most, now)
            yield from delays
            # Answers make room for as many messages. For streams that were tried without an answer
            # the room is unknown: as long as all that is offered is taken, twice as many are
            # offered.
            more = (freed == 0) & (taken == most) & self.waiting.streams()[index]
            index = index[more]
            freed = freed[more]
            most = 2 * most[more]

    def _offer(self, index: Column, most: Column, now: int) -> tuple[Column, list[Column]]:
        """Offer the oldest ``most`` messages of each of these streams.

        :returns: the number taken of each stream, and the send delays, less blocked time, of all
            messages taken.
        """
        rows, place = self._rows(index, *self.waiting.offer(index, most))
        burst = _joined([block.copy(within) for block, within, _ in self._ledger.parts(rows)])
        rejected = self._driver.send(burst)
        took = np.ones(len(burst), np.bool_)
        if rejected is not None:
            took[rejected] = False
        taken = np.bincount(place[took], minlength=len(index))
        # the driver sets idle on the first message of a stream that found its window empty: the
        # highest is the one that is set
        idle = np.zeros(len(index), np.int64)
        np.maximum.at(idle, place[took], burst.idle[took])
        self._account(index, taken, idle, now)
        blocked = self.waiting.blocked[index][place[took]]
        return taken, list(self._note(rows[took], burst.sent[took], blocked))

    def _account(self, index: Column, taken: Column, idle: Column, now: int) -> None:
        """Update the blocked time of streams that were just tried.

        Each message that joined since the last attempt gets, in ``blocked``, minus the time that
        its stream had been blocked before the message was intended. When it is taken, the stream's
        whole blocked time is added, which leaves the part after the intended time.
        """
        newcomers = self.waiting.newcomers(index)
        tried = self.waiting.tried_at[index]
        blocked = self.waiting.blocked[index]
        until = self.waiting.tried(index, taken, idle, now, self._clock())
        rows, place = self._rows(index, *newcomers)
        for block, i, part in self._ledger.parts(rows):
            at = place[part]
            block.blocked[i] = -blocked_before(block.intended[i], tried[at], blocked[at], until[at])

    def _note(self, rows: Column, sent: Column, blocked: Column) -> Iterator[Column]:
        """Note in their blocks that rows were taken.

        :param blocked: the whole blocked time of their streams.
        """
        for block, i, part in self._ledger.parts(rows):
            block.sent[i] = sent[part]
            block.blocked[i] += blocked[part]
            yield sent[part] - block.intended[i] - block.blocked[i]

    def _rows(self, index: Column, stream: Column, number: Column) -> tuple[Column, Column]:
        """Return ascending rows of messages, and the position of each one's stream in ``index``,
        which ascends.
        """
        rows = self._schedule.find(stream, number) + self._ledger.row
        order = np.argsort(rows)  # a burst is in intended order, which is the order of rows
        return rows[order], np.searchsorted(index, stream[order])

    def _index(self, stream: NDArray[np.int32]) -> Column:
        """Return the position of each stream among the worker's."""
        return position_of(self._streams, stream)


def _joined(bursts: Sequence[Burst]) -> Burst:
    if len(bursts) == 1:
        return bursts[0]
    joined: dict[str, Any] = {}
    for field in fields(Burst):
        parts = [getattr(burst, field.name) for burst in bursts]
        joined[field.name] = None if parts[0] is None else np.concatenate(parts)
    return Burst(**joined)


def blocked_before(intended: Column, tried: Column, blocked: Column, until: Column) -> Column:
    """Return how long streams were blocked before the intended times of messages, which are after
    their last attempt.

    :param tried: the last attempt.
    :param blocked: time blocked until then.
    :param until: the instant until which the window was full.
    """
    before: Column = blocked + np.maximum(np.minimum(intended, until) - tried, 0)
    return before


class Waiting:
    """The waiting messages of each stream, as ranges of numbers, and the blocked times.

    Times are ns of the clock.

    A range for each stream rather than a list of messages: however many wait, an attempt costs only
    what it offers.

    :param streams: number of the worker's streams.
    """

    def __init__(self, streams: int) -> None:
        self.count = 0
        """Number of messages that wait."""
        self.first = np.zeros(streams, np.int64)
        """By stream, the number of the oldest message that waits; all from it up to ``end``
        (exclusive) wait.
        """
        self.end = np.zeros(streams, np.int64)
        # up to here, messages have the blocked time before them subtracted
        self._known = np.zeros(streams, np.int64)
        self.tried_at = np.zeros(streams, np.int64)
        """By stream, the time of the last attempt."""
        self.blocked = np.zeros(streams, np.int64)
        """By stream, the blocked time from the beginning of the wait to the last attempt."""
        self._freed = np.zeros(streams, np.int64)  # answers since the last attempt
        self.answered_at = np.zeros(streams, np.int64)
        """By stream, the time of the latest answer that was noted."""
        self._retry_at = self._turn = 0

    @property
    def any(self) -> bool:
        return self.count > 0

    def streams(self) -> NDArray[np.bool_]:
        """Return a mask of the streams that wait."""
        mask: NDArray[np.bool_] = self.end > self.first
        return mask

    def begin(self, index: Column, first: Column, end: Column, now: int) -> None:
        """Make streams wait that were rejected at ``now``.

        :param first, end: range of the numbers of the messages that wait.
        """
        self.first[index] = first
        self.end[index] = end
        self._known[index] = end
        self.tried_at[index] = now
        self.blocked[index] = 0
        self._freed[index] = 0
        if not self.count:
            self._retry_at = now + RETRY
        self.count += int((end - first).sum())

    def join(self, index: Column) -> None:
        """Add a message that became due to each of these streams, which all wait already; one entry
        for each message.
        """
        np.add.at(self.end, index, 1)
        self.count += len(index)

    def answered(self, index: Column, time: Column) -> None:
        """Note answers, one entry each: their streams may have room.

        :param time: their times.
        """
        np.add.at(self._freed, index, 1)
        np.maximum.at(self.answered_at, index, time)

    def answered_since_attempt(self, before: int) -> NDArray[np.bool_]:
        """Return a mask of the streams with an answer since their last attempt, if that was before
        this instant.
        """
        mask: NDArray[np.bool_] = (self._freed > 0) & (self.tried_at < before)
        return mask

    def is_counted(self, index: Column, number: Column) -> NDArray[np.bool_]:
        """Return whether the blocked time before each of these messages was subtracted at an
        attempt.
        """
        mask: NDArray[np.bool_] = number < self._known[index]
        return mask

    def candidates(self, now: int) -> tuple[Column, Column]:
        """Return the streams to try now, with their answers since the last attempt; every ``RETRY``
        ns also streams without answers.
        """
        waits = self.streams()
        index = np.flatnonzero(waits & (self._freed > 0))
        if now >= self._retry_at:
            self._retry_at = now + RETRY
            index = np.union1d(index, self._in_turn(np.flatnonzero(waits)))
        return index, self._freed[index]

    def _in_turn(self, waits: Column) -> Column:
        if len(waits) <= AT_ONCE:
            return waits
        # go on where the last attempt ended, and wrap around: every waiting stream has its turn
        start = int(np.searchsorted(waits, self._turn))
        chosen = np.take(waits, np.arange(start, start + AT_ONCE), mode="wrap")
        self._turn = int(chosen[-1]) + 1
        return chosen

    def newcomers(self, index: Column) -> tuple[Column, Column]:
        """Return stream and number of each message that joined these streams since they were last
        tried.
        """
        return _spread(index, self._known[index], self.end[index] - self._known[index])

    def offer(self, index: Column, most: Column) -> tuple[Column, Column]:
        """Return stream and number of each of the ``most`` oldest messages of these streams."""
        waiting = self.end[index] - self.first[index]
        return _spread(index, self.first[index], np.minimum(most, waiting))

    def tried(self, index: Column, taken: Column, idle: Column, now: int, ended: int) -> Column:
        """Note an attempt of these streams at ``now``.

        :param taken: messages taken of each stream.
        :param idle: when its window ran empty, 0 if it did not.
        :param ended: when the client had taken or rejected the messages: the window is full from
            then on.
        :returns: the instant until which each window was full since the attempt before.
        """
        before = self.tried_at[index]
        # the window was empty from "idle" on, which explains no more waiting; an instant before the
        # last attempt is of an older wait
        ran_empty = (taken > 0) & (idle > 0)
        end: Column = np.where(ran_empty, np.minimum(now, idle), now)
        # An attempt may follow another one in the same tick.
        end = np.maximum(end, before)
        self.blocked[index] += end - before
        self.tried_at[index] = ended
        self._freed[index] = 0
        self._known[index] = self.end[index]
        self.first[index] += taken
        self.count -= int(taken.sum())
        return end

    def drop(self, index: Column) -> None:
        """Give up the oldest message of each of these streams; one entry for each message."""
        np.add.at(self.first, index, 1)
        self.count -= len(index)
        np.maximum(self._known, self.first, out=self._known)


def _spread(index: Column, first: Column, count: Column) -> tuple[Column, Column]:
    """Return, for each ``i``, the numbers ``first[i] … first[i]+count[i]-1`` with ``index[i]``; one
    entry for each number.
    """
    # firsts [5, 8] with counts [2, 1] start at [0, 2]: [5 - 0, 5 - 0, 8 - 2] + [0, 1, 2] is 5, 6, 8
    starts = np.cumsum(count) - count
    number = np.repeat(first - starts, count) + np.arange(int(count.sum()))
    return np.repeat(index, count), number
