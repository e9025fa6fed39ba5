"""Judges a measured run, and writes its results: ``results.json`` and the HDR log next to the samples.

The run controller calls :func:`conclude_run` in the thread that answers the last meeting (after each step of a search), the command
``aggregate`` at any time later; both read only the run folder, so they come to the same verdict. It changes no sample.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest import profile as profiles
from pytest_loadtest.engine import sample_files
from pytest_loadtest.errors import BrokenRun, GeneratorLimited
from pytest_loadtest.fleet import observing
from pytest_loadtest.fleet.messages import RunResult
from pytest_loadtest.fleet.regression import compare_with_baseline
from pytest_loadtest.metrics.measurements import Backlog
from pytest_loadtest.observe.conclusion import conclude
from pytest_loadtest.observe.disagreement import disagreement
from pytest_loadtest.observe.telemetry import fullest
from pytest_loadtest.plan.hosts import clocks_needed
from pytest_loadtest.report import bottleneck, hdr, junit
from pytest_loadtest.report.baseline import recorded_baseline
from pytest_loadtest.report.build import RunFacts, build_document
from pytest_loadtest.report.document import dumps, read_document
from pytest_loadtest.report.measured import timeline_section
from pytest_loadtest.results.load import Load, together, without_measurements
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import exact, format_value
from pytest_loadtest.verdict import slo
from pytest_loadtest.verdict.abort import evaluate_aborted
from pytest_loadtest.verdict.changes import with_findings
from pytest_loadtest.verdict.early import evaluate_ended, lost_target
from pytest_loadtest.verdict.finding import no_data
from pytest_loadtest.verdict.objectives import scale_objectives
from pytest_loadtest.verdict.tolerance import tolerances

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.measured_run import MeasuredRun
    from pytest_loadtest.fleet.watches import BacklogWatch
    from pytest_loadtest.metrics.measurements import Counts, Measurements
    from pytest_loadtest.observe.disagreement import Disagreement
    from pytest_loadtest.observe.telemetry import Telemetry
    from pytest_loadtest.pipeline.run_file import RunFile
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.report.baseline import Baseline
    from pytest_loadtest.report.document import BacklogSection, BottleneckSection, RunDocument
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

    :param backlog: the watch of a backlog, if one was built and drained. :param peak: the result of the search whose best step this is.
    :param before: the earlier results document if the samples are judged again: peak and backlog are taken from it, because the samples
        do not contain them, and it names the baseline. :param baseline: earlier results to compare with.
    :returns: the result for the test, and the results document.
    """
    folder, run = samples.folder, samples.run
    profile = profiles.from_document(run.profile)
    if run.scale is not None:
        profile = profile.as_scaled()
    peak_before, backlog_before = (None, None) if before is None else (before.peak, before.backlog)
    built = (
        None
        if backlog is None
        else settle_backlog(backlog, dict(samples.stages), samples.measurements)
    )
    drained = built if backlog_before is None else recorded_backlog(backlog_before)
    telemetry = observing.read_telemetry(folder)
    measurements = _completed(samples, profile, drained, telemetry)
    objectives = _scaled(profile.objectives, run, written=profile.scaled.slo)
    allowed = tolerances(objectives)
    verdict, notes = _whole_verdict(samples, measurements, profile, objectives, telemetry)
    stages = [
        (name, measured, _stage_verdict(name, measured, run, profile, allowed, measurements))
        for name, measured in samples.stages
    ]
    if any(found is not None and found.rate is None for found in (peak, peak_before)):
        # without a peak the search is a miss, whatever its last step was
        verdict = replace(verdict, outcome=slo.worst((verdict.outcome, slo.Outcome.MISSED)))
    not_begun = stages_not_begun(run, profile)
    shown = (
        [] if backlog is not None or backlog_before is not None else stages
    )  # the windows of a backlog are no stages of the profile
    results = build_document(
        _facts(run, folder, telemetry, notes),
        verdict,
        measurements,
        stages=[
            *((name, verdict, measured) for name, measured, verdict in shown),
            *((*stage, None) for stage in not_begun),
        ],
        peak=peak,
        backlog=built,
        bottleneck=_bottleneck(telemetry, run, measurements, verdict),
        timeline=timeline_section(run, measurements),
    )
    results = _limited(
        replace(
            results, peak=peak_before or results.peak, backlog=backlog_before or results.backlog
        ),
        folder,
    )
    results, findings = compare_with_baseline(
        results, profile.slo.gates, recorded_baseline(before) or baseline
    )
    verdict = with_findings(verdict, findings)
    write_results(folder, results)
    assert run.started is not None, "samples are of a load that has begun"
    hdr.write_log(folder / "latency.hlog", measurements, run.started)
    finished = partial(Load, profile_name=profile.name, scale=run.scale, tolerances=allowed)
    parts = tuple(finished(name=name, observed=m, verdict=v) for name, m, v in shown)
    parts += tuple(
        without_measurements(profile.name, name, verdict, run.scale) for name, verdict in not_begun
    )
    load = finished(
        observed=measurements, verdict=verdict, name=run.workload or "", stages=parts, peak=peak, backlog=built,
        files=samples.files, aborted=None if run.aborted is None else run.aborted.reason,
    )  # fmt: skip
    return RunResult(load=load, properties=tuple(junit.junit_properties(results))), results


def _whole_verdict(
    samples: MeasuredRun,
    measurements: Measurements,
    profile: Profile,
    objectives: Sequence[Objective],
    telemetry: Telemetry | None,
) -> tuple[slo.Verdict, tuple[str, ...]]:
    """Return the verdict on the run alone, without stages, search and baseline; and the notes of the report."""
    run = samples.run
    broker = run.facts.broker
    notes = (
        *samples.notes, *_unchecked_host(profile, broker), *profile.driver.outage_notes(broker), *_clock_notes(measurements, run, profile),
    )  # fmt: skip
    verdict = _verdict(run, objectives, measurements, profile)
    if (
        run.went_away is not None and run.went_away not in verdict.reasons
    ):  # it limits nothing, but is never left unsaid
        notes = (*notes, run.went_away)
    if samples.failure:
        own = tuple(finding for finding in verdict.findings if finding.objective.metric != "custom")
        verdict = slo.Verdict(outcome=slo.Outcome.NO_DATA, findings=own, reasons=(samples.failure,))
    wrong = None if telemetry is None else _disagreement(telemetry, measurements, run.facts.broker)
    if wrong is None:
        return verdict, notes
    if not wrong.certain or (
        verdict.outcome is slo.Outcome.MISSED and not wrong.compared
    ):  # a proven miss remains one
        return verdict, (*notes, wrong.text)
    return slo.Verdict(
        outcome=slo.Outcome.NO_DATA, findings=verdict.findings, reasons=(wrong.text,)
    ), notes


def _completed(
    samples: MeasuredRun, profile: Profile, drained: Backlog | None, telemetry: Telemetry | None
) -> Measurements:
    """Return the measurements with the values that are not in the samples."""
    forgotten, index = samples.run.facts.driver.get("forgotten"), fullest(telemetry)
    return replace(
        samples.measurements,
        backlog=drained,
        checksum=profile.checksum,
        delayed_index=index,
        forgotten=forgotten,
    )


def _scaled(
    objectives: Sequence[Objective], run: RunFile, written: Collection[str] = ()
) -> tuple[Objective, ...]:
    """Return the objectives scaled as the run is. :param written: keys of the ``slo`` section that were written for scaled runs."""
    if run.scale is None:
        return tuple(objectives)
    assert run.pace is not None and run.share is not None, "a scaled run has all three factors"
    return scale_objectives(objectives, run.pace, run.share, written)


def _disagreement(
    telemetry: Telemetry, measured: Measurements, broker: Mapping[str, Any]
) -> Disagreement | None:
    """Return a contradiction between the broker's counters and the samples. :param broker: its facts, as in ``run.json``."""
    shared, restarted = broker.get("mode") == "url", bool(broker.get("restarts"))
    return disagreement(
        telemetry, measured.counts, measured.subscriptions, shared=shared, restarted=restarted
    )


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


def _stage_verdict(
    name: str, measured: Measurements, run: RunFile, profile: Profile, allowed: tuple[Objective, ...], whole: Measurements
) -> slo.Verdict:  # fmt: skip
    """Judge a stage by its own objectives alone; implicit ones apply to the whole run.

    :param allowed: the profile's own bounds on messages that never arrive: they apply to a stage's ``max`` too.
    :param whole: the measurements of the run.
    """
    objectives = next((stage.slo.objectives for stage in profile.stages if stage.name == name), ())
    if not objectives:
        return slo.Verdict(outcome=slo.Outcome.MET, findings=())
    verdict = slo.evaluate(
        _scaled(objectives, run),
        replace(measured, checksum=profile.checksum),
        profile.generator,
        tolerated=allowed,
    )
    if (
        run.aborted and verdict.outcome is slo.Outcome.NO_DATA
    ):  # cut short by the abort, which is a miss of the run
        return replace(verdict, outcome=slo.Outcome.MISSED)
    if verdict.outcome is slo.Outcome.NO_DATA and _hung(measured, whole):
        return replace(
            verdict,
            outcome=slo.Outcome.MISSED,
            reasons=(*slo.causes_at_target(measured), *verdict.reasons),
        )
    return verdict


def _hung(stage: Measurements, whole: Measurements) -> bool:
    """Return whether the target, which answered in the same phase, hung all through a stage: it kept messages waiting, and nothing came."""
    waited = stage.full_windows is not None or (stage.counts.sent > 0 and not stage.counts.acked)
    return waited and not stage.own_drops and not _answers(stage) and _answers(whole) > 0


def _answers(measured: Measurements) -> int:
    """Return the number of messages that the target delivered; without subscriptions, acknowledged."""
    if measured.subscriptions:
        return measured.counts.received
    # At QoS 0 an acknowledgement only says that the kernel took the message.
    return measured.counts.acked if "publish" in measured.latencies else 0


def stages_not_begun(run: RunFile, profile: Profile) -> list[tuple[str, slo.Verdict]]:
    """Return the stages that never began, because the load was ended before, each with its verdict.

    Their objectives could not be judged: *no data*, unless the run was aborted, which makes it *missed* in any case.
    """
    begun = {stage.name for stage in run.stages}
    if not begun or len(begun) == len(profile.stages):
        return []
    reason = f"never began: the load was ended {format_duration(run.duration)} into the phase"
    outcome = slo.Outcome.MISSED if run.aborted else slo.Outcome.NO_DATA
    verdicts = []
    for stage in profile.stages:
        if stage.name not in begun:
            findings = tuple(
                no_data(objective, reason) for objective in _scaled(stage.slo.objectives, run)
            )
            # a stage without objectives is listed too: it has nothing that could be missed
            verdict = slo.Verdict(
                outcome=outcome if findings else slo.Outcome.MET,
                findings=findings,
                reasons=(reason,),
            )
            verdicts.append((stage.name, verdict))
    return verdicts


def _bottleneck(
    telemetry: Telemetry | None,
    run: RunFile,
    measurements: Measurements | None,
    verdict: slo.Verdict,
) -> BottleneckSection | None:
    """Return the section with the telemetry and the side that it shows as the bottleneck; None without telemetry."""
    if telemetry is None:
        return None
    limits = (
        [reason for reason in verdict.reasons if reason != slo.REMEDY]
        if verdict.outcome is slo.Outcome.GENERATOR_LIMITED
        else []
    )
    conclusion = conclude(
        telemetry, measurements, generator=limits, cores=run.facts.machine["cores"]
    )
    return bottleneck.bottleneck_section(conclusion, telemetry)


def _limited(results: RunDocument, folder: Path) -> RunDocument:
    """Return the document of a search with the bottleneck of the step above the peak, which shows what limited it."""
    if results.peak is None:
        return results

    def of_step(number: int) -> BottleneckSection | None:
        step = read_results(folder.with_name(f"step-{number:02d}"))
        return None if step is None else step.bottleneck

    return replace(
        results, bottleneck=bottleneck.peak_bottleneck(results.peak, of_step) or results.bottleneck
    )


def combine_workloads(name: str, results: Sequence[RunResult]) -> RunResult:
    """Return one result for several workloads."""
    loads = [result.load for result in results]
    properties = [
        (f"{key}.{load.name}", value)
        for load, result in zip(loads, results, strict=True)
        for key, value in result.properties
    ]
    whole = together(name, loads, loads[0].scale)
    return RunResult(load=whole, properties=(("load.outcome", whole.outcome.value), *properties))


def broken_results(run: RunFile, folder: Path, error: BrokenRun) -> RunDocument:
    """Return the results document of a run that was given up. :param folder: the folder of the phase that was measured last."""
    outcome = (
        slo.Outcome.GENERATOR_LIMITED
        if isinstance(error, GeneratorLimited)
        else slo.Outcome.NO_DATA
    )
    verdict = slo.Verdict(outcome=outcome, findings=(), reasons=tuple(str(error).splitlines()))
    try:
        telemetry = observing.read_telemetry(folder)
    except (OSError, ValueError):  # a damaged folder must not hide why the run broke
        telemetry = None
    section = _bottleneck(telemetry, run, None, verdict)
    return build_document(
        _facts(run, folder, telemetry),
        verdict,
        None,
        bottleneck=section,
        timeline=timeline_section(run, None),
    )


def write_results(folder: Path, results: RunDocument) -> None:
    """Write a results document; the folder is created if missing. :raises OSError: it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    sample_files.replace(folder / "results.json", dumps(results).encode())


def read_results(folder: Path) -> RunDocument | None:
    """Return the results document in a run folder; None if there is none that can be read."""
    try:
        return read_document(folder / "results.json")
    except ValueError:
        return None


def _unchecked_host(profile: Profile, broker: Mapping[str, Any]) -> tuple[str, ...]:
    note = profile.driver.unchecked_host(
        str(broker.get(key) or "") for key in ("url", "subscriberUrl", "adminUrl")
    )
    return () if note is None else (note,)


def _clock_notes(measurements: Measurements, run: RunFile, profile: Profile) -> tuple[str, ...]:
    """Return the error of the clocks of other hosts, and the share of deliveries that have none, as sentences.

    There is nothing to say if all workers ran on the controller's host.
    """
    if not measurements.clocks:
        return ()
    errors = ", ".join(
        f"{clock.host} ±{format_duration(clock.error)}" for clock in measurements.clocks
    )
    between = f"latencies between hosts are exact to the error of their clocks: {errors}"
    within, received = measurements.within_hosts, measurements.counts.received
    if within is None or not received:
        return (between,)
    share = f"{exact(within.deliveries)} of {exact(received)} deliveries ({format_value(within.deliveries / received, 'ratio')})"
    if within.complete:
        uneven = ", ".join(clock.host for clock in measurements.clocks if not clock.holds)
        remark = f"; the clock of host {uneven} was set while load ran" if uneven else ""
        return (f"{share} are within one host: their latencies need no relation of clocks{remark}",)
    reason = ""
    if profile.pair_consumers is not None:
        reason = clocks_needed(
            run.topics, len(set(run.worker_hosts.values())), delayed=profile.delays is not None
        )
    return (f"{between}; {share} are within one host", *([reason] if reason else []))


def _facts(
    run: RunFile, folder: Path, telemetry: Telemetry | None, notes: tuple[str, ...] = ()
) -> RunFacts:
    facts = run.facts
    broker, changed = seen_versions(facts.broker, telemetry)
    return RunFacts(
        test=run.test, workload=run.workload or "", profile_name=run.profile["name"], profile=run.profile, seed=run.seed,
        started=datetime.fromtimestamp(run.started, UTC).isoformat(timespec="milliseconds") if run.started else None, results=str(folder),
        scale=run.scale,
        scaling=facts.scaling, plan=facts.plan, broker=broker, driver=facts.driver, versions=facts.versions,
        machine=facts.machine, notes=(*changed, *(telemetry.notes if telemetry else ()), *notes),
    )  # fmt: skip


def seen_versions(
    broker: Mapping[str, Any], telemetry: Telemetry | None
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the target's facts with the versions that it reported while load ran, and a note if it was not one version all the time.

    Without such reports the version is that from the start of the target, which the facts have.
    """
    seen = (
        {}
        if telemetry is None
        else {
            version.removeprefix(f"{broker['name']} "): at
            for version, at in telemetry.versions.items()
        }
    )
    if not seen:
        return broker, ()
    before, first, text = broker["version"], next(iter(seen)), ", then ".join(seen)
    notes = []
    if len(seen) > 1:
        changes = ", ".join(
            f"{version} from {format_duration(at)} into the phase"
            for version, at in list(seen.items())[1:]
        )
        notes.append(
            f"the target's version changed while load ran: {first} first, {changes}: the results are those of no single version"
        )
    if before not in ("unknown", *first.split(" and ")):
        notes.append(
            f"the target's version was {before} before this phase, and its settings are those from then"
        )
    return {**broker, "version": text}, tuple(notes)


def settle_backlog(
    watch: BacklogWatch, windows: Mapping[str, Measurements], whole: Measurements
) -> Backlog | None:
    """Return the backlog as far as it is certain; None if none was built, or the end of its drain was not seen.

    The watch saw the workers' counts of copies; the samples show how many of them were no first copies.

    :param windows: the windows of the phase by name; ``drain`` has the publish latency of messages due during the drain.
    :param whole: the measurements of the phase.
    """
    if watch.reached is None or watch.resumed is None or watch.emptied is None:
        return None
    uncounted = _uncounted(whole.counts, whole.subscriptions)
    first, certain = watch.drained_between(uncounted)
    exact, end = first == certain, first or watch.last
    took, during = end.elapsed - watch.resumed, windows.get("drain")
    between = None
    if first is not None and not exact:
        between = (took, None if certain is None else certain.elapsed - watch.resumed)
    left = None if uncounted else max(end.waiting, 0)
    drain: float | None = None
    if first is None:
        drain = given_up(watch.messages, left)
    elif exact:
        drain = took
    return Backlog(
        size_messages=watch.messages, size_bytes=round(watch.messages * watch.mean_size), build=watch.reached,
        drain=drain, drained=None if between else first is not None, between=between, uncounted=uncounted,
        left=left, allowed=watch.allowed, waited=took if first is None else None,
        drain_rate=None if uncounted else end.received / (took / SECOND),
        publish_during_drain=None if during is None or between or end.elapsed != watch.emptied else during.latencies.get("publish"),
    )  # fmt: skip


def _uncounted(counts: Counts, subscriptions: int) -> int:
    """Return the number of copies that workers counted although they are no first copies of acknowledged messages: second or damaged ones,
    those of another topic, and first ones of messages that were answered as failed or not at all."""
    first_of_acked = counts.acked * subscriptions - counts.lost
    return (
        max(counts.received - first_of_acked, 0)
        + counts.duplicates
        + counts.corrupt
        + (counts.foreign or 0)
    )


def given_up(messages: int, left: int | None) -> float | None:
    """Return how long a drain that was given up takes: inf if the backlog did not shrink, otherwise None: unknown.

    :param messages: deliveries waiting at the resumption. :param left: those waiting at the end; None if unknown.
    """
    return math.inf if left is not None and left >= messages else None


def recorded_backlog(section: BacklogSection) -> Backlog:
    """Return the backlog in an earlier results document, as far as it is judged."""
    drain: float | None = section.drain
    waited = section.waited
    if section.drained is False:
        # Older results have the time of the wait as that of the drain.
        waited = section.drain if waited is None else waited
        drain = given_up(section.messages, section.left)
    return Backlog(
        size_messages=section.messages, size_bytes=section.bytes, build=section.build, drain=drain, drained=section.drained, waited=waited,
        left=section.left, allowed=section.allowed, drain_rate=section.drain_rate, publish_during_drain=None,
        between=section.drained_between, uncounted=section.uncounted,
    )  # fmt: skip
