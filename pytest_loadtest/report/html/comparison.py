"""A run beside its baseline: the figures of both, what differs, both curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.metrics.histogram import SUB_BITS
from pytest_loadtest.report.compared import format_figure
from pytest_loadtest.report.distribution import counts_distribution, decode_counts, latency_distribution
from pytest_loadtest.report.html import curves
from pytest_loadtest.report.html.blocks import Cell, ChartFigure, Listing, Paragraph, Table, absent, measured_cells
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block


def baseline_chapter(run: str, document: Document) -> Iterator[Block]:
    """:param run: the id of its place on the page."""
    found = document.get("comparison")  # older results have none
    if found is None:
        return
    if found["notes"]:
        yield Listing("Notes", found["notes"])
    if found["baseline"] is None:
        yield absent("the baseline")
        return
    yield Paragraph(f"baseline {found['baseline']['test']} · {found['baseline']['outcome']} · {found['baseline']['results']}")
    if not found["comparable"]:
        forced = "; judged all the same, as was asked for" if found["forced"] else ""
        yield Paragraph(f"The two runs are not comparable{forced}.", "warning")
    yield _figures(found)
    yield from _differences(found)
    yield from _curves(run, document)


def _figures(found: Document) -> Table:
    head = ("figure", "baseline", "now", "change", "interval", "better", "outcome")
    rows = [
        (
            row["name"], *measured_cells(format_figure(row[key], row["unit"]) for key in ("baseline", "now")), _change(row["change"]),
            "not known" if row["low"] is None else f"{_change(row['low'])} to {_change(row['high'])}", row["better"],
            "not judged" if row["outcome"] is None else Cell(row["outcome"], row["outcome"]),
        )
        for row in found["rows"]
    ]  # fmt: skip
    blocks = found["blocks"]
    noise = "; noise is not known" if blocks is None else f"; intervals of {format_value(blocks['level'], 'ratio')}"
    return Table(caption=f"Figures of both runs{noise}", head=head, rows=rows, numbers=frozenset((1, 2, 3, 4)))


def _change(change: float | None) -> str:
    return "not known" if change is None else f"{change * 100:+.1f} %"


def _differences(found: Document) -> Iterator[Block]:
    rows = [(one["name"], one["baseline"], one["now"], "yes" if one["decides"] else "no") for one in found["differences"]]
    if rows:
        yield Table(caption="What differs", head=("what", "baseline", "now", "makes them incomparable"), rows=rows)


def _curves(run: str, document: Document) -> Iterator[Block]:
    """Of the baseline what came is known, not what never did."""
    measured = document["measurements"]
    both = {
        "baseline": counts_distribution(decode_counts(document["comparison"]["baseline"]["histogram"]), bits=SUB_BITS),
        "now": None if measured is None else latency_distribution(measured["latencies"]["endToEnd"]),
    }
    chart = curves.curve_chart("End-to-end latency by percentile, beside the baseline", run, both)
    yield absent("curves of both runs") if chart is None else ChartFigure(f"{run}-baseline", chart)
