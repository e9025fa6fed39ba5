"""The messages of all streams of one worker, in the order in which they are intended to leave.

A row is one message: row 0 is the worker's first of the phase. A row's stream, number and number in
the run follow from the row by arithmetic (:mod:`pytest_loadtest.schedule.stream_order`), whatever
the unit of the rate. With a rate in messages, its time does too. With a rate in bytes, the messages
of the whole run are one train: message ``n`` is due when the bytes of the messages ``0 … n-1`` have
been sent at the rate. So each stream has its share of the messages, and every worker draws the
sizes of all messages of the run.

The engine of each worker reads rows in the thread of its loop: those that are due, and again those
that wait for a full window.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.schedule.stream_order import RoundRobin, StreamOrder, Turns
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.draws import WeightedChoice
    from pytest_loadtest.message.payloads import Chooser
    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.schedule.pacing import Pacer

    Column = NDArray[np.int64]
    Tables = list[tuple[int, WeightedChoice]]

# messages of the run that are drawn at once with a rate in bytes: their columns stay in the cache
_AHEAD: Final = 8192
# forgotten rows that are kept, because the remaining rows are copied when they are discarded
_MOST_PASSED: Final = 8192


@immutable
class Rows:
    """Consecutive rows.

    :param index: int64, position of the stream among the worker's.
    :param number: int64, of the message in its stream, from 0 in the phase.
    :param time: int64 ns after the phase's start.
    :param payload: uint16, index into the pool.
    """

    index: Column
    number: Column
    time: Column
    payload: NDArray[np.uint16]


@immutable
class Drawing:
    """The choice of payloads for messages.

    :param streams: the worker's streams.
    :param first: int64, by stream, the sequence of the phase's first message.
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

    def __init__(
        self, pacer: Pacer, drawing: Drawing, table: WeightedChoice, turns: Turns | None = None
    ) -> None:
        self.pacer = pacer
        self._drawing = drawing
        self._order = _order_of(drawing.streams, pacer, turns)
        # the first message of the run whose payload is drawn by the table
        self._tables = [(0, table)]
        self._changes: list[tuple[int, int]] = []  # instant, first message of the run from it on

    def due(self, elapsed: int) -> int:
        """Return how many rows are due ``elapsed`` ns after the start."""
        return self._order.before(self.pacer.due(elapsed))

    def time(self, row: int) -> int:
        """Return when a row is due; :data:`~pytest_loadtest.schedule.pacing.NEVER` if the rate has
        ended at 0.
        """
        return self.pacer.time(self._order.place(row))

    def rows(self, first: int, count: int) -> Rows:
        """Return rows ``first … first+count-1``, none below a row given to :meth:`forget`."""
        index, number, place = self._order.rows(np.arange(first, first + count, dtype=np.int64))
        if len(self._tables) == 1:  # the usual case: nothing is copied
            payload = self._drawing.draw(index, number, self._tables[0][1])
        else:
            payload = np.empty(count, np.uint16)
            end = count
            for start, table in reversed(self._tables):
                begin = int(np.searchsorted(place, start))
                if begin < end:
                    own = slice(begin, end)
                    payload[own] = self._drawing.draw(index[own], number[own], table)
                end = begin
        return Rows(index, number, self.pacer.times(place), payload)

    def find(self, index: Column, number: Column) -> Column:
        """Return the row of each message, number ``number`` of the worker's ``index``-th stream,
        which was in a row already.
        """
        return self._order.find(index, number)

    def numbers(self, row: int) -> Column:
        """Return, by stream, the number of messages before ``row``."""
        return self._order.numbers(row)

    def change(self, at: int, table: WeightedChoice | None) -> int:
        """Prepare a change of the rows that are due ``at`` ns after the start or later.

        :param table: their payloads' table, if it changes.

        :returns: the first row that is affected.
        """
        place = self.pacer.due(at - 1)
        self._changes.append((at, place))
        if table is not None:
            self._tables = _with_table(self._tables, place, table)
        return self._order.before(place)

    def forget(self, row: int) -> None:
        """Discard the rows before this one: only :meth:`find` gets them again."""
        # nothing is stored

    def marks(self) -> list[tuple[int, Column]]:
        """Return the instant of each change so far, with the number of messages of each stream due
        before it.
        """
        return [(at, self.numbers(self._order.before(place))) for at, place in self._changes]


def _order_of(streams: Streams, pacer: Pacer, turns: Turns | None) -> StreamOrder:
    if turns is None:
        return RoundRobin(pacer.streams, streams)
    return turns.order_of(streams)


def _with_table(tables: Tables, place: int, table: WeightedChoice) -> Tables:
    """Return the tables with another one from a place on."""
    earlier = [(start, old) for start, old in tables if start < place]
    return [*earlier, (place, table)]


class _Front(NamedTuple):
    """The first message that is not drawn yet.

    :param message: its number in the run.
    :param place: its place in the train, bytes.
    """

    message: int
    place: int


class ByteSchedule:
    """A schedule for a rate in bytes: one train of bytes for the whole run, in which a message
    begins where the one before it ends.

    The sizes of all messages of the run are drawn in order, and the places and payloads of this
    worker's are kept. The public methods are those of :class:`EvenSchedule`.

    :param drawing: of all streams of the run.
    :param streams: the worker's, at least one.
    :param turns: the order of streams of a skewed workload; None: round robin.
    """

    def __init__(
        self,
        pacer: Pacer,
        drawing: Drawing,
        table: WeightedChoice,
        streams: Streams,
        turns: Turns | None = None,
    ) -> None:
        self.pacer = pacer
        self._drawing = drawing
        self._order = _order_of(streams, pacer, turns)
        self._everyone = _order_of(drawing.streams, pacer, turns)
        self._tables = [(0, table)]  # the place from which on payloads are drawn by the table
        self._front = _Front(0, 0)
        self._fronts: list[_Front] = []  # before each drawing whose rows are not all forgotten
        self._first = 0  # the first row that is kept
        self._passed = -1  # the place of the last row before it
        self._place = np.empty(0, np.int64)  # of rows from _first on
        self._payload = np.empty(0, np.uint16)
        self._changes: list[tuple[int, int]] = []  # instant, place
        self._rows_before: dict[int, int] = {}  # by the place of a change

    def due(self, elapsed: int) -> int:
        reached = self.pacer.due(elapsed)
        while self._front.place < reached:
            self._draw()
        return self._row_at(reached)

    def time(self, row: int) -> int:
        self._draw_until(row + 1)
        return self.pacer.time(int(self._place[row - self._first]))

    def rows(self, first: int, count: int) -> Rows:
        self._draw_until(first + count)
        span = slice(first - self._first, first - self._first + count)
        index, number, _ = self._order.rows(np.arange(first, first + count, dtype=np.int64))
        return Rows(index, number, self.pacer.times(self._place[span]), self._payload[span])

    def find(self, index: Column, number: Column) -> Column:
        return self._order.find(index, number)

    def numbers(self, row: int) -> Column:
        return self._order.numbers(row)

    @property
    def _end(self) -> int:
        """The first row that is not drawn."""
        return self._first + len(self._place)

    def _row_at(self, place: int) -> int:
        """Return the first row that begins at a place or after it, if all that begin before it are
        drawn.
        """
        return self._first + int(np.searchsorted(self._place, place))

    def _draw_until(self, rows: int) -> None:
        while self._end < rows:
            self._draw()

    def _draw(self) -> None:
        """Draw the next messages of the run, up to the next change of the table, and keep this
        worker's.
        """
        front = self._front
        messages = np.arange(front.message, front.message + _AHEAD, dtype=np.int64)
        index, number, _ = self._everyone.rows(messages)
        at = bisect_right(self._tables, front.place, key=itemgetter(0))
        payload = self._drawing.draw(index, number, self._tables[at - 1][1])

        # sizes of 10, 20 and 5 bytes from place 100 on: 100, 110, 130 and, behind the last, 135
        places = np.empty(_AHEAD + 1, np.int64)
        places[0] = front.place
        np.cumsum(self._drawing.sizes.take(payload), out=places[1:])
        places[1:] += front.place

        count = _AHEAD
        if at < len(self._tables):
            count = int(np.searchsorted(places[:-1], self._tables[at][0]))
        self._front = _Front(front.message + count, int(places[count]))
        self._fronts.append(front)
        self._keep(front.message, count, places, payload)
        for _, place in self._changes:
            if front.place < place <= self._front.place:
                self._rows_before[place] = self._row_at(place)

    def _keep(self, message: int, count: int, places: Column, payload: NDArray[np.uint16]) -> None:
        """Append this worker's rows of ``count`` messages of the run, ``message`` and those after
        it, as far as they are not there yet.
        """
        # messages are drawn again after a change of the table
        first = max(self._order.before(message), self._end)
        rows = np.arange(first, self._order.before(message + count), dtype=np.int64)
        _, _, own = self._order.rows(rows)
        own -= message
        self._place = np.concatenate([self._place, places.take(own)])
        self._payload = np.concatenate([self._payload, payload.take(own)])

    def change(self, at: int, table: WeightedChoice | None) -> int:
        place = self.pacer.due(at - 1)
        self._changes.append((at, place))
        if place <= self._passed:
            return self._first - 1  # it affects rows that are forgotten
        # if the place is not reached yet, the first row that is not drawn
        row = self._row_at(place)
        if place <= self._front.place:
            self._rows_before[place] = row
        if table is not None:
            self._tables = _with_table(self._tables, place, table)
            self._draw_again(place)
        return row

    def _draw_again(self, place: int) -> None:
        """Take back the drawings that go beyond a place, from which on there is another table."""
        while self._front.place > place:
            self._front = self._fronts.pop()
        kept = max(self._order.before(self._front.message) - self._first, 0)
        self._place = self._place[:kept]
        self._payload = self._payload[:kept]

    def forget(self, row: int) -> None:
        passed = min(row - self._first, len(self._place))
        if passed < _MOST_PASSED:
            return
        self._first += passed
        self._passed = int(self._place[passed - 1])
        self._place = self._place[passed:]
        self._payload = self._payload[passed:]
        # A change of the table, which affects no row that is forgotten, begins after the place of
        # the last one.
        reached = bisect_right(self._fronts, self._passed, key=attrgetter("place"))
        del self._fronts[: max(reached - 1, 0)]

    def marks(self) -> list[tuple[int, Column]]:
        rows = self._rows_before
        return [(at, self.numbers(rows.get(place, self._end))) for at, place in self._changes]


Schedule = EvenSchedule | ByteSchedule
