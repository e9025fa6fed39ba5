"""Packed tables in memory and in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.time_slices import SHARD
from pytest_loadtest.pipeline import spool as module
from pytest_loadtest.pipeline.executor import pack
from pytest_loadtest.pipeline.spool import (
    CACHED,
    Packed,
    Spool,
    StoredCells,
    joined_spans,
    spool_spans,
)

if TYPE_CHECKING:
    from pathlib import Path


def spans(rows: list[tuple[int, int, int, int]]) -> dict[str, np.ndarray]:
    columns = np.array(sorted(rows), np.int64).reshape(-1, 4).T
    return dict(zip(("what", "piece", "index", "n"), columns, strict=True))


@pytest.mark.parametrize("in_memory", [0, 1000, 1 << 20])
def test_a_table_is_read_as_it_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    """Whether it is in memory or in the file, which has no name."""
    monkeypatch.setattr(module, "IN_MEMORY", in_memory)
    spool = Spool(tmp_path)
    tables = [{"n": np.arange(number, 10 * number)} for number in range(1, 20)]
    kept = [spool.keep(pack(table)) for table in tables]
    for table, packed in reversed(list(zip(tables, kept, strict=True))):
        assert np.array_equal(packed.table()["n"], table["n"])
    assert list(tmp_path.iterdir()) == []


KEYS = st.tuples(st.integers(0, 1), st.integers(0, 3 * SHARD - 1), st.integers(0, 50))
ROWS = st.dictionaries(KEYS, st.integers(1, 2**40), max_size=60).map(
    lambda counts: [(*key, n) for key, n in counts.items()]
)


@given(one=ROWS, other=ROWS, kind=st.integers(0, 1))
def test_cells_are_the_sums_of_all_tables_of_their_kind(
    one: list[tuple[int, int, int, int]], other: list[tuple[int, int, int, int]], kind: int
) -> None:
    """In order, wherever they are from."""
    spool = Spool(None)  # type: ignore[arg-type]  # all stays in memory
    pieces = 3 * SHARD
    cells = StoredCells(
        pieces,
        joined_spans(spool_spans(spool, [spans(one)]), spool_spans(spool, [spans(other)])),
        kind,
    )
    expected: dict[tuple[int, int], int] = {}
    for what, piece, index, n in one + other:
        if what == kind:
            expected[piece, index] = expected.get((piece, index), 0) + n
    found = {}
    for number, shard in enumerate(cells):
        for piece in range(SHARD):
            low, high = shard.first[piece : piece + 2]
            for index, n in zip(
                shard.index[low:high].tolist(), shard.count[low:high].tolist(), strict=True
            ):
                found[number * SHARD + piece, index] = n
    assert list(found.items()) == sorted(expected.items())


def test_a_shard_is_read_once_for_all_of_its_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one while windows lie in both."""
    spool = Spool(None)  # type: ignore[arg-type]
    cells = StoredCells(
        4 * SHARD, spool_spans(spool, [spans([(0, piece, 1, 1) for piece in range(4 * SHARD)])]), 0
    )
    read: list[int] = []
    table = Packed.table
    monkeypatch.setattr(Packed, "table", lambda packed: read.append(1) or table(packed))
    for number in (0, 0, 1, 0, 1, 1, 2):
        assert len(cells[number].index) == SHARD
    assert len(read) == 3
    assert len(cells._cache) == CACHED
