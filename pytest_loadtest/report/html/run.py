"""All about one run: its chapters with their charts, and its bands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.report import terminal
from pytest_loadtest.report.html import bands, curves, heat, objectives, overview, time_line
from pytest_loadtest.report.html.blocks import Chapter, Figure, Fold, Listing, RunPage, Verbatim, Words, absent
from pytest_loadtest.report.sections import only_connects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.html.charts import Chart
    from pytest_loadtest.report.html.read import ReadRun


def page(name: str, run: ReadRun) -> RunPage:
    """:param name: the id of its place on the page, and what the names of its charts begin with."""
    document, found = run.document, bands.bands(run.document)
    made = {
        "Verdict": _verdict(document),
        "Over time": _over_time(name, document, found),
        "Latency": _latency(name, document),
        "In the words of the terminal": iter([Fold("The summary of the run", [Verbatim("summary", terminal.lines(document))])]),
    }
    chapters = [
        Chapter(f"{name}-{number}", title, blocks) for number, (title, made_of) in enumerate(made.items(), 1) if (blocks := [*made_of])
    ]
    return RunPage(
        name=name, title=overview.title(run), outcome=run.outcome, about=_about(run), chapters=chapters, bands=bands.drawn(found)
    )


def _about(run: ReadRun) -> str:
    document = run.document
    parts = [f"profile {document['profile']['name']}", f"seed {document['seed']}", f"measured from {document['started'] or 'never'}"]
    return " · ".join([*parts, *([f"session {run.session}"] if run.session else []), document["results"]])


def _verdict(document: Document) -> Iterator[Block]:
    if document["scale"] is not None:
        yield Words(f"SCALED {overview.scaled(document)} — says nothing about the full load", "warning")
    reasons = document["verdict"]["reasons"]
    if reasons:
        yield Listing("Because", reasons)
    if document["notes"]:
        yield Listing("Notes", document["notes"])
    yield objectives.table(document) or absent("objectives", "the run broke before anything could be judged")


def _over_time(name: str, document: Document, found: list[bands.Band]) -> Iterator[Block]:
    measured, findings = document["measurements"], document["verdict"]["findings"]
    if measured is None:
        yield absent("rates and latencies", "the run broke before anything could be measured")
    elif only_connects(measured):
        yield Words("rates and latencies over time: not applicable: the run had connections and no messages", "absent")
    else:
        yield _figure(name, "rates", time_line.rates(measured, name), "rates")
        yield _figure(name, "latency", time_line.latencies(measured, findings, name), "end-to-end latency over time")
        yield _figure(name, "percentiles", heat.percentiles(measured, name), "percentiles over time")
        yield _figure(name, "heat", heat.heat(measured, name), "heat map of latency over time")
        misfortunes = time_line.misfortunes(measured, name)
        yield from _lost(measured) if misfortunes is None else [Figure(f"{name}-lost", misfortunes)]
        yield from (Figure(f"{name}-{kind}", chart) for kind, chart in time_line.stretches(measured, name))
    yield bands.events(found) or Words("No stage, change, restart, stall or blocked span is known.", "absent")


def _latency(name: str, document: Document) -> Iterator[Block]:
    measured, findings = document["measurements"], document["verdict"]["findings"]
    if measured is None:
        yield absent("latency", "the run broke before anything could be measured")
        return
    whole = ("endToEnd", "publish", "sendDelay", "ownSendDelay")
    yield _figure(name, "curve", curves.latencies(measured, findings, name, whole, "Latency by percentile"), "latency by percentile")


def _lost(measured: Document) -> Iterator[Block]:
    """Why there is no chart of it."""
    counts = measured["counts"]
    if not counts["lost"] and not counts["duplicates"]:
        yield Words("Lost and duplicates: none.")
    elif measured["series"].get("lost") is None:
        yield absent("when messages were lost or doubled")


def _figure(run: str, name: str, chart: Chart | None, what: str) -> Block:
    """A chart, or the words that there is nothing to draw."""
    return absent(what) if chart is None else Figure(f"{run}-{name}", chart)
