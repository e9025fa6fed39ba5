"""The model of a table, which every report uses, and its lines for the terminal.

``markdown.py`` and ``html/templates/macros.html.j2`` render the same tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from pytest_loadtest.values.records import immutable, record


@immutable
class Cell:
    """A cell with an outcome or a link.

    :param kind: an outcome, for its mark and colour. :param link: id of a place on the page.
    """

    text: str
    kind: str = ""
    link: str = ""


@record
class Table:
    """A caption, the heads of columns, and rows; the first cell of a row is its head.

    :param align: ``<`` or ``>`` for each column: text, or numbers. Without it, the first column is
        text and the others are numbers.
    """

    block: ClassVar = "table"
    caption: str = ""
    head: Sequence[str]
    align: str = ""
    rows: Sequence[Sequence[str | Cell]]

    @property
    def sides(self) -> str:
        """The alignment of each column."""
        return self.align or "<".ljust(len(self.head), ">")


def terminal_lines(table: Table, marks: Sequence[str] = ()) -> Iterator[str]:
    """Yield the heads, then each row, as indented lines of the terminal.

    :param marks: one for each row, in front of it.
    """
    lines = aligned([table.head, *map(_texts, table.rows)], table.sides)
    if not marks:
        yield from (f"  {line}" for line in lines)
        return
    width = max(map(len, marks))
    for mark, line in zip(("", *marks), lines, strict=True):
        yield f"  {mark:<{width}} {line}"


def aligned(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Return rows with columns as wide as their widest cell. :param align: as in a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        formats = zip(row, align, widths, strict=True)
        cells = [f"{cell:{side}{width}}" for cell, side, width in formats]
        lines.append("  ".join(cells).rstrip())
    return lines


Writer = Callable[[Any], str]
"""The function that formats a value."""


def written(figures: Iterable[tuple[Any, Writer]], absent: str) -> list[str]:
    """Return a cell for each value. :param absent: the text of a value that is unknown."""
    cells = []
    for value, write in figures:
        cells.append(absent if value is None else write(value))
    return cells


def _texts(row: Sequence[str | Cell]) -> list[str]:
    return [cell.text if isinstance(cell, Cell) else cell for cell in row]
