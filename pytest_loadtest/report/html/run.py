"""All about one run: its chapters with their charts, and its bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.report import sections, terminal
from pytest_loadtest.report.html import (
    bands,
    breakdowns,
    comparison,
    environment,
    heat,
    latency,
    messages,
    objectives,
    overview,
    search,
    telemetry,
    time_line,
    windows,
)
from pytest_loadtest.report.html.blocks import Chapter, ChartFigure, Fold, Listing, Paragraph, RunPage, Table, Verbatim, absent, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.html.read import ReadRun


def run_page(name: str, run: ReadRun) -> RunPage:
    """:param name: the id of its place on the page, and what the names of its charts begin with."""
    document, found = run.document, bands.find_bands(run.document)
    written = {
        "verdict": ("Verdict", _verdict(document)),
        "peak": ("Search for the highest rate", search.search_chapter(name, run)),
        "time": ("Over time", _over_time(name, document, found)),
        "windows": ("Objectives in windows", windows.windows_chapter(name, document)),
        "latencies": ("Latency", latency.latency_chapter(name, document)),
        "messages": ("Messages", messages.messages_chapter(document)),
        "by-stage": ("Stages", breakdowns.stages_chapter(name, document)),
        "by-size": ("Size buckets", breakdowns.buckets_chapter(name, document)),
        "by-topic": ("Topics", breakdowns.topics_chapter(name, document)),
        "backlog": ("Backlog", (Paragraph(text) for text in told(sections.backlog(document)))),
        "beside": ("Beside the baseline", comparison.baseline_chapter(name, document)),
        "custom": ("Measured by your own code", _custom(document)),
        "broker": ("Broker and bottleneck", telemetry.broker_chapter(name, document)),
        "generator": ("Generator", telemetry.generator_chapter(document)),
        "ran": ("What ran", environment.environment_chapter(document)),
        "summary": ("Summary", [Fold("As the terminal shows it", [Verbatim("summary", terminal.summary_lines(document))])]),
    }
    chapters = [Chapter(f"{name}-chapter-{key}", title, blocks) for key, (title, made) in written.items() if (blocks := [*made])]
    return RunPage(
        name=name, title=overview.run_title(run), outcome=run.outcome, about=_about(run), chapters=chapters, bands=bands.drawn_bands(found)
    )


def _about(run: ReadRun) -> str:
    document = run.document
    parts = [
        f"profile {document['profile']['name']}",
        f"seed {document['seed']}",
        f"measured from {overview.format_started(document['started'])}",
    ]
    return " · ".join([*parts, *([f"session {run.session}"] if run.session else []), document["results"]])


def _verdict(document: Document) -> Iterator[Block]:
    if document["scale"] is not None:
        yield Paragraph(f"{overview.scale_text(document)} — says nothing about the full load", "warning")
    reasons = document["verdict"]["reasons"]
    if reasons:
        yield Listing("Because", reasons)
    if document["notes"]:
        yield Listing("Notes", document["notes"])
    yield objectives.objectives_table(document) or absent("objectives", "the run broke before anything could be judged")


def _over_time(name: str, document: Document, found: list[bands.Band]) -> Iterator[Block]:
    measured, findings = document["measurements"], document["verdict"]["findings"]
    if measured is None:
        yield absent("rates and latencies", "the run broke before anything could be measured")
    elif sections.only_connects(measured):
        yield Paragraph("rates and latencies over time: not applicable: the run had connections and no messages", "absent")
    else:
        yield _figure(name, "rates", time_line.rate_chart(measured, name), "rates")
        if not heat.blocks_are_seconds(measured):
            yield _figure(name, "latency", time_line.latency_chart(measured, findings, name), "end-to-end latency over time")
        blocks = heat.time_blocks(measured)
        yield _figure(name, "percentiles", heat.percentile_chart(blocks, measured, findings, name), "percentiles of latency over time")
        yield _figure(name, "heat", heat.heat_map(blocks, measured, name), "heat map of latency over time")
        yield from _lost(name, measured)
        blocked = time_line.blocked_chart(measured, name)
        yield from [] if blocked is None else [ChartFigure(f"{name}-blocked", blocked)]
        yield from (ChartFigure(f"{name}-{kind}", chart) for kind, chart in time_line.interval_charts(measured, name))
    yield bands.events_table(found) or Paragraph(
        "What happened beside the load: no stage, change, restart, stall or blocked span is known."
    )


def _lost(name: str, measured: Document) -> Iterator[Block]:
    """When messages were lost or doubled, or why there is no chart of it."""
    counts, chart = measured["counts"], time_line.loss_chart(measured, name)
    if chart is not None:
        yield ChartFigure(f"{name}-lost", chart)
    elif measured["subscriptions"] and not counts["lost"] and not counts["duplicates"]:
        yield Paragraph("lost 0, duplicates 0")
    elif measured["subscriptions"]:
        yield absent("when messages were lost or doubled")


def _custom(document: Document) -> Iterator[Block]:
    rows = [(name, value["shown"]) for name, value in (document["measurements"] or {}).get("custom", {}).items()]
    if rows:
        yield Table(caption="What pytest_loadtest_aggregate returned", head=("what", "value"), rows=rows, numbers=frozenset((1,)))


def _figure(run: str, name: str, chart: Chart | None, what: str) -> Block:
    """A chart, or the words that there is nothing to draw."""
    return absent(what) if chart is None else ChartFigure(f"{run}-{name}", chart)
