"""The sizes that represent a range, and the joining of ranges, compared to all alternatives."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.payloads import Bucket
from pytest_loadtest.message.sizing import (
    UNIFORM_SIZES,
    Range,
    SizeLimits,
    check_payload_count,
    join_ranges,
    join_smallest,
    representatives,
)


@given(low=st.integers(0, 10**7), width=st.integers(1, 10**7), count=st.integers(1, 50))
def test_a_range_is_represented_by_its_middle_its_last_size_or_equal_parts(
    low: int, width: int, count: int
) -> None:
    """16 parts by default."""
    high = low + width
    assert representatives(low, high, "midpoint", count) == [(low + high) // 2] * count
    assert representatives(low, high, "max", count) == [high - 1] * count
    parts = min(UNIFORM_SIZES, width) if count == 1 else count
    middles = [low + Fraction(width, parts) * Fraction(2 * part + 1, 2) for part in range(parts)]
    assert representatives(low, high, "uniform", count) == [int(middle) for middle in middles]


@given(
    buckets=st.integers(1, 6),
    per_bucket=st.integers(1, 40),
    first=st.integers(1, 200),
    most=st.integers(6, 100),
)
def test_the_remedy_for_too_many_payloads_is_the_largest_valid_number(
    buckets: int, per_bucket: int, first: int, most: int
) -> None:
    payloads = [max(first, per_bucket), *[per_bucket] * (buckets - 1)]
    if sum(payloads) <= most:
        check_payload_count(payloads, per_bucket, most)
        return
    with pytest.raises(ValueError, match=f"at most {most} payloads") as caught:
        check_payload_count(payloads, per_bucket, most)
    what, key, number = re.findall(r"^(.*?): .* write (\w+): (-?\d+) or less$", str(caught.value))[
        0
    ]
    others = buckets - (payloads[0] != per_bucket)  # of payloadsPerBucket each
    for value, accepted in ((int(number), True), (int(number) + 1, False)):
        if key == "payloadsPerBucket":
            assert what == f"payloadsPerBucket {per_bucket} for {others} size buckets"
            assert (others * value <= most) is accepted
        else:
            assert what == f"randomizedPayloadPoolSize {payloads[0]}"
            assert (value + sum(payloads[1:]) <= most) is accepted


@given(
    low=st.integers(0, 60), width=st.integers(1, 60), size=st.integers(0, 120), tail=st.sampled_from([0, 4]), limit=st.none() | st.integers(0, 100)
)  # fmt: skip
def test_a_size_that_cannot_be_sent_becomes_the_nearest_that_can(
    low: int, width: int, size: int, tail: int, limit: int | None
) -> None:
    """With room for the head of 16 or 32 bytes and the checksum, inside the range and the target's
    limit.
    """
    limits = SizeLimits(tail, limit)
    possible = [
        one for one in range(low, low + width) if (16 + tail <= one < 32 or one >= 32 + tail) and (limit is None or one <= limit)
    ]  # fmt: skip
    if not possible:
        with pytest.raises(ValueError, match="^it cannot be sent: "):
            limits.fit(size, low, low + width, "it")
        assert limits.moved == 0
        return
    found = limits.fit(size, low, low + width, "it")
    assert found in possible
    assert abs(found - size) == min(abs(one - size) for one in possible)
    assert limits.moved == (found != size)


@pytest.mark.parametrize(("low", "tail", "reason"), [
    (10, 0, "the envelope takes 16 bytes (32 in payloads of 32 bytes or more)"),
    (50, 0, "the envelope takes 16 bytes (32 in payloads of 32 bytes or more)"),
    (50, 4, "the envelope takes 16 bytes (32 in payloads of 32 bytes or more) and the checksum 4"),
    (51, 4, "the target takes at most 50 bytes"),
])  # fmt: skip
def test_the_targets_limit_is_the_reason_if_the_range_is_above_it(
    low: int, tail: int, reason: str
) -> None:
    assert SizeLimits(tail, 50)._reason(low) == reason


def test_a_message_without_an_envelope_has_any_size_from_one_byte_on() -> None:
    limits = SizeLimits(0, 50, enveloped=False)
    assert [limits.fit(size, 0, 100, "it") for size in (0, 1, 20, 60)] == [1, 1, 20, 50]
    assert limits.moved == 2
    with pytest.raises(ValueError, match="it cannot be sent: a message has a byte at least"):
        limits.fit(0, 0, 1, "it")


def test_a_bucket_has_several_payloads_of_one_size_only_with_random_bodies() -> None:
    """Each moved size counts; the error for a bucket of one size names the size."""
    limits, bucket = SizeLimits(0, None), Bucket(name="8-12", low=8, high=24, weight=1)
    assert limits.sizes(bucket, "midpoint", 3, False) == [16]
    assert limits.sizes(bucket, "max", 3, True) == [23] * 3
    assert limits.moved == 0
    assert limits.sizes(bucket, "uniform", 2, False) == [16, 20]
    assert limits.sizes(bucket, "uniform", 20, False) == [*[16] * 9, *range(17, 24)]
    assert limits.moved == 1 + 8
    for name in ("12", "8-12"):
        with pytest.raises(ValueError, match="^(messageSize 12|size range '8-12') cannot be sent"):
            limits.sizes(Bucket(name=name, low=8, high=13, weight=1), "max", 1, False)


@st.composite
def ascending(draw: st.DrawFn, most: int = 8) -> list[Range]:
    """Draw ascending ranges, some with gaps between them."""
    edges = sorted(
        draw(st.sets(st.integers(0, 60) | st.integers(0, 10**6), min_size=2, max_size=2 * most))
    )
    weights = st.integers(1, 1000)
    pairs = draw(
        st.sampled_from([list(pairwise(edges)), list(zip(edges[::2], edges[1::2], strict=False))])
    )
    return [Range(low, high, Fraction(draw(weights), 7)) for low, high in pairs[:most]]


@given(ascending())
def test_ranges_below_the_smallest_message_are_joined(ranges: list[Range]) -> None:
    """Into one that has the size of 16 bytes; the others stay, and no weight is lost."""
    joined = join_smallest(ranges)
    assert sum(one.weight for one in joined) == sum(one.weight for one in ranges)
    if ranges[0].high >= 17:
        assert joined == ranges
        return
    assert joined[1:] == [one for one in ranges if one.low >= 17]
    assert (joined[0].low, joined[0].high) == (
        ranges[0].low,
        max(17, *(one.high for one in ranges if one.low < 17)),
    )
    assert join_smallest([]) == []


def cost(parts: list[list[Range]], total: Fraction) -> Fraction:
    """Return the largest product of weight and width of joined ranges."""
    return max(
        (
            sum(one.weight for one in part) * (part[-1].high - part[0].low) / total
            for part in parts
            if len(part) > 1
        ),
        default=Fraction(0),
    )


@given(ascending(), st.integers(1, 8))
def test_joined_ranges_move_the_fewest_bytes(ranges: list[Range], most: int) -> None:
    """No other way of joining neighbours has a smaller largest product."""
    joined = join_ranges(ranges, most)
    parts = [[one for one in ranges if part.low <= one.low < part.high] for part in joined]
    assert [one for part in parts for one in part] == ranges
    assert [(part[0].low, part[-1].high, sum(one.weight for one in part)) for part in parts] == [
        (one.low, one.high, one.weight) for one in joined
    ]
    assert len(joined) <= most
    if len(ranges) <= most:
        assert joined == ranges
        return
    total, n = sum((one.weight for one in ranges), Fraction(0)), len(ranges)
    ways = (
        [ranges[low:high] for low, high in pairwise([0, *cuts, n])]
        for k in range(most)
        for cuts in combinations(range(1, n), k)
    )
    assert cost(parts, total) <= min(cost(way, total) for way in ways) * Fraction(1001, 1000)
