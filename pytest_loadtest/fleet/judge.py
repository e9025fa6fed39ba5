"""Judges a measured run, and writes its results next to the samples: ``results.json``, HDR log.

The run controller calls :func:`conclude_run` in the thread that answers the last meeting (after
each step of a search), the command ``aggregate`` at any time later; both read only the run folder,
so they come to the same verdict. It changes no sample.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_loadtest import profile as profiles
from pytest_loadtest.engine import sample_files
from pytest_loadtest.errors import BrokenRun, GeneratorLimited
from pytest_loadtest.fleet import observing
from pytest_loadtest.fleet.messages import RunResult
from pytest_loadtest.fleet.regression import compare_with_baseline
from pytest_loadtest.fleet.run_notes import (
    clock_notes,
    route_notes,
    seen_versions,
    unchecked_host_notes,
)
from pytest_loadtest.fleet.settled_backlog import recorded_backlog, settle_backlog
from pytest_loadtest.fleet.stage_verdicts import judge_stages, scaled_objectives
from pytest_loadtest.metrics.measurements import Measurements, checked_parts
from pytest_loadtest.observe.conclusion import conclude
from pytest_loadtest.observe.disagreement import disagreement
from pytest_loadtest.observe.telemetry import Telemetry, fullest
from pytest_loadtest.report import bottleneck, hdr, junit
from pytest_loadtest.report.baseline import Baseline, recorded_baseline
from pytest_loadtest.report.build import RunFacts, build_document
from pytest_loadtest.report.document import BottleneckSection, RunDocument, dumps, read_document
from pytest_loadtest.report.measured import section_of, timeline_section
from pytest_loadtest.results.load import Load, together, without_measurements
from pytest_loadtest.verdict import slo
from pytest_loadtest.verdict.abort import evaluate_aborted
from pytest_loadtest.verdict.changes import with_changes
from pytest_loadtest.verdict.early import evaluate_ended, lost_target
from pytest_loadtest.verdict.tolerance import joint_tolerances, tolerances

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.measured_run import MeasuredRun
    from pytest_loadtest.fleet.stage_verdicts import JudgedStage
    from pytest_loadtest.fleet.watches import BacklogWatch
    from pytest_loadtest.pipeline.run_file import RunFile
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.report.verdict_section import PeakSection
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.peak import Peak


def conclude_run(
    samples: MeasuredRun,
    *,
    backlog: BacklogWatch | None = None,
    peak: Peak | None = None,
    before: RunDocument | None = None,
    baseline: Baseline | None = None,
) -> tuple[RunResult, RunDocument]:
    """Judge a run by the profile kept in its ``run.json``; write the results next to the samples.

    :param backlog: the watch of a backlog, if one was built and drained.
    :param peak: the result of the search whose best step this is.
    :param before: the earlier results document if the samples are judged again: peak and backlog
        are taken from it, because the samples do not contain them, and it names the baseline.
    :param baseline: earlier results to compare with.
    :returns: the result for the test, and the results document.
    """
    folder = samples.folder
    run = samples.run
    profile = profiles.from_document(run.profile)
    if run.scale is not None:
        profile = profile.as_scaled()
    telemetry = observing.read_telemetry(folder)

    objectives = scaled_objectives(profile.objectives, run, written=profile.scaled.slo)
    allowed = tolerances(objectives)
    # Neither a backlog nor a peak is in the samples: the document before has them.
    built = None
    if backlog is not None:
        built = settle_backlog(backlog, dict(samples.stages), samples.measurements, allowed)
    peak_before = None
    backlog_before = None
    if before is not None:
        peak_before = before.peak
        backlog_before = before.backlog
    measurements = replace(
        samples.measurements,
        backlog=built if backlog_before is None else recorded_backlog(backlog_before),
        checked=checked_parts(checksum=profile.checksum, routed=profile.route is not None),
        delayed_index=fullest(telemetry),
        forgotten=run.facts.driver.get("forgotten"),
    )

    verdict, notes = _whole_verdict(samples, measurements, profile, objectives, telemetry)
    verdict = _of_search(verdict, peak or peak_before)
    verdict, notes = _with_services(verdict, notes, run)
    # The windows of a backlog are no stages of the profile.
    measured_stages = samples.stages if backlog is None and backlog_before is None else ()
    stages = judge_stages(measured_stages, measurements, run, profile, allowed)

    results = build_document(
        _facts(run, folder, telemetry, notes),
        verdict,
        measurements,
        stages=stages,
        peak=peak,
        backlog=built,
        bottleneck=_bottleneck(telemetry, run, measurements, verdict),
        timeline=timeline_section(run, measurements),
    )
    results = replace(
        results, peak=peak_before or results.peak, backlog=backlog_before or results.backlog
    )
    results = _limited(results, folder)
    earlier = recorded_baseline(before) or baseline
    results, findings = compare_with_baseline(results, _gates(profile, results, run), earlier)
    # That of the results counts the stages too, which the test's body judges one by one.
    outcome, reasons = with_changes(verdict.outcome, verdict.reasons, findings)
    verdict = replace(
        verdict, outcome=outcome, reasons=reasons, findings=(*verdict.findings, *findings)
    )
    write_results(folder, results)
    assert run.started is not None, "samples are of a load that has begun"
    hdr.write_log(folder / "latency.hlog", measurements, run.started)

    load = Load(
        profile_name=profile.name,
        scale=run.scale,
        tolerances=allowed,
        observed=measurements,
        verdict=verdict,
        name=run.workload or "",
        stages=tuple(_stage_results(stages, allowed, profile.name, run.scale)),
        peak=peak,
        backlog=built,
        files=samples.files,
        aborted=None if run.aborted is None else run.aborted.reason,
    )
    return RunResult(load=load, properties=tuple(junit.junit_properties(results))), results


def _stage_results(
    stages: Sequence[JudgedStage], allowed: Sequence[Objective], profile: str, scale: float | None
) -> Iterator[Load]:
    """Yield the result of each stage, with its own bounds on messages that never come."""
    for name, verdict, measurements in stages:
        if measurements is None:
            yield without_measurements(profile, name, verdict, scale)
        else:
            yield Load(
                profile_name=profile,
                scale=scale,
                tolerances=joint_tolerances(
                    (found.objective for found in verdict.findings), allowed
                ),
                name=name,
                observed=measurements,
                verdict=verdict,
            )


def _gates(profile: Profile, results: RunDocument, run: RunFile) -> Sequence[Objective]:
    """Return the bounds on regression.

    None for a step of a search, which is compared whole, and for a run that was aborted: it is
    missed, and shorter than its baseline.
    """
    is_step = profile.peak_search and results.peak is None
    return () if is_step or run.aborted else profile.slo.gates


def _whole_verdict(
    samples: MeasuredRun,
    measurements: Measurements,
    profile: Profile,
    objectives: Sequence[Objective],
    telemetry: Telemetry | None,
) -> tuple[slo.Verdict, tuple[str, ...]]:
    """Return the verdict on the run without stages, search and baseline; and the report's notes."""
    run = samples.run
    broker = run.facts.broker
    verdict = _verdict(run, objectives, measurements, profile)
    notes = [
        *samples.notes,
        *unchecked_host_notes(profile, broker),
        *profile.driver.outage_notes(broker),
        *clock_notes(measurements, run, profile),
        *route_notes(measurements, profile),
    ]
    if run.went_away is not None and run.went_away not in verdict.reasons:
        # It limits nothing, but is never left unsaid.
        notes.append(run.went_away)
    if samples.failure:
        own = tuple(finding for finding in verdict.findings if finding.objective.metric != "custom")
        verdict = slo.Verdict(outcome=slo.Outcome.NO_DATA, findings=own, reasons=(samples.failure,))
    wrong = None
    if telemetry is not None:
        wrong = disagreement(
            telemetry,
            measurements.counts,
            measurements.fan_out,
            shared=profile.route is not None or broker.get("mode") == "url",
            others=bool(run.workload) and not run.sole_user,
            restarted=bool(broker.get("restarts")),
        )
    if wrong is None:
        return verdict, tuple(notes)

    # A miss that the disputed counts do not prove remains one.
    proven = verdict.outcome is slo.Outcome.MISSED and not wrong.compared
    if proven or not wrong.certain:
        notes.append(wrong.text)
    else:
        verdict = slo.Verdict(
            outcome=slo.Outcome.NO_DATA, findings=verdict.findings, reasons=(wrong.text,)
        )
    return verdict, tuple(notes)


def _of_search(verdict: slo.Verdict, found: Peak | PeakSection | None) -> slo.Verdict:
    """Return the verdict on a search.

    Without a peak, the target missed, or the generator was the limit, whatever its last step was.
    The target also missed if a rate held, and none for the longer time of a confirmation. With a
    peak, the verdict on its step stays.

    :param verdict: on the last step. :param found: the search; None if there was none.
    """
    if found is None:
        return verdict
    if found.rate is not None and (found.confirmed or found.limit != "target"):
        return verdict
    if found.limit == "generator" and verdict.outcome in (slo.Outcome.MET, slo.Outcome.MISSED):
        limited = [step for step in found.steps if step.outcome is slo.Outcome.GENERATOR_LIMITED]
        why = tuple(step.text for step in limited[-1:])
        reasons = ("no rate held, and the generator limited the lowest one", *why, slo.REMEDY)
        return replace(verdict, outcome=slo.Outcome.GENERATOR_LIMITED, reasons=reasons)
    return replace(verdict, outcome=slo.worst((verdict.outcome, slo.Outcome.MISSED)))


def _with_services(
    verdict: slo.Verdict, notes: tuple[str, ...], run: RunFile
) -> tuple[slo.Verdict, tuple[str, ...]]:
    """Return verdict and notes with the services that ended before the load did.

    They are causes of a miss, but change no outcome.
    """
    if verdict.outcome is not slo.Outcome.MISSED:
        return verdict, (*notes, *run.ended_services)
    return replace(verdict, reasons=(*run.ended_services, *verdict.reasons)), notes


def _verdict(
    run: RunFile, objectives: Sequence[Objective], measurements: Measurements, profile: Profile
) -> slo.Verdict:
    if run.aborted:
        return evaluate_aborted(objectives, measurements, profile.generator, run.aborted)
    if run.unattainable:
        verdict = evaluate_ended(objectives, measurements, profile.generator, run.unattainable)
    else:
        verdict = slo.evaluate(objectives, measurements, profile.generator)
    return verdict if run.went_away is None else lost_target(verdict, run.went_away)


def _bottleneck(
    telemetry: Telemetry | None,
    run: RunFile,
    measurements: Measurements | None,
    verdict: slo.Verdict,
) -> BottleneckSection | None:
    """Return the section with the telemetry and the bottleneck in it; None without telemetry."""
    if telemetry is None:
        return None
    limits = []
    if verdict.outcome is slo.Outcome.GENERATOR_LIMITED:
        limits = [reason for reason in verdict.reasons if reason != slo.REMEDY]
    conclusion = conclude(
        telemetry, measurements, generator=limits, cores=run.facts.machine["cores"]
    )
    return bottleneck.bottleneck_section(conclusion, telemetry)


def _limited(results: RunDocument, folder: Path) -> RunDocument:
    """Return the document of a search with the bottleneck of the step above its peak."""
    if results.peak is None:
        return results

    def of_step(number: int) -> BottleneckSection | None:
        place = folder.with_name(f"step-{number:02d}")
        # The earlier results in this folder have a search's bottleneck, not that of its step.
        step = results if place == folder else read_results(place)
        return None if step is None else step.bottleneck

    limit = bottleneck.peak_bottleneck(results.peak, of_step)
    return replace(results, bottleneck=limit or results.bottleneck)


def combine_workloads(name: str, results: Sequence[RunResult]) -> RunResult:
    """Return one result for several workloads; it has the smallest of their scales."""
    loads = [result.load for result in results]
    # A cap of the duration may shorten some of them only.
    scales = [load.scale for load in loads if load.scale is not None]
    whole = together(name, loads, min(scales, default=None))
    properties: list[tuple[str, Any]] = [("load.outcome", whole.outcome.value)]
    for result in results:
        for key, value in result.properties:
            properties.append((f"{key}.{result.load.name}", value))
    return RunResult(load=whole, properties=tuple(properties))


def broken_results(run: RunFile, folder: Path, error: BrokenRun) -> RunDocument:
    """Return the results document of a run that was given up.

    :param folder: the folder of the phase that was measured last.
    """
    outcome = slo.Outcome.NO_DATA
    if isinstance(error, GeneratorLimited):
        outcome = slo.Outcome.GENERATOR_LIMITED
    verdict = slo.Verdict(outcome=outcome, findings=(), reasons=tuple(str(error).splitlines()))
    try:
        telemetry = observing.read_telemetry(folder)
    except (OSError, ValueError):  # a damaged folder must not hide why the run broke
        telemetry = None
    section = _bottleneck(telemetry, run, None, verdict)
    notes = tuple(ended for ended in run.ended_services if ended not in str(error))
    return build_document(
        _facts(run, folder, telemetry, notes),
        verdict,
        None,
        bottleneck=section,
        timeline=timeline_section(run, None),
    )


def write_results(folder: Path, results: RunDocument) -> None:
    """Write a results document; the folder is created if missing.

    :raises OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sample_files.replace(folder / "results.json", dumps(results).encode())


def read_results(folder: Path) -> RunDocument | None:
    """Return the results document in a run folder; None if there is none that can be read."""
    try:
        return read_document(folder / "results.json")
    except ValueError:
        return None


def _facts(
    run: RunFile, folder: Path, telemetry: Telemetry | None, notes: tuple[str, ...] = ()
) -> RunFacts:
    facts = run.facts
    broker, version_notes = seen_versions(facts.broker, telemetry)
    telemetry_notes = () if telemetry is None else telemetry.notes
    started = None
    if run.started:
        started = datetime.fromtimestamp(run.started, UTC).isoformat(timespec="milliseconds")
    return section_of(
        RunFacts,
        facts,
        test=run.test,
        workload=run.workload or "",
        profile_name=run.profile["name"],
        profile=run.profile,
        seed=run.seed,
        started=started,
        results=str(folder),
        scale=run.scale,
        broker=broker,
        notes=(*version_notes, *telemetry_notes, *notes),
    )
