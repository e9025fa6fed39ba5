"""Connections of the paho client to a scripted broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from mqtt_rig import context

from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..conftest import Script


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
