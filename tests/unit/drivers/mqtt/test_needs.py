"""MQTT brokers that a machine can or cannot start."""

from __future__ import annotations

from pytest_loadtest.drivers.mqtt.artemis import JARS
from pytest_loadtest.drivers.mqtt.needs import broker_needs


def test_a_missing_requirement_has_a_cost_and_a_remedy() -> None:
    jars, mosquitto = broker_needs(None, ())
    assert (jars.ok, mosquitto.ok, mosquitto.value) == (False, False, None)
    assert (mosquitto.cost, mosquitto.remedy) == (
        "no MQTT broker as a process",
        "apt-get install mosquitto",
    )


def test_an_installed_mosquitto_and_cached_jars_meet_the_requirements() -> None:
    jars, mosquitto = broker_needs("2.0.11", (JARS.version,))
    assert jars.ok and mosquitto.ok and mosquitto.value == "2.0.11"
