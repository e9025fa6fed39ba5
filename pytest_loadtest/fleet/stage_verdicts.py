"""The verdicts on the stages of a run, each by its own objectives.

:func:`~pytest_loadtest.fleet.judge.conclude_run` calls it, in the controller's thread that ends a
run and in the command ``aggregate``. Pure: measurements in, verdicts out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pytest_loadtest.metrics.measurements import Measurements, checked_parts
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.verdict import slo
from pytest_loadtest.verdict.finding import no_data
from pytest_loadtest.verdict.objectives import Objective, scale_objectives

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_loadtest.pipeline.run_file import RunFile
    from pytest_loadtest.profile import Profile


JudgedStage: TypeAlias = "tuple[str, slo.Verdict, Measurements | None]"
"""The name of a stage, its verdict, and its measurements; None if it never began."""


def scaled_objectives(
    objectives: Sequence[Objective], run: RunFile, written: Collection[str] = ()
) -> tuple[Objective, ...]:
    """Return the objectives scaled as the run is.

    :param written: keys of the ``slo`` section that were written for scaled runs.
    """
    if run.scale is None:
        return tuple(objectives)
    assert run.pace is not None and run.share is not None, "a scaled run has all three factors"
    return scale_objectives(objectives, run.pace, run.share, written)


def judge_stages(
    measured_stages: Sequence[tuple[str, Measurements]],
    whole: Measurements,
    run: RunFile,
    profile: Profile,
    allowed: tuple[Objective, ...],
) -> list[JudgedStage]:
    """Return the verdict on each stage, then on each one that never began.

    :param whole: the measurements of the run.
    :param allowed: the profile's own bounds on messages that never arrive: they apply to a stage's
        ``max`` too.
    """
    stages: list[JudgedStage] = []
    for name, measured in measured_stages:
        stages.append((name, _judge_stage(name, measured, whole, run, profile, allowed), measured))
    for name, verdict in _stages_not_begun(run, profile):
        stages.append((name, verdict, None))
    return stages


def _judge_stage(
    name: str,
    measured: Measurements,
    whole: Measurements,
    run: RunFile,
    profile: Profile,
    allowed: tuple[Objective, ...],
) -> slo.Verdict:
    """Judge a stage by its own objectives alone; implicit ones apply to the whole run."""
    objectives: Sequence[Objective] = ()
    for stage in profile.stages:
        if stage.name == name:
            objectives = stage.slo.objectives
    if not objectives:
        return slo.Verdict(outcome=slo.Outcome.MET, findings=())
    checked = checked_parts(checksum=profile.checksum, routed=profile.route is not None)
    verdict = slo.evaluate(
        scaled_objectives(objectives, run),
        replace(measured, checked=checked),
        profile.generator,
        tolerated=allowed,
    )
    if verdict.outcome is not slo.Outcome.NO_DATA:
        return verdict
    if run.aborted:
        # The abort, which is a miss of the run, has cut the stage short.
        return replace(verdict, outcome=slo.Outcome.MISSED)
    if _hung(measured, whole):
        reasons = (*slo.causes_at_target(measured), *verdict.reasons)
        return replace(verdict, outcome=slo.Outcome.MISSED, reasons=reasons)
    return verdict


def _hung(stage: Measurements, whole: Measurements) -> bool:
    """Return whether the target, which answered in the same phase, hung all through a stage.

    It kept messages waiting, and nothing came.
    """
    waited = stage.full_windows is not None or (stage.counts.sent > 0 and not stage.counts.acked)
    return waited and not stage.own_drops and not _answers(stage) and _answers(whole) > 0


def _answers(measured: Measurements) -> int:
    """Return the number of delivered messages; without subscriptions, of acknowledged ones."""
    if measured.subscriptions:
        return measured.counts.received
    # At QoS 0 an acknowledgement only says that the kernel took the message.
    return measured.counts.acked if "publish" in measured.latencies else 0


def _stages_not_begun(run: RunFile, profile: Profile) -> list[tuple[str, slo.Verdict]]:
    """Return the stages that never began, because the load was ended before, each with its verdict.

    Their objectives could not be judged: *no data*, unless the run was aborted, which makes it
    *missed* in any case.
    """
    begun = {stage.name for stage in run.stages}
    if not begun or len(begun) == len(profile.stages):
        return []
    reason = f"never began: the load was ended {format_duration(run.duration)} into the phase"
    outcome = slo.Outcome.MISSED if run.aborted else slo.Outcome.NO_DATA
    verdicts = []
    for stage in profile.stages:
        if stage.name in begun:
            continue
        objectives = scaled_objectives(stage.slo.objectives, run)
        findings = tuple(no_data(objective, reason) for objective in objectives)
        verdict = slo.Verdict(outcome=outcome, findings=findings, reasons=(reason,))
        if not objectives:
            # It is listed too: it has nothing that could be missed.
            verdict = replace(verdict, outcome=slo.Outcome.MET)
        verdicts.append((stage.name, verdict))
    return verdicts
