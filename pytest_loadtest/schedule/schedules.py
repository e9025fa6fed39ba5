"""The messages of all streams of one worker, in the order in which they are intended to leave.

A row is one message: row 0 is the worker's first of the phase. With a rate in messages, a row's stream, number and place in the run's
train follow from the row by arithmetic. With a rate in bytes they follow from the sizes that are drawn: message ``k`` of stream ``s``
is due when the run's byte train reaches ``P · (bytes of messages 0 … k-1 of the stream) + s · mean``. So each stream has its share of the
byte rate whatever sizes it draws, and the streams do not start together. All streams are then merged by a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.schedule.stream_order import RoundRobin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.draws import WeightedChoice
    from pytest_loadtest.message.payloads import Chooser
    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.schedule.pacing import Pacer
    from pytest_loadtest.schedule.stream_order import StreamOrder, Turns

    Column = NDArray[np.int64]

_AHEAD = 8192  # messages that are drawn at once with a rate in bytes


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows.

    :param index: int64, position of the stream among the worker's. :param number: int64, of the message in its stream, from 0 in the phase.
    :param time: int64 ns after the phase's start. :param payload: uint16, index into the pool.
    """

    index: Column
    number: Column
    time: Column
    payload: NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Drawing:
    """The choice of payloads for messages.

    :param streams: the worker's streams. :param first: int64, by stream, the sequence of the phase's first message.
    """

    chooser: Chooser
    streams: Streams
    first: Column
    sizes: NDArray[np.int32]

    def draw(self, index: Column, number: Column, table: WeightedChoice) -> NDArray[np.uint16]:
        """Return the payload of each message. :param index, number: as in :class:`Rows`."""
        return self.chooser.draw(index, self.first[index] + number, table)


class EvenSchedule:
    """A schedule for a rate in messages: everything is computed from the row.

    :param turns: the order of streams of a skewed workload; None: round robin.
    """

    def __init__(self, pacer: Pacer, drawing: Drawing, table: WeightedChoice, turns: Turns | None = None) -> None:
        self.pacer, self._drawing = pacer, drawing
        self._order: StreamOrder = RoundRobin(pacer.streams, drawing.streams) if turns is None else turns.order_of(drawing.streams)
        self._tables = [(0, table)]  # the first message of the run whose payload is drawn by the table
        self._changes: list[tuple[int, int]] = []  # instant, first message of the run from it on

    def due(self, elapsed: int) -> int:
        """Return how many rows are due ``elapsed`` ns after the start."""
        return self._order.before(self.pacer.due(elapsed))

    def time(self, row: int) -> int:
        """Return when a row is due; :data:`~pytest_loadtest.schedule.pacing.NEVER` if the rate has ended at 0."""
        return self.pacer.time(self._order.place(row))

    def rows(self, first: int, count: int) -> Rows:
        """Return rows ``first … first+count-1``; none may be below a row given to :meth:`forget`."""
        index, number, place = self._order.rows(np.arange(first, first + count, dtype=np.int64))
        edges = [0, *np.searchsorted(place, [start for start, _ in self._tables[1:]]).tolist(), count]
        drawn = [
            self._drawing.draw(index[low:high], number[low:high], table)
            for (_, table), low, high in zip(self._tables, edges[:-1], edges[1:], strict=True)
            if low < high
        ]
        return Rows(index, number, self.pacer.times(place), drawn[0] if len(drawn) == 1 else np.concatenate(drawn))

    def find(self, index: Column, number: Column) -> Column:
        """Return the row of each message, number ``number`` of the worker's ``index``-th stream, which was in a row already."""
        return self._order.find(index, number)

    def numbers(self, row: int) -> Column:
        """Return, by stream, the number of messages before ``row``."""
        return self._order.numbers(row)

    def change(self, at: int, table: WeightedChoice | None) -> int:
        """Prepare a change of the rows that are due ``at`` ns after the start or later. :param table: their payloads' table, if it changes.

        :returns: the first row that is affected.
        """
        place = self.pacer.due(at - 1)
        self._changes.append((at, place))
        if table is not None:
            self._tables = [*((start, old) for start, old in self._tables if start < place), (place, table)]
        return self._order.before(place)

    def forget(self, row: int) -> None:
        """Discard the rows before this one: no method gets them again, not even :meth:`find`."""
        # nothing is stored

    def marks(self) -> list[tuple[int, Column]]:
        """Return the instant of each change so far, with the number of messages of each stream due before it."""
        return [(at, self.numbers(self._order.before(place))) for at, place in self._changes]


class _Drawn(NamedTuple):
    """Messages drawn at once. :param first: by stream, the number of its first. :param row: ``(streams, k)``, -1 if it has no row yet."""

    first: Column
    row: Column


class ByteSchedule:
    """A schedule for a rate in bytes: messages are drawn ahead for all streams, and merged by their place in the run's byte train.

    All messages that begin before ``_reach`` are drawn. ``_next`` is, by stream, the number of the first message after them, and ``_begin``
    the place where it begins. The public methods are those of :class:`EvenSchedule`.

    :param mean: mean bytes of a message, by which the beginnings of the streams are apart.
    """

    def __init__(self, pacer: Pacer, drawing: Drawing, table: WeightedChoice, mean: float) -> None:
        self.pacer, self._drawing = pacer, drawing
        self._tables = [(0, table)]
        self._begin = np.array([round(stream * mean) for stream in drawing.streams], np.int64)
        self._next = np.zeros(len(self._begin), np.int64)
        self._reach = self._first = 0
        self._index = self._number = self._place = np.empty(0, np.int64)  # of rows from _first on
        self._payload = np.empty(0, np.uint16)
        self._drawn: list[_Drawn] = []
        self._changes: list[tuple[int, int]] = []
        self._marks: dict[int, Column] = {}  # by place of a change

    def due(self, elapsed: int) -> int:
        reached = self.pacer.due(elapsed)
        while self._reach < reached:
            self._draw()
        return self._first + int(np.searchsorted(self._place, reached))

    def time(self, row: int) -> int:
        self._draw_until(row + 1)
        return self.pacer.time(int(self._place[row - self._first]))

    def rows(self, first: int, count: int) -> Rows:
        self._draw_until(first + count)
        span = slice(first - self._first, first - self._first + count)
        return Rows(self._index[span], self._number[span], self.pacer.times(self._place[span]), self._payload[span])

    def _draw_until(self, rows: int) -> None:
        while self._first + len(self._place) < rows:
            self._draw()

    def _draw(self) -> None:
        """Draw the next messages of every stream; those that begin before the first undrawn one get rows, the others are drawn again."""
        streams = len(self._next)
        each = max(_AHEAD // streams, 8)
        index = np.repeat(np.arange(streams), each)
        number = np.repeat(self._next, each) + np.tile(np.arange(each), streams)
        table = next(table for start, table in reversed(self._tables) if start <= self._reach)
        payload = self._drawing.draw(index, number, table)
        lengths = self._drawing.sizes[payload].astype(np.int64).reshape(streams, each) * self.pacer.streams
        ends = self._begin[:, None] + np.cumsum(lengths, axis=1)
        begins = ends - lengths
        self._reach = min([int(ends[:, -1].min()), *(place for place in self._edges() if place > self._reach)])
        chosen = np.flatnonzero(begins.ravel() < self._reach)
        chosen = chosen[np.argsort(begins.ravel()[chosen], kind="stable")]
        self._append_rows(chosen, index, number, begins.ravel(), payload)
        counts = np.bincount(index[chosen], minlength=streams)
        partly = counts < each
        self._begin = np.where(partly, begins[np.arange(streams), np.minimum(counts, each - 1)], ends[:, -1])
        self._next = self._next + counts
        if self._reach in self._edges():
            self._marks[self._reach] = self._next

    def _append_rows(self, chosen: Column, index: Column, number: Column, begins: Column, payload: NDArray[np.uint16]) -> None:
        row = np.full(len(index), -1, np.int64)
        row[chosen] = np.arange(len(chosen)) + self._first + len(self._place)
        self._drawn.append(_Drawn(self._next, row.reshape(len(self._next), -1)))
        self._index = np.concatenate([self._index, index[chosen]])
        self._number = np.concatenate([self._number, number[chosen]])
        self._place = np.concatenate([self._place, begins[chosen]])
        self._payload = np.concatenate([self._payload, payload[chosen]])

    def _edges(self) -> set[int]:
        """Return the places of changes: one drawing never goes beyond such a place, because its table would be wrong from there on."""
        return {place for _, place in self._changes}

    def find(self, index: Column, number: Column) -> Column:
        firsts = np.stack([drawn.first for drawn in self._drawn])
        part = (firsts[:, index] <= number).sum(axis=0) - 1
        row = np.empty(len(index), np.int64)
        for i in np.unique(part).tolist():
            mine = part == i
            row[mine] = self._drawn[i].row[index[mine], (number - firsts[i][index])[mine]]
        return row

    def numbers(self, row: int) -> Column:
        self._draw_until(row)
        counts = self._next.copy()
        later = slice(row - self._first, None)
        counts[self._index[later][::-1]] = self._number[later][::-1]  # in reverse, so that the first of each stream is written last
        return counts

    def change(self, at: int, table: WeightedChoice | None) -> int:
        place = self.pacer.due(at - 1)
        self._changes.append((at, place))
        first = self._first + int(np.searchsorted(self._place, place))
        if place <= self._reach:
            self._marks[place] = self.numbers(first)
        if table is not None:
            self._tables = [*((start, old) for start, old in self._tables if start < place), (place, table)]
            if place < self._reach:
                self._draw_again(first, place)
        return first

    def _draw_again(self, row: int, place: int) -> None:
        """Take back the rows from ``row`` on, which are those that begin at ``place`` or later."""
        later = slice(row - self._first, None)
        self._next = self.numbers(row)
        begin = self._begin.copy()
        begin[self._index[later][::-1]] = self._place[later][::-1]
        self._begin, self._reach = begin, place
        kept = slice(0, row - self._first)
        self._index, self._number, self._place = self._index[kept], self._number[kept], self._place[kept]
        self._payload = self._payload[kept]
        self._drawn = [drawn for drawn in self._drawn if ((drawn.row >= 0) & (drawn.row < row)).any()]

    def forget(self, row: int) -> None:
        passed = min(row - self._first, len(self._place))
        if passed < _AHEAD:  # not at every call, because the remaining rows are copied
            return
        self._first += passed
        self._index, self._number, self._place = self._index[passed:], self._number[passed:], self._place[passed:]
        self._payload = self._payload[passed:]
        self._drawn = [drawn for drawn in self._drawn if drawn.row.max() >= row]

    def marks(self) -> list[tuple[int, Column]]:
        return [(at, self._marks.get(place, self._next)) for at, place in self._changes]


Schedule = EvenSchedule | ByteSchedule
