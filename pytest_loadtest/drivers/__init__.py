"""Adapters to brokers, one folder for each kind.

A client library is imported only when a driver that needs it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.registry import kind_of, load_reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.base import DrainingRun, Driver, DriverFacts, Undelivered
    from pytest_loadtest.profile import Profile


def driver_class(name: str, client: str = "library") -> type[Driver]:
    """Return the driver for ``driver: {name, client}``.

    :raises UsageError: the kind has no such client.
    """
    kind = kind_of(name)
    if client not in kind.clients:
        raise UsageError(
            f"no driver {name!r} with client {client!r}: choose one of {', '.join(kind.clients)}"
        )
    driver: type[Driver] = load_reference(kind, kind.clients[client].driver)
    return driver


def telemetry_class(name: str) -> Any | None:
    """Return the class that reads this kind of broker's own counters.

    It is made from a ``TelemetryContext``; None if the kind has none.
    """
    kind = kind_of(name)
    return load_reference(kind, kind.telemetry) if kind.telemetry else None


def undelivered_function(name: str) -> Callable[[DrainingRun], Undelivered | None] | None:
    """Return the function that asks this kind of target for deliveries to come.

    None if the kind has none.
    """
    kind = kind_of(name)
    return load_reference(kind, kind.undelivered) if kind.undelivered else None


def planned_facts(profile: Profile, *, admin: bool = True) -> DriverFacts:
    """Return how the profile's client would be set up, for a plan.

    Without a target and without a connection.

    :param admin: the target has an admin REST: brokers that a run starts
        have one, others only if its address is given.
    """
    import time

    from pytest_loadtest.drivers.base import DriverContext, TargetAddress
    from pytest_loadtest.message.payloads import build_pool
    from pytest_loadtest.profile.model import choose_client
    from pytest_loadtest.schedule.topology import Topology

    settings = profile.driver
    # facts() reads only the settings and whether there is an admin
    # address, so the rest need only be valid.
    unused = TargetAddress(
        url=f"{settings.kind.target_schemes[0]}://localhost:1",
        admin_url="http://localhost:1" if admin else None,
    )
    pool = build_pool(
        message_size=32,
        randomized=False,
        random_ratio=0.0,
        seed=0,
    )
    context = DriverContext(
        target=unused,
        settings=settings,
        clock=time.monotonic_ns,
        run="plan",
        nonce=0,
        worker="plan",
        topology=Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1),
        pool=pool,
    )
    make: Any = driver_class(settings.name, choose_client(profile).client)
    driver: Driver = make(context)
    return driver.facts()
