"""What remains of a session's runs: results, documents, and the reason why there are none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

from builders.documents import PEAK, document
from builders.measured_runs import LEAST, samples
from builders.planned_runs import planned_run

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers.base import DriverFacts
from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.judge import conclude_run, read_results
from pytest_loadtest.fleet.outputs import Outputs
from pytest_loadtest.fleet.run_results import RunResults
from pytest_loadtest.fleet.scripts import SearchScript
from pytest_loadtest.pipeline.run_file import RunFile
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.fleet.measured_run import MeasuredRun
    from pytest_loadtest.verdict.peak import Peak


def not_measured(_folder: Path) -> MeasuredRun:
    raise AssertionError("nothing is measured")


def results(folder: Path, measure: Callable[[Path], MeasuredRun] = not_measured) -> RunResults:
    options = SimpleNamespace(baseline=None, history=None, omb_json=None)
    return RunResults(Outputs(options, folder), measure)  # type: ignore[arg-type]


def test_each_workload_is_measured_and_judged(tmp_path: Path) -> None:
    profile = profiles.loads(LEAST, "p.yaml")
    judging = results(tmp_path, lambda folder: samples(profile, folder))
    planned = planned_run(tmp_path)
    for workload in planned.workloads:
        workload.folder = workload.root
        planned.scripts.append(SimpleNamespace(backlog=None))  # type: ignore[arg-type]
    judged = judging.judge(planned)
    assert [result.load.outcome for result, _ in judged] == [Outcome.MET] * 2
    assert not judging.documents
    whole = judging.add("two", judged)
    assert dict(whole.properties)["load.outcome"] == "met"
    assert len(judging.documents) == 2


def test_the_result_of_one_workload_is_that_of_the_run(tmp_path: Path) -> None:
    judging = results(tmp_path)
    result, _ = conclude_run(samples(profiles.loads(LEAST, "p.yaml"), tmp_path))
    assert judging.add("p", [(result, document())]) is result


def test_a_step_of_a_search_is_judged_by_its_samples(tmp_path: Path) -> None:
    measured = samples(profiles.loads(LEAST, "p.yaml"), tmp_path)
    workload = planned_run(tmp_path).workloads[0]
    workload.folder = tmp_path
    step, load = results(tmp_path, lambda _: measured).judge_step(workload)
    assert step is measured
    assert load.outcome is Outcome.MET


class Found(SearchScript):
    """A search that has ended."""

    def __init__(self, best: MeasuredRun) -> None:
        self._best = best

    def peak(self) -> Peak:
        return PEAK

    def best_step(self, peak: Peak) -> MeasuredRun:
        return self._best


def test_a_search_has_the_incidents_of_its_connections(tmp_path: Path) -> None:
    """They are known after the last step: its results agree with those of a later aggregation."""
    profile = profiles.loads(f"{LEAST}slo: {{loss: 0}}\n", "p.yaml")
    step = samples(profile, tmp_path)
    step.run.write(tmp_path)
    planned = planned_run(tmp_path)
    del planned.workloads[1:]
    planned.workloads[0].facts = DriverFacts(
        client="c", version="1", losses=2, incidents={"lost: reset": 2}
    )
    planned.scripts.append(Found(step))
    ((result, document),) = results(tmp_path).judge(planned)
    assert (document.driver["losses"], document.driver["incidents"]) == (2, {"lost: reset": 2})
    assert dict(result.properties)["load.connections.lost"] == "2"

    written = (tmp_path / "results.json").read_bytes()
    again = replace(step, run=RunFile.read(tmp_path))
    conclude_run(again, before=read_results(tmp_path))
    assert (tmp_path / "results.json").read_bytes() == written


def test_a_broken_run_overwrites_results_and_counts_once(tmp_path: Path) -> None:
    """A run that is given up while it is judged had its documents added already."""
    judging = results(tmp_path)
    planned = planned_run(tmp_path)
    judging.add_broken(planned, NoData("gw1 went down"))
    assert len(judging.documents) == 2
    judging.write_broken(planned, NoData("too late"))
    assert len(judging.documents) == 2
    written = read_results(tmp_path / "0" / "measure")
    assert written is not None
    assert written.verdict.reasons == ("too late",)
