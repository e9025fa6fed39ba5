"""The part of the MQTT drivers that both clients share, without a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqtt_rig import ONE, FakeConnection, context

from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.errors import UsageError

Script = list[bytes | None]


def test_strict_tuning_refuses_what_is_not_applied() -> None:
    """Under strictTuning such a setting is a usage error that names it."""
    with pytest.raises(UsageError, match=r"receiveMaximum: MQTT 3\.1\.1 does not have it"):
        PahoMqttDriver(context(protocolVersion="3.1.1", receiveMaximum=9, strictTuning=True))


def test_consumers_that_do_not_share_must_be_alone() -> None:
    """Two consumers of one subscription without sharing are a usage error, before anything connects."""
    with pytest.raises(UsageError, match="sharedSubscription"):
        PahoMqttDriver(context(sharedSubscription=False, topology=replace(ONE, consumers=2))).open_consumers([0, 1])


def test_an_attached_consumer_must_be_alone_too() -> None:
    """With one that is there already, and before anything connects."""
    ctx = context(sharedSubscription=False, topology=replace(ONE, consumers=2))
    driver = PahoMqttDriver(ctx)
    driver._consumers[0] = 0, FakeConnection()  # type: ignore[assignment]
    with pytest.raises(UsageError, match="sharedSubscription"):
        driver.attach([1])
