"""Latencies of first copies in runs with deliveries that came more than once (decision 024).

The first copy of a delivery is known only where all its copies are together. So the rows of words
with such deliveries are shuffled by slot, one row for each delivery and task, and all other rows
are counted where they are read. These functions are sent to Spark's workers as code, like those of
:mod:`pytest_loadtest.pipeline.executor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pytest_loadtest.message.samples import Flag
from pytest_loadtest.pipeline.bitmaps import WORD_BITS
from pytest_loadtest.pipeline.broadcasts import BroadcastWords, words_of
from pytest_loadtest.pipeline.executor import (
    CELLS,
    GatheredTables,
    blocks,
    merge_tables,
    pack,
    record_batch,
    table_batch,
    unpacked,
)
from pytest_loadtest.pipeline.kernel import (
    RECEIVED_COLUMNS,
    copies_of,
    first_copy_tables,
    later_copy_tables,
)
from pytest_loadtest.pipeline.tables import take, within

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.bitmaps import Words
    from pytest_loadtest.pipeline.read import SampleFile
    from pytest_loadtest.pipeline.tables import Table

    Rows = Mapping[str, NDArray[Any]]

ROWS_SCHEMA: Final = "part int, slot bigint, name string, content binary"
ROWS: Final = "rows"
# The slot of rows that are tables.
NOWHERE: Final = -1
# The rows of 2**11 words are compared together: 131 072
# deliveries, some 6 MB for each time that they came.
ROW_SLOT_BITS: Final = 11


class FirstCopiesOfFiles:
    """Count the deliveries of a task's files that came once, and return the ``rows`` of those that may have come more than once, by slot.

    :param tasks: paths by the number of the task.
    :param parts: the run and its stages.
    :param repeated: for each part the ranges of words with deliveries that
        came more than once, in order; None without any.
    """

    def __init__(
        self,
        tasks: Sequence[Sequence[SampleFile]],
        parts: Sequence[Expected],
        repeated: Sequence[Table | None],
    ) -> None:
        # Sent files have no copies.
        self._tasks = [
            [file for file in task if file.path.rsplit("/", 2)[-2] != "sent"] for task in tasks
        ]
        every = zip(range(len(parts)), parts, repeated, strict=True)
        self._parts = [(number, run, ranges) for number, run, ranges in every if ranges is not None]

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
            if sum(one.size for one in waiting.values()) > CELLS:
                yield _rows_by_slot(waiting, counted)
            if any(one.large for one in counted.values()):
                yield _tables_of_parts(
                    {number: one.take_shards() for number, one in counted.items()}
                )
        yield _rows_by_slot(waiting, counted)
        yield _tables_of_parts({number: one.merged() for number, one in counted.items()})


def _tables_of_parts(parts: Mapping[int, Iterator[tuple[str, Table]]]) -> pa.RecordBatch:
    tables = [
        (number, NOWHERE, name, pack(table))
        for number, part in parts.items()
        for name, table in part
    ]
    return record_batch(tables, ROWS_SCHEMA)


class RepeatedCopies:
    """Copies of deliveries that came more than once, with the ``number`` of each one's delivery."""

    def __init__(self, words: Words) -> None:
        self._words, self.run = words, words.run
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
        """Remove all copies; return the first ones, by number, and the later ones, or None without any."""
        if not self._blocks:
            return None
        rows = {
            name: np.concatenate([block[name] for block in self._blocks])
            for name in self._blocks[0]
        }
        self._blocks, self.size = [], 0
        # Of copies of one instant, one that is not out of due order is the first,
        # then one within its host, then the one with the smallest receive lag, then
        # that of the first worker, as in metrics.stats.
        between = () if self.run.stream_hosts is None else (~self.run.within_host(rows),)
        order = np.lexsort(
            (
                rows["worker"],
                rows["lag"],
                *between,
                rows["flags"] & int(Flag.UNDUE),
                rows["received"],
                rows["number"],
            )
        )
        rows = {name: column[order] for name, column in rows.items()}
        # Rows are in the order of deliveries: the first row of each number is its first copy.
        first = np.diff(rows["number"], prepend=-1) != 0
        return take(rows, first), take(rows, ~first)

    def slots(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Yield number and rows of each slot. :param rows: in the order of their numbers."""
        slot = rows["number"] // (self._words.slot_words(ROW_SLOT_BITS) << WORD_BITS)
        edges = np.flatnonzero(np.diff(slot, prepend=-1, append=-1))
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            yield int(slot[low]), {name: column[low:high] for name, column in rows.items()}


def _rows_by_slot(
    waiting: Mapping[int, RepeatedCopies], counted: Mapping[int, GatheredTables]
) -> pa.RecordBatch:
    """Return the rows that can be first copies; count those that came after another one of the same task."""
    sent = []
    for number, one in waiting.items():
        if (found := one.split()) is not None:
            first, later = found
            counted[number].add(later_copy_tables(later, one.run))
            sent += [(number, slot, ROWS, pack(rows)) for slot, rows in one.slots(first)]
    return record_batch(sent, ROWS_SCHEMA)


def tables_of_slots(parts: Sequence[Expected]) -> Callable[[pa.Table], pa.Table]:
    """Return a function that counts the tables of the rows of one slot, or merges the tables of one name.

    :param parts: see above.
    """

    # A plain function, for the reason in executor.deliveries_of_words.
    def tables_of_slot(rows: pa.Table) -> pa.Table:
        if rows["name"][0].as_py() != ROWS:
            return merge_tables(rows)
        number = rows["part"][0].as_py()
        run = parts[number]
        words, counted = words_of(run), GatheredTables()
        repeated = RepeatedCopies(words)
        for content in unpacked(rows):
            repeated.add(content)
        if (found := repeated.split()) is not None:
            first, later = found
            counted.add(first_copy_tables(first, run))
            counted.add(later_copy_tables(later, run))
            if isinstance(words, BroadcastWords):
                counted.add(words.completions(first["number"], first))
        return pa.Table.from_batches(
            [table_batch({(number, name): table for name, table in counted.merged()})]
        )

    return tables_of_slot
