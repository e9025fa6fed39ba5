"""Spark's part of an aggregation in this process: tasks, groups and their functions, without a Java process.

Fast enough for property-based tests of what Spark's workers compute; ``tests/pipeline/test_aggregate.py`` has the same on Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Frame:
    """Partitions, each a list of batches."""

    def __init__(self, parts: list[list[pa.RecordBatch]]) -> None:
        self._parts = parts

    def mapInArrow(  # noqa: N802
        self, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _schema: str
    ) -> Frame:
        return Frame([list(function(iter(part))) for part in self._parts])

    def groupBy(self, *keys: str) -> Groups:  # noqa: N802
        return Groups(self.toArrow(), keys)

    def toArrow(self) -> pa.Table:  # noqa: N802
        batches = [batch for part in self._parts for batch in part]
        return pa.Table.from_batches(batches) if batches else pa.table({})


class Groups:
    """Rows with equal keys, in an order of their own, as after a shuffle."""

    def __init__(self, rows: pa.Table, keys: tuple[str, ...]) -> None:
        self._rows, self._keys = rows, keys

    def applyInArrow(self, function: Callable[[pa.Table], pa.Table], _schema: str) -> Frame:  # noqa: N802
        places: dict[tuple[Any, ...], list[int]] = {}
        columns = [self._rows[key].to_pylist() for key in self._keys] if len(self._rows) else []
        for place, key in enumerate(zip(*columns, strict=True)):
            places.setdefault(key, []).append(place)
        shuffled = np.random.default_rng(len(self._rows))
        groups = [
            self._rows.take(pa.array(shuffled.permutation(group))).combine_chunks()
            for group in places.values()
        ]
        return Frame([function(group).to_batches() for group in groups])


class InProcess:
    """A session."""

    def range(self, start: int, end: int, _step: int, _parts: int) -> Frame:
        return Frame(
            [[pa.record_batch([pa.array([number])], names=["id"])] for number in range(start, end)]
        )
