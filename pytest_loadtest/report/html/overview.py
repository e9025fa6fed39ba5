"""The first chapters of the page: every run, worst first, every objective, and the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.document import MISSES_FIRST
from pytest_loadtest.report.html import objectives
from pytest_loadtest.report.html.blocks import (
    NOT_MEASURED,
    Chapter,
    Fold,
    Listing,
    Paragraph,
    Verbatim,
    absent,
)
from pytest_loadtest.report.sections import (
    all_findings,
    answer,
    delivered_text,
    missed_texts,
    outcome_counts,
    percentiles,
    run_name,
    scale_changes,
    scale_of,
    short_scale,
)
from pytest_loadtest.report.tables import Cell, Table
from pytest_loadtest.values.quantities import format_duration, format_rate, format_size
from pytest_loadtest.values.wording import counted, exact, format_value
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.find_results import ReadRun, ResultSet
    from pytest_loadtest.report.html.blocks import Block
    from pytest_loadtest.report.measurements_section import MeasurementsSection
    from pytest_loadtest.report.verdict_section import FindingEntry


Named = list[tuple[str, "ReadRun"]]


def overview_chapters(results: ResultSet, names: Sequence[str]) -> list[Chapter]:
    """:param names: the ids of the runs' places on the page."""
    runs = list(zip(names, results.runs, strict=True))
    return [
        Chapter("overview", "Overview", [*_first(results), _runs(runs)]),
        Chapter("objectives", "Objectives", list(_objectives(runs))),
        Chapter("environment", "Environment", list(_environment(runs))),
    ]


def _first(results: ResultSet) -> Iterator[Block]:
    outcomes = outcome_counts(run.document for run in results.runs)
    yield Paragraph(f"{counted(len(results.runs), 'run')}: {outcomes or 'none that can be read'}.")
    if any(run.document.scale is not None for run in results.runs):
        text = "Scaled and shortened runs keep the shape of the load"
        yield Paragraph(f"{text} and say nothing about the full load.", "warning")
    if results.unreadable:
        yield Listing("Results that cannot be read", results.unreadable)


def run_title(run: ReadRun) -> str:
    """Return the test, with the number of the attempt after the first."""
    name = run_name(run.document)
    return f"{name} · attempt {run.attempt}" if run.attempt > 1 else name


def scale_text(document: RunDocument) -> str:
    """Return ``SCALED ×0.01`` with the reductions; empty where the profile ran as written."""
    changes = scale_changes(document)
    scale = scale_of(document).upper()
    return f"{scale} ({changes})" if changes else scale


def _runs(runs: Named) -> Table:
    head = [
        "test", "outcome", "what was missed, and why", "scale", "offered", "delivered",
        "end-to-end p99", "for",
    ]  # fmt: skip
    align = "<<<<>>>>"
    rows = [_row(name, run) for name, run in runs]
    if len({run.session for _, run in runs}) > 1:
        head.append("session")
        align += "<"
        for row, (_, run) in zip(rows, runs, strict=True):
            row.append(run.session)
    return Table(caption="Every run, worst first", head=head, align=align, rows=rows)


def _row(name: str, run: ReadRun) -> list[str | Cell]:
    document = run.document
    reasons = [*document.verdict.reasons, *missed_texts(document)]
    if document.peak is not None:
        reasons.insert(0, f"peak: {answer(document.peak)}")
    why = reasons[0] if reasons else ""
    if len(reasons) > 1:
        why += f"; and {len(reasons) - 1} more"
    scale = "as written"
    if document.scale is not None:
        scale = short_scale(document.scale.factor)
    return [
        Cell(run_title(run), link=name),
        Cell(run.outcome, run.outcome),
        why,
        scale,
        *_figures(document.measurements),
    ]


def format_started(started: str | None) -> str:
    """Format ISO 8601 in UTC as ``2026-11-23 04:19:55 UTC``."""
    return "never" if started is None else f"{started[:19].replace('T', ' ')} UTC"


def _figures(measured: MeasurementsSection | None) -> tuple[str, str, str, str]:
    if measured is None:
        return (NOT_MEASURED,) * 4
    p99, _ = percentiles(measured.latencies["endToEnd"], "p99", absent=NOT_MEASURED)
    delivered = delivered_text(measured, "nothing", "nothing subscribes")
    return format_rate(measured.rate), delivered, p99, format_duration(measured.duration)


def _objectives(runs: Named) -> Iterator[Block]:
    """Yield all objectives; implicit ones that were met on demand, as every run has them."""
    usual = []
    others = []
    for name, run in runs:
        for prefix, finding in all_findings(run.document):
            judged = (name, run, prefix, finding)
            if finding.implicit and finding.outcome is Outcome.MET:
                usual.append(judged)
            else:
                others.append(judged)
    if others:
        others.sort(key=lambda entry: MISSES_FIRST.index(entry[3].outcome))
        order = "those missed first, then those without a result, then those met"
        yield _objective_table(f"Objectives of every run: {order}", others)
    else:
        yield Paragraph("None, apart from implicit ones." if usual else "None.")
    if usual:
        were = "was" if len(usual) == 1 else "were"
        title = f"{counted(len(usual), 'implicit objective')} that {were} met"
        yield Fold(title, [_objective_table("Implicit objectives that were met", usual)])


def _objective_table(
    caption: str, judged: Sequence[tuple[str, ReadRun, str, FindingEntry]]
) -> Table:
    rows = []
    for name, run, prefix, finding in judged:
        test = Cell(run_title(run), link=name)
        rows.append((test, *objectives.objective_row(prefix, finding)))
    head = ("test", *objectives.HEAD)
    return Table(caption=caption, head=head, align=f"<{objectives.ALIGN}", rows=rows)


def _environment(runs: Named) -> Iterator[Block]:
    """Yield each broker, machine and set of versions once, with its runs."""
    for caption in ("Broker", "Machine", "Versions"):
        facts_of: dict[str, Mapping[str, Any]] = {}
        users: dict[str, list[str]] = {}
        for _, run in runs:
            facts = _facts(run.document)[caption]
            key = json.dumps(facts, sort_keys=True)
            facts_of[key] = facts
            users.setdefault(key, []).append(run_title(run))
        for key, facts in facts_of.items():
            of = "all runs" if len(facts_of) == 1 else ", ".join(dict.fromkeys(users[key]))
            if facts:
                yield facts_table(f"{caption} of {of}", facts)
            else:
                yield Paragraph(f"{caption} of {of}: not known", "absent")


def _facts(document: RunDocument) -> dict[str, Mapping[str, Any]]:
    """Return the facts of a run by caption.

    Restarts are left out: they are events. So are an address that the target does not have, and
    that it is no stand-in.
    """
    broker = dict(document.broker)
    broker.pop("restarts", None)
    for name, usual in (("adminUrl", None), ("evidence", True)):
        if broker.get(name, usual) == usual:
            broker.pop(name, None)
    machine = dict(document.machine)
    if machine.get("memory") is not None:
        machine["memory"] = format_size(machine["memory"])
    return {
        "Plan": document.plan,
        "Driver": document.driver,
        "Broker": broker,
        "Machine": machine,
        "Versions": document.versions,
    }


def facts_table(caption: str, facts: Mapping[str, Any]) -> Table:
    """Return names and values as a table; nested values have dotted names."""
    return Table(caption=caption, head=("what", "value"), align="<<", rows=list(_flat(facts)))


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", fact_text(value)


def fact_text(value: Any) -> str:
    """Format a JSON value for people."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return exact(value) if value == int(value) else format_value(value, "number", 5)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


LONGEST: Final = 400
"""The largest number of lines of a profile; a profile with a rate for every second has many
more."""


def environment_chapter(document: RunDocument) -> Iterator[Block]:
    """Yield plan, client, target, machine, versions and profile; all but the plan on demand."""
    for kind, facts in _facts(document).items():
        caption = "Target" if kind == "Broker" else kind
        block: Block = absent(caption.lower(), "the run broke before")
        if facts:
            block = facts_table(caption, facts)
        yield block if kind == "Plan" else Fold(caption, [block])
    lines = json.dumps(document.profile.document, indent=1, ensure_ascii=False).splitlines()
    if len(lines) > LONGEST:
        lines[LONGEST:] = [f"… and {len(lines) - LONGEST} more lines in results.json"]
    yield Fold(
        "Profile, with all that was changed for this run",
        [Verbatim("profile", lines)],
    )
