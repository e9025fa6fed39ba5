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
    """Return the waits, ns, one message at a time: a virtual clock advances by an interval per message, and never lags behind the real one."""
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
    """This holds message by message, and for the percentile without sorting, with and without a backlog."""
    broker, rate = TokenBucket(capacity, depth), capacity * factor
    waits = simulated(broker, rate, hold, level)
    assert [broker.wait(rate, number, level) for number in range(len(waits))] == pytest.approx(
        waits, abs=10
    )
    rank = max(1, math.ceil(p / 100 * len(waits) - 1e-9))
    assert broker.percentile(rate, hold, p, level) == pytest.approx(sorted(waits)[rank - 1], abs=10)


@given(capacity=CAPACITIES, depth=DEPTHS, factor=FACTORS, hold=HOLDS, level=LEVELS, bound=BOUNDS)
def test_the_count_of_messages_beyond_a_bound_is_that_of_a_simulation(
    capacity: float, depth: int, factor: float, hold: int, level: float, bound: int
) -> None:
    """A message within 10 ns of the bound may count or not."""
    broker, rate = TokenBucket(capacity, depth), capacity * factor
    waits = simulated(broker, rate, hold, level)
    fewest, most = (sum(wait > bound + slack for wait in waits) for slack in (10, -10))
    assert fewest <= broker.exceeding(rate, hold, bound, level) <= most


@given(capacity=CAPACITIES, depth=DEPTHS, hold=HOLDS, bound=BOUNDS, p=PERCENTS)
def test_the_highest_rate_is_where_the_bound_begins_to_break(
    capacity: float, depth: int, hold: int, bound: int, p: float
) -> None:
    """The bound holds at one message less, and breaks at one more."""
    broker = TokenBucket(capacity, depth)
    rate, message = broker.highest_rate(hold, bound, p), 1.001 / (p / 100 * hold / SECOND)
    assert broker.percentile(rate + message, hold, p) >= bound - 10
    if rate - message > capacity:
        assert broker.percentile(rate - message, hold, p) <= bound + 10


def test_the_longest_wait_allows_capacity_times_one_plus_bound_over_hold() -> None:
    """At 20 000 msg/s, 100 ms in a hold of 10 s allow 1 % more; each 100 messages of depth allow 10 msg/s more."""
    assert TokenBucket(20_000).highest_rate(10 * SECOND, 100 * MILLISECOND) == pytest.approx(20_200)
    assert TokenBucket(20_000, 101).highest_rate(10 * SECOND, 100 * MILLISECOND) == pytest.approx(
        20_210
    )
    assert TokenBucket(20_000).highest_rate(10 * SECOND, 100 * MILLISECOND, 50) == pytest.approx(
        20_400
    )


@given(capacity=CAPACITIES, depth=DEPTHS, factor=FACTORS, hold=HOLDS, level=LEVELS)
def test_two_holds_end_at_the_level_of_one_of_both_lengths(
    capacity: float, depth: int, factor: float, hold: int, level: float
) -> None:
    broker, rate = TokenBucket(capacity, depth), capacity * factor
    whole = broker.after(rate, 2 * hold, level)
    assert broker.after(rate, hold, broker.after(rate, hold, level)) == pytest.approx(
        whole, abs=1e-6
    )
    assert broker.after(0, broker.drain_time(level), level) <= depth + 1e-6


def test_a_backlog_drains_at_capacity() -> None:
    """1 000 messages above the depth at 500 msg/s take two seconds; within the depth nothing waits."""
    assert TokenBucket(500, 10).drain_time(1_010) == 2 * SECOND
    assert TokenBucket(500, 10).drain_time(10) == 0
