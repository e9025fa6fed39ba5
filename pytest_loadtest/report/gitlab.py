"""What GitLab compares between branches: one OpenMetrics file of a session, its ``artifacts:reports:metrics``.

GitLab cuts each line at the first ``#``, splits the rest as a shell would into name (labels included) and value, and compares values as
text: so no label has a ``#``, and figures that are never the same twice have three digits. Its parser:
``ee/lib/gitlab/ci/parsers/metrics/generic.rb``; https://docs.gitlab.com/ci/testing/metrics_reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report.sections import all_findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.report.document import Document

QUANTILES: Final = ("p50", "p99", "p99.9")
_WHO: Final = ("test", "profile", "workload", "scale")


def gitlab_metrics(documents: Sequence[Document]) -> str:
    """The session's runs as OpenMetrics text; of several attempts of a test the last. What was not measured is left out."""
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"loadtest_{name}", text, [*_WHO, *labels], registry=registry)
        for name, text, labels in (
            ("outcome", "1 for the outcome of the run", ["outcome"]),
            ("objectives_missed", "Objectives that did not hold", []),
            ("rate_per_second", "Messages offered a second", []),
            ("throughput_per_second", "Messages delivered a second, in time", []),
            ("latency_seconds", "Percentiles of latencies, over all that was due", ["kind", "quantile"]),
            ("messages", "Messages of the measured phase, by what became of them", ["count"]),
            ("peak_per_second", "The highest rate at which all objectives held", ["unit"]),
        )
    }
    for document in {_who(document): document for document in documents}.values():
        _add(gauges, document)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


def _who(document: Document) -> tuple[str, ...]:
    scale = "" if document["scale"] is None else f"{document['scale']['factor']:g}"
    said = (document["test"], document["profile"]["name"], document["workload"] or "", scale)
    return tuple(text.replace("#", "-") for text in said)


def _add(gauges: dict[str, Gauge], document: Document) -> None:
    who, measured, peak = _who(document), document["measurements"], document["peak"]
    missed = sum(finding["outcome"] == "missed" for _, finding in all_findings(document))
    gauges["outcome"].labels(*who, document["verdict"]["outcome"]).set(1)
    gauges["objectives_missed"].labels(*who).set(missed)
    if peak is not None and peak["rate"] is not None:
        gauges["peak_per_second"].labels(*who, "bytes" if peak["unit"] == "B/s" else "messages").set(_rounded(peak["rate"]))
    if measured is None:
        return
    gauges["rate_per_second"].labels(*who).set(_rounded(measured["rate"]))
    if measured["throughput"] is not None:
        gauges["throughput_per_second"].labels(*who).set(_rounded(measured["throughput"]))
    for metric in LATENCIES.values():
        percentiles = (measured["latencies"].get(metric.key) or {}).get("percentiles", {}) if metric.exported else {}
        for quantile in QUANTILES:
            if percentiles.get(quantile) is not None:
                gauges["latency_seconds"].labels(*who, metric.label, quantile).set(_rounded(percentiles[quantile] / 1e9))
    for row in COUNTS:
        if row.exported and measured["counts"].get(row.key) is not None:
            gauges["messages"].labels(*who, row.key).set(measured["counts"][row.key])


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
