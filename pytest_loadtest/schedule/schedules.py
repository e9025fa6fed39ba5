"""The messages of all streams of one worker, in the order in which they are intended to leave.

A row is one message: row 0 is the worker's first of the phase. Where messages are paced, a row's stream, number and place in the run's
train follow from the row by arithmetic. Where bytes are paced they follow from the sizes that are drawn: message ``k`` of stream ``s``
is due when the run's byte train reaches ``P · (bytes of messages 0 … k-1 of the stream) + s · mean``, so that each stream carries its
share of the byte rate whatever sizes it draws, and the streams do not start together; all streams are then merged by a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pytest_loadtest.schedule.stream_order import RoundRobin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.draws import WeightedChoice
    from pytest_loadtest.message.payloads import Chooser
    from pytest_loadtest.schedule.pacing import Pacer
    from pytest_loadtest.schedule.stream_order import StreamOrder, Turns

    Column = NDArray[np.int64]

_AHEAD = 8192  # messages that are drawn at once where bytes are paced


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows.

    :param index: int64, of the stream among the worker's. :param number: int64, of the message in its stream, from 0 in the phase.
    :param time: int64 ns after the phase's start. :param payload: uint16, index into the pool.
    """

    index: Column
    number: Column
    time: Column
    payload: NDArray[np.uint16]


class Schedule(Protocol):
    """When the rows of one worker are due in one phase; ns after the phase's start."""

    pacer: Pacer

    def due(self, elapsed: int) -> int:
        """How many rows are due once ``elapsed`` ns have passed."""

    def time(self, row: int) -> int:
        """When a row is due; :data:`~pytest_loadtest.schedule.pacing.NEVER` where the rate has ended at 0."""

    def rows(self, first: int, count: int) -> Rows:
        """Rows ``first … first+count-1``; none below a row that was forgotten."""

    def find(self, index: Column, number: Column) -> Column:
        """The row of each message: number ``number`` of the worker's ``index``-th stream. The schedule must have got that far."""

    def numbers(self, row: int) -> Column:
        """By stream, how many messages lie before ``row``."""

    def change(self, at: int, table: WeightedChoice | None) -> int:
        """Something is different about what is due ``at`` ns after the start or later. :param table: what payloads are drawn by from there.

        :returns: the first row that it may change, among those that were given out.
        """

    def forget(self, row: int) -> None:
        """Rows before this one are not asked for again, not even by :meth:`find`."""

    def marks(self) -> list[tuple[int, Column]]:
        """For every change so far: its instant, and by stream how many messages are due before it."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """By whose draws payloads are chosen.

    :param streams: the worker's. :param first: int64, by stream, the sequence of the phase's first message.
    """

    chooser: Chooser
    streams: range
    first: Column
    sizes: NDArray[np.int32]

    def draw(self, index: Column, number: Column, table: WeightedChoice) -> NDArray[np.uint16]:
        """The payload of each message. :param index, number: as in :class:`Rows`."""
        return self.chooser.draw(index, self.first[index] + number, table)


class EvenSchedule:
    """So many messages a second: all is arithmetic on the row.

    :param turns: whose turn each message of the run is; None: they are dealt over all streams in turn.
    """

    def __init__(self, pacer: Pacer, drawing: Drawing, table: WeightedChoice, turns: Turns | None = None) -> None:
        self.pacer, self._drawing = pacer, drawing
        self._dealt: StreamOrder = RoundRobin(pacer.streams, drawing.streams) if turns is None else turns.of(drawing.streams)
        self._tables = [(0, table)]  # from which message of the run on payloads are drawn by which table
        self._changes: list[tuple[int, int]] = []  # instant, the run's first message from it on

    def due(self, elapsed: int) -> int:
        return self._dealt.before(self.pacer.due(elapsed))

    def time(self, row: int) -> int:
        return self.pacer.time(self._dealt.place(row))

    def rows(self, first: int, count: int) -> Rows:
        index, number, place = self._dealt.rows(np.arange(first, first + count, dtype=np.int64))
        edges = [0, *np.searchsorted(place, [start for start, _ in self._tables[1:]]).tolist(), count]
        drawn = [
            self._drawing.draw(index[low:high], number[low:high], table)
            for (_, table), low, high in zip(self._tables, edges[:-1], edges[1:], strict=True)
            if low < high
        ]
        return Rows(index, number, self.pacer.times(place), drawn[0] if len(drawn) == 1 else np.concatenate(drawn))

    def find(self, index: Column, number: Column) -> Column:
        return self._dealt.find(index, number)

    def numbers(self, row: int) -> Column:
        return self._dealt.numbers(row)

    def change(self, at: int, table: WeightedChoice | None) -> int:
        place = self.pacer.due(at - 1)
        self._changes.append((at, place))
        if table is not None:
            self._tables = [*((start, old) for start, old in self._tables if start < place), (place, table)]
        return self._dealt.before(place)

    def forget(self, row: int) -> None:
        """Nothing is kept."""

    def marks(self) -> list[tuple[int, Column]]:
        return [(at, self.numbers(self._dealt.before(place))) for at, place in self._changes]


class _Drawn(NamedTuple):
    """Messages drawn in one go. :param first: by stream, the number of its first. :param row: ``(streams, k)``, -1 where not given out."""

    first: Column
    row: Column


class ByteSchedule:
    """So many bytes a second: messages are drawn ahead for all streams, and merged by where in the run's byte train they begin.

    All messages that begin before ``_reach`` are drawn; ``_next`` is, by stream, the number of the one after, and ``_begin`` where it
    begins.

    :param mean: bytes of a message, for the places where the streams begin.
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
        """Draw the next few messages of every stream; give out those that begin before the first that is not drawn yet."""
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
        given = np.flatnonzero(begins.ravel() < self._reach)
        given = given[np.argsort(begins.ravel()[given], kind="stable")]
        self._give_out(given, index, number, begins.ravel(), payload)
        counts = np.bincount(index[given], minlength=streams)
        some = counts < each
        self._begin = np.where(some, begins[np.arange(streams), np.minimum(counts, each - 1)], ends[:, -1])
        self._next = self._next + counts
        if self._reach in self._edges():
            self._marks[self._reach] = self._next

    def _give_out(self, given: Column, index: Column, number: Column, begins: Column, payload: NDArray[np.uint16]) -> None:
        row = np.full(len(index), -1, np.int64)
        row[given] = np.arange(len(given)) + self._first + len(self._place)
        self._drawn.append(_Drawn(self._next, row.reshape(len(self._next), -1)))
        self._index = np.concatenate([self._index, index[given]])
        self._number = np.concatenate([self._number, number[given]])
        self._place = np.concatenate([self._place, begins[given]])
        self._payload = np.concatenate([self._payload, payload[given]])

    def _edges(self) -> set[int]:
        """Places at which something changes: nothing is drawn across them."""
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
        counts[self._index[later][::-1]] = self._number[later][::-1]  # the first of each stream is written last
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
        """Take back the rows from ``row`` on, which are all that begin at ``place`` or later."""
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
        if passed < _AHEAD:  # not every time: what is kept is copied
            return
        self._first += passed
        self._index, self._number, self._place = self._index[passed:], self._number[passed:], self._place[passed:]
        self._payload = self._payload[passed:]
        self._drawn = [drawn for drawn in self._drawn if drawn.row.max() >= row]

    def marks(self) -> list[tuple[int, Column]]:
        return [(at, self._marks.get(place, self._next)) for at, place in self._changes]
