"""Batches, partitions and the payloads of entries: the same result as message by message."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar.native.batching import (
    Batches,
    BatchLimits,
    EntryPacker,
    Partitioner,
    form_batches,
    java_hash,
)
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.template import render_template
from pytest_loadtest.wire.pulsar.api_pb2 import SingleMessageMetadata

if TYPE_CHECKING:
    from pytest_loadtest.message.payloads import PayloadPool

NOW = 1000
MESSAGES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=60
)
LIMITS = st.builds(BatchLimits, st.integers(0, 12), st.integers(1, 200), st.integers(0, 30))


class Formed(NamedTuple):
    """Batches to send and messages that wait, as positions."""

    batches: list[list[int]]
    kept: list[int]
    made: Batches


def formed(group: list[int], size: list[int], since: list[int], limits: BatchLimits) -> Formed:
    made = form_batches(
        np.array(group, np.int64), np.array(size, np.int32), np.array(since, np.int64), NOW, limits
    )
    order = list(range(len(group))) if made.order is None else made.order.tolist()
    batches = [order[start:stop] for start, stop in zip(made.starts, made.stops, strict=True)]
    return Formed(batches, [] if made.kept is None else made.kept.tolist(), made)


def columns(messages: list[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    """Groups, sizes, and ascending times of arrival."""
    group, size, age = (list(column) for column in zip(*messages, strict=True))
    return group, size, sorted(NOW - each for each in age)


def full(batch: list[int], size: list[int], limits: BatchLimits) -> bool:
    return (
        len(batch) == (limits.messages or len(size)) or sum(size[i] for i in batch) >= limits.size
    )


@given(messages=MESSAGES, limits=LIMITS)
def test_each_message_is_in_one_batch_or_waits(
    messages: list[tuple[int, int, int]], limits: BatchLimits
) -> None:
    """A batch has one group, in order, and its size in bytes; waiting messages ascend."""
    group, size, since = columns(messages)
    found = formed(group, size, since, limits)
    assert sorted([i for batch in found.batches for i in batch] + found.kept) == list(
        range(len(group))
    )
    assert found.kept == sorted(found.kept)
    assert found.made.kept is None or found.kept
    assert found.made.sizes == [sum(size[i] for i in batch) for batch in found.batches]
    for number in set(group):
        theirs = [batch for batch in found.batches if number in {group[i] for i in batch}]
        gone = [i for batch in theirs for i in batch]
        assert {group[i] for i in gone} <= {number}
        waiting = [i for i in found.kept if group[i] == number]
        assert gone + waiting == [i for i, each in enumerate(group) if each == number]


@given(messages=MESSAGES, limits=LIMITS)
def test_no_batch_is_beyond_the_limits(
    messages: list[tuple[int, int, int]], limits: BatchLimits
) -> None:
    """Neither in number nor in bytes, unless a single message is larger; no batch is empty."""
    group, size, since = columns(messages)
    for batch in formed(group, size, since, limits).batches:
        assert 1 <= len(batch) <= (limits.messages or len(size))
        assert len(batch) == 1 or sum(size[i] for i in batch) <= limits.size


@given(messages=MESSAGES, limits=LIMITS)
def test_full_or_due_batches_are_sent(
    messages: list[tuple[int, int, int]], limits: BatchLimits
) -> None:
    """A batch that is not full is sent if its oldest message is due."""
    group, size, since = columns(messages)
    found = formed(group, size, since, limits)
    for number in set(group):
        mine = [i for i, each in enumerate(group) if each == number]
        waiting = [i for i in found.kept if group[i] == number]
        assert not waiting or (
            since[waiting[0]] > NOW - limits.delay and not full(waiting, size, limits)
        )
        for batch in (batch for batch in found.batches if group[batch[0]] == number):
            if since[batch[0]] <= NOW - limits.delay:
                continue
            following = mine[mine.index(batch[-1]) + 1 :]
            over = bool(following) and sum(size[i] for i in [*batch, following[0]]) > limits.size
            assert full(batch, size, limits) or over


@pytest.mark.parametrize(
    ("messages", "batches", "kept"),
    [(3, [[0, 1, 2]], []), (2, [[0, 1], [2]], []), (0, [[0, 1, 2]], [])],
)
def test_a_due_group_is_sent_in_as_many_batches_as_needed(
    messages: int, batches: list[list[int]], kept: list[int]
) -> None:
    """0 is no limit."""
    found = formed([7] * 3, [10] * 3, [0] * 3, BatchLimits(messages, 100, 1))
    assert (found.batches, found.kept) == (batches, kept)


def test_messages_that_are_left_over_by_a_full_batch_wait_for_their_own_delay() -> None:
    """Otherwise every full batch is followed by one of a few messages."""
    found = formed([7] * 3, [10] * 3, [900, 900, 999], BatchLimits(2, 100, 50))
    assert (found.batches, found.kept) == ([[0, 1]], [2])


def test_groups_wait_independently() -> None:
    """Group 1 is full, group 2 is due, group 3 is neither."""
    found = formed([3, 1, 2, 1, 3], [1] * 5, [999, 999, 900, 999, 999], BatchLimits(2, 100, 50))
    assert (sorted(found.batches), found.kept) == ([[0, 4], [1, 3], [2]], [])
    found = formed([3, 1, 2, 1], [1] * 4, [999, 999, 900, 999], BatchLimits(2, 100, 50))
    assert (sorted(found.batches), found.kept) == ([[1, 3], [2]], [0])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("Hello, World!", 1498789909),
        ("polygenelubricants", 0),
    ],
)
def test_the_hash_of_a_key_is_that_of_java(text: str, value: int) -> None:
    """``s[0]*31^(n-1) + … + s[n-1]`` in 32 bits, as java.lang.String documents it; without its sign, as ``HashingScheme.JavaStringHash``."""
    assert java_hash(text) == value


def turn(partitioner: Partitioner, stream: int, seq: int, intended: int) -> int:
    return int(
        partitioner.choose(
            np.array([stream], np.int32), np.array([seq]), np.array([intended]), None
        )[0]
    )


@given(partitions=st.integers(1, 9), keys=st.lists(st.integers(0, 300), min_size=1, max_size=30))
def test_the_partition_of_a_key_depends_on_its_hash_alone(partitions: int, keys: list[int]) -> None:
    """Not on stream, sequence, time, or the order in which keys appear."""
    made = Partitioner(partitions, BatchLimits(10, 100, 5))
    for start in range(0, len(keys), 7):
        key = np.array(keys[start : start + 7], np.int32)
        n = np.arange(len(key))
        chosen = made.choose(n.astype(np.int32), n * 13, n * 1000, key)
        assert chosen.tolist() == [
            java_hash(f"key-{number}") % partitions for number in key.tolist()
        ]


@given(
    partitions=st.integers(2, 9),
    stream=st.integers(0, 1000),
    most=st.integers(1, 50),
    stay=st.integers(1, 100),
    batch=st.integers(0, 99),
)
def test_a_producer_stays_with_a_partition_for_a_full_batch_and_ten_delays(
    partitions: int, stream: int, most: int, stay: int, batch: int
) -> None:
    """Then the next partition follows."""
    by_count = Partitioner(partitions, BatchLimits(most, 100, 0))
    first = [turn(by_count, stream, batch * most + i, 0) for i in (0, most - 1, most)]
    assert first[0] == first[1] and first[2] == (first[0] + 1) % partitions
    by_time = Partitioner(partitions, BatchLimits(0, 100, stay))
    then = [
        turn(by_time, stream, 0, batch * 10 * stay + ns) for ns in (0, 10 * stay - 1, 10 * stay)
    ]
    assert then[0] == then[1] and then[2] == (then[0] + 1) % partitions


@given(
    partitions=st.integers(1, 9),
    rows=st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 10**6), st.integers(0, 10**15)),
        min_size=1,
        max_size=40,
    ),
)
def test_the_partition_depends_on_the_message_alone(
    partitions: int, rows: list[tuple[int, int, int]]
) -> None:
    """Not on the other messages of the tick, or on earlier ones; every partition exists."""
    made = Partitioner(partitions, BatchLimits(100, 1000, 10**6))
    stream, seq, intended = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    chosen = made.choose(stream.astype(np.int32), seq, intended, None)
    assert chosen.dtype == np.int64
    assert all(0 <= partition < partitions for partition in chosen.tolist())
    again = Partitioner(partitions, BatchLimits(100, 1000, 10**6))
    assert chosen.tolist() == [turn(again, *row) for row in reversed(rows)][::-1]


def test_streams_begin_at_different_partitions() -> None:
    """So all partitions of a topic get the same load from many slow streams."""
    made = Partitioner(3, BatchLimits(10, 100, 1))
    stream = np.arange(6, dtype=np.int32)
    assert made.choose(stream, np.zeros(6, np.int64), np.zeros(6, np.int64), None).tolist() == [
        0,
        1,
        2,
        0,
        1,
        2,
    ]


def pool_of(*sizes: int, bodies: int = 1) -> PayloadPool:
    buckets = [payloads.Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in sizes]
    return payloads.build_pool(
        buckets=buckets, message_size=None, randomized=True, random_ratio=1.0, file_content=None, seed=1, checksum=False, max_size=None,
        per_bucket=bodies,
    )  # fmt: skip


POOLS = {
    "one size": pool_of(64, bodies=3),
    "one large size": pool_of(5000, bodies=2),
    "compact": pool_of(20, bodies=2),
    "envelopes alone": pool_of(32),
    "compact envelopes alone": pool_of(16),
    "mixed": pool_of(16, 20, 32, 33, 300, 4000),
    "large and small": pool_of(17, 100_000),
    "templates": payloads.build_pattern_pool(
        {
            "short": render_template("{{ seq }}", "short", seed=1, count=2),
            "long": render_template("{{ envelope }}{{ text(90) }}", "long", seed=1, count=3),
        },
        {"short": 1, "long": 2},
        1 << 20,
    ),
}


def naive(
    pool: PayloadPool, heads: np.ndarray, payload: np.ndarray, key: np.ndarray | None, batched: bool
) -> list[bytes]:
    """The bytes of each message in an entry, with metadata by protobuf."""
    found = []
    for number, message in enumerate(payloads.whole_payloads(pool, heads, payload)):
        if not batched:
            found.append(message)
            continue
        metadata = SingleMessageMetadata(payload_size=len(message))
        if key is not None:
            metadata.partition_key = f"key-{key[number]}"
        front = metadata.SerializeToString()
        found.append(len(front).to_bytes(4, "big") + front + message)
    return found


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("name", POOLS)
@settings(max_examples=20)
@given(data=st.data())
def test_payloads_are_those_of_packing_message_by_message(
    name: str, keyed: bool, batched: bool, data: st.DataObject
) -> None:
    """Whatever the borders of entries. A message that is not batched has its key in the entry's metadata, not here."""
    pool = POOLS[name]
    chosen = data.draw(st.lists(st.integers(0, len(pool.sizes) - 1), min_size=1, max_size=12))
    ends = (
        sorted({*data.draw(st.lists(st.integers(1, len(chosen)), max_size=4)), len(chosen)})
        if batched
        else range(1, len(chosen) + 1)
    )
    payload, n = np.array(chosen, np.uint16), np.arange(len(chosen))
    heads = envelope.encode_heads(
        pool, nonce=9, stream=n.astype(np.int32), seq=n * 7, intended=n * 1000, payload=payload
    )
    key = (n * 37 % 200).astype(np.int32) if keyed else None
    limits = list(pairwise([0, *ends]))
    packed = EntryPacker(pool, batched=batched).pack(
        heads, payload, key, [start for start, _ in limits], [stop for _, stop in limits]
    )
    wanted = naive(pool, heads, payload, key, batched)
    assert [b"".join(parts) for parts in packed] == [
        b"".join(wanted[start:stop]) for start, stop in limits
    ]
    assert all(len(part) for parts in packed for part in parts), "an empty buffer"


def test_packed_payloads_do_not_change() -> None:
    """Entries may be sent again while later ones are packed from the same tables."""
    pool = POOLS["one size"]
    packer, zero = EntryPacker(pool, batched=True), np.zeros(1, np.int64)
    packed = []
    for seq in range(3):
        heads = envelope.encode_heads(
            pool,
            nonce=9,
            stream=zero.astype(np.int32),
            seq=zero + seq,
            intended=zero,
            payload=zero.astype(np.uint16),
        )
        packed.append((packer.pack(heads, zero.astype(np.uint16), None, [0], [1])[0], heads))
    for parts, heads in packed:
        assert heads.tobytes() in b"".join(parts)
