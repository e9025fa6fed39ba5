"""Write the report as one HTML file; a content policy keeps it from loading anything."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.report import baseline, bottleneck, history, margins, sections, terminal
from pytest_loadtest.report import comparison as comparisons
from pytest_loadtest.report.find_results import ReadRun, ResultSet, find_runs
from pytest_loadtest.report.html import (
    comparison,
    measurements,
    objectives,
    over_time,
    overview,
    search,
    telemetry,
)
from pytest_loadtest.report.html.blocks import (
    Block,
    Chapter,
    ChartFigure,
    Fold,
    Listing,
    Paragraph,
    RunPage,
    Verbatim,
    absent,
    chart_figures,
)
from pytest_loadtest.report.tables import Table
from pytest_loadtest.values import quantities, wording

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from jinja2 import Template

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.measurements_section import MeasurementsSection

SCRIPTS: Final = (
    "vendor/uPlot.iife.min.js",
    *(
        f"scripts/{name}.js"
        for name in ("words", "looks", "paint", "plots", "board", "compare", "page")
    ),
)
STYLES: Final = ("vendor/uPlot.min.css", "page.css")


def write_page(folders: Sequence[Path], file: Path, past: Path | None = None) -> None:
    """Write the report of all runs below ``folders``.

    An existing file is replaced as a whole, and a missing folder is made.

    :param past: a history file; the page shows the trend of these tests from it.
    :raises UsageError: one of the folders has no run, or the history cannot be read or is
        another file.
    :raises OSError: the file cannot be written.
    """
    results = find_runs(folders)
    text = page_html(results) if past is None else page_html(results, *_trend(results, past))
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def _trend(results: ResultSet, past: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the trend of the page's tests alone, and the number of lines that were skipped."""
    here = {baseline.identity(run.document) for run in results.runs}
    lines, skipped = history.read_history(past)
    if skipped and not lines:
        raise UsageError(f"{past} has no line of a history, or those of a later version")
    own = (
        line for line in lines if (line["test"], line["profile"], line["workload"] or "") in here
    )
    return history.build_trend(own), skipped


def page_html(results: ResultSet, series: Sequence[dict[str, Any]] = (), skipped: int = 0) -> str:
    """Return the page of these runs.

    :param series: the trend of their tests, from
        :func:`pytest_loadtest.report.history.build_trend`.
    :param skipped: number of lines of the history that cannot be read.
    """
    pages = [
        run_page(f"run-{number}", run, baseline_charts(run))
        for number, run in enumerate(results.runs, 1)
    ]
    unreadable = [Listing("Results that cannot be read", results.unreadable)]
    return render_page(
        pages,
        [
            Chapter("overview", "Runs", unreadable if results.unreadable else ()),
            *comparison.trend_chapters(series, skipped),
        ],
        [overview.environment_chapter(results)],
        title=_title(results),
        made=_maker(results),
    )


@cache
def _page_template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pytest_loadtest.report.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    modules = (bottleneck, comparisons, margins, overview, quantities, sections, terminal, wording)
    tools = {module.__name__.rpartition(".")[2]: module for module in modules}
    environment.globals.update(tools)
    environment.tests["comfortable"] = margins.is_comfortable
    return environment.get_template("page.html.j2")


def render_page(
    pages: Sequence[RunPage],
    first: list[Chapter],
    last: list[Chapter],
    **head: str,
) -> str:
    """Return the page of these runs, with chapters before and after them.

    :param head: the texts ``title``, and ``made``: a sentence about the program that made the page.
    """
    from markupsafe import Markup

    scripts = _assets(SCRIPTS)
    styles = _assets(STYLES)
    return _page_template().render(
        head=head,
        policy=content_policy(scripts, styles),
        first=first,
        runs=pages,
        last=last,
        scripts=list(map(Markup, scripts)),
        styles=list(map(Markup, styles)),
        data=Markup(_embedded(chart_data(first, pages))),
    )


def chart_data(chapters: Sequence[Chapter], pages: Sequence[RunPage]) -> dict[str, Any]:
    """Return the data for the script: charts by the name of their place, and the bands by run."""
    charts = _named_charts(chain(chapters, *(page.chapters for page in pages)))
    return {
        "charts": charts,
        "bands": {page.name: list(page.bands) for page in pages},
        "baselines": {page.name: page.baseline for page in pages if page.baseline},
    }


def _named_charts(chapters: Iterable[Chapter]) -> dict[str, Chart]:
    charts = {}
    for chapter in chapters:
        for figure in chart_figures(chapter.blocks):
            charts[figure.name] = figure.chart
    return charts


def baseline_charts(run: ReadRun) -> dict[str, Chart]:
    """Return the charts of a run's baseline by the ends of their names, if it can still be read."""
    recorded = baseline.recorded_baseline(run.document)
    document = None if recorded is None else recorded.find(run.document)
    if document is None or isinstance(document, str):
        return {}
    charts = _named_charts(run_page("", replace(run, document=document), {}).chapters)
    return {name[1:]: chart for name, chart in charts.items() if chart["kind"] != "heat"}


def content_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a policy that allows only these scripts and styles, and no network.

    See CSP Level 3, section 2.3.1, ``hash-source``.
    """
    sources = {"script-src": scripts, "style-src": styles}
    allowed = "; ".join(f"{name} {' '.join(map(_hash, texts))}" for name, texts in sources.items())
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _assets(names: Sequence[str]) -> list[str]:
    root = files("pytest_loadtest.report.html")
    return [root.joinpath(name).read_text(encoding="utf-8") for name in names]


def _embedded(document: dict[str, Any]) -> str:
    """Return JSON without ``<``, so that it cannot end the script or begin a comment."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _title(results: ResultSet) -> str:
    sessions = sorted({run.session for run in results.runs} - {""})
    if len(sessions) > 1:
        return f"Load tests · {len(sessions)} sessions"
    return " · ".join(["Load tests", *sessions])


def _maker(results: ResultSet) -> str:
    makers = {run.document.versions.get("pytest-loadtest", "unknown") for run in results.runs}
    own = f"pytest-loadtest {version('pytest-loadtest')}"
    origin = f"results of version {', '.join(sorted(makers)) or 'unknown'}"
    return f"Made by {own} from {origin}; it needs no other file."


# The chapters of one run with their charts, and its bands.


def run_page(name: str, run: ReadRun, before: Mapping[str, Chart]) -> RunPage:
    """Return the page of one run.

    :param before: the charts of its baseline.
    :param name: the id of its place on the page, and the prefix of its charts' names.
    """
    document = run.document
    bands = over_time.find_bands(document)
    summary = [Verbatim("lines of the terminal", terminal.summary_lines(document))]
    written = {
        "peak": ("Search for the highest rate", search.search_chapter(name, run)),
        "messages": ("Messages", measurements.messages_chapter(document)),
        "time": ("Charts", _over_time(name, document, bands)),
        "windows": ("Objectives in windows", objectives.windows_chapter(name, document)),
        "by-stage": ("Stages", measurements.stages_chapter(name, document)),
        "by-size": ("Size buckets", measurements.buckets_chapter(name, document)),
        "by-topic": ("Topics", measurements.topics_chapter(name, document)),
        "backlog": ("Backlog", (Paragraph(text) for _, text in sections.backlog_facts(document))),
        "beside": ("Comparison with the baseline", comparison.baseline_chapter(name, document)),
        "custom": ("Measured by your own code", _custom(document)),
        "broker": ("Broker and bottleneck", telemetry.broker_chapter(name, document)),
        "generator": ("Generator", telemetry.generator_chapter(document)),
        "summary": ("Summary", [Fold("As the terminal shows it", summary)]),
    }
    chapters = []
    for key, (title, content) in written.items():
        if blocks := list(content):
            chapters.append(Chapter(f"{name}-chapter-{key}", title, blocks))
    return RunPage(
        name=name,
        run=run,
        chapters=chapters,
        bands=over_time.drawn_bands(bands),
        baseline=before,
    )


def _over_time(name: str, document: RunDocument, bands: list[over_time.Band]) -> Iterator[Block]:
    measured = document.measurements
    if measured is None:
        yield absent("rates and latencies", "the run broke before anything could be measured")
    elif sections.only_connects(measured):
        why = "not applicable: the run had connections and no messages"
        yield Paragraph(f"rates and latencies over time: {why}", "absent")
        yield from measurements.latency_charts(name, document)
    else:
        yield from _time_charts(name, measured, document)
    yield from measurements.latency_facts(document)
    events = over_time.events_table(bands)
    if events is None:
        text = "no stage, change, outage, move of topics, stall or full window"
        yield Paragraph(f"Events during the load: {text}.")
    else:
        yield Fold("Events during the load", [events])


def _time_charts(
    name: str, measured: MeasurementsSection, document: RunDocument
) -> Iterator[Block]:
    findings = document.verdict.findings
    yield _figure(name, "rates", over_time.rate_chart(measured, name), "rates")
    if not over_time.blocks_are_seconds(measured):
        chart = over_time.latency_chart(measured, findings, name)
        yield _figure(name, "latency", chart, "end-to-end latency over time")
    blocks = over_time.time_blocks(measured)
    chart = over_time.percentile_chart(blocks, measured, findings, name)
    yield _figure(name, "percentiles", chart, "percentiles of latency over time")
    yield from measurements.latency_charts(name, document)
    chart = over_time.heat_map(blocks, measured, name)
    yield _figure(name, "heat", chart, "heat map of latency over time")
    charts = {
        "lost": over_time.loss_chart(measured, name),
        "blocked": over_time.blocked_chart(measured, name),
        "lag": over_time.lag_chart(measured, name),
        **dict(over_time.interval_charts(measured, name)),
    }
    for kind, chart in charts.items():
        if chart is not None:
            yield ChartFigure(f"{name}-{kind}", chart)
    lost = measured.counts["lost"] or measured.counts["duplicates"]
    if lost and measured.subscriptions and charts["lost"] is None:
        yield absent("when messages were lost or duplicated")


def _custom(document: RunDocument) -> Iterator[Block]:
    measured = document.measurements
    if measured is not None and measured.custom:
        rows = [(name, value.shown) for name, value in measured.custom.items()]
        yield Table(
            caption="What pytest_loadtest_aggregate returned", head=("what", "value"), rows=rows
        )


def _figure(run: str, name: str, chart: Chart | None, what: str) -> Block:
    """Return a chart, or a note that there is nothing to draw."""
    return absent(what) if chart is None else ChartFigure(f"{run}-{name}", chart)
