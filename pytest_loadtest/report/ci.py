"""Reports for continuous integration: GitHub's summary and annotations, GitLab's metrics report.

GitHub takes 1 MiB of summary per step and shows nothing of a longer one; it shows the first ten
errors and the first ten warnings of a step. Both, and the escapes, are documented at
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
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
from pytest_loadtest.report.sections import (
    all_findings,
    answer,
    cause,
    causes_and_remedy,
    mark,
    missed_texts,
    objective_name,
    only_connects,
    outcome_counts,
    percentiles,
    run_name,
    scale_changes,
    scale_of,
    worst_first,
)
from pytest_loadtest.report.tables import Table, markdown_lines
from pytest_loadtest.report.terminal import ALWAYS, COLUMNS, ROWS, latency_rows
from pytest_loadtest.values.quantities import format_rate
from pytest_loadtest.values.wording import exact
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import MeasurementsSection


LIMIT: Final = 1 << 20
"""The largest size of a step's summary, bytes."""
_NOTE: Final = "\n… and {} more {}: see the results folder\n"
_NOTE_ROOM: Final = len(_NOTE.encode()) + 20
"""Bytes kept free for the note on omitted entries and their number.

So rows do not use up the room for the note on runs.
"""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The place of a test.

    :param file: relative to the repository. :param line: from 1 on.
    :param failed: the test failed in pytest.
    """

    file: str
    line: int
    failed: bool


def github_summary(documents: Iterable[RunDocument], room: int = LIMIT) -> str:
    """Return the session's load tests as Markdown: a table of all, then each, worst first.

    :param room: the largest size, bytes. Entries that do not fit are left out from the end, with a
        note.
    """
    ordered = worst_first(documents)
    head = f"## Load tests: {outcome_counts(ordered)}\n\n"
    table = Table(head=_HEAD, align="<<<<>>>>>", rows=list(map(_row, ordered)))
    heads, rule, *rows = (f"{line}\n" for line in markdown_lines(table))
    left = room - len(head.encode()) - _NOTE_ROOM
    parts = [head, *_fitting([heads + rule, *rows], left, "rows")]
    left = room - sum(len(part.encode()) for part in parts)
    details = ["\n" + "\n".join(_details(document)) + "\n" for document in ordered]
    return "".join([*parts, *_fitting(details, left, "runs")])


_HEAD: Final = (
    "", "test", "profile", "outcome", "delivered", "end-to-end p50", "p99", "p99.9", "max",
)  # fmt: skip


def _fitting(parts: Sequence[str], room: int, what: str) -> Iterator[str]:
    """Yield as many parts as there is room for, and a note on how many were left out."""
    total = 0
    kept = 0
    for part in parts:
        last = kept == len(parts) - 1
        used = total + len(part.encode())
        if used + (0 if last else _NOTE_ROOM) > room:
            break
        total = used
        kept += 1
    yield from parts[:kept]
    if kept < len(parts) and total + _NOTE_ROOM <= room:
        yield _NOTE.format(len(parts) - kept, what)


def _row(document: RunDocument) -> list[str]:
    outcome = document.verdict.outcome
    cells = [
        mark(outcome, unicode=True),
        _text(run_name(document)),
        _text(document.profile.name),
        f"**{outcome}**{_scaled(document)}",
    ]
    measured = document.measurements
    if measured is None:
        return [*cells, *"-----"]
    delivered = "-" if measured.throughput is None else format_rate(measured.throughput)
    latencies = percentiles(measured.latencies["endToEnd"], "p50", "p99", "p99.9")
    return [*cells, delivered, *latencies]


def _scaled(document: RunDocument) -> str:
    scale = scale_of(document)
    return f" ({scale.upper()})" if scale else ""


def _details(document: RunDocument) -> Iterator[str]:
    outcome = document.verdict.outcome
    yield f"### {mark(outcome, unicode=True)} {_text(run_name(document))}: {outcome}\n"
    if scale := scale_of(document):
        text = f"{scale.upper()}: says nothing about the full load"
        yield _text(f"{text} ({scale_changes(document)})") + "\n"
    causes, remedy = causes_and_remedy(document)
    remedies = [f"remedy: {remedy}"] if remedy else []
    for text in (*causes, *remedies, *document.notes):
        yield f"- {_text(text)}"
    if document.peak is not None:
        yield f"- peak: {_text(answer(document.peak))}"
    if document.bottleneck is not None:
        yield f"- bottleneck: {_text(bottleneck_text(document.bottleneck))}"
    yield from _objectives(document)
    if document.measurements is not None:
        yield from _latencies(document.measurements)
    yield f"\nResults: {_code(document.results)}"


def _objectives(document: RunDocument) -> Iterator[str]:
    findings = list(all_findings(document))
    if not findings:
        return
    findings.sort(key=lambda entry: OUTCOMES.index(entry[1].outcome))
    rows = []
    for prefix, finding in findings:
        note = finding.shown.over
        if not note and finding.outcome is not Outcome.MET:
            note = cause(finding)
        cells = (
            mark(finding.outcome, unicode=True),
            prefix + objective_name(finding),
            finding.shown.observed or finding.outcome,
            finding.shown.bound,
            "-" if finding.samples is None else exact(finding.samples),
            note,
        )
        rows.append(list(map(_text, cells)))
    head = ("", "objective", "observed", "bound", "samples", "")
    yield ""
    yield from markdown_lines(Table(head=head, align="<<><><", rows=rows))


def _latencies(measured: MeasurementsSection) -> Iterator[str]:
    rows = []
    for key in latency_rows(measured.latencies, () if only_connects(measured) else ALWAYS):
        rows.append((ROWS[key].strip(), *percentiles(measured.latencies.get(key), *COLUMNS)))
    yield ""
    yield from markdown_lines(Table(head=("latency", *COLUMNS, "max"), rows=rows))


def _text(text: str) -> str:
    """Escape everything that has a meaning in Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Return the text as code, between as many backticks as are necessary."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


def workflow_commands(
    documents: Iterable[RunDocument], places: Mapping[str, Location]
) -> list[str]:
    """Return a workflow command for each run that was not met, worst first.

    It is an error if the test failed, else a warning.

    :param places: places of tests by node id; the command for a test without one has no place.
    """
    commands = []
    for document in worst_first(documents):
        if document.verdict.outcome is not Outcome.MET:
            commands.append(_annotation(document, places.get(document.test)))
    return commands


def _annotation(document: RunDocument, place: Location | None) -> str:
    verdict = document.verdict
    lines = dict.fromkeys((*verdict.reasons, *missed_texts(document)))
    text = "\n".join([*lines, f"results: {document.results}"])
    properties = {}
    if place is not None:
        properties = {"file": place.file, "line": str(place.line)}
    properties["title"] = f"{run_name(document)}: {verdict.outcome}{_scaled(document)}"
    level = "error" if place is None or place.failed else "warning"
    encoded = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {encoded}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# The report that GitLab compares between branches: one OpenMetrics file of a session, its
# ``artifacts:reports:metrics``.
#
# GitLab cuts each line at the first ``#``, splits the rest as a shell would into name (labels
# included) and value, and compares values as text: so no label has a ``#``, and figures that are
# never the same twice have three digits. Its parser is
# ``ee/lib/gitlab/ci/parsers/metrics/generic.rb``;
# https://docs.gitlab.com/ci/testing/metrics_reports.

QUANTILES: Final = ("p50", "p99", "p99.9")
_WHO: Final = ("test", "profile", "workload", "scale")
_GAUGES: Final = (
    ("outcome", "1 for the outcome of the run", ("outcome",)),
    ("objectives_missed", "Objectives that did not hold", ()),
    ("rate_per_second", "Messages offered a second", ()),
    ("throughput_per_second", "Messages delivered a second, in time", ()),
    ("latency_seconds", "Percentiles of latencies, over all that was due", ("kind", "quantile")),
    ("messages", "Messages of the measured phase, by their fate", ("count",)),
    ("peak_per_second", "The highest rate at which all objectives held", ("unit",)),
)
"""The metrics: name, help, and labels in addition to those of the run."""


def gitlab_metrics(documents: Iterable[RunDocument]) -> str:
    """Return the session's runs as OpenMetrics text: the last attempt of each test.

    Values that were not measured are left out.
    """
    registry = CollectorRegistry()
    gauges = {}
    for name, meaning, labels in _GAUGES:
        gauges[name] = Gauge(f"loadtest_{name}", meaning, [*_WHO, *labels], registry=registry)
    for document in {_labels(document): document for document in documents}.values():
        _add(gauges, document)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


def _labels(document: RunDocument) -> tuple[str, ...]:
    scale = "" if document.scale is None else f"{document.scale.factor:g}"
    labels = (document.test, document.profile.name, document.workload or "", scale)
    return tuple(label.replace("#", "-") for label in labels)


def _add(gauges: dict[str, Gauge], document: RunDocument) -> None:
    who = _labels(document)
    gauges["outcome"].labels(*who, document.verdict.outcome).set(1)
    gauges["objectives_missed"].labels(*who).set(len(missed_texts(document)))
    peak = document.peak
    if peak is not None and peak.rate is not None:
        unit = "bytes" if peak.unit == "B/s" else "messages"
        gauges["peak_per_second"].labels(*who, unit).set(_rounded(peak.rate))
    measured = document.measurements
    if measured is None:
        return
    if measured.throughput is not None:
        gauges["throughput_per_second"].labels(*who).set(_rounded(measured.throughput))
    for metric in LATENCIES.values():
        latency = measured.latencies.get(metric.key)
        if latency is None or not metric.exported:
            continue
        for quantile in QUANTILES:
            value = latency.percentiles.get(quantile)
            if value is not None:
                gauge = gauges["latency_seconds"].labels(*who, metric.label, quantile)
                gauge.set(_rounded(value / 1e9))
    if only_connects(measured):
        # Such a run has no messages: their rate and counts are not 0 but not applicable.
        return
    gauges["rate_per_second"].labels(*who).set(_rounded(measured.rate))
    for row in COUNTS:
        count = measured.counts.get(row.key)
        if row.exported and count is not None:
            gauges["messages"].labels(*who, row.key).set(count)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
