"""Connections of the native client to a scripted broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from mqtt_rig import CONNACK, context

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.errors import TargetError

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
