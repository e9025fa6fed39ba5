"""Rates as text: messages or bytes per second."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.values.quantities import ByteRate, exact_rate, format_rate, parse_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("5000/s", 5000.0),
        ("5_000 msg/s", 5000.0),
        ("0.5/s", 0.5),
        ("200MB/s", ByteRate(200 * 1024**2)),
        ("200 MiB/s", ByteRate(200 * 1024**2)),
        ("1.5KB/s", ByteRate(1536)),
        ("7B/s", ByteRate(7)),
    ],
)
def test_rates(text: str, rate: float) -> None:
    """Messages are plain numbers, bytes a class of their own, 1024-based."""
    assert parse_rate(text) == rate
    assert type(parse_rate(text)) is type(rate)


@pytest.mark.parametrize("text", ["5000", "fast", "5 m/s", "-5/s", "5 MB", ""])
def test_no_rates(text: str) -> None:
    """A rate without a unit, or with another one, is none."""
    with pytest.raises(ValueError, match="is not a rate: write messages per second, as in 5000/s, or bytes"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["200Mb/s", "200Mbit/s", "1 Gbps"])
def test_bits_are_no_bytes(text: str) -> None:
    """Who writes bits is told so, instead of getting eight times the load."""
    with pytest.raises(ValueError, match="is a rate in bits: write bytes, as in 200MB/s"):
        parse_rate(text)


@given(st.floats(min_value=2**-20, max_value=1e15))
def test_rates_in_bytes_read_back(rate: float) -> None:
    """As a document spells it, a rate loses nothing."""
    written = exact_rate(ByteRate(rate))
    assert isinstance(written, str)
    again = parse_rate(written)
    assert (again, type(again)) == (rate, ByteRate)


def test_rates_are_shown_with_their_unit() -> None:
    """A byte rate is told apart from messages wherever it is printed, and after it has travelled."""
    rate = pickle.loads(pickle.dumps(ByteRate(200 * 1024**2)))
    assert (format_rate(rate), repr(rate), format_rate(2.5e6)) == ("200 MiB/s", "200 MiB/s", "2.50 M msg/s")
    assert type(rate)(rate * 2) == ByteRate(400 * 1024**2)
