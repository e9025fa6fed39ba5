"""The payloads of entries: the same bytes as one message after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar.native.batching import EntryPacker
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.wire.pulsar.api_pb2 import SingleMessageMetadata

if TYPE_CHECKING:
    from pytest_loadtest.message.payloads import PayloadPool


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
}


def naive(pool: PayloadPool, heads: np.ndarray, payload: np.ndarray, key: np.ndarray | None, batched: bool) -> list[bytes]:
    """Of each message, what it is in an entry; its metadata by protobuf."""
    found = []
    for number, message in enumerate(payloads.messages(pool, heads, payload)):
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
def test_as_message_by_message(name: str, keyed: bool, batched: bool, data: st.DataObject) -> None:
    """The same bytes, wherever entries begin and end; a message that is no batch has its key in the entry's metadata, not here."""
    pool = POOLS[name]
    chosen = data.draw(st.lists(st.integers(0, len(pool.sizes) - 1), min_size=1, max_size=12))
    ends = sorted({*data.draw(st.lists(st.integers(1, len(chosen)), max_size=4)), len(chosen)}) if batched else range(1, len(chosen) + 1)
    payload, n = np.array(chosen, np.uint16), np.arange(len(chosen))
    heads = envelope.encode_heads(pool, nonce=9, stream=n.astype(np.int32), seq=n * 7, intended=n * 1000, payload=payload)
    key = (n * 37 % 200).astype(np.int32) if keyed else None
    limits = list(pairwise([0, *ends]))
    packed = EntryPacker(pool, batched=batched).pack(heads, payload, key, [start for start, _ in limits], [stop for _, stop in limits])
    wanted = naive(pool, heads, payload, key, batched)
    assert [b"".join(parts) for parts in packed] == [b"".join(wanted[start:stop]) for start, stop in limits]
    assert all(len(part) for parts in packed for part in parts), "an empty buffer"


def test_what_was_packed_stays_as_it_is() -> None:
    """Entries wait to be sent again, while later ones are made from the same tables."""
    pool = POOLS["one size"]
    packer, zero = EntryPacker(pool, batched=True), np.zeros(1, np.int64)
    packed = []
    for seq in range(3):
        heads = envelope.encode_heads(
            pool, nonce=9, stream=zero.astype(np.int32), seq=zero + seq, intended=zero, payload=zero.astype(np.uint16)
        )
        packed.append((packer.pack(heads, zero.astype(np.uint16), None, [0], [1])[0], heads))
    for parts, heads in packed:
        assert heads.tobytes() in b"".join(parts)
