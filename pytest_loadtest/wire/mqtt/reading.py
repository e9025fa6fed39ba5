"""What comes in great number, PUBLISH and the answers to it: found in what was read, and left where it is.

In plain lists, one packet after the other: of the handful that a socket has at a time numpy's calls would cost several times what they
save, and of a thousand they save nothing that would be seen beside what the sockets cost.
"""

from __future__ import annotations

from typing import Final

from pytest_loadtest.wire.mqtt.codec import decode_packet
from pytest_loadtest.wire.mqtt.fields import FieldReader, MalformedPacket
from pytest_loadtest.wire.mqtt.packets import PUBACK, PUBCOMP, PUBLISH, PUBREL, V5, Packet

Message = tuple[int, int, int, int, int]
"""A PUBLISH packet: QoS, DUP (0 or 8), packet id (0 at QoS 0), start and end of the payload in the data."""
Answer = tuple[int, int, int]
"""PUBACK, PUBREC, PUBREL or PUBCOMP: kind, packet id, reason code."""

_FRONTS: Final = {kind: bytes((kind << 4 | (2 if kind == PUBREL else 0), 2)) for kind in range(PUBACK, PUBCOMP + 1)}
_SHORT: Final = "a packet that is shorter than its fields"


def read_packets(data: bytes, version: int) -> tuple[int, list[Message], list[Answer], list[Packet]]:
    """The whole packets at the beginning of ``data``: how many bytes they take, and each in the order in which it came.

    :raises MalformedPacket: one is none.
    """
    messages: list[Message] = []
    answers: list[Answer] = []
    others: list[Packet] = []
    at, count, v5 = 0, len(data), version >= V5
    while count - at >= 2:
        first, length, body = data[at], data[at + 1], at + 2
        if length > 127:
            length, body = _long(data, at + 1)
        end = body + length
        if end > count:
            break
        kind = first >> 4
        if kind == PUBLISH:
            messages.append(_message(data, first, body, end, v5))
        elif PUBACK <= kind <= PUBCOMP:
            if length < 2:
                raise MalformedPacket(_SHORT)
            answers.append((kind, data[body] << 8 | data[body + 1], data[body + 2] if length > 2 else 0))
        else:
            others.append(decode_packet(first, data[body:end], version))
        at = end
    return at, messages, answers, others


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A length of several bytes and where it ends; where it is not whole yet, one beyond all data."""
    length = 0
    for shift in (0, 7, 14, 21):
        if at >= len(data):
            return 1, at
        length |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return length, at
    raise MalformedPacket("a length of more than four bytes")


def _message(data: bytes, first: int, at: int, end: int, v5: bool) -> Message:
    qos, packet_id = first >> 1 & 3, 0
    if end - at < 2:
        raise MalformedPacket(_SHORT)
    at += 2 + (data[at] << 8 | data[at + 1])
    if qos:
        if end - at < 2:
            raise MalformedPacket(_SHORT)
        packet_id = data[at] << 8 | data[at + 1]
        at += 2
        if qos == 3 or not packet_id:
            raise MalformedPacket("a PUBLISH at QoS 3, or without packet identifier")
    if v5:
        if at >= end:
            raise MalformedPacket(_SHORT)
        at = at + 1 + data[at] if data[at] < 128 else _behind_properties(data, at, end)
    if at > end:
        raise MalformedPacket(_SHORT)
    return qos, first & 8, packet_id, at, end


def _behind_properties(data: bytes, at: int, end: int) -> int:
    """Where more than 127 bytes of them end."""
    reader = FieldReader(data[at:end])
    reader.take(reader.variable())
    return at + reader.position


def encode_answer(kind: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP of four bytes, without reason: that it is well."""
    return _FRONTS[kind] + packet_id.to_bytes(2, "big")
