"""Write the report as one HTML file; a content policy keeps it from loading anything."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from importlib.metadata import version
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report import baseline, bottleneck, history, sections, terminal
from pytest_loadtest.report.find_results import find_runs
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
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.find_results import ReadRun, ResultSet
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.verdict_section import FindingEntry

SCRIPTS: Final = (
    "vendor/uPlot.iife.min.js",
    *(f"scripts/{name}.js" for name in ("words", "looks", "paint", "plots", "page")),
)
STYLES: Final = ("vendor/uPlot.min.css", "page.css")


def write_page(folders: Sequence[Path], file: Path, past: Path | None = None) -> None:
    """Write the report of all runs below ``folders``.

    An existing file is replaced as a whole, and a missing folder is made.

    :param past: a history file; the page shows the trend of these tests from it.
    :raises UsageError: one of the folders has no run, or the history cannot be read.
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
    names = [f"run-{number}" for number, _ in enumerate(results.runs, 1)]
    pages = [run_page(*of_run) for of_run in zip(names, results.runs, strict=True)]
    chapters = [
        *overview.overview_chapters(results, names),
        *comparison.trend_chapters(series, skipped),
    ]
    return render_page(_title(results), _maker(results), chapters, pages)


def render_page(
    title: str, made: str, chapters: Sequence[Chapter], pages: Sequence[RunPage]
) -> str:
    """Return the page with these chapters and runs.

    :param made: a sentence about the program that made it.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    scripts = _assets(SCRIPTS)
    styles = _assets(STYLES)
    environment = Environment(
        loader=PackageLoader("pytest_loadtest.report.html", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("template.html.j2").render(
        title=title,
        made=made,
        policy=content_policy(scripts, styles),
        chapters=chapters,
        runs=pages,
        scripts=list(map(Markup, scripts)),
        styles=list(map(Markup, styles)),
        data=Markup(_embedded(chart_data(chapters, pages))),
    )


def chart_data(chapters: Sequence[Chapter], pages: Sequence[RunPage]) -> dict[str, Any]:
    """Return the data for the script: charts by the name of their place, and the bands by run."""
    charts = {}
    for chapter in chain(chapters, *(page.chapters for page in pages)):
        for figure in chart_figures(chapter.blocks):
            charts[figure.name] = figure.chart
    return {"charts": charts, "bands": {page.name: list(page.bands) for page in pages}}


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
    match sessions:
        case []:
            return "Load tests"
        case [session]:
            return f"Load tests · {session}"
    return f"Load tests · {len(sessions)} sessions"


def _maker(results: ResultSet) -> str:
    makers = {run.document.versions.get("pytest-loadtest", "unknown") for run in results.runs}
    own = f"pytest-loadtest {version('pytest-loadtest')}"
    origin = f"results of version {', '.join(sorted(makers)) or 'unknown'}"
    return f"Made by {own} from {origin}; it needs no other file."


# The chapters of one run with their charts, and its bands.


def run_page(name: str, run: ReadRun) -> RunPage:
    """Return the page of one run.

    :param name: the id of its place on the page, and the prefix of its charts' names.
    """
    document = run.document
    bands = over_time.find_bands(document)
    summary = [Verbatim("summary", terminal.summary_lines(document))]
    written = {
        "verdict": ("Verdict", _verdict(document)),
        "peak": ("Search for the highest rate", search.search_chapter(name, run)),
        "time": ("Over time", _over_time(name, document, bands)),
        "windows": ("Objectives in windows", objectives.windows_chapter(name, document)),
        "latencies": ("Latency", measurements.latency_chapter(name, document)),
        "messages": ("Messages", measurements.messages_chapter(document)),
        "by-stage": ("Stages", measurements.stages_chapter(name, document)),
        "by-size": ("Size buckets", measurements.buckets_chapter(name, document)),
        "by-topic": ("Topics", measurements.topics_chapter(name, document)),
        "backlog": ("Backlog", (Paragraph(text) for _, text in sections.backlog_facts(document))),
        "beside": ("Comparison with the baseline", comparison.baseline_chapter(name, document)),
        "custom": ("Measured by your own code", _custom(document)),
        "broker": ("Broker and bottleneck", telemetry.broker_chapter(name, document)),
        "generator": ("Generator", telemetry.generator_chapter(document)),
        "ran": ("What ran", overview.environment_chapter(document)),
        "summary": ("Summary", [Fold("As the terminal shows it", summary)]),
    }
    chapters = []
    for key, (title, content) in written.items():
        if blocks := list(content):
            chapters.append(Chapter(f"{name}-chapter-{key}", title, blocks))
    return RunPage(
        name=name,
        title=overview.run_title(run),
        outcome=run.outcome,
        about=_about(run),
        chapters=chapters,
        bands=over_time.drawn_bands(bands),
    )


def _about(run: ReadRun) -> str:
    document = run.document
    parts = [
        f"profile {document.profile.name}",
        f"seed {document.seed}",
        f"target {sections.target_text(document.broker)}",
        f"measured from {overview.format_started(document.started)}",
    ]
    if run.session:
        parts.append(f"session {run.session}")
    return " · ".join([*parts, document.results])


def _verdict(document: RunDocument) -> Iterator[Block]:
    if document.scale is not None:
        scale = overview.scale_text(document)
        yield Paragraph(f"{scale} — says nothing about the full load", "warning")
    causes, remedy = sections.causes_and_remedy(document)
    if causes:
        yield Listing("Because", causes)
    if remedy:
        yield Paragraph(f"Remedy: {remedy}")
    if document.notes:
        yield Listing("Notes", document.notes)
    yield objectives.objectives_table(document) or absent(
        "objectives", "the run broke before anything could be judged"
    )
    if document.bottleneck is not None and document.verdict.outcome is not Outcome.MET:
        yield Paragraph(f"Bottleneck: {bottleneck.bottleneck_text(document.bottleneck)}")


def _over_time(name: str, document: RunDocument, bands: list[over_time.Band]) -> Iterator[Block]:
    measured = document.measurements
    if measured is None:
        yield absent("rates and latencies", "the run broke before anything could be measured")
    elif sections.only_connects(measured):
        why = "not applicable: the run had connections and no messages"
        yield Paragraph(f"rates and latencies over time: {why}", "absent")
    else:
        yield from _time_charts(name, measured, document.verdict.findings)
    yield over_time.events_table(bands) or Paragraph(
        "Events during the load: no stage, change, outage, move of topics, stall or full window."
    )


def _time_charts(
    name: str, measured: MeasurementsSection, findings: Sequence[FindingEntry]
) -> Iterator[Block]:
    yield _figure(name, "rates", over_time.rate_chart(measured, name), "rates")
    if not over_time.blocks_are_seconds(measured):
        chart = over_time.latency_chart(measured, findings, name)
        yield _figure(name, "latency", chart, "end-to-end latency over time")
    blocks = over_time.time_blocks(measured)
    chart = over_time.percentile_chart(blocks, measured, findings, name)
    yield _figure(name, "percentiles", chart, "percentiles of latency over time")
    chart = over_time.heat_map(blocks, measured, name)
    yield _figure(name, "heat", chart, "heat map of latency over time")
    yield from _lost(name, measured)
    charts = {
        "blocked": over_time.blocked_chart(measured, name),
        "lag": over_time.lag_chart(measured, name),
        **dict(over_time.interval_charts(measured, name)),
    }
    for kind, chart in charts.items():
        if chart is not None:
            yield ChartFigure(f"{name}-{kind}", chart)


def _lost(name: str, measured: MeasurementsSection) -> Iterator[Block]:
    """Yield a chart of lost and duplicate messages by time, or why there is none."""
    counts = measured.counts
    chart = over_time.loss_chart(measured, name)
    if chart is not None:
        yield ChartFigure(f"{name}-lost", chart)
    elif measured.subscriptions and not counts["lost"] and not counts["duplicates"]:
        yield Paragraph("lost 0, duplicates 0")
    elif measured.subscriptions:
        yield absent("when messages were lost or duplicated")


def _custom(document: RunDocument) -> Iterator[Block]:
    measured = document.measurements
    if measured is not None and measured.custom:
        rows = [(name, value.shown) for name, value in measured.custom.items()]
        caption = "What pytest_loadtest_aggregate returned"
        yield Table(caption=caption, head=("what", "value"), rows=rows)


def _figure(run: str, name: str, chart: Chart | None, what: str) -> Block:
    """Return a chart, or a note that there is nothing to draw."""
    return absent(what) if chart is None else ChartFigure(f"{run}-{name}", chart)
