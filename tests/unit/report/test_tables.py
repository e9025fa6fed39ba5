"""One table as lines of the terminal."""

from __future__ import annotations

from pytest_loadtest.report.tables import Cell, Table, aligned, terminal_lines

TABLE = Table(
    head=("", "name", "count"), align="<<>", rows=[("a", Cell("b"), "7"), ("", "c", "1000")]
)


def test_a_column_is_as_wide_as_its_widest_cell() -> None:
    assert aligned([("a", "1"), ("bcd", "1000")], "<>") == ["a       1", "bcd  1000"]


def test_the_terminal_has_heads_rows_and_marks() -> None:
    plain = ["     name  count", "  a  b         7", "     c      1000"]
    assert list(terminal_lines(TABLE)) == plain
    marked = list(terminal_lines(TABLE, ("ok", "!")))
    assert [line[:5] for line in marked] == ["     ", "  ok ", "  !  "]
    assert [line[5:] for line in marked] == [line[2:] for line in plain]
