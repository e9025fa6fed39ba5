"""What is shown of a session's runs while they last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builders.planned_runs import planned_run
from builders.progress import made_progress

from pytest_loadtest.fleet.display import Display
from pytest_loadtest.fleet.drain import Drain

if TYPE_CHECKING:
    from pathlib import Path


class Shown:
    """A live line and live metrics that keep what they get."""

    bounds = (5, 7)

    def __init__(self) -> None:
        self.shown: list[Any] = []

    def announce(self, text: str, *, quiet: bool = False) -> None:
        self.shown.append((text, quiet))

    def show(self, *arguments: Any) -> None:
        self.shown.append(arguments)


def test_a_session_without_live_line_and_metrics_shows_nothing(tmp_path: Path) -> None:
    display = Display(None, None)
    display.announce("text")
    workload = planned_run(tmp_path).workloads[0]
    workload.begin(workload.plan.measure, None, 0)
    display.show(workload, [made_progress()], None, 0)
    assert display.bounds == ()


def test_progress_is_shown_with_the_drain_that_it_waits_for(tmp_path: Path) -> None:
    """A report on an earlier phase shows nothing."""
    live = Shown()
    metrics = Shown()
    display = Display(live, metrics)  # type: ignore[arg-type]
    workload = planned_run(tmp_path).workloads[1]
    workload.root = tmp_path / "2" / "a"
    workload.begin(workload.plan.measure, None, 0)
    drain = Drain("measure", 2, 1, 10)
    display.show(workload, [], drain, 0)
    assert live.shown == metrics.shown == []
    reports = [made_progress()]
    display.show(workload, reports, drain, 0)
    phase = workload.current.phase
    assert live.shown == [("a", phase, reports, drain.describe(0))]
    assert metrics.shown == [("t", "a", "two words", phase, reports, 2, "")]
    assert display.bounds == (5, 7)
    display.announce("text", quiet=True)
    assert live.shown[-1] == ("text", True)
