"""The cost of a message of a profile, from the table of costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.costs import cost_key
from pytest_loadtest.profile.choice import choose_client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.profile import Profile


def profile_cost(profile: Profile, table: Mapping[str, Cost]) -> Cost:
    """The cost of a message.

    :param table: rows by :func:`profile_cost_key`, each with the cost of the kind's default broker; another broker's own takes its place.
    :raises UsageError: the kind ships no such row.
    """
    key, kind = profile_cost_key(profile), profile.driver.kind
    if key not in table:
        raise UsageError(f"driver {kind.name!r} of the package {kind.package} has no cost {key!r}: its DriverKind.costs must have one")
    broker = kind.start_of(profile.driver.broker_name).costs.get(key)
    return table[key] if broker is None else replace(table[key], broker=broker)


def profile_cost_key(profile: Profile) -> str:
    """The row of the cost table that a profile's driver and client have."""
    return cost_key(profile.driver.name, profile.driver.cost_variant, choose_client(profile).client)
