"""Objectives as tables: observed beside bound, in the words of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.report.html.blocks import Cell, Table
from pytest_loadtest.report.sections import MISSES_FIRST, all_findings
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.report.document import Document

HEAD: Final = ("objective", "outcome", "observed", "bound", "", "samples")


def objectives_table(document: Document) -> Table | None:
    """Those of a run and its stages, misses first; None where nothing was judged."""
    rows = [
        objective_row(where, finding)
        for where, finding in sorted(all_findings(document), key=lambda one: MISSES_FIRST.index(one[1]["outcome"]))
    ]
    return Table(caption="Objectives, misses first", head=HEAD, rows=rows, numbers=frozenset((2, 3, 5))) if rows else None


def objective_row(where: str, finding: Document) -> tuple[str | Cell, ...]:
    """Name, outcome, observed, bound, how far over or why there is no number, samples. :param where: what stands before its name."""
    name = finding["name"] + (" (implicit)" if finding["implicit"] else "")
    shown, samples = finding["shown"], finding["samples"]
    told = finding["observed"] is not None or shown["over"]  # or so many never came that there is no number
    return (
        where + name, Cell(finding["outcome"], finding["outcome"]),
        shown["observed"] if told else "not known", shown["bound"], shown["over"] if told else finding["text"].partition(": ")[2],
        "not counted" if samples is None else exact(samples),
    )  # fmt: skip


def missed_texts(document: Document) -> Sequence[str]:
    """A sentence for each miss."""
    return [where + finding["text"] for where, finding in all_findings(document) if finding["outcome"] == "missed"]
