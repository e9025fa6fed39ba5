"""The frequent packets, PUBLISH and its acknowledgements.

They are located in received bytes, without copying payloads.
"""

from __future__ import annotations

from typing import Final

from pytest_loadtest.wire.mqtt.codec import decode_packet
from pytest_loadtest.wire.mqtt.fields import FieldReader, MalformedPacket
from pytest_loadtest.wire.mqtt.packets import (
    FIRST_BYTES,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V5,
    Packet,
)

# Results are plain lists and tuples. A socket has only a few packets at a time, and for those the
# fixed cost of numpy's calls is several times what they save; for a thousand packets the difference
# is small compared with the cost of the sockets (docs/decisions/015).
Message = tuple[int, int, int, int, int, int]
"""A PUBLISH packet.

It has QoS, DUP (0 or 8), packet id (0 at QoS 0), and three positions in the data: of its properties
with their length, of its payload, and of its end. MQTT 3.1.1 has no properties.
"""
Answer = tuple[int, int, int]
"""PUBACK, PUBREC, PUBREL or PUBCOMP: kind, packet id, reason code."""

# The first two bytes of an acknowledgement, whose length is always 2; PUBREL has the fixed flags 2
# (2.1.3).
_FRONTS: Final = {
    PUBACK: bytes((PUBACK << 4, 2)),
    PUBREC: bytes((PUBREC << 4, 2)),
    PUBREL: bytes((PUBREL << 4 | 2, 2)),
    PUBCOMP: bytes((PUBCOMP << 4, 2)),
}
_ANSWERS: Final = frozenset(front[0] for front in _FRONTS.values())
_SHORT: Final = "a packet that is shorter than its fields"


def read_packets(
    data: bytes, version: int
) -> tuple[int, list[Message], list[Answer], list[Packet]]:
    """Locate the complete packets at the start of ``data``.

    :returns: number of bytes that they take, messages, answers, and other packets; each list in
        order of arrival.
    :raises MalformedPacket: the data is not MQTT.
    """
    messages = []
    answers = []
    others = []
    at = 0
    count = len(data)
    v5 = version >= V5
    # Hot path: one turn for each packet of the run. Lengths of one byte, which nearly all packets
    # have, are read without a call.
    while count - at >= 2:
        first = data[at]
        length = data[at + 1]
        body = at + 2
        if length > 127:
            length, body = _read_long_length(data, at + 1)
        end = body + length
        if end > count:
            break
        kind = first >> 4
        if kind == PUBLISH:
            messages.append(_message(data, first, body, end, v5))
        elif first in _ANSWERS:
            # Without a reason code the packet means success (3.4.2.1); properties of answers are
            # not read.
            if length < 2:
                raise MalformedPacket(_SHORT)
            answers.append(
                (kind, data[body] << 8 | data[body + 1], data[body + 2] if length > 2 else 0)
            )
        else:
            others.append(decode_packet(first, data[body:end], version))
        at = end
    return at, messages, answers, others


def read_topics(data: bytes, used: int) -> list[bytes]:
    """Return the topic of each message in the packets that :func:`read_packets` has located.

    It is a second pass over the packets, for consumers of several topics only.

    :param used: the bytes of these packets.
    """
    topics = []
    at = 0
    while at < used:
        length, body = _read_long_length(data, at + 1)
        if data[at] >> 4 == PUBLISH:
            size = data[body] << 8 | data[body + 1]
            topics.append(data[body + 2 : body + 2 + size])
        at = body + length
    return topics


def packet_size(data: bytes) -> int:
    """Return the length of the packet at the start of ``data``.

    It is in bytes. 0: its length has not arrived completely.

    :raises MalformedPacket: its first byte is not that of a packet, or its length has more than
        four bytes.
    """
    if data and data[0] not in FIRST_BYTES:
        raise MalformedPacket(f"0x{data[0]:02x} is not the first byte of a packet")
    if len(data) < 2:
        return 0
    length, body = _read_long_length(data, 1)
    # For an incomplete length the position is the end of the data.
    return 0 if body == len(data) and data[-1] > 127 else body + length


def _read_long_length(data: bytes, at: int) -> tuple[int, int]:
    """Return a length of several bytes, and the position after it."""
    length = 0
    for shift in (0, 7, 14, 21):
        # The rest of the length has not arrived: a packet that ends beyond the data makes the
        # caller wait for it.
        if at >= len(data):
            return 1, at
        length |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return length, at
    raise MalformedPacket("a length of more than four bytes")


def _message(data: bytes, first: int, at: int, end: int, v5: bool) -> Message:
    qos = first >> 1 & 3
    packet_id = 0
    if end - at < 2:
        raise MalformedPacket(_SHORT)
    # The topic is skipped: a consumer has one subscription, and the envelope in the payload
    # identifies the message.
    at += 2 + (data[at] << 8 | data[at + 1])
    if qos:
        if end - at < 2:
            raise MalformedPacket(_SHORT)
        packet_id = data[at] << 8 | data[at + 1]
        at += 2
        if qos == 3 or not packet_id:
            raise MalformedPacket("a PUBLISH at QoS 3, or without packet identifier")
    # Properties are skipped too; their length is a variable byte integer, nearly always of one
    # byte.
    properties = at
    if v5:
        if at >= end:
            raise MalformedPacket(_SHORT)
        at = at + 1 + data[at] if data[at] < 128 else _skip_long_properties(data, at, end)
    if at > end:
        raise MalformedPacket(_SHORT)
    return qos, first & 8, packet_id, properties, at, end


def _skip_long_properties(data: bytes, at: int, end: int) -> int:
    reader = FieldReader(data[at:end])
    reader.take(reader.variable())
    return at + reader.position


def encode_answer(kind: int, packet_id: int) -> bytes:
    """Encode a PUBACK, PUBREC, PUBREL or PUBCOMP that reports success.

    It has four bytes, without a reason code.
    """
    return _FRONTS[kind] + packet_id.to_bytes(2, "big")
