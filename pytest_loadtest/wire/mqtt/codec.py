"""One packet ⇄ its bytes: for what there is little of. See :mod:`~pytest_loadtest.wire.mqtt.reading` for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.wire.mqtt.fields import FieldReader, MalformedPacket, binary, text, variable
from pytest_loadtest.wire.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V311,
    Connack,
    Connect,
    Ending,
    Packet,
    Ping,
    Publish,
    PublishAnswer,
    Subscribe,
    SubscriptionAnswer,
    TopicFilter,
    Unsubscribe,
    Will,
)  # fmt: skip
from pytest_loadtest.wire.mqtt.properties import decode_properties, encode_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Properties = Mapping[str, Any]

_FLAGS: Final = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}  # of the first byte, where they are not 0 (2.1.3)


def encode(packet: Packet, version: int = V5) -> bytes:
    """The bytes of a packet.

    :raises ValueError: a field that no packet can hold. :raises KeyError: an unknown property.
    """
    kind, flags, body = _bodies[type(packet)](packet, version)
    return bytes([kind << 4 | _FLAGS.get(kind, 0) | flags]) + variable(len(body)) + body


def decode(first: int, body: bytes, version: int = V5) -> Packet:
    """A packet from its first byte and what follows its length.

    :raises MalformedPacket: it is none.
    """
    kind, flags = first >> 4, first & 15
    if kind == 0 or (kind == AUTH and version < V5):
        raise MalformedPacket(f"no packet begins with 0x{first:02x}")
    if kind != PUBLISH and flags != _FLAGS.get(kind, 0):
        raise MalformedPacket(f"packet {kind} has flags {flags}")
    reader = FieldReader(body)
    packet = _readers[kind](kind, flags, reader, version)
    reader.end()
    return packet


def _with(properties: Properties, version: int) -> bytes:
    return encode_properties(properties) if version >= V5 else b""


def _properties(reader: FieldReader, version: int) -> Properties:
    return decode_properties(reader) if version >= V5 else {}


def _connect(packet: Connect, _version: int) -> tuple[int, int, bytes]:
    will, flags, fields = packet.will, packet.clean_start << 1, text(packet.client_id)
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        fields += _with(will.properties, packet.version) + text(will.topic) + binary(will.payload)
    if packet.username is not None:
        flags |= 0x80
        fields += text(packet.username)
    if packet.password is not None:
        flags |= 0x40
        fields += binary(packet.password)
    head = text("MQTT") + bytes([packet.version, flags]) + packet.keep_alive.to_bytes(2, "big")
    return CONNECT, 0, head + _with(packet.properties, packet.version) + fields


def _read_connect(_kind: int, _flags: int, reader: FieldReader, _version: int) -> Connect:
    if reader.text() != "MQTT":
        raise MalformedPacket("a CONNECT of another protocol")
    version, flags, keep_alive = reader.number(1), reader.number(1), reader.number(2)
    if version not in (V311, V5) or flags & 1:
        raise MalformedPacket(f"a CONNECT of version {version} with flags 0x{flags:02x}")
    properties, client_id, will = _properties(reader, version), reader.text(), None
    qos = flags >> 3 & 3
    if qos > 2 or (not flags & 4 and flags & 0x38):
        raise MalformedPacket(f"a CONNECT with flags 0x{flags:02x}")
    if flags & 4:
        of_will = _properties(reader, version)
        will = Will(reader.text(), reader.binary(), qos, bool(flags & 0x20), of_will)
    username = reader.text() if flags & 0x80 else None
    password = reader.binary() if flags & 0x40 else None
    return Connect(client_id, version, bool(flags & 2), keep_alive, username, password, will, properties)


def _connack(packet: Connack, version: int) -> tuple[int, int, bytes]:
    return CONNACK, 0, bytes([packet.session_present, packet.reason]) + _with(packet.properties, version)


def _read_connack(_kind: int, _flags: int, reader: FieldReader, version: int) -> Connack:
    flags, reason = reader.number(1), reader.number(1)
    if flags > 1:
        raise MalformedPacket(f"a CONNACK with flags 0x{flags:02x}")
    return Connack(bool(flags), reason, _properties(reader, version))


def _publish(packet: Publish, version: int) -> tuple[int, int, bytes]:
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    packet_id = packet.packet_id.to_bytes(2, "big") if packet.qos else b""
    return PUBLISH, flags, text(packet.topic) + packet_id + _with(packet.properties, version) + packet.payload


def _read_publish(_kind: int, flags: int, reader: FieldReader, version: int) -> Publish:
    qos = flags >> 1 & 3
    if qos == 3:
        raise MalformedPacket("a PUBLISH at QoS 3")
    topic, packet_id = reader.text(), _packet_id(reader) if qos else 0
    properties = _properties(reader, version)
    return Publish(topic, reader.rest(), qos, bool(flags & 1), bool(flags & 8), packet_id, properties)


def _packet_id(reader: FieldReader) -> int:
    packet_id = reader.number(2)
    if not packet_id:
        raise MalformedPacket("packet identifier 0")  # 2.2.1
    return packet_id


def _publish_answer(packet: PublishAnswer, version: int) -> tuple[int, int, bytes]:
    body = packet.packet_id.to_bytes(2, "big")
    if version >= V5 and (packet.reason or packet.properties):
        body += bytes([packet.reason]) + (encode_properties(packet.properties) if packet.properties else b"")
    return packet.kind, 0, body


def _read_publish_answer(kind: int, _flags: int, reader: FieldReader, version: int) -> PublishAnswer:
    packet_id = _packet_id(reader)
    reason = reader.number(1) if version >= V5 and reader.left else 0
    return PublishAnswer(kind, packet_id, reason, _properties(reader, version) if reader.left else {})


def _subscribe(packet: Subscribe, version: int) -> tuple[int, int, bytes]:
    wanted = b"".join(
        text(one.topic) + bytes([one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4])
        for one in packet.filters
    )
    return SUBSCRIBE, 0, packet.packet_id.to_bytes(2, "big") + _with(packet.properties, version) + wanted


def _read_subscribe(_kind: int, _flags: int, reader: FieldReader, version: int) -> Subscribe:
    packet_id, properties, filters = _packet_id(reader), _properties(reader, version), []
    while reader.left:
        topic, options = reader.text(), reader.number(1)
        qos, handling = options & 3, options >> 4 & 3
        if options > 0x3F or qos == 3 or handling == 3:
            raise MalformedPacket(f"subscription options 0x{options:02x}")
        filters.append(TopicFilter(topic, qos, bool(options & 4), bool(options & 8), handling))
    return Subscribe(packet_id, tuple(filters), properties)


def _unsubscribe(packet: Unsubscribe, version: int) -> tuple[int, int, bytes]:
    topics = b"".join(map(text, packet.topics))
    return UNSUBSCRIBE, 0, packet.packet_id.to_bytes(2, "big") + _with(packet.properties, version) + topics


def _read_unsubscribe(_kind: int, _flags: int, reader: FieldReader, version: int) -> Unsubscribe:
    packet_id, properties, topics = _packet_id(reader), _properties(reader, version), []
    while reader.left:
        topics.append(reader.text())
    return Unsubscribe(packet_id, tuple(topics), properties)


def _subscription_answer(packet: SubscriptionAnswer, version: int) -> tuple[int, int, bytes]:
    return packet.kind, 0, packet.packet_id.to_bytes(2, "big") + _with(packet.properties, version) + bytes(packet.reasons)


def _read_subscription_answer(kind: int, _flags: int, reader: FieldReader, version: int) -> SubscriptionAnswer:
    packet_id = _packet_id(reader)
    properties = _properties(reader, version)
    return SubscriptionAnswer(kind, packet_id, tuple(reader.rest()), properties)


def _ending(packet: Ending, version: int) -> tuple[int, int, bytes]:
    if version < V5 or not (packet.reason or packet.properties):
        return packet.kind, 0, b""
    return packet.kind, 0, bytes([packet.reason]) + (encode_properties(packet.properties) if packet.properties else b"")


def _read_ending(kind: int, _flags: int, reader: FieldReader, version: int) -> Ending:
    reason = reader.number(1) if version >= V5 and reader.left else 0
    return Ending(kind, reason, _properties(reader, version) if reader.left else {})


_bodies: Final[Mapping[type, Callable[[Any, int], tuple[int, int, bytes]]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    PublishAnswer: _publish_answer,
    Subscribe: _subscribe,
    Unsubscribe: _unsubscribe,
    SubscriptionAnswer: _subscription_answer,
    Ping: lambda packet, _version: (packet.kind, 0, b""),
    Ending: _ending,
}
_readers: Final[Mapping[int, Callable[[int, int, FieldReader, int], Packet]]] = {
    CONNECT: _read_connect,
    CONNACK: _read_connack,
    PUBLISH: _read_publish,
    **dict.fromkeys((PUBACK, PUBREC, PUBREL, PUBCOMP), _read_publish_answer),
    SUBSCRIBE: _read_subscribe,
    UNSUBSCRIBE: _read_unsubscribe,
    **dict.fromkeys((SUBACK, UNSUBACK), _read_subscription_answer),
    **dict.fromkeys((PINGREQ, PINGRESP), lambda kind, *_: Ping(kind)),
    **dict.fromkeys((DISCONNECT, AUTH), _read_ending),
}
