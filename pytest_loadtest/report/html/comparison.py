"""The chapters that compare runs: one with its baseline, and the trend of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.histogram import SUB_BITS
from pytest_loadtest.report.hdr import counts_distribution, decode_counts, latency_distribution
from pytest_loadtest.report.history import trend_title
from pytest_loadtest.report.html import charts
from pytest_loadtest.report.html.blocks import (
    NOT_MEASURED,
    Cell,
    Chapter,
    ChartFigure,
    Fold,
    Listing,
    Paragraph,
    Table,
    absent,
)
from pytest_loadtest.report.html.charts import Axis, Line, chart_mark, make_chart
from pytest_loadtest.report.html.overview import format_started
from pytest_loadtest.report.sections import format_figure
from pytest_loadtest.values.wording import counted, format_value

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
    yield Paragraph(
        f"baseline {section.baseline.test} · {section.baseline.outcome} · {section.baseline.results}"
    )
    if not section.comparable:
        forced = "; judged anyway, as requested" if section.forced else ""
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
    noise = (
        "; noise is not known"
        if blocks is None
        else f"; intervals of {format_value(blocks.level, 'ratio')}"
    )
    return Table(
        caption=f"Figures of both runs{noise}",
        head=head,
        rows=rows,
        numbers=frozenset((1, 2, 3, 4)),
    )


def _change(change: float | None) -> str:
    return "not known" if change is None else f"{change * 100:+.1f} %"


def _differences(section: ComparisonSection) -> Iterator[Block]:
    rows = [
        (fact.name, fact.baseline, fact.now, "yes" if fact.decides else "no")
        for fact in section.differences
    ]
    if rows:
        yield Table(
            caption="What differs",
            head=("what", "baseline", "now", "makes them incomparable"),
            rows=rows,
        )


def _curves(run: str, document: RunDocument, baseline: BaselineSection) -> Iterator[Block]:
    """Yield the curves of both runs. The baseline's has only messages that came: the number of the others is not kept."""
    measured = document.measurements
    both = {
        "baseline": counts_distribution(decode_counts(baseline.histogram), bits=SUB_BITS),
        "now": None if measured is None else latency_distribution(measured.latencies["endToEnd"]),
    }
    chart = charts.curve_chart("End-to-end latency by percentile, with the baseline", run, both)
    yield absent("curves of both runs") if chart is None else ChartFigure(f"{run}-baseline", chart)


# The trend of the page's tests in a history file.

MOST: Final = 300
"""The largest number of runs of a test that are shown: the newest."""
RUNS: Final = Axis("run, the newest last", "count")
AXES: Final = {
    "ns": Axis("observed", "ns"),
    "ratio": Axis("observed", "share"),
    "msg/s": Axis("observed", "msg/s"),
}


def trend_chapters(series: Sequence[dict[str, Any]], skipped: int = 0) -> list[Chapter]:
    """Return the chapter on the trend, if there is one.

    :param series: from :func:`pytest_loadtest.report.history.build_trend`. :param skipped: number of lines that cannot be read.
    """
    blocks = [
        block
        for number, test in enumerate(series, 1)
        for block in _trend_blocks(f"trend-{number}", _newest(test))
    ]
    if skipped:
        text = f"{counted(skipped, 'line')} of the history left out: not from a history file, or from a later version."
        blocks.insert(0, Paragraph(text, "warning"))
    return [Chapter("trend", "From run to run", blocks)] if blocks else []


def _newest(test: dict[str, Any]) -> dict[str, Any]:
    """Return the last runs of a long history."""
    left = max(len(test["started"]) - MOST, 0)
    return test | {
        "started": test["started"][left:],
        "outcomes": test["outcomes"][left:],
        "changed": [
            change | {"run": change["run"] - left}
            for change in test["changed"]
            if change["run"] >= left
        ],
        "rows": [row | {"values": row["values"][left:]} for row in test["rows"]],
    }


def _trend_blocks(name: str, test: dict[str, Any]) -> Iterator[Block]:
    many = counted(len(test["started"]), "run")
    first, last = (format_started(test["started"][end]) for end in (0, -1))
    title = trend_title(test)
    if len(test["started"]) == 1:
        yield Paragraph(f"{title}: 1 run, {first}; a trend needs two.")
        return
    yield Paragraph(f"{title}: {many}, {first} to {last}.")
    if test["changed"]:
        changes = [f"run {change['run'] + 1}: {change['what']}" for change in test["changed"]]
        yield Listing("Runs that cannot be compared with the one before", changes)
    rows = [
        (row, known)
        for row in test["rows"]
        if (known := [value for value in row["values"] if value is not None])
    ]
    cells = [
        (row["name"], *_newest_lowest_highest(row["unit"], row["values"][-1], known))
        for row, known in rows
    ]
    head = ("figure", "newest", "lowest", "highest")
    if cells:
        yield Table(
            caption=f"Figures of {test['test']}",
            head=head,
            rows=cells,
            numbers=frozenset((1, 2, 3)),
        )
    charts = ((row, _trend_chart(row, known, test["outcomes"])) for row, known in rows)
    figures = [
        (row, ChartFigure(f"{name}-{number}", chart))
        for number, (row, chart) in enumerate(charts, 1)
        if chart is not None
    ]
    yield from (figure for row, figure in figures if _bounded(row))
    if more := [figure for row, figure in figures if not _bounded(row)]:
        yield Fold("figures without an objective", more)
    yield Fold(f"all {many}", [_run_table(test)])


def _bounded(row: dict[str, Any]) -> bool:
    return row["minimum"] is not None or row["maximum"] is not None


def _newest_lowest_highest(unit: str, newest: float | None, known: Sequence[float]) -> list[str]:
    return [format_figure(value, unit) for value in (newest, min(known), max(known))]


def _trend_chart(
    row: dict[str, Any], known: Sequence[float], outcomes: Sequence[str]
) -> Chart | None:
    sides = (("at least", row["minimum"]), ("at most", row["maximum"]))
    levels = [
        chart_mark(f"{word} {format_figure(value, row['unit'])}", "", y=value)
        for word, value in sides
        if value is not None
    ]
    values = enumerate(zip(outcomes, row["values"], strict=True), 1)
    marks = [
        chart_mark(outcome, outcome, x=at, y=value)
        for at, (outcome, value) in values
        if outcome != "met" and value is not None
    ]
    summary = "newest {}, lowest {}, highest {}.".format(
        *_newest_lowest_highest(row["unit"], known[-1], known)
    )
    axis, xs = AXES.get(row["unit"], Axis("observed", "")), list(range(1, len(row["values"]) + 1))
    return make_chart("lines", f"{row['name']} from run to run", None, summary, RUNS, axis, xs, [Line(row["name"], "a", row["values"])],
                      bounds=levels, marks=marks)  # fmt: skip


def _run_table(test: dict[str, Any]) -> Table:
    rows = [
        (str(number), format_started(started), Cell(outcome, outcome))
        for number, (started, outcome) in enumerate(
            zip(test["started"], test["outcomes"], strict=True), 1
        )
    ]
    return Table(
        caption=f"Runs of {test['test']}",
        head=("run", "started", "outcome"),
        rows=rows,
        numbers=frozenset((0,)),
    )
