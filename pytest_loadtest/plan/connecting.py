"""When connections are begun: arithmetic on their numbers, as messages have it.

Consumers connect first, all workers together, then producers; each of the two is an even train. Connection ``i`` of it is begun at
``start + i / rate``, whichever worker's it is: consumers and streams are numbered over the run and dealt to workers in turn, those of a
broadcast by the row, so the workers interleave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.plan.plan import Plan


def instants(start: int, rate: float, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """ns, when connections are begun. :param numbers: of the connections, over all workers. :param rate: of all workers, per second."""
    return start + Pacer.of(rate, 1).times(numbers)


def opened_before(consumer: NDArray[np.int64], consumers: int, opened: int) -> NDArray[np.int64]:
    """The number of each consumer among those that connect before load.

    :param consumer: indexes of such, in the run. :param consumers: of each subscription. :param opened: of those, how many connect before.
    """
    numbers: NDArray[np.int64] = consumer // consumers * opened + consumer % consumers
    return numbers


def up_in_time(start: int, rate: float, numbers: NDArray[np.int64], up: NDArray[np.int64], latency: NDArray[np.int64]) -> int:
    """How many connections of a worker came up while they were begun, a span that is moved by their median latency.

    :param numbers: of these connections, over all workers, ascending. :param up: ns, when each came up. :param latency: ns, each one's.
    """
    end = instants(start, rate, numbers[-1:] + 1)[0] + np.median(latency)
    return int(np.count_nonzero(up <= end))


def opened(plan: Plan) -> int:
    """Consumers of each subscription that connect before load."""
    consumers = plan.topology.consumers
    return min((phase.consumers or consumers for phase in plan.phases), default=consumers)


def opened_consumers(plan: Plan) -> int:
    """Consumers that connect before load."""
    return plan.topology.topics * plan.topology.subscriptions * opened(plan)


def connections(plan: Plan) -> int:
    """Producers and consumers that connect before load."""
    return plan.topology.streams + opened_consumers(plan)


def takes(plan: Plan) -> int:
    """ns that paced connections take to be begun; 0 where they are not paced."""
    rate = plan.profile.connect_rate
    return 0 if rate is None else round(connections(plan) / rate * SECOND)
