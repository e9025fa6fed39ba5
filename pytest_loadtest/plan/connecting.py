"""The times at which paced connections begin, computed from their numbers like those of messages.

All workers connect consumers first, then producers, each at an even pace. Connection ``i`` begins
at ``start + i / rate``, whichever worker has it. Workers interleave, because consumers and streams
are numbered over the run and assigned in round robin (in a broadcast row by row).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.histogram import document, histogram, merge, of_document
from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.plan.plan import Plan

CONNECT: Final = "connect"
"""In a manifest: the latencies of connections, ns."""
OVERDUE: Final = "overdue"
"""Likewise by how much each was established after the span in which all of them were due."""


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


def connect_record(
    start: int,
    rate: float,
    connections: int,
    up: NDArray[np.int64],
    latency: NDArray[np.int64],
) -> dict[str, Any]:
    """Return the distributions of a worker's consumers, or producers, for its manifest.

    :param connections: those of all workers.
    :param up: ns, when each of this worker was established.
    :param latency: ns, of each.
    """
    end = connect_times(start, rate, np.array([connections]))[0]
    distributions = {CONNECT: histogram(latency), OVERDUE: histogram(np.maximum(up - end, 0))}
    return {name: document(values) for name, values in distributions.items() if values is not None}


def connected_in_time(records: Iterable[Any]) -> int:
    """Return how many consumers, or producers, of all workers were established in time.

    In time is within the span in which they were due, moved later by the median latency of all: a
    worker does not know that of the others.

    :param records: of each worker, as of :func:`connect_record`; in samples of older releases a
        count by the worker's own median.
    """
    counted = 0
    parts: dict[str, list[Histogram]] = {CONNECT: [], OVERDUE: []}
    for record in records:
        if isinstance(record, int):
            counted += record
            continue
        for name, of_worker in parts.items():
            of_worker.append(of_document(record[name]))
    latency = merge(parts[CONNECT])
    overdue = merge(parts[OVERDUE])
    if latency is None or overdue is None:
        return counted
    return counted + overdue.n - overdue.above(latency.percentile(50))


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
