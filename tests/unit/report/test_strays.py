"""The first foreign and corrupt messages in the terminal, in Markdown, in JSON and on the page."""

from __future__ import annotations

import json

from builders.documents import as_json, document, from_json
from builders.report import made_session

from pytest_loadtest.metrics.strays import Stray, StrayKind, printable
from pytest_loadtest.report.ci import github_summary
from pytest_loadtest.report.terminal import summary_lines
from pytest_loadtest.values.quantities import SECOND


def stray(kind: StrayKind, at: int, body: bytes | None) -> Stray:
    return Stray(
        kind=kind,
        at=at,
        topic="shop/confirmed/0",
        size=100,
        beginning=None if body is None else printable(body),
    )


FOREIGN = stray("foreign", -2 * SECOND, b"<b>\x1b[31m | `x`" + b"y" * 60)
UNKNOWN = stray("foreign", SECOND, None)
CORRUPT = stray("corrupt", 3 * SECOND, b"~lt1~AAAA")
RUN = document(counts={"foreign": 2, "corrupt": 1}, strays=(FOREIGN, UNKNOWN, CORRUPT))


def test_the_terminal_shows_the_first_of_each_kind_below_the_counts() -> None:
    found = summary_lines(RUN)
    at = next(n for n, line in enumerate(found) if line.startswith("  in "))
    assert found[at + 1] == (
        "  first      foreign on shop/confirmed/0, 100 B: <b>\\x1b[31m | `x`" + "y" * 23 + "…; "
        "corrupt on shop/confirmed/0, 100 B: ~lt1~AAAA"
    )


def test_a_run_without_such_messages_says_nothing_of_them() -> None:
    run = document()
    assert not [line for line in summary_lines(run) if line.startswith("  first ")]
    assert "first bytes" not in github_summary([run]) + made_session(run)


def test_markdown_has_a_row_for_each_with_its_bytes_escaped() -> None:
    lines = github_summary([RUN]).splitlines()
    at = lines.index("| kind | topic | time | size | first bytes |")
    assert lines[at - 2 : at] == ["The first foreign and corrupt messages:", ""]
    row = "| foreign | shop/confirmed/0 | 2.00 s before load | 100 B |"
    assert lines[at + 2] == rf"{row} \<b\>\\x1b\[31m \| \`x\`{'y' * 60} |"
    assert lines[at + 3] == "| foreign | shop/confirmed/0 | 1.00 s | 100 B | unknown |"
    assert lines[at + 4].endswith(r"| 3.00 s | 100 B | \~lt1\~AAAA |")


def test_the_page_has_a_table_without_markup_of_theirs() -> None:
    page = made_session(RUN)
    assert "The first foreign and corrupt messages" in page
    assert "&lt;b&gt;\\x1b[31m | `x`" in page
    assert "<b>\\x1b" not in page and "\x1b" not in page


def test_results_have_them_and_can_be_read_again() -> None:
    written = as_json(RUN)
    assert written["measurements"]["strays"][2] == {
        "kind": "corrupt",
        "at": 3 * SECOND,
        "topic": "shop/confirmed/0",
        "size": 100,
        "beginning": "~lt1~AAAA",
    }
    assert from_json(json.loads(json.dumps(written))) == RUN
