"""A run in parts: by topic, by size bucket, by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.distribution import latency_distribution
from pytest_loadtest.report.html import curves
from pytest_loadtest.report.html.blocks import Cell, ChartFigure, Fold, Paragraph, Table, measured_cells
from pytest_loadtest.report.sections import percentiles
from pytest_loadtest.values.quantities import format_duration, format_rate
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block

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
    yield _table("topic", caption, parts[:WORST], document)
    yield from _curves(run, "topics", "End-to-end latency by percentile, worst topics", parts, ())
    if len(parts) > WORST:
        caption = "All topics, worst first" if len(parts) <= MOST else f"The worst {exact(MOST)} topics; results.json has all"
        yield Fold(f"All {exact(len(parts))} topics", [_table("topic", caption, parts[:MOST], document)])


def buckets_chapter(run: str, document: Document) -> Iterator[Block]:
    """Every size bucket, in the order of the profile."""
    parts = (document["measurements"] or {}).get("buckets", ())
    if len(parts) < 2:
        return
    yield _table("size bucket", "Size buckets", parts, document)
    bounds = curves.objective_points(document["verdict"]["findings"], {"endToEndLatency"}, buckets=True)
    yield from _curves(run, "buckets", "End-to-end latency by percentile and size bucket", parts, bounds)


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
    chart = curves.curve_chart("End-to-end latency by percentile and stage", run, named)
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
        _lost(m["counts"]["lost"], m),
    )  # fmt: skip


def _worst_first(parts: Sequence[Document]) -> list[Document]:
    def badness(part: Document) -> tuple[float, float, float]:
        latency = part["endToEnd"]
        p99 = None if latency is None else latency["percentiles"]["p99"]
        return part["lost"], -1 if p99 is None else p99, -1 if latency is None else latency["maximum"]

    return sorted(parts, key=badness, reverse=True)


def _table(what: str, caption: str, parts: Sequence[Document], document: Document) -> Table:
    rows = [
        (
            part["name"], *(exact(part[key]) for key in ("offered", "sent", "received")), _lost(part["lost"], document["measurements"]),
            *measured_cells(percentiles(part["endToEnd"], "p50", "p99")), *measured_cells(percentiles(part["publish"], "p99")[:1]),
        )
        for part in parts
    ]  # fmt: skip
    return Table(caption=caption, head=(what, *HEAD), rows=rows, numbers=frozenset(range(1, len(HEAD) + 1)))


def _curves(run: str, name: str, title: str, parts: Sequence[Document], bounds: Sequence[Document]) -> Iterator[Block]:
    """None where results have no histograms of parts."""
    chart = curves.curve_chart(
        title, run, {part["name"]: latency_distribution(part["endToEnd"]) for part in parts[: len(curves.ROLES)]}, bounds
    )
    if chart is not None:
        yield ChartFigure(f"{run}-{name}", chart)


def _lost(lost: int, measured: Document) -> str:
    return exact(lost) if measured["subscriptions"] else "not applicable"
