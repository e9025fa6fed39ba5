"""Adapters to one kind of broker each; a driver's client library is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import Driver, DriverFacts

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


def planned_facts(settings: Any) -> DriverFacts:
    """How a client would be set up: what a plan says of it, with no target and no connection.

    :param settings: the profile's ``driver`` section.
    """
    import time

    from pytest_loadtest.drivers._base import DriverContext, TargetAddress
    from pytest_loadtest.payloads import build_pool

    pool = build_pool(
        buckets=None, message_size=32, representative="midpoint", randomized=False, random_ratio=0.0, pool_size=1, file_content=None,
        seed=0, checksum=False, max_size=None,
    )  # fmt: skip
    context = DriverContext(
        target=TargetAddress(url=f"{settings.name}://localhost:1"), settings=settings, clock=time.monotonic_ns, run="plan", nonce=0,
        worker="plan", topics=(), pool=pool,
    )  # fmt: skip
    driver: Driver = driver_class(settings.name, settings.client)(context)  # type: ignore[call-arg]
    return driver.facts()
