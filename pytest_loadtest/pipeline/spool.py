"""Packed tables of a run that are read when they are needed.

The rule: nobody holds all tables of a long run. A day of one-second windows has a thousand million
counts by piece and HDR bucket: 10 to 15 GiB in memory, 2 GiB packed.
:mod:`pytest_loadtest.pipeline.collect` stores them in the controller's thread, and the measurements
that it returns read them there.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, overload

import numpy as np

from pytest_loadtest.metrics.time_slices import SHARD, Cells, cells_of
from pytest_loadtest.pipeline.executor import pack, spans_by_kind, split, unpack
from pytest_loadtest.pipeline.tables import Groups, Table, joined, select

IN_MEMORY: Final = 64 << 20
"""Packed bytes that a spool keeps in memory: nearly every run has fewer, and needs no file."""
# Neighbouring windows of one objective need the same shard, and one
# that begins in a shard can end in the next.
CACHED: Final = 2


class Spool:
    """Packed tables: in memory, or in a temporary file without a name if they are many.

    :param folder: of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._in_memory = 0
        self._file: IO[bytes] | None = None

    def keep(self, packed: bytes) -> Packed:
        """Store a packed table."""
        if self._in_memory + len(packed) <= IN_MEMORY:
            self._in_memory += len(packed)
            return Packed(self, packed, 0, len(packed))
        if self._file is None:
            # Next to the samples, which are larger: the usual folder
            # for temporary files is often in memory.
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            # The file lasts as long as the measurements that refer to its tables.
            weakref.finalize(self, self._file.close)
        at = self._file.seek(0, os.SEEK_END)
        self._file.write(packed)
        return Packed(self, None, at, len(packed))

    def read(self, at: int, size: int) -> bytes:
        """Return bytes of the file."""
        assert self._file is not None
        return os.pread(self._file.fileno(), size, at)


class Packed(NamedTuple):
    """A table in a spool. :param content: None: it is in the file, at ``at``."""

    spool: Spool
    content: bytes | None
    at: int
    size: int

    def table(self) -> Table:
        """Read the table."""
        if self.content is not None:
            return unpack(self.content)
        return unpack(self.spool.read(self.at, self.size))


SpanKey = tuple[int, int]
"""The kind of latencies, and the number of the shard."""
Spans = Mapping[SpanKey, Sequence[Packed]]
"""The tables ``piece``, ``index``, ``n`` of each kind and shard.

There is one, or several with rows of equal keys."""


def spool_spans(spool: Spool, tables: Iterable[Table]) -> Spans:
    """Store tables of spans."""
    spans: dict[SpanKey, list[Packed]] = {}
    for table in tables:
        for shard, part in split("spans", table):
            for kind, counts in spans_by_kind(part):
                spans.setdefault((kind, shard), []).append(spool.keep(pack(counts)))
    return spans


def joined_spans(one: Spans, other: Spans) -> Spans:
    """Return the tables of both."""
    return {key: [*one.get(key, ()), *other.get(key, ())] for key in {**one, **other}}


class StoredCells(Sequence[Cells]):
    """The counts of one kind in a spool; the shards that were read last are kept.

    :param pieces: of the phase. :param spans: of all kinds.
    """

    def __init__(self, pieces: int, spans: Spans, kind: int) -> None:
        self._pieces = pieces
        self._spans = spans
        self._kind = kind
        self._cache: dict[int, Cells] = {}

    def __len__(self) -> int:
        return math.ceil(self._pieces / SHARD)

    @overload
    def __getitem__(self, number: int) -> Cells: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Cells, ...]: ...

    def __getitem__(self, number: int | slice) -> Cells | tuple[Cells, ...]:
        if isinstance(number, slice):
            return tuple(self[shard] for shard in range(len(self))[number])
        if not 0 <= number < len(self):
            raise IndexError(number)
        if number not in self._cache:
            if len(self._cache) == CACHED:
                del self._cache[next(iter(self._cache))]
            tables = list(map(Packed.table, self._spans.get((self._kind, number), ())))
            self._cache[number] = cells_of(number, self._pieces, _merged(tables))
        return self._cache[number]


def _merged(tables: Sequence[Table]) -> Table:
    """Return tables of one kind and shard as one, in order."""
    if len(tables) == 1:
        return tables[0]
    if not tables:
        return dict.fromkeys(("piece", "index", "n"), np.zeros(0, np.int64))
    counts = joined(tables)
    return Groups(select(counts, ("piece", "index"))).totals({"n": counts["n"]})
