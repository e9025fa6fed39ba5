"""Envelopes as tokens in JSON: writing them, and finding them in what a service made of a message."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.token import (
    PREFIX,
    TOKEN,
    TokenReader,
    decode_columns,
    decode_digits,
    encode_tokens,
    parse_pointer,
    token_columns,
)

heads = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=20)


def column(rows: list[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), 32)


def digits(token: bytes) -> bytes:
    return token.removeprefix(PREFIX)


@given(heads)
def test_an_envelope_survives_its_token(rows: list[bytes]) -> None:
    tokens = encode_tokens(column(rows))
    assert {len(token) for token in tokens} == {TOKEN}
    assert decode_digits([digits(token) for token in tokens]).tobytes() == b"".join(rows)


@given(heads)
def test_tokens_as_columns_are_the_same(rows: list[bytes]) -> None:
    columns = token_columns(column(rows))
    assert columns.tobytes() == b"".join(encode_tokens(column(rows)))
    assert np.array_equal(decode_columns(columns[:, len(PREFIX) :]), column(rows))


@given(heads)
def test_json_does_not_escape_a_token(rows: list[bytes]) -> None:
    for token in encode_tokens(column(rows)):
        text = token.decode()
        assert json.dumps(text) == f'"{text}"'


def test_a_message_without_a_token_has_an_envelope_of_zeros() -> None:
    token = encode_tokens(column([b"\xff" * 32]))[0]
    decoded = decode_digits([b"", digits(token)])
    assert decoded.tobytes() == bytes(32) + b"\xff" * 32


def test_a_character_that_is_no_digit_counts_as_zero() -> None:
    token = encode_tokens(column([b"\xff" * 32]))[0]
    damaged = b"!" + digits(token)[1:]
    assert decode_digits([damaged])[0, :2].tolist() == [0b00000011, 0xFF]


@pytest.mark.parametrize(
    ("text", "pointer"),
    [("/ref", ("ref",)), ("/meta/ref", ("meta", "ref")), ("/a~1b/c~0d", ("a/b", "c~d"))],
)
def test_a_pointer_is_read_as_rfc_6901_says(text: str, pointer: tuple[str, ...]) -> None:
    assert parse_pointer(text) == pointer


@pytest.mark.parametrize("text", ["", "/", "meta/ref"])
def test_a_pointer_to_no_field_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a JSON pointer to a field"):
        parse_pointer(text)


def message(document: object) -> bytes:
    return json.dumps(document).encode()


TOKENS = [token.decode() for token in encode_tokens(column([b"a" * 32, b"b" * 32]))]
FIRST, SECOND = TOKENS


def found(reader: TokenReader, data: bytes) -> str:
    return reader.digits(data, 0, len(data)).decode()


def test_a_token_is_found_wherever_it_stands() -> None:
    reader = TokenReader(("ref",))
    for data in (
        message({"ref": FIRST}),
        message({"a": "long before", "ref": FIRST}),
        b"no JSON at all: " + FIRST.encode(),
    ):
        assert found(reader, data) == FIRST[len(PREFIX) :]


def test_the_pointer_decides_between_two_tokens() -> None:
    reader = TokenReader(("order", "ref"))
    two = {"before": SECOND, "order": {"ref": FIRST}}
    assert found(reader, message(two)) == FIRST[len(PREFIX) :]
    # The position of the last token is not trusted any more.
    swapped = {"order": {"ref": SECOND}, "later": FIRST}
    assert found(reader, message(swapped)) == SECOND[len(PREFIX) :]


@pytest.mark.parametrize("two", [("old", "ref"), ("ref", "old")])
def test_another_token_where_the_last_one_was_is_not_taken_for_it(two: tuple[str, str]) -> None:
    """As of a service whose first output refers to no earlier message."""
    reader = TokenReader(("ref",))
    assert found(reader, message({two[0]: "", "ref": FIRST})) == FIRST[len(PREFIX) :]
    assert found(reader, message({"ref": FIRST})) == FIRST[len(PREFIX) :]
    tokens = {"old": FIRST, "ref": SECOND}
    assert found(reader, message({name: tokens[name] for name in two})) == SECOND[len(PREFIX) :]


def test_the_pointer_goes_through_lists() -> None:
    reader = TokenReader(("orders", "1"))
    assert found(reader, message({"orders": [SECOND, FIRST]})) == FIRST[len(PREFIX) :]


@pytest.mark.parametrize(
    "document",
    [
        {"a": FIRST, "b": SECOND},
        {"ref": 5, "a": FIRST, "b": SECOND},
        {"ref": "", "a": FIRST, "b": SECOND},
        {"ref": "\ud800", "a": FIRST, "b": SECOND},
        [FIRST, SECOND],
    ],
)
def test_two_tokens_elsewhere_are_no_token(document: object) -> None:
    assert found(TokenReader(("ref",)), message(document)) == ""


def test_a_message_without_the_prefix_has_no_token() -> None:
    assert found(TokenReader(("ref",)), message({"ref": "a" * 60})) == ""


def test_only_the_given_part_of_the_data_is_searched() -> None:
    data = message({"ref": FIRST}) + b"|" + message({"ref": "none"})
    reader = TokenReader(("ref",))
    assert reader.digits(data, data.index(b"|") + 1, len(data)) == b""


def test_a_token_cut_short_is_filled_up_so_that_its_check_fails() -> None:
    reader = TokenReader(("ref",))
    assert found(reader, FIRST[:30].encode()) == FIRST[len(PREFIX) : 30].ljust(43, "A")
