"""Statistics of histograms, series and counts, compared with the values themselves."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from fractions import Fraction

import numpy as np
import pytest
from builders.measurements import made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.histogram import (
    Histogram,
    bucket_bounds,
    hdr_index,
    histogram,
    midpoint,
    rank,
)
from pytest_loadtest.metrics.measurements import Breakdown, Counts, Series

VALUES = st.lists(st.integers(0, 5000) | st.integers(0, 1 << 40), min_size=1, max_size=40)
PERCENTS = st.sampled_from([0, 0.1, 1, 25, 50, 75, 90, 99, 99.9, 99.99, 100])


def counted(values: list[int]) -> Histogram:
    found = histogram(np.array(values, np.int64))
    assert found is not None
    return found


def middles(values: list[int]) -> list[int]:
    """Return the midpoints of the buckets of the values, ascending."""
    return sorted(midpoint(hdr_index(np.array(values, np.int64))).tolist())


@given(p=PERCENTS, n=st.integers(1, 10**9))
def test_the_rank_of_a_percentile(p: float, n: int) -> None:
    """⌈p·n⌉ in exact arithmetic, and 1 at least."""
    assert rank(p, n) == max(1, math.ceil(Fraction(str(p)) / 100 * n))


@given(values=VALUES, p=PERCENTS, never_came=st.integers(0, 20))
def test_a_percentile_is_the_value_at_its_rank(
    values: list[int], p: float, never_came: int
) -> None:
    """It is exact to its bucket and lies within the values; over all due, what never came is later
    than any value.
    """
    found, known = counted(values), middles(values)
    assert found.percentile(p) == min(
        max(known[rank(p, len(values)) - 1], min(values)), max(values)
    )
    at = rank(p, len(values) + never_came)
    expected = min(max(known[at - 1], min(values)), max(values)) if at <= len(values) else math.inf
    assert found.percentile_of_due(p, never_came) == expected


@given(values=VALUES, bound=st.integers(0, 1 << 40), many=st.integers(0, 45))
def test_the_largest_values_are_removed(values: list[int], bound: int, many: int) -> None:
    """Numbers above a bound, and what remains without the largest values, follow the midpoints of
    their buckets.
    """
    found, known = counted(values), middles(values)
    assert (found.n, found.mean) == (len(values), pytest.approx(sum(values) / len(values)))
    assert found.above(bound) == sum(middle > bound for middle in known)
    left = found.without_largest(many)
    if many >= len(values):
        assert left is None
        return
    assert left is not None
    kept = known[: len(values) - many]
    assert (left.n, np.repeat(midpoint(left.index), left.count).tolist()) == (len(kept), kept)
    assert (left.minimum, left.maximum) == (
        min(values),
        min(max(kept[-1], min(values)), max(values)),
    )
    assert left.total == max(sum(values) - sum(known[len(kept) :]), 0)


@given(index=st.integers(0, 50_000))
def test_buckets_lie_side_by_side(index: int) -> None:
    """Each ends where the next one begins, and has the values that the index is worked out for."""
    low, width = bucket_bounds(index)
    assert bucket_bounds(index + 1)[0] == low + width
    assert hdr_index(np.array([low, low + width - 1])).tolist() == [index, index]


def test_a_histogram_without_negative_values_counts_none() -> None:
    """Those that are were counted."""
    one = np.ones(1, np.int64)
    assert Histogram(index=one, count=one, minimum=1, maximum=1, total=1).negative == 0


@given(
    planned=st.integers(0, 4), lengths=st.tuples(*[st.integers(0, 5)] * 7), seconds=st.sets(st.integers(0, 6)),
)  # fmt: skip
def test_series_are_as_long_as_anything_happened(
    planned: int, lengths: tuple[int, ...], seconds: set[int]
) -> None:
    """They have at least the planned length; a second without messages counts 0, one without
    latencies has NaN.
    """
    counts = [np.arange(1, length + 1) * 10**i for i, length in enumerate(lengths)]
    latency = np.arange(4.0 * len(seconds)).reshape(-1, 4)
    made = Series.padded(planned, counts, np.array(sorted(seconds), np.int64), latency, 2)
    length = max(planned, *lengths, *(second + 1 for second in seconds))
    padded = [np.pad(column, (0, length - len(column))).tolist() for column in counts]
    assert made.blocked is not None
    assert made.missing is not None
    assert [
        column.tolist()
        for column in (made.offered, made.sent, made.acked, made.received, made.blocked)
    ] == padded[:5]
    assert made.missing.tolist() == [
        2 * kept - came for kept, came in zip(*padded[5:], strict=True)
    ]
    assert (
        Series.padded(planned, counts, np.array(sorted(seconds), np.int64), latency, 0).missing
        is None
    )
    unknown = Series.padded(
        planned,
        counts,
        np.array(sorted(seconds), np.int64),
        np.where(np.arange(4) < 3, latency, np.nan),
        2,
    )
    assert unknown.receive_lag_max is None
    lag = np.full(length, np.nan) if made.receive_lag_max is None else made.receive_lag_max
    columns = (made.end_to_end_p50, made.end_to_end_p99, made.end_to_end_max, lag)
    for second in range(length):
        found = [float(column[second]) for column in columns]
        if second in seconds:
            assert found == latency[sorted(seconds).index(second)].tolist()
        else:
            assert all(math.isnan(value) for value in found)
    assert all(len(column) == length for column in columns)


def test_rates_are_of_the_measured_phase() -> None:
    """Deliveries per subscription, and messages handed over in time, per second."""
    run = made(
        duration=4 * 10**9, subscriptions=2, counts={"received_in_time": 3000, "sent_in_time": 1000}
    )
    assert (run.throughput, run.publish_rate) == (375.0, 250.0)
    assert made(duration=10**9, subscriptions=0, counts={"received_in_time": 3}).throughput == 3.0


def test_missing_messages_are_counted_by_their_kind_of_latency() -> None:
    """Deliveries without a copy, messages without an acknowledgement, messages that were never
    sent; of the whole or of a part.
    """
    run = made(subscriptions=3, counts={"offered": 100, "received": 280, "acked": 90, "sent": 95})
    assert [run.never_came(kind) for kind in ("end_to_end", "publish", "send_delay")] == [20, 10, 5]
    part = Breakdown(name="small", offered=10, sent=8, acked=7, received=26, bytes_sent=0)
    assert [run.never_came(kind, part) for kind in ("end_to_end", "publish", "send_delay")] == [
        4,
        3,
        2,
    ]
    consumer = made(
        rate=0.0,
        end_to_end=None,
        counts=dict.fromkeys(("offered", "sent", "sent_in_time", "acked"), 0),
    )
    assert [consumer.never_came(kind) for kind in ("end_to_end", "publish", "send_delay")] == [
        0,
        0,
        0,
    ]
    plain = Counts(**{field.name: 1 for field in fields(Counts) if field.default is MISSING})
    assert (plain.resent, plain.duplicates_of_resent) == (0, 0)
    assert (part.lost, part.received_in_time, part.latencies) == (0, 0, {})
