"""Objectives as tables: observed beside bound, in the words of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.document import MISSES_FIRST
from pytest_loadtest.report.html.blocks import Cell, ChartFigure, Fold, Table
from pytest_loadtest.report.html.charts import TIME, Axis, Line, chart_mark, make_chart, objective_levels
from pytest_loadtest.report.sections import all_findings
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import exact, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart


HEAD: Final = ("objective", "outcome", "observed", "bound", "", "samples")


def objectives_table(document: Document) -> Table | None:
    """Those of a run and its stages, misses first; None where nothing was judged."""
    rows = [
        objective_row(where, finding)
        for where, finding in sorted(all_findings(document), key=lambda one: MISSES_FIRST.index(one[1]["outcome"]))
    ]
    return Table(caption="Objectives, misses first", head=HEAD, rows=rows, numbers=frozenset((2, 3, 5))) if rows else None


def objective_row(where: str, finding: Document) -> tuple[str | Cell, ...]:
    """Name, outcome, observed, bound, how far over or why there is no number, samples. :param where: what stands before its name."""
    name = finding["name"] + (" (implicit)" if finding["implicit"] else "")
    shown, samples = finding["shown"], finding["samples"]
    told = finding["observed"] is not None or shown["over"]  # or so many never came that there is no number
    return (
        where + name, Cell(finding["outcome"], finding["outcome"]),
        shown["observed"] if told else "not known", shown["bound"], shown["over"] if told else finding["text"].partition(": ")[2],
        "not counted" if samples is None else exact(samples),
    )  # fmt: skip


def missed_texts(document: Document) -> Sequence[str]:
    """A sentence for each miss."""
    return [where + finding["text"] for where, finding in all_findings(document) if finding["outcome"] == "missed"]


# Objectives that hold in windows of a run: what was observed in each window.

AXES: Final = {"ns": Axis("observed", "ns", "log"), "ratio": Axis("observed", "share"), "msg/s": Axis("observed", "msg/s")}
MARKED: Final = 200
"""Windows that are told by name in a chart."""


def windows_chapter(run: str, document: Document) -> Iterator[Block]:
    """A chart and a table of each objective that has windows. :param run: the id of its place on the page."""
    judged = [finding for finding in document["verdict"]["findings"] if finding.get("windows")]  # older results have none
    for number, finding in enumerate(judged, 1):
        found = _chart(run, finding)
        if found is not None:
            yield ChartFigure(f"{run}-windows-{number}", found)
        yield from _table(finding)


def _chart(run: str, finding: Document) -> Chart | None:
    listed = finding["windows"]["listed"]
    values = Line(finding["name"], "a", [one["observed"] for one in listed])
    marks = [
        chart_mark(one["outcome"], one["outcome"], x=one["start"] / SECOND, y=one["observed"]) for one in listed if one["outcome"] != "met"
    ]
    axis = AXES.get(finding["unit"], Axis("observed", ""))
    starts = [one["start"] / SECOND for one in listed]
    title, bounds = f"{finding['name']} in each window", objective_levels(finding)
    return make_chart("lines", title, run, _said(finding), TIME, axis, starts, [values], bounds=bounds, marks=marks[:MARKED])


def _said(finding: Document) -> str:
    windows = finding["windows"]
    counts = {"missed": windows["missed"], "generator-limited": windows["generatorLimited"], "no data": windows["noData"]}
    said = ", ".join(f"{exact(count)} {outcome}" for outcome, count in counts.items() if count) or "all met"
    allowed = f"; {format_value(windows['violations'], 'ratio')} of them may miss" if windows["violations"] else ""
    part = "" if len(windows["listed"]) == windows["number"] else "; only those that were not met are shown"
    return f"{exact(windows['number'])} windows of {format_duration(windows['width'])}: {said}{allowed}{part}."


def _table(finding: Document) -> Iterator[Block]:
    """Of those that were not met."""
    rows = [
        (format_duration(one["start"]), format_duration(one["end"]),
         "not known" if one["observed"] is None else format_value(one["observed"], finding["unit"]), Cell(one["outcome"], one["outcome"]))
        for one in finding["windows"]["listed"] if one["outcome"] != "met"
    ]  # fmt: skip
    if rows:
        table = Table(caption=f"{finding['name']}: windows that were not met", head=("from", "until", "observed", "outcome"), rows=rows,
                      numbers=frozenset((1, 2)))  # fmt: skip
        yield Fold(f"{exact(len(rows))} windows of {finding['name']} that were not met", [table])
