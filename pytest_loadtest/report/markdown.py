"""Markdown for GitHub and GitLab: texts, tables, folded parts, and what fits in a limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_loadtest.values.wording import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_loadtest.report.tables import Cell, Table

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
_REFERENCE: Final = re.compile(r"([@#!])(?=\w)|(?<!:)(:)(?=[\w+-]+:(?!:))")
"""The sign in front of a name, an issue, a merge request or an emoji.

GitHub and GitLab make links of them, and tell the person, although the sign is escaped.
"""
_NO_REFERENCE: Final = "&#8203;"
"""An invisible space of no width."""
_RULES: Final = {"<": "---", ">": "--:"}
_NOTE: Final = "\n… and {} more {}: see the results folder\n"
NOTE_ROOM: Final = len(_NOTE.encode()) + 20
"""Bytes kept free for the note on omitted parts and their number.

So the rows of a table do not use up the room for the note on what follows it.
"""


def escaped(text: str) -> str:
    """Escape everything that has a meaning in Markdown, on GitHub or on GitLab; on one line."""
    line = visible(" ".join(text.split()))
    parts = []
    end = 0
    for found in _REFERENCE.finditer(line):
        parts += [_special(line[end : found.end()]), _NO_REFERENCE]
        end = found.end()
    return "".join([*parts, _special(line[end:])])


def _special(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """Return the text as code, between as many backticks as are necessary."""
    text = visible(text).replace("\n", "\\n")
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


def markdown_lines(table: Table) -> Iterator[str]:
    """Yield the lines of a table; its texts are escaped, a cell with an outcome is bold."""
    if table.caption:
        yield f"{escaped(table.caption)}:"
        yield ""
    yield "|" + "".join(f" {escaped(head)} |" for head in table.head).replace("  |", " |")
    yield f"|{'|'.join(map(_RULES.__getitem__, table.sides))}|"
    for row in table.rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return escaped(cell)
    return f"**{escaped(cell.text)}**" if cell.kind else escaped(cell.text)


def folded(summary: str, lines: Iterable[str]) -> list[str]:
    """Return lines that are shown after a click on their summary, which has no special characters.

    The empty lines are necessary: without them the lines would be read as HTML.
    """
    return ["", f"<details><summary>{summary}</summary>", "", *lines, "", "</details>"]


def fitting(parts: Sequence[str], room: int, what: str) -> Iterator[str]:
    """Yield as many parts as there is room for, in bytes, and a note on how many were left out."""
    total = 0
    kept = 0
    for part in parts:
        last = kept == len(parts) - 1
        used = total + len(part.encode())
        if used + (0 if last else NOTE_ROOM) > room:
            break
        total = used
        kept += 1
    yield from parts[:kept]
    if kept < len(parts) and total + NOTE_ROOM <= room:
        yield _NOTE.format(len(parts) - kept, what)


def limited(
    head: str, table: Table, details: Sequence[str], short: Sequence[str], room: int, what: str
) -> str:
    """Return a document of at most so many bytes; what is left out, from the end, is said.

    :param table: has a row for each of the details.
    :param short: the details where there is not enough room for all.
    """
    heads, rule, *rows = (f"{line}\n" for line in markdown_lines(table))
    left = room - len(head.encode()) - NOTE_ROOM
    parts = [head, *fitting([heads + rule, *rows], left, "rows")]
    left = room - len("".join(parts).encode())
    if len("".join(details).encode()) > left:
        details = short
    return "".join([*parts, *fitting(details, left, what)])
