"""Delivery gaps that are shorter than the cells in which the first scan counts receipts.

The rule (:mod:`pytest_loadtest.metrics.gaps`): the longest gap of a pair lies between two cells, or
inside a suspect cell. The receipts of suspect cells are read again and shuffled by slots of whole
cells, because several workers may have the receipts of one cell. Of each piece of a cell only two
leave a task.

These functions are sent to the processes of Spark's workers as code, like those of
:mod:`pytest_loadtest.pipeline.executor`; the suspect cells come from the controller's thread in
:mod:`pytest_loadtest.pipeline.aggregate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pytest_loadtest.metrics.gaps import (
    cells_of_pair,
    ends_of_pieces,
    gap_cells,
    gap_times,
    gaps_of_cells,
    longest_gaps,
    longest_of_each,
    suspect_cells,
)
from pytest_loadtest.metrics.own_delays import gap_times_without_own
from pytest_loadtest.pipeline.bitmaps import RECEIVED_WORD_COLUMNS, WORD_BITS
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.executor import (
    CELLS,
    blocks,
    common,
    pack,
    record_batch,
    tables_of_part,
    unpack,
    unpacked,
)
from pytest_loadtest.pipeline.first_copies import (
    ROWS,
    ROWS_SCHEMA,
    RepeatedCopies,
    without_sent,
)
from pytest_loadtest.pipeline.kernel import copies_of
from pytest_loadtest.pipeline.tables import Table, cut_by, joined, rows_at, take, within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.read import SampleFile

    Rows = Mapping[str, NDArray[Any]]

RECEIPTS: Final = "receipts"
INSIDE: Final = "inside"
# First copies are found by these too: the intended time is part of the number of a word, and the
# lag decides between copies of one instant.
FIRST_COPY_COLUMNS: Final = ("intended", "lag")
# Receipts of a slot, which are sorted together: some 50 MB.
SLOT_RECEIPTS: Final = 1 << 20


class SuspectCells:
    """Cells in which the longest gap of a pair may be.

    :param cells: ``subscription``, ``topic``, ``cell``, ``n``.
    :param piece: ns.
    :param without_own: the receipts are without the generator's own delays.
    """

    def __init__(
        self, run: Expected, cells: Table, piece: NDArray[np.int64], *, without_own: bool
    ) -> None:
        self.without_own = without_own
        self._topics = run.topics
        self._cells = cells_of_pair(run)
        self._size = run.topics * run.subscriptions * self._cells
        pair = cells["subscription"] * run.topics + cells["topic"]
        # They travel with the function that reads the files: compressed, they are a few bytes each.
        self._packed = pack(
            {
                "place": pair * self._cells + cells["cell"],
                "piece": piece,
                "slot": np.cumsum(cells["n"]) // SLOT_RECEIPTS,
            }
        )

    def of_pairs(self, inside: Table) -> Table:
        """Return the gaps of :func:`longest_inside` as those of ``gaps_of_cells``."""
        place = unpack(self._packed)["place"][inside["cell"]]
        return {"pair": place // self._cells, "began": inside["began"], "ended": inside["ended"]}

    def opened(self) -> OpenCells:
        """Return the cells for looking up."""
        return OpenCells(
            unpack(self._packed),
            self._topics,
            self._cells,
            self._size,
            without_own=self.without_own,
        )


class OpenCells:
    """Suspect cells in a task. :param size: the number of all cells of the run."""

    def __init__(
        self, suspects: Table, topics: int, cells: int, size: int, *, without_own: bool
    ) -> None:
        self._topics = topics
        self._cells = cells
        self._times = gap_times_without_own if without_own else gap_times
        self._piece = suspects["piece"]
        self._slot = suspects["slot"]
        # A dense table: one lookup for each row, of which millions may be in suspect cells.
        self._number = np.full(size, -1, np.int32)
        self._number[suspects["place"]] = np.arange(len(suspects["place"]), dtype=np.int32)
        self._pairs = np.zeros(size // cells, np.bool_)
        self._pairs[suspects["place"] // cells] = True

    def of_suspect_pairs(self, copies: Rows) -> Rows:
        """Return the copies to subscriptions of topics that have a suspect cell."""
        return take(copies, self._pairs[self._pair(copies)])

    def receipts(self, copies: Rows, run: Expected) -> Table:
        """Return the copies in suspect cells: ``cell``, its number, and ``time``, ns."""
        times = self._times(copies, run)
        number = self._number[self._pair(copies) * self._cells + gap_cells(times, run)]
        return take({"cell": number.astype(np.int64), "time": times}, number >= 0)

    def by_slot(self, receipts: Sequence[Table]) -> Iterator[tuple[int, Table]]:
        """Yield number and receipts of each slot, without those in the middle of a piece."""
        cell, times = _sorted(receipts)
        ends = ends_of_pieces(cell, times, self._piece[cell])
        cell = cell[ends]
        return cut_by({"cell": cell, "time": times[ends]}, self._slot[cell])

    def _pair(self, copies: Rows) -> NDArray[np.int64]:
        return copies["subscription"] * np.int64(self._topics) + copies["topic"]


def suspects_of(run: Expected, cells: Table, *, without_own: bool) -> SuspectCells | None:
    """Return the suspect cells of a run; None without any.

    :param cells: the table ``gaps``, or ``gaps_without_own``.
    """
    if not len(cells["cell"]):
        return None
    rows, piece = suspect_cells(run, cells, longest_gaps(run, gaps_of_cells(run, cells)))
    if not len(rows):
        return None
    return SuspectCells(run, rows_at(cells, rows), piece, without_own=without_own)


class ReceiptsOfFiles:
    """Return the receipts of suspect cells in a task's files by slot.

    Copies that may not be the first of their delivery are ``rows`` by slots of words instead, see
    :class:`~pytest_loadtest.pipeline.first_copies.FirstCopiesOfFiles`.

    :param suspects: for each part; None without any. The others: see there.
    """

    def __init__(
        self,
        tasks: Sequence[Sequence[SampleFile]],
        parts: Sequence[Expected],
        repeated: Sequence[Table | None],
        suspects: Sequence[SuspectCells | None],
    ) -> None:
        self._tasks = without_sent(tasks)
        self._parts = []
        every = zip(parts, repeated, suspects, strict=True)
        for number, (run, ranges, cells) in enumerate(every):
            if cells is not None:
                self._parts.append((number, run, ranges, cells))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        parts = []
        columns: tuple[str, ...] = RECEIVED_WORD_COLUMNS
        for number, run, ranges, cells in self._parts:
            parts.append(_Part(number, run, ranges, cells.opened()))
            # The generator's own delays follow from the same columns as first copies.
            if ranges is not None or cells.without_own:
                columns = (*RECEIVED_WORD_COLUMNS, *FIRST_COPY_COLUMNS)
        for _, rows in blocks(self._tasks, batches, {"received": columns}):
            for part in parts:
                part.add(copies_of(rows, part.run))
            if sum(part.size for part in parts) > CELLS:
                yield _rows_of(parts)
        yield _rows_of(parts)


class _Part:
    """Receipts of suspect cells of one part, and copies that may not be first ones."""

    def __init__(self, number: int, run: Expected, ranges: Table | None, cells: OpenCells) -> None:
        self._number = number
        self.run = run
        self._ranges = ranges
        self._cells = cells
        self._receipts: list[Table] = []
        self._repeated = RepeatedCopies(words_of(run))
        self._gathered = 0

    @property
    def size(self) -> int:
        """The number of rows gathered."""
        return self._gathered + self._repeated.size

    def add(self, copies: Rows) -> None:
        """Add copies of any pair and cell."""
        if self._ranges is not None:
            copies = self._repeated.number(self._cells.of_suspect_pairs(copies))
            again = within(copies["number"] >> WORD_BITS, self._ranges)
            self._repeated.add(take(copies, again))
            copies = take(copies, ~again)
        receipts = self._cells.receipts(copies, self.run)
        self._receipts.append(receipts)
        self._gathered += len(receipts["cell"])

    def rows(self) -> list[tuple[int, int, str, bytes]]:
        """Remove everything; return it by part, slot and name."""
        rows = []
        for slot, table in self._cells.by_slot(self._receipts):
            rows.append((self._number, slot, RECEIPTS, pack(table)))
        self._receipts = []
        self._gathered = 0
        # Of the copies of a delivery in this task, the first ones are enough.
        split = self._repeated.split()
        if split is not None:
            for slot, copies in self._repeated.slots(split[0]):
                rows.append((self._number, slot, ROWS, pack(copies)))
        return rows


def _rows_of(parts: Sequence[_Part]) -> pa.RecordBatch:
    return record_batch(list(chain.from_iterable(part.rows() for part in parts)), ROWS_SCHEMA)


def receipts_of_slots(
    parts: Sequence[Expected], suspects: Sequence[SuspectCells | None]
) -> Callable[[pa.Table], pa.Table]:
    """Return a function that makes receipts of the first copies of one slot of words.

    It returns receipts as they are.
    """

    # A plain function, for the reason in executor.deliveries_of_words.
    def receipts_of_slot(rows: pa.Table) -> pa.Table:
        if common(rows, "name") != ROWS:
            return rows
        number = common(rows, "part")
        run = parts[number]
        suspect = suspects[number]
        assert suspect is not None
        repeated = RepeatedCopies(words_of(run))
        for content in unpacked(rows):
            repeated.add(content)
        split = repeated.split()
        cells = suspect.opened()
        receipts = []
        if split is not None:
            receipts.append(cells.receipts(split[0], run))
        sent = [(number, slot, RECEIPTS, pack(table)) for slot, table in cells.by_slot(receipts)]
        return pa.Table.from_batches([record_batch(sent, ROWS_SCHEMA)])

    return receipts_of_slot


def longest_inside(rows: pa.Table) -> pa.Table:
    """Return the table ``inside`` of one slot: the longest gap inside each suspect cell.

    Its columns are ``cell``, ``began`` and ``ended``.
    """
    cell, times = _sorted(list(unpacked(rows)))
    same = np.flatnonzero(cell[1:] == cell[:-1])
    columns = longest_of_each(cell[same], times[same], times[same + 1])
    table = dict(zip(("cell", "began", "ended"), columns, strict=True))
    return tables_of_part(common(rows, "part"), [(INSIDE, table)])


def _sorted(receipts: Sequence[Table]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return cells and times of all receipts, in order."""
    none = np.zeros(0, np.int64)
    every = joined([{"cell": none, "time": none}, *receipts])
    order = np.lexsort((every["time"], every["cell"]))
    return every["cell"][order], every["time"][order]
