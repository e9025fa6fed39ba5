"""What a judged run gets by its baseline."""

from __future__ import annotations

from copy import deepcopy

from made_runs import run_of, wandering

from pytest_loadtest.fleet.comparing import beside
from pytest_loadtest.report.baseline import Baseline
from pytest_loadtest.verdict.changes import gates

GATES = gates({"regression": {"endToEndLatency.p99": "10%"}})
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
