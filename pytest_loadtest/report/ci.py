"""Reports for continuous integration: GitHub's summary and annotations, GitLab's metrics report.

GitHub takes 1 MiB of summary per step and shows nothing of a longer one; it shows the first ten
errors and the first ten warnings of a step. Both, and the escapes, are documented at
https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from pytest_loadtest.metrics.catalogue import COUNTS, LATENCIES
from pytest_loadtest.report.arrival_facts import where_table
from pytest_loadtest.report.bottleneck import bottleneck_text
from pytest_loadtest.report.comparison_markdown import section_lines
from pytest_loadtest.report.document import OUTCOMES, RunDocument
from pytest_loadtest.report.markdown import code, escaped, limited, markdown_lines
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
    scale_of,
    scale_warning,
    worst_first,
)
from pytest_loadtest.report.strays import stray_tables
from pytest_loadtest.report.tables import Cell, Table
from pytest_loadtest.report.terminal import ALWAYS, COLUMNS, ROWS, latency_rows
from pytest_loadtest.values.quantities import format_rate
from pytest_loadtest.values.records import record
from pytest_loadtest.values.wording import exact
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.verdict_section import ComparisonSection


LIMIT: Final = 1 << 20
"""The largest size of a step's summary, bytes."""


@record
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
    details = ["\n" + "\n".join(_details(document)) + "\n" for document in ordered]
    return limited(head, table, details, details, room, "runs")


_HEAD: Final = (
    "", "test", "profile", "outcome", "delivered", "end-to-end p50", "p99", "p99.9", "max",
)  # fmt: skip


def _row(document: RunDocument) -> list[str | Cell]:
    outcome = document.verdict.outcome
    cells: list[str | Cell] = [
        mark(outcome, unicode=True),
        run_name(document),
        document.profile.name,
        Cell(f"{outcome}{_scaled(document)}", outcome),
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
    yield f"### {mark(outcome, unicode=True)} {escaped(run_name(document))}: {outcome}\n"
    if warning := scale_warning(document):
        yield escaped(warning) + "\n"
    causes, remedy = causes_and_remedy(document)
    remedies = [f"remedy: {remedy}"] if remedy else []
    for text in (*causes, *remedies, *document.notes):
        yield f"- {escaped(text)}"
    for name, reason in document.driver.get("not_applied", {}).items():
        yield f"- not set: {escaped(f'{name}: {reason}')}"
    if document.profile.route is not None:
        yield f"- route: {escaped(document.profile.route)}"
    if document.peak is not None:
        yield f"- peak: {escaped(answer(document.peak))}"
    if document.bottleneck is not None:
        yield f"- bottleneck: {escaped(bottleneck_text(document.bottleneck))}"
    yield from _objectives(document)
    if document.measurements is not None:
        yield from _latencies(document.measurements)
        for table in stray_tables(document.measurements):
            yield ""
            yield from markdown_lines(table)
    if document.comparison is not None:
        yield from _comparison(document.comparison)
    yield f"\nResults: {code(document.results)}"


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
        rows.append(
            (
                mark(finding.outcome, unicode=True),
                prefix + objective_name(finding),
                finding.shown.observed or finding.outcome,
                finding.shown.bound,
                "-" if finding.samples is None else exact(finding.samples),
                note,
            )
        )
    head = ("", "objective", "observed", "bound", "samples", "")
    yield ""
    yield from markdown_lines(Table(head=head, align="<<><><", rows=rows))


def _comparison(section: ComparisonSection) -> Iterator[str]:
    yield ""
    if section.baseline is not None:
        compared = f"{section.baseline.started or 'never began'}, {section.baseline.outcome}"
        yield f"Compared with {code(section.baseline.results)} ({compared}):\n"
    shown, unchanged = section_lines(section)
    yield from (*shown, *unchanged)


def _latencies(measured: MeasurementsSection) -> Iterator[str]:
    rows = []
    for key in latency_rows(measured.latencies, () if only_connects(measured) else ALWAYS):
        rows.append((ROWS[key].strip(), *percentiles(measured.latencies.get(key), *COLUMNS)))
    yield ""
    yield from markdown_lines(Table(head=("latency", *COLUMNS, "max"), rows=rows))
    if (where := where_table(measured)) is not None:
        yield ""
        yield from markdown_lines(where)


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
    if document.verdict.findings:
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
        count = measured.applicable_count(row.key)
        if row.exported and count is not None:
            gauges["messages"].labels(*who, row.key).set(count)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
