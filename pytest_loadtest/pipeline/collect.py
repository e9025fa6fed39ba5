"""Collect the counted tables of a run from Spark.

The rule: small tables are collected at once, those that grow with the run's length in pieces, so
that no action of Spark returns more than the controller can hold.
:mod:`pytest_loadtest.pipeline.aggregate` calls it in the controller's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.storagelevel import StorageLevel

from pytest_loadtest.metrics.sizes import packed_size
from pytest_loadtest.pipeline.executor import unpack
from pytest_loadtest.pipeline.tables import TABLES, Table, merge_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.spool import Packed, SpanKey, Spans, Spool

AT_ONCE: Final = 96 << 20
"""Packed bytes that are collected at once.

Spark's limit is 1 GiB for each action (``spark.driver.maxResultSize``), and both processes hold
them some times over for a moment."""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The counted tables of one run or stage.

    :param tables: by name; a table without rows is empty, not missing.
    :param spans: the table ``spans``, see
        :data:`~pytest_loadtest.pipeline.spool.Spans`.
    :param due: the table ``due``, in shards in the order of seconds.
    """

    tables: Mapping[str, Table]
    spans: Spans
    due: Sequence[Packed]


class Collector:
    """Collects the frames of one run.

    :param parts: the run and its stages.
    :param rows: of all sample files.
    """

    def __init__(self, spool: Spool, parts: Sequence[Expected], rows: int) -> None:
        self.spool = spool
        self._parts = len(parts)
        self._in_pieces = sum(packed_size(part, rows) for part in parts) > AT_ONCE

    def tables(self, frame: DataFrame) -> list[Counted]:
        """Return the tables of each part.

        :param frame: the columns of ``executor.COUNTED_SCHEMA``.
        """
        found = [_Found() for _ in range(self._parts)]
        for row in self._rows(frame):
            found[row["part"]].add(row, self.spool)
        return [tables.counted() for tables in found]

    def _rows(self, frame: DataFrame) -> Iterator[dict[str, Any]]:
        if not self._in_pieces:
            yield from frame.toArrow().to_pylist()
            return
        with _on_disk(frame) as stored:
            for shards in _pieces(stored):
                piece = stored.where(f"shard IN ({', '.join(map(str, shards))})")
                yield from piece.toArrow().to_pylist()


@contextmanager
def _on_disk(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep a frame on the disks of Spark's workers: several actions read the samples once."""
    stored = frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield stored
    finally:
        stored.unpersist()


def _pieces(stored: DataFrame) -> Iterator[list[int]]:
    """Yield the shards of each action."""
    sizes: dict[int, int] = {}
    for row in stored.selectExpr("shard", "octet_length(content) AS size").toArrow().to_pylist():
        sizes[row["shard"]] = sizes.get(row["shard"], 0) + row["size"]
    piece: list[int] = []
    total = 0
    for shard, size in sorted(sizes.items()):
        if piece and total + size > AT_ONCE:
            yield piece
            piece = []
            total = 0
        piece.append(shard)
        total += size
    yield piece


class _Found:
    """The tables of one part."""

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}
        self._spans: dict[SpanKey, Sequence[Packed]] = {}
        self._due: dict[int, Packed] = {}

    def add(self, row: Mapping[str, Any], spool: Spool) -> None:
        """Add a table; no two have a common key. :param row: of the frame."""
        match row["name"]:
            case "spans":
                self._spans[row["kind"], row["shard"]] = [spool.keep(row["content"])]
            case "due":
                self._due[row["shard"]] = spool.keep(row["content"])
            case name:
                self._tables[name] = unpack(row["content"])

    def counted(self) -> Counted:
        """Return all of them."""
        tables = {name: self._tables.get(name) or merge_rows(name, ()) for name in TABLES}
        due = [self._due[second] for second in sorted(self._due)]
        return Counted(tables=tables, spans=self._spans, due=due)
