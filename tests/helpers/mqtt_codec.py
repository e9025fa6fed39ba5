"""The broker's half of the MQTT codec, for tests: packets of brokers are written, packets of clients are read.

:func:`encode` and :func:`decode` take every packet, so that each can be read back: those of the client's half go to the package's codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_loadtest.wire.mqtt import codec
from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.mqtt.codec import frame, read_packet_id, read_versioned, versioned
from pytest_loadtest.wire.mqtt.fields import FieldReader, MalformedPacket, encode_properties

if TYPE_CHECKING:
    from collections.abc import Mapping


class PublishAnswer(NamedTuple):
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7)."""

    kind: int
    packet_id: int
    reason: int = 0
    properties: Mapping[str, Any] = {}


Packet = p.Packet | PublishAnswer


def encode(packet: Packet, version: int = p.V5) -> bytes:
    """Encode any packet."""
    if isinstance(packet, p.Connack):
        return frame(
            p.CONNACK,
            0,
            bytes([packet.session_present, packet.reason]) + versioned(packet.properties, version),
        )
    if isinstance(packet, p.SubscriptionAnswer):
        body = (
            packet.packet_id.to_bytes(2, "big")
            + versioned(packet.properties, version)
            + bytes(packet.reasons)
        )
        return frame(packet.kind, 0, body)
    if isinstance(packet, PublishAnswer):
        body = packet.packet_id.to_bytes(2, "big")
        if version >= p.V5 and (packet.reason or packet.properties):
            body += bytes([packet.reason]) + (
                encode_properties(packet.properties) if packet.properties else b""
            )
        return frame(packet.kind, 2 if packet.kind == p.PUBREL else 0, body)
    return codec.encode_packet(packet, version)


def decode(first: int, body: bytes, version: int = p.V5) -> Packet:
    """Return any packet from its first byte and what follows its length. :raises MalformedPacket: it is not a packet."""
    kind, flags = first >> 4, first & 15
    if kind not in _READERS:
        return codec.decode_packet(first, body, version)
    if kind != p.PUBLISH and flags != (2 if kind in (p.PUBREL, p.SUBSCRIBE, p.UNSUBSCRIBE) else 0):
        raise MalformedPacket(f"packet {kind} has flags {flags}")
    reader = FieldReader(body)
    packet = _READERS[kind](kind, flags, reader, version)
    reader.end()
    return packet


def _read_connect(_kind: int, _flags: int, reader: FieldReader, _version: int) -> p.Connect:
    if reader.text() != "MQTT":
        raise MalformedPacket("a CONNECT of another protocol")
    version, flags, keep_alive = reader.number(1), reader.number(1), reader.number(2)
    if version not in (p.V311, p.V5) or flags & ~0xC2:  # a will is nothing that the package writes
        raise MalformedPacket(f"a CONNECT of version {version} with flags 0x{flags:02x}")
    properties, client_id = read_versioned(reader, version), reader.text()
    username = reader.text() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    return p.Connect(
        client_id, version, bool(flags & 2), keep_alive, username, password, properties
    )


def _read_publish(_kind: int, flags: int, reader: FieldReader, version: int) -> p.Publish:
    qos = flags >> 1 & 3
    if qos == 3:
        raise MalformedPacket("a PUBLISH at QoS 3")
    topic, packet_id = reader.text(), read_packet_id(reader) if qos else 0
    properties = read_versioned(reader, version)
    return p.Publish(
        topic, reader.rest(), qos, bool(flags & 1), bool(flags & 8), packet_id, properties
    )


def _read_publish_answer(
    kind: int, _flags: int, reader: FieldReader, version: int
) -> PublishAnswer:
    packet_id = read_packet_id(reader)
    reason = reader.number(1) if version >= p.V5 and reader.left else 0
    return PublishAnswer(
        kind, packet_id, reason, read_versioned(reader, version) if reader.left else {}
    )


def _read_subscribe(_kind: int, _flags: int, reader: FieldReader, version: int) -> p.Subscribe:
    packet_id, properties, filters = read_packet_id(reader), read_versioned(reader, version), []
    while reader.left:
        topic, options = reader.text(), reader.number(1)
        qos, handling = options & 3, options >> 4 & 3
        if options > 0x3F or qos == 3 or handling == 3:
            raise MalformedPacket(f"subscription options 0x{options:02x}")
        filters.append(p.TopicFilter(topic, qos, bool(options & 4), bool(options & 8), handling))
    return p.Subscribe(packet_id, tuple(filters), properties)


def _read_unsubscribe(_kind: int, _flags: int, reader: FieldReader, version: int) -> p.Unsubscribe:
    packet_id, properties, topics = read_packet_id(reader), read_versioned(reader, version), []
    while reader.left:
        topics.append(reader.text())
    return p.Unsubscribe(packet_id, tuple(topics), properties)


_READERS = {
    p.CONNECT: _read_connect,
    p.PUBLISH: _read_publish,
    **dict.fromkeys((p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP), _read_publish_answer),
    p.SUBSCRIBE: _read_subscribe,
    p.UNSUBSCRIBE: _read_unsubscribe,
}
