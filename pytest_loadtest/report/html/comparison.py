"""The chapters that compare runs: one with its baseline, and the trend of a history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.metrics.histogram import SUB_BITS
from pytest_loadtest.report.comparison import figure_cells
from pytest_loadtest.report.hdr import counts_distribution, decode_counts, latency_distribution
from pytest_loadtest.report.history import newest_lowest_highest, trend_title
from pytest_loadtest.report.html import charts
from pytest_loadtest.report.html.blocks import (
    Block,
    Chapter,
    ChartFigure,
    Fold,
    Listing,
    Paragraph,
    absent,
)
from pytest_loadtest.report.html.charts import Axis, Chart, Line, chart_mark, make_chart
from pytest_loadtest.report.html.overview import format_started
from pytest_loadtest.report.sections import format_figure, known_of
from pytest_loadtest.report.tables import Cell, Table
from pytest_loadtest.values.wording import counted, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.verdict_section import (
        BaselineSection,
        ComparisonSection,
    )


def baseline_chapter(run: str, document: RunDocument) -> Iterator[Block]:
    """Yield the comparison of a run with its baseline.

    :param run: the id of its place on the page.
    """
    section = document.comparison
    if section is None:
        return
    if section.notes:
        yield Listing("Notes", section.notes)
    if section.baseline is None:
        yield absent("the baseline")
        return
    baseline = section.baseline
    yield Paragraph(f"baseline {baseline.test} · {baseline.outcome} · {baseline.results}")
    if not section.comparable:
        forced = "; judged anyway, as requested" if section.forced else ""
        yield Paragraph(f"The two runs are not comparable{forced}.", "warning")
    yield _figures(section)
    yield from _differences(section)
    yield from _curves(run, document, baseline)


def _figures(section: ComparisonSection) -> Table:
    rows = []
    for row in section.rows:
        outcome = Cell(row.outcome, row.outcome) if row.outcome else "not judged"
        rows.append((*figure_cells(row, "not known"), outcome))
    noise = "noise is unknown"
    if section.blocks is not None:
        noise = f"intervals of {format_value(section.blocks.level, 'ratio')}"
    words = "better or worse"
    head = ("figure", "baseline", "now", "change", "interval", words, "outcome")
    return Table(caption=f"Figures of both runs; {noise}", head=head, align="<>>>><<", rows=rows)


def _differences(section: ComparisonSection) -> Iterator[Block]:
    rows = []
    for fact in section.differences:
        decides = "yes" if fact.decides else "no"
        rows.append((fact.name, fact.baseline, fact.now, decides))
    if rows:
        head = ("what", "baseline", "now", "makes them incomparable")
        yield Table(caption="What differs", head=head, align="<<<<", rows=rows)


def _curves(run: str, document: RunDocument, baseline: BaselineSection) -> Iterator[Block]:
    """Yield the curves of both runs.

    The baseline's has only messages that came: the number of the others is not kept.
    """
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

    :param series: from :func:`pytest_loadtest.report.history.build_trend`.
    :param skipped: number of lines that cannot be read.
    """
    blocks: list[Block] = []
    if skipped:
        text = f"{counted(skipped, 'line')} of the history left out"
        blocks.append(
            Paragraph(f"{text}: not from a history file, or from a later version.", "warning")
        )
    for number, test in enumerate(series, 1):
        blocks += _trend_blocks(f"trend-{number}", _newest(test))
    return [Chapter("trend", "From run to run", blocks)] if blocks else []


def _newest(test: dict[str, Any]) -> dict[str, Any]:
    """Return the last runs of a long history."""
    left_out = max(len(test["started"]) - MOST, 0)
    changed = []
    for change in test["changed"]:
        if change["run"] >= left_out:
            changed.append(change | {"run": change["run"] - left_out})
    return test | {
        "started": test["started"][left_out:],
        "outcomes": test["outcomes"][left_out:],
        "changed": changed,
        "rows": [row | {"values": row["values"][left_out:]} for row in test["rows"]],
    }


def _trend_blocks(name: str, test: dict[str, Any]) -> Iterator[Block]:
    started = test["started"]
    many = counted(len(started), "run")
    first = format_started(started[0])
    title = trend_title(test)
    if len(started) == 1:
        yield Paragraph(f"{title}: 1 run, {first}; a trend needs two.")
        return
    yield Paragraph(f"{title}: {many}, {first} to {format_started(started[-1])}.")
    if test["changed"]:
        changes = [f"run {change['run'] + 1}: {change['what']}" for change in test["changed"]]
        yield Listing("Runs that cannot be compared with the one before", changes)
    rows = [row for row in test["rows"] if known_of(row["values"])]
    if rows:
        head = ("figure", "newest", "lowest", "highest")
        cells = [(row["name"], *newest_lowest_highest(row)) for row in rows]
        yield Table(caption=f"Figures of {test['test']}", head=head, rows=cells)
    others = []
    for number, row in enumerate(rows, 1):
        chart = _trend_chart(row, test["outcomes"])
        if chart is None:
            continue
        figure = ChartFigure(f"{name}-{number}", chart)
        if row["minimum"] is not None or row["maximum"] is not None:
            yield figure
        else:
            others.append(figure)
    if others:
        yield Fold("figures without an objective", others)
    yield Fold(f"all {many}", [_run_table(test)])


def _trend_chart(row: dict[str, Any], outcomes: Sequence[str]) -> Chart | None:
    name = row["name"]
    unit = row["unit"]
    values = row["values"]
    levels = []
    for word, value in (("at least", row["minimum"]), ("at most", row["maximum"])):
        if value is not None:
            levels.append(chart_mark(f"{word} {format_figure(value, unit)}", "", y=value))
    marks = []
    for at, (outcome, value) in enumerate(zip(outcomes, values, strict=True), 1):
        if outcome != "met" and value is not None:
            marks.append(chart_mark(outcome, outcome, x=at, y=value))
    newest, lowest, highest = newest_lowest_highest(row)
    return make_chart(
        "lines",
        f"{name} from run to run",
        None,
        f"newest {newest}, lowest {lowest}, highest {highest}.",
        RUNS,
        AXES.get(unit, Axis("observed", "")),
        list(range(1, len(values) + 1)),
        [Line(name, "a", values)],
        bounds=levels,
        marks=marks,
    )


def _run_table(test: dict[str, Any]) -> Table:
    rows = []
    runs = zip(test["started"], test["outcomes"], strict=True)
    for number, (started, outcome) in enumerate(runs, 1):
        rows.append((str(number), format_started(started), Cell(outcome, outcome)))
    head = ("run", "started", "outcome")
    return Table(caption=f"Runs of {test['test']}", head=head, align="><<", rows=rows)
