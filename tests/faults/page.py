"""The page ``docs/reference/faults.md``, written by ``scripts/schemas``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .catalogue import CATALOGUE

if TYPE_CHECKING:
    from .fault import Fault

INTRODUCTION = """\
# Faults

Each line is a fault that the project's tests make, with the verdict that it must have. `scripts/schemas` writes this page from the
catalogue in `tests/faults`, and the tests fail if a run differs from its line: in the verdict, the exit status, the words of the report, the
counts, or in what is left behind. In each session a second, healthy load test follows the fault and must be met, unless the session ends.

`scripts/test` runs the faults marked *test*, `scripts/faults` all of them; `scripts/faults NAME …` runs only those.
A … in the report's words stands for text that differs from run to run. Exit statuses are pytest's: 0 passed, 1 failed or error, 2 interrupted;
a signal's name means that it killed the session. Results in `.loadtest` always stay; *left behind* lists what stays elsewhere.
"""
HEAD = "| fault | what happens | how it is made | verdict | exit status | the report says | left behind | run by |"


def faults_page() -> str:
    """Return the page as Markdown."""
    sections = [INTRODUCTION]
    for title, faults in CATALOGUE.items():
        rows = [
            f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells(fault))} |"
            for fault in faults
        ]
        sections.append("\n".join([f"## {title}\n", HEAD, "|" + " --- |" * 8, *rows]) + "\n")
    return "\n".join(sections)


def cells(fault: Fault) -> tuple[str, ...]:
    """Return the cells of a fault's row."""
    counts = (
        [", ".join(f"{name} {count}" for name, count in fault.counts.items())]
        if fault.counts
        else []
    )
    says = [f"“{phrase}”" for phrase in fault.says]
    left = [f"`{name}`: {what}" for name, what in fault.left.items()]
    return (
        f"`{fault.name}`", fault.happens, fault.made, fault.verdict or "none", exit_status(fault.status), "; ".join(says + counts) or "–",
        "; ".join(left) or "nothing", "faults" if fault.slow else "test",
    )  # fmt: skip


def exit_status(status: int) -> str:
    """Return an exit status as text."""
    import signal

    return signal.Signals(-status).name if status < 0 else str(status)
