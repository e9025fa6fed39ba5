"""Texts, tables and folds in Markdown, and what fits in a limit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.report.markdown import code, escaped, fitting, folded, markdown_lines
from pytest_loadtest.report.tables import Cell, Table

SPACE = "&#8203;"


def test_a_table_has_a_rule_for_each_column() -> None:
    rows = [("a", Cell("b"), "7"), ("", "c", "1000")]
    table = Table(head=("", "name", "count"), align="<<>", rows=rows)
    assert list(markdown_lines(table)) == [
        "| | name | count |",
        "|---|---|--:|",
        "| a | b | 7 |",
        "|  | c | 1000 |",
    ]


def test_without_an_alignment_all_columns_but_the_first_are_numbers() -> None:
    table = Table(head=("name", "count", "share"), rows=[])
    assert list(markdown_lines(table)) == ["| name | count | share |", "|---|--:|--:|"]


def test_a_cell_with_an_outcome_is_bold_and_every_cell_is_escaped() -> None:
    table = Table(head=("a_b",), rows=[(Cell("no | data", "no data"),), ("x|y",)])
    assert list(markdown_lines(table))[::2] == ["| a\\_b |", "| **no \\| data** |"]
    assert list(markdown_lines(table))[3] == "| x\\|y |"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b> [x](y) `z`", r"\<b\> \[x\](y) \`z\`"),
        ("a\n\n| b", r"a \| b"),
        ("test[@octocat]", rf"test\[@{SPACE}octocat\]"),
        ("fixes #12", rf"fixes \#{SPACE}12"),
        ("!12 met!", f"!{SPACE}12 met!"),
        ("a:100:b", f"a:{SPACE}100:b"),
        ("test_a.py::TestB::test_c", r"test\_a.py::TestB::test\_c"),
        ("\x1b[0m\u202e", r"\\x1b\[0m\\u202e"),
    ],
)
def test_no_text_is_a_format_a_link_or_a_mention(text: str, expected: str) -> None:
    assert escaped(text) == expected


@given(st.text(max_size=60))
def test_an_escaped_text_is_one_line_without_open_signs(text: str) -> None:
    found = escaped(text)
    assert len(found.splitlines()) <= 1
    plain = re.sub(r"\\.", "", found.replace(SPACE, ""))
    assert not set("`*_<>|~$[]#") & set(plain)


@pytest.mark.parametrize(
    ("text", "expected"), [("a|b", "`a|b`"), ("a`b", "`` a`b ``"), ("a\nb", r"`a\nb`")]
)
def test_code_is_between_enough_backticks(text: str, expected: str) -> None:
    assert code(text) == expected


def test_folded_lines_are_read_as_markdown() -> None:
    assert folded("3 figures", ["- a"]) == [
        "",
        "<details><summary>3 figures</summary>",
        "",
        "- a",
        "",
        "</details>",
    ]


@given(st.lists(st.text(max_size=40)), st.integers(0, 400))
def test_parts_fit_or_their_number_is_said(parts: list[str], room: int) -> None:
    found = list(fitting(parts, room, "runs"))
    assert sum(len(part.encode()) for part in found) <= room
    if found and found[-1] not in parts:
        left_out = len(parts) - len(found) + 1
        assert f"… and {left_out} more runs" in found[-1]
