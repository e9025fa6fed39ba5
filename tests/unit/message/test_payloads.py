"""Payloads: sizes, bodies, and the weighted choice among them."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.envelope import HEAD, encode_heads
from pytest_loadtest.message.payloads import (
    Bucket,
    PayloadChooser,
    PayloadPool,
    TopicChooser,
    body_ok,
    build_pool,
    check_weights,
    make_chooser,
    parse_range,
    whole_payloads,
)
from pytest_loadtest.message.route import parse_place

if TYPE_CHECKING:
    from pytest_loadtest.message.draws import WeightedChoice


PRODUCTION = {
    "0-256": 234, "256-1024": 456, "1024-4096": 678, "4096-16384": 312,
    "16384-65536": 98, "65536-262144": 45, "262144-1048576": 18, "1048576-5242880": 6,
}  # fmt: skip


def made_buckets(weights: dict[str, int]) -> list[Bucket]:
    """Return the buckets of a distribution as a profile has it."""
    ranges = [(name, *parse_range(name), weight) for name, weight in weights.items()]
    return [
        Bucket(name=name, low=low, high=high, weight=weight) for name, low, high, weight in ranges
    ]


def made_pool(weights: dict[str, int] | None = None, **changes: Any) -> PayloadPool:
    """Return a pool with the default of every option."""
    asked: dict[str, Any] = {
        "buckets": made_buckets(weights) if weights else None, "message_size": None, "randomized": False, "random_ratio": 0.0,
        "file_content": None, "seed": 0, "checksum": False, "max_size": None,
    }  # fmt: skip
    return build_pool(**asked | changes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-256", (0, 256)), ("1KB-4KB", (1024, 4096)), ("1 MB - 5MB", (1 << 20, 5 << 20))],
)
def test_a_size_range_is_two_sizes_with_or_without_units(
    text: str, expected: tuple[int, int]
) -> None:
    assert parse_range(text) == expected


@pytest.mark.parametrize("text", ["", "5", "1-2-3", "4KB-1KB", "8-8", "a-b", "-5", "1-", "1XB-2XB"])
def test_a_malformed_reversed_or_empty_range_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_range(text)


def test_the_mean_size_of_the_production_mix_is_that_of_its_payloads() -> None:
    """One payload for each bucket keeps the pool near 4 MB."""
    pool = made_pool(PRODUCTION, randomized=True, random_ratio=0.5, max_size=5 << 20)
    assert pool.sizes.tolist() == [128, 640, 2560, 10240, 40960, 163840, 655360, 3145728]
    assert pool.mean_size == pytest.approx(25614.5533, abs=1e-4)
    assert 3.9e6 < pool.memory < 4.1e6
    assert (pool.bucket_names, pool.clamped) == (tuple(PRODUCTION), 0)
    assert pool.weights_of[0].sum() == pytest.approx(1.0)
    assert [len(body) + HEAD for body in pool.bodies] == pool.sizes.tolist()


def test_max_is_the_last_size_inside_a_range() -> None:
    assert made_pool({"16-32": 1, "32-100": 1}, representative="max").sizes.tolist() == [31, 99]


@given(low=st.integers(16, 500), width=st.integers(1, 500), weight=st.integers(1, 9))
def test_uniform_sizes_share_the_weight_of_their_range_equally(
    low: int, width: int, weight: int
) -> None:
    """They are inside the range; a narrow range has each size once."""
    pool = made_pool({f"{low}-{low + width}": weight, "4096-4097": 1}, representative="uniform")
    inside = pool.sizes[pool.buckets == 0]
    assert len(set(inside.tolist())) == len(inside) == min(16, width)
    assert low <= inside.min() <= inside.max() < low + width
    assert inside.max() - inside.min() >= width - 1 - width / 8
    assert pool.weights_of[0][pool.buckets == 0] == pytest.approx(
        weight / (weight + 1) / len(inside)
    )


def test_an_unknown_representative_is_an_error() -> None:
    with pytest.raises(ValueError, match="write midpoint, max or uniform"):
        made_pool({"0-256": 1}, representative="mean")


def test_a_bucket_without_weight_keeps_its_index_and_has_no_payload() -> None:
    """Its sizes need not be possible ones."""
    pool = made_pool({"0-8": 0, "64-128": 1, "256-512": 0, "512-1024": 3})
    assert pool.buckets.tolist() == [1, 3]
    assert len(pool.bucket_names) == 4


@pytest.mark.parametrize("weights", [{"32-64": 0}, {"32-64": 2, "64-128": -1}])
def test_negative_weights_and_weights_of_0_alone_are_an_error(weights: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="weights"):
        made_pool(weights)


@pytest.mark.parametrize(
    ("weights", "checksum", "max_size", "size"),
    [
        ({"0-20": 1}, False, None, 16),
        ({"0-34": 1}, True, None, 20),
        ({"32-38": 1}, True, None, 36),
        ({"30-35": 1}, True, None, 31),
        ({"30-50": 1}, True, 34, 31),
        ({"100-300": 1}, False, 150, 150),
    ],
)
def test_a_size_is_moved_to_the_nearest_that_can_be_sent_and_counted(
    weights: dict[str, int], checksum: bool, max_size: int | None, size: int
) -> None:
    pool = made_pool(weights, checksum=checksum, max_size=max_size)
    assert (pool.sizes.tolist(), pool.clamped) == ([size], 1)


@given(
    low=st.integers(0, 60),
    width=st.integers(1, 60),
    checksum=st.booleans(),
    limit=st.none() | st.integers(0, 100),
)
def test_every_size_can_be_sent_and_is_in_its_range(
    low: int, width: int, checksum: bool, limit: int | None
) -> None:
    """With any limits, or there is an error."""
    tail = 4 if checksum else 0
    possible = [
        size
        for size in range(low, low + width)
        if (16 + tail <= size < 32 or size >= 32 + tail) and (limit is None or size <= limit)
    ]  # fmt: skip
    if possible:
        pool = made_pool(
            {f"{low}-{low + width}": 1}, representative="uniform", checksum=checksum, max_size=limit
        )
        assert set(pool.sizes.tolist()) <= set(possible)
        assert all(body_ok(message) for message in sent(pool, 20)) or not checksum
    else:
        with pytest.raises(ValueError, match="cannot be sent"):
            made_pool(
                {f"{low}-{low + width}": 1},
                representative="uniform",
                checksum=checksum,
                max_size=limit,
            )


@pytest.mark.parametrize(
    ("weights", "checksum", "max_size", "reason"),
    [
        ({"0-16": 1}, False, None, "envelope takes 16"),
        ({"32-36": 1}, True, None, "checksum 4"),
        ({"100-300": 1}, False, 99, "at most 99"),
    ],
)
def test_a_range_without_a_size_that_can_be_sent_is_an_error(
    weights: dict[str, int], checksum: bool, max_size: int | None, reason: str
) -> None:
    """It has the range and the reason."""
    with pytest.raises(
        ValueError, match=f"size range '{next(iter(weights))}' cannot be sent: .*{reason}"
    ):
        made_pool(weights, checksum=checksum, max_size=max_size)


@pytest.mark.parametrize(
    ("size", "checksum", "max_size"),
    [(15, False, None), (19, True, None), (35, True, None), (1001, False, 1000)],
)
def test_a_fixed_size_that_cannot_be_sent_is_an_error(
    size: int, checksum: bool, max_size: int | None
) -> None:
    """It is never moved."""
    with pytest.raises(ValueError, match=f"messageSize {size} cannot be sent"):
        made_pool(message_size=size, checksum=checksum, max_size=max_size)


def test_neither_and_both_kinds_of_sizes_are_an_error() -> None:
    with pytest.raises(ValueError, match="either"):
        made_pool()
    with pytest.raises(ValueError, match="either"):
        made_pool({"32-64": 1}, message_size=100)


def test_more_buckets_than_a_byte_can_number_are_an_error() -> None:
    with pytest.raises(ValueError, match="at most 256"):
        made_pool({f"{low}-{low + 1}": 1 for low in range(32, 289)})


def test_more_payloads_than_two_bytes_can_number_are_an_error() -> None:
    with pytest.raises(ValueError, match="at most 65536"):
        made_pool(message_size=32, randomized=True, pool_size=65537)


@pytest.mark.parametrize("kind", ["midpoint", "max", "uniform"])
def test_the_payloads_of_a_bucket_are_different_and_equally_likely(kind: str) -> None:
    """Of one size, or spread over the range."""
    pool = made_pool(
        {"1000-2000": 3, "2000-4000": 1},
        representative=kind,
        per_bucket=4,
        randomized=True,
        random_ratio=1.0,
    )
    assert pool.buckets.tolist() == [0] * 4 + [1] * 4
    assert pool.weights_of[0].tolist() == [3 / 16] * 4 + [1 / 16] * 4
    assert len(set(pool.bodies)) == 8
    sizes = {"midpoint": [1500] * 4, "max": [1999] * 4, "uniform": [1125, 1375, 1625, 1875]}
    assert pool.sizes[:4].tolist() == sizes[kind]
    assert pool.memory == sum(len(body) for body in pool.bodies)


@given(copies=st.integers(2, 40), width=st.integers(1, 60), randomized=st.booleans())
def test_every_size_of_a_narrow_range_is_equally_frequent(
    copies: int, width: int, randomized: bool
) -> None:
    """With bodies of zeros each is there once."""
    pool = made_pool(
        {f"64-{64 + width}": 1},
        representative="uniform",
        per_bucket=copies,
        randomized=randomized,
        random_ratio=1.0,
    )
    often = np.bincount(pool.sizes - 64, minlength=width)
    assert len(pool.sizes) == (copies if randomized else min(copies, width))
    assert often.max() - often.min() <= 1
    assert pool.weights_of[0].sum() == pytest.approx(1.0)


def test_a_message_size_has_the_larger_of_both_numbers_of_payloads() -> None:
    """``payloadsPerBucket`` and ``randomizedPayloadPoolSize``."""
    assert (
        len(
            made_pool(
                message_size=100, randomized=True, random_ratio=1.0, pool_size=3, per_bucket=5
            ).bodies
        )
        == 5
    )
    assert (
        len(
            made_pool(
                message_size=100, randomized=True, random_ratio=1.0, pool_size=5, per_bucket=3
            ).bodies
        )
        == 5
    )
    assert len(made_pool(message_size=100, per_bucket=3).bodies) == 1
    later = [Bucket(name="200", low=200, high=201, weight=1)]
    several = made_pool(
        message_size=100, randomized=True, random_ratio=1.0, pool_size=5, per_bucket=3, more=[later]
    )
    assert several.sizes.tolist() == [100] * 5 + [200] * 3


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ({"weights": {"32-64": 1, "64-128": 1}, "per_bucket": 32_769}, "payloadsPerBucket: 32768"),
        ({"message_size": 100, "pool_size": 65_537}, "randomizedPayloadPoolSize: 65536"),
    ],
)
def test_the_error_for_too_many_payloads_has_the_key_and_its_highest_value(
    asked: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(ValueError, match=f"at most 65536 payloads, write {remedy} or less"):
        made_pool(**asked, randomized=True, random_ratio=1.0)


def test_the_first_part_of_a_random_body_is_random_by_its_seed() -> None:
    """The rest is zeros."""
    (body,) = made_pool(message_size=1032, randomized=True, random_ratio=0.5).bodies
    assert body[500:] == bytes(500)
    assert len(zlib.compress(body[:500])) > 490
    assert made_pool(message_size=1032, randomized=True, random_ratio=0.5).bodies == (body,)
    assert made_pool(message_size=1032, randomized=True, random_ratio=0.5, seed=1).bodies != (body,)


def test_the_random_bodies_of_one_size_are_different_and_equally_likely() -> None:
    pool = made_pool(message_size=100, randomized=True, random_ratio=1.0, pool_size=5)
    assert len(set(pool.bodies)) == 5
    assert pool.weights_of[0].tolist() == [0.2] * 5
    assert set(pool.sizes.tolist()) == {100}


def test_bodies_that_are_not_random_are_zeros() -> None:
    assert made_pool(message_size=100, random_ratio=0.5, pool_size=5).bodies == (bytes(68),)


def test_a_file_fills_the_body_at_its_own_offsets() -> None:
    """Its size must be that of the message."""
    content = bytes(range(100))
    assert made_pool(message_size=100, file_content=content).bodies == (content[32:],)
    assert (
        made_pool(message_size=100, file_content=content, checksum=True).bodies[0][:-4]
        == content[32:-4]
    )
    with pytest.raises(ValueError, match="payloadFile has 99 bytes but messageSize is 100"):
        made_pool(message_size=100, file_content=content[1:])


def drawn(
    pool: PayloadPool,
    seed: int,
    stream: int,
    first: int,
    count: int,
    table: WeightedChoice | None = None,
) -> np.ndarray:
    """Return the payloads of messages ``first … first+count-1`` of one stream."""
    seq = np.arange(first, first + count, dtype=np.int64)
    return PayloadChooser(pool, seed, range(stream, stream + 1)).draw(
        np.zeros(count, np.int64), seq, table
    )


def sent(pool: PayloadPool, count: int) -> list[bytes]:
    """Return the first messages of a stream, whole."""
    payload = drawn(pool, 0, 1, 0, count)
    seq = np.arange(count, dtype=np.int64)
    heads = encode_heads(
        pool, nonce=1, stream=np.ones(count, np.int32), seq=seq, intended=seq, payload=payload
    )
    return whole_payloads(pool, heads, payload)


def test_a_whole_payload_is_head_and_body_in_the_size_of_the_pool() -> None:
    pool = made_pool({"16-32": 1, "32-64": 1, "1KB-2KB": 1}, randomized=True, random_ratio=1.0)
    payload = drawn(pool, 0, 1, 0, 50)
    whole = sent(pool, 50)
    assert [len(message) for message in whole] == pool.sizes[payload].tolist()
    assert all(
        message.endswith(pool.bodies[chosen])
        for message, chosen in zip(whole, payload.tolist(), strict=True)
    )
    assert sent(pool, 0) == []


@pytest.mark.parametrize("place", ["properties", "correlationData"])
def test_a_payload_without_an_envelope_is_its_body(place: str) -> None:
    made: dict[str, Any] = {"randomized": True, "random_ratio": 1.0, "place": parse_place(place)}
    pool = made_pool({"1-2": 1, "20-30": 1, "1KB-2KB": 1}, **made)
    payload = drawn(pool, 0, 1, 0, 50)
    assert sent(pool, 50) == [pool.bodies[chosen] for chosen in payload.tolist()]
    assert [len(body) for body in pool.bodies] == pool.sizes.tolist() == [1, 25, 1536]
    assert pool.memory == 1562
    # The envelopes of small ones have the full form too.
    assert not pool.compact


@given(
    size=st.integers(20, 200).filter(lambda size: not 32 <= size < 36),
    place=st.integers(0, 10**6),
    flips=st.integers(1, 255),
)
def test_the_checksum_fails_with_any_byte_of_the_body_changed(
    size: int, place: int, flips: int
) -> None:
    """Also a byte of the checksum itself."""
    (message,) = sent(
        made_pool(message_size=size, checksum=True, randomized=True, random_ratio=0.5), 1
    )
    assert body_ok(message)
    head = 32 if size >= 32 else 16
    damaged = bytearray(message)
    damaged[head + place % (size - head)] ^= flips
    assert not body_ok(bytes(damaged))
    assert not body_ok(message[: head + 3])


def test_choices_are_in_proportion() -> None:
    """A million draws fit the weights by chi square; the seed is fixed, so this holds always or
    never.
    """
    pool = made_pool(PRODUCTION)
    counts = np.bincount(drawn(pool, 2, 7, 0, 1_000_000), minlength=len(PRODUCTION))
    assert chisquare(counts, pool.weights_of[0] * 1_000_000).pvalue > 0.01


def test_many_short_streams_are_in_proportion() -> None:
    """The first messages of ten thousand streams together fit the weights too."""
    pool = made_pool(PRODUCTION)
    counts = np.bincount(
        np.concatenate([drawn(pool, 2, stream, 0, 20) for stream in range(10_000)]),
        minlength=len(PRODUCTION),
    )
    assert chisquare(counts, pool.weights_of[0] * 200_000).pvalue > 0.01


@given(
    takes=st.lists(st.integers(0, 300), max_size=30),
    seed=st.integers(-(2**63), 2**63),
    stream=st.integers(0, 2**31),
)
def test_choices_do_not_depend_on_bursts(takes: list[int], seed: int, stream: int) -> None:
    """The payload of message n follows from seed, stream and n."""
    pool = made_pool(PRODUCTION)
    pieces, at = [], 0
    for count in takes:
        pieces += drawn(pool, seed, stream, at, count).tolist()
        at += count
    assert pieces == drawn(pool, seed, stream, 0, at).tolist()


@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 10**9)), max_size=40),
    first=st.integers(0, 2**24),
    step=st.integers(1, 16),
    seed=st.integers(-(2**63), 2**63),
)
def test_choices_do_not_depend_on_other_streams_of_a_burst(
    rows: list[tuple[int, int]], first: int, step: int, seed: int
) -> None:
    """Nor on the streams of a worker."""
    pool = made_pool(PRODUCTION)
    index, seq = (
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
    )
    together = PayloadChooser(pool, seed, range(first, first + 5 * step, step)).draw(index, seq)
    assert together.tolist() == [drawn(pool, seed, first + i * step, n, 1)[0] for i, n in rows]


def test_choices_are_pinned() -> None:
    """A seed means the same choices in every release, and streams have different ones."""
    pool, pinned = made_pool(PRODUCTION), [0, 6, 1, 0, 3, 4, 3, 6, 2, 2, 1, 3]
    assert drawn(pool, 0, 0, 0, 12).tolist() == pinned
    assert drawn(pool, 0, 1, 0, 12).tolist() != pinned
    assert drawn(pool, 1, 0, 0, 12).tolist() != pinned


# --- distributions of stages


def test_distributions_of_stages_share_a_pool() -> None:
    """The pool has each bucket once, by its key; a distribution weighs its own payloads."""
    pool = made_pool(
        {"32-64": 1, "64-128": 3},
        more=[made_buckets({"64-128": 1, "1KB-2KB": 1}), made_buckets({"32-64": 5})],
    )
    assert pool.bucket_names == ("32-64", "64-128", "1KB-2KB")
    assert pool.sizes.tolist() == [48, 96, 1536]
    assert [weights.tolist() for weights in pool.weights_of] == [
        [0.25, 0.75, 0],
        [0, 0.5, 0.5],
        [1, 0, 0],
    ]
    assert pool.mean_sizes == (84.0, 816.0, 48.0)
    assert (pool.mean_size, pool.weights_of[0].tolist()) == (84.0, [0.25, 0.75, 0])
    assert len(pool.choices) == 3


def test_a_payload_file_fills_the_message_size_alone_and_not_the_sizes_of_a_stage() -> None:
    content = bytes(range(1, 101))
    pool = made_pool(message_size=100, file_content=content, more=[made_buckets({"200-300": 1})])
    assert (pool.bucket_names, pool.sizes.tolist()) == (("100", "200-300"), [100, 250])
    assert pool.bodies == (content[32:], bytes(218))


def test_a_bucket_of_weight_0_in_the_profile_has_payloads_for_a_stage() -> None:
    pool = made_pool({"32-64": 1, "64-128": 0}, more=[made_buckets({"64-128": 2})])
    assert [weights.tolist() for weights in pool.weights_of] == [[1, 0], [0, 1]]


def test_the_buckets_of_all_stages_together_are_limited() -> None:
    """And each distribution needs a weight."""
    with pytest.raises(
        ValueError,
        match="257 size buckets in all stages together: the envelope numbers at most 256",
    ):
        made_pool(
            message_size=100,
            more=[made_buckets({f"{low}-{low + 1}": 1}) for low in range(200, 456)],
        )
    with pytest.raises(ValueError, match="weights of messageSizeDistribution"):
        made_pool(message_size=100, more=[[]])


@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any),
    count=st.integers(1, 200),
    seed=st.integers(0, 99),
)
def test_a_distribution_draws_the_same_in_any_pool(
    weights: list[int], count: int, seed: int
) -> None:
    """Other payloads of the pool make no difference."""
    mix = {f"{64 + 8 * i}-{72 + 8 * i}": weight for i, weight in enumerate(weights)}
    alone, beside = made_pool(mix), made_pool(PRODUCTION, more=[made_buckets(mix)])
    chosen = [
        beside.bucket_names[beside.buckets[payload]]
        for payload in drawn(beside, seed, 1, 0, count, beside.choices[1])
    ]
    assert chosen == [
        alone.bucket_names[alone.buckets[payload]] for payload in drawn(alone, seed, 1, 0, count)
    ]


@given(first=st.integers(0, 10**6), count=st.integers(0, 300), distribution=st.integers(0, 1))
def test_weights_draw_the_same_as_the_distribution_with_them(
    first: int, count: int, distribution: int
) -> None:
    """From the middle of a stream too."""
    mixes = ({"32-64": 1, "64-128": 3}, {"64-128": 1, "1KB-2KB": 1})
    pool = made_pool(mixes[0], more=[made_buckets(mixes[1])], representative="uniform")
    by_number = drawn(pool, 3, 1, first, count, pool.table(distribution)).tolist()
    assert by_number == drawn(pool, 3, 1, first, count, pool.table(mixes[distribution])).tolist()
    assert (
        by_number[count // 2 :]
        == drawn(
            pool, 3, 1, first + count // 2, count - count // 2, pool.table(distribution)
        ).tolist()
    )


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({"5-6": 1}, "no size bucket 5-6: .* 32-64, 64-128"),
        ({"32-64": 0}, "one must be above"),
        ({}, "one must be above"),
        ({"32-64": -1}, "below 0"),
        ({"32-64": "much"}, "one must be above"),
    ],
)
def test_weights_for_unknown_buckets_and_without_a_choice_are_an_error(
    weights: dict[str, int], reason: str
) -> None:
    """Payloads are made once, and the error comes before any worker hears of the change."""
    with pytest.raises(UsageError, match=reason):
        made_pool({"32-64": 1, "64-128": 3}).table(weights)
    with pytest.raises(UsageError, match=reason):
        check_weights(weights, ("32-64", "64-128"))


SIZES = st.lists(st.integers(32, 5000), min_size=1, max_size=8)


def pool_of(sizes: list[int], each: int = 1) -> PayloadPool:
    """Return a pool.

    :param sizes: by topic.
    """
    different = list(dict.fromkeys(sizes))
    pool = build_pool(
        buckets=[Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in different], message_size=None,
        randomized=True, random_ratio=1.0, file_content=None, seed=1, checksum=False, max_size=None, per_bucket=each,
    )  # fmt: skip
    return replace(pool, of_topics=tuple(map(different.index, sizes)))


@given(sizes=SIZES, each=st.integers(1, 4), producers=st.integers(1, 3), workers=st.integers(1, 3))
def test_every_message_has_its_topics_size(
    sizes: list[int], each: int, producers: int, workers: int
) -> None:
    """On any worker; all payloads of that size are used, and a message has always the same."""
    pool, topics = pool_of(sizes, each), len(sizes)
    for rank in range(workers):
        streams = range(rank, topics * producers, workers)
        index, seq = np.repeat(np.arange(len(streams)), 200), np.tile(np.arange(200), len(streams))
        made = make_chooser(pool, 7, streams, topics)
        drawn = made.draw(index, seq, pool.choices[0])
        wanted = np.array(sizes)[np.arange(streams.start, streams.stop, streams.step) % topics]
        assert pool.sizes[drawn].tolist() == np.repeat(wanted, 200).tolist()
        assert drawn.dtype == np.uint16
        assert np.array_equal(made.draw(index[::-1], seq[::-1], pool.choices[0])[::-1], drawn)
        for at in range(len(streams)):
            assert len(np.unique(drawn[index == at])) == each


def test_topics_that_do_not_differ_draw_by_weight() -> None:
    pool = pool_of([100, 200])
    assert isinstance(make_chooser(pool, 1, range(2), 2), TopicChooser)
    assert isinstance(make_chooser(replace(pool, of_topics=()), 1, range(2), 2), PayloadChooser)
