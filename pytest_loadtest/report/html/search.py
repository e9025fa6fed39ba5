"""The chapter of a search for the highest rate: its answer, its steps, and rate against latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.figures import latency_of
from pytest_loadtest.report.html.blocks import NOT_MEASURED, Block, ChartFigure, Paragraph
from pytest_loadtest.report.html.charts import (
    Axis,
    Chart,
    Line,
    chart_mark,
    latency_lines,
    make_chart,
    objective_points,
)
from pytest_loadtest.report.sections import (
    answer,
    limit,
    percentiles,
    precise,
    step_cells,
    step_purpose,
)
from pytest_loadtest.report.tables import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.find_results import ReadRun
    from pytest_loadtest.report.measurements_section import LatencySection
    from pytest_loadtest.report.verdict_section import PeakSection, StepEntry


def search_chapter(name: str, run: ReadRun) -> Iterator[Block]:
    """Yield the blocks of the chapter; none if the run is no search.

    :param name: the id of the run's place on the page.
    """
    peak = run.document.peak
    if peak is None:
        return
    yield Paragraph(f"peak {answer(peak)}")
    yield Paragraph(limit(peak))
    if peak.implicit_only:
        text = "The profile has no objectives, so the implicit ones had to hold"
        yield Paragraph(f"{text}; there is no bound on latency.", "warning")
    latencies = {number: latency_of(step, "endToEnd") for number, step in run.steps.items()}
    yield _table(peak, latencies)
    charts = {
        "search": _by_latency(peak, latencies, run.document),
        "delivered": _by_delivered(peak),
    }
    for chart_name, chart in charts.items():
        if chart is not None:
            yield ChartFigure(f"{name}-{chart_name}", chart)


def _table(peak: PeakSection, latencies: Mapping[int, LatencySection | None]) -> Table:
    rows = []
    for step in peak.steps:
        latency = latencies.get(step.number)
        cells: tuple[str | Cell, ...] = (
            str(step.number),
            Cell(step.outcome, step.outcome),
            *step_cells(step, peak.unit, NOT_MEASURED),
            *percentiles(latency, "p50", "p99", absent=NOT_MEASURED),
        )
        rows.append((*cells, step_purpose(step), step.text))
    head = (
        "step", "outcome", "rate", "for", "delivered", "end-to-end p50", "p99", "max",
        "purpose", "reason",
    )  # fmt: skip
    return Table(
        caption="Steps of the search, as they ran", head=head, align="<<>>>>>><<", rows=rows
    )


def _by_latency(
    peak: PeakSection, latencies: Mapping[int, LatencySection | None], document: RunDocument
) -> Chart | None:
    steps = _by_rate(peak)
    lines = latency_lines([latencies.get(step.number) for step in steps], ("p50", "p99"))
    _, p99, largest = (line.values for line in lines)
    heights = []
    for step_p99, step_largest in zip(p99, largest, strict=True):
        heights.append(step_largest if step_p99 is None else step_p99)
    points = objective_points(document.verdict.findings, {"endToEndLatency"})
    bounds = [{**point, "x": None} for point in points]
    return make_chart(
        "lines",
        "Rate and latency of each step",
        None,
        f"peak {answer(peak)}.",
        _rate(peak),
        Axis("end-to-end latency", "ns", "log"),
        [step.rate for step in steps],
        lines,
        bounds=[*bounds, *_peak_line(peak)],
        marks=_marks(steps, heights),
    )


def _by_delivered(peak: PeakSection) -> Chart | None:
    steps = _by_rate(peak)
    delivered = Line("delivered", "received", [step.throughput for step in steps])
    return make_chart(
        "lines",
        "Requested and delivered rate of each step",
        None,
        f"peak {answer(peak)}.",
        _rate(peak),
        Axis("delivered", "msg/s"),
        [step.rate for step in steps],
        [delivered],
        bounds=_peak_line(peak),
        marks=_marks(steps, delivered.values),
    )


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
    if peak.rate is None:
        return []
    return [chart_mark(f"peak {precise(peak.rate, peak.unit)}", "met", x=peak.rate)]
