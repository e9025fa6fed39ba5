"""Packets, windows and answers of the native client's producers, without a connection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mqtt_codec import PublishAnswer, decode, encode
from mqtt_rig import FIRST_ROW, burst, context

from pytest_loadtest.drivers.mqtt.native.connection import ConnectionUser
from pytest_loadtest.drivers.mqtt.native.producers import CHUNK, UNSENT, NativeMqttProducers
from pytest_loadtest.drivers.mqtt.options import client_options
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.mqtt.fields import FieldReader


class FakeConnection:
    """Records the bytes written; ``takes``: the kernel takes them at once."""

    def __init__(self) -> None:
        self.up, self.takes, self.receive_maximum, self.topic_aliases = True, True, 65_535, 0
        self.written = self.unsent = self.woken = 0
        self.out, self.user, self.reasons = bytearray(), ConnectionUser(), list[int]()

    def write(self, data: bytes, _now: int) -> bool:
        if self.takes:
            self.out += data
            self.written += len(data)
        else:
            self.put(data)
        return self.takes

    def put(self, data: bytes) -> None:
        self.out += data
        self.unsent += len(data)

    def flush(self) -> None:
        if self.takes:
            self.written, self.unsent = self.written + self.unsent, 0
        self.user.was_written()

    def wake(self) -> None:
        self.woken += 1

    def note_reason(self, reason: int) -> None:
        self.reasons.append(reason)

    def packets(self) -> list[Any]:
        """Return the packets written since the last call."""
        reader, found = FieldReader(bytes(self.out)), []
        while reader.left:
            first = reader.number(1)
            found.append((first & 8, decode(first, reader.take(reader.variable()))))
        self.out.clear()
        return found


class Rig:
    """Stream 3 on one connection."""

    def __init__(self, **settings: Any) -> None:
        self.clock, self.connection = FakeClock(1000), FakeConnection()
        ctx = context(clock=self.clock, **settings)
        self.producers = NativeMqttProducers(ctx, client_options(ctx))
        connection: Any = self.connection
        self.producers.add(3, connection)

    def up(self, *, session: bool = False) -> None:
        self.connection.up = True
        self.connection.user.came_up(session)

    def lost(self) -> None:
        self.connection.up = False
        self.connection.user.was_lost()

    def answer(self, kind: int, packet_id: int, reason: int = 0) -> bool:
        return self.connection.user.answered(kind, packet_id, reason, self.clock())


def test_the_window_is_the_lower_of_both_limits() -> None:
    rig = Rig(maxInflightMessages=20)
    rig.connection.receive_maximum = 7
    rig.up()
    sending = burst(30)
    rejected = rig.producers.send(sending)
    assert rejected is not None and rejected.tolist() == list(range(7, 30))
    assert sending.sent.tolist() == [1000] * 7 + [0] * 23
    assert [packet.packet_id for _, packet in rig.connection.packets()] == list(range(1, 8))
    assert not rig.answer(p.PUBACK, 1)
    assert rig.connection.woken == 1, "a stream that was refused finds room"


def test_an_identifier_in_use_is_skipped() -> None:
    """One message without an answer does not hold up the stream when all identifiers were used."""
    rig = Rig(maxInflightMessages=65_535)
    rig.up()
    assert rig.producers.send(burst(65_535)) is None
    for packet_id in range(1, 65_536):
        if packet_id != 3:
            rig.answer(p.PUBACK, packet_id)
    rig.connection.packets()
    assert rig.producers.send(burst(4, first=65_535)) is None
    assert [packet.packet_id for _, packet in rig.connection.packets()] == [1, 2, 4, 5]


def test_an_answer_has_row_time_and_status() -> None:
    rig = Rig()
    rig.up()
    assert rig.producers.send(burst(2)) is None
    rig.clock.advance(10)
    rig.answer(p.PUBACK, 2, 0x87)
    rig.answer(p.PUBACK, 1)
    rig.answer(p.PUBACK, 1)
    acks = rig.producers.acks()
    assert (
        acks is not None
        and acks.row.tolist() == [FIRST_ROW + 1, FIRST_ROW]
        and acks.time.tolist() == [1010, 1010]
    )
    assert acks.status.tolist() == [Status.FAILED, Status.ACKED]
    assert rig.connection.reasons == [0x87]
    later = burst(2, first=2)
    assert rig.producers.send(later) is None and later.idle.tolist() == [1010, 0]


@pytest.mark.parametrize(("session", "dup"), [(True, 8), (False, 0)])
def test_a_message_is_sent_again_after_a_reconnect_and_counted(session: bool, dup: int) -> None:
    """With DUP if the broker has kept the session; otherwise it is a new message to the broker (MQTT 5, 3.3.1.1)."""
    rig = Rig()
    rig.up()
    rig.producers.send(burst(2))
    rig.answer(p.PUBACK, 1)
    rig.connection.packets()
    rig.lost()
    rig.up(session=session)
    assert [(flag, packet.packet_id) for flag, packet in rig.connection.packets()] == [(dup, 2)]
    rig.answer(p.PUBACK, 2)
    acks = rig.producers.acks()
    assert acks is not None and acks.resends is not None and acks.resends.tolist() == [0, 1]


def test_after_a_pubrec_only_pubrel_is_sent_again() -> None:
    """At QoS 2, after a reconnect with a session (MQTT 5, 4.4)."""
    rig = Rig(qos=2)
    rig.up()
    rig.producers.send(burst(1))
    assert rig.answer(p.PUBREC, 1), "PUBREL is the next step"
    rig.connection.packets()
    rig.lost()
    rig.up(session=True)
    assert bytes(rig.connection.out) == encode(PublishAnswer(p.PUBREL, 1))
    rig.answer(p.PUBCOMP, 1)
    acks = rig.producers.acks()
    assert acks is not None and (acks.status.tolist(), acks.resends) == ([Status.ACKED], None)


def test_a_topic_is_named_once_and_then_by_its_alias() -> None:
    rig = Rig(topicAliasMaximum=1)
    rig.connection.topic_aliases = 1
    rig.up()
    rig.producers.send(burst(3))
    sent = [packet for _, packet in rig.connection.packets()]
    assert [packet.topic for packet in sent] == ["loadtest/r1/0", "", ""]
    assert {packet.properties["topic_alias"] for packet in sent} == {1}
    rig.lost()
    rig.up()
    again = [packet.topic for _, packet in rig.connection.packets()]
    assert again == ["loadtest/r1/0", "", ""], "a new connection knows no alias"


def test_qos_0_is_acknowledged_when_written_and_failed_when_lost_before() -> None:
    rig = Rig(qos=0)
    rig.up()
    assert rig.producers.send(burst(CHUNK)) is None
    rig.connection.takes = False
    rig.clock.advance(5)
    rejected = rig.producers.send(burst(UNSENT // 8, first=CHUNK))
    assert rejected is not None and rig.connection.unsent >= UNSENT
    taken = UNSENT // 8 - len(rejected)
    rig.lost()
    acks = rig.producers.acks()
    assert acks is not None
    assert acks.status.tolist() == [Status.ACKED] * CHUNK + [Status.FAILED] * taken
    assert np.array_equal(acks.row, FIRST_ROW + np.arange(CHUNK + taken))
