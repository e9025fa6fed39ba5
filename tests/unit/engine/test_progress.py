"""Timely copies are counted by second of their intended time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.progress import TimelyCounts, take_p99
from pytest_loadtest.values.quantities import SECOND

START = 7_000 * SECOND
COPIES = st.lists(
    st.tuples(st.integers(0, 40 * SECOND), st.integers(-SECOND, 60 * SECOND)), max_size=60
)


@given(
    COPIES,
    st.lists(st.integers(0, 10 * SECOND), min_size=1, max_size=3),
    st.integers(1, 50),
    st.integers(1, 5),
)
def test_timely_copies_of_the_last_seconds_are_counted(
    copies: list[tuple[int, int]], bounds: list[int], kept: int, looks: int
) -> None:
    """Batches give the same counts as single copies; older seconds are discarded."""
    counts = TimelyCounts(bounds, kept)
    counts.begin(START)
    for part in range(looks):
        intended = np.array([START + at for at, _ in copies[part::looks]], np.int64)
        latency = np.array([late for _, late in copies[part::looks]], np.int64)
        counts.add(intended, intended + latency)
    report = counts.report(40 * SECOND)
    assert report is not None
    assert report.first == max(41 - kept, 0)
    for i, bound in enumerate(bounds):
        expected = [
            sum(at // SECOND == second and late <= bound for at, late in copies)
            for second in range(report.first, 41)
        ]
        assert [report.count(i, second) for second in range(report.first, 41)] == expected
        assert report.count(i, 41) == 0


def test_a_new_phase_has_its_own_seconds() -> None:
    counts = TimelyCounts((SECOND,), 10)
    times = np.array([START], np.int64)
    counts.begin(START)
    counts.add(times, times)
    counts.begin(START - SECOND)
    counts.add(times, times)
    report = counts.report(SECOND)
    assert report is not None
    assert (report.count(0, 0), report.count(0, 1)) == (0, 1)


def test_without_bounds_there_is_no_report() -> None:
    assert TimelyCounts((), 0).report(SECOND) is None


@pytest.mark.parametrize(
    ("count", "rank"), [(1, 1), (2, 2), (99, 99), (100, 99), (101, 100), (199, 198), (1000, 990)]
)
def test_the_p99_is_the_value_of_the_nearest_rank(count: int, rank: int) -> None:
    """The smallest value that at least 99 % do not exceed; taking it clears the columns."""
    values = np.arange(1, count + 1, dtype=np.int64)[::-1]
    columns = [values[::2], values[1::2]]
    assert take_p99(columns) == rank
    assert take_p99(columns) is None
