"""The descriptor of Pulsar."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.pulsar.kind import KIND, METADATA

BROKERS = list(KIND.brokers.values())
NAMES = [
    KIND.settings, KIND.checks, KIND.describe, KIND.delayed_index, KIND.telemetry, KIND.observer, KIND.doctor, KIND.omb,
    *KIND.fixture.values(), *(client.driver for client in KIND.clients.values()),
    *(way for broker in BROKERS for way in broker.ways.values()), *(broker.container for broker in BROKERS if broker.container),
]  # fmt: skip


@pytest.mark.parametrize(
    ("client", "name"), [("library", "PulsarDriver"), ("native", "NativePulsarDriver")]
)
def test_a_client_names_its_driver(client: str, name: str) -> None:
    assert driver_class("pulsar", client).__name__ == name


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_descriptor_exists(name: Any) -> None:
    module, _, attribute = name.partition(":")
    assert hasattr(import_module(module), attribute)


def test_the_largest_payload_leaves_room_for_metadata() -> None:
    """The broker's limit is on the entry, and the payload's metadata is part of that."""
    assert KIND.message_limit is not None and KIND.message_limit.overhead == METADATA


def test_the_descriptor_loads_no_client() -> None:
    loaded = "[m for m in ('pulsar', 'google', 'numpy', 'pydantic') if m in sys.modules]"
    code = f"import sys; import pytest_loadtest.drivers.pulsar.kind; print({loaded})"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
