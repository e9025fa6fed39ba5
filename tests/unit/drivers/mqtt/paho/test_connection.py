"""Connections of the paho client: rejections by a scripted broker, and messages as columns."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from mqtt_rig import context, pool

from pytest_loadtest.drivers.columns import ArrivedMessages
from pytest_loadtest.drivers.mqtt.base_connection import ClientSpec
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint
from pytest_loadtest.drivers.mqtt.loop import Loop
from pytest_loadtest.drivers.mqtt.options import client_options
from pytest_loadtest.drivers.mqtt.paho.connection import PahoConnection
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..conftest import Script

ENDPOINT = BrokerEndpoint(
    host="localhost", port=1, family=socket.AF_INET, address=("127.0.0.1", 1), tls=None
)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop(FakeClock(1000))
    yield loop
    loop.close()


def consumer(loop: Loop) -> PahoConnection:
    """Make a consumer's connection, without connecting it."""
    options = client_options(context())
    return PahoConnection(
        ClientSpec(loop, ENDPOINT, options, "consumer 0", "c0", ("loadtest/r1/0",))
    )


def deliver(connection: PahoConnection, payload: bytes, *, dup: bool = False) -> None:
    """Deliver a message as paho does."""
    on_message: Any = connection.client.on_message
    on_message(None, None, SimpleNamespace(payload=payload, dup=dup))


@pytest.mark.parametrize(
    ("connack", "named"),
    [
        (b"\x20\x03\x00\x87\x00", "the broker rejected the connection: Not authorized"),
        (b"\x20\x05\x00\x00\x02\x24\x00", "the broker allows QoS 0 at most, the profile needs 1"),
    ],
    ids=["rejected", "lower QoS"],
)
def test_a_broker_that_rejects_the_client_or_lacks_a_feature_is_named_with_the_reason(
    scripted: Callable[[Script], str], connack: bytes, named: str
) -> None:
    driver: Any = PahoMqttDriver(context(scripted([connack]), time.monotonic_ns))
    with pytest.raises(TargetError, match=f"producer of stream 0: {named}"):
        driver.open_producers([0])
    driver.close()


def test_messages_become_columns(loop: Loop) -> None:
    """Padded heads, sizes, times and flags."""
    connection, arrivals = consumer(loop), ArrivedMessages()
    connection.assign_place(4, arrivals)
    assert arrivals.take() is None
    for payload, dup in ((b"short", False), (b"x" * 100, True), (b"", False)):
        deliver(connection, payload, dup=dup)
        loop.clock.advance(1)  # type: ignore[attr-defined]
    received = arrivals.take()
    assert received is not None and arrivals.take() is None
    assert [bytes(row) for row in received.heads] == [
        b"short".ljust(32, b"\0"),
        b"x" * 32,
        bytes(32),
    ]
    assert (received.size.tolist(), received.time.tolist()) == ([5, 100, 0], [1000, 1001, 1002])
    assert (received.order.tolist(), received.flags.tolist()) == (
        [0, 0, 0],
        [0, Flag.REDELIVERED, 0],
    )
    assert (received.consumer.tolist(), connection.arrived) == ([4, 4, 4], 3)


def test_a_message_before_its_consumer_has_a_place_waits(loop: Loop) -> None:
    """It is returned once the place is known, with its own time."""
    first, second, arrivals = consumer(loop), consumer(loop), ArrivedMessages()
    first.assign_place(0, arrivals)
    for connection, payload in ((second, b"early"), (first, b"one")):
        deliver(connection, payload, dup=payload == b"early")
        loop.clock.advance(1)  # type: ignore[attr-defined]
    received = arrivals.take()
    assert received is not None and (received.consumer.tolist(), received.size.tolist()) == (
        [0],
        [3],
    )
    second.assign_place(1, arrivals)
    deliver(second, b"late")
    received = arrivals.take()
    assert received is not None
    assert (received.consumer.tolist(), received.size.tolist(), received.time.tolist()) == (
        [1, 1],
        [5, 4],
        [1000, 1002],
    )
    assert received.flags.tolist() == [Flag.REDELIVERED, 0]


@pytest.mark.parametrize(("checksum", "flags"), [(True, [0, Flag.CORRUPT]), (False, [0, 0])])
def test_a_damaged_body_is_flagged_with_checksums(
    loop: Loop, checksum: bool, flags: list[int]
) -> None:
    """Without checksums bodies are not verified."""
    whole = bytes(32) + pool(checksum=True).bodies[0]
    damaged = whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]
    connection, arrivals = consumer(loop), ArrivedMessages(checksum=checksum)
    connection.assign_place(0, arrivals)
    for payload in (whole, damaged):
        deliver(connection, payload)
    received = arrivals.take()
    assert received is not None and received.flags.tolist() == flags


@pytest.mark.parametrize("shared", ["", "$share/a-group/"])
def test_messages_of_several_outputs_have_the_number_of_their_topic(
    loop: Loop, shared: str
) -> None:
    filters = (f"{shared}yes/0", f"{shared}no/0")
    options = client_options(context())
    connection = PahoConnection(ClientSpec(loop, ENDPOINT, options, "consumer 0", "c0", filters))
    on_message: Any = connection.client.on_message
    for topic in ("no/0", "yes/0"):
        on_message(None, None, SimpleNamespace(payload=b"", dup=False, topic=topic))
    arrivals = ArrivedMessages()
    connection.assign_place(0, arrivals)
    on_message(None, None, SimpleNamespace(payload=b"", dup=False, topic="no/0"))
    received = arrivals.take()
    assert received is not None
    assert received.order.tolist() == [1, 0, 1]
