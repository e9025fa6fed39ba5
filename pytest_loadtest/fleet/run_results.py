"""The results of a session's runs: measures and judges their samples, and keeps their documents.

Used by the run controller: in the threads that answer steps, for the steps of a search and for the
verdict; under the rendezvous' lock for the document of a run that was given up.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_loadtest.report.ended_runs import EndedRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_loadtest.errors import BrokenRun
    from pytest_loadtest.fleet.measured_run import MeasuredRun
    from pytest_loadtest.fleet.messages import RunResult
    from pytest_loadtest.fleet.outputs import Outputs
    from pytest_loadtest.fleet.planned_run import PlannedRun
    from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript
    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.results.load import Load

    Judged = tuple[RunResult, RunDocument]


class RunResults:
    """Judges runs, and writes what remains of them.

    :param measure: measures the samples in a folder.
    :ivar documents: those of all runs that have ended.
    """

    def __init__(self, outputs: Outputs, measure: Callable[[Path], MeasuredRun]) -> None:
        self._outputs = outputs
        self._measure = measure
        self.documents = EndedRuns()

    def judge_step(self, workload: WorkloadRun) -> tuple[MeasuredRun, Load]:
        """Measure and judge the step of a search that has just ended."""
        from pytest_loadtest.fleet.judge import conclude_run

        assert workload.folder is not None
        measured = self._measure(workload.folder)
        result, _ = conclude_run(measured)
        return measured, result.load

    def judge(self, planned: PlannedRun) -> list[Judged]:
        """Return the result and the document of each workload.

        :raises NoData: one cannot be measured.
        """
        pairs = zip(planned.workloads, planned.scripts, strict=True)
        return [self._judge_workload(workload, script) for workload, script in pairs]

    def _judge_workload(
        self, workload: WorkloadRun, script: PlannedScript | SearchScript
    ) -> Judged:
        from pytest_loadtest.fleet.judge import conclude_run
        from pytest_loadtest.fleet.scripts import SearchScript
        from pytest_loadtest.report.build import driver_document

        baseline = self._outputs.baseline
        if isinstance(script, SearchScript):
            peak = script.peak()
            best = script.best_step(peak)
            # Workers report lost connections when they close their clients, after the last step.
            facts = replace(best.run.facts, driver=driver_document(workload.facts))
            best = replace(best, run=replace(best.run, facts=facts))
            best.run.write(best.folder)
            return conclude_run(best, peak=peak, baseline=baseline)
        assert workload.folder is not None
        measured = self._measure(workload.folder)
        return conclude_run(measured, backlog=script.backlog, baseline=baseline)

    def add(self, profile_name: str, judged: Sequence[Judged]) -> RunResult:
        """Keep and write the documents of a run that has a verdict; return its result."""
        from pytest_loadtest.fleet.judge import combine_workloads

        documents = [document for _, document in judged]
        self.documents.add(documents)
        self._outputs.write_results(documents)
        results = [result for result, _ in judged]
        return results[0] if len(results) == 1 else combine_workloads(profile_name, results)

    def add_broken(self, planned: PlannedRun, error: BrokenRun) -> None:
        """Keep and write the documents of a run that was given up."""
        documents = self.write_broken(planned, error)
        self.documents.add(documents)
        self._outputs.add_to_history(documents)

    def write_broken(self, planned: PlannedRun, error: BrokenRun) -> list[RunDocument]:
        """Write the documents of a run that was given up; return them."""
        from pytest_loadtest.fleet.judge import broken_results, write_results

        documents = []
        for workload in planned.workloads:
            folder = workload.folder or workload.root / "measure"
            document = broken_results(workload.run_file(), folder, error)
            documents.append(document)
            self._outputs.write_broken(folder, partial(write_results, folder, document))
        return documents
