"""Latencies past a tap on the input of a service (:mod:`pytest_loadtest.metrics.tapped`).

The rule: a tap and the consumers of outputs may be on different workers, so the first copies and
the rows of the tap are shuffled by slots of deliveries, and joined there.

These functions are sent to the processes of Spark's workers as code, like those of
:mod:`pytest_loadtest.pipeline.executor`, in one more scan of
:mod:`pytest_loadtest.pipeline.aggregate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.tapped import tapped_latencies
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.executor import (
    CELLS,
    GatheredTables,
    blocks,
    common,
    pack,
    record_batch,
    tables_of_part,
    unpacked,
)
from pytest_loadtest.pipeline.first_copies import ROWS, ROWS_SCHEMA, RepeatedCopies
from pytest_loadtest.pipeline.kernel import RECEIVED_COLUMNS, copies_of, latency_tables, measured
from pytest_loadtest.pipeline.tables import joined, rows_at

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.bitmaps import Words
    from pytest_loadtest.pipeline.read import SampleFile

    Rows = Mapping[str, NDArray[Any]]

TAPS: Final = "taps"
COLUMNS: Final = {
    "received": RECEIVED_COLUMNS,
    "tap": ("stream", "seq", "received"),
}


class TapsOfFiles:
    """Return the first copies of a task's files, and the rows of its taps, by slot.

    :param tasks: paths by the number of the task. :param parts: the run and its stages.
    """

    def __init__(self, tasks: Sequence[Sequence[SampleFile]], parts: Sequence[Expected]) -> None:
        self._tasks = tasks
        self._parts = tuple(parts)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        parts = [_Part(run) for run in self._parts]
        for kind, rows in blocks(self._tasks, batches, COLUMNS):
            for part in parts:
                part.add(kind, rows)
            if sum(part.size for part in parts) > CELLS:
                yield _rows_of(parts)
        yield _rows_of(parts)


def _words_of(run: Expected) -> Words:
    """Return words that are not cut for windows: a row of a tap has no intended time if the
    envelope is compact.
    """
    return words_of(replace(run, window=None, drift=False))


class _Part:
    """First copies and rows of taps of one part."""

    def __init__(self, run: Expected) -> None:
        self._run = run
        self._words = _words_of(run)
        self._copies = RepeatedCopies(self._words)
        self._taps: list[Rows] = []

    @property
    def size(self) -> int:
        """The number of rows gathered."""
        return self._copies.size + sum(len(rows["number"]) for rows in self._taps)

    def add(self, kind: str, rows: Rows) -> None:
        """Add rows of a file. :param kind: ``received`` or ``tap``."""
        if kind == "received":
            self._copies.add(self._copies.number(copies_of(rows, self._run)))
            return
        rows = measured(rows, self._run)
        for subscription in range(self._run.subscriptions):
            of_all = np.full(len(rows["seq"]), subscription)
            number = self._words.of_rows({**rows, "subscription": of_all})
            self._taps.append({"number": number, "received": rows["received"]})

    def rows(self, part: int) -> Iterator[tuple[int, int, str, bytes]]:
        """Remove everything; yield it by part, slot and name."""
        split = self._copies.split()
        if split is not None:
            for slot, copies in self._copies.slots(split[0]):
                yield part, slot, ROWS, pack(copies)
        if self._taps:
            taps = joined(self._taps)
            taps = rows_at(taps, np.argsort(taps["number"], kind="stable"))
            for slot, of_slot in self._copies.slots(taps):
                yield part, slot, TAPS, pack(of_slot)
        self._taps = []


def _rows_of(parts: Sequence[_Part]) -> pa.RecordBatch:
    rows: list[tuple[int, int, str, bytes]] = []
    for number, part in enumerate(parts):
        rows += part.rows(number)
    return record_batch(rows, ROWS_SCHEMA)


def latencies_of_slots(parts: Sequence[Expected]) -> Callable[[pa.Table], pa.Table]:
    """Return a function that counts the latencies of the first copies of one slot."""

    # A plain function, for the reason in executor.deliveries_of_words.
    def latencies_of_slot(rows: pa.Table) -> pa.Table:
        number = common(rows, "part")
        run = parts[number]
        copies = RepeatedCopies(_words_of(run))
        taps = []
        for name, content in zip(rows["name"].to_pylist(), unpacked(rows), strict=True):
            if name == TAPS:
                taps.append(content)
            else:
                copies.add(content)
        split = copies.split()
        counted = GatheredTables()
        if split is not None and taps:
            kinds = tapped_latencies(split[0], joined(taps), run)
            counted.add(latency_tables(kinds, {}, run))
        return tables_of_part(number, counted.merged())

    return latencies_of_slot
