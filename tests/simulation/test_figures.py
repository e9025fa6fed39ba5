"""Statistics rank over what never came, and need their samples."""

from __future__ import annotations

import math

import pytest

from simulation.figures import NEVER, needed, statistic_of


@pytest.mark.parametrize(
    ("statistic", "samples"), [("p50", 20), ("p99", 1_000), ("p99.9", 10_000), ("max", 1)]
)
def test_ten_samples_are_beyond_a_percentile(statistic: str, samples: int) -> None:
    assert needed(statistic) == samples


def test_a_percentile_ranks_over_what_never_came() -> None:
    values = [1_000_000] * 90
    low, high = statistic_of(values, 10, "p90", 0) or NEVER
    assert low < 1_000_000 < high < math.inf
    assert statistic_of(values, 11, "p90", 0) == NEVER
    assert statistic_of(values, None, "p90", 0) is None


def test_a_mean_is_that_of_what_came() -> None:
    low, high = statistic_of([1_000, 3_000], 5, "mean", 10) or NEVER
    assert low <= 2_000 - 10 < 2_000 + 10 <= high


def test_nothing_has_no_maximum() -> None:
    assert statistic_of([], 0, "max", 0) is None
    assert statistic_of([], 3, "p50", 0) == NEVER
