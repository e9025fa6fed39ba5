"""One table as lines of the terminal and of Markdown."""

from __future__ import annotations

from pytest_loadtest.report.tables import Cell, Table, aligned, markdown_lines, terminal_lines

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


def test_markdown_has_a_rule_for_each_column() -> None:
    assert list(markdown_lines(TABLE)) == [
        "| | name | count |",
        "|---|---|--:|",
        "| a | b | 7 |",
        "|  | c | 1000 |",
    ]


def test_without_an_alignment_all_columns_but_the_first_are_numbers() -> None:
    table = Table(head=("name", "count", "share"), rows=[])
    assert list(markdown_lines(table)) == ["| name | count | share |", "|---|--:|--:|"]
