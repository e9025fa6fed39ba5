"""The intended times are exact and even, whatever the number of streams and workers."""

from __future__ import annotations

import pickle
from fractions import Fraction
from math import ceil, floor, pi, sin

import numpy as np
import pytest
from builders.pacing import due_in_stream, offset, offsets, share
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_loadtest.schedule.pacing import NEVER, NS, Pacer, StreamCounts

RATES = st.one_of(st.integers(1, 5_000_000), st.floats(0.01, 5e6))
STREAMS = st.integers(1, 500)


@given(rate=RATES, streams=STREAMS, total=st.integers(0, 10**12))
def test_shares_add_up_to_the_whole(rate: float, streams: int, total: int) -> None:
    pacer = Pacer.of(rate, streams)
    assert sum(share(pacer, total, stream) for stream in range(streams)) == total


@given(rate=RATES, streams=STREAMS, elapsed=st.integers(-5, 10 * NS), stream=st.integers(0, 499))
def test_the_last_due_message_is_not_in_the_future_and_the_next_one_is(
    rate: float, streams: int, elapsed: int, stream: int
) -> None:
    stream %= streams
    pacer = Pacer.of(rate, streams)
    due = due_in_stream(pacer, elapsed, stream)
    assert due == 0 or offset(pacer, stream, due - 1) <= elapsed
    assert offset(pacer, stream, due) > elapsed


@given(
    rate=RATES,
    streams=STREAMS,
    stream=st.integers(0, 499),
    first=st.integers(0, 10**8),
    count=st.integers(0, 50),
)
def test_columns_of_times_are_those_of_each_number(
    rate: float, streams: int, stream: int, first: int, count: int
) -> None:
    pacer = Pacer.of(rate, streams)
    assume(offset(pacer, stream % streams, first + count) < 1 << 62)  # 146 years are enough
    expected = [offset(pacer, stream % streams, k) for k in range(first, first + count)]
    assert offsets(pacer, stream % streams, first, count).tolist() == expected


def test_a_day_at_two_and_a_half_million_does_not_overflow() -> None:
    """The last message of the soak profile is due in its last microsecond."""
    pacer = Pacer.of(2_500_000, 200)
    day = 86_400 * NS
    total = pacer.total(day)
    assert total == 2_500_000 * 86_400
    last = total - 1
    assert offsets(pacer, last % 200, last // 200, 1)[0] == day - 400


def test_all_streams_together_are_one_even_train() -> None:
    """1 000 msg/s over 7 streams is a message each millisecond."""
    pacer = Pacer.of(1000, 7)
    times = np.sort(np.concatenate([offsets(pacer, s, 0, share(pacer, 1000, s)) for s in range(7)]))
    assert np.diff(times).tolist() == [1_000_000] * 999


@pytest.mark.parametrize("rate", [0, -1])
def test_a_rate_that_is_not_above_zero_is_an_error(rate: float) -> None:
    with pytest.raises(ValueError, match="not above 0"):
        Pacer.of(rate, 1)


STEPS = st.lists(
    st.tuples(st.integers(1, 3 * NS), st.one_of(st.just(0.0), st.floats(0.01, 1e6))),
    min_size=1,
    max_size=12,
)


@given(steps=STEPS, streams=STREAMS, stream=st.integers(0, 499), elapsed=st.integers(-5, 40 * NS))
def test_due_and_times_agree_where_the_rate_changes(
    steps: list[tuple[int, float]], streams: int, stream: int, elapsed: int
) -> None:
    """The last due message is not in the future and the next one is, in every segment and at its
    edges.
    """
    stream %= streams
    pacer = Pacer.through([*steps, (NS, 1.0)], streams)
    for moment in (
        elapsed,
        *(segment.start + shift for segment in pacer.segments for shift in (-1, 0, 1)),
    ):
        due = due_in_stream(pacer, moment, stream)
        assert due == 0 or offset(pacer, stream, due - 1) <= moment
        assert offset(pacer, stream, due) > moment
        assert offsets(pacer, stream, max(due - 1, 0), 3).tolist() == [
            offset(pacer, stream, k) for k in range(max(due - 1, 0), max(due - 1, 0) + 3)
        ]


@given(steps=STEPS)
def test_the_messages_of_all_segments_are_the_integral_of_the_rate(
    steps: list[tuple[int, float]],
) -> None:
    """Fractions of a message are carried over, so many short segments have the messages of their
    mean rate.
    """
    pacer, area = (
        Pacer.through([*steps, (NS, 1.0)], 1),
        sum(length * round(rate * 1000) for length, rate in steps) / 1000 / NS,
    )
    assert abs(pacer.total(sum(length for length, _ in steps)) - area) <= 1 + 1e-6 * area


@given(
    lengths=st.lists(st.integers(1, 50).map(lambda tenths: tenths * NS // 10), min_size=1),
    mean=st.integers(1, 10_000),
    swing=st.floats(0, 1),
)
def test_a_rate_that_rises_as_much_as_it_falls_has_the_messages_of_its_mean(
    lengths: list[int], mean: int, swing: float
) -> None:
    """No rounding adds a message at the very end of a phase."""
    rising = [(length, mean * (1 + swing)) for length in lengths]
    falling = [(length, mean * (1 - swing)) for length in lengths]
    pacer = Pacer.through([*rising, *falling], 1)
    duration = 2 * sum(lengths)
    assert pacer.total(duration) == ceil(Fraction(duration * mean, NS))


@given(steps=STEPS, number=st.integers(0, 10**6))
def test_no_message_is_due_before_the_integral_of_the_rate_reaches_its_number(
    steps: list[tuple[int, float]], number: int
) -> None:
    """Rounded down to a nanosecond, also after a change of the rate."""
    pacer = Pacer.through([*steps, (NS, 1.0)], 1)
    start = 0
    reached = Fraction(0)
    for length, rate in pacer.rates:
        is_last = start + length >= sum(each for each, _ in pacer.rates)
        if rate and (is_last or reached + rate * length / NS >= number):
            exact = start + (number - reached) * NS / rate
            assert pacer.time(number) >= floor(exact)
            return
        start += length
        reached += rate * length / NS


@pytest.mark.parametrize("mean", [846, 494])
def test_a_sine_has_the_messages_of_its_mean(mean: int) -> None:
    turn = [2 * pi * (number + 0.5) / 5 for number in range(10)]
    steps = [(NS // 10, mean + mean / 2 * sin(angle)) for angle in turn]
    assert Pacer.through(steps, 1).total(NS) == mean


def test_a_ramp_has_no_message_that_is_due_at_its_end() -> None:
    steps = [(NS // 10, 261.6 + 87.2 * number) for number in range(5)]
    pacer = Pacer.through(steps, 1)
    assert pacer.total(NS // 2) == 218
    assert pacer.time(218) == NS // 2


@given(steps=STEPS, at=st.integers(0, 20 * NS), rate=st.floats(1, 1e6))
def test_a_change_keeps_the_times_of_messages_due_before_it(
    steps: list[tuple[int, float]], at: int, rate: float
) -> None:
    """From its instant on the rate is the new one."""
    pacer = Pacer.through([*steps, (NS, 1.0)], 1)
    changed = pacer.changed(at, rate)
    before = pacer.due(at - 1)
    assert changed.due(at - 1) == before
    known = range(max(before - 20, 0), before)
    assert [changed.time(g) for g in known] == [pacer.time(g) for g in known]
    assert abs(changed.due(at + NS - 1) - before - rate) <= 2


@given(steps=STEPS)
def test_the_highest_rate_is_that_of_all_segments(steps: list[tuple[int, float]]) -> None:
    assert Pacer.through([*steps, (NS, 1.0)], 1).highest == pytest.approx(
        max(1.0, *(rate for _, rate in steps)), abs=1e-3
    )


@pytest.mark.parametrize(
    ("rate", "kept"),
    [
        (0.001, 0.001),
        (8_999_999.9, 8_999_999.9),
        (9e6 + 0.4, 9e6),
        (8_999_999_999.0, 8_999_999_999.0),
    ],
)
def test_rates_are_kept_to_a_thousandth_below_nine_million(rate: float, kept: float) -> None:
    """Above they are whole; rates of 9e9 and more are errors, because 64 bits could not hold the
    times of a day.
    """
    for pacer in (Pacer.of(rate, 1), Pacer.through([(NS, rate), (NS, 0.0)], 1)):
        assert pacer.highest == pytest.approx(kept, rel=1e-12)
    with pytest.raises(ValueError, match="below 9e9"):
        Pacer.of(9e9, 1)
    with pytest.raises(ValueError, match="below 9e9"):
        Pacer.through([(NS, -0.1), (NS, 0.0)], 1)


def test_nothing_is_due_once_the_rate_has_ended_at_0() -> None:
    """The last segment never ends."""
    pacer = Pacer.through([(NS, 10.0), (NS, 0.0)], 1)
    assert (pacer.due(NS - 1), pacer.due(100 * NS), pacer.time(10)) == (10, 10, NEVER)
    assert offsets(pacer, 0, 9, 2).tolist() == [9 * NS // 10, NEVER]


TOTALS = st.lists(st.integers(0, 1000), max_size=6)


@given(streams=st.integers(1, 40), totals=TOTALS, counted=st.booleans())
def test_counts_are_the_shares_of_all_phases_and_those_counted_before(
    streams: int, totals: list[int], counted: bool
) -> None:
    before = np.arange(streams) * 7 % 11
    counts = StreamCounts(streams=streams, counted=before if counted else None)
    for total in totals:
        counts = counts.plus(total)
    pacer = Pacer.of(1.0, streams)
    expected = [
        sum(share(pacer, total, stream) for total in totals) + counted * int(before[stream])
        for stream in range(streams)
    ]
    assert counts.column().tolist() == expected
    assert counts.column().dtype == np.int64
    assert counts.total == sum(expected)


@given(streams=st.integers(1, 40), totals=TOTALS, workers=st.integers(1, 45), counted=st.booleans())
def test_the_counts_of_some_streams_are_those_of_the_column(
    streams: int, totals: list[int], workers: int, counted: bool
) -> None:
    """In any order, and with a stream several times."""
    counts = StreamCounts(streams=streams, counted=np.arange(streams) * 3 if counted else None)
    for total in totals:
        counts = counts.plus(total)
    whole = counts.column()
    for rank in range(workers):
        assert np.array_equal(counts.of(range(rank, streams, workers)), whole[rank::workers])
    some = np.array([streams - 1, 0, 0, streams // 2], np.int32)
    assert np.array_equal(counts.of(some), whole[some])


def test_a_run_without_producers_has_no_counts() -> None:
    counts = StreamCounts(streams=0).plus(0)
    assert (counts.total, len(counts.column()), len(counts.of(range(0)))) == (0, 0, 0)


def test_the_size_of_counts_does_not_depend_on_the_number_of_streams() -> None:
    """They are sent to every worker."""
    counts = StreamCounts(streams=20_000_000).plus(30_000_001).plus(7)
    assert len(pickle.dumps(counts)) < 500
    assert counts.of(range(0, 20_000_000, 5_000_000)).tolist() == [3, 2, 2, 1]
    assert counts.total == 30_000_008
