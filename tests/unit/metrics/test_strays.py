"""The first foreign and corrupt messages of a run, and their bytes as text."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.strays import Stray, StrayKind, first_strays, printable


@given(st.binary(max_size=64))
def test_bytes_as_text_are_printable_ascii_of_which_they_can_be_read_again(data: bytes) -> None:
    text = printable(data)
    assert text.isascii() and (text.isprintable() or not text)
    assert ast.literal_eval(f"b'{text}'") == data


def test_printable_text_stays_as_it_is() -> None:
    assert printable(b'{"id": 7, "it\'s": 1}\n\x1b[31m\xc3\xa4') == (
        '{"id": 7, "it\\\'s": 1}\\n\\x1b[31m\\xc3\\xa4'
    )


def stray(kind: StrayKind, at: int) -> Stray:
    return Stray(kind=kind, at=at, topic="orders", size=5, beginning="hello")


def test_the_first_three_of_each_kind_are_those_of_all_workers_by_time() -> None:
    strays = [stray("foreign", at) for at in (5, -1, 9, 7)]
    strays += [stray("corrupt", at) for at in (8, 6)]
    found = first_strays(strays)
    assert [(each.kind, each.at) for each in found] == [
        ("foreign", -1), ("foreign", 5), ("foreign", 7), ("corrupt", 6), ("corrupt", 8)
    ]  # fmt: skip
