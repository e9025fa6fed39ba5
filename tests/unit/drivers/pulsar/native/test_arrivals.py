"""The columns of received entries: the same result as reading message by message."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar.names import OUTPUT_BITS, key_number
from pytest_loadtest.drivers.pulsar.native.arrivals import Arrival, ArrivalReader
from pytest_loadtest.message.carried import carried_heads
from pytest_loadtest.message.payloads import body_ok
from pytest_loadtest.message.route import PROPERTY, Carrier, parse_place
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.message.token import encode_tokens
from pytest_loadtest.wire.pulsar.api_pb2 import SingleMessageMetadata

DAMAGED = b"D" * 32
SIZES = st.sampled_from([0, 1, 16, 20, 31, 32, 33, 100, 3000])
KEYS = st.sampled_from([None, "key-7", "key-12", "theirs", ""])


class Message(NamedTuple):
    """A message in a batch. ``event_time``: in metadata that differs from ours, possibly with the same length."""

    payload: bytes
    key: str | None = None
    event_time: int | None = None


def batch(*messages: Message) -> bytes:
    parts = []
    for payload, key, event_time in messages:
        metadata = SingleMessageMetadata(
            payload_size=len(payload), partition_key=key, event_time=event_time
        ).SerializeToString()
        parts += [len(metadata).to_bytes(4, "big"), metadata, payload]
    return b"".join(parts)


def with_checksum(body: bytes) -> bytes:
    return bytes(32) + body + zlib.crc32(body).to_bytes(4, "little")


@st.composite
def payload_of(draw: Any, size: int | None = None) -> bytes:
    length = draw(SIZES) if size is None else size
    seed = draw(st.integers(0, 255))
    if length >= 40 and draw(st.booleans()):
        return with_checksum(bytes([seed]) * (length - 36))
    return bytes((seed + i) % 256 for i in range(length))


@st.composite
def arrivals(draw: Any) -> tuple[Arrival, list[Message] | None]:
    """An arrival and its messages; None: it is damaged."""
    place, time, order, flags = (draw(st.integers(0, 3)) for _ in range(4))
    kind = draw(
        st.sampled_from(["single", "even", "uneven", "keyed", "other prefix", "chosen", "damaged"])
    )
    count = draw(st.integers(1, 5))
    size = draw(SIZES)
    if kind == "single":
        payload = draw(payload_of())
        return Arrival(place, time, place + 7, order, flags & 1, 0, memoryview(payload)), [
            Message(payload)
        ]
    messages = [Message(draw(payload_of(None if kind == "uneven" else size))) for _ in range(count)]
    if kind == "keyed":
        messages = [Message(message.payload, draw(KEYS)) for message in messages]
    if kind == "other prefix":  # of equal length: the first is ours, later ones are not
        messages = [
            Message(message.payload, None, draw(st.sampled_from([5, 6]))) for message in messages
        ]
    data = batch(*messages)
    chosen = None
    if kind == "chosen":
        chosen = np.flatnonzero(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        messages = [messages[i] for i in chosen]
    if kind == "damaged":
        data = data[: draw(st.integers(0, len(data) - 1))]
        return Arrival(place, time, place + 7, order, flags & 1, count, memoryview(data)), None
    return Arrival(
        place, time, place + 7, order, flags & 1, count, memoryview(data), chosen
    ), messages


def rows(found: Any) -> list[tuple[Any, ...]]:
    columns = (
        found.consumer,
        found.heads,
        found.size,
        found.time,
        found.lag,
        found.order,
        found.flags,
    )
    assert [column.dtype for column in columns] == [
        np.int32,
        np.uint8,
        np.int32,
        np.int64,
        np.int64,
        np.int64,
        np.int8,
    ]
    consumer, heads, size, time, lag, order, flags = columns
    assert heads.shape == (len(size), 32)
    texts = [head.tobytes() for head in heads]
    return list(
        zip(
            consumer.tolist(),
            texts,
            size.tolist(),
            time.tolist(),
            lag.tolist(),
            order.tolist(),
            flags.tolist(),
            strict=True,
        )
    )


def naive(
    came: list[tuple[Arrival, list[Message] | None]], checksum: bool, keyed: bool
) -> list[tuple[Any, ...]]:
    found = []
    for arrival, messages in came:
        own = (arrival.place, arrival.time, arrival.lag)
        if messages is None:
            found.append(
                (
                    arrival.place,
                    DAMAGED,
                    max(len(arrival.data), 32),
                    arrival.time,
                    arrival.lag,
                    arrival.order,
                    arrival.flags,
                )
            )
            continue
        keys = keyed and arrival.messages and any(message.key is not None for message in messages)
        for message in messages:
            order = key_number(message.key or "") if keys else arrival.order
            flags = arrival.flags | (
                Flag.CORRUPT if checksum and not body_ok(message.payload) else 0
            )
            found.append(
                (
                    own[0],
                    message.payload[:32].ljust(32, b"\0"),
                    len(message.payload),
                    *own[1:],
                    order,
                    flags,
                )
            )
    return found


def reader(checksum: bool = False, keyed: bool = False) -> ArrivalReader:
    return ArrivalReader(DAMAGED, checksum=checksum, keyed=keyed)


@given(
    came=st.lists(arrivals(), min_size=1, max_size=8), checksum=st.booleans(), keyed=st.booleans()
)
def test_the_columns_are_those_of_reading_message_by_message(
    came: list[tuple[Arrival, list[Message] | None]], checksum: bool, keyed: bool
) -> None:
    """In any mixture: every message once, in order of arrival, with its entry's place, time, order and flags."""
    found = reader(checksum, keyed).columns([arrival for arrival, _ in came])
    assert rows(found) == naive(came, checksum, keyed)
    bodies = []
    for arrival, messages in came:
        if messages is None:
            bodies.append(bytes(arrival.data))
        else:
            bodies += [message.payload for message in messages]
    assert found.bodies is not None
    begin = [found.bodies(row)[:64] for row in range(len(found.size))]
    assert begin == [body[:64] for body in bodies]


def test_the_body_of_an_unreadable_entry_is_its_beginning() -> None:
    found = reader().columns(
        [Arrival(0, 1, -1, 0, 0, 0, DAMAGED, value=b"\x0e\x01"), Arrival(0, 1, -1, 0, 0, 0, b"y")]
    )
    assert found.bodies is not None
    assert [found.bodies(0), found.bodies(1)] == [b"\x0e\x01", b"y"]


def test_a_later_message_with_other_metadata_is_read_correctly() -> None:
    """Its metadata has the length of the first one's, but another content: here a key and a shorter payload."""
    first, second = Message(b"x" * 40), Message(b"y" * 37, "k")
    assert len(batch(first)) == len(batch(second))
    data = batch(first, second)
    other = batch(first, first)
    found = rows(
        reader(keyed=True).columns(
            [Arrival(0, 1, -1, 9, 0, 2, other), Arrival(0, 2, -1, 9, 0, 2, data)]
        )
    )
    assert [(head[:1], size, order) for _, head, size, _, _, order, _ in found] == [
        (b"x", 40, 9), (b"x", 40, 9), (b"x", 40, 0), (b"y", 37, key_number("k"))
    ]  # fmt: skip


def test_large_entries_are_read_without_joining_them() -> None:
    large = [Message(bytes([i]) * 70_000) for i in range(4)]
    came = [Arrival(i, i, -1, 0, 0, 2, batch(*large[i : i + 2])) for i in (0, 2)]
    assert [(row[0], row[1][:1], row[2]) for row in rows(reader().columns(came))] == [
        (i // 2 * 2, bytes([i]), 70_000) for i in range(4)
    ]


def test_tokens_are_found_in_batches_and_in_single_messages() -> None:
    heads = [bytes([number]) * 32 for number in range(3)]
    tokens = encode_tokens(np.frombuffer(b"".join(heads), np.uint8).reshape(3, 32))
    bodies = [b'{"x":%d,"ref":"%b"}' % (10**at, token) for at, token in enumerate(tokens)]
    came = [
        Arrival(0, 1, -1, 0, 0, 2, batch(Message(bodies[0]), Message(bodies[1]))),
        Arrival(0, 2, -1, 0, 0, 0, bodies[2]),
        Arrival(0, 3, -1, 0, 0, 0, b"no token"),
        Arrival(0, 4, -1, 0, 0, 0, b""),
    ]
    found = placed("json:/ref").columns(came)
    assert [bytes(head) for head in found.heads] == [*heads, bytes(32), bytes(32)]
    assert found.size.tolist() == [*map(len, bodies), 8, 0]


def placed(place: str) -> ArrivalReader:
    return ArrivalReader(DAMAGED, checksum=False, keyed=True, place=parse_place(place))


@pytest.mark.parametrize("place", ["json:/ref", "properties"])
def test_an_entry_that_was_damaged_on_its_way_counts_as_corrupt(place: str) -> None:
    """Its head stands for it, wherever the envelope is."""
    found = placed(place).columns([Arrival(0, 1, -1, 0, 0, 0, DAMAGED)])
    assert [bytes(head) for head in found.heads] == [DAMAGED]


TOKENS = st.binary(min_size=32, max_size=32).map(
    lambda head: encode_tokens(np.frombuffer(head, np.uint8).reshape(1, 32))[0].decode()
)
VALUES = TOKENS | st.none() | st.sampled_from(["~lt1~cut", "other", "x" * 48])


@st.composite
def valued(draw: Any) -> tuple[bytes, list[str], int, bool]:
    """Messages of one entry: their encoding, values, size, and whether they are a batch."""
    size = draw(st.integers(0, 40))
    values = draw(st.lists(TOKENS | VALUES, min_size=1, max_size=5))
    pairs = draw(st.sampled_from([[], [("a", "b")], [("z", "~lt1~" + "a" * 43)]]))
    if len(values) == 1 and draw(st.booleans()):
        return bytes(size), values, size, False
    key = draw(st.sampled_from([None, "key-7"]))
    parts = []
    for value in values:
        metadata = SingleMessageMetadata(payload_size=size, partition_key=key)
        own = [] if value is None else [(PROPERTY, value)]
        for name, text in sorted([*pairs, *own]):
            metadata.properties.add(key=name, value=text)
        encoded = metadata.SerializeToString()
        parts += [len(encoded).to_bytes(4, "big"), encoded, bytes(size)]
    return b"".join(parts), values, size, True


@given(entries=st.lists(valued(), min_size=1, max_size=5))
def test_properties_are_read_as_by_protobuf(
    entries: list[tuple[bytes, list[str], int, bool]],
) -> None:
    """Whether messages are alike or not, with other properties and values, and among others'."""
    came = []
    values = []
    sizes = []
    for number, (data, own, size, batched) in enumerate(entries):
        single = b"" if batched or own[0] is None else own[0].encode()
        count = len(own) if batched else 0
        came.append(Arrival(0, number, -1, 0, 0, count, data, None, single))
        values += [b"" if value is None else value.encode() for value in own]
        sizes += [size] * len(own)
    found = placed("properties").columns(came)
    assert np.array_equal(found.heads, carried_heads(Carrier.PROPERTIES, values))
    assert found.size.tolist() == sizes


@pytest.mark.parametrize("length", [0, 3, 15, 31, 32, 200])
def test_a_damaged_entry_counts_as_corrupt(length: int) -> None:
    """Whatever its size: the row has the size of an envelope at least, as a shorter one would be foreign."""
    (row,) = rows(reader().columns([Arrival(1, 2, -1, 3, 1, 3, b"\xff" * length)]))
    assert row == (1, DAMAGED, max(length, 32), 2, -1, 3, 1)


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("key-0", 0),
        ("key-123", 123),
        ("", 0),
        *(
            (key, zlib.crc32(key.encode()) & 0x7FFF_FFFF)
            for key in ("user12", "key-", "key-x", "key-٣")
        ),
    ],
)
def test_our_keys_have_their_number_and_others_a_hash(key: str, number: int) -> None:
    assert key_number(key) == number


def test_a_foreign_key_of_many_digits_fits_into_the_column() -> None:
    """It may be on an existing topic."""
    key = "key-" + "9" * 30
    found = reader(keyed=True).columns([Arrival(0, 1, -1, 0, 0, 1, batch(Message(b"z" * 40, key)))])
    assert found.order.tolist() == [zlib.crc32(key.encode()) & 0x7FFF_FFFF]


def test_a_key_on_two_output_topics_is_two_groups_of_order() -> None:
    """No broker promises an order across topics, so the number of the topic stays above that of the key."""
    messages = batch(Message(b"z" * 40, "key-7"), Message(b"z" * 40, "key-8"))
    came = [Arrival(0, 1, -1, output << OUTPUT_BITS, 0, 2, messages) for output in (0, 1)]
    found = reader(keyed=True).columns(came)
    assert found.order.tolist() == [7, 8, 7 | 1 << OUTPUT_BITS, 8 | 1 << OUTPUT_BITS]
