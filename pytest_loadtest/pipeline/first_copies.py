"""Latencies of first copies in runs with deliveries that came more than once (decision 024).

The rule: a latency is that of a delivery's first copy, which is known only where all its copies are
together. So the rows of words with such deliveries are shuffled by slot, one row for each delivery
and task, and all other rows are counted where they are read.

These functions are sent to the processes of Spark's workers as code, like those of
:mod:`pytest_loadtest.pipeline.executor`, in the third scan of
:mod:`pytest_loadtest.pipeline.aggregate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.message.samples import Flag
from pytest_loadtest.metrics.series import ranks_of_equal
from pytest_loadtest.pipeline.bitmaps import WORD_BITS, Words
from pytest_loadtest.pipeline.broadcasts import BroadcastWords, words_of
from pytest_loadtest.pipeline.executor import (
    CELLS,
    GatheredTables,
    blocks,
    common,
    merge_tables,
    pack,
    record_batch,
    tables_of_part,
    unpacked,
)
from pytest_loadtest.pipeline.kernel import (
    RECEIVED_COLUMNS,
    copies_of,
    first_copy_tables,
    later_copy_tables,
)
from pytest_loadtest.pipeline.tables import Table, cut_by, joined, rows_at, take, within

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.read import SampleFile

    Rows = Mapping[str, NDArray[Any]]

ROWS_SCHEMA: Final = "part int, slot bigint, name string, content binary"
ROWS: Final = "rows"
# The slot of rows that are tables.
NOWHERE: Final = -1
# The rows of 2**11 words are compared together: 131 072
# deliveries, some 6 MB for each time that they came.
ROW_SLOT_BITS: Final = 11


class FirstCopiesOfFiles:
    """Count the deliveries of a task's files that came once.

    The ``rows`` of deliveries that may have come more than once are returned by slot.

    :param tasks: paths by the number of the task.
    :param parts: the run and its stages.
    :param repeated: for each part the ranges of words with deliveries that came more than once, in
        order; None without any.
    """

    def __init__(
        self,
        tasks: Sequence[Sequence[SampleFile]],
        parts: Sequence[Expected],
        repeated: Sequence[Table | None],
    ) -> None:
        self._tasks = without_sent(tasks)
        self._parts = []
        for number, (run, ranges) in enumerate(zip(parts, repeated, strict=True)):
            if ranges is not None:
                self._parts.append((number, run, ranges))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        counted = {number: GatheredTables() for number, _, _ in self._parts}
        waiting = {number: RepeatedCopies(words_of(run)) for number, run, _ in self._parts}
        for _, rows in blocks(self._tasks, batches, {"received": RECEIVED_COLUMNS}):
            for number, run, ranges in self._parts:
                # Rows outside the repeated words are first copies for certain.
                copies = waiting[number].number(copies_of(rows, run))
                again = within(copies["number"] >> WORD_BITS, ranges)
                counted[number].add(first_copy_tables(take(copies, ~again), run))
                waiting[number].add(take(copies, again))
            if sum(repeated.size for repeated in waiting.values()) > CELLS:
                yield _rows_by_slot(waiting, counted)
            if any(tables.large for tables in counted.values()):
                yield _tables_of_parts(
                    (number, part.take_shards()) for number, part in counted.items()
                )
        yield _rows_by_slot(waiting, counted)
        yield _tables_of_parts((number, part.merged()) for number, part in counted.items())


def without_sent(tasks: Sequence[Sequence[SampleFile]]) -> list[list[SampleFile]]:
    """Return the tasks without the files of sent rows, which have no copies."""
    received = []
    for task in tasks:
        received.append([file for file in task if file.path.rsplit("/", 2)[-2] != "sent"])
    return received


def _tables_of_parts(parts: Iterable[tuple[int, Iterable[tuple[str, Table]]]]) -> pa.RecordBatch:
    rows = []
    for number, tables in parts:
        for name, table in tables:
            rows.append((number, NOWHERE, name, pack(table)))
    return record_batch(rows, ROWS_SCHEMA)


class RepeatedCopies:
    """Copies of deliveries that came more than once, with the ``number`` of each one's delivery."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.run = words.run
        self._blocks: list[Rows] = []
        self.size = 0

    def number(self, copies: Rows) -> Rows:
        """Return copies with the number of their delivery."""
        return {**copies, "number": self._words.of_rows(copies)}

    def add(self, copies: Rows) -> None:
        """Add numbered copies."""
        if len(copies["number"]):
            self._blocks.append(copies)
            self.size += len(copies["number"])

    def split(self) -> tuple[Rows, Rows] | None:
        """Remove all copies; return the first ones and the later ones, by number.

        With several outputs a delivery's number has as many first copies. None without any.
        """
        if not self._blocks:
            return None
        rows = joined(self._blocks)
        self._blocks = []
        self.size = 0
        # Of copies of one instant, one that is not out of due order is the
        # first, then one within its host, then the one with the smallest
        # receive lag, then that of the first worker, as in metrics.stats.
        # The last key is the most significant.
        keys: list[NDArray[Any]] = [rows["worker"], rows["lag"]]
        if self.run.stream_hosts is not None:
            keys.append(~self.run.within_host(rows))
        keys += [rows["flags"] & int(Flag.UNDUE), rows["received"], rows["number"]]
        rows = rows_at(rows, np.lexsort(keys))
        # Rows are in the order of deliveries: the first rows of each number are its first copies.
        first = ranks_of_equal(rows["number"]) < self.run.outputs
        return take(rows, first), take(rows, ~first)

    def slots(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Yield number and rows of each slot.

        :param rows: in the order of their numbers.
        """
        slot = rows["number"] // (self._words.slot_words(ROW_SLOT_BITS) << WORD_BITS)
        return cut_by(rows, slot)


def _rows_by_slot(
    waiting: Mapping[int, RepeatedCopies], counted: Mapping[int, GatheredTables]
) -> pa.RecordBatch:
    """Return the rows that can be first copies.

    Those that came after another one of the same task are counted.
    """
    rows = []
    for number, repeated in waiting.items():
        split = repeated.split()
        if split is None:
            continue
        first, later = split
        counted[number].add(later_copy_tables(later, repeated.run))
        for slot, copies in repeated.slots(first):
            rows.append((number, slot, ROWS, pack(copies)))
    return record_batch(rows, ROWS_SCHEMA)


def tables_of_slots(parts: Sequence[Expected]) -> Callable[[pa.Table], pa.Table]:
    """Return a function that counts the rows of one slot, or merges the tables of one name.

    :param parts: see above.
    """

    # A plain function, for the reason in executor.deliveries_of_words.
    def tables_of_slot(rows: pa.Table) -> pa.Table:
        if common(rows, "name") != ROWS:
            return merge_tables(rows)
        number = common(rows, "part")
        run = parts[number]
        words = words_of(run)
        counted = GatheredTables()
        repeated = RepeatedCopies(words)
        for content in unpacked(rows):
            repeated.add(content)
        split = repeated.split()
        if split is not None:
            first, later = split
            counted.add(first_copy_tables(first, run))
            counted.add(later_copy_tables(later, run))
            if isinstance(words, BroadcastWords):
                counted.add(words.completions(first["number"], first))
        return tables_of_part(number, counted.merged())

    return tables_of_slot
