"""Adapters to one kind of broker each; a driver's client library is imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import Driver, DriverFacts
    from pytest_loadtest.profile import Profile

_DRIVERS = {
    ("pulsar", "library"): ("pytest_loadtest.drivers.pulsar.driver", "PulsarDriver"),
    ("pulsar", "native"): ("pytest_loadtest.drivers.pulsar.native.driver", "NativePulsarDriver"),
    ("mqtt", "library"): ("pytest_loadtest.drivers.mqtt.driver", "MqttDriver"),
    ("mqtt", "native"): ("pytest_loadtest.drivers.mqtt.native.driver", "NativeMqttDriver"),
    ("loopback", "library"): ("pytest_loadtest.drivers.loopback.driver", "LoopbackDriver"),
}
_TELEMETRY = {
    "mqtt": ("pytest_loadtest.drivers.mqtt.sys_topics", "SysTopics"),
    "pulsar": ("pytest_loadtest.drivers.pulsar.scrape", "Scrape"),
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


def telemetry_class(name: str) -> Any | None:
    """What asks this kind of broker for its own counters: made of a :class:`~pytest_loadtest.drivers.base.Watched`; None: it has none."""
    if name not in _TELEMETRY:
        return None
    module, attribute = _TELEMETRY[name]
    return getattr(import_module(module), attribute)


def planned_facts(profile: Profile) -> DriverFacts:
    """How the profile's client would be set up: what a plan says of it, with no target and no connection."""
    import time

    from pytest_loadtest.drivers.base import DriverContext, TargetAddress
    from pytest_loadtest.message.payloads import build_pool
    from pytest_loadtest.profile.choice import choose_client
    from pytest_loadtest.schedule.topology import Topology

    settings = profile.driver
    pool = build_pool(
        buckets=None, message_size=32, representative="midpoint", randomized=False, random_ratio=0.0, pool_size=1, file_content=None,
        seed=0, checksum=False, max_size=None,
    )  # fmt: skip
    context = DriverContext(
        target=TargetAddress(url=f"{settings.name}://localhost:1"), settings=settings, clock=time.monotonic_ns, run="plan", nonce=0,
        worker="plan", topology=Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1), pool=pool,
    )  # fmt: skip
    driver: Driver = driver_class(settings.name, choose_client(profile).client)(context)  # type: ignore[call-arg]
    return driver.facts()
