"""The times at which paced connections begin, computed from their numbers like those of messages.

All workers connect consumers first, then producers, each at an even pace. Connection ``i`` begins
at ``start + i / rate``, whichever worker has it. Workers interleave, because consumers and streams
are numbered over the run and assigned in round robin (in a broadcast row by row).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.plan.plan import Plan


def connect_times(start: int, rate: float, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return when connections begin, ns.

    :param rate: of all workers, per second. :param numbers: of the connections in the run.
    """
    return start + Pacer.of(rate, 1).times(numbers)


def connection_numbers(
    consumer: NDArray[np.int64], consumers: int, opened: int
) -> NDArray[np.int64]:
    """Return the number of each consumer among those that connect before load.

    :param consumer: their indexes in the run. :param consumers: of each subscription.
    :param opened: of these, the number that connect.
    """
    numbers: NDArray[np.int64] = consumer // consumers * opened + consumer % consumers
    return numbers


def connected_in_time(
    start: int,
    rate: float,
    numbers: NDArray[np.int64],
    up: NDArray[np.int64],
    latency: NDArray[np.int64],
) -> int:
    """Return how many connections of a worker were established in time.

    In time is until the last was due to begin, plus their median latency.

    :param numbers: of these connections in the run, ascending.
    :param up: ns, when each was established. :param latency: ns, of each.
    """
    end = connect_times(start, rate, numbers[-1:] + 1)[0] + np.median(latency)
    return int(np.count_nonzero(up <= end))


def opened_each(plan: Plan) -> int:
    """Return the number of consumers of each subscription that connect before load."""
    consumers = plan.topology.consumers
    return min((phase.consumers or consumers for phase in plan.phases), default=consumers)


def opened_consumers(plan: Plan) -> int:
    """Return the number of consumers that connect before load."""
    return plan.topology.topics * plan.topology.subscriptions * opened_each(plan)


def opened_clients(plan: Plan) -> int:
    """Return the number of producers and consumers that connect before load."""
    return plan.topology.streams + opened_consumers(plan)


def connect_duration(plan: Plan) -> int:
    """Return the ns in which paced connections begin; 0 if they are not paced."""
    rate = plan.profile.connect_rate
    if rate is None:
        return 0
    return round(opened_clients(plan) / rate * SECOND)
