"""The comparison with a baseline: when it is judged, and what the best of earlier runs adds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builders.runs import run_of, wandering

from pytest_loadtest.fleet.regression import compare_with_baseline
from pytest_loadtest.report.baseline import Baseline
from pytest_loadtest.verdict.objectives import Slo
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument


GATES = Slo.read({"regression": {"endToEndLatency.p99": "10%"}}).gates
MEDIAN = Slo.read({"regression": {"endToEndLatency.p50": "10%"}}).gates
RUN = run_of(wandering(1))
SLOWER = run_of(wandering(3, factor=1.3))


def test_without_a_baseline_regression_bounds_do_not_apply() -> None:
    """The results note it; the verdict is that of the run alone."""
    found, findings = compare_with_baseline(RUN, GATES, None)
    assert (found.verdict, found.comparison, findings) == (RUN.verdict, None, ())
    assert found.notes == (
        "regression of endToEndLatency.p99 is not judged: no baseline was given (--load-baseline)",
    )
    assert compare_with_baseline(RUN, (), None) == (RUN, ())


def test_a_requested_baseline_that_is_missing_is_no_data() -> None:
    """If there are regression objectives."""
    nowhere = Baseline(lambda _: "none is there")
    found, findings = compare_with_baseline(RUN, GATES, nowhere)
    assert found.verdict.outcome == "no data"
    assert (
        found.verdict.reasons
        == ("regression.endToEndLatency.p99: none is there",)
        == tuple(finding.text for finding in findings)
    )
    assert compare_with_baseline(RUN, (), nowhere)[0].verdict.outcome == "met"


def test_a_run_slower_than_its_regression_bound_is_missed() -> None:
    """Without a bound the comparison is shown but not judged."""
    baseline = Baseline(lambda _: RUN)
    assert compare_with_baseline(SLOWER, GATES, baseline)[0].verdict.outcome == "missed"
    shown, findings = compare_with_baseline(SLOWER, (), baseline)
    assert (shown.verdict.outcome, findings) == ("met", ())
    assert shown.comparison is not None and shown.comparison.comparable


def test_a_baseline_does_not_change_a_run_without_a_verdict() -> None:
    """A generator-limited run remains generator-limited."""
    limited = replace(SLOWER, verdict=replace(SLOWER.verdict, outcome=Outcome.GENERATOR_LIMITED))
    found, findings = compare_with_baseline(limited, GATES, Baseline(lambda _: RUN))
    assert (found.verdict.outcome, findings) == ("generator-limited", ())


def steps_of(percent: float, many: int) -> list[RunDocument]:
    """Return runs that were all met, each slower than the one before by this share."""
    quiet = [
        wandering(number, factor=(1 + percent / 100) ** number, noise=0.001)
        for number in range(many)
    ]
    return [
        replace(run_of(latencies), results=f"{number}") for number, latencies in enumerate(quiet)
    ]


def test_six_steps_of_nine_percent_do_not_pass_a_bound_of_ten() -> None:
    """Each step alone is within the bound of the run before it; the best of the earlier runs shows the sum."""
    runs, outcomes = steps_of(9, 7), []
    for number in range(1, 7):
        before = runs[:number][::-1]
        beside_last, _ = compare_with_baseline(
            runs[number], MEDIAN, Baseline(lambda _, before=before: before[0])
        )
        found, findings = compare_with_baseline(
            runs[number],
            MEDIAN,
            Baseline(
                lambda _, before=before: before[0], earlier=lambda _, before=before: before[1:]
            ),
        )
        outcomes.append((beside_last.verdict.outcome, found.verdict.outcome))
    assert [last for last, _ in outcomes] == ["met"] * 6
    assert [best for _, best in outcomes] == ["met"] + ["missed"] * 5
    assert findings[0].text.endswith("; compared with the best of the last 6 runs that were met, 0")
    assert found.comparison is not None and found.comparison.best == ("0",)


def test_the_best_of_earlier_runs_adds_only_certain_misses() -> None:
    """A change within the noise leaves the finding against the newest run unchanged."""
    best = run_of(wandering(2, factor=0.93))
    found, findings = compare_with_baseline(
        RUN, GATES, Baseline(lambda _: RUN, earlier=lambda _: [best])
    )
    assert (found.verdict.outcome, "best of" in findings[0].text) == ("met", False)
