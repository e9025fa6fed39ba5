"""What GitHub Actions shows of a session: a Markdown summary of the step, and annotations at the tests' lines.

GitHub takes 1 MiB of summary a step and shows nothing of a longer one; of annotations it shows the first ten errors and the first ten
warnings of a step. https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands has both, and what must be escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report.bottleneck import bottleneck_text
from pytest_loadtest.report.document import OUTCOMES
from pytest_loadtest.report.sections import all_findings, answer, mark, percentiles, run_name, scale_changes, scale_of, worst_first
from pytest_loadtest.report.terminal import ALWAYS, COLUMNS, ROWS
from pytest_loadtest.values.quantities import format_rate
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_loadtest.report.document import Document


LIMIT: Final = 1 << 20
"""Bytes of a step's summary."""
_NOTE: Final = "\n… and {} more {}: see the results folder\n"
_NOTE_ROOM: Final = len(_NOTE.encode()) + 20
"""Bytes kept free for the note that something was left out, with its number: rows may not use up the room for the note on runs."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a test stands. :param file: relative to the repository. :param line: from 1 on. :param failed: whether pytest says so."""

    file: str
    line: int
    failed: bool


def github_summary(documents: Sequence[Document], room: int = LIMIT) -> str:
    """The session's load tests as Markdown: a table of all, then each with its objectives, worst first.

    :param room: bytes that it may have. What does not fit is left out from the end on, and said.
    """
    ordered = worst_first(documents)
    counts = [(name, sum(document["verdict"]["outcome"] == name for document in ordered)) for name in OUTCOMES]
    head = f"## Load tests: {', '.join(f'{count} {name}' for name, count in counts if count)}\n\n"
    table = ["| | test | profile | outcome | delivered | end-to-end p50 | p99 | p99.9 | max |\n|---|---|---|---|--:|--:|--:|--:|--:|\n"]
    parts = [head, *_fitting([*table, *map(_row, ordered)], room - len(head.encode()) - _NOTE_ROOM, "rows")]
    left = room - sum(len(part.encode()) for part in parts)
    return "".join([*parts, *_fitting(["\n" + "\n".join(_details(document)) + "\n" for document in ordered], left, "runs")])


def _fitting(parts: Sequence[str], room: int, what: str) -> Iterator[str]:
    """As many of them as there is room for, and how many were left out."""
    used = [len(part.encode()) for part in parts]
    total, kept = 0, 0
    while kept < len(parts) and total + used[kept] + (_NOTE_ROOM if kept + 1 < len(parts) else 0) <= room:
        total += used[kept]
        kept += 1
    yield from parts[:kept]
    if kept < len(parts) and total + _NOTE_ROOM <= room:
        yield _NOTE.format(len(parts) - kept, what)


def _row(document: Document) -> str:
    measured, outcome = document["measurements"], document["verdict"]["outcome"]
    cells = [mark(outcome, unicode=True), _text(run_name(document)), _text(document["profile"]["name"]), _outcome(document)]
    if measured is None:
        cells += ["-"] * 5
    else:
        delivered = "-" if measured["throughput"] is None else format_rate(measured["throughput"])
        cells += [delivered, *percentiles(measured["latencies"]["endToEnd"], "p50", "p99", "p99.9")]
    return f"| {' | '.join(cells)} |\n"


def _outcome(document: Document) -> str:
    return f"**{document['verdict']['outcome']}**{_scaled(document)}"


def _scaled(document: Document) -> str:
    scale = scale_of(document)
    return f" ({scale.upper()})" if scale else ""


def _details(document: Document) -> Iterator[str]:
    verdict = document["verdict"]
    yield f"### {mark(verdict['outcome'], unicode=True)} {_text(run_name(document))}: {verdict['outcome']}\n"
    if scale := scale_of(document):
        yield _text(f"{scale.upper()}: says nothing about the full load ({scale_changes(document)})") + "\n"
    yield from (f"- {_text(reason)}" for reason in [*verdict["reasons"], *document["notes"]])
    if document["peak"] is not None:
        yield f"- peak: {_text(answer(document['peak']))}"
    if document.get("bottleneck") is not None:  # older results have none
        yield f"- bottleneck: {_text(bottleneck_text(document['bottleneck']))}"
    yield from _objectives(document)
    if document["measurements"] is not None:
        yield from _latencies(document["measurements"])
    yield f"\nResults: {_code(document['results'])}"


def _objectives(document: Document) -> Iterator[str]:
    findings = list(all_findings(document))
    if not findings:
        return
    yield "\n| | objective | observed | bound | samples | |\n|---|---|--:|---|--:|---|"
    for where, finding in sorted(findings, key=lambda one: OUTCOMES.index(one[1]["outcome"])):
        shown, samples = finding["shown"], finding["samples"]
        observed = shown["observed"] or finding["outcome"]
        why = shown["over"] or ("" if finding["outcome"] == "met" else finding["text"].partition(": ")[2])
        name = where + finding["name"] + (" (implicit)" if finding["implicit"] else "")
        cells = (mark(finding["outcome"], unicode=True), name, observed, shown["bound"], "-" if samples is None else exact(samples), why)
        yield f"| {' | '.join(map(_text, cells))} |"


def _latencies(measured: Document) -> Iterator[str]:
    found = [(ROWS[key].strip(), measured["latencies"].get(key)) for key in ALWAYS]
    yield f"\n| latency | {' | '.join(COLUMNS)} | max |\n|---|{'--:|' * (len(COLUMNS) + 1)}"
    for title, latency in found:
        cells = ("-",) * (len(COLUMNS) + 1) if latency is None else percentiles(latency, *COLUMNS)
        yield f"| {title} | {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Words of a run, none of which means anything to Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """``text`` as code, between as many backticks as it takes."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def workflow_commands(documents: Sequence[Document], places: Mapping[str, Location]) -> list[str]:
    """A workflow command for each run that was not met, worst first: an error where the test failed, else a warning.

    :param places: by node id, where the test stands; of one that is not known the command has no place.
    """
    ordered = [document for document in worst_first(documents) if document["verdict"]["outcome"] != "met"]
    return [_annotation(document, places.get(document["test"])) for document in ordered]


def _annotation(document: Document, place: Location | None) -> str:
    verdict = document["verdict"]
    missed = [where + one["text"] for where, one in all_findings(document) if one["outcome"] == "missed"]
    lines = [*dict.fromkeys([*verdict["reasons"], *missed]), f"results: {document['results']}"]
    where = {} if place is None else {"file": place.file, "line": str(place.line)}
    properties = where | {"title": f"{run_name(document)}: {verdict['outcome']}{_scaled(document)}"}
    level = "error" if place is None or place.failed else "warning"
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {said}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# What GitLab compares between branches: one OpenMetrics file of a session, its ``artifacts:reports:metrics``.
#
# GitLab cuts each line at the first ``#``, splits the rest as a shell would into name (labels included) and value, and compares values as
# text: so no label has a ``#``, and figures that are never the same twice have three digits. Its parser:
# ``ee/lib/gitlab/ci/parsers/metrics/generic.rb``; https://docs.gitlab.com/ci/testing/metrics_reports.

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
    for document in {_labels(document): document for document in documents}.values():
        _add(gauges, document)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


def _labels(document: Document) -> tuple[str, ...]:
    scale = "" if document["scale"] is None else f"{document['scale']['factor']:g}"
    said = (document["test"], document["profile"]["name"], document["workload"] or "", scale)
    return tuple(text.replace("#", "-") for text in said)


def _add(gauges: dict[str, Gauge], document: Document) -> None:
    who, measured, peak = _labels(document), document["measurements"], document["peak"]
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
