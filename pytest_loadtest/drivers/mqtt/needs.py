"""The requirements of MQTT brokers on a machine, for ``doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.brokers.java import MachineNeed, needed_jars
from pytest_loadtest.drivers.mqtt import artemis, mosquitto

if TYPE_CHECKING:
    from collections.abc import Sequence


def mqtt_machine_needs() -> tuple[MachineNeed, ...]:
    """Return the requirements, and which of them this machine meets."""
    binary = mosquitto.find_mosquitto()
    return broker_needs(
        mosquitto.installed_version(binary) if binary else None, artemis.JARS.cached_versions()
    )


def broker_needs(version: str | None, cached: Sequence[str]) -> tuple[MachineNeed, ...]:
    """Return the requirements.

    :param version: installed version of mosquitto, or None.
    :param cached: versions of Artemis whose jars are cached.
    """
    return (
        needed_jars(
            artemis.JARS, cached, "the first run on driver.broker: artemis fetches 16 MB", "Artemis"
        ),
        MachineNeed(
            name="mosquitto",
            value=version,
            ok=version is not None,
            cost="no MQTT broker as a process",
            remedy="apt-get install mosquitto",
            package="mosquitto",
        ),
    )
