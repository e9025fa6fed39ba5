"""Bounds on regression against a change with or without an interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.resampled import RelativeChange
from pytest_loadtest.verdict.changes import Changed, judge_change, percent
from pytest_loadtest.verdict.objectives import Slo
from pytest_loadtest.verdict.slo import Outcome

MS = 1_000_000
LATENCY, THROUGHPUT = Slo.read(
    {"regression": {"endToEndLatency.p99": "10%", "throughput": "5%"}}
).gates


def changed(change: float, low: float, high: float) -> Changed:
    return Changed(
        unit="ns",
        baseline=50.0 * MS,
        now=50.0 * MS * (1 + change),
        samples=1000,
        interval=RelativeChange(change, low, high),
    )


def test_a_figure_is_missed_if_its_whole_interval_is_beyond_the_bound() -> None:
    """The text has change and interval."""
    found = judge_change(LATENCY, changed(0.2, 0.12, 0.28))
    assert (found.outcome, found.observed, found.samples) == (Outcome.MISSED, 0.2, 1000)
    assert (
        found.text
        == "regression.endToEndLatency.p99 20 % > 10 %: over by 100 % (50.0 ms → 60.0 ms, +20 % (+12 % to +28 %))"
    )


def test_a_figure_is_met_if_its_whole_interval_is_within_the_bound() -> None:
    """An improvement is within every bound."""
    assert judge_change(LATENCY, changed(0.02, -0.05, 0.1)).outcome is Outcome.MET
    assert judge_change(LATENCY, changed(-0.5, -0.6, -0.4)).text.startswith(
        "regression.endToEndLatency.p99 -50 % <= 10 %"
    )


@pytest.mark.parametrize("ends", [(0.05, 0.3), (-0.5, 0.11), (0.1, 0.2)])
def test_an_interval_around_the_bound_is_no_data(ends: tuple[float, float]) -> None:
    """Neither a pass nor a regression."""
    found = judge_change(LATENCY, changed(0.09, *ends))
    assert (found.outcome, found.observed) == (Outcome.NO_DATA, None)
    assert "change cannot be told from noise" in found.text


def test_less_throughput_is_worse() -> None:
    """More is no regression."""
    assert judge_change(THROUGHPUT, changed(-0.1, -0.12, -0.08)).outcome is Outcome.MISSED
    assert judge_change(THROUGHPUT, changed(0.1, 0.08, 0.12)).outcome is Outcome.MET
    assert judge_change(LATENCY, changed(0.3, 0.28, 0.32)).outcome is Outcome.MISSED


def test_a_change_without_interval_is_no_data() -> None:
    """With the reason."""
    found = judge_change(LATENCY, Changed(unit="ns", baseline=1.0, now=2.0, why="20 s are needed"))
    assert (found.outcome, found.text) == (
        Outcome.NO_DATA,
        "regression.endToEndLatency.p99: 20 s are needed",
    )


@given(st.floats(-0.9, 5), st.floats(0, 0.5), st.floats(0, 0.5))
def test_missed_and_met_hold_for_every_value_of_the_interval(
    change: float, below: float, above: float
) -> None:
    low, high = change - below, change + above
    outcome = judge_change(LATENCY, changed(change, low, high)).outcome
    assert outcome is (
        Outcome.MISSED if low > 0.1 else Outcome.MET if high <= 0.1 else Outcome.NO_DATA
    )


def test_a_change_is_written_with_its_sign() -> None:
    """Small ones with one more digit."""
    assert [percent(value) for value in (0.184, -0.004, 0.0, 2.5)] == [
        "+18 %",
        "-0.4 %",
        "+0.0 %",
        "+250 %",
    ]
