"""Values as text."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.values.wording import (
    distance,
    exact,
    format_value,
    pair,
    scale_word,
    with_version,
)


@given(st.sampled_from(["ns", "ratio", "msg/s"]), st.integers(1, 10**9), st.integers(-50, 50))
def test_a_pair_never_shows_different_values_alike(unit: str, bound: int, off: int) -> None:
    """50.0 ms > 50.0 ms would explain nothing."""
    value, limit = (
        (float(bound + off), float(bound))
        if unit != "ratio"
        else ((bound + off) / 10**9, bound / 10**9)
    )
    shown = pair(value, limit, unit)
    assert (shown[0] == shown[1]) == (value == limit)


@pytest.mark.parametrize(
    ("value", "bound", "unit", "texts"),
    [
        (999.98, 1000, "msg/s", ("999.98 msg/s", "1000 msg/s")),
        (9999.97, 10_000, "msg/s", ("9999.97 msg/s", "10000 msg/s")),
        (99_970, 100_000, "msg/s", ("99970 msg/s", "100000 msg/s")),
        (1.0002e9, 999.6e6, "ns", ("1000.2 ms", "999.6 ms")),
        (120.2e9, 119.8e9, "ns", ("120200 ms", "119800 ms")),
        (4998, 5010, "msg/s", ("4 998 msg/s", "5 010 msg/s")),
        (1.96, 2, "msg/s", ("1.96 msg/s", "2 msg/s")),
        (2065.002, 2065, "msg/s", ("2065.002 msg/s", "2065 msg/s")),
        # one message of 4 000 000 000, as 2.5 M msg/s have in half an hour
        (1 - 1 / 4e9, 1, "ratio", ("99.999999975 %", "100 %")),
    ],
)
def test_a_pair_never_reads_as_one_value(
    value: float, bound: float, unit: str, texts: tuple[str, str]
) -> None:
    """100.0 k msg/s < 100 k msg/s, or 1.00 s > 1000 ms, would explain nothing either."""
    assert pair(value, bound, unit) == texts


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.99, "ratio", "99 %"),
        (0.0001, "ratio", "0.01 %"),
        (12_345, "messages", "12 345"),
        (83e6, "ns", "83.0 ms"),
        (5000, "msg/s", "5 000 msg/s"),
    ],
)
def test_a_share_is_a_percentage_and_a_count_exact(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


@pytest.mark.parametrize(
    ("value", "bound", "unit", "text"),
    [
        (83e6, 50e6, "ns", "over by 66 %"),
        (50e6 + 1, 50e6, "ns", "over by 0.000002 %"),
        (500e6, 50e6, "ns", "10 times the bound"),
        (0.5, 0.0, "ratio", "nothing is allowed"),
        (50.0, 100.0, "msg/s", "short by 50 %"),
        (3, 5, "messages", "2 too few"),
    ],
)
def test_the_distance_from_a_bound_is_a_percentage_a_multiple_or_a_number(
    value: float, bound: float, unit: str, text: str
) -> None:
    assert distance(value, bound, unit) == text


@given(st.integers(0, 10**15))
def test_counts_are_exact(count: int) -> None:
    """They have groups of digits, and no rounding."""
    assert Decimal(exact(count).replace(" ", "")) == count


def test_a_run_that_is_only_shorter_is_not_called_scaled() -> None:
    """×1 would mean that nothing is less."""
    assert [scale_word(factor) for factor in (0.01, 1.0, 2)] == [
        "scaled ×0.01",
        "shortened",
        "scaled ×2",
    ]


def test_an_unknown_version_is_shown_as_not_reported() -> None:
    """ "MQTT broker unknown" would read as if the broker were unknown."""
    assert with_version("MQTT broker", "unknown") == "MQTT broker (version not reported)"
    assert with_version("Pulsar", "4.2.4") == "Pulsar 4.2.4"
