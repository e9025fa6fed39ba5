"""MQTT brokers that a machine can or cannot start."""

from __future__ import annotations

from pytest_loadtest.drivers.mqtt.artemis import JARS
from pytest_loadtest.drivers.mqtt.needs import broker_needs


def test_a_missing_requirement_has_a_cost_and_a_remedy() -> None:
    jars, mosquitto = broker_needs(None, ())
    assert (jars.well, mosquitto.well, mosquitto.found) == (False, False, None)
    assert (mosquitto.cost, mosquitto.remedy) == ("no MQTT broker as a process", "apt-get install mosquitto")


def test_an_installed_mosquitto_and_cached_jars_meet_the_requirements() -> None:
    jars, mosquitto = broker_needs("2.0.11", (JARS.version,))
    assert jars.well and mosquitto.well and mosquitto.found == "2.0.11"
