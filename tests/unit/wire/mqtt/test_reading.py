"""Many packets in received bytes: reading them together agrees with decoding them one by one, wherever the reads end."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt_codec import Packet, PublishAnswer, decode, encode

from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.mqtt.fields import (
    LONGEST,
    FieldReader,
    MalformedPacket,
    decode_properties,
)
from pytest_loadtest.wire.mqtt.reading import encode_answer, read_packets, read_topics

from .test_codec import PACKETS, PUBLISHES

VERSIONS = st.sampled_from([p.V311, p.V5])


def plain(packet: Packet, version: int) -> Packet:
    """Remove the fields that a protocol version does not have."""
    if version == p.V5 or isinstance(packet, p.Ping):
        return packet
    if isinstance(packet, p.Connect):
        packet = packet._replace(version=p.V311)
    if isinstance(packet, PublishAnswer | p.Ending):
        packet = packet._replace(reason=0)
    changed: Packet = packet._replace(properties={})
    return changed


def as_read(packet: Packet) -> Packet:
    """Return the packet as a client reads it: of packets that only clients send it reads only the name."""
    return (
        p.ClientPacket(type(packet).__name__.upper())
        if isinstance(packet, p.Connect | p.Subscribe | p.Unsubscribe)
        else packet
    )


@given(packets=st.lists(PACKETS | PUBLISHES, max_size=12), version=VERSIONS)
def test_every_packet_is_read_once_and_in_order(packets: list[Packet], version: int) -> None:
    """It is in one of the three lists, with the values that the codec encoded."""
    packets = [plain(packet, version) for packet in packets]
    data = b"".join(encode(packet, version) for packet in packets)
    used, messages, answers, others = read_packets(data, version)
    assert used == len(data)
    assert others == [
        as_read(packet) for packet in packets if not isinstance(packet, p.Publish | PublishAnswer)
    ]
    assert answers == [
        (a.kind, a.packet_id, a.reason) for a in packets if isinstance(a, PublishAnswer)
    ]
    found = []
    for qos, dup, packet_id, before, start, end in messages:
        properties = {}
        if version == p.V5:
            properties = decode_properties(FieldReader(data[before:start]))
        found.append((qos, dup > 0, packet_id, properties, data[start:end]))
    topics = [m.topic.encode() for m in packets if isinstance(m, p.Publish)]
    assert read_topics(data, used) == topics
    assert found == [
        (m.qos, m.dup, m.packet_id, m.properties, m.payload)
        for m in packets
        if isinstance(m, p.Publish)
    ]


@given(
    packets=st.lists(PACKETS | PUBLISHES, max_size=8),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
)
def test_a_packet_in_several_reads_is_read_once(packets: list[Packet], cuts: list[int]) -> None:
    """An incomplete packet is left in place until its last byte has arrived."""
    data = b"".join(map(encode, packets))
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    rest, found = b"", 0
    for begin, end in itertools.pairwise(edges):
        rest += data[begin:end]
        used, *lists = read_packets(rest, p.V5)
        found += sum(map(len, lists))
        rest = rest[used:]
    assert (found, rest) == (len(packets), b"")


@given(data=st.binary(max_size=160), version=VERSIONS)
def test_garbage_is_malformed_or_packets(data: bytes, version: int) -> None:
    """No other exception is raised, and nothing is read beyond the end."""
    try:
        used, messages, *_ = read_packets(data, version)
    except MalformedPacket:
        return
    assert used <= len(data)
    assert all(before <= start <= end <= used for *_, before, start, end in messages)


@given(first=st.integers(0, 255), body=st.binary(max_size=40), version=VERSIONS)
def test_a_valid_publish_is_read(first: int, body: bytes, version: int) -> None:
    """Topic and properties are not decoded, but their ends are located."""
    first = first & 15 | p.PUBLISH << 4
    try:
        packet: Any = decode(first, body, version)
    except MalformedPacket:
        return
    data = bytes([first, len(body)]) + body
    _, ((qos, _, packet_id, _, start, end),), _, _ = read_packets(data, version)
    assert (qos, packet_id, data[start:end]) == (packet.qos, packet.packet_id, packet.payload)


@pytest.mark.parametrize("length", [127, 128, 16_383, 16_384, 2_097_152])
def test_a_length_may_have_several_bytes(length: int) -> None:
    data = encode(p.Publish("t", bytes(length - 4))) + encode(p.Ping(p.PINGRESP))
    used, ((*_, start, end),), _, others = read_packets(data, p.V5)
    assert (used, end - start, others) == (len(data), length - 4, [p.Ping(p.PINGRESP)])


def test_a_length_of_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedPacket, match="more than four"):
        read_packets(b"\x30\xff\xff\xff\xff\x01", p.V5)


@pytest.mark.parametrize(
    "data", [b"\x30\xff\xff\xff\x7f" + bytes(1000), b"\x30\xff\xff\xff", b"\x30\x80", b"\x30"]
)
def test_an_incomplete_packet_is_not_read(data: bytes) -> None:
    """It may end within its length or within its body."""
    assert read_packets(data, p.V5) == (0, [], [], [])
    assert LONGEST == 0xFFFFFFF


@given(
    packet_id=st.integers(1, 65_535),
    kind=st.sampled_from([p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP]),
)
def test_answers_are_encoded_as_by_the_codec(packet_id: int, kind: int) -> None:
    assert encode_answer(kind, packet_id) == encode(PublishAnswer(kind, packet_id))
