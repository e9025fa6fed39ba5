"""The section ``comparison`` of a run's document as lines that people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.report.sections import aligned, mark
from pytest_loadtest.values.quantities import SECOND, format_size
from pytest_loadtest.values.wording import format_value
from pytest_loadtest.verdict.changes import percent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_loadtest.report.document import Document

MOST_DIFFERENCES = 8


def comparison_lines(section: Document | None, *, unicode: bool = True) -> Iterable[str]:
    """What the run was held against, what differs, then a row for each figure; nothing where there was no comparison."""
    if section is None:
        return
    yield from _heading(section)
    yield from _differences(section)
    yield from (f"             {note}" for note in section["notes"] if section["baseline"] is not None)
    if section["rows"]:
        yield from _rows(section["rows"], unicode)


def _heading(section: Document) -> Iterable[str]:
    baseline, blocks = section["baseline"], section["blocks"]
    if baseline is None:
        yield f"  baseline   none: {'; '.join(section['notes'])}"
        return
    yield f"  baseline   {baseline['results']} ({baseline['started']}, {baseline['outcome']})"
    if blocks is None:
        yield "             no interval: noise is told from 20 s of measured phase on, in both runs, of results of this version or later"
    else:
        many = f"{blocks['baseline']} and {blocks['now']} blocks of {blocks['length'] // SECOND} s"
        yield f"             intervals of {blocks['level'] * 100:.0f} % from {many}: noise within the runs, not from run to run"


def _differences(section: Document) -> Iterable[str]:
    deciding = [one for one in section["differences"] if one["decides"]]
    if deciding:
        forced = "; judged all the same (--load-baseline-force)" if section["forced"] else ""
        yield f"  NOT COMPARABLE  what decides differs{forced}:"
    for many, kind in ((deciding, "decides"), ([one for one in section["differences"] if not one["decides"]], "beside")):
        shown = many[:MOST_DIFFERENCES]
        yield from (f"             {kind:<8} {one['name']}: {one['baseline']} → {one['now']}" for one in shown)
        if len(many) > len(shown):
            yield f"             {kind:<8} … and {len(many) - len(shown)} more in results.json"


def _rows(rows: list[dict[str, Any]], unicode: bool) -> Iterable[str]:
    cells = [("compared", "baseline", "now", "change", "interval", "")]
    cells += [
        (row["name"], format_figure(row["baseline"], row["unit"]), format_figure(row["now"], row["unit"]), *_change(row)) for row in rows
    ]
    marks = [" ", *(mark(row["outcome"], unicode) if row["outcome"] else " " for row in rows)]
    width = max(map(len, marks))
    yield from (f"  {sign:<{width}} {line}" for sign, line in zip(marks, aligned(cells, "<>>>><"), strict=True))


def _change(row: dict[str, Any]) -> tuple[str, str, str]:
    if row["change"] is None:
        return "-", "-", ""
    if row["low"] is None:
        return percent(row["change"]), "-", ""
    return percent(row["change"]), f"{percent(row['low'])} to {percent(row['high'])}", change_word(row)


def change_word(row: dict[str, Any]) -> str:
    """``worse`` or ``better`` where the whole interval says so; ``within noise`` where it holds no change; empty where there is none."""
    if row["low"] is None:
        return ""
    if row["low"] <= 0 <= row["high"]:
        return "within noise"
    return "better" if (row["low"] > 0) == (row["better"] == "more") else "worse"


def format_figure(value: float | None, unit: str) -> str:
    """A figure with its unit."""
    if value is None:
        return "-"
    if unit == "cores":
        return f"{value:.2f} cores"
    return f"{format_size(value)}/s" if unit == "B/s" else format_value(value, unit)
