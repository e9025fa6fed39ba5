"""The table of transitions in the documentation."""

from __future__ import annotations

from pathlib import Path

from pytest_loadtest.fleet.run_states import TABLE
from pytest_loadtest.fleet.transitions import transitions_table

DESIGN = Path(__file__).parents[3] / "docs/design.md"


def test_the_table_of_the_documentation_has_every_change_of_state() -> None:
    """scripts/schemas writes it."""
    changes = {
        (before.__name__, after.__name__)
        for (before, _), row in TABLE.items()
        for after in row.leads_to
        if after is not before
    }
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in transitions_table().splitlines()[2:]
    ]
    assert {(before, after) for before, after, _ in lines} == changes
    assert len(lines) == len(changes)
    assert transitions_table() in DESIGN.read_text(encoding="utf-8"), "run scripts/schemas"
