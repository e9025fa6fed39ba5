"""The results document of a run, built from its verdict and its measurements."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.document import VERSION
from pytest_loadtest.report.measured import finite, latency_section, measurements_section
from pytest_loadtest.verdict.finding import show, write_bounds
from pytest_loadtest.verdict.slo import Finding, Outcome, Verdict, overall, worst

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.brokers.base import BrokerFacts
    from pytest_loadtest.drivers.base import DriverFacts
    from pytest_loadtest.metrics.measurements import Backlog, Measurements
    from pytest_loadtest.report.document import Document
    from pytest_loadtest.verdict.peak import Peak, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run was, beside what it measured. All mappings are plain JSON values.

    :param test: the test's node id. :param started: wall clock at the start of the measured phase, ISO 8601 with zone; None when it never
        started.
    :param scale: factor; None where the profile ran as written. :param scaling: what was shrunk and how, ``{"rate": "2.50 M → 2 000
        msg/s"}``.
    :param workload: its name, where several ran together; otherwise empty.
    :param profile: the profile as a document. :param plan: summary of the plan.
    :param broker: name, version, mode, url, settings, restarts. :param driver: client, version, applied, not_applied.
    :param versions: of this package and what it runs on.
    :param machine: host, cores, memory. :param results: the run's folder. :param notes: what happened beside the load, in sentences.
    """

    test: str
    profile_name: str
    profile: Mapping[str, Any]
    seed: int
    started: str | None
    results: str
    scale: float | None = None
    scaling: Mapping[str, str] = field(default_factory=dict)
    plan: Mapping[str, Any]
    broker: Mapping[str, Any]
    driver: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    workload: str = ""
    notes: tuple[str, ...] = ()


def build_document(
    facts: RunFacts,
    verdict: Verdict,
    measurements: Measurements | None,
    *,
    stages: Sequence[tuple[str, Verdict, Measurements | None]] = (),
    peak: Peak | None = None,
    backlog: Backlog | None = None,
    bottleneck: Document | None = None,
    timeline: Document | None = None,
) -> Document:
    """The document of a run; ``measurements`` is None where the run broke before anything could be measured.

    :param stages: name, verdict and measurements of each, None of one that never began; the outcome of the whole is the worst of
        ``verdict`` and theirs.
    :param bottleneck: its section, see :func:`pytest_loadtest.report.bottleneck.bottleneck_section`; None where nothing was sampled.
    :param timeline: its section, see :func:`pytest_loadtest.report.measured.timeline_section`.
    """
    whole = overall([("", verdict), *((f"stage {name}: ", judged) for name, judged, _ in stages)])
    return {
        "version": VERSION,
        "test": facts.test,
        "profile": {"name": facts.profile_name, "document": dict(facts.profile)},
        "workload": facts.workload or None,
        "seed": facts.seed,
        "scale": None if facts.scale is None else {"factor": facts.scale, "changes": dict(facts.scaling)},
        "started": facts.started,
        "results": facts.results,
        "plan": dict(facts.plan),
        "broker": dict(facts.broker),
        "driver": dict(facts.driver),
        "versions": dict(facts.versions),
        "machine": dict(facts.machine),
        "notes": list(facts.notes),
        "verdict": _verdict(verdict) | {"outcome": whole.outcome.value, "reasons": list(whole.reasons)},
        "measurements": None if measurements is None else measurements_section(measurements),
        "stages": [
            {"name": name, "verdict": _verdict(judged), "measurements": None if m is None else measurements_section(m, over_time=False)}
            for name, judged, m in stages
        ],
        "peak": None if peak is None else _peak(peak, facts.profile, verdict),
        "backlog": None if backlog is None else _backlog(backlog),
        "bottleneck": bottleneck,
        "timeline": timeline,
        "comparison": None,
    }


def with_comparison(document: Document, section: Document, findings: Sequence[Finding]) -> Document:
    """The document with what a comparison came to: its section, and the findings that the verdict has more by it."""
    verdict = document["verdict"]
    outcome = worst([Outcome(verdict["outcome"]), *(finding.outcome for finding in findings)])
    untold = [finding.text for finding in findings if finding.outcome is Outcome.NO_DATA]
    judged = {
        "outcome": outcome.value,
        "reasons": [*verdict["reasons"], *untold],
        "findings": [*verdict["findings"], *map(_finding, findings)],
    }
    return document | {"verdict": judged, "comparison": section}


def _verdict(verdict: Verdict) -> Document:
    return {
        "outcome": verdict.outcome.value,
        "reasons": list(verdict.reasons),
        "findings": [_finding(finding) for finding in verdict.findings],
    }


def _finding(finding: Finding) -> Document:
    objective = finding.objective
    shown = finding.shown or (None if finding.observed is None else show(objective, finding.observed))
    return {
        "name": objective.name,
        "metric": objective.metric,
        "statistic": objective.statistic or None,
        "bucket": objective.bucket or None,
        "unit": objective.unit,
        "minimum": objective.minimum,
        "maximum": objective.maximum,
        "implicit": objective.implicit,
        "outcome": finding.outcome.value,
        "observed": finite(finding.observed),
        "samples": None if objective.metric == "custom" else finding.samples,  # nobody counts what users' own code looks at
        "text": finding.text,
        "shown": {
            "observed": "" if shown is None else shown.observed,
            "bound": write_bounds(objective) if shown is None else shown.bound,
            "over": "" if shown is None else shown.missed_by,
        },
        "windows": windows_section(finding),
        "tenths": tenths_section(finding),
    }


def _peak(peak: Peak, profile: Mapping[str, Any], verdict: Verdict) -> Document:
    """A search is in bytes where the profile gives its first rate in bytes."""
    in_bytes = str((profile.get("search") or {}).get("start")).endswith("B/s")
    return {
        "rate": peak.rate,
        "low": peak.low,
        "high": peak.high,
        "unit": "B/s" if in_bytes else "msg/s",
        "limit": peak.limit,
        "atLeast": peak.at_least,
        "confirmed": peak.confirmed,
        "brokeFirst": peak.broke_first,
        "implicitOnly": all(finding.objective.implicit for finding in verdict.findings),
        "steps": [_step(step) for step in peak.steps],
    }


def _step(step: Step) -> Document:
    return {
        "number": step.ask.number,
        "rate": step.ask.rate,
        "duration": step.ask.duration,
        "warmup": step.ask.warmup,
        "purpose": step.ask.purpose,
        "outcome": step.outcome.value,
        "broke": list(step.broke),
        "text": step.text,
        "early": step.early,
        "throughput": step.throughput,
    }


def _backlog(backlog: Backlog) -> Document:
    return {
        "messages": backlog.size_messages,
        "bytes": backlog.size_bytes,
        "build": backlog.build,
        "drain": backlog.drain,
        "drained": backlog.drained,
        "drainedBetween": backlog.between and list(backlog.between),
        "uncounted": backlog.uncounted,
        "left": backlog.left,
        "allowed": backlog.allowed,
        "drainRate": backlog.drain_rate,
        "publishDuringDrain": latency_section(backlog.publish_during_drain),
    }


# Findings that windows or the tenths of a run make, as JSON values of their own.

MOST: Final = 1000
"""Windows that are listed; of more, those that are not met, the first of them."""


def windows_section(finding: Finding) -> dict[str, Any] | None:
    """The windows of a finding that has some: how many there are of each outcome, and a list of at most ``MOST``."""
    windows = finding.windows
    if not windows:
        return None
    listed = windows if len(windows) <= MOST else [window for window in windows if window.outcome is not Outcome.MET][:MOST]
    count = {outcome: sum(window.outcome is outcome for window in windows) for outcome in Outcome}
    return {
        "width": finding.objective.window,
        "violations": finding.objective.violations,
        "number": len(windows),
        "missed": count[Outcome.MISSED],
        "generatorLimited": count[Outcome.GENERATOR_LIMITED],
        "noData": count[Outcome.NO_DATA],
        "listed": [
            {"start": window.start, "end": window.end, "observed": finite(window.observed), "outcome": window.outcome.value}
            for window in listed
        ],
    }


def tenths_section(finding: Finding) -> dict[str, Any] | None:
    """Of a finding on drift what was observed in the first tenth and in the last."""
    if finding.tenths is None:
        return None
    first, last = finding.tenths
    return {"unit": "ratio" if finding.objective.metric == "throughput" else "ns", "first": finite(first), "last": finite(last)}


# What results say of the target and of the client.


def broker_document(facts: BrokerFacts) -> dict[str, Any]:
    """What results say of the target."""
    return {
        "name": facts.name, "version": facts.version, "mode": facts.mode, "url": facts.url, "adminUrl": facts.admin_url,
        **({"subscriberUrl": facts.subscriber_url} if facts.subscriber_url else {}),
        "settings": dict(facts.settings), "evidence": facts.evidence,
    }  # fmt: skip


def driver_document(facts: DriverFacts | None) -> dict[str, Any]:
    """What results say of the client."""
    return {} if facts is None else asdict(facts)
