"""The latencies of a run: a table of all kinds, and their percentile curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report import sections
from pytest_loadtest.report.html import curves
from pytest_loadtest.report.html.blocks import NOT_MEASURED, ChartFigure, Paragraph, Table, absent, told
from pytest_loadtest.report.html.curves import TITLES
from pytest_loadtest.report.terminal import ALWAYS, COLUMNS, latency_rows
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        found = curves.latency_curves(measured, document["verdict"]["findings"], run, kinds, title)
        yield absent(title) if found is None else ChartFigure(f"{run}-{name}", found)
    yield from (Paragraph(text) for text in told(sections.delays(measured)))
    yield from (Paragraph(text) for text in told(sections.connections(document)))


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
