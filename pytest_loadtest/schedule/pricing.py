"""What a message of a profile costs, out of the table of costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.profile.choice import choose_client
from pytest_loadtest.profile.settings import MqttSettings
from pytest_loadtest.schedule.costs import ARTEMIS, cost_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.costs import Cost


def profile_cost(profile: Profile, table: Mapping[str, Cost]) -> Cost:
    """What a message costs.

    :param table: rows by :func:`profile_cost_key`; those of MQTT are of mosquitto, so Artemis's share takes the place of the broker's.
    """
    cost, driver = table[profile_cost_key(profile)], profile.driver
    return replace(cost, broker=ARTEMIS[driver.qos]) if isinstance(driver, MqttSettings) and driver.broker == "artemis" else cost


def profile_cost_key(profile: Profile) -> str:
    """The row of the cost table that a profile's driver and client have."""
    return cost_key(profile.driver.name, getattr(profile.driver, "qos", None), choose_client(profile).client)
