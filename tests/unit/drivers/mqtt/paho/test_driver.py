"""Clean-up of the paho driver with a scripted broker."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from mqtt_codec import encode
from mqtt_rig import CONNACK, ONE, context

from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.wire.mqtt import packets as p

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..conftest import Script


def test_retained_messages_are_replaced_by_empty_ones(
    scripted: Callable[[Script], str], broker_reads: list[bytes]
) -> None:
    url = scripted([CONNACK, b"\x40\x02\x00\x01\x40\x02\x00\x02"])
    driver = PahoMqttDriver(
        context(url, time.monotonic_ns, retain=True, topology=replace(ONE, topics=2))
    )
    driver.cleanup()
    empty = p.Publish("loadtest/r1/0", b"", 1, retain=True, packet_id=1)
    assert broker_reads[1].startswith(encode(empty)), "the second one may come with a later read"
