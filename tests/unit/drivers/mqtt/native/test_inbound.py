"""Decoding of the reads of many connections: recipients, acknowledgements, and connections with invalid data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mqtt_codec import PublishAnswer, encode

from pytest_loadtest.drivers.mqtt.native.connection import ConnectionUser
from pytest_loadtest.drivers.mqtt.native.inbound import ArrivalColumns, Inbound
from pytest_loadtest.message.route import parse_place
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.wire.mqtt import packets as p


class FakeConnection:
    """Records the calls of the decoder."""

    def __init__(self, number: int) -> None:
        self.number, self.rest, self.held, self.arrived, self.leaving = (
            number,
            bytearray(),
            dict[int, bytes](),
            0,
            False,
        )
        self.socket: object = self
        self.needed, self.largest, self.receives = 0, 1000, True
        self.user = ConnectionUser()
        self.out, self.flushed, self.packets, self.ended = b"", 0, list[p.Packet](), ""

    def answer(self, data: bytes) -> None:
        self.out += data
        self.flushed += 1

    def handle_packet(self, packet: p.Packet) -> None:
        self.packets.append(packet)

    def reject(self, packet: str) -> None:
        self.ended, self.socket = f"the broker sent {packet}", None


class Rig:
    """Connections with their reads."""

    def __init__(self, connections: int) -> None:
        self.clock, self.arrivals = FakeClock(1000), ArrivalColumns(p.V5, checksum=False)
        self.inbound = Inbound(p.V5, self.arrivals)
        self.connections = [FakeConnection(number) for number in range(connections)]
        for number in range(connections):
            self.arrivals.assign_place(number, number + 100)

    def read(self, number: int, data: bytes) -> None:
        connection: Any = self.connections[number]
        self.inbound.add(connection, data, self.clock(), 10 + number)
        self.clock.advance(1)


def message(payload: bytes, qos: int = 0, packet_id: int = 0, **more: Any) -> bytes:
    return encode(p.Publish("a/topic", payload, qos, packet_id=packet_id, **more))


@pytest.mark.parametrize("many", [1, 65])
def test_each_consumer_gets_its_messages_with_the_time_of_its_read(many: int) -> None:
    """However many there are."""
    rig = Rig(2)
    rig.read(1, message(b"x" * 40) * many + message(b"y", 1, 7, dup=True))
    rig.read(0, message(b"z" * 5))
    rig.inbound.settle()
    received = rig.arrivals.take()
    assert received is not None
    assert received.consumer.tolist() == [101] * (many + 1) + [100]
    assert received.time.tolist() == [1000] * (many + 1) + [1001]
    assert received.lag is not None and received.lag.tolist() == [11] * (many + 1) + [10]
    assert received.size.tolist() == [40] * many + [1, 5]
    assert received.flags.tolist() == [0] * many + [Flag.REDELIVERED, 0]
    assert bytes(received.heads[-2]) == b"y".ljust(32, b"\0")
    assert [connection.out for connection in rig.connections] == [
        b"",
        encode(PublishAnswer(p.PUBACK, 7)),
    ]
    assert [connection.flushed for connection in rig.connections] == [0, 1]


def test_a_second_copy_before_the_release_does_not_count() -> None:
    """At QoS 2 it is acknowledged again; after PUBREL the packet id may be used for another message."""
    rig = Rig(1)
    rig.read(0, message(b"one", 2, 5) + message(b"one", 2, 5, dup=True) + message(b"two", 2, 6))
    rig.inbound.settle()
    received = rig.arrivals.take()
    assert received is not None
    assert [bytes(head[:3]) for head in received.heads] == [b"one", b"two"]
    assert rig.connections[0].out == b"".join(
        encode(PublishAnswer(p.PUBREC, packet_id)) for packet_id in (5, 5, 6)
    )
    assert rig.connections[0].held == {5: b"one", 6: b"two"}
    rig.connections[0].out = b""
    rig.read(0, encode(PublishAnswer(p.PUBREL, 5)))
    rig.inbound.settle()
    assert rig.connections[0].out == encode(PublishAnswer(p.PUBCOMP, 5))
    rig.read(0, message(b"new", 2, 5))
    rig.inbound.settle()
    again = rig.arrivals.take()
    assert again is not None
    assert len(again.size) == 1


def test_equal_bytes_on_many_connections_are_separate_messages() -> None:
    """Each connection has its own consumer, time, acknowledgements and held packet ids."""
    rig = Rig(4)
    rig.connections[2].held[6] = b"second"
    data = (
        message(b"one", 2, 5) + message(b"second", 2, 6) + message(b"third", 1, 7) + message(b"4")
    )
    for number in range(3):
        rig.read(number, data)
    rig.read(3, data[:-1])
    rig.inbound.settle()
    received = rig.arrivals.take()
    assert received is not None
    assert received.consumer.tolist() == [100] * 4 + [101] * 4 + [102] * 3 + [103] * 3
    assert received.time.tolist() == [1000] * 4 + [1001] * 4 + [1002] * 3 + [1003] * 3
    assert received.size.tolist() == [3, 6, 5, 1] * 2 + [3, 5, 1] + [3, 6, 5]
    assert [bytes(head[:1]) for head in received.heads] == [b"o", b"s", b"t", b"4"] * 2 + [
        b"o",
        b"t",
        b"4",
    ] + [b"o", b"s", b"t"]
    answers = ((p.PUBREC, 5), (p.PUBREC, 6), (p.PUBACK, 7))
    assert {connection.out for connection in rig.connections} == {
        b"".join(encode(PublishAnswer(*answer)) for answer in answers)
    }
    assert [connection.held for connection in rig.connections] == [{5: b"one", 6: b"second"}] * 4


def test_invalid_bytes_end_only_their_own_connection() -> None:
    """Messages of the others count once, and are acknowledged once."""
    rig = Rig(3)
    rig.read(0, message(b"a", 1, 1))
    rig.read(1, b"\x30\x01\x00")
    rig.read(2, message(b"b", 1, 2)[:-1])
    rig.inbound.settle()
    rig.read(2, b"b")
    rig.inbound.settle()
    received = rig.arrivals.take()
    assert received is not None
    assert received.consumer.tolist() == [100, 102]
    assert [connection.ended for connection in rig.connections] == [
        "",
        "the broker sent bytes that are not MQTT: a packet that is shorter than its fields",
        "",
    ]
    assert [connection.out for connection in rig.connections] == [
        encode(PublishAnswer(p.PUBACK, 1)),
        b"",
        encode(PublishAnswer(p.PUBACK, 2)),
    ]


def test_a_message_before_its_consumer_has_a_place_waits() -> None:
    """It keeps the time of its read."""
    rig = Rig(0)
    rig.connections = [FakeConnection(70), FakeConnection(3)]
    rig.arrivals.assign_place(3, 0)
    rig.read(0, message(b"early"))
    rig.read(1, message(b"one"))
    rig.inbound.settle()
    received = rig.arrivals.take()
    assert received is not None
    assert received.consumer.tolist() == [0]
    rig.arrivals.assign_place(70, 1)
    late = rig.arrivals.take()
    assert late is not None
    assert (late.consumer.tolist(), late.time.tolist(), late.size.tolist()) == ([1], [1000], [5])
    assert rig.arrivals.take() is None


def test_other_packets_go_to_their_connections() -> None:
    """In order; a connection that is leaving counts its messages."""
    rig = Rig(2)
    rig.connections[1].leaving = True
    answers = [p.SubscriptionAnswer(p.UNSUBACK, 2, (0,)), p.Ping(p.PINGRESP)]
    rig.read(1, message(b"x") + encode(answers[0]) + message(b"y") + encode(answers[1]))
    rig.read(0, message(b"x"))
    rig.inbound.settle()
    assert rig.connections[1].packets == answers
    assert [connection.arrived for connection in rig.connections] == [0, 2]
    received = rig.arrivals.take()
    assert received is not None
    assert np.unique(received.consumer).tolist() == [100, 101]


def test_acknowledgements_are_written_before_a_packet_that_may_end_the_connection() -> None:
    """A leaving consumer disconnects at UNSUBACK: the broker would give messages without acknowledgement to another one."""
    rig = Rig(1)
    written_before: list[bytes] = []
    rig.connections[0].handle_packet = lambda _packet: written_before.append(rig.connections[0].out)  # type: ignore[method-assign]
    rig.read(0, message(b"last", 1, 7) + encode(p.SubscriptionAnswer(p.UNSUBACK, 9, (0,))))
    rig.inbound.settle()
    assert written_before == [bytes([p.PUBACK << 4, 2, 0, 7])]


def bodies(rig: Rig) -> list[bytes]:
    received = rig.arrivals.take()
    assert received is not None and received.bodies is not None
    return list(map(received.bodies, range(len(received.size))))


def test_bodies_of_taken_messages_are_known_however_they_were_read() -> None:
    """Of equal messages each has its own; one may come in several reads, or as a second copy."""
    rig = Rig(2)
    same = b"s" * 32
    data = message(same + b"1") + message(same + b"2") + message(b"") + message(b"z" * 500, 2, 9)
    rig.read(0, data[:-300])
    rig.read(1, message(b"other") * 2)
    rig.inbound.settle()
    first = [same + b"1", same + b"2", b"", b"other", b"other"]
    assert bodies(rig) == first
    rig.read(0, data[-300:] + message(b"z" * 500, 2, 9, dup=True) + message(b"last", 2, 8))
    rig.inbound.settle()
    assert bodies(rig) == [b"z" * 500, b"last"]
    connection: Any = rig.connections[1]
    for part in (data[:-400], data[-400:-300], data[-300:-1], data[-1:] + message(b"next")):
        rig.inbound.add(connection, part, 5000, 10)
    rig.inbound.settle()
    assert bodies(rig) == [same + b"1", same + b"2", b"", b"z" * 500, b"next"]


def test_of_reads_that_nothing_takes_only_the_latest_are_kept() -> None:
    """The bodies of earlier ones are unknown; their other columns are not."""
    rig = Rig(1)
    for number in range(100):
        rig.read(0, message(b"%d" % number))
        rig.inbound.settle()
    found = bodies(rig)
    assert found[:64] == [b""] * 64
    assert found[64:] == [b"%d" % number for number in range(64, 100)]


def test_a_message_without_a_token_has_its_body() -> None:
    rig = Rig(1)
    rig.arrivals = ArrivalColumns(p.V5, checksum=False, place=parse_place("json:/ref"))
    rig.inbound = Inbound(p.V5, rig.arrivals)
    rig.arrivals.assign_place(0, 0)
    texts = [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}']
    rig.read(0, b"".join(map(message, texts)))
    rig.inbound.settle()
    assert bodies(rig) == texts


def test_messages_of_several_outputs_have_the_number_of_their_topic() -> None:
    """Order is judged for each of them; flags and held packet ids stay as they are."""
    rig = Rig(1)
    rig.arrivals = ArrivalColumns(p.V5, checksum=False, outputs={b"yes": 0, b"no": 1, b"maybe": 2})
    rig.inbound = Inbound(p.V5, rig.arrivals)
    rig.arrivals.assign_place(0, 5)
    topics = ("yes", "no", "maybe", "no", "unknown")
    data = b""
    for number, topic in enumerate(topics):
        body = bytes([number]) * (40 + 100 * number)
        data += encode(p.Publish(topic, body, 1, packet_id=number + 1, dup=number == 3))
        data += encode(PublishAnswer(p.PUBREL, 9))
    rig.read(0, data + encode(p.Publish("no", b"half", 1, packet_id=9))[:-1])
    rig.inbound.settle()
    received = rig.arrivals.take()
    assert received is not None
    assert received.order.tolist() == [0, 1, 2, 1, 0]
    assert received.flags.tolist() == [0, 0, 0, Flag.REDELIVERED, 0]
    assert received.size.tolist() == [40, 140, 240, 340, 440]
