"""Windows, tenths, boundaries, and latencies by the second."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.histogram import document, histogram
from pytest_loadtest.metrics.time_slices import (
    SHARD,
    Boundaries,
    SlicedStats,
    histograms,
    in_shards,
    of_parts,
    over_time,
    tenths,
    windows,
)
from pytest_loadtest.values.quantities import SECOND


@given(duration=st.integers(1, 10**12), width=st.integers(1, 100))
def test_windows_cover_the_phase(duration: int, width: int) -> None:
    """Each as long as asked, the last one up to the end: less than twice as long."""
    found = windows(duration, width * SECOND)
    if duration < width * SECOND:
        assert found is None
        return
    assert found is not None
    assert found.start[0] == 0
    assert (found.start[1:] == found.end[:-1]).all()
    assert found.end[-1] == duration
    length = found.end - found.start
    assert (length[:-1] == width * SECOND).all()
    assert width * SECOND <= length[-1] < 2 * width * SECOND


@given(duration=st.integers(1, 10**14))
def test_tenths_are_whole_seconds_at_both_ends(duration: int) -> None:
    """A phase of less than ten seconds has none; the last one may be a second longer, by what is no
    whole second.
    """
    found = tenths(duration)
    assert (found is None) == (duration < 10 * SECOND)
    if found is not None:
        first, last = (found.end - found.start).tolist()
        assert first == duration // 10 // SECOND * SECOND
        assert first <= last < first + SECOND
        assert found.end[1] == duration
        assert not (found.start % SECOND).any()


@given(
    edges=st.lists(st.lists(st.integers(0, 300), max_size=20), max_size=3),
    seconds=st.lists(st.integers(0, 10**6), min_size=1, max_size=30),
)
def test_each_second_lies_in_the_piece_that_began_last(
    edges: list[list[int]], seconds: list[int]
) -> None:
    """It is the piece that began last; everything behind the last cut is in the last piece."""
    cut = Boundaries(*(np.array(some, np.int64) for some in edges))
    assert cut.starts.tolist() == sorted({0, *(edge for some in edges for edge in some)})
    assert cut.of(np.array(seconds)).tolist() == [
        int((cut.starts <= second).sum()) - 1 for second in seconds
    ]


def test_counts_of_a_window_do_not_end_at_32_bits() -> None:
    """Two buckets of fewer than 2**31 messages each, more than that in all: none of them early,
    beside one that was.
    """
    many = 2**31 - 1
    cells = {"piece": np.zeros(2, np.int64), "index": np.array([5, 6]), "n": np.array([many, many])}
    whole = {
        name: np.array([value])
        for name, value in {
            "piece": 0,
            "minimum": 5,
            "maximum": 6,
            "high": 0,
            "low": 11,
            "negative": 0,
        }.items()
    }
    late = histograms(1, in_shards(1, cells), whole)
    one_early = {"piece": np.zeros(1, np.int64), "index": np.array([0]), "n": np.array([1])}
    early = histograms(1, in_shards(1, one_early), whole)
    assert late is not None and early is not None
    nothing = np.zeros(1, np.int64)
    one = SlicedStats(
        start=nothing, end=nothing + SECOND, begin=nothing, after=nothing + 1, offered=nothing, received=nothing, in_time=nothing,
        own_late=nothing, in_time_without_own=nothing, fan_out=1, latencies={"lateness": late, "earliness": early},
    )  # fmt: skip
    found = one.of("earliness", 0)
    assert found is not None
    assert found.n == 2 * many + 1


PAIRS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=60
)


@given(pairs=PAIRS, seconds=st.integers(41, 60), most=st.integers(1, 80))
def test_blocks_have_every_copy_once(
    pairs: list[tuple[int, int, int]], seconds: int, most: int
) -> None:
    """Each copy is in the block of its second; blocks are whole seconds, and at most as many as
    requested.
    """
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


def test_no_latencies_by_second_are_none() -> None:
    """Not a run of zero latencies."""
    assert over_time(np.zeros(0, np.int64), np.zeros(0, np.int64)) is None


@given(pairs=PAIRS)
def test_pairs_of_second_and_bucket_are_in_order(pairs: list[tuple[int, int, int]]) -> None:
    """Each pair once."""
    second, index, _ = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    found = over_time(second, index)
    assert found is not None
    keys = list(zip(found.second.tolist(), found.index.tolist(), strict=True))
    assert keys == sorted(set(keys))
    assert dict(zip(keys, found.count.tolist(), strict=True)) == Counter(
        (at, bucket) for at, bucket, _ in pairs
    )


@given(
    parts=st.lists(
        st.lists(st.integers(-5, 10**9), max_size=4), min_size=1, max_size=2 * SHARD + 9
    ),
    ends=st.tuples(st.integers(0, 2 * SHARD + 9), st.integers(0, 2 * SHARD + 9)),
)
def test_pieces_together_are_a_histogram_of_their_values(
    parts: list[list[int]], ends: tuple[int, int]
) -> None:
    """Empty ones between them have no extremes, and pieces can be in several shards."""
    begin, end = sorted(min(at, len(parts)) for at in ends)
    found = of_parts([histogram(np.array(values, np.int64)) for values in parts])
    expected = histogram(
        np.array([value for values in parts[begin:end] for value in values], np.int64)
    )
    one = None if found is None else found.of(begin, end)
    assert (one is None) == (expected is None)
    if one is not None and expected is not None:
        assert document(one) == document(expected)
