"""The codec of a client, one packet at a time.

Packets of clients are encoded, packets of brokers are decoded.

PUBLISH and its acknowledgements are frequent, and are read by
:mod:`~pytest_loadtest.wire.mqtt.reading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.wire.mqtt.fields import (
    FieldReader,
    MalformedPacket,
    binary,
    decode_properties,
    encode_properties,
    text,
    variable,
)
from pytest_loadtest.wire.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    FIRST_BYTES,
    PINGREQ,
    PINGRESP,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    ClientPacket,
    Connack,
    Connect,
    Ending,
    Packet,
    Ping,
    Publish,
    Subscribe,
    SubscriptionAnswer,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Properties = Mapping[str, Any]

_CLIENT_PACKETS: Final = {CONNECT: "CONNECT", SUBSCRIBE: "SUBSCRIBE", UNSUBSCRIBE: "UNSUBSCRIBE"}
# The fixed flags of SUBSCRIBE, UNSUBSCRIBE and PUBREL (2.1.3); other values are malformed.
_RESERVED: Final = 2


def encode_packet(packet: Packet, version: int = V5) -> bytes:
    """Encode a packet of a client.

    :raises ValueError: a field does not fit into its packet.
    :raises KeyError: an unknown property, or a packet that only brokers send.
    """
    return frame(*_bodies[type(packet)](packet, version))


def frame(kind: int, flags: int, body: bytes) -> bytes:
    """Put the fixed header in front of a body. :raises ValueError: the body is too long."""
    return bytes([kind << 4 | flags]) + variable(len(body)) + body


def decode_packet(first: int, body: bytes, version: int = V5) -> Packet:
    """Decode a packet of a broker, except PUBLISH and its acknowledgements.

    :param first: first byte. :param body: bytes after the packet's length.
    :returns: a packet that only clients send is a :class:`ClientPacket`; its body is not decoded.
    :raises MalformedPacket: the bytes are not a packet.
    """
    kind = first >> 4
    if first in FIRST_BYTES and kind in _CLIENT_PACKETS:
        return ClientPacket(_CLIENT_PACKETS[kind])
    if first not in FIRST_BYTES or kind not in _readers or (kind == AUTH and version < V5):
        raise MalformedPacket(f"0x{first:02x} is not the first byte of a packet")
    reader = FieldReader(body)
    packet = _readers[kind](kind, reader, version)
    reader.end()
    return packet


def versioned(properties: Properties, version: int) -> bytes:
    """Encode properties; b"" for MQTT 3.1.1, which has none."""
    return encode_properties(properties) if version >= V5 else b""


def read_versioned(reader: FieldReader, version: int) -> Properties:
    """Read properties; empty for MQTT 3.1.1, which has none."""
    return decode_properties(reader) if version >= V5 else {}


def _connect(packet: Connect, _version: int) -> tuple[int, int, bytes]:
    # Bits of the connect flags are in 3.1.2.3. The order of the payload's fields is fixed: client
    # id, user name, password (3.1.3). A will is never sent.
    flags = packet.clean_start << 1
    fields = text(packet.client_id)
    if packet.username is not None:
        flags |= 0x80
        fields += text(packet.username)
    if packet.password is not None:
        flags |= 0x40
        fields += binary(packet.password)
    head = text("MQTT") + bytes([packet.version, flags]) + packet.keep_alive.to_bytes(2, "big")
    return CONNECT, 0, head + versioned(packet.properties, packet.version) + fields


def _read_connack(_kind: int, reader: FieldReader, version: int) -> Connack:
    flags = reader.number(1)
    reason = reader.number(1)
    if flags > 1:
        raise MalformedPacket(f"CONNACK has flags 0x{flags:02x}, must be 0 or 1")
    return Connack(bool(flags), reason, read_versioned(reader, version))


def _publish(packet: Publish, version: int) -> tuple[int, int, bytes]:
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    packet_id = packet.packet_id.to_bytes(2, "big") if packet.qos else b""
    return (
        PUBLISH,
        flags,
        text(packet.topic) + packet_id + versioned(packet.properties, version) + packet.payload,
    )


def _subscribe(packet: Subscribe, version: int) -> tuple[int, int, bytes]:
    # The options of an entry are one byte after its filter (3.8.3.1).
    filters = b"".join(
        text(entry.topic)
        + bytes(
            [
                entry.qos
                | entry.no_local << 2
                | entry.retain_as_published << 3
                | entry.retain_handling << 4
            ]
        )
        for entry in packet.filters
    )
    return (
        SUBSCRIBE,
        _RESERVED,
        packet.packet_id.to_bytes(2, "big") + versioned(packet.properties, version) + filters,
    )


def _unsubscribe(packet: Unsubscribe, version: int) -> tuple[int, int, bytes]:
    topics = b"".join(map(text, packet.topics))
    return (
        UNSUBSCRIBE,
        _RESERVED,
        packet.packet_id.to_bytes(2, "big") + versioned(packet.properties, version) + topics,
    )


def read_packet_id(reader: FieldReader) -> int:
    """Read a packet identifier. :raises MalformedPacket: it is 0."""
    packet_id = reader.number(2)
    # Packet identifiers start at 1 (2.2.1).
    if not packet_id:
        raise MalformedPacket("packet identifier 0")
    return packet_id


def _read_subscription_answer(kind: int, reader: FieldReader, version: int) -> SubscriptionAnswer:
    packet_id = read_packet_id(reader)
    properties = read_versioned(reader, version)
    return SubscriptionAnswer(kind, packet_id, tuple(reader.rest()), properties)


def _ending(packet: Ending, version: int) -> tuple[int, int, bytes]:
    # The reason code can be left out if it is 0 and there are no properties (3.14.2.1).
    if version < V5 or not (packet.reason or packet.properties):
        return packet.kind, 0, b""
    return (
        packet.kind,
        0,
        bytes([packet.reason])
        + (encode_properties(packet.properties) if packet.properties else b""),
    )


def _read_ending(kind: int, reader: FieldReader, version: int) -> Ending:
    # An empty body means reason 0, and so does every DISCONNECT of MQTT 3.1.1.
    reason = reader.number(1) if version >= V5 and reader.left else 0
    return Ending(kind, reason, read_versioned(reader, version) if reader.left else {})


_bodies: Final[Mapping[type, Callable[[Any, int], tuple[int, int, bytes]]]] = {
    Connect: _connect,
    Publish: _publish,
    Subscribe: _subscribe,
    Unsubscribe: _unsubscribe,
    Ping: lambda packet, _version: (packet.kind, 0, b""),
    Ending: _ending,
}
_readers: Final[Mapping[int, Callable[[int, FieldReader, int], Packet]]] = {
    CONNACK: _read_connack,
    **dict.fromkeys((SUBACK, UNSUBACK), _read_subscription_answer),
    **dict.fromkeys((PINGREQ, PINGRESP), lambda kind, *_: Ping(kind)),
    **dict.fromkeys((DISCONNECT, AUTH), _read_ending),
}
