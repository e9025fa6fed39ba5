"""A bound on regression held against a change whose interval is known, or is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.resampled import RelativeChange
from pytest_loadtest.verdict.changes import Changed, judge_change, percent, with_findings
from pytest_loadtest.verdict.objectives import Slo
from pytest_loadtest.verdict.slo import Finding, Outcome, Verdict

MS = 1_000_000
LATENCY, THROUGHPUT = Slo.read({"regression": {"endToEndLatency.p99": "10%", "throughput": "5%"}}).gates
MET = Verdict(outcome=Outcome.MET, findings=())


def changed(change: float, low: float, high: float) -> Changed:
    return Changed(unit="ns", baseline=50.0 * MS, now=50.0 * MS * (1 + change), samples=1000, interval=RelativeChange(change, low, high))


def test_a_regression_lies_beyond_its_bound_with_all_of_its_interval() -> None:
    """It says by how much, and between what."""
    found = judge_change(LATENCY, changed(0.2, 0.12, 0.28))
    assert (found.outcome, found.observed, found.samples) == (Outcome.MISSED, 0.2, 1000)
    assert found.text == "regression.endToEndLatency.p99 20 % > 10 %: over by 100 % (50.0 ms → 60.0 ms, +20 % (+12 % to +28 %))"


def test_a_bound_that_holds_has_the_whole_interval_within() -> None:
    """What is better is within every bound."""
    assert judge_change(LATENCY, changed(0.02, -0.05, 0.1)).outcome is Outcome.MET
    assert judge_change(LATENCY, changed(-0.5, -0.6, -0.4)).text.startswith("regression.endToEndLatency.p99 -50 % <= 10 %")


@pytest.mark.parametrize("ends", [(0.05, 0.3), (-0.5, 0.11), (0.1, 0.2)])
def test_in_between_nothing_can_be_told(ends: tuple[float, float]) -> None:
    """Neither a pass nor a regression: it was not measured well enough."""
    found = judge_change(LATENCY, changed(0.09, *ends))
    assert (found.outcome, found.observed) == (Outcome.NO_DATA, None)
    assert "change cannot be told from noise" in found.text


def test_less_throughput_is_worse() -> None:
    """And more is no regression."""
    assert judge_change(THROUGHPUT, changed(-0.1, -0.12, -0.08)).outcome is Outcome.MISSED
    assert judge_change(THROUGHPUT, changed(0.1, 0.08, 0.12)).outcome is Outcome.MET
    assert judge_change(LATENCY, changed(0.3, 0.28, 0.32)).outcome is Outcome.MISSED


def test_without_an_interval_nothing_is_judged() -> None:
    """The reason is told."""
    found = judge_change(LATENCY, Changed(unit="ns", baseline=1.0, now=2.0, why="20 s are needed"))
    assert (found.outcome, found.text) == (Outcome.NO_DATA, "regression.endToEndLatency.p99: 20 s are needed")
    assert judge_change(LATENCY, None).outcome is Outcome.NO_DATA


@given(st.floats(-0.9, 5), st.floats(0, 0.5), st.floats(0, 0.5))
def test_missed_and_met_are_never_told_of_one_interval(change: float, below: float, above: float) -> None:
    """Missed only where every value of the interval would be, met only where every value would be."""
    low, high = change - below, change + above
    outcome = judge_change(LATENCY, changed(change, low, high)).outcome
    assert outcome is (Outcome.MISSED if low > 0.1 else Outcome.MET if high <= 0.1 else Outcome.NO_DATA)


def finding(outcome: Outcome) -> Finding:
    return Finding(objective=LATENCY, outcome=outcome, observed=None, samples=0, text="why")


def test_the_verdict_is_the_worst_of_both() -> None:
    """With the reason of what could not be told."""
    assert with_findings(MET, []) is not None
    assert with_findings(MET, [finding(Outcome.MISSED)]).outcome is Outcome.MISSED
    untold = with_findings(MET, [finding(Outcome.MET), finding(Outcome.NO_DATA)])
    assert (untold.outcome, untold.reasons, len(untold.findings)) == (Outcome.NO_DATA, ("why",), 2)


def test_changes_in_words() -> None:
    """With their sign, precise where they are small."""
    assert [percent(value) for value in (0.184, -0.004, 0.0, 2.5)] == ["+18 %", "-0.4 %", "+0.0 %", "+250 %"]
