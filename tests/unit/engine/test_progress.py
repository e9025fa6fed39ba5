"""How many copies came soon enough, by second of their intended time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.progress import TimelyCounts
from pytest_loadtest.values.quantities import SECOND

START = 7_000 * SECOND
COPIES = st.lists(st.tuples(st.integers(0, 40 * SECOND), st.integers(-SECOND, 60 * SECOND)), max_size=60)


@given(COPIES, st.lists(st.integers(0, 10 * SECOND), min_size=1, max_size=3), st.integers(1, 50), st.integers(1, 5))
def test_it_counts_what_came_in_the_last_seconds(copies: list[tuple[int, int]], bounds: list[int], kept: int, looks: int) -> None:
    """As if each copy were looked at by itself, however many are looked at together; what is older is forgotten."""
    counts = TimelyCounts(bounds, kept)
    counts.begin(START)
    for part in range(looks):
        intended = np.array([START + at for at, _ in copies[part::looks]], np.int64)
        latency = np.array([late for _, late in copies[part::looks]], np.int64)
        counts.add(intended, intended + latency)
    told = counts.told(40 * SECOND)
    assert told is not None
    assert told.first == max(41 - kept, 0)
    for i, bound in enumerate(bounds):
        expected = [sum(at // SECOND == second and late <= bound for at, late in copies) for second in range(told.first, 41)]
        assert [told.of(i, second) for second in range(told.first, 41)] == expected
        assert told.of(i, 41) == 0


def test_a_phase_begins_anew() -> None:
    """With its own seconds."""
    counts = TimelyCounts((SECOND,), 10)
    times = np.array([START], np.int64)
    counts.begin(START)
    counts.add(times, times)
    counts.begin(START - SECOND)
    counts.add(times, times)
    told = counts.told(SECOND)
    assert told is not None
    assert (told.of(0, 0), told.of(0, 1)) == (0, 1)


def test_where_nobody_asks_nothing_is_told() -> None:
    assert TimelyCounts((), 0).told(SECOND) is None
