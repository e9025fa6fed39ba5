"""What happened beside the load and when: spans of time that are shaded over every chart of a run, and listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.report.html.blocks import Table
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.report.document import Document

Band = dict[str, Any]
MOST: Final = 200
"""Of one kind that are shown: more of them cover the chart. The longest are."""
KINDS: Final = {
    "stage": "stage", "change": "change", "restart": "broker restart", "stall": "generator stalled", "blocked": "blocked", "lost": "lost",
}  # fmt: skip


def find_bands(document: Document) -> list[Band]:
    """All of a run, by kind and then by time; seconds since the start of the measured phase."""
    measured = document["measurements"]
    line = document.get("timeline") or {}  # older results have none, nor do broken runs
    end = _end(document)
    found = [
        *(_band("stage", one["start"], one["end"], one["name"]) for one in line.get("stages", ())),
        *(_band("change", one["at"], one["at"], one["text"]) for one in line.get("changes", ())),
        *_restarts(line.get("restarts", document["broker"].get("restarts", ())), end),
        *(_band("stall", one["start"], one["end"], f"worker {one['worker']}") for one in line.get("stalls", ())),
        *(_band("blocked", one["start"], one["end"], "the target's window was full") for one in line.get("blocked", ())),
    ]
    return found + list(_lost((measured or {}).get("series", {}).get("missing") or ()))


def _end(document: Document) -> int:
    """Where the time line ends, ns: the drain belongs to it."""
    measured = document["measurements"]
    return 0 if measured is None else max(measured["duration"], len(measured["series"]["offered"]) * SECOND)


def _band(kind: str, start: float, end: float, label: str) -> Band:
    return {"kind": kind, "from": start / SECOND, "to": end / SECOND, "label": label}


def _restarts(restarts: Sequence[Document], end: int) -> Iterator[Band]:
    for one in restarts:
        ready = one["ready"]
        took = "not ready again" if ready is None else f"ready {format_duration(ready - one['down'])} later"
        yield _band("restart", one["down"], max(end, one["down"]) if ready is None else ready, took)


def _lost(missing: Sequence[int]) -> Iterator[Band]:
    """Neighbouring seconds of which deliveries are missing are one span."""
    start, total = 0, 0
    for second, count in enumerate([*missing, 0]):
        if count > 0:
            start, total = (start if total else second), total + count
        elif total:
            yield _band("lost", start * SECOND, second * SECOND, f"{exact(total)} deliveries of those due here are missing")
            total = 0


def drawn_bands(found: Sequence[Band]) -> list[Band]:
    """Those that a chart can show, by kind and then by time: of too many of one kind the longest."""
    kept: list[Band] = []
    for kind in KINDS:
        longest = sorted((band for band in found if band["kind"] == kind), key=lambda band: band["from"] - band["to"])[:MOST]
        kept += sorted(longest, key=lambda band: (band["from"], band["to"]))
    return kept


def events_table(found: Sequence[Band]) -> Table | None:
    """Those as a table, in order of time; None where there are none."""
    shown = drawn_bands(found)
    rows = [
        (_at(band["from"]), _long(band["to"] - band["from"]), KINDS[band["kind"]], band["label"])
        for band in sorted(shown, key=lambda band: (band["from"], band["to"]))
    ]
    more = f"; {exact(len(found) - len(shown))} shorter ones are left out" if len(found) > len(shown) else ""
    caption = f"What happened beside the load, by time since the start of the measured phase{more}"
    head = ("at", "for", "what", "")
    return Table(caption=caption, head=head, rows=rows, numbers=frozenset((0, 1))) if rows else None


def _long(seconds: float) -> str:
    return format_duration(seconds * SECOND) if seconds else "an instant"


def _at(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 120 else format_duration(seconds * SECOND)
