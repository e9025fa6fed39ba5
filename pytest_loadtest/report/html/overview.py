"""The first chapters of the page: every run with its outcome, worst first, every objective, and what it all ran on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.document import MISSES_FIRST, OUTCOMES
from pytest_loadtest.report.html import objectives
from pytest_loadtest.report.html.blocks import (
    NOT_MEASURED,
    Cell,
    Chapter,
    Fold,
    Listing,
    Paragraph,
    Table,
    Verbatim,
    absent,
    measured_cells,
)
from pytest_loadtest.report.sections import all_findings, answer, percentiles, run_name, scale_changes, scale_of
from pytest_loadtest.values.quantities import format_duration, format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document
    from pytest_loadtest.report.find_results import Found, ReadRun
    from pytest_loadtest.report.html.blocks import Block


Named = list[tuple[str, "ReadRun"]]


def overview_chapters(found: Found, names: Sequence[str]) -> list[Chapter]:
    """:param names: the ids of the runs' places on the page."""
    runs = list(zip(names, found.runs, strict=True))
    return [
        Chapter("overview", "Overview", [*_first(found), _runs(runs)]),
        Chapter("objectives", "Objectives", [_objectives(runs)]),
        Chapter("environment", "Environment", list(_environment(runs))),
    ]


def _first(found: Found) -> Iterator[Block]:
    counts = [(outcome, sum(run.outcome == outcome for run in found.runs)) for outcome in OUTCOMES]
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts if count)
    yield Paragraph(f"{len(found.runs)} {'run' if len(found.runs) == 1 else 'runs'}: {said or 'none that can be read'}.")
    if any(run.document["scale"] is not None for run in found.runs):
        yield Paragraph("Scaled and shortened runs keep the shape of the load and say nothing about the full load.", "warning")
    if found.unreadable:
        yield Listing("Results that cannot be read", found.unreadable)


def run_title(run: ReadRun) -> str:
    """The test, with what tells its runs apart."""
    document = run.document
    return f"{run_name(document)}{f' · attempt {run.attempt}' if run.attempt > 1 else ''}"


def scale_text(document: Document) -> str:
    """``SCALED ×0.01``, with what was changed; empty where the profile ran as written."""
    changes = "" if document["scale"] is None else scale_changes(document)
    return f"{scale_of(document).upper()}{f' ({changes})' if changes else ''}"


def _runs(runs: Named) -> Table:
    several = len({run.session for _, run in runs}) > 1
    head = ("test", "outcome", "what was missed, and why", "scale", "offered", "delivered", "end-to-end p99", "for")
    rows = [(*_row(name, run), *([run.session] if several else [])) for name, run in runs]
    whole = (*head, "session") if several else head
    return Table(caption="Every run, worst first", head=whole, rows=rows, numbers=frozenset(range(4, 8)))


def _row(name: str, run: ReadRun) -> tuple[str | Cell, ...]:
    document = run.document
    peak = "" if document.get("peak") is None else f"peak: {answer(document['peak'])}"
    said = [*filter(None, [peak]), *document["verdict"]["reasons"], *objectives.missed_texts(document)]
    why = said[0] + (f"; and {len(said) - 1} more" if len(said) > 1 else "") if said else ""
    return (
        Cell(run_title(run), link=name), Cell(run.outcome, run.outcome), why,
        scale_of(document).removeprefix("scaled ") or "as written", *_figures(document["measurements"]),
    )  # fmt: skip


def format_started(started: str | None) -> str:
    """``2026-11-23 04:19:55 UTC``, from ISO 8601 in UTC."""
    return "never" if started is None else f"{started[:19].replace('T', ' ')} UTC"


def _figures(measured: Document | None) -> tuple[str, str, str, str]:
    if measured is None:
        return (NOT_MEASURED,) * 4
    delivered = "nothing" if measured["subscriptions"] else "nothing subscribes"
    p99, _ = measured_cells(percentiles(measured["latencies"]["endToEnd"], "p99"))
    return (
        format_rate(measured["rate"]), delivered if measured["throughput"] is None else format_rate(measured["throughput"]),
        p99, format_duration(measured["duration"]),
    )  # fmt: skip


def _objectives(runs: Named) -> Block:
    found = [(name, run, where, finding) for name, run in runs for where, finding in all_findings(run.document)]
    found.sort(key=lambda one: MISSES_FIRST.index(one[3]["outcome"]))
    rows = [(Cell(run_title(run), link=name), *objectives.objective_row(where, finding)) for name, run, where, finding in found]
    caption = "Every objective of every run: those missed first, then those that could not be told, then those met"
    return Table(caption=caption, head=("test", *objectives.HEAD), rows=rows, numbers=frozenset((3, 4, 6))) if rows else Paragraph("None.")


def _environment(runs: Named) -> Iterator[Block]:
    """Each broker and each machine once, with the runs that had it."""
    for caption, key in (("Broker", "broker"), ("Machine", "machine"), ("Versions", "versions")):
        seen: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
        for _, run in runs:
            facts = {name: value for name, value in run.document[key].items() if name != "restarts"}
            seen.setdefault(json.dumps(facts, sort_keys=True), (facts, []))[1].append(run_title(run))
        for told, users in seen.values():
            of = "all runs" if len(seen) == 1 else ", ".join(dict.fromkeys(users))
            yield facts_table(f"{caption} of {of}", told) if told else Paragraph(f"{caption} of {of}: not known", "absent")


# Facts of JSON as tables.


def facts_table(caption: str, facts: Mapping[str, Any]) -> Table:
    """Names and values; those of a mapping within have both names."""
    return Table(caption=caption, head=("what", "value"), rows=list(_flat(facts)))


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", fact_text(value)


def fact_text(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# What ran: plan, target, client, machine and profile, as results tell it.

LONGEST: Final = 400
"""Lines of a profile; one that replays the rate of every second has many more."""


def environment_chapter(document: Document) -> Iterator[Block]:
    """All of it on demand, but for the plan."""
    for caption, key in (("Plan", "plan"), ("Driver", "driver"), ("Target", "broker"), ("Machine", "machine"), ("Versions", "versions")):
        found = {name: value for name, value in document[key].items() if name != "restarts"}
        block = facts_table(caption, found) if found else absent(caption.lower(), "the run broke before")
        yield block if key == "plan" else Fold(caption, [block])
    lines = json.dumps(document["profile"]["document"], indent=1, ensure_ascii=False).splitlines()
    cut = [] if len(lines) <= LONGEST else [f"… and {len(lines) - LONGEST} more lines in results.json"]
    yield Fold("Profile, with all that was changed for this run", [Verbatim("profile", [*lines[:LONGEST], *cut])])
