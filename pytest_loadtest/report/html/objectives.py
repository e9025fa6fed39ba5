"""Objectives as tables, in the words of the terminal, and a chart for each that holds in windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.document import MISSES_FIRST
from pytest_loadtest.report.html.blocks import Cell, ChartFigure, Fold, Table
from pytest_loadtest.report.html.charts import (
    TIME,
    Axis,
    Line,
    chart_mark,
    make_chart,
    objective_levels,
)
from pytest_loadtest.report.sections import all_findings, cause, has_number, objective_name
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import counted, exact, format_value
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.verdict_section import FindingEntry, WindowsSection


HEAD: Final = ("objective", "outcome", "observed", "bound", "", "samples")


def objectives_table(document: RunDocument) -> Table | None:
    """Return the objectives of a run and its stages, misses first; None if nothing was judged."""
    findings = sorted(
        all_findings(document), key=lambda entry: MISSES_FIRST.index(entry[1].outcome)
    )
    rows = [objective_row(prefix, finding) for prefix, finding in findings]
    return (
        Table(
            caption="Objectives, misses first", head=HEAD, rows=rows, numbers=frozenset((2, 3, 5))
        )
        if rows
        else None
    )


def objective_row(prefix: str, finding: FindingEntry) -> tuple[str | Cell, ...]:
    """Return name, outcome, observed value, bound, excess or why there is no number, samples. :param prefix: of the name."""
    shown, samples, known = finding.shown, finding.samples, has_number(finding)
    return (
        prefix + objective_name(finding), Cell(finding.outcome, finding.outcome),
        shown.observed if known else "not known", shown.bound, shown.over if known else cause(finding),
        "not counted" if samples is None else exact(samples),
    )  # fmt: skip


def missed_texts(document: RunDocument) -> Sequence[str]:
    """Return a sentence for each miss."""
    return [
        prefix + finding.text
        for prefix, finding in all_findings(document)
        if finding.outcome is Outcome.MISSED
    ]


# Objectives that hold in windows of a run: the observed value of each window.

AXES: Final = {
    "ns": Axis("observed", "ns", "log"),
    "ratio": Axis("observed", "share"),
    "msg/s": Axis("observed", "msg/s"),
}
MARKED: Final = 200
"""The largest number of windows with a mark in a chart."""


def windows_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield a chart and a table of each objective that has windows. :param run: the id of its place on the page."""
    judged = [
        (finding, finding.windows)
        for finding in document.verdict.findings
        if finding.windows is not None
    ]
    for number, (finding, windows) in enumerate(judged, 1):
        chart = _chart(run, finding, windows)
        if chart is not None:
            yield ChartFigure(f"{run}-windows-{number}", chart)
        yield from _table(finding, windows)


def _chart(run: str, finding: FindingEntry, windows: WindowsSection) -> Chart | None:
    listed = windows.listed
    values = Line(finding.name, "a", [window.observed for window in listed])
    marks = [
        chart_mark(window.outcome, window.outcome, x=window.start / SECOND, y=window.observed)
        for window in listed
        if window.outcome is not Outcome.MET
    ]
    axis = AXES.get(finding.unit, Axis("observed", ""))
    starts = [window.start / SECOND for window in listed]
    title, bounds = f"{finding.name} in each window", objective_levels(finding)
    return make_chart(
        "lines",
        title,
        run,
        _windows_text(windows),
        TIME,
        axis,
        starts,
        [values],
        bounds=bounds,
        marks=marks[:MARKED],
    )


def _windows_text(windows: WindowsSection) -> str:
    counts = {
        "missed": windows.missed,
        "generator-limited": windows.generator_limited,
        "no data": windows.no_data,
    }
    outcomes = (
        ", ".join(f"{exact(count)} {outcome}" for outcome, count in counts.items() if count)
        or "all met"
    )
    allowed = (
        f"; {format_value(windows.violations, 'ratio')} of them may miss"
        if windows.violations
        else ""
    )
    part = (
        "" if len(windows.listed) == windows.number else "; only those that were not met are shown"
    )
    return f"{counted(windows.number, 'window')} of {format_duration(windows.width)}: {outcomes}{allowed}{part}."


def _table(finding: FindingEntry, windows: WindowsSection) -> Iterator[Block]:
    """Yield a table of the windows that were not met."""
    rows = [
        (format_duration(window.start), format_duration(window.end),
         "not known" if window.observed is None else format_value(window.observed, finding.unit), Cell(window.outcome, window.outcome))
        for window in windows.listed if window.outcome is not Outcome.MET
    ]  # fmt: skip
    if rows:
        table = Table(caption=f"{finding.name}: windows that were not met", head=("from", "until", "observed", "outcome"), rows=rows,
                      numbers=frozenset((1, 2)))  # fmt: skip
        yield Fold(
            f"{counted(len(rows), 'window')} of {finding.name} that {'was' if len(rows) == 1 else 'were'} not met",
            [table],
        )
