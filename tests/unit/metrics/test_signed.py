"""Lateness: values on both sides of due."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders.measurements import lateness
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=200)


@given(VALUES, st.sampled_from([0.1, 25, 50, 90, 99]), st.integers(0, 20))
def test_statistics_are_those_of_the_values(values: list[int], p: float, never: int) -> None:
    """Exact but for percentiles, which are half a bucket off at most; what never came is later than
    all.
    """
    found = lateness(np.array(values, np.int64))
    assert found is not None
    assert (found.n, found.minimum, found.maximum, found.total) == (
        len(values),
        min(values),
        max(values),
        sum(values),
    )
    rank = max(1, math.ceil(p / 100 * len(values) - 1e-9))
    assert found.percentile(p) == pytest.approx(sorted(values)[rank - 1], rel=0.001, abs=1)
    due = max(1, math.ceil(p / 100 * (len(values) + never) - 1e-9))
    assert (found.percentile_of_due(p, never) == math.inf) is (due > len(values))


@given(VALUES)
def test_earliness_is_zero_of_what_was_not_early(values: list[int]) -> None:
    """It has as many values as there are copies."""
    found = lateness(np.array(values, np.int64))
    assert found is not None
    early = [max(-value, 0) for value in values]
    got = found.earliness
    assert (got.n, got.minimum, got.maximum, got.total) == (
        len(values),
        min(early),
        max(early),
        sum(early),
    )
    assert (np.diff(got.index) > 0).all()
    assert got.percentile(50) == pytest.approx(
        sorted(early)[(len(early) + 1) // 2 - 1], rel=0.001, abs=1
    )


def test_no_values_have_no_lateness() -> None:
    assert lateness(np.zeros(0, np.int64)) is None
