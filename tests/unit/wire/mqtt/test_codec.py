"""The codec of single packets: encoding and decoding return the same packet, also with the codec of mqtt5; garbage is an error."""

from __future__ import annotations

import contextlib
from typing import Any

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt_codec import Packet, PublishAnswer, decode, encode

from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.mqtt.fields import LONGEST, FieldReader, MalformedPacket

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TOPICS = st.text("abc/ü", min_size=1, max_size=20)
BYTES = st.binary(max_size=50)
IDS = st.integers(1, 65_535)
QOS = st.integers(0, 2)
FOUR = st.integers(1, 2**32 - 1)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3)


def some(**possible: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Choose some of these properties."""
    return st.fixed_dictionaries({}, optional={**possible, "user_property": PAIRS})


TOLD = some(reason_string=TEXTS)
OF_MESSAGES = {
    "payload_format_indicator": st.just(1), "message_expiry_interval": FOUR, "content_type": TEXTS, "response_topic": TOPICS,
    "correlation_data": BYTES,
}  # fmt: skip
PUBLISHES = st.builds(
    lambda topic, payload, qos, retain, dup, packet_id, properties: p.Publish(
        topic, payload, qos, retain, dup and qos > 0, packet_id if qos else 0, properties
    ),
    TOPICS, st.binary(max_size=300), QOS, st.booleans(), st.booleans(), IDS,
    some(**OF_MESSAGES, topic_alias=IDS, subscription_identifier=st.lists(st.integers(1, LONGEST), min_size=1, max_size=2)),
)  # fmt: skip
FILTERS = st.builds(p.TopicFilter, TOPICS, QOS, st.booleans(), st.booleans(), QOS)
PACKETS: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        p.Connect, TEXTS, st.just(p.V5), st.booleans(), st.integers(0, 65_535), st.none() | TEXTS, st.none() | BYTES,
        some(
            session_expiry_interval=FOUR, receive_maximum=st.integers(1, 65_534), maximum_packet_size=FOUR, topic_alias_maximum=IDS,
            request_response_information=st.just(1), request_problem_information=st.just(0),
        ),
    ),
    st.builds(
        p.Connack, st.booleans(), st.just(0),
        some(
            session_expiry_interval=FOUR, receive_maximum=st.integers(1, 65_534), maximum_qos=st.integers(0, 1), retain_available=st.just(0),
            maximum_packet_size=FOUR, assigned_client_identifier=TEXTS, topic_alias_maximum=IDS, reason_string=TEXTS,
            wildcard_subscription_available=st.just(0), subscription_identifier_available=st.just(0),
            shared_subscription_available=st.just(0), server_keep_alive=IDS, response_information=TEXTS, server_reference=TEXTS,
        ),
    ),
    PUBLISHES,
    st.builds(PublishAnswer, st.sampled_from([p.PUBACK, p.PUBREC]), IDS, st.sampled_from([0, 0x10, 0x80, 0x97]), TOLD),
    st.builds(PublishAnswer, st.sampled_from([p.PUBREL, p.PUBCOMP]), IDS, st.sampled_from([0, 0x92]), TOLD),
    st.builds(
        p.Subscribe, IDS, st.lists(FILTERS, min_size=1, max_size=3).map(tuple),
        some(subscription_identifier=st.integers(1, LONGEST).map(lambda n: [n])),
    ),
    st.builds(p.Unsubscribe, IDS, st.lists(TOPICS, min_size=1, max_size=3).map(tuple), some()),
    st.builds(p.SubscriptionAnswer, st.just(p.SUBACK), IDS, st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1).map(tuple), TOLD),
    st.builds(p.SubscriptionAnswer, st.just(p.UNSUBACK), IDS, st.lists(st.sampled_from([0, 0x11]), min_size=1).map(tuple), TOLD),
    st.builds(p.Ping, st.sampled_from([p.PINGREQ, p.PINGRESP])),
    st.builds(p.Ending, st.just(p.DISCONNECT), st.sampled_from([0, 0x8B, 0x8E]), TOLD),
)  # fmt: skip


def read(data: bytes, version: int = p.V5) -> Packet:
    """Decode data that is exactly one packet."""
    reader = FieldReader(data[1:])
    assert reader.variable() == reader.left
    return decode(data[0], reader.rest(), version)


@given(packet=PACKETS)
def test_decoding_returns_the_encoded_packet(packet: Packet) -> None:
    """In MQTT 5, including all properties."""
    assert read(encode(packet)) == packet


@given(packet=PACKETS)
def test_decoding_returns_the_encoded_packet_of_3_1_1(packet: Packet) -> None:
    """MQTT 3.1.1 has the same packets without properties, and reason codes only in CONNACK and SUBACK."""
    if isinstance(packet, p.Connect):
        packet = packet._replace(version=p.V311)
    if isinstance(packet, PublishAnswer | p.Ending):
        packet = packet._replace(reason=0)
    if not isinstance(packet, p.Ping):
        packet = packet._replace(properties={})
    assert read(encode(packet, p.V311), p.V311) == packet


@given(packet=PACKETS)
def test_the_codec_agrees_with_mqtt5(packet: Packet) -> None:
    """The independent codec mqtt5 (in Rust) decodes our bytes, and we decode what it encodes from them to the same packet."""
    data = encode(packet)
    theirs, size = mqtt5.read(data)
    assert size == len(data)
    assert read(theirs.write()) == packet


@given(data=st.binary(max_size=60))
def test_garbage_is_malformed_or_a_packet(data: bytes) -> None:
    """No other exception is raised, and decoding ends."""
    for version in (p.V311, p.V5):
        with contextlib.suppress(MalformedPacket):
            decode(data[0] if data else 0, data[1:], version)


@given(packet=PACKETS, cut=st.integers(1, 5))
def test_a_truncated_packet_is_malformed_or_another_packet(packet: Packet, cut: int) -> None:
    body = FieldReader(encode(packet)[1:])
    body.variable()
    rest = body.rest()
    if len(rest) < cut:
        return
    with contextlib.suppress(MalformedPacket):
        assert decode(encode(packet)[0], rest[:-cut]) != packet


@pytest.mark.parametrize(
    ("first", "body", "named"),
    [
        (0x00, b"", "0x00 is not the first byte of a packet"),
        (0x61, b"\0\1", "packet 6 has flags 1"),
        (0x36, b"", "QoS 3"),
        (0x32, b"\0\1a\0\0\0", "packet identifier 0"),
        (0x30, b"\0\2\xff\xff\0", "not UTF-8"),
        (0x30, b"\0\1\0\0", "null character"),
        (0x30, b"\0\1a\2\x7f\0", "unknown property 0x7f"),
        (0x30, b"\0\1a\4\1\0\1\0", "payload_format_indicator twice"),
        (0xD0, b"x", "1 bytes too many"),
    ],
)
def test_an_error_names_the_invalid_field(first: int, body: bytes, named: str) -> None:
    with pytest.raises(MalformedPacket, match=named):
        decode(first, body)
