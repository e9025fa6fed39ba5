"""What ``run.json`` says of a run: before, while and after its load runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builders.planned_runs import planned_run, ready_run

from pytest_loadtest.schedule.changes import Aborted, Change
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_without_a_phase_has_no_duration_and_no_target(tmp_path: Path) -> None:
    """It was given up before its load."""
    first, second = planned_run(tmp_path).workloads
    run = first.run_file()
    assert (run.start, run.duration, run.changes, run.facts.broker) == (0, 0, (), {})
    assert (run.workload, second.run_file().workload) == (None, "two words")
    assert run.workers == ("gw0", "gw1")


def test_changes_are_those_made_so_far_and_the_first_reason_counts(tmp_path: Path) -> None:
    workload = planned_run(tmp_path).workloads[0]
    workload.begin(workload.plan.measure, None, 7)
    assert workload.run_file().unattainable is None
    early = Change(at=SECOND // 4, end=True, unattainable="loss", aborted=Aborted(reason="late"))
    workload.current.changes += [early, Change(at=SECOND // 2, end=True, unattainable="other")]
    run = workload.run_file()
    assert (run.start, run.duration, run.unattainable) == (7, SECOND // 4, "loss")
    assert run.aborted == Aborted(reason="late")
    assert [change.at for change in run.changes] == [SECOND // 4, SECOND // 2]


def test_the_facts_of_the_target_have_its_outages(tmp_path: Path) -> None:
    workload = ready_run(tmp_path).workloads[0]
    facts = workload.run_file().facts
    assert (facts.broker["name"], facts.broker["restarts"]) == ("loopback", [])
    assert facts.source == "p"
