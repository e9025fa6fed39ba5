"""Standard errors of figures from the noise within one run."""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders.runs import wandering
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics import resampled
from pytest_loadtest.metrics.histogram import hdr_index
from pytest_loadtest.metrics.resampled import (
    Estimate,
    RelativeChange,
    between,
    latency_errors,
    rate_error,
)
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.metrics.time_slices import over_time
from pytest_loadtest.values.quantities import SECOND

PAIRS = 20


def estimate(latencies: np.ndarray, percentile: float = 99.0) -> Estimate:
    """A percentile of a run, with its noise."""
    seconds, each = latencies.shape
    course = over_time(
        np.repeat(np.arange(seconds), each), hdr_index(latencies.ravel(), SERIES_BITS)
    )
    assert course is not None
    block, blocks = course.blocks(seconds * SECOND)
    (error,), many = latency_errors(blocks, block, [percentile])
    assert error is not None
    return Estimate(float(np.percentile(latencies, percentile)), error, many)


def changes(factor: float) -> list[RelativeChange]:
    """Return the changes of twenty pairs of runs, the second of which is ``factor`` slower."""
    return [
        between(estimate(wandering(2 * i)), estimate(wandering(2 * i + 1, factor=factor)))
        for i in range(PAIRS)
    ]


def test_two_runs_of_the_same_are_no_regression() -> None:
    """No more than one of twenty pairs is called worse by more than 10 %, although neighbouring
    seconds are alike.
    """
    assert sum(change.low > 0.1 for change in changes(1.0)) <= 1


def test_a_fifth_more_delay_is_found() -> None:
    """No more than one of twenty pairs is not called worse by more than 10 %, and none is called
    within it.
    """
    found = changes(1.2)
    assert sum(change.low > 0.1 for change in found) >= PAIRS - 1
    assert not any(change.high <= 0.1 for change in found)


def test_the_error_is_what_runs_differ_by() -> None:
    """The standard error told by one run is that of many: right within a factor of two, and no
    smaller by more than a third.
    """
    runs = [estimate(wandering(seed)) for seed in range(100, 140)]
    differ, told = (
        np.std([math.log(one.value) for one in runs]),
        np.mean([one.error for one in runs]),
    )
    assert 0.66 < told / differ < 2


def test_seconds_by_themselves_would_tell_too_little_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring seconds are alike: blocks of one second make the error smaller than it is."""
    long = np.mean([estimate(wandering(seed)).error for seed in range(10)])
    monkeypatch.setattr(resampled, "length", lambda duration: SECOND)
    assert np.mean([estimate(wandering(seed)).error for seed in range(10)]) < 0.8 * long


def test_a_short_run_has_no_estimate() -> None:
    """Fewer than ten blocks of two seconds are no sample of much."""
    assert latency_errors([{5000: 10}] * 19, SECOND, [50, 99]) == ([None, None], 9)
    assert rate_error([10] * 19) == (None, 9)
    assert [resampled.length(seconds * SECOND) // SECOND for seconds in (1, 20, 35, 60, 3600)] == [
        2,
        2,
        3,
        5,
        5,
    ]


def test_the_blocks_of_a_long_run_are_as_long_as_they_come() -> None:
    """A day has blocks of 87 s already; a thousand of them are put together to no more than are
    drawn.
    """
    assert latency_errors([{5000: 10}, {5001: 10}] * 496, 87 * SECOND, [50])[1] == 198
    assert rate_error([10] * 86_400) == (pytest.approx(0, abs=1e-12), 200)


def test_what_never_came_is_later_than_any() -> None:
    """A percentile that lies among it in some draw has no error; one below it has."""
    (half, tail), _ = latency_errors([{5000: 10, 5100: 10}] * 20, SECOND, [25, 99], never_came=20)
    assert half == pytest.approx(0, abs=1e-12)
    assert tail is None


def test_a_second_without_messages_has_no_latency() -> None:
    """It is drawn like any other, and adds nothing."""
    (error,), blocks = latency_errors([{5000: 10}, None] * 10, SECOND, [50])
    assert (error, blocks) == (pytest.approx(0, abs=1e-12), 10)


def test_a_rate_that_pauses_has_noise() -> None:
    """An even one has none, and one that stood still all the time has no logarithm."""
    assert rate_error([100] * 40) == (pytest.approx(0, abs=1e-12), 10)
    assert 0.05 < (rate_error(([100] * 4 + [50] * 4) * 5)[0] or 0) < 0.2
    assert rate_error([0] * 40)[0] is None


positive = st.floats(1, 1e6)
errors = st.floats(0, 1)


@given(positive, positive, errors, errors, st.integers(4, 200), st.integers(4, 200))
def test_the_interval_holds_the_change(
    was: float, now: float, own: float, other: float, many: int, more: int
) -> None:
    """Exchanging the two runs inverts it."""
    baseline, later = Estimate(was, own, many), Estimate(now, other, more)
    there, back = between(baseline, later), between(later, baseline)
    assert there.low <= there.change <= there.high
    assert (1 + there.change) * (1 + back.change) == pytest.approx(1)


def test_without_noise_a_change_is_what_it_is() -> None:
    """An even rate has no error."""
    assert between(Estimate(100, 0.0, 4), Estimate(110, 0.0, 4)) == pytest.approx((0.1, 0.1, 0.1))
