"""What a judged run gets by its baseline."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from builders.runs import run_of, wandering

from pytest_loadtest.fleet.comparing import beside
from pytest_loadtest.report.baseline import Baseline
from pytest_loadtest.verdict.changes import gates

GATES = gates({"regression": {"endToEndLatency.p99": "10%"}})
MEDIAN = gates({"regression": {"endToEndLatency.p50": "10%"}})
RUN = run_of(wandering(1))
SLOWER = run_of(wandering(3, factor=1.3))


def test_without_a_baseline_bounds_do_not_apply() -> None:
    """Which is noted where there are some; the verdict is the run's own."""
    found, findings = beside(RUN, GATES, None)
    assert (found["verdict"], found["comparison"], findings) == (RUN["verdict"], None, ())
    assert found["notes"] == ["regression of endToEndLatency.p99 is not judged: no baseline was given (--load-baseline)"]
    assert beside(RUN, (), None) == (RUN, ())


def test_a_baseline_that_was_asked_for_and_is_not_there_is_no_data() -> None:
    """Where something was to be judged beside it."""
    nowhere = Baseline(lambda _: "none is there")
    found, findings = beside(RUN, GATES, nowhere)
    assert found["verdict"]["outcome"] == "no data"
    assert found["verdict"]["reasons"] == ["regression.endToEndLatency.p99: none is there"] == [finding.text for finding in findings]
    assert beside(RUN, (), nowhere)[0]["verdict"]["outcome"] == "met"


def test_a_slower_run_is_missed() -> None:
    """By its bound; without one the comparison is shown and judges nothing."""
    baseline = Baseline(lambda _: RUN)
    assert beside(SLOWER, GATES, baseline)[0]["verdict"]["outcome"] == "missed"
    shown, findings = beside(SLOWER, (), baseline)
    assert (shown["verdict"]["outcome"], findings) == ("met", ())
    assert shown["comparison"]["comparable"]


def test_a_run_that_says_nothing_by_itself_stays_what_it_is() -> None:
    """A generator-limited run beside a baseline is generator-limited."""
    limited = deepcopy(SLOWER)
    limited["verdict"]["outcome"] = "generator-limited"
    found, findings = beside(limited, GATES, Baseline(lambda _: RUN))
    assert (found["verdict"]["outcome"], findings) == ("generator-limited", ())


def steps_of(percent: float, many: int) -> list[dict[str, Any]]:
    """Runs each so much slower than the one before, all of them met."""
    quiet = [wandering(number, factor=(1 + percent / 100) ** number, noise=0.001) for number in range(many)]
    return [run_of(latencies) | {"results": f"{number}"} for number, latencies in enumerate(quiet)]


def test_six_steps_of_nine_percent_do_not_pass_a_bound_of_ten() -> None:
    """Each alone is within the bound of the newest run that was met; the best of those before it shows how far they went."""
    runs, outcomes = steps_of(9, 7), []
    for number in range(1, 7):
        before = runs[:number][::-1]
        beside_last, _ = beside(runs[number], MEDIAN, Baseline(lambda _, before=before: before[0]))
        found, findings = beside(
            runs[number], MEDIAN, Baseline(lambda _, before=before: before[0], earlier=lambda _, before=before: before[1:])
        )
        outcomes.append((beside_last["verdict"]["outcome"], found["verdict"]["outcome"]))
    assert [last for last, _ in outcomes] == ["met"] * 6
    assert [best for _, best in outcomes] == ["met"] + ["missed"] * 5
    assert findings[0].text.endswith("; beside the best of the last 6 runs that were met, 0")
    assert found["comparison"]["best"] == ["0"]


def test_the_best_of_earlier_runs_only_makes_certain_misses() -> None:
    """Beside it, a change that cannot be told from noise leaves the finding beside the newest run."""
    best = run_of(wandering(2, factor=0.93))
    found, findings = beside(RUN, GATES, Baseline(lambda _: RUN, earlier=lambda _: [best]))
    assert (found["verdict"]["outcome"], "best of" in findings[0].text) == ("met", False)
