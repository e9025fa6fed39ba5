"""Durations and rates that the body of a test compares."""

from __future__ import annotations

import operator
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.errors import NoData
from pytest_loadtest.values.units import Duration, Rate, compare_lines, ms, s, us

NANOSECONDS = st.integers(-(10**15), 10**15)


@given(
    NANOSECONDS,
    NANOSECONDS,
    st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]),
)
def test_durations_order_as_their_nanoseconds(left: int, right: int, compare: object) -> None:
    """Labels and samples make no difference."""
    assert callable(compare)
    assert compare(Duration(left, label="p99", samples=5), Duration(right)) == compare(left, right)


def test_comparing_a_duration_with_a_number_is_an_error() -> None:
    """It has the remedy."""
    with pytest.raises(TypeError, match=r"ms\(100\)"):
        assert ms(83) <= 100  # type: ignore[operator]


def test_arithmetic_keeps_the_unit() -> None:
    """Differences, multiples and ratios of latencies can be asserted."""
    assert s(1) == ms(1000) == us(1_000_000)
    assert abs(ms(3) - ms(5)) == ms(2) == ms(1) + ms(1) == 2 * ms(1) == ms(1) * 2
    assert (ms(3) / ms(2), ms(1500).seconds, us(1500).ms) == (1.5, 1.5, 1.5)
    assert (repr(ms(83)), repr(Rate(5030))) == ("83.0 ms", "5 030 msg/s")


def test_a_failed_comparison_is_explained() -> None:
    """With both sides, the distance, and the numbers of samples."""
    p99 = Duration(83_000_000, label="end-to-end p99", samples=100_000)
    assert compare_lines("<=", p99, ms(50)) == [
        "end-to-end p99 83.0 ms <= 50.0 ms: over by 66 %",
        "end-to-end p99: 100 000 samples",
    ]
    assert compare_lines(">=", ms(50), p99) == [
        "50.0 ms >= end-to-end p99 83.0 ms: over by 66 %",
        "end-to-end p99: 100 000 samples",
    ]
    assert compare_lines(">=", Rate(5030), 9000) == [
        "throughput 5 030 msg/s >= 9 000 msg/s: short by 44 %"
    ]
    assert compare_lines("==", ms(50), ms(50)) == ["50.0 ms == 50.0 ms"]


@pytest.mark.parametrize(
    ("op", "left", "right"),
    [("<=", 1, 2), ("in", ms(1), ms(2)), ("<=", ms(1), 2), ("==", "a", Rate(1))],
)
def test_other_comparisons_are_left_to_pytest(op: str, left: object, right: object) -> None:
    """No explanation is better than a wrong one."""
    assert compare_lines(op, left, right) is None


def test_durations_and_rates_survive_pickling() -> None:
    """With their labels."""
    p99 = Duration(83_000_000, label="end-to-end p99", samples=100_000)
    copy = pickle.loads(pickle.dumps(p99))
    assert (copy, copy.label, copy.samples) == (p99, p99.label, p99.samples)
    assert repr(pickle.loads(pickle.dumps(Rate(5030)))) == "5 030 msg/s"


def test_durations_closer_than_the_error_of_clocks_do_not_compare() -> None:
    """Either may be the longer one."""
    measured = Duration(50 * 1_000_000, label="end-to-end p99", samples=2000, error=1_000_000)
    assert measured <= ms(51)
    assert measured > ms(48)
    with pytest.raises(
        NoData,
        match=r"end-to-end p99: 50.0 ms and 50.5 ms differ by less than the error of the clocks between hosts, 1.00 ms",
    ):
        assert measured <= ms(50.5)


def test_arithmetic_keeps_the_error_of_clocks() -> None:
    """The errors of two measured durations add up."""
    measured = Duration(50 * 1_000_000, label="end-to-end p99", error=1_000_000)
    for result in (measured + ms(1), measured - ms(1), abs(measured), measured * -1):
        assert result.error == 1_000_000
    assert (measured * 2.5).error == 2_500_000
    assert (measured - measured).error == 2_000_000
    with pytest.raises(NoData):
        assert measured - ms(10) < ms(40.5)
    assert measured - ms(10) < ms(42)


def test_two_measured_durations_compare_with_the_errors_of_both() -> None:
    """Each may be off by its own error: 10 ms may be 11 ms, and 11.5 ms may be 10.5 ms."""
    shorter = Duration(10_000_000, label="end-to-end p99", error=1_000_000)
    longer = Duration(11_500_000, label="end-to-end p99", error=1_000_000)
    with pytest.raises(NoData, match="error of the clocks between hosts, 2.00 ms"):
        assert shorter < longer
    assert shorter < longer + ms(1)
