"""How many messages share a batch: what a client that works by the batch costs depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.profile.settings import PulsarSettings
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology


def expected_batch(profile: Profile, topology: Topology, size: float, rate: float) -> float:
    """Messages of a batch, on the average: what a producer sends while one may wait (``batchingMaxPublishDelayMs``), within its limits.

    :param size: bytes of a message, on the average. :param rate: msg/s of all streams together.
    :returns: at least 1, which it is without batches, for drivers that have none, and of delayed messages, which no client batches.
    """
    driver = profile.driver
    if not isinstance(driver, PulsarSettings) or not driver.batching_enabled or not topology.streams or profile.delays is not None:
        return 1.0
    waiting = rate / topology.streams * driver.batching_max_publish_delay_ms * MILLISECOND / SECOND
    if profile.key_distributor != "NO_KEY":  # without keys, a producer stays with one partition for longer than a batch may wait
        if driver.subscription_type == "Key_Shared":
            return 1.0  # a batch holds one key, and there are more keys than messages wait
        waiting /= topology.partitions
    most = driver.batching_max_messages or waiting  # 0: no limit
    return max(1.0, min(waiting, most, driver.batching_max_bytes / size))
