"""How many messages share a batch: what a client that works by the batch costs depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology


def expected_batch(profile: Profile, topology: Topology, size: float, rate: float) -> float:
    """Mean number of messages in a batch.

    :param size: mean bytes of a message. :param rate: msg/s of all streams together.
    :returns: at least 1, which it is without batches, for drivers that have none, and for delayed messages, which no client batches.
    """
    if not topology.streams or profile.delays is not None:
        return 1.0
    return profile.driver.batch(rate / topology.streams, topology.partitions, size, keyed=profile.key_distributor != "NO_KEY")
