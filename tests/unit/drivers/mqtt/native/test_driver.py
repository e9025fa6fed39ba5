"""Clean-up of the native driver with a scripted broker."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mqtt_codec import encode
from mqtt_rig import CONNACK, ONE, context

from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.wire.mqtt import packets as p

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..conftest import Script


def test_retained_messages_are_replaced_by_empty_ones(
    scripted: Callable[[Script], str], broker_reads: list[bytes]
) -> None:
    url = scripted([CONNACK, b"\x40\x02\x00\x01\x40\x02\x00\x02"])
    driver: Any = NativeMqttDriver(
        context(url, time.monotonic_ns, retain=True, topology=replace(ONE, topics=2))
    )
    driver.cleanup()
    cleared = [
        p.Publish(f"loadtest/r1/{topic}", b"", 1, retain=True, packet_id=topic + 1)
        for topic in (0, 1)
    ]
    assert broker_reads[1].startswith(encode(cleared[0])), (
        "the second one may come with a later read"
    )
