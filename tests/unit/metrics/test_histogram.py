"""HDR buckets: the same as the HdrHistogram library's, and sums that do not overflow."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.histogram import (
    bucket_bounds,
    document,
    exact_total,
    hdr_index,
    histogram,
    merge,
    midpoint,
    of_document,
    rank,
)

EDGES = [
    0,
    1,
    *(value for k in range(1, 62) for value in range((1 << k) - 2, (1 << k) + 3) if value >= 0),
    (1 << 62) - 1,
    1 << 62,
]
values = st.integers(0, (1 << 62) - 1)


def index(value: int) -> int:
    return int(hdr_index(np.array([value], np.int64))[0])


def test_every_power_of_two_has_the_library_index() -> None:
    """Powers of two and their neighbours are where a logarithm could round wrongly."""
    library = HdrHistogram(1, 1 << 62, 3)
    assert [index(value) for value in EDGES] == [
        library._counts_index_for(value) for value in EDGES
    ]


@given(values)
def test_any_value_has_the_library_index(value: int) -> None:
    """Lowest value 1, three significant digits."""
    assert index(value) == HdrHistogram(1, 1 << 62, 3)._counts_index_for(value)


@given(values, st.sampled_from([7, 10]))
def test_the_middle_of_its_bucket_is_near_a_value(value: int, bits: int) -> None:
    """Half a bucket away at most: 0.05 % with ten bits, 0.4 % with seven."""
    middle = int(midpoint(hdr_index(np.array([value]), bits), bits)[0])
    assert abs(middle - value) <= value / (1 << bits + 1) + 1


@given(values)
def test_a_value_lies_within_the_bounds_of_its_bucket(value: int) -> None:
    """The bounds that Histogram reports percentiles by."""
    low, width = bucket_bounds(index(value))
    assert low <= value < low + width


def test_values_below_zero_count_as_zero_and_are_counted() -> None:
    """A clock error must be seen, and the exact minimum and sum keep it."""
    found = histogram(np.array([-5, 0, 7], np.int64))
    assert found is not None
    assert (found.index.tolist(), found.count.tolist(), found.negative) == ([0, 7], [2, 1], 1)
    assert (found.minimum, found.maximum, found.total) == (-5, 7, 2)


def test_nothing_has_no_histogram() -> None:
    """Absence is a value."""
    assert histogram(np.array([], np.int64)) is None
    assert merge([None, None]) is None


@given(st.lists(st.integers(-(1 << 62), 1 << 62)))
def test_sums_are_exact_where_int64_overflows(numbers: list[int]) -> None:
    """Nine billion messages a second late each sum up to the limit of int64."""
    assert exact_total(np.array(numbers, np.int64)) == sum(numbers)


@given(st.lists(st.lists(st.integers(-3, 1 << 40), max_size=5), max_size=4))
def test_merged_parts_equal_the_histogram_of_the_whole(parts: list[list[int]]) -> None:
    """Merging loses nothing."""
    merged = merge([histogram(np.array(part, np.int64)) for part in parts])
    whole = histogram(np.array([value for part in parts for value in part], np.int64))
    if whole is None or merged is None:
        assert whole is merged
        return
    assert (merged.index.tolist(), merged.count.tolist()) == (
        whole.index.tolist(),
        whole.count.tolist(),
    )
    assert (merged.minimum, merged.maximum, merged.total, merged.negative) == (
        whole.minimum,
        whole.maximum,
        whole.total,
        whole.negative,
    )


@pytest.mark.parametrize(
    ("p", "n", "expected"),
    [
        (99.9, 1000, 999),
        (99.9, 10**8, 99_900_000),
        (99.9, 10**8 + 1, 99_900_001),
        (99.99, 10**12, 999_900_000_000),
        (100 * (1 - 1 / 10**5), 10**8, 99_999_000),  # computed: 99.99900000000001
        (50, 3, 2),
        (0.001, 10, 1),
        (100, 7, 7),
    ],
)
def test_a_rank_is_exact_in_decimals(p: float, n: int, expected: int) -> None:
    """At any size of a run, a product that is whole in decimals is the rank."""
    assert rank(p, n) == expected


def test_a_histogram_goes_through_json() -> None:
    """Manifests contain the workers' own histograms as JSON."""
    before = histogram(np.array([3, -1, 5_000, 5_000, 1 << 61]))
    assert before is not None
    after = of_document(json.loads(json.dumps(document(before))))
    assert document(after) == document(before)
    assert (after.n, after.percentile(50), after.index.dtype) == (
        5,
        before.percentile(50),
        np.int64,
    )


@given(whole=st.lists(st.integers(0, 10**10), min_size=1, max_size=50), data=st.data())
def test_a_histogram_without_a_part_of_it_has_the_rest(
    whole: list[int], data: st.DataObject
) -> None:
    """Extremes that go are known to their bucket."""
    part = data.draw(st.lists(st.sampled_from(range(len(whole))), unique=True, min_size=1))
    rest = [value for place, value in enumerate(whole) if place not in part]
    all_of, gone = (
        histogram(np.array(values, np.int64))
        for values in (whole, [whole[place] for place in part])
    )
    assert all_of is not None
    assert gone is not None
    left, expected = all_of.without(gone), histogram(np.array(rest, np.int64))
    if expected is None:
        assert left is None
        return
    assert left is not None
    assert (left.index.tolist(), left.count.tolist(), left.total) == (
        expected.index.tolist(),
        expected.count.tolist(),
        expected.total,
    )
    assert left.maximum == pytest.approx(expected.maximum, rel=1e-3, abs=1)
    assert left.minimum == pytest.approx(expected.minimum, rel=1e-3, abs=1)
