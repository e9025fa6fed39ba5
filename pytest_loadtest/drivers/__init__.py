"""Adapters to one kind of broker each; a driver's client library is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import Driver

_DRIVERS = {
    ("pulsar", "library"): ("pytest_loadtest.drivers.pulsar", "PulsarDriver"),
    ("mqtt", "library"): ("pytest_loadtest.drivers.mqtt", "MqttDriver"),
    ("loopback", "library"): ("pytest_loadtest.drivers.loopback", "LoopbackDriver"),
}


def driver_class(name: str, client: str = "library") -> type[Driver]:
    """The driver for ``driver: {name, client}``.

    :raises UsageError: there is none.
    """
    if (name, client) not in _DRIVERS:
        known = ", ".join(f"{name} ({client})" for name, client in _DRIVERS)
        raise UsageError(f"no driver {name!r} with client {client!r}: choose one of {known}")
    module, attribute = _DRIVERS[name, client]
    found: type[Driver] = getattr(import_module(module), attribute)
    return found
