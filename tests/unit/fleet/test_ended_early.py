"""The verdict for the test equals the one that is written next to the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.measurements import made, spread
from builders.plans import loopback
from builders.plans import made as planned

from pytest_loadtest.fleet.judge import conclude_run, read_results
from pytest_loadtest.fleet.measured_run import MeasuredRun
from pytest_loadtest.fleet.messages import Part
from pytest_loadtest.fleet.workload_run import WorkloadRun
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.verdict.objectives import Slo

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("unattainable", "outcome"), [(None, "no data"), ("endToEndLatency.p99", "missed")]
)
def test_a_phase_ended_by_a_broken_objective_is_missed(
    tmp_path: Path, unattainable: str | None, outcome: str
) -> None:
    """It has too few samples for p99; the reason is kept for later judgements too."""
    profile = loopback().model_copy(update={"slo": Slo.read({"endToEndLatency": {"p99": "10ms"}})})
    workload = WorkloadRun(
        name="",
        part=Part(profile=profile),
        plan=planned(profile),
        root=tmp_path,
        nonce=1,
        test="t",
        source="p.yaml",
        run="r",
        workers=("main",),
    )
    workload.begin(workload.plan.measure, "measure", 0)
    workload.current.changes.append(Change(at=1000, end=True, unattainable=unattainable))
    samples = MeasuredRun(
        folder=tmp_path,
        run=workload.run_file(),
        measurements=made(end_to_end=spread(1, 20, 900)),
        stages=(),
    )
    result, _ = conclude_run(samples)
    assert result.load.outcome.value == outcome
    written = read_results(tmp_path)
    assert written is not None
    assert written.verdict.outcome == outcome
