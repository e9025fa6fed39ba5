"""The part of the MQTT drivers that both clients share, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqtt_rig import ONE, FakeConnection, context

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
