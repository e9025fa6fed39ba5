"""The descriptor of MQTT brokers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from mqtt_rig import context

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.mqtt.kind import KIND
from pytest_loadtest.drivers.mqtt.options import client_options
from pytest_loadtest.message.route import IN_BODY, parse_place

BROKERS = list(KIND.brokers.values())
NAMES = [
    KIND.settings, KIND.checks, KIND.telemetry, KIND.observer, KIND.doctor, KIND.omb, *(client.driver for client in KIND.clients.values()),
    *(way for broker in BROKERS for way in broker.ways.values()), *(broker.container for broker in BROKERS if broker.container),
]  # fmt: skip


@pytest.mark.parametrize(
    ("client", "name"), [("library", "PahoMqttDriver"), ("native", "NativeMqttDriver")]
)
def test_a_client_names_its_driver(client: str, name: str) -> None:
    assert driver_class("mqtt", client).__name__ == name


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_descriptor_exists(name: Any) -> None:
    module, _, attribute = name.partition(":")
    assert hasattr(import_module(module), attribute)


def test_the_descriptor_loads_no_client() -> None:
    code = "import sys; import pytest_loadtest.drivers.mqtt.kind; print([m for m in ('paho', 'numpy', 'pydantic') if m in sys.modules])"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("place", ["properties", "correlationData"])
def test_an_envelope_besides_the_body_adds_the_bytes_of_its_property(place: str) -> None:
    made = replace(client_options(context()), sent=parse_place(place))
    without = replace(made, sent=IN_BODY)
    for client in KIND.clients.values():
        assert client.envelopes[place] == made.properties - without.properties
