"""Delivery gaps that are shorter than the cells in which the first scan counts receipts, see :mod:`pytest_loadtest.metrics.gaps`.

The receipts of suspect cells are read again and shuffled by slots of whole cells: several workers
may have the receipts of one cell. Of each piece of a cell only two leave a task. These functions
are sent to Spark's workers as code, like those of
:mod:`pytest_loadtest.pipeline.executor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    pack,
    record_batch,
    table_batch,
    unpack,
    unpacked,
)
from pytest_loadtest.pipeline.first_copies import ROWS, ROWS_SCHEMA, RepeatedCopies
from pytest_loadtest.pipeline.kernel import copies_of
from pytest_loadtest.pipeline.tables import take, within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.read import SampleFile
    from pytest_loadtest.pipeline.tables import Table

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
        self._topics, self._size = run.topics, run.topics * run.subscriptions * cells_of_pair(run)
        self._cells = cells_of_pair(run)
        place = (cells["subscription"] * run.topics + cells["topic"]) * self._cells + cells["cell"]
        slot = np.cumsum(cells["n"]) // SLOT_RECEIPTS
        # They travel with the function that reads the files: compressed, they are a few bytes each.
        self._packed = pack({"place": place, "piece": piece, "slot": slot})

    def of_pairs(self, inside: Table) -> Table:
        """Return the gaps of :func:`longest_inside` as those of :func:`~pytest_loadtest.metrics.gaps.gaps_of_cells`."""
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
        self._topics, self._cells = topics, cells
        self._times = gap_times_without_own if without_own else gap_times
        self._piece, self._slot = suspects["piece"], suspects["slot"]
        # A dense table: one lookup for each row, of which millions may be in suspect cells.
        self._number = np.full(size, -1, np.int32)
        self._number[suspects["place"]] = np.arange(len(suspects["place"]), dtype=np.int32)
        self._pairs = np.zeros(size // cells, np.bool_)
        self._pairs[suspects["place"] // cells] = True

    def of_suspect_pairs(self, copies: Rows) -> Rows:
        """Return the copies to subscriptions of topics that have a suspect cell."""
        return take(copies, self._pairs[self._pair(copies)])

    def receipts(self, copies: Rows, run: Expected) -> Table:
        """Return ``cell``, the number of a suspect cell, and ``time``, ns, of the copies in such cells."""
        times = self._times(copies, run)
        number = self._number[self._pair(copies) * self._cells + gap_cells(times, run)]
        return take({"cell": number.astype(np.int64), "time": times}, number >= 0)

    def by_slot(self, receipts: Sequence[Table]) -> Iterator[tuple[int, Table]]:
        """Yield number and receipts of each slot, without those in the middle of a piece."""
        cell, times = _sorted(receipts)
        ends = ends_of_pieces(cell, times, self._piece[cell])
        cell, times = cell[ends], times[ends]
        slot = self._slot[cell]
        edges = np.flatnonzero(np.diff(slot, prepend=-1, append=-1))
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            yield int(slot[low]), {"cell": cell[low:high], "time": times[low:high]}

    def _pair(self, copies: Rows) -> NDArray[np.int64]:
        pair: NDArray[np.int64] = copies["subscription"] * np.int64(self._topics) + copies["topic"]
        return pair


def suspects_of(run: Expected, cells: Table, *, without_own: bool) -> SuspectCells | None:
    """Return the suspect cells of a run; None without any.

    :param cells: the table ``gaps``, or ``gaps_without_own``.
    """
    if not len(cells["cell"]):
        return None
    rows, piece = suspect_cells(run, cells, longest_gaps(run, gaps_of_cells(run, cells)))
    if not len(rows):
        return None
    return SuspectCells(
        run, {name: column[rows] for name, column in cells.items()}, piece, without_own=without_own
    )


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
        # Sent files have no copies.
        self._tasks = [
            [file for file in task if file.path.rsplit("/", 2)[-2] != "sent"] for task in tasks
        ]
        every = zip(range(len(parts)), parts, repeated, suspects, strict=True)
        self._parts = [
            (number, run, ranges, cells)
            for number, run, ranges, cells in every
            if cells is not None
        ]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        parts = [
            _Part(number, run, ranges, cells.opened()) for number, run, ranges, cells in self._parts
        ]
        # The generator's own delays follow from the same columns as first copies.
        more = any(ranges is not None or cells.without_own for _, _, ranges, cells in self._parts)
        columns = (*RECEIVED_WORD_COLUMNS, *(FIRST_COPY_COLUMNS if more else ()))
        for _, rows in blocks(self._tasks, batches, {"received": columns}):
            for part in parts:
                part.add(copies_of(rows, part.run))
            if sum(part.size for part in parts) > CELLS:
                yield record_batch([row for part in parts for row in part.rows()], ROWS_SCHEMA)
        yield record_batch([row for part in parts for row in part.rows()], ROWS_SCHEMA)


class _Part:
    """Receipts of suspect cells of one part, and copies that may not be first ones."""

    def __init__(self, number: int, run: Expected, ranges: Table | None, cells: OpenCells) -> None:
        self._number, self.run, self._ranges, self._cells = number, run, ranges, cells
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
        rows = [
            (self._number, slot, RECEIPTS, pack(table))
            for slot, table in self._cells.by_slot(self._receipts)
        ]
        self._receipts, self._gathered = [], 0
        # Of the copies of a delivery in this task, the first one is enough.
        found = self._repeated.split()
        if found is not None:
            rows += [
                (self._number, slot, ROWS, pack(copies))
                for slot, copies in self._repeated.slots(found[0])
            ]
        return rows


def receipts_of_slots(
    parts: Sequence[Expected], suspects: Sequence[SuspectCells | None]
) -> Callable[[pa.Table], pa.Table]:
    """Return a function that returns receipts as they are, and the first copies of one slot of words as receipts."""

    # A plain function, for the reason in executor.deliveries_of_words.
    def receipts_of_slot(rows: pa.Table) -> pa.Table:
        if rows["name"][0].as_py() != ROWS:
            return rows
        number = rows["part"][0].as_py()
        run, suspect = parts[number], suspects[number]
        assert suspect is not None
        copies = RepeatedCopies(words_of(run))
        for content in unpacked(rows):
            copies.add(content)
        found, cells = copies.split(), suspect.opened()
        receipts = [] if found is None else [cells.receipts(found[0], run)]
        sent = [(number, slot, RECEIPTS, pack(table)) for slot, table in cells.by_slot(receipts)]
        return pa.Table.from_batches([record_batch(sent, ROWS_SCHEMA)])

    return receipts_of_slot


def longest_inside(rows: pa.Table) -> pa.Table:
    """Return the table ``inside`` of one slot: ``cell``, ``began`` and ``ended`` of the longest gap inside each suspect cell."""
    cell, times = _sorted(list(unpacked(rows)))
    same = np.flatnonzero(cell[1:] == cell[:-1])
    columns = longest_of_each(cell[same], times[same], times[same + 1])
    table = dict(zip(("cell", "began", "ended"), columns, strict=True))
    return pa.Table.from_batches([table_batch({(rows["part"][0].as_py(), INSIDE): table})])


def _sorted(receipts: Sequence[Table]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return cells and times of all receipts, in order."""
    none = np.zeros(0, np.int64)
    cell = np.concatenate([none, *(table["cell"] for table in receipts)])
    times = np.concatenate([none, *(table["time"] for table in receipts)])
    order = np.lexsort((times, cell))
    return cell[order], times[order]
