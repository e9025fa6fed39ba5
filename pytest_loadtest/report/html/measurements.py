"""The chapters with measurements: latencies, messages, and the parts of a run.

Parts are topics, size buckets and stages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.catalogue import COUNTS
from pytest_loadtest.report import arrival_facts, sections
from pytest_loadtest.report.hdr import latency_distribution
from pytest_loadtest.report.html import charts
from pytest_loadtest.report.html.blocks import (
    NOT_MEASURED,
    ON_PAGE,
    Block,
    ChartFigure,
    Flow,
    Fold,
    Paragraph,
    absent,
)
from pytest_loadtest.report.html.charts import TITLES
from pytest_loadtest.report.sections import STAGE_HEAD, part_table, percentiles, stage_cells
from pytest_loadtest.report.strays import stray_tables
from pytest_loadtest.report.tables import Cell, Table
from pytest_loadtest.report.terminal import (
    ALWAYS,
    COLUMNS,
    MOST_RANGES,
    count_text,
    latency_rows,
)
from pytest_loadtest.values.quantities import format_duration, format_rate, format_size
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.metrics.measurements import Lost
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.measurements_section import (
        BreakdownEntry,
        LatencySection,
        MeasurementsSection,
    )


CURVES: Final = {
    "curve": ("Latency by percentile", ALWAYS),
    "broadcast": (
        "Broadcast completion and spread",
        ("completion", "spread"),
    ),
    "opening": ("Opening connections", ("connect", "subscribe", "reconnect")),
    "lateness": ("Delayed messages: lateness and earliness", ("lateness", "earliness")),
}
"""Charts by their name: a title, and the kinds of latency in them."""


def latency_charts(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield the percentile curves of a run. :param run: the id of its place on the page."""
    measured = document.measurements
    assert measured is not None
    for name, (title, kinds) in CURVES.items():
        drawn = any(kind in measured.latencies for kind in kinds)
        if name == "curve":
            drawn = not sections.only_connects(measured)
        if drawn:
            findings = document.verdict.findings
            chart = charts.latency_curves(measured, findings, run, kinds, title)
            yield absent(title) if chart is None else ChartFigure(f"{run}-{name}", chart)


def latency_facts(document: RunDocument) -> Iterator[Block]:
    """Yield the table of all latencies on demand, and how they were measured."""
    measured = document.measurements
    if measured is None:
        yield absent("latency", "the run broke before anything could be measured")
        return
    if (where := arrival_facts.where_table(measured)) is not None:
        yield where
    yield Fold("Latencies", [_table(measured)])
    for _, text in sections.delay_facts(measured):
        yield Paragraph(text)
    facts = (
        *sections.connection_facts(document),
        *sections.incident_facts(document),
        *arrival_facts.stamp_facts(document),
        *arrival_facts.broker_time_facts(measured, routed=document.profile.route is not None),
    )
    for label, text in facts:
        named = label in ("at target", "incidents", "where")
        yield Paragraph(f"{label}: {text}" if named else text)


def _table(measured: MeasurementsSection) -> Table:
    latencies = measured.latencies
    keys = latency_rows(latencies, () if sections.only_connects(measured) else ALWAYS)
    head = ("latency", "min", *COLUMNS, "max", "mean", "samples", "never came")
    rows = [_row(TITLES[key], latencies[key]) for key in keys]
    caption = "Latencies, from the intended time on; the mean is that of the messages that came"
    return Table(caption=caption, head=head, rows=rows)


def _row(title: str, latency: LatencySection | None) -> tuple[str, ...]:
    if latency is None:
        return (title, *(NOT_MEASURED,) * (len(COLUMNS) + 5))
    smallest = sections.UNKNOWN
    if not latency.clocks_disagree:
        smallest = format_duration(latency.minimum)
    return (
        title,
        smallest,
        *percentiles(latency, *COLUMNS),
        sections.mean_text(latency),
        sections.samples_text(latency),
        exact(latency.never_came),
    )


# The messages of a run as counts.

RANGES: Final = 200
"""The largest number of ranges of lost messages in the table; results.json has more."""


def messages_chapter(document: RunDocument) -> Iterator[Block]:
    """Yield rates, counts, and the ranges of lost messages."""
    measured = document.measurements
    if measured is None:
        yield absent("messages", "the run broke before anything could be measured")
    elif sections.only_connects(measured):
        text = "messages: not applicable: the run had connections and no messages"
        yield Paragraph(text, "absent")
    else:
        yield Flow(measured, document.profile.route is not None)
        counts = _count_table(measured, document.profile.checked_parts)
        yield Fold("Rates and counts", [_rate_table(measured), counts])
        if silent := sections.silent_text(measured):
            yield Paragraph(f"Nothing arrived of {silent}.", "missed")
        yield from stray_tables(measured)
        yield from _lost_ranges(measured.lost)


def _rate_table(measured: MeasurementsSection) -> Table:
    bytes_per_second = measured.bytes_sent * 1e9 / measured.duration
    rows = [
        ("offered", format_rate(measured.rate)),
        ("sent", format_rate(measured.publish_rate)),
        ("delivered", sections.delivered_text(measured)),
        ("payload sent", f"{format_size(bytes_per_second)}/s"),
    ]
    return Table(caption="Rates over the measured phase", head=("what", "rate"), rows=rows)


def _count_table(measured: MeasurementsSection, checked: str | None) -> Table:
    caption = "Messages of the measured phase"
    if checked is not None:
        caption += f"; corrupt: only {checked} were checked"
    deliveries = None
    if not measured.subscriptions:
        caption += "; nothing subscribes in this run"
    elif measured.others_send:
        caption += "; others send"
    else:
        deliveries = measured.count("acked") * measured.fan_out
    due = "deliveries: acked × subscriptions"
    if measured.outputs > 1:
        due += f" × {measured.outputs} outputs"
    if measured.answered is not None:
        due += " at most; percentiles are of those that came"
    rows = [
        *_count_rows(measured, inbound=False),
        ("due", count_text(deliveries), due),
        *_count_rows(measured, inbound=True),
    ]
    return Table(caption=caption, head=("what", "count", "meaning"), align="<><", rows=rows)


def _count_rows(measured: MeasurementsSection, *, inbound: bool) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each count; older results lack some of them."""
    for row in COUNTS:
        if row.inbound is inbound and row.key in measured.counts:
            count = measured.applicable_count(row.key)
            yield row.label, count_text(count), f"… {row.meaning}" if row.part else row.meaning


def _lost_ranges(ranges: Sequence[Lost]) -> Iterator[Block]:
    if not ranges:
        return
    rows = []
    for lost in ranges[:RANGES]:
        numbers = (lost.topic, lost.subscription, lost.first, lost.last)
        rows.append((exact(lost.stream), *map(str, numbers)))
    caption = "Ranges of lost messages"
    if len(ranges) > RANGES:
        caption += f"; {exact(len(ranges) - RANGES)} more in results.json"
    head = ("stream", "topic", "subscription", "first", "last")
    table = Table(caption=caption, head=head, rows=rows)
    if len(rows) > MOST_RANGES:
        yield Fold(f"{exact(len(ranges))} ranges of lost messages", [table])
    else:
        yield table


# The parts of a run: topics, size buckets, stages.

WORST: Final = 10
MOST: Final = 2000
"""The largest number of rows in the table of all topics."""


def topics_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield the worst ten topics, all of them on demand, and the curves of the worst."""
    measured = document.measurements
    if measured is None or len(measured.topics) < 2:
        return
    parts = _worst_first(measured.topics)
    many = exact(len(parts))
    caption = (
        f"The worst {min(WORST, len(parts))} of {many} topics, by lost messages and then by p99"
    )
    yield part_table("topic", parts[:WORST], measured, ON_PAGE, caption)
    title = "End-to-end latency by percentile, worst topics"
    yield from _part_curves(run, "topics", title, parts, ())
    if len(parts) > WORST:
        caption = "All topics, worst first"
        if len(parts) > MOST:
            caption = f"The worst {exact(MOST)} topics; results.json has all"
        table = part_table("topic", parts[:MOST], measured, ON_PAGE, caption)
        yield Fold(f"All {many} topics", [table])


def buckets_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield every size bucket, in the order of the profile."""
    measured = document.measurements
    if measured is None or len(measured.buckets) < 2:
        return
    yield part_table("size bucket", measured.buckets, measured, ON_PAGE, "Size buckets")
    bounds = charts.objective_points(document.verdict.findings, {"endToEndLatency"}, buckets=True)
    title = "End-to-end latency by percentile and size bucket"
    yield from _part_curves(run, "buckets", title, measured.buckets, bounds)


def stages_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield each stage, with the messages that were due in it."""
    stages = document.stages
    if not stages:
        return
    rows: list[tuple[str | Cell, ...]] = []
    unbegun = []
    named = {}
    for stage in stages:
        outcome = stage.verdict.outcome
        rows.append((stage.name, Cell(outcome, outcome), *stage_cells(stage, ON_PAGE)))
        if stage.measurements is None:
            unbegun.append(Paragraph(f"stage {stage.name} {stage.verdict.reasons[0]}"))
        else:
            latency = stage.measurements.latencies["endToEnd"]
            named[stage.name] = latency_distribution(latency)
    head = ("stage", "outcome", *STAGE_HEAD)
    yield Table(caption="Stages", head=head, align="<<>>>>>>>", rows=rows)
    yield from unbegun
    chart = charts.curve_chart("End-to-end latency by percentile and stage", run, named)
    if chart is not None:
        yield ChartFigure(f"{run}-stages", chart)


def _worst_first(parts: Sequence[BreakdownEntry]) -> list[BreakdownEntry]:
    def badness(part: BreakdownEntry) -> tuple[float, float, float]:
        latency = part.end_to_end
        if latency is None:
            return part.lost or 0, -1, -1
        p99 = latency.percentiles["p99"]
        largest = math.inf if latency.maximum is None else latency.maximum
        return part.lost or 0, -1 if p99 is None else p99, largest

    return sorted(parts, key=badness, reverse=True)


def _part_curves(
    run: str,
    name: str,
    title: str,
    parts: Sequence[BreakdownEntry],
    bounds: Sequence[dict[str, Any]],
) -> Iterator[Block]:
    """Yield the curves of the first parts; nothing if the results have no histograms of parts."""
    named = {
        part.name: latency_distribution(part.end_to_end) for part in parts[: len(charts.ROLES)]
    }
    chart = charts.curve_chart(title, run, named, bounds)
    if chart is not None:
        yield ChartFigure(f"{run}-{name}", chart)
