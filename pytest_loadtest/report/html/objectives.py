"""Charts and tables of objectives that hold in windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.html.blocks import Block, ChartFigure, Fold
from pytest_loadtest.report.html.charts import (
    TIME,
    Axis,
    Chart,
    Line,
    chart_mark,
    make_chart,
    objective_levels,
)
from pytest_loadtest.report.tables import Cell, Table
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import counted, exact, format_value
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.verdict_section import FindingEntry, WindowsSection


AXES: Final = {
    "ns": Axis("observed", "ns", "log"),
    "ratio": Axis("observed", "share"),
    "msg/s": Axis("observed", "msg/s"),
}
MARKED: Final = 200
"""The largest number of windows with a mark in a chart."""


def windows_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield a chart and a table of each objective that has windows.

    :param run: the id of its place on the page.
    """
    number = 0
    tables: list[Block] = []
    for finding in document.verdict.findings:
        if finding.windows is None:
            continue
        number += 1
        chart = _chart(run, finding, finding.windows)
        if chart is not None:
            yield ChartFigure(f"{run}-windows-{number}", chart)
        tables += _table(finding, finding.windows)
    yield from tables


def _chart(run: str, finding: FindingEntry, windows: WindowsSection) -> Chart | None:
    starts = []
    values = []
    marks = []
    for window in windows.listed:
        start = window.start / SECOND
        starts.append(start)
        values.append(window.observed)
        if window.outcome is not Outcome.MET:
            marks.append(chart_mark(window.outcome, window.outcome, x=start, y=window.observed))
    return make_chart(
        "lines",
        f"{finding.name} in each window",
        run,
        _windows_text(windows),
        TIME,
        AXES.get(finding.unit, Axis("observed", "")),
        starts,
        [Line(finding.name, "a", values)],
        bounds=objective_levels(finding),
        marks=marks[:MARKED],
    )


def _windows_text(windows: WindowsSection) -> str:
    counts = {
        "missed": windows.missed,
        "generator-limited": windows.generator_limited,
        "no data": windows.no_data,
    }
    outcomes = [f"{exact(count)} {outcome}" for outcome, count in counts.items() if count]
    text = f"{counted(windows.number, 'window')} of {format_duration(windows.width)}"
    text += f": {', '.join(outcomes) or 'all met'}"
    if windows.violations:
        text += f"; {format_value(windows.violations, 'ratio')} of them may miss"
    if len(windows.listed) < windows.number:
        text += "; only those that were not met are shown"
    return f"{text}."


def _table(finding: FindingEntry, windows: WindowsSection) -> Iterator[Block]:
    """Yield a table of the windows that were not met."""
    rows = []
    for window in windows.listed:
        if window.outcome is Outcome.MET:
            continue
        observed = "not known"
        if window.observed is not None:
            observed = format_value(window.observed, finding.unit)
        span = (format_duration(window.start), format_duration(window.end))
        rows.append((*span, observed, Cell(window.outcome, window.outcome)))
    if rows:
        caption = f"{finding.name}: windows that were not met"
        head = ("from", "until", "observed", "outcome")
        were = "was" if len(rows) == 1 else "were"
        yield Fold(
            f"{counted(len(rows), 'window')} of {finding.name} that {were} not met",
            [Table(caption=caption, head=head, align="<>><", rows=rows)],
        )
