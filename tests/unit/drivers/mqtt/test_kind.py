"""The descriptor of MQTT brokers."""

from __future__ import annotations

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.mqtt.paho.driver import MqttDriver

Script = list[bytes | None]


def test_the_driver_is_found_by_name() -> None:
    """``driver: {name: mqtt}`` is this class."""
    assert driver_class("mqtt").__name__ == MqttDriver.__name__
