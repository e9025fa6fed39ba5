"""Connections of the native client to a scripted broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from fake_mqtt import FakeMqttBroker
from mqtt_rig import CONNACK, context
from waiting_for import wait_until

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.mqtt.native.connection import NativeConnection
from pytest_loadtest.errors import TargetError
from pytest_loadtest.wire.mqtt.packets import Publish

if TYPE_CHECKING:
    from collections.abc import Callable


Script = list[bytes | None]


def test_a_message_before_its_suback_is_recognized_after_a_reconnect(
    scripted: Callable[[Script], str],
) -> None:
    """A broker may deliver before SUBACK (MQTT 5, 3.8.4); at QoS 2 the same packet is then no second copy."""
    message = b"\x00\x0eloadtest/r1/0x\x00%c\x00" + bytes(32)
    first, again, last = (
        b"\x34\x33" + message % 5,
        b"\x3c\x33" + message % 5,
        b"\x34\x33" + message % 6,
    )
    url = scripted(
        [CONNACK, first + b"\x90\x04\x00\x01\x00\x02", None, b"\x20\x03\x01\x00\x00" + again, last]
    )
    driver: Any = driver_class("mqtt", "native")(
        context(url, time.monotonic_ns, qos=2, sessionExpiry="60s")
    )  # type: ignore[call-arg]
    driver.open_consumers([0])
    flags: list[int] = []
    end = time.monotonic_ns() + 20 * 10**9
    while len(flags) < 2:
        assert time.monotonic_ns() < end, f"not in time; disconnected: {driver.disconnected()}"
        driver.poll(1_000_000)
        flags += [
            flag
            for received in [driver.take()]
            if received is not None
            for flag in received.flags.tolist()
        ]
    assert flags == [0, 0]
    driver.close()


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (b"\x30\x02\xff\xff", "a packet that is shorter than its fields"),
        (b"\x30\xff\xff\xff\xff\x7f", "a length of more than four bytes"),
        (b"\x10\x02\x00\x00", "the broker sent a packet that only clients may send: CONNECT"),
        (b"\xe0\x02\x89\x00", "the broker closed the connection: Server busy"),
        (
            b"\x82\x06\x00\x01\x00\x00\x00\x00",
            "the broker sent a packet that only clients may send: SUBSCRIBE",
        ),
    ],
    ids=["cut", "length", "protocol", "busy", "client"],
)
def test_an_invalid_packet_of_the_broker_is_explained(
    scripted: Callable[[Script], str], answer: bytes, named: str
) -> None:
    url = scripted([answer])
    driver: Any = driver_class("mqtt", "native")(context(url, time.monotonic_ns))  # type: ignore[call-arg]
    with pytest.raises(TargetError, match=f"producer of stream 0: .*{named}"):
        driver.open_producers([0])
    driver.close()


def test_a_paused_consumer_that_reconnects_does_not_keep_the_loop_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message waits in its new connection, which it does not read."""
    turns: list[int] = []
    turn = NativeConnection.turn

    def counted(connection: NativeConnection, sock: Any, mask: int) -> None:
        turns.append(mask)
        turn(connection, sock, mask)

    monkeypatch.setattr(NativeConnection, "turn", counted)
    with FakeMqttBroker() as broker:
        driver: Any = driver_class("mqtt", "native")(
            context(broker.url, time.monotonic_ns, keepAlive="1s")
        )  # type: ignore[call-arg]
        driver.open_consumers([0])
        driver.pause([0])
        broker.peers[-1].drop()

        def reconnected() -> bool:
            driver.poll(1_000_000)
            return driver.facts().losses == 1 and driver.disconnected() is None

        # It finds the end of its connection by a ping, as it does not read.
        wait_until(reconnected, "the new connection", 20)
        broker.route(Publish(broker.peers[-1].filters[0].topic, bytes(32), 1))
        turns.clear()
        driver.poll(100_000_000)
        assert turns == []
        driver.resume([0])

        def received() -> bool:
            driver.poll(1_000_000)
            return driver.take() is not None

        wait_until(received, "the message", 20)
        driver.close()
