"""The part of the MQTT drivers that both clients share, without a broker."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from fake_mqtt import FakeMqttBroker
from mqtt_rig import ONE, FakeConnection, both, context
from waiting_for import wait_until

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.errors import UsageError


def test_strict_tuning_rejects_settings_that_are_not_applied() -> None:
    """The usage error names them."""
    with pytest.raises(UsageError, match=r"receiveMaximum: MQTT 3\.1\.1 does not have it"):
        PahoMqttDriver(context(protocolVersion="3.1.1", receiveMaximum=9, strictTuning=True))


def test_two_consumers_without_sharing_are_rejected() -> None:
    """Before anything connects."""
    with pytest.raises(UsageError, match="sharedSubscription"):
        PahoMqttDriver(
            context(sharedSubscription=False, topology=replace(ONE, consumers=2))
        ).open_consumers([0, 1])


def test_an_attached_consumer_without_sharing_is_rejected() -> None:
    """If the subscription already has one; before anything connects."""
    ctx = context(sharedSubscription=False, topology=replace(ONE, consumers=2))
    driver = PahoMqttDriver(ctx)
    driver._consumers[0] = 0, FakeConnection()  # type: ignore[assignment]
    with pytest.raises(UsageError, match="sharedSubscription"):
        driver.attach([1])


@both
def test_a_consumer_joins_at_the_second_address_if_the_first_has_ended(client: str) -> None:
    """It dials the first one, too, and the run goes on."""
    with FakeMqttBroker() as second:
        first = FakeMqttBroker()
        ours = context(
            f"{first.url},{second.url.removeprefix('mqtt://')}",
            time.monotonic_ns,
            topology=replace(ONE, subscriptions=2),
        )
        driver: Any = driver_class("mqtt", client)(ours)  # type: ignore[call-arg]
        driver.open_consumers([0])
        first.close()
        driver.attach([1])

        def joined() -> bool:
            driver.poll(1_000_000)
            return driver.attached() is not None

        wait_until(joined, "the second consumer", 20)
        driver.close()
