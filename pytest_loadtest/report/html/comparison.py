"""The chapters that compare runs: one with its baseline, and the trend of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.histogram import SUB_BITS
from pytest_loadtest.report.hdr import counts_distribution, decode_counts, latency_distribution
from pytest_loadtest.report.html import charts
from pytest_loadtest.report.html.blocks import NOT_MEASURED, Cell, Chapter, ChartFigure, Fold, Listing, Paragraph, Table, absent
from pytest_loadtest.report.html.charts import Axis, Line, chart_mark, make_chart
from pytest_loadtest.report.html.overview import format_started
from pytest_loadtest.report.sections import format_figure, titled
from pytest_loadtest.values.wording import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.verdict_section import BaselineSection, ComparisonSection


def baseline_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield the comparison of a run with its baseline. :param run: the id of its place on the page."""
    section = document.comparison
    if section is None:
        return
    if section.notes:
        yield Listing("Notes", section.notes)
    if section.baseline is None:
        yield absent("the baseline")
        return
    yield Paragraph(f"baseline {section.baseline.test} · {section.baseline.outcome} · {section.baseline.results}")
    if not section.comparable:
        forced = "; judged all the same, as was asked for" if section.forced else ""
        yield Paragraph(f"The two runs are not comparable{forced}.", "warning")
    yield _figures(section)
    yield from _differences(section)
    yield from _curves(run, document, section.baseline)


def _figures(section: ComparisonSection) -> Table:
    head = ("figure", "baseline", "now", "change", "interval", "better", "outcome")
    rows = [
        (
            row.name, *(format_figure(value, row.unit, NOT_MEASURED) for value in (row.baseline, row.now)), _change(row.change),
            "not known" if row.low is None else f"{_change(row.low)} to {_change(row.high)}", row.better,
            "not judged" if row.outcome is None else Cell(row.outcome, row.outcome),
        )
        for row in section.rows
    ]  # fmt: skip
    blocks = section.blocks
    noise = "; noise is not known" if blocks is None else f"; intervals of {format_value(blocks.level, 'ratio')}"
    return Table(caption=f"Figures of both runs{noise}", head=head, rows=rows, numbers=frozenset((1, 2, 3, 4)))


def _change(change: float | None) -> str:
    return "not known" if change is None else f"{change * 100:+.1f} %"


def _differences(section: ComparisonSection) -> Iterator[Block]:
    rows = [(one.name, one.baseline, one.now, "yes" if one.decides else "no") for one in section.differences]
    if rows:
        yield Table(caption="What differs", head=("what", "baseline", "now", "makes them incomparable"), rows=rows)


def _curves(run: str, document: RunDocument, baseline: BaselineSection) -> Iterator[Block]:
    """Yield the curves of both runs. The baseline's has only messages that came: the number of the others is not kept."""
    measured = document.measurements
    both = {
        "baseline": counts_distribution(decode_counts(baseline.histogram), bits=SUB_BITS),
        "now": None if measured is None else latency_distribution(measured.latencies["endToEnd"]),
    }
    chart = charts.curve_chart("End-to-end latency by percentile, beside the baseline", run, both)
    yield absent("curves of both runs") if chart is None else ChartFigure(f"{run}-baseline", chart)


# How the figures of the page's tests went from run to run, out of a history file.

MOST: Final = 300
"""Runs of a test that are shown: the newest."""
RUNS: Final = Axis("run, the newest last", "count")
AXES: Final = {"ns": Axis("observed", "ns"), "ratio": Axis("observed", "share"), "msg/s": Axis("observed", "msg/s")}


def trend_chapters(series: Sequence[dict[str, Any]]) -> list[Chapter]:
    """None, or the one about them. :param series: of each test, as :func:`pytest_loadtest.report.history.build_trend` makes them."""
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
    first, last = (format_started(one["started"][end]) for end in (0, -1))
    yield Paragraph(f"{titled(one['test'], one['profile'], one['workload'])}: {many}, {first} to {last}.")
    if one["changed"]:
        yield Listing(
            "Runs that cannot be compared with the one before", [f"run {change['run'] + 1}: {change['what']}" for change in one["changed"]]
        )
    yield _figure_table(one)
    if len(one["started"]) > 1:
        charts = [(row, _trend_chart(row, one)) for row in one["rows"]]
        drawn = [(row, ChartFigure(f"{name}-{number}", found)) for number, (row, found) in enumerate(charts, 1) if found is not None]
        yield from (figure for row, figure in drawn if _bounded(row))
        if more := [figure for row, figure in drawn if not _bounded(row)]:
            yield Fold("figures without an objective", more)
    yield Fold(f"all {many}", [_runs(one)])


def _bounded(row: dict[str, Any]) -> bool:
    return row["minimum"] is not None or row["maximum"] is not None


def _trend_chart(row: dict[str, Any], one: dict[str, Any]) -> Chart | None:
    known = [value for value in row["values"] if value is not None]
    if not known:
        return None
    sides = (("at least", row["minimum"]), ("at most", row["maximum"]))
    levels = [chart_mark(f"{word} {format_figure(value, row['unit'])}", "", y=value) for word, value in sides if value is not None]
    seen = enumerate(zip(one["outcomes"], row["values"], strict=True), 1)
    marks = [chart_mark(outcome, outcome, x=at, y=value) for at, (outcome, value) in seen if outcome != "met" and value is not None]
    ends = (format_figure(value, row["unit"]) for value in (known[-1], min(known), max(known)))
    said = "newest {}, lowest {}, highest {}".format(*ends)
    axis, xs = AXES.get(row["unit"], Axis("observed", "")), list(range(1, len(row["values"]) + 1))
    return make_chart("lines", f"{row['name']} from run to run", None, f"{said}.", RUNS, axis, xs, [Line(row["name"], "a", row["values"])],
                 bounds=levels, marks=marks)  # fmt: skip


def _figure_table(one: dict[str, Any]) -> Table:
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
