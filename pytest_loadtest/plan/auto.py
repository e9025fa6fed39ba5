"""``--load-scale auto``: the largest load, up to the profile's, that this machine can carry.

Each limit falls or stays as the load falls, so the largest factor within all of them is found by
bisection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.plan.needs import can_connect, expected_batch
from pytest_loadtest.plan.scaling import at, highest_rate
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.plan.phases import PacedTraffic
    from pytest_loadtest.plan.scaling import Machine
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

# Of all cores: leaves room for the broker's own bursts, Spark's idle JVM and other tenants.
AUTO_LOAD = 0.2
# Partition producers and consumers that ``auto`` opens per core.
HANDLES_PER_CORE = 50
# Of the interval from 0 to 1: the last step is far below the least factor at which any rate can be
# paced.
_HALVINGS = 64


@record
class Capacity:
    """The load that this machine should carry, by the calibrated costs and its bandwidth."""

    cost: Cost
    machine: Machine
    workers: int
    broker_here: bool

    def carries(self, rate: float, fan_out: int, size: float, batch: float = 1.0) -> bool:
        """Return true if neither the machine, a worker nor the network is loaded too much.

        Each workload of a run may load its share of them.

        :param rate: msg/s. :param size: mean bytes of a message. :param batch: messages in a batch.
        """
        cores = self.cost.cores(rate, fan_out, size, broker_here=self.broker_here, batch=batch)
        worker = self.cost.busiest_worker(rate, fan_out, size, self.workers, batch=batch)
        share = 1 / self.machine.workloads
        return (
            cores / self.machine.cores <= AUTO_LOAD * share
            and worker <= AUTO_LOAD * share
            and self.machine.network_load(rate * size, fan_out) <= share
        )

    def connects(self, profile: Profile, topology: Topology) -> bool:
        """Return true if the machine can have the connections of a topology."""
        return can_connect(
            profile, topology, self.workers, self.machine, broker_here=self.broker_here
        )

    def rate_factor(
        self, highest: float, fan_out: int, size: float, batch: Callable[[float], float]
    ) -> float:
        """Return the factor on the highest rate that the machine carries; at most 1.

        :param batch: messages in a batch at a rate, msg/s. It may not grow faster than the rate:
            more messages are not fewer batches.
        """

        def fits(factor: float) -> bool:
            rate = highest * factor
            return self.carries(rate, fan_out, size, batch(rate))

        return _rounded(largest_factor(fits))


def largest_factor(fits: Callable[[float], bool]) -> float:
    """Return the largest factor that fits, by bisection; at most 1, and 0 if none fits."""
    if fits(1.0):
        return 1.0
    fitting = 0.0
    too_large = 1.0
    for _ in range(_HALVINGS):
        middle = (fitting + too_large) / 2
        if fits(middle):
            fitting = middle
        else:
            too_large = middle
    return fitting


def auto_scaled(
    profile: Profile, unscaled: Topology, whole: PacedTraffic, capacity: Capacity
) -> tuple[Topology, float]:
    """Return the topology, and the factor on the rate, that this machine can carry.

    :param unscaled: the profile's topology. :param whole: its traffic.
    """
    highest = highest_rate(profile, whole)
    size = whole.mean_size
    if unscaled.broadcasts and not profile.connects_only:
        return _auto_broadcast(profile, unscaled, highest, size, capacity)

    def fits(factor: float) -> bool:
        topology, _ = at(profile, unscaled, factor)
        if profile.connects_only:
            return capacity.connects(profile, topology)
        machine = capacity.machine
        return topology.partition_handles <= HANDLES_PER_CORE * machine.cores / machine.workloads

    topology, _ = at(profile, unscaled, largest_factor(fits))
    if profile.connects_only:
        return topology, 1.0

    def batch(rate: float) -> float:
        return expected_batch(profile, topology, size, rate)

    return topology, capacity.rate_factor(highest, unscaled.reads, size, batch)


def _auto_broadcast(
    profile: Profile, unscaled: Topology, rate: float, size: float, capacity: Capacity
) -> tuple[Topology, float]:
    def fits(factor: float) -> bool:
        topology, rate_factor = at(profile, unscaled, factor)
        # A lower rate frees no connections: a broadcast has its fewest subscribers in any case.
        if topology.subscriptions > WIDTH and not capacity.connects(profile, topology):
            return False
        return capacity.carries(rate * rate_factor, topology.subscriptions, size)

    topology, rate_factor = at(profile, unscaled, largest_factor(fits))
    return topology, _rounded(rate_factor)


def _rounded(factor: float) -> float:
    """Return a factor on a rate to two digits."""
    return float(f"{factor:.1e}")
