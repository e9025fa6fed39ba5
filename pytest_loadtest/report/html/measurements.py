"""The chapters with measurements: latencies, messages, and the parts of a run (topics, size buckets, stages)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import COUNTS
from pytest_loadtest.report import arrival_facts, sections
from pytest_loadtest.report.hdr import latency_distribution
from pytest_loadtest.report.html import charts
from pytest_loadtest.report.html.blocks import (
    NOT_MEASURED,
    Cell,
    ChartFigure,
    Fold,
    Paragraph,
    Table,
    absent,
)
from pytest_loadtest.report.html.charts import TITLES
from pytest_loadtest.report.sections import percentiles
from pytest_loadtest.report.terminal import ALWAYS, COLUMNS, MOST_RANGES, latency_rows
from pytest_loadtest.values.quantities import format_duration, format_rate, format_size
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from pytest_loadtest.metrics.measurements import Lost
    from pytest_loadtest.report.document import RunDocument, StageEntry
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.measurements_section import (
        BreakdownEntry,
        LatencySection,
        MeasurementsSection,
    )


CURVES: Final = {
    "curve": ("Latency by percentile", ALWAYS),
    "broadcast": (
        "Broadcast: until all subscribers have a message, and from the first of them to the last",
        ("completion", "spread"),
    ),
    "opening": ("Opening connections", ("connect", "subscribe", "reconnect")),
    "lateness": ("Delayed messages: after due and before due", ("lateness", "earliness")),
}
"""Charts by their name: a title, and the kinds of latency in them."""


def latency_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield a table of all latencies, and their percentile curves. :param run: the id of its place on the page."""
    measured = document.measurements
    if measured is None:
        yield absent("latency", "the run broke before anything could be measured")
        return
    yield _table(measured)
    for name, (title, kinds) in CURVES.items():
        if (
            sections.only_connects(measured)
            if name == "curve"
            else not any(kind in measured.latencies for kind in kinds)
        ):
            continue
        chart = charts.latency_curves(measured, document.verdict.findings, run, kinds, title)
        yield absent(title) if chart is None else ChartFigure(f"{run}-{name}", chart)
    yield from (Paragraph(text) for _, text in sections.delay_facts(measured))
    facts = (
        *sections.connection_facts(document),
        *sections.incident_facts(document),
        *arrival_facts.stamp_facts(document),
        *arrival_facts.broker_time_facts(measured),
    )
    yield from (
        Paragraph(f"{label}: {text}") if label in ("at target", "incidents") else Paragraph(text)
        for label, text in facts
    )


def _table(measured: MeasurementsSection) -> Table:
    latencies = measured.latencies
    keys = latency_rows(latencies, () if sections.only_connects(measured) else ALWAYS)
    head = ("latency", "min", *COLUMNS, "max", "mean", "samples", "never came")
    rows = [_row(TITLES[key], latencies[key]) for key in keys]
    caption = "Latencies, from the intended time on; the mean is that of the messages that came"
    return Table(caption=caption, head=head, rows=rows, numbers=frozenset(range(1, len(head))))


def _row(title: str, latency: LatencySection | None) -> tuple[str, ...]:
    if latency is None:
        return (title, *(NOT_MEASURED,) * (len(COLUMNS) + 5))
    return (
        title, sections.UNKNOWN if latency.clocks_disagree else format_duration(latency.minimum), *percentiles(latency, *COLUMNS),
        sections.mean_text(latency), sections.samples_text(latency), exact(latency.never_came),
    )  # fmt: skip


# The messages of a run as counts.

RANGES: Final = 200
"""The largest number of ranges of lost messages in the table; results.json has more."""


def messages_chapter(document: RunDocument) -> Iterator[Block]:
    """Yield rates, counts, and the ranges of lost messages."""
    measured = document.measurements
    if measured is None:
        yield absent("messages", "the run broke before anything could be measured")
    elif sections.only_connects(measured):
        yield Paragraph(
            "messages: not applicable: the run had connections and no messages", "absent"
        )
    else:
        yield _rate_table(measured)
        yield _count_table(measured, bool(document.profile.document.get("checksum")))
        if silent := sections.silent_text(measured):
            yield Paragraph(f"Nothing arrived of {silent}.", "missed")
        yield from _lost_ranges(measured.lost)


def _rate_table(measured: MeasurementsSection) -> Table:
    rows = [
        ("offered", format_rate(measured.rate)), ("sent", format_rate(measured.publish_rate)),
        ("delivered", sections.delivered_text(measured)),
        ("payload sent", f"{format_size(measured.bytes_sent * 1e9 / measured.duration)}/s"),
    ]  # fmt: skip
    return Table(
        caption="Rates over the measured phase",
        head=("what", "rate"),
        rows=rows,
        numbers=frozenset((1,)),
    )


def _count_table(measured: MeasurementsSection, checksum: bool) -> Table:
    subscriptions = measured.subscriptions
    deliveries = (
        exact(measured.count("acked") * subscriptions) if subscriptions else "not applicable"
    )
    due = ("due", deliveries, "deliveries: acked × subscriptions")
    rows = [
        *_count_rows(measured, inbound=False),
        due,
        *_count_rows(measured, inbound=True, applicable=bool(subscriptions)),
    ]
    checked = "" if checksum else "; corrupt: only heads and sizes were checked"
    caption = f"Messages of the measured phase{checked}" + (
        "" if subscriptions else "; nothing subscribes in this run"
    )
    return Table(caption=caption, head=("what", "count", ""), rows=rows, numbers=frozenset((1,)))


def _count_rows(
    measured: MeasurementsSection, *, inbound: bool, applicable: bool = True
) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each count; older results lack some of them."""
    for row in COUNTS:
        if row.inbound is inbound and row.key in measured.counts:
            count = measured.counts[row.key]
            text = exact(count) if applicable and count is not None else "not applicable"
            yield row.label, text, f"… {row.meaning}" if row.part else row.meaning


def _lost_ranges(ranges: Sequence[Lost]) -> Iterator[Block]:
    if not ranges:
        return
    rows = [
        (
            exact(lost.stream),
            str(lost.topic),
            str(lost.subscription),
            str(lost.first),
            str(lost.last),
        )
        for lost in ranges[:RANGES]
    ]
    more = f"; {exact(len(ranges) - RANGES)} more in results.json" if len(ranges) > RANGES else ""
    caption = f"Ranges of lost messages{more}"
    table = Table(
        caption=caption,
        head=("stream", "topic", "subscription", "first", "last"),
        rows=rows,
        numbers=frozenset((1, 2, 3, 4)),
    )
    yield (
        table
        if len(rows) <= MOST_RANGES
        else Fold(f"{exact(len(ranges))} ranges of lost messages", [table])
    )


# The parts of a run: topics, size buckets, stages.

WORST: Final = 10
MOST: Final = 2000
"""The largest number of rows in the table of all topics."""
HEAD: Final = ("due", "sent", "received", "lost", "end-to-end p50", "p99", "max", "publish p99")


def topics_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield the worst ten topics, all of them on demand, and the curves of the worst."""
    measured = document.measurements
    if measured is None or len(measured.topics) < 2:
        return
    parts = _worst_first(measured.topics)
    caption = f"The worst {min(WORST, len(parts))} of {exact(len(parts))} topics, by lost messages and then by p99"
    yield _part_table("topic", caption, parts[:WORST], measured)
    yield from _part_curves(
        run, "topics", "End-to-end latency by percentile, worst topics", parts, ()
    )
    if len(parts) > WORST:
        caption = (
            "All topics, worst first"
            if len(parts) <= MOST
            else f"The worst {exact(MOST)} topics; results.json has all"
        )
        yield Fold(
            f"All {exact(len(parts))} topics",
            [_part_table("topic", caption, parts[:MOST], measured)],
        )


def buckets_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield every size bucket, in the order of the profile."""
    measured = document.measurements
    if measured is None or len(measured.buckets) < 2:
        return
    yield _part_table("size bucket", "Size buckets", measured.buckets, measured)
    bounds = charts.objective_points(document.verdict.findings, {"endToEndLatency"}, buckets=True)
    yield from _part_curves(
        run, "buckets", "End-to-end latency by percentile and size bucket", measured.buckets, bounds
    )


def stages_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield each stage, with the messages that were due in it."""
    stages = document.stages
    if not stages:
        return
    head = (
        "stage",
        "outcome",
        "for",
        "offered",
        "delivered",
        "end-to-end p50",
        "p99",
        "max",
        "lost",
    )
    yield Table(
        caption="Stages",
        head=head,
        rows=[_stage_row(stage) for stage in stages],
        numbers=frozenset(range(2, len(head))),
    )
    yield from (
        Paragraph(f"stage {stage.name} {stage.verdict.reasons[0]}")
        for stage in stages
        if stage.measurements is None
    )
    begun = {stage.name: stage.measurements for stage in stages if stage.measurements is not None}
    named = {
        name: latency_distribution(measured.latencies["endToEnd"])
        for name, measured in begun.items()
    }
    chart = charts.curve_chart("End-to-end latency by percentile and stage", run, named)
    if chart is not None:
        yield ChartFigure(f"{run}-stages", chart)


def _stage_row(stage: StageEntry) -> tuple[str | Cell, ...]:
    m, outcome = stage.measurements, stage.verdict.outcome
    if m is None:
        return (stage.name, Cell(outcome, outcome), *("never began",) * 7)
    return (
        stage.name, Cell(outcome, outcome), format_duration(m.duration), format_rate(m.rate),
        sections.delivered_text(m, "nothing", "nothing"), *percentiles(m.latencies["endToEnd"], "p50", "p99", absent=NOT_MEASURED),
        _lost_cell(m.count("lost"), m),
    )  # fmt: skip


def _worst_first(parts: Sequence[BreakdownEntry]) -> list[BreakdownEntry]:
    def badness(part: BreakdownEntry) -> tuple[float, float, float]:
        latency = part.end_to_end
        if latency is None:
            return part.lost, -1, -1
        p99 = latency.percentiles["p99"]
        top = math.inf if latency.maximum is None else latency.maximum
        return part.lost, -1 if p99 is None else p99, top

    return sorted(parts, key=badness, reverse=True)


def _part_table(
    what: str, caption: str, parts: Sequence[BreakdownEntry], measured: MeasurementsSection
) -> Table:
    rows = [
        (
            part.name, exact(part.offered), exact(part.sent), exact(part.received), _lost_cell(part.lost, measured),
            *percentiles(part.end_to_end, "p50", "p99", absent=NOT_MEASURED), percentiles(part.publish, "p99", absent=NOT_MEASURED)[0],
        )
        for part in parts
    ]  # fmt: skip
    return Table(
        caption=caption, head=(what, *HEAD), rows=rows, numbers=frozenset(range(1, len(HEAD) + 1))
    )


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


def _lost_cell(lost: int, measured: MeasurementsSection) -> str:
    return exact(lost) if measured.subscriptions else "not applicable"
