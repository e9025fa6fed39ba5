"""Run folders with measurements, as the judge gets them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from builders.measurements import made as measured
from builders.plans import made as planned
from pytest_loadtest.fleet.judge import conclude_run
from pytest_loadtest.fleet.measured_run import MeasuredRun
from pytest_loadtest.fleet.messages import Part
from pytest_loadtest.fleet.workload_run import WorkloadRun

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.profile import Profile
    from pytest_loadtest.verdict.slo import Finding


LEAST = (
    "name: p\nmessageSize: 100\nproducerRate: 10000\ntestDuration: 10s\ndriver: {name: loopback}\n"
)


def samples(
    profile: Profile,
    folder: Path,
    *,
    scale: float | None = None,
    cap: int | None = None,
    **changed: Any,
) -> MeasuredRun:
    """Return a run folder with measurements, as a run of the profile would leave it."""
    plan = planned(profile, scale=scale, duration_cap=cap)
    run = WorkloadRun(
        name="",
        part=Part(profile=profile),
        plan=plan,
        root=folder,
        nonce=1,
        test="t",
        source="p.yaml",
        run="r",
        workers=["main"],
    )
    return MeasuredRun(
        folder=folder,
        run=replace(run.run_file(), started=1.7e9),
        measurements=measured(**changed),
        stages=(),
    )


def findings(of: MeasuredRun, **seen: Any) -> dict[str, Finding]:
    outcome, _ = conclude_run(of, **seen)
    return {finding.objective.name: finding for finding in outcome.load.verdict.findings}
