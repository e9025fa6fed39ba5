"""The table of a run's changes of state in docs/design.md, which ``scripts/schemas`` writes."""

from __future__ import annotations

from pytest_loadtest.fleet.run_states import STATES
from pytest_loadtest.fleet.transitions import TABLE


def transitions_table() -> str:
    """Return the changes of state as a Markdown table: from, to, and the events that cause it."""
    changes: dict[tuple[str, str], list[str]] = {}
    for (state, event), row in TABLE.items():
        for following in row.leads_to:
            if following is not state:
                changes.setdefault((state.__name__, following.__name__), []).append(
                    f"`{event.__name__}`"
                )
    order = [state.__name__ for state in STATES]
    lines = ["| from | to | on |", "|---|---|---|"]
    for before, after in sorted(
        changes, key=lambda change: (order.index(change[0]), order.index(change[1]))
    ):
        lines.append(f"| {before} | {after} | {', '.join(changes[before, after])} |")
    return "\n".join(lines) + "\n"
