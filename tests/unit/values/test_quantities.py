"""Durations, sizes, rates and counts as text."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.values.quantities import (
    ByteRate,
    exact_rate,
    format_bits,
    format_count,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


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
def test_a_rate_in_messages_is_a_number_and_one_in_bytes_a_byte_rate(
    text: str, rate: float
) -> None:
    """Bytes are 1024-based."""
    assert parse_rate(text) == rate
    assert type(parse_rate(text)) is type(rate)


@pytest.mark.parametrize("text", ["5000", "fast", "5 m/s", "-5/s", "5 MB", ""])
def test_a_rate_without_a_unit_of_a_rate_is_an_error(text: str) -> None:
    with pytest.raises(
        ValueError, match="is not a rate: write messages per second, as in 5000/s, or bytes"
    ):
        parse_rate(text)


@pytest.mark.parametrize("text", ["200Mb/s", "200Mbit/s", "1 Gbps"])
def test_a_rate_in_bits_is_an_error(text: str) -> None:
    """It is not taken for bytes, which would be eight times the load."""
    with pytest.raises(ValueError, match="is a rate in bits: write bytes, as in 200MB/s"):
        parse_rate(text)


@given(st.floats(min_value=2**-20, max_value=1e15))
def test_rates_in_bytes_read_back(rate: float) -> None:
    """``exact_rate`` rounds nothing."""
    written = exact_rate(ByteRate(rate))
    assert isinstance(written, str)
    again = parse_rate(written)
    assert (again, type(again)) == (rate, ByteRate)


def test_rates_are_shown_with_their_unit() -> None:
    """A byte rate differs from messages wherever it is printed, also after pickling."""
    rate = pickle.loads(pickle.dumps(ByteRate(200 * 1024**2)))
    assert (format_rate(rate), repr(rate), format_rate(2.5e6)) == (
        "200 MiB/s",
        "200 MiB/s",
        "2.50 M msg/s",
    )
    assert type(rate)(rate * 2) == ByteRate(400 * 1024**2)


@pytest.mark.parametrize(
    ("text", "ns"),
    [("90s", 90 * 10**9), ("1.5 ms", 1_500_000), ("2us", 2_000), ("2µs", 2_000), ("7ns", 7), ("1m", 60 * 10**9), ("1 min", 60 * 10**9),
     ("1h", 3600 * 10**9), ("2d", 172_800 * 10**9), ("1_000ms", 10**9), ("1e3ms", 10**9)],
)  # fmt: skip
def test_a_duration_is_ns(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["90", "90 sec", "-1s", "1MS", "s", ""])
def test_a_duration_without_a_known_unit_is_an_error(text: str) -> None:
    """Units of time have one spelling: ``M`` could be minutes or months."""
    with pytest.raises(ValueError, match="is not a duration: write a number and a unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4KB", 4096),
        ("4kb", 4096),
        ("1 MiB", 1024**2),
        ("1.5GB", 3 * 1024**3 // 2),
        ("100", 100),
        ("7B", 7),
    ],
)
def test_a_size_is_bytes_and_needs_no_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["4 TB", "-1KB", "KB", ""])
def test_a_size_with_an_unknown_unit_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size: write a number and a unit"):
        parse_size(text)


@pytest.mark.parametrize("parse", [parse_duration, parse_size])
def test_a_number_beyond_any_use_is_an_error_and_takes_no_memory(parse: object) -> None:
    unit = "s" if parse is parse_duration else "KB"
    with pytest.raises(ValueError, match="is too large for a"):
        parse(f"1e999999999{unit}")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("ns", "text"),
    [(999, "999 ns"), (1_500_000, "1.50 ms"), (12_345, "12.3 µs"), (-1_500_000, "-1.50 ms"), (90 * 10**9, "90.0 s"), (119 * 10**9, "119 s"),
     (120 * 10**9, "2.00 min"), (7_199 * 10**9, "120 min"), (7_200 * 10**9, "2.00 h")],
)  # fmt: skip
def test_a_duration_is_shown_with_three_digits(ns: int, text: str) -> None:
    """In minutes and hours from two of them on: 90 s is easier to read than 1.50 min."""
    assert format_duration(ns) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [(format_size(1023), "1023 B"), (format_size(26_214_400), "25.0 MiB"), (format_size(3 * 1024**4), "3.00 TiB"), (format_count(9_999), "9 999"),
     (format_count(12_345), "12.3 k"), (format_count(1_000_000), "1.00 M"), (format_count(2.5), "2.5"), (format_bits(512e9), "512 Gbit/s"),
     (format_bits(800), "800 bit/s"), (format_bits(9.64e9), "9.64 Gbit/s"), (format_bits(1e12), "1.00 Tbit/s")],
)  # fmt: skip
def test_sizes_counts_and_bits_are_shown_with_three_digits(shown: str, text: str) -> None:
    assert shown == text
