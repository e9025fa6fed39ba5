"""Batches: every message is read unchanged, and anything else is an error."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulsar_wire import ack_set_of

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar import batches
from pytest_loadtest.wire.pulsar.batches import BatchReader, pending_indexes, prefix
from pytest_loadtest.wire.pulsar.framing import ProtocolError

MESSAGE = st.tuples(st.binary(max_size=200), st.one_of(st.none(), st.text(max_size=10)))
MESSAGES = st.lists(MESSAGE, max_size=20)


def batch_of(messages: list[tuple[bytes, str | None]]) -> bytes:
    return b"".join(
        prefix(len(payload), None if key is None else key.encode()) + payload
        for payload, key in messages
    )


def read(
    reader: BatchReader, batch: bytes, count: int
) -> tuple[list[bytes], list[str | None] | None]:
    found = reader.messages(memoryview(batch), count)
    assert (found.starts.dtype, found.sizes.dtype) == (np.int64, np.int32)
    return [
        batch[start : start + size] for start, size in zip(found.starts, found.sizes, strict=True)
    ], found.keys


@given(st.binary(max_size=300), st.one_of(st.none(), st.text(max_size=10)))
def test_a_prefix_is_the_size_and_the_metadata_of_protobuf(payload: bytes, key: str | None) -> None:
    told = api.SingleMessageMetadata(
        payload_size=len(payload), partition_key=key
    ).SerializeToString()
    assert (
        prefix(len(payload), None if key is None else key.encode())
        == struct.pack(">I", len(told)) + told
    )


@given(st.lists(MESSAGES, max_size=4))
def test_all_messages_of_a_batch_are_read(several: list[list[tuple[bytes, str | None]]]) -> None:
    """Payloads and keys, of one batch after the other; without any key there is no column."""
    reader = BatchReader()
    for messages in several:
        payloads, keys = read(reader, batch_of(messages), len(messages))
        assert payloads == [payload for payload, _ in messages]
        assert keys == (
            [key for _, key in messages] if any(key is not None for _, key in messages) else None
        )


@given(
    st.lists(st.binary(max_size=8), min_size=1, max_size=8), st.booleans(), st.binary(max_size=3)
)
def test_other_fields_of_the_metadata_are_skipped(
    payloads: list[bytes], compacted: bool, value: bytes
) -> None:
    batch = b""
    for number, payload in enumerate(payloads):
        told = api.SingleMessageMetadata(
            payload_size=len(payload), properties=[api.KeyValue(key="k", value=value.hex())], event_time=number, sequence_id=number,
            compacted_out=compacted,
        ).SerializeToString() + b"\xf8\x07\x01"  # fmt: skip
        batch += struct.pack(">I", len(told)) + told + payload
    assert read(BatchReader(), batch, len(payloads)) == (payloads, None)


@given(st.integers(0, 300), st.integers(1, 20))
def test_even_returns_the_start_of_each_payload(size: int, count: int) -> None:
    """For messages of one length without keys, relative to each message."""
    batch = batch_of([(bytes([number]) * size, None) for number in range(count)])
    reader = BatchReader()
    start = reader.even(memoryview(batch), count)
    assert start is not None
    found = reader.messages(memoryview(batch), count)
    assert np.array_equal(found.starts, start + np.arange(count) * (len(batch) // count))
    assert set(found.sizes) == {size}


@given(st.lists(MESSAGE, min_size=1, max_size=5))
def test_even_is_none_for_messages_of_several_lengths_or_with_keys(
    messages: list[tuple[bytes, str | None]],
) -> None:
    batch, (payload, key) = batch_of(messages), messages[0]
    first = len(prefix(len(payload)))
    expected = (
        first if key is None and (first + len(payload)) * len(messages) == len(batch) else None
    )
    assert BatchReader().even(memoryview(batch), len(messages)) == expected


@pytest.mark.parametrize("count", [0, -1, 4, 7])
def test_even_is_none_if_the_length_is_no_multiple_of_the_count(count: int) -> None:
    assert BatchReader().even(memoryview(batch_of([(b"ab", None)] * 3)), count) is None


@given(MESSAGES, st.integers(-3, 3))
def test_a_wrong_number_of_messages_is_an_error(
    messages: list[tuple[bytes, str | None]], more: int
) -> None:
    count = len(messages) + more
    if more:
        with pytest.raises(ProtocolError):
            BatchReader().messages(memoryview(batch_of(messages)), count)


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_an_impossible_count_allocates_no_memory(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"{count} messages in a batch of 9 bytes"):
        BatchReader().messages(memoryview(prefix(3) + b"abc"), count)


@given(st.lists(MESSAGE, min_size=1, max_size=5), st.data())
def test_a_truncated_batch_is_an_error(
    messages: list[tuple[bytes, str | None]], data: st.DataObject
) -> None:
    batch = batch_of(messages)
    with pytest.raises(ProtocolError):
        BatchReader().messages(
            memoryview(batch)[: data.draw(st.integers(0, len(batch) - 1))], len(messages)
        )


@given(st.binary(max_size=80), st.integers(-2, 20))
def test_any_bytes_are_messages_or_a_protocol_error(batch: bytes, count: int) -> None:
    reader = BatchReader()
    try:
        found = reader.messages(memoryview(batch), count)
    except ProtocolError:
        return
    assert len(found.starts) == count
    assert np.all(found.starts + found.sizes <= len(batch))


@pytest.mark.parametrize(
    ("metadata", "said"),
    [(b"", "lacks the size"), (b"\x12\x01k", "lacks the size"), (b"\x18", "metadata")],
)
def test_metadata_without_a_size_are_an_error(metadata: bytes, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        BatchReader().messages(memoryview(struct.pack(">I", len(metadata)) + metadata + b"xyz"), 1)


def test_a_negative_size_is_an_error() -> None:
    told = b"\x18" + b"\xff" * 9 + b"\x01"
    with pytest.raises(ProtocolError, match="a message of -1 bytes"):
        BatchReader().messages(memoryview(struct.pack(">I", len(told)) + told), 1)


def test_a_key_may_have_any_bytes() -> None:
    """Other clients accept them."""
    assert read(BatchReader(), prefix(1, b"a\xffb") + b"x", 1) == ([b"x"], ["a\\xffb"])


def test_the_cache_of_metadata_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """For many different keys and for long ones, and all are read."""
    monkeypatch.setattr(batches, "_REMEMBERED", 5)
    reader = BatchReader()
    messages: list[tuple[bytes, str | None]] = [
        (b"x", f"{number:0{width}}") for number in range(12) for width in (3, 400)
    ]
    for _ in range(2):
        assert read(reader, batch_of(messages), 24)[1] == [key for _, key in messages]
    assert len(reader._known) <= 5
    assert max(map(len, reader._known)) < 100


# ack sets


@given(st.lists(st.booleans(), max_size=200))
def test_an_ack_set_has_a_bit_for_each_pending_message(still: list[bool]) -> None:
    """In 64-bit words of java.util.BitSet, without zeros at the end."""
    told = np.array(still, np.bool_)
    words = ack_set_of(told)
    bits = sum(bit << number for number, bit in enumerate(still))
    assert words == [int.from_bytes(part, "little", signed=True) for part in java_words(bits)]
    assert (
        api.MessageId.FromString(
            api.MessageId(ledger_id=1, entry_id=1, ack_set=words).SerializeToString()
        ).ack_set
        == words
    )
    if any(still):
        assert pending_indexes(words, len(still)).tolist() == np.flatnonzero(still).tolist()


def java_words(bits: int) -> list[bytes]:
    return [
        (bits >> start & (1 << 64) - 1).to_bytes(8, "little")
        for start in range(0, bits.bit_length(), 64)
    ]


def test_a_batch_without_a_pending_message_has_an_empty_ack_set() -> None:
    assert ack_set_of(np.zeros(100, np.bool_)) == []


@pytest.mark.parametrize(
    ("words", "count", "wanted"),
    [
        ([0b101], 70, {0, 2}),
        ([-(2**63)], 64, {63}),
        ([0, 1], 65, {64}),
        ([15], 2, {0, 1}),
        ([5], 2**31 - 1, {0, 2}),
        ([5], -1, set()),
    ],
)
def test_bits_outside_of_the_batch_are_ignored(
    words: list[int], count: int, wanted: set[int]
) -> None:
    """A missing word is 0, and the sign is a bit."""
    assert set(pending_indexes(words, count).tolist()) == wanted
