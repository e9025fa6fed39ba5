"""The chapter of a search for the highest rate: its answer, its steps, and rate against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.html.blocks import NOT_MEASURED, Cell, ChartFigure, Paragraph, Table
from pytest_loadtest.report.html.charts import Axis, Line, chart_mark, make_chart, objective_points
from pytest_loadtest.report.sections import answer, limit, percentiles, precise, step_purpose
from pytest_loadtest.values.quantities import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.find_results import ReadRun
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.measurements_section import LatencySection
    from pytest_loadtest.report.verdict_section import PeakSection, StepEntry


def search_chapter(name: str, run: ReadRun) -> Iterator[Block]:
    """Yield the blocks of the chapter; none if the run is no search. :param name: the id of the run's place on the page."""
    peak = run.document.peak
    if peak is None:
        return
    yield Paragraph(f"peak {answer(peak)}")
    yield Paragraph(limit(peak))
    if peak.implicit_only:
        yield Paragraph(
            "The profile has no objectives, so the implicit ones had to hold; there is no bound on latency.",
            "warning",
        )
    latencies = {number: _latency(document) for number, document in run.steps.items()}
    yield _table(peak, latencies)
    charts = {
        "search": _by_latency(peak, latencies, run.document),
        "delivered": _by_delivered(peak),
    }
    yield from (
        ChartFigure(f"{name}-{chart_name}", chart)
        for chart_name, chart in charts.items()
        if chart is not None
    )


def _latency(document: RunDocument) -> LatencySection | None:
    return None if document.measurements is None else document.measurements.latencies["endToEnd"]


def _table(peak: PeakSection, latencies: Mapping[int, LatencySection | None]) -> Table:
    head = (
        "step",
        "outcome",
        "rate",
        "for",
        "delivered",
        "end-to-end p50",
        "p99",
        "max",
        "purpose",
        "",
    )
    rows: list[tuple[str | Cell, ...]] = [
        (
            str(step.number), Cell(step.outcome, step.outcome), precise(step.rate, peak.unit), format_duration(step.duration),
            NOT_MEASURED if step.throughput is None else precise(step.throughput, "msg/s"),
            *percentiles(latencies.get(step.number), "p50", "p99", absent=NOT_MEASURED), step_purpose(step), step.text,
        )
        for step in peak.steps
    ]  # fmt: skip
    return Table(
        caption="Steps of the search, as they ran",
        head=head,
        rows=rows,
        numbers=frozenset(range(2, 8)),
    )


def _by_latency(
    peak: PeakSection, latencies: Mapping[int, LatencySection | None], document: RunDocument
) -> Chart | None:
    steps = _by_rate(peak)
    measured = [latencies.get(step.number) for step in steps]
    lines = [
        Line(
            "p50",
            "p50",
            [None if latency is None else latency.percentiles["p50"] for latency in measured],
        ),
        Line(
            "p99",
            "p99",
            [None if latency is None else latency.percentiles["p99"] for latency in measured],
        ),
        Line("max", "max", [None if latency is None else latency.maximum for latency in measured]),
    ]
    heights = [
        most if p99 is None else p99
        for p99, most in zip(lines[1].values, lines[2].values, strict=True)
    ]
    bounds = [
        {**point, "x": None}
        for point in objective_points(document.verdict.findings, {"endToEndLatency"})
    ]
    y, rates = Axis("end-to-end latency", "ns", "log"), [step.rate for step in steps]
    return make_chart("lines", "Rate and latency of each step", None, f"peak {answer(peak)}.", _rate(peak), y, rates, lines,
                      bounds=[*bounds, *_peak_line(peak)], marks=_marks(steps, heights))  # fmt: skip


def _by_delivered(peak: PeakSection) -> Chart | None:
    steps, title = _by_rate(peak), "Requested and delivered rate of each step"
    delivered = Line("delivered", "received", [step.throughput for step in steps])
    y, rates = Axis("delivered", "msg/s"), [step.rate for step in steps]
    return make_chart("lines", title, None, f"peak {answer(peak)}.", _rate(peak), y, rates, [delivered], bounds=_peak_line(peak),
                      marks=_marks(steps, delivered.values))  # fmt: skip


def _by_rate(peak: PeakSection) -> list[StepEntry]:
    return sorted(peak.steps, key=lambda step: (step.rate, step.number))


def _marks(steps: Sequence[StepEntry], heights: Sequence[float | None]) -> list[dict[str, Any]]:
    return [
        chart_mark(f"step {step.number}: {step.outcome}", step.outcome, x=step.rate, y=height)
        for step, height in zip(steps, heights, strict=True)
    ]


def _rate(peak: PeakSection) -> Axis:
    return Axis("requested rate", peak.unit)


def _peak_line(peak: PeakSection) -> list[dict[str, Any]]:
    return (
        []
        if peak.rate is None
        else [chart_mark(f"peak {precise(peak.rate, peak.unit)}", "met", x=peak.rate)]
    )
