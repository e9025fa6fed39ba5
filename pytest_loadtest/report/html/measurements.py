"""The latencies of a run: a table of all kinds, and their percentile curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import COUNTS
from pytest_loadtest.report import sections
from pytest_loadtest.report.hdr import latency_distribution
from pytest_loadtest.report.html import charts
from pytest_loadtest.report.html.blocks import NOT_MEASURED, Cell, ChartFigure, Fold, Paragraph, Table, absent, measured_cells
from pytest_loadtest.report.html.charts import TITLES
from pytest_loadtest.report.sections import percentiles
from pytest_loadtest.report.terminal import ALWAYS, COLUMNS, MOST_RANGES, latency_rows
from pytest_loadtest.values.quantities import format_duration, format_rate, format_size
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block


CURVES: Final = {
    "curve": ("Latency by percentile", ALWAYS),
    "broadcast": ("Broadcast: until all subscribers have a message, and from the first of them to the last", ("completion", "spread")),
    "opening": ("Opening connections", ("connect", "subscribe")),
    "lateness": ("Delayed messages: after due and before due", ("lateness", "earliness")),
}
"""Charts by their name: a title, and the kinds of latency in them."""


def latency_chapter(run: str, document: Document) -> Iterator[Block]:
    """:param run: the id of its place on the page."""
    measured = document["measurements"]
    if measured is None:
        yield absent("latency", "the run broke before anything could be measured")
        return
    yield _table(measured)
    for name, (title, kinds) in CURVES.items():
        if sections.only_connects(measured) if name == "curve" else not any(kind in measured["latencies"] for kind in kinds):
            continue
        found = charts.latency_curves(measured, document["verdict"]["findings"], run, kinds, title)
        yield absent(title) if found is None else ChartFigure(f"{run}-{name}", found)
    yield from (Paragraph(text) for _, text in sections.delay_facts(measured))
    yield from (Paragraph(text) for _, text in sections.connection_facts(document))


def _table(measured: Document) -> Table:
    """As in the terminal, with the smallest value too."""
    latencies, silent = measured["latencies"], sections.only_connects(measured)
    keys = latency_rows(latencies, () if silent else ALWAYS)
    head = ("latency", "min", *COLUMNS, "max", "mean", "samples", "never came")
    rows = [_row(TITLES[key], latencies[key]) for key in keys]
    return Table(caption="Latencies, from the intended time on", head=head, rows=rows, numbers=frozenset(range(1, len(head))))


def _row(title: str, latency: Document | None) -> tuple[str, ...]:
    if latency is None:
        return (title, *(NOT_MEASURED,) * (len(COLUMNS) + 5))
    return (
        title, format_duration(latency["minimum"]), *sections.percentiles(latency, *COLUMNS), format_duration(latency["mean"]),
        exact(latency["samples"]), exact(latency["neverCame"]),
    )  # fmt: skip


# What became of the messages of a run, as counts.

RANGES: Final = 200
"""Of lost messages that are listed; results.json has more."""


def messages_chapter(document: Document) -> Iterator[Block]:
    """Rates, counts, and which messages were lost."""
    measured = document["measurements"]
    if measured is None:
        yield absent("messages", "the run broke before anything could be measured")
    elif sections.only_connects(measured):
        yield Paragraph("messages: not applicable: the run had connections and no messages", "absent")
    else:
        yield _rate_table(measured)
        yield _count_table(measured, bool(document["profile"]["document"].get("checksum")))
        if silent := sections.silent(measured):
            yield Paragraph(f"Nothing arrived of {silent}.", "missed")
        yield from _lost_ranges(measured["lost"])


def _rate_table(measured: Document) -> Table:
    absence = "none" if measured["subscriptions"] else "nowhere (nothing subscribes)"
    throughput = absence if measured["throughput"] is None else format_rate(measured["throughput"])
    rows = [
        ("offered", format_rate(measured["rate"])), ("sent", format_rate(measured["publishRate"])), ("delivered", throughput),
        ("payload sent", f"{format_size(measured['bytesSent'] * 1e9 / measured['duration'])}/s"),
    ]  # fmt: skip
    return Table(caption="Rates over the measured phase", head=("what", "rate"), rows=rows, numbers=frozenset((1,)))


def _count_table(measured: Document, checksum: bool) -> Table:
    counts, subscriptions = measured["counts"], measured["subscriptions"]
    due = ("due", exact(counts["acked"] * subscriptions) if subscriptions else "not applicable", "deliveries: acked × subscriptions")
    rows = [*_count_rows(counts, inbound=False), due, *_count_rows(counts, inbound=True, applicable=bool(subscriptions))]
    looked = "" if checksum else "; corrupt: heads and sizes alone were looked at"
    caption = f"Messages of the measured phase{looked}" + ("" if subscriptions else "; nothing subscribes in this run")
    return Table(caption=caption, head=("what", "count", ""), rows=rows, numbers=frozenset((1,)))


def _count_rows(counts: Document, *, inbound: bool, applicable: bool = True) -> list[tuple[str, str, str]]:
    known = [row for row in COUNTS if row.inbound is inbound and row.key in counts]  # older results lack some
    texts = [exact(counts[row.key]) if applicable and counts[row.key] is not None else "not applicable" for row in known]
    return [(row.label, text, f"… {row.meaning}" if row.part else row.meaning) for row, text in zip(known, texts, strict=True)]


def _lost_ranges(ranges: Sequence[Document]) -> Iterator[Block]:
    if not ranges:
        return
    rows = [
        (exact(one["stream"]), str(one["topic"]), str(one["subscription"]), str(one["first"]), str(one["last"])) for one in ranges[:RANGES]
    ]
    more = f"; {exact(len(ranges) - RANGES)} more in results.json" if len(ranges) > RANGES else ""
    caption = f"Ranges of lost messages{more}"
    table = Table(caption=caption, head=("stream", "topic", "subscription", "first", "last"), rows=rows, numbers=frozenset((1, 2, 3, 4)))
    yield table if len(rows) <= MOST_RANGES else Fold(f"{exact(len(ranges))} ranges of lost messages", [table])


# A run in parts: by topic, by size bucket, by stage.

WORST: Final = 10
MOST: Final = 2000
"""Rows of all topics."""
HEAD: Final = ("due", "sent", "received", "lost", "end-to-end p50", "p99", "max", "publish p99")


def topics_chapter(run: str, document: Document) -> Iterator[Block]:
    """The worst ten, all of them on demand, and the curves of the worst."""
    parts = _worst_first((document["measurements"] or {}).get("topics", ()))
    if len(parts) < 2:
        return
    caption = f"The worst {min(WORST, len(parts))} of {exact(len(parts))} topics, by lost messages and then by p99"
    yield _part_table("topic", caption, parts[:WORST], document)
    yield from _part_curves(run, "topics", "End-to-end latency by percentile, worst topics", parts, ())
    if len(parts) > WORST:
        caption = "All topics, worst first" if len(parts) <= MOST else f"The worst {exact(MOST)} topics; results.json has all"
        yield Fold(f"All {exact(len(parts))} topics", [_part_table("topic", caption, parts[:MOST], document)])


def buckets_chapter(run: str, document: Document) -> Iterator[Block]:
    """Every size bucket, in the order of the profile."""
    parts = (document["measurements"] or {}).get("buckets", ())
    if len(parts) < 2:
        return
    yield _part_table("size bucket", "Size buckets", parts, document)
    bounds = charts.objective_points(document["verdict"]["findings"], {"endToEndLatency"}, buckets=True)
    yield from _part_curves(run, "buckets", "End-to-end latency by percentile and size bucket", parts, bounds)


def stages_chapter(run: str, document: Document) -> Iterator[Block]:
    """Each stage by the messages that were due in it."""
    found = document["stages"]
    if not found:
        return
    head = ("stage", "outcome", "for", "offered", "delivered", "end-to-end p50", "p99", "max", "lost")
    yield Table(caption="Stages", head=head, rows=[_stage(one) for one in found], numbers=frozenset(range(2, len(head))))
    yield from (Paragraph(f"stage {one['name']} {one['verdict']['reasons'][0]}") for one in found if one["measurements"] is None)
    begun = [stage for stage in found if stage["measurements"] is not None]
    named = {stage["name"]: latency_distribution(stage["measurements"]["latencies"]["endToEnd"]) for stage in begun}
    chart = charts.curve_chart("End-to-end latency by percentile and stage", run, named)
    if chart is not None:
        yield ChartFigure(f"{run}-stages", chart)


def _stage(stage: Document) -> tuple[str | Cell, ...]:
    m, outcome = stage["measurements"], stage["verdict"]["outcome"]
    if m is None:
        return (stage["name"], Cell(outcome, outcome), *("never began",) * 7)
    delivered = "nothing" if m["throughput"] is None else format_rate(m["throughput"])
    shown = measured_cells(percentiles(m["latencies"]["endToEnd"], "p50", "p99"))
    return (
        stage["name"], Cell(outcome, outcome), format_duration(m["duration"]), format_rate(m["rate"]), delivered, *shown,
        _lost_cell(m["counts"]["lost"], m),
    )  # fmt: skip


def _worst_first(parts: Sequence[Document]) -> list[Document]:
    def badness(part: Document) -> tuple[float, float, float]:
        latency = part["endToEnd"]
        p99 = None if latency is None else latency["percentiles"]["p99"]
        return part["lost"], -1 if p99 is None else p99, -1 if latency is None else latency["maximum"]

    return sorted(parts, key=badness, reverse=True)


def _part_table(what: str, caption: str, parts: Sequence[Document], document: Document) -> Table:
    rows = [
        (
            part["name"], *(exact(part[key]) for key in ("offered", "sent", "received")),
            _lost_cell(part["lost"], document["measurements"]),
            *measured_cells(percentiles(part["endToEnd"], "p50", "p99")), *measured_cells(percentiles(part["publish"], "p99")[:1]),
        )
        for part in parts
    ]  # fmt: skip
    return Table(caption=caption, head=(what, *HEAD), rows=rows, numbers=frozenset(range(1, len(HEAD) + 1)))


def _part_curves(run: str, name: str, title: str, parts: Sequence[Document], bounds: Sequence[Document]) -> Iterator[Block]:
    """None where results have no histograms of parts."""
    chart = charts.curve_chart(
        title, run, {part["name"]: latency_distribution(part["endToEnd"]) for part in parts[: len(charts.ROLES)]}, bounds
    )
    if chart is not None:
        yield ChartFigure(f"{run}-{name}", chart)


def _lost_cell(lost: int, measured: Document) -> str:
    return exact(lost) if measured["subscriptions"] else "not applicable"
