"""How the figures of the page's tests went from run to run, out of a history file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.compared import format_figure
from pytest_loadtest.report.html.blocks import Cell, Chapter, ChartFigure, Fold, Listing, Paragraph, Table
from pytest_loadtest.report.html.charts import Axis, Line, chart_bound, chart_mark, make_chart
from pytest_loadtest.report.html.overview import format_started
from pytest_loadtest.report.sections import titled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart

MOST: Final = 300
"""Runs of a test that are shown: the newest."""
RUNS: Final = Axis("run, the newest last", "count")
AXES: Final = {"ns": Axis("observed", "ns"), "ratio": Axis("observed", "share"), "msg/s": Axis("observed", "msg/s")}


def trend_chapters(series: Sequence[dict[str, Any]]) -> list[Chapter]:
    """None, or the one about them. :param series: of each test, as :func:`pytest_loadtest.report.trend.build_trend` makes them."""
    blocks = [block for number, one in enumerate(series, 1) for block in _blocks(f"trend-{number}", _newest(one))]
    return [Chapter("trend", "From run to run", blocks)] if blocks else []


def _newest(one: dict[str, Any]) -> dict[str, Any]:
    """Of a long history the end."""
    left = max(len(one["started"]) - MOST, 0)
    return one | {
        "started": one["started"][left:],
        "outcomes": one["outcomes"][left:],
        "changed": [change | {"run": change["run"] - left} for change in one["changed"] if change["run"] >= left],
        "rows": [row | {"values": row["values"][left:]} for row in one["rows"]],
    }


def _blocks(name: str, one: dict[str, Any]) -> Iterator[Block]:
    many = f"{len(one['started'])} {'run' if len(one['started']) == 1 else 'runs'}"
    yield Paragraph(
        f"{titled(one['test'], one['profile'], one['workload'])}: {many}, {format_started(one['started'][0])} to {format_started(one['started'][-1])}."
    )
    if one["changed"]:
        yield Listing(
            "Runs that cannot be compared with the one before", [f"run {change['run'] + 1}: {change['what']}" for change in one["changed"]]
        )
    yield _table(one)
    if len(one["started"]) > 1:
        charts = [(row, _chart(row, one)) for row in one["rows"]]
        drawn = [(row, ChartFigure(f"{name}-{number}", found)) for number, (row, found) in enumerate(charts, 1) if found is not None]
        yield from (figure for row, figure in drawn if _bounded(row))
        if more := [figure for row, figure in drawn if not _bounded(row)]:
            yield Fold("figures without an objective", more)
    yield Fold(f"all {many}", [_runs(one)])


def _bounded(row: dict[str, Any]) -> bool:
    return row["minimum"] is not None or row["maximum"] is not None


def _chart(row: dict[str, Any], one: dict[str, Any]) -> Chart | None:
    known = [value for value in row["values"] if value is not None]
    if not known:
        return None
    sides = (("at least", row["minimum"]), ("at most", row["maximum"]))
    levels = [chart_bound(f"{word} {format_figure(value, row['unit'])}", "", y=value) for word, value in sides if value is not None]
    seen = enumerate(zip(one["outcomes"], row["values"], strict=True), 1)
    marks = [chart_mark(outcome, outcome, x=at, y=value) for at, (outcome, value) in seen if outcome != "met" and value is not None]
    ends = (format_figure(value, row["unit"]) for value in (known[-1], min(known), max(known)))
    said = "newest {}, lowest {}, highest {}".format(*ends)
    axis, xs = AXES.get(row["unit"], Axis("observed", "")), list(range(1, len(row["values"]) + 1))
    return make_chart("lines", f"{row['name']} from run to run", None, f"{said}.", RUNS, axis, xs, [Line(row["name"], "a", row["values"])],
                 bounds=levels, marks=marks)  # fmt: skip


def _table(one: dict[str, Any]) -> Table:
    rows = []
    for row in one["rows"]:
        known = [value for value in row["values"] if value is not None]
        if known:
            rows.append((row["name"], *(format_figure(value, row["unit"]) for value in (row["values"][-1], min(known), max(known)))))
    return Table(
        caption=f"Figures of {one['test']}", head=("figure", "newest", "lowest", "highest"), rows=rows, numbers=frozenset((1, 2, 3))
    )


def _runs(one: dict[str, Any]) -> Table:
    rows = [
        (str(number), format_started(started), Cell(outcome, outcome))
        for number, (started, outcome) in enumerate(zip(one["started"], one["outcomes"], strict=True), 1)
    ]
    return Table(caption=f"Runs of {one['test']}", head=("run", "started", "outcome"), rows=rows, numbers=frozenset((0,)))
