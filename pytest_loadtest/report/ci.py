"""Reports for continuous integration: the summary and the annotations of a step in GitHub Actions, the metrics report of GitLab.

GitHub takes 1 MiB of summary per step and shows nothing of a longer one; it shows the first ten errors and the first ten warnings of a
step. https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands documents both, and the escapes.
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
    objective_name,
    only_connects,
    percentiles,
    run_name,
    scale_changes,
    scale_of,
    worst_first,
)
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
"""Bytes kept free for the note on omitted entries and their number, so that rows do not use up the room for the note on runs."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&$])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The place of a test. :param file: relative to the repository. :param line: from 1 on. :param failed: the test failed in pytest."""

    file: str
    line: int
    failed: bool


def github_summary(documents: Iterable[RunDocument], room: int = LIMIT) -> str:
    """Return the session's load tests as Markdown: a table of all, then each with its objectives, worst first.

    :param room: the largest size, bytes. Entries that do not fit are left out from the end, with a note.
    """
    ordered = worst_first(documents)
    counts = [
        (name, sum(document.verdict.outcome is name for document in ordered)) for name in OUTCOMES
    ]
    head = f"## Load tests: {', '.join(f'{count} {name}' for name, count in counts if count)}\n\n"
    table = [
        "| | test | profile | outcome | delivered | end-to-end p50 | p99 | p99.9 | max |\n|---|---|---|---|--:|--:|--:|--:|--:|\n"
    ]
    parts = [
        head,
        *_fitting([*table, *map(_row, ordered)], room - len(head.encode()) - _NOTE_ROOM, "rows"),
    ]
    left = room - sum(len(part.encode()) for part in parts)
    return "".join(
        [
            *parts,
            *_fitting(
                ["\n" + "\n".join(_details(document)) + "\n" for document in ordered], left, "runs"
            ),
        ]
    )


def _fitting(parts: Sequence[str], room: int, what: str) -> Iterator[str]:
    """Yield as many parts as there is room for, and a note on how many were left out."""
    used = [len(part.encode()) for part in parts]
    total, kept = 0, 0
    while (
        kept < len(parts)
        and total + used[kept] + (_NOTE_ROOM if kept + 1 < len(parts) else 0) <= room
    ):
        total += used[kept]
        kept += 1
    yield from parts[:kept]
    if kept < len(parts) and total + _NOTE_ROOM <= room:
        yield _NOTE.format(len(parts) - kept, what)


def _row(document: RunDocument) -> str:
    measured, outcome = document.measurements, document.verdict.outcome
    cells = [
        mark(outcome, unicode=True),
        _text(run_name(document)),
        _text(document.profile.name),
        f"**{outcome}**{_scaled(document)}",
    ]
    if measured is None:
        cells += ["-"] * 5
    else:
        delivered = "-" if measured.throughput is None else format_rate(measured.throughput)
        cells += [delivered, *percentiles(measured.latencies["endToEnd"], "p50", "p99", "p99.9")]
    return f"| {' | '.join(cells)} |\n"


def _scaled(document: RunDocument) -> str:
    scale = scale_of(document)
    return f" ({scale.upper()})" if scale else ""


def _details(document: RunDocument) -> Iterator[str]:
    verdict = document.verdict
    yield f"### {mark(verdict.outcome, unicode=True)} {_text(run_name(document))}: {verdict.outcome}\n"
    if scale := scale_of(document):
        yield (
            _text(f"{scale.upper()}: says nothing about the full load ({scale_changes(document)})")
            + "\n"
        )
    causes, remedy = causes_and_remedy(document)
    yield from (
        f"- {_text(text)}"
        for text in [*causes, *([f"remedy: {remedy}"] if remedy else []), *document.notes]
    )
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
    yield "\n| | objective | observed | bound | samples | |\n|---|---|--:|---|--:|---|"
    for where, finding in sorted(findings, key=lambda entry: OUTCOMES.index(entry[1].outcome)):
        shown, samples = finding.shown, finding.samples
        observed = shown.observed or finding.outcome
        why = shown.over or ("" if finding.outcome is Outcome.MET else cause(finding))
        name = where + objective_name(finding)
        cells = (
            mark(finding.outcome, unicode=True),
            name,
            observed,
            shown.bound,
            "-" if samples is None else exact(samples),
            why,
        )
        yield f"| {' | '.join(map(_text, cells))} |"


def _latencies(measured: MeasurementsSection) -> Iterator[str]:
    yield f"\n| latency | {' | '.join(COLUMNS)} | max |\n|---|{'--:|' * (len(COLUMNS) + 1)}"
    for key in latency_rows(measured.latencies, () if only_connects(measured) else ALWAYS):
        yield f"| {ROWS[key].strip()} | {' | '.join(percentiles(measured.latencies.get(key), *COLUMNS))} |"


def _text(text: str) -> str:
    """Escape everything that has a meaning in Markdown."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Return the text as code, between as many backticks as are necessary."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def workflow_commands(
    documents: Iterable[RunDocument], places: Mapping[str, Location]
) -> list[str]:
    """Return a workflow command for each run that was not met, worst first: an error if the test failed, else a warning.

    :param places: places of tests by node id; the command for a test without one has no place.
    """
    ordered = [
        document
        for document in worst_first(documents)
        if document.verdict.outcome is not Outcome.MET
    ]
    return [_annotation(document, places.get(document.test)) for document in ordered]


def _annotation(document: RunDocument, place: Location | None) -> str:
    verdict = document.verdict
    missed = [
        prefix + finding.text
        for prefix, finding in all_findings(document)
        if finding.outcome is Outcome.MISSED
    ]
    lines = [*dict.fromkeys([*verdict.reasons, *missed]), f"results: {document.results}"]
    where = {} if place is None else {"file": place.file, "line": str(place.line)}
    properties = where | {"title": f"{run_name(document)}: {verdict.outcome}{_scaled(document)}"}
    level = "error" if place is None or place.failed else "warning"
    encoded = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{level} {encoded}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# The report that GitLab compares between branches: one OpenMetrics file of a session, its ``artifacts:reports:metrics``.
#
# GitLab cuts each line at the first ``#``, splits the rest as a shell would into name (labels included) and value, and compares values as
# text: so no label has a ``#``, and figures that are never the same twice have three digits. Its parser:
# ``ee/lib/gitlab/ci/parsers/metrics/generic.rb``; https://docs.gitlab.com/ci/testing/metrics_reports.

QUANTILES: Final = ("p50", "p99", "p99.9")
_WHO: Final = ("test", "profile", "workload", "scale")


def gitlab_metrics(documents: Iterable[RunDocument]) -> str:
    """Return the session's runs as OpenMetrics text: the last attempt of each test, without values that were not measured."""
    registry = CollectorRegistry()
    gauges = {
        name: Gauge(f"loadtest_{name}", text, [*_WHO, *labels], registry=registry)
        for name, text, labels in (
            ("outcome", "1 for the outcome of the run", ["outcome"]),
            ("objectives_missed", "Objectives that did not hold", []),
            ("rate_per_second", "Messages offered a second", []),
            ("throughput_per_second", "Messages delivered a second, in time", []),
            (
                "latency_seconds",
                "Percentiles of latencies, over all that was due",
                ["kind", "quantile"],
            ),
            ("messages", "Messages of the measured phase, by their fate", ["count"]),
            ("peak_per_second", "The highest rate at which all objectives held", ["unit"]),
        )
    }
    for document in {_labels(document): document for document in documents}.values():
        _add(gauges, document)
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()


def _labels(document: RunDocument) -> tuple[str, ...]:
    scale = "" if document.scale is None else f"{document.scale.factor:g}"
    labels = (document.test, document.profile.name, document.workload or "", scale)
    return tuple(label.replace("#", "-") for label in labels)


def _add(gauges: dict[str, Gauge], document: RunDocument) -> None:
    who, measured, peak = _labels(document), document.measurements, document.peak
    missed = sum(finding.outcome is Outcome.MISSED for _, finding in all_findings(document))
    gauges["outcome"].labels(*who, document.verdict.outcome).set(1)
    gauges["objectives_missed"].labels(*who).set(missed)
    if peak is not None and peak.rate is not None:
        gauges["peak_per_second"].labels(*who, "bytes" if peak.unit == "B/s" else "messages").set(
            _rounded(peak.rate)
        )
    if measured is None:
        return
    connects = only_connects(
        measured
    )  # such a run has no messages: their rate and counts are not 0 but not applicable
    if not connects:
        gauges["rate_per_second"].labels(*who).set(_rounded(measured.rate))
    if measured.throughput is not None:
        gauges["throughput_per_second"].labels(*who).set(_rounded(measured.throughput))
    for metric in LATENCIES.values():
        latency = measured.latencies.get(metric.key) if metric.exported else None
        values: Mapping[str, int | None] = {} if latency is None else latency.percentiles
        for quantile in QUANTILES:
            if (value := values.get(quantile)) is not None:
                gauges["latency_seconds"].labels(*who, metric.label, quantile).set(
                    _rounded(value / 1e9)
                )
    for row in COUNTS:
        if row.exported and not connects and (count := measured.counts.get(row.key)) is not None:
            gauges["messages"].labels(*who, row.key).set(count)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
