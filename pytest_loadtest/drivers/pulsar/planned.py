"""The memory that a planned load of delayed messages takes of Pulsar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.drivers.pulsar.broker import GIVEN
from pytest_loadtest.drivers.pulsar.delayed_index import planned_index
from pytest_loadtest.drivers.pulsar.settings import DEFAULT_TICK, TICK

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology


def planned(profile: Profile, topology: Topology, rate: float, messages: int) -> tuple[str, str | None]:
    """The index in one line, and a warning where a broker that the run starts has too little memory for it."""
    assert profile.delays is not None
    index = planned_index(
        profile.delays, rate=rate, messages=messages, topics=topology.topics * topology.partitions, subscriptions=topology.subscriptions,
        tick=int(profile.broker.settings.get(TICK, DEFAULT_TICK)),
    )  # fmt: skip
    started = profile.target is None or profile.target.url is None
    return index.text, index.warning(GIVEN) if started else None
