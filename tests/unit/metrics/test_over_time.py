"""Latencies by the second."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.over_time import over_time
from pytest_loadtest.values.quantities import SECOND

PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=60)


@given(pairs=PAIRS, seconds=st.integers(41, 60), most=st.integers(1, 80))
def test_blocks_have_every_copy_once(pairs: list[tuple[int, int, int]], seconds: int, most: int) -> None:
    """In the block of its second; they are whole seconds, and no more than asked for."""
    second, index, many = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = over_time(second, index, many)
    assert found is not None
    length, blocks = found.blocks(seconds * SECOND, most)
    assert length % SECOND == 0
    assert len(blocks) <= most
    assert (len(blocks) - 1) * length < seconds * SECOND <= len(blocks) * length
    expected: list[Counter[int]] = [Counter() for _ in blocks]
    for at, bucket, n in pairs:
        expected[at * SECOND // length][bucket] += n
    assert blocks == expected


def test_nothing_is_nothing() -> None:
    """Not a run of zero latencies."""
    assert over_time(np.zeros(0, np.int64), np.zeros(0, np.int64)) is None


@given(pairs=PAIRS)
def test_it_is_in_order(pairs: list[tuple[int, int, int]]) -> None:
    """Each pair once."""
    second, index, _ = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = over_time(second, index)
    assert found is not None
    keys = list(zip(found.second.tolist(), found.index.tolist(), strict=True))
    assert keys == sorted(set(keys))
    assert dict(zip(keys, found.count.tolist(), strict=True)) == Counter((at, bucket) for at, bucket, _ in pairs)
