"""What happened beside the load, as shaded spans and as a table."""

from __future__ import annotations

from typing import Any

from builders.documents import FACTS, RESTARTED, document

from pytest_loadtest.report.document import build_document
from pytest_loadtest.report.html.bands import MOST, drawn_bands, events_table, find_bands
from pytest_loadtest.verdict.slo import Outcome, Verdict

S = 1_000_000_000
TIMELINE = {
    "stages": [{"name": "ramp", "start": 0, "end": 4 * S}, {"name": "hold", "start": 4 * S, "end": 10 * S}],
    "changes": [{"at": 5 * S, "text": "rate 12 000 msg/s"}],
    "restarts": [{"down": 6 * S, "ready": 8 * S}, {"down": 9 * S, "ready": None}],
    "stalls": [{"worker": "gw1", "start": S, "end": 2 * S}],
    "blocked": [{"start": 6 * S, "end": 9 * S}],
}


def made(missing: list[int] | None = None) -> dict[str, Any]:
    """A run of ten seconds with everything in it."""
    found = document(parts={"timeline": TIMELINE})
    found["measurements"]["series"]["missing"] = missing
    return found


def test_every_kind_is_a_band() -> None:
    """In seconds, by kind; what never came back lasts until the end."""
    found = [(one["kind"], one["from"], one["to"], one["label"]) for one in find_bands(made([0, 2, 3, -1, 0, 0, 1, 0, 0, 0]))]
    assert found == [
        ("stage", 0, 4, "ramp"), ("stage", 4, 10, "hold"), ("change", 5, 5, "rate 12 000 msg/s"),
        ("restart", 6, 8, "ready 2.00 s later"), ("restart", 9, 10, "not ready again"), ("stall", 1, 2, "worker gw1"),
        ("blocked", 6, 9, "the target's window was full"), ("lost", 1, 3, "5 deliveries of those due here are missing"),
        ("lost", 6, 7, "1 deliveries of those due here are missing"),
    ]  # fmt: skip


def test_they_are_told_in_order_of_time() -> None:
    """In words, with how long each lasts."""
    table = events_table(find_bands(made()))
    assert table is not None
    assert [row[:3] for row in table.rows] == [
        ("0.000 s", "4.00 s", "stage"), ("1.000 s", "1.00 s", "generator stalled"), ("4.000 s", "6.00 s", "stage"), ("5.000 s", "an instant", "change"),
        ("6.000 s", "2.00 s", "broker restart"), ("6.000 s", "3.00 s", "blocked"), ("9.000 s", "1.00 s", "broker restart"),
    ]  # fmt: skip


def test_nothing_happened() -> None:
    """Then there is no table; nor in a run that broke."""
    assert events_table(find_bands(document())) is None
    assert find_bands(build_document(FACTS, Verdict(outcome=Outcome.NO_DATA, findings=(), reasons=("worker gw1 died",)), None)) == []


def test_older_results_tell_of_restarts_alone() -> None:
    """Where they have no time line, the broker's own section has them."""
    old = document(facts={"broker": RESTARTED})
    del old["timeline"]
    assert [(one["kind"], one["from"], one["to"]) for one in find_bands(old)] == [("restart", 3.02, 7.13), ("restart", 9, 10)]


def test_of_too_many_the_longest_are_shown() -> None:
    """With how many are left out."""
    found = find_bands(made([1, 0] * MOST + [1, 1, 1, 0]))
    lost = [one for one in drawn_bands(found) if one["kind"] == "lost"]
    assert len(lost) == MOST
    assert lost[-1]["to"] - lost[-1]["from"] == 3
    table = events_table(found)
    assert table is not None
    assert table.caption.endswith("; 1 shorter ones are left out")
