"""Single messages of paho as columns."""

from __future__ import annotations

from types import SimpleNamespace

from mqtt_rig import FakeConnection, pool

from pytest_loadtest.drivers.columns import ArrivedMessages
from pytest_loadtest.drivers.mqtt.paho.driver import PahoConsumer
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.testing import FakeClock

Script = list[bytes | None]


def test_messages_become_columns() -> None:
    """Padded heads, sizes, times and flags."""
    connection, clock, arrivals = FakeConnection(), FakeClock(1000), ArrivedMessages()
    PahoConsumer(connection, clock).assign_place(4, arrivals)  # type: ignore[arg-type]
    assert arrivals.take() is None
    for payload, dup in ((b"short", False), (b"x" * 100, True), (b"", False)):
        connection.client.on_message(None, None, SimpleNamespace(payload=payload, dup=dup))
        clock.advance(1)
    got = arrivals.take()
    assert got is not None and arrivals.take() is None
    assert [bytes(row) for row in got.heads] == [b"short".ljust(32, b"\0"), b"x" * 32, bytes(32)]
    assert (got.size.tolist(), got.time.tolist()) == ([5, 100, 0], [1000, 1001, 1002])
    assert (got.order.tolist(), got.flags.tolist()) == ([0, 0, 0], [0, Flag.REDELIVERED, 0])
    assert (got.consumer.tolist(), connection.arrived) == ([4, 4, 4], 3)


def test_a_message_before_its_consumer_has_a_place_waits() -> None:
    """It is returned once the place is known, with its own time."""
    connections, clock, arrivals = [FakeConnection(), FakeConnection()], FakeClock(1000), ArrivedMessages()
    first, second = (PahoConsumer(connection, clock) for connection in connections)  # type: ignore[arg-type]
    first.assign_place(0, arrivals)
    for connection, payload in ((connections[1], b"early"), (connections[0], b"one")):
        connection.client.on_message(None, None, SimpleNamespace(payload=payload, dup=payload == b"early"))
        clock.advance(1)
    got = arrivals.take()
    assert got is not None and (got.consumer.tolist(), got.size.tolist()) == ([0], [3])
    second.assign_place(1, arrivals)
    connections[1].client.on_message(None, None, SimpleNamespace(payload=b"late", dup=False))
    got = arrivals.take()
    assert got is not None and (got.consumer.tolist(), got.size.tolist(), got.time.tolist()) == ([1, 1], [5, 4], [1000, 1002])
    assert got.flags.tolist() == [Flag.REDELIVERED, 0]


def test_a_damaged_body_is_flagged_with_checksums() -> None:
    """Without checksums bodies are not verified."""
    body = pool(checksum=True).bodies[0]
    whole = bytes(32) + body
    damaged = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
    for checksum, expected in ((True, [0, Flag.CORRUPT]), (False, [0, 0])):
        connection, arrivals = FakeConnection(), ArrivedMessages(checksum=checksum)
        PahoConsumer(connection, FakeClock(1000)).assign_place(0, arrivals)  # type: ignore[arg-type]
        for payload in (whole, damaged):
            connection.client.on_message(None, None, SimpleNamespace(payload=payload, dup=False))
        got = arrivals.take()
        assert got is not None and got.flags.tolist() == expected
