"""The first screen of the page, a row for each run, worst first; and the environment, its end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.html.blocks import Block, Chapter, Fold, Paragraph, Verbatim
from pytest_loadtest.report.sections import run_name
from pytest_loadtest.report.tables import Table
from pytest_loadtest.values.quantities import format_size
from pytest_loadtest.values.wording import exact, format_value

if TYPE_CHECKING:
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.find_results import ReadRun, ResultSet


def run_label(run: ReadRun) -> str:
    """Return the test without its file, its workload, and the attempt after the first."""
    name = run_name(run.document).rpartition("::")[2]
    return f"{name} · attempt {run.attempt}" if run.attempt > 1 else name


def format_started(started: str | None) -> str:
    """Format ISO 8601 in UTC as ``2026-11-23 04:19:55 UTC``."""
    return "never" if started is None else f"{started[:19].replace('T', ' ')} UTC"


LONGEST: Final = 400
"""The largest number of lines of a profile; a profile with a rate for every second has many
more."""


def environment_chapter(results: ResultSet) -> Chapter:
    """Return what ran: identical facts once, with the runs that they apply to."""
    facts_of = {}
    users: dict[tuple[str, str], list[str]] = {}
    for run in results.runs:
        for kind, facts in _facts(run.document).items():
            key = json.dumps(facts, sort_keys=True)
            facts_of[key] = facts
            users.setdefault((kind, key), []).append(run_label(run))
    blocks: list[Block] = []
    for (kind, key), labels in sorted(users.items(), key=lambda entry: _ORDER.index(entry[0][0])):
        runs = "all runs" if len(labels) == len(results.runs) else ", ".join(dict.fromkeys(labels))
        title = f"{kind} of {runs}"
        blocks.append(Fold(title, [_facts_block(kind, title, facts_of[key])]))
    return Chapter("environment", "Environment", blocks)


def _facts_block(kind: str, title: str, facts: Mapping[str, Any]) -> Block:
    if not facts:
        return Paragraph(f"{title}: not known", "absent")
    if kind != "Profile":
        return facts_table(title, facts)
    lines = json.dumps(facts, indent=1, ensure_ascii=False).splitlines()
    if len(lines) > LONGEST:
        lines[LONGEST:] = [f"… and {len(lines) - LONGEST} more lines in results.json"]
    return Verbatim("profile, with all that was changed for this run", lines)


_ORDER: Final = ("Target", "Machine", "Versions", "Driver", "Plan", "Profile")


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
        "Target": broker,
        "Machine": machine,
        "Versions": document.versions,
        "Driver": document.driver,
        "Plan": document.plan,
        "Profile": document.profile.document,
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
