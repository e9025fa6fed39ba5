"""Entries: protobuf reads what is written without it, and a damaged entry is no message."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar import entries
from pytest_loadtest.wire.pulsar.entries import CorruptEntryError, EntrySealer, open_entry
from pytest_loadtest.wire.pulsar.framing import ProtocolError, split_frame

U64, U63, U31 = st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)
PAYLOAD = st.lists(st.binary(max_size=40), max_size=4)
TEXT = st.text(max_size=20)


def entry(
    metadata: api.MessageMetadata,
    payload: bytes,
    *,
    checked: bool = True,
    broker: bytes | None = None,
) -> bytes:
    """Return an entry as a broker sends it, built without the code under test."""
    head_bytes = metadata.SerializeToString()
    guarded = struct.pack(">I", len(head_bytes)) + head_bytes + payload
    found = struct.pack(">HI", 0x0E01, crc32c(guarded)) + guarded if checked else guarded
    return found if broker is None else struct.pack(">HI", 0x0E02, len(broker)) + broker + found


@st.composite
def metadatas(draw: st.DrawFn) -> api.MessageMetadata:
    found = api.MessageMetadata(
        producer_name=draw(TEXT), sequence_id=draw(U64), publish_time=draw(U64)
    )
    for name, values in (
        ("partition_key", TEXT),
        ("num_messages_in_batch", U31),
        ("deliver_at_time", U63),
        ("uuid", TEXT),
    ):
        if draw(st.booleans()):
            setattr(found, name, draw(values))
    found.properties.extend(
        api.KeyValue(key=key, value=value)
        for key, value in draw(st.dictionaries(TEXT, TEXT, max_size=3)).items()
    )
    return found


@given(U64)
def test_a_varint_is_that_of_protobuf(number: int) -> None:
    assert b"\x08" + entries.varint(number) == api.Success(request_id=number).SerializeToString()


@given(
    producer=U64, name=TEXT, sequence=U63, count=st.integers(1, 2**31 - 1), published=U64, batched=st.booleans(), chunk=st.booleans(),
    payload=PAYLOAD,
)  # fmt: skip
def test_protobuf_reads_a_sealed_entry(
    producer: int,
    name: str,
    sequence: int,
    count: int,
    published: int,
    batched: bool,
    chunk: bool,
    payload: list[bytes],
) -> None:
    """With the given fields, right lengths and CRC, for a payload of any number of parts."""
    sealed = EntrySealer.of(producer, name).seal(
        payload,
        sequence=sequence,
        count=count,
        published=entries.publish_time(published),
        batched=batched,
        chunk=chunk,
    )
    whole = sealed + b"".join(payload)
    assert struct.unpack_from(">I", whole)[0] == len(whole) - 4
    raw, rest = split_frame(memoryview(whole)[4:])
    metadata, body = open_entry(rest)
    send = api.Send(producer_id=producer, sequence_id=sequence)
    expected = api.MessageMetadata(producer_name=name, sequence_id=sequence, publish_time=published)
    if chunk:
        send.is_chunk = True
    if batched:
        expected.num_messages_in_batch = count
        if count > 1:
            send.num_messages, send.highest_sequence_id, expected.highest_sequence_id = (
                count,
                sequence + count - 1,
                sequence + count - 1,
            )
    assert api.Command.FromString(bytes(raw)) == api.Command(type=api.Command.SEND, send=send)
    assert metadata == expected
    assert bytes(body) == b"".join(payload)


@given(
    key=TEXT,
    number=st.integers(1, 4),
    size=st.integers(0, 2**32 - 1),
    due=U63,
    uuid=TEXT,
    chunks=st.tuples(U31, U31, U31),
)
def test_additional_fields_are_read_by_protobuf(
    key: str, number: int, size: int, due: int, uuid: str, chunks: tuple[int, int, int]
) -> None:
    """In any order."""
    count, total, place = chunks
    expected = api.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2, partition_key=key, compression=number, uncompressed_size=size,
        deliver_at_time=due, uuid=uuid, num_chunks_from_msg=count, total_chunk_msg_size=total, chunk_id=place,
    )  # fmt: skip
    more = [
        entries.field(6, key.encode()), entries.compressed(number, size), entries.deliver_at(due),
        entries.chunk_of(uuid.encode(), count, total, place),
    ]  # fmt: skip
    for fields in (more, more[::-1]):
        sealed = EntrySealer.of(0, "p").seal(
            [],
            sequence=1,
            count=1,
            published=entries.publish_time(2),
            batched=False,
            more=b"".join(fields),
        )
        assert open_entry(split_frame(memoryview(sealed)[4:])[1])[0] == expected


@given(
    metadatas(), st.binary(max_size=60), st.booleans(), st.one_of(st.none(), st.binary(max_size=20))
)
def test_an_entry_is_opened_with_and_without_optional_parts(
    metadata: api.MessageMetadata, payload: bytes, checked: bool, broker: bytes | None
) -> None:
    """The broker's own metadata and the CRC."""
    found, rest = open_entry(memoryview(entry(metadata, payload, checked=checked, broker=broker)))
    assert (found, bytes(rest)) == (metadata, payload)


@given(metadatas(), st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=20)), st.data())
def test_the_crc_detects_any_changed_byte(
    metadata: api.MessageMetadata, payload: bytes, broker: bytes | None, data: st.DataObject
) -> None:
    damaged = bytearray(entry(metadata, payload, broker=broker))
    place = data.draw(st.integers(2 + (0 if broker is None else 6 + len(broker)), len(damaged) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptEntryError, match="does not match its CRC32-C"):
        open_entry(memoryview(damaged))


@given(metadatas(), st.binary(max_size=60), st.integers(0, 1), st.integers(1, 255))
def test_an_entry_with_a_damaged_magic_number_is_an_error(
    metadata: api.MessageMetadata, payload: bytes, place: int, change: int
) -> None:
    damaged = bytearray(entry(metadata, payload))
    damaged[place] ^= change
    with pytest.raises(ProtocolError):
        open_entry(memoryview(damaged))


@given(metadatas(), st.binary(max_size=30), st.booleans(), st.data())
def test_a_truncated_entry_is_an_error(
    metadata: api.MessageMetadata, payload: bytes, checked: bool, data: st.DataObject
) -> None:
    """Only without a CRC a missing part of the payload is not detected."""
    whole = entry(metadata, payload, checked=checked, broker=b"b")
    most = len(whole) - 1 if checked else len(whole) - len(payload) - 1
    with pytest.raises(ProtocolError):
        open_entry(memoryview(whole)[: data.draw(st.integers(0, most))])


@given(st.binary(max_size=80))
def test_any_bytes_are_an_entry_or_a_protocol_error(body: bytes) -> None:
    for head in (b"", b"\x0e\x02\0\0\0\x01b"):
        try:
            metadata, rest = open_entry(memoryview(head + body))
        except ProtocolError:
            continue
        assert metadata.IsInitialized() and len(rest) < len(body)


@pytest.mark.parametrize("without", ["producer_name", "sequence_id", "publish_time"])
def test_metadata_without_a_required_field_are_an_error(without: str) -> None:
    """Even with a right CRC."""
    metadata = api.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    metadata.ClearField(without)
    head_bytes = metadata.SerializePartialToString()
    guarded = struct.pack(">I", len(head_bytes)) + head_bytes
    with pytest.raises(ProtocolError, match="without a required field"):
        open_entry(memoryview(struct.pack(">HI", 0x0E01, crc32c(guarded)) + guarded))


def test_unknown_fields_are_skipped() -> None:
    """A later Pulsar's metadata: a field 1000 of bytes, a field 1001 that is a number."""
    head_bytes = api.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2
    ).SerializeToString()
    head_bytes += entries.field(1000, b"new") + entries.varint(1001 << 3) + b"\x07"
    metadata, rest = open_entry(
        memoryview(struct.pack(">I", len(head_bytes)) + head_bytes + b"payload")
    )
    assert (metadata.producer_name, metadata.sequence_id, bytes(rest)) == ("p", 1, b"payload")


@given(value=st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_a_property_is_encoded_as_by_protobuf(value: str) -> None:
    """In the metadata of an entry and in that of a message in a batch."""
    data = value.encode()
    for number, kind in ((4, api.MessageMetadata), (1, api.SingleMessageMetadata)):
        made = kind()
        made.properties.add(key="loadtest", value=value)
        front = entries.property_front(number, "loadtest", len(data))
        assert front + data == made.SerializePartialToString()
        assert entries.property_value(made, "loadtest") == data
        assert entries.property_value(made, "other") == b""
