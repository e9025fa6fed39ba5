"""From a run folder to a verdict and its documents: what the controller does after every run, and ``aggregate`` at any time later."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_loadtest import profile as profiles
from pytest_loadtest import slo
from pytest_loadtest.errors import BrokenRun, GeneratorLimited, NoData
from pytest_loadtest.fleet.orders import Outcome
from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript
from pytest_loadtest.measurements import Backlog
from pytest_loadtest.objectives import parse as objectives_of
from pytest_loadtest.pipeline import arrivals
from pytest_loadtest.pipeline.aggregate import aggregate_with_stages
from pytest_loadtest.report import document, hdr, junit
from pytest_loadtest.result import Load
from pytest_loadtest.result import together as combine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pytest_loadtest.brokers._base import BrokerFacts
    from pytest_loadtest.drivers._base import DriverFacts
    from pytest_loadtest.fleet.lanes import Lane
    from pytest_loadtest.fleet.scripts import Script
    from pytest_loadtest.fleet.watches import BacklogWatch
    from pytest_loadtest.measurements import Measurements
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.search import Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """What the samples of a run folder come to. :param run: its ``run.json``. :param stages: by name; windows of a backlog too."""

    folder: Path
    run: dict[str, Any]
    measurements: Measurements
    stages: tuple[tuple[str, Measurements], ...]


def aggregate(spark: SparkSession, folder: Path) -> Aggregated:
    """Measure the samples in ``folder``.

    :raises NoData: samples are missing or do not agree with what the workers say they wrote.
    """
    run = read_run(folder)
    if run["streams"]["count"]:
        measurements, stages = aggregate_with_stages(spark, folder)
    else:
        measurements, stages = arrivals.measure(folder), ()
    return Aggregated(folder=folder, run=run, measurements=measurements, stages=stages)


def judge(
    samples: Aggregated, *, backlog: BacklogWatch | None = None, peak: Peak | None = None, before: Mapping[str, Any] | None = None
) -> tuple[Outcome, dict[str, Any]]:
    """Judge samples by the profile kept in their ``run.json``, write results beside them.

    :param backlog: what was seen while one was built and drained. :param peak: what the search of which this is the best step found.
    :param before: both as an earlier results document has them, where samples are judged again: they are not in the samples.
    :returns: what the test gets, and the results document.
    """
    folder, run, measurements = samples.folder, samples.run, samples.measurements
    profile = profiles.from_document(run["profile"])
    factor = run["scale"] or 1.0
    verdict = slo.evaluate(slo.scale(profile.objectives, factor), measurements, profile.generator)
    named = [(name, measured, _stage_verdict(name, measured, run, factor, profile)) for name, measured in samples.stages]
    built = None if backlog is None else _backlog(backlog, {name: measured for name, measured, _ in named})
    seen = {key: value for key, value in (before or {}).items() if key in ("peak", "backlog") and value is not None}
    shown = [] if backlog is not None or "backlog" in seen else named
    results = document.build(
        _facts(run, folder),
        verdict,
        measurements,
        stages=[(name, verdict, measured) for name, measured, verdict in shown],
        peak=peak,
        backlog=built,
    )
    results |= seen
    (folder / "results.json").write_text(document.dumps(results), encoding="utf-8")
    hdr.write_log(folder / "latency.hlog", measurements, run["started"])
    parts = tuple(Load(profile_name=profile.name, measurements=m, verdict=v, scale=run["scale"], name=name) for name, m, v in shown)
    load = Load(
        profile_name=profile.name, measurements=measurements, verdict=verdict, scale=run["scale"], name=run.get("workload") or "",
        stages=parts, peak=peak, backlog=built,
    )  # fmt: skip
    return Outcome(load=load, properties=tuple(junit.properties(results))), results


def _stage_verdict(name: str, measured: Measurements, run: dict[str, Any], factor: float, profile: Profile) -> slo.Verdict:
    """A stage is judged by what it says itself: the implicit objectives are the whole run's."""
    asked = next(stage.get("slo") or {} for stage in run["stages"] if stage["name"] == name)
    known = next(stage.message_size_distribution for stage in profile.stages if stage.name == name) if profile.stages else None
    objectives = slo.explicit(slo.scale(objectives_of(asked, known or profile.message_size_distribution or ()), factor))
    if not objectives:
        return slo.Verdict(outcome=slo.Outcome.MET, findings=())
    return slo.evaluate(objectives, measured, profile.generator)


def _backlog(watch: BacklogWatch, windows: dict[str, Measurements]) -> Backlog | None:
    """What was seen of a backlog; the publish latency is that of the messages due while it was drained."""
    if watch.reached is None or watch.resumed is None or watch.emptied is None:
        return None
    drain, during = watch.emptied - watch.resumed, windows.get("drain")
    return Backlog(
        size_messages=watch.messages, size_bytes=round(watch.messages * watch.mean_size), build=watch.reached, drain=drain,
        drained=watch.drained, drain_rate=watch.received / (drain / 1e9), publish_during_drain=None if during is None else during.publish,
    )  # fmt: skip


def finish(spark: SparkSession, lane: Lane, script: Script) -> tuple[Outcome, dict[str, Any]]:
    """The result of one workload whose script has ended.

    :raises NoData: there is none.
    """
    if isinstance(script, SearchScript):
        peak = script.peak()
        return judge(script.shows(peak), peak=peak)
    assert lane.folder is not None
    return judge(aggregate(spark, lane.folder), backlog=script.backlog if isinstance(script, PlannedScript) else None)


def together(name: str, outcomes: Sequence[Outcome]) -> Outcome:
    """Several workloads as one result."""
    loads = [outcome.load for outcome in outcomes]
    properties = [(f"{key}.{load.name}", value) for load, outcome in zip(loads, outcomes, strict=True) for key, value in outcome.properties]
    whole = combine(name, loads, loads[0].scale)
    return Outcome(load=whole, properties=(("load.outcome", whole.outcome.value), *properties))


def broken(run: dict[str, Any], folder: Path, error: BrokenRun) -> dict[str, Any]:
    """The results document of a run that was given up, written beside whatever samples there are.

    :param folder: of the phase that was measured last; made where there is none.
    """
    outcome = slo.Outcome.GENERATOR_LIMITED if isinstance(error, GeneratorLimited) else slo.Outcome.NO_DATA
    verdict = slo.Verdict(outcome=outcome, findings=(), reasons=tuple(str(error).splitlines()))
    results = document.build(_facts(run, folder), verdict, None)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(document.dumps(results), encoding="utf-8")
    return results


def read_results(folder: Path) -> dict[str, Any]:
    """What was written when the samples were judged before; empty when they never were."""
    try:
        results: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return results


def read_run(folder: Path) -> dict[str, Any]:
    """The run's own description.

    :raises NoData: there is none.
    """
    try:
        run: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NoData(f"{folder / 'run.json'} cannot be read: {error}") from error
    return run


def _facts(run: dict[str, Any], folder: Path) -> document.RunFacts:
    facts = run["facts"]
    return document.RunFacts(
        test=run["test"], workload=run.get("workload") or "", profile_name=run["profile"]["name"], profile=run["profile"], seed=run["seed"],
        started=run["started"] and datetime.fromtimestamp(run["started"], UTC).isoformat(timespec="milliseconds"), results=str(folder),
        scale=run["scale"],
        scaling=facts["scaling"], plan=facts["plan"], broker=facts["broker"], driver=facts["driver"], versions=facts["versions"],
        machine=facts["machine"],
    )  # fmt: skip


def broker_document(facts: BrokerFacts) -> dict[str, Any]:
    """What results say of the target."""
    return {
        "name": facts.name, "version": facts.version, "mode": facts.mode, "url": facts.url, "adminUrl": facts.admin_url,
        "settings": dict(facts.settings), "evidence": facts.evidence,
    }  # fmt: skip


def driver_document(facts: DriverFacts | None) -> dict[str, Any]:
    """What results say of the client."""
    return {} if facts is None else asdict(facts)
