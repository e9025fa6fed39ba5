"""The token bucket's closed forms agree with a message-by-message simulation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from token_bucket import TokenBucket, messages

from pytest_loadtest.values.quantities import MILLISECOND, SECOND

CAPACITIES = st.floats(5, 5000)
FACTORS = st.floats(0.3, 3)
DEPTHS = st.integers(1, 50)
HOLDS = st.integers(SECOND // 10, SECOND)
LEVELS = st.one_of(st.just(0.0), st.floats(0, 200))
BOUNDS = st.integers(0, SECOND // 5)
PERCENTS = st.sampled_from([50.0, 90.0, 99.0, 99.9, 100.0])


def simulated(broker: TokenBucket, rate: float, hold: int, level: float) -> list[float]:
    """Waits, ns, one message at a time: a virtual clock that moves on by an interval a message and never lies behind the real one."""
    interval = 1 / broker.capacity
    ideal, waits = level * interval, []
    for number in range(messages(rate, hold)):
        due = number / rate
        ideal = max(ideal, due)
        waits.append(max(due, ideal - (broker.depth - 1) * interval) - due)
        ideal += interval
    return [wait * SECOND for wait in waits]


@given(capacity=CAPACITIES, depth=DEPTHS, factor=FACTORS, hold=HOLDS, level=LEVELS, p=PERCENTS)
def test_waits_and_percentiles_are_those_of_a_simulation(
    capacity: float, depth: int, factor: float, hold: int, level: float, p: float
) -> None:
    """Message by message, and the percentile without sorting, from an idle broker and from one with a backlog."""
    broker, rate = TokenBucket(capacity, depth), capacity * factor
    waits = simulated(broker, rate, hold, level)
    assert [broker.wait(rate, number, level) for number in range(len(waits))] == pytest.approx(waits, abs=10)
    rank = max(1, math.ceil(p / 100 * len(waits) - 1e-9))
    assert broker.percentile(rate, hold, p, level) == pytest.approx(sorted(waits)[rank - 1], abs=10)


@given(capacity=CAPACITIES, depth=DEPTHS, factor=FACTORS, hold=HOLDS, level=LEVELS, bound=BOUNDS)
def test_messages_beyond_a_bound_are_counted_without_looking_at_each(
    capacity: float, depth: int, factor: float, hold: int, level: float, bound: int
) -> None:
    """A message within 10 ns of the bound may fall on either side."""
    broker, rate = TokenBucket(capacity, depth), capacity * factor
    waits = simulated(broker, rate, hold, level)
    fewest, most = (sum(wait > bound + slack for wait in waits) for slack in (10, -10))
    assert fewest <= broker.exceeding(rate, hold, bound, level) <= most


@given(capacity=CAPACITIES, depth=DEPTHS, hold=HOLDS, bound=BOUNDS, p=PERCENTS)
def test_the_closed_form_is_where_the_bound_begins_to_break(capacity: float, depth: int, hold: int, bound: int, p: float) -> None:
    """It holds a message's worth below the rate given and breaks as much above."""
    broker = TokenBucket(capacity, depth)
    rate, message = broker.highest_rate(hold, bound, p), 1.001 / (p / 100 * hold / SECOND)
    assert broker.percentile(rate + message, hold, p) >= bound - 10
    if rate - message > capacity:
        assert broker.percentile(rate - message, hold, p) <= bound + 10


def test_the_longest_wait_allows_capacity_times_one_plus_bound_over_hold() -> None:
    """20 000 msg/s, 100 ms in a hold of 10 s: 1 % more; and 10 msg/s for each 100 messages of depth."""
    assert TokenBucket(20_000).highest_rate(10 * SECOND, 100 * MILLISECOND) == pytest.approx(20_200)
    assert TokenBucket(20_000, 101).highest_rate(10 * SECOND, 100 * MILLISECOND) == pytest.approx(20_210)
    assert TokenBucket(20_000).highest_rate(10 * SECOND, 100 * MILLISECOND, 50) == pytest.approx(20_400)


@given(capacity=CAPACITIES, depth=DEPTHS, factor=FACTORS, hold=HOLDS, level=LEVELS)
def test_the_level_after_a_hold_is_what_the_next_message_meets(capacity: float, depth: int, factor: float, hold: int, level: float) -> None:
    """Holds can be strung together: two of them are one of both lengths."""
    broker, rate = TokenBucket(capacity, depth), capacity * factor
    whole = broker.after(rate, 2 * hold, level)
    assert broker.after(rate, hold, broker.after(rate, hold, level)) == pytest.approx(whole, abs=1e-6)
    assert broker.after(0, broker.drain_time(level), level) <= depth + 1e-6


def test_a_backlog_drains_at_capacity() -> None:
    """1 000 messages above the depth at 500 msg/s take two seconds; within the depth nothing waits."""
    assert TokenBucket(500, 10).drain_time(1_010) == 2 * SECOND
    assert TokenBucket(500, 10).drain_time(10) == 0
