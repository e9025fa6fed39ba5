"""From a run folder to a verdict and its documents: what the controller does after every run, and ``aggregate`` at any time later."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_loadtest import profile as profiles
from pytest_loadtest import slo
from pytest_loadtest.errors import BrokenRun, GeneratorLimited, NoData
from pytest_loadtest.fleet.orders import Outcome
from pytest_loadtest.pipeline.aggregate import aggregate
from pytest_loadtest.report import document, hdr, junit
from pytest_loadtest.result import Load

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pytest_loadtest.brokers._base import BrokerFacts
    from pytest_loadtest.drivers._base import DriverFacts
    from pytest_loadtest.measurements import Measurements


def judge(spark: SparkSession, folder: Path) -> tuple[Outcome, dict[str, Any]]:
    """Aggregate the samples in ``folder``, judge them by the profile kept in its ``run.json``, write results beside them.

    :returns: what the test gets, and the results document.
    :raises NoData: samples are missing or do not agree with what the workers say they wrote.
    """
    run = read_run(folder)
    profile = profiles.from_document(run["profile"])
    measurements = aggregate(spark, folder)
    objectives = slo.scale(profile.objectives, run["scale"] or 1.0)
    verdict = slo.evaluate(objectives, measurements, profile.generator)
    results = document.build(_facts(run, folder), verdict, measurements)
    (folder / "results.json").write_text(document.dumps(results), encoding="utf-8")
    hdr.write_log(folder / "latency.hlog", measurements, run["started"])
    load = _load(run, profile.name, measurements, verdict)
    return Outcome(load=load, properties=tuple(junit.properties(results))), results


def broken(run: dict[str, Any], folder: Path, error: BrokenRun) -> dict[str, Any]:
    """The results document of a run that was given up, written beside whatever samples there are."""
    outcome = slo.Outcome.GENERATOR_LIMITED if isinstance(error, GeneratorLimited) else slo.Outcome.NO_DATA
    verdict = slo.Verdict(outcome=outcome, findings=(), reasons=tuple(str(error).splitlines()))
    results = document.build(_facts(run, folder), verdict, None)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(document.dumps(results), encoding="utf-8")
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


def _load(run: dict[str, Any], name: str, measurements: Measurements, verdict: slo.Verdict) -> Load:
    return Load(profile_name=name, measurements=measurements, verdict=verdict, scale=run["scale"])


def _facts(run: dict[str, Any], folder: Path) -> document.RunFacts:
    facts = run["facts"]
    return document.RunFacts(
        test=run["test"], profile_name=run["profile"]["name"], profile=run["profile"], seed=run["seed"],
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
