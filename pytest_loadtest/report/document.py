"""One run as a JSON document, version 1: everything that any report shows, and nothing that has to be computed again.

Times are ns, rates msg/s, sizes bytes; null means "not measured" or "not applicable", never zero. ``results.schema.json`` beside
this module describes every key. Unknown keys are not allowed, so that a reader may rely on ``version``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.measurements import Interval
from pytest_loadtest.slo import Finding, Verdict, blocked_share, overall, unfit
from pytest_loadtest.wording import bounds, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.measurements import Backlog, Breakdown, Counts, Histogram, Measurements, Series
    from pytest_loadtest.search import Peak, Step

VERSION: Final = 1
PERCENTILES: Final = (50, 75, 90, 95, 99, 99.9, 99.99)

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a run was, beside what it measured. All mappings are plain JSON values.

    :param test: the test's node id. :param started: wall clock at the start of the measured phase, ISO 8601 with zone; None when it never
        started.
    :param scale: factor; None where the profile ran as written. :param scaling: what was shrunk and how, ``{"rate": "2.50 M → 2 000
        msg/s"}``.
    :param workload: its name, where several ran together; otherwise empty.
    :param profile: the profile as a document. :param plan: summary of the plan. :param broker: name, version, mode, url, settings.
    :param driver: client, version, applied, not_applied. :param versions: of this package and what it runs on.
    :param machine: host, cores, memory. :param results: the run's folder, as the user may open it.
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


def build(
    facts: RunFacts,
    verdict: Verdict,
    measurements: Measurements | None,
    *,
    stages: Sequence[tuple[str, Verdict, Measurements]] = (),
    peak: Peak | None = None,
    backlog: Backlog | None = None,
) -> Document:
    """The document of a run; ``measurements`` is None where the run broke before anything could be measured.

    :param stages: name, verdict and measurements of each; the outcome of the whole is the worst of ``verdict`` and theirs.
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
        "verdict": _verdict(verdict) | {"outcome": whole.outcome.value, "reasons": list(whole.reasons)},
        "measurements": None if measurements is None else _measurements(measurements),
        "stages": [{"name": name, "verdict": _verdict(judged), "measurements": _measurements(m)} for name, judged, m in stages],
        "peak": None if peak is None else _peak(peak, facts.profile),
        "backlog": None if backlog is None else _backlog(backlog),
    }


def schema() -> Document:
    """The JSON Schema (draft 2020-12) of the document."""
    text = files("pytest_loadtest.report").joinpath("results.schema.json").read_text(encoding="utf-8")
    document: Document = json.loads(text)
    return document


def dumps(document: Document) -> str:
    """As text. NaN is not JSON.

    :raises ValueError: a NaN or an infinity got into the document.
    """
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _verdict(verdict: Verdict) -> Document:
    return {
        "outcome": verdict.outcome.value,
        "reasons": list(verdict.reasons),
        "findings": [_finding(finding) for finding in verdict.findings],
    }


def _finding(finding: Finding) -> Document:
    objective = finding.objective
    shown = None if finding.observed is None else show(objective, finding.observed)
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
        "observed": finding.observed,
        "samples": finding.samples,
        "text": finding.text,
        "shown": {
            "observed": "" if shown is None else shown.observed,
            "bound": bounds(objective) if shown is None else shown.bound,
            "over": "" if shown is None else shown.over,
        },
    }


def _measurements(measurements: Measurements) -> Document:
    m = measurements
    return {
        "duration": m.duration,
        "rate": m.rate,
        "subscriptions": m.subscriptions,
        "throughput": m.throughput if m.counts.received else None,
        "publishRate": m.publish_rate,
        "bytesSent": m.bytes_sent,
        "blocked": m.blocked,
        "blockedShare": blocked_share(m),
        "counts": _counts(m.counts),
        "latencies": {
            "publish": _latency(m.publish),
            "endToEnd": _latency(m.end_to_end),
            "sendDelay": _latency(m.send_delay),
            "ownSendDelay": _latency(m.own_send_delay),
        },
        "series": _series(m.series),
        "intervals": [
            {
                "publish": _latency(part.publish, whole=False),
                "endToEnd": _latency(part.end_to_end, whole=False),
                "sendDelay": _latency(part.send_delay, whole=False),
            }
            for part in m.intervals or [Interval(publish=m.publish, end_to_end=m.end_to_end, send_delay=m.send_delay)]
        ],
        "topics": [_breakdown(topic) for topic in m.topics],
        "buckets": [_breakdown(bucket) for bucket in m.buckets],
        "workers": [
            {"worker": w.worker, "cpu": w.cpu, "stalled": w.stalled, "longestStall": w.longest_stall, "gc": w.gc} for w in m.workers
        ],
        "lost": [{"topic": r.topic, "subscription": r.subscription, "stream": r.stream, "first": r.first, "last": r.last} for r in m.lost],
    }


def _counts(counts: Counts) -> Document:
    return {
        "offered": counts.offered,
        "sent": counts.sent,
        "sentInTime": counts.sent_in_time,
        "acked": counts.acked,
        "failed": counts.failed,
        "dropped": counts.dropped,
        "unknown": counts.unknown,
        "received": counts.received,
        "receivedInTime": counts.received_in_time,
        "lost": counts.lost,
        "duplicates": counts.duplicates,
        "outOfOrder": counts.out_of_order,
        "foreign": counts.foreign,
        "corrupt": counts.corrupt,
    }


def _latency(histogram: Histogram | None, *, whole: bool = True) -> Document | None:
    """Percentiles that rest on too few samples are null.

    :param whole: with the histogram itself. A part draws a line over time and proves nothing: all its percentiles are given.
    """
    if histogram is None or not histogram.n:
        return None
    found = {
        "samples": histogram.n,
        "minimum": histogram.minimum,
        "maximum": histogram.maximum,
        "mean": histogram.mean,
        "total": histogram.total,
        "negative": histogram.negative,
        "percentiles": {f"p{p:g}": None if whole and unfit(histogram, p) else histogram.percentile(p) for p in PERCENTILES},
    }
    return found | ({"histogram": {"index": histogram.index.tolist(), "count": histogram.count.tolist()}} if whole else {})


def _series(series: Series) -> Document:
    return {
        "offered": series.offered.tolist(),
        "sent": series.sent.tolist(),
        "acked": series.acked.tolist(),
        "received": series.received.tolist(),
        "endToEndP50": _numbers(series.end_to_end_p50),
        "endToEndP99": _numbers(series.end_to_end_p99),
        "endToEndMax": _numbers(series.end_to_end_max),
    }


def _numbers(values: NDArray[np.float64]) -> Sequence[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _breakdown(part: Breakdown) -> Document:
    return {
        "name": part.name,
        "offered": part.offered,
        "sent": part.sent,
        "acked": part.acked,
        "received": part.received,
        "lost": part.lost,
        "bytesSent": part.bytes_sent,
        "endToEnd": _latency(part.end_to_end),
        "publish": _latency(part.publish),
    }


def _peak(peak: Peak, profile: Mapping[str, Any]) -> Document:
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
        "drainRate": backlog.drain_rate,
        "publishDuringDrain": _latency(backlog.publish_during_drain),
    }
