"""The search for the highest rate: its answer, its steps, and rate against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.report.html.blocks import NOT_MEASURED, Cell, ChartFigure, Paragraph, Table, measured_cells
from pytest_loadtest.report.html.charts import Axis, Line, chart_bound, chart_mark, make_chart, objective_points
from pytest_loadtest.report.sections import answer, limit, percentiles, precise
from pytest_loadtest.values.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.find_results import ReadRun
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart


def search_chapter(name: str, run: ReadRun) -> Iterator[Block]:
    """:param name: the id of the run's place on the page."""
    peak = run.document.get("peak")
    if peak is None:
        return
    yield Paragraph(f"peak {answer(peak)}")
    yield Paragraph(limit(peak))
    if peak.get("implicitOnly"):
        yield Paragraph("The profile has no objectives, so the implicit ones had to hold; no latency was asked for.", "warning")
    latencies = {number: _latency(document) for number, document in run.steps.items()}
    yield _table(peak, latencies)
    found = {"search": _by_latency(peak, latencies, run.document), "delivered": _by_delivered(peak)}
    yield from (ChartFigure(f"{name}-{chart_name}", one) for chart_name, one in found.items() if one is not None)


def _latency(document: Document) -> Document | None:
    measured = document["measurements"]
    found: Document | None = None if measured is None else measured["latencies"]["endToEnd"]
    return found


def _table(peak: Document, latencies: Mapping[int, Document | None]) -> Table:
    head = ("step", "outcome", "rate", "for", "delivered", "end-to-end p50", "p99", "max", "purpose", "")
    rows = [
        (
            str(step["number"]), Cell(step["outcome"], step["outcome"]), precise(step["rate"], peak["unit"]),
            format_duration(step["duration"]),
            NOT_MEASURED if step["throughput"] is None else precise(step["throughput"], "msg/s"),
            *measured_cells(percentiles(latencies.get(step["number"]), "p50", "p99")),
            step["purpose"] + (", ended early" if step["early"] else ""), step["text"],
        )
        for step in peak["steps"]
    ]  # fmt: skip
    return Table(caption="Steps of the search, as they ran", head=head, rows=rows, numbers=frozenset(range(2, 8)))


def _by_latency(peak: Document, latencies: Mapping[int, Document | None], document: Document) -> Chart | None:
    steps = sorted(peak["steps"], key=lambda step: (step["rate"], step["number"]))
    found = [latencies.get(step["number"]) for step in steps]
    lines = [
        Line("p50", "p50", [None if latency is None else latency["percentiles"]["p50"] for latency in found]),
        Line("p99", "p99", [None if latency is None else latency["percentiles"]["p99"] for latency in found]),
        Line("max", "max", [None if latency is None else latency["maximum"] for latency in found]),
    ]
    marks = [
        chart_mark(f"step {step['number']}: {step['outcome']}", step["outcome"], x=step["rate"], y=most if p99 is None else p99)
        for step, p99, most in zip(steps, lines[1].values, lines[2].values, strict=True)
    ]
    bounds = [{**one, "x": None} for one in objective_points(document["verdict"]["findings"], {"endToEndLatency"})]
    y = Axis("end-to-end latency", "ns", "log")
    rates = [step["rate"] for step in steps]
    return make_chart("lines", "Rate and latency of each step", None, f"peak {answer(peak)}.", _rate(peak), y, rates, lines,
                 bounds=[*bounds, *_found(peak)], marks=marks)  # fmt: skip


def _by_delivered(peak: Document) -> Chart | None:
    steps = sorted(peak["steps"], key=lambda step: (step["rate"], step["number"]))
    delivered = Line("delivered", "received", [step["throughput"] for step in steps])
    marks = [
        chart_mark(f"step {step['number']}: {step['outcome']}", step["outcome"], x=step["rate"], y=step["throughput"]) for step in steps
    ]
    y, rates = Axis("delivered", "msg/s"), [step["rate"] for step in steps]
    return make_chart("lines", "Rate asked and delivered of each step", None, f"peak {answer(peak)}.", _rate(peak), y, rates, [delivered],
                 bounds=_found(peak), marks=marks)  # fmt: skip


def _rate(peak: Document) -> Axis:
    return Axis("rate asked", peak["unit"])


def _found(peak: Document) -> list[Document]:
    return [] if peak["rate"] is None else [chart_bound(f"peak {precise(peak['rate'], peak['unit'])}", "met", x=peak["rate"])]
