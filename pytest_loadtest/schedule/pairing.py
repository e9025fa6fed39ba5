"""Consumers paired with producers by host: which host has which topics, and the share of each of
its workers.

A topic goes to one host, with all its streams and all its consumers. A delivery then begins and
ends on one host, and its latency is read on one clock. Hosts get topics in proportion to their
workers, and the workers of a host share its streams and consumers evenly. Streams, sequences and
payloads do not depend on any of this.

The controller calls this while it plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.schedule.stream_order import spread_turns
from pytest_loadtest.schedule.topology import Assignment, BroadcastShare, Topology, assign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def topics_of_hosts(topics: int, workers: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Return the topics of each host, ascending; empty on one host, and if there are fewer topics
    than hosts.

    Each host gets its workers' share of the topics, to within one topic. Neighbouring topics go to
    different hosts, which spreads a skew.

    :param workers: number of workers by host.
    """
    if len(workers) == 1 or topics < len(workers):
        return {}
    # Hosts with [2, 1] workers have the turns [0, 1, 0], so of five topics the homes 0, 1, 0, 0, 1.
    home = np.resize(spread_turns(list(workers.values())), topics)
    return {host: np.flatnonzero(home == number) for number, host in enumerate(workers)}


def topic_shares(topics: int, hosts: Sequence[str]) -> dict[str, float]:
    """Return the share of the topics that each host has; empty if hosts have no whole topics.

    :param hosts: of each worker, by rank.
    """
    homes = topics_of_hosts(topics, count_workers(hosts))
    return {host: len(own_topics) / topics for host, own_topics in homes.items()}


def assign_by_host(topology: Topology, hosts: Sequence[str]) -> tuple[Assignment, ...]:
    """Return the share of each worker, with the topics of :func:`topics_of_hosts`; if it has none,
    as :func:`assign`.

    :param topology: no broadcast.
    :param hosts: of each worker, by rank.
    """
    workers = count_workers(hosts)
    homes = topics_of_hosts(topology.topics, workers)
    if not homes:
        return assign(topology, len(hosts))

    streams: dict[str, NDArray[np.int64]] = {}
    consumers: dict[str, NDArray[np.int64]] = {}
    rounds = np.arange(topology.producers) * topology.topics
    within_topic = np.arange(topology.consumers_of_topic)
    for host, topics in homes.items():
        # (producers, topics): the topics [0, 2] of three have with two producers each the streams
        # 0, 2, 3, 5
        streams[host] = (rounds[:, None] + topics).ravel()
        # (topics, consumers of a topic): with two consumers each 0, 1, 4, 5
        consumers[host] = (topics[:, None] * len(within_topic) + within_topic).ravel()

    shares = []
    assigned = dict.fromkeys(workers, 0)
    for host in hosts:
        place = assigned[host]
        assigned[host] += 1
        count = workers[host]
        shares.append(
            Assignment(
                streams=streams[host][place::count],
                consumers=consumers[host][count - 1 - place :: count],
            )
        )
    return tuple(shares)


def count_workers(hosts: Sequence[str]) -> dict[str, int]:
    """Return the number of workers of each host, in the order of their first workers.

    :param hosts: of each worker, by rank.
    """
    return {host: hosts.count(host) for host in dict.fromkeys(hosts)}


class Placement(NamedTuple):
    """The expected deliveries within one host.

    :param share: of all deliveries; a subscription's consumers count as if each of them got as
        much.
    :param complete: all are, for certain.
    """

    share: float
    complete: bool


def placement(
    topology: Topology,
    assignments: Sequence[Assignment],
    hosts: Sequence[str],
    turns: NDArray[np.int64] | None = None,
) -> Placement | None:
    """Return the expected deliveries within one host; None without deliveries, and on one host.

    :param hosts: of each worker, by rank.
    :param turns: weight of each stream in a skewed workload; None: all are equal.
    """
    names = list(dict.fromkeys(hosts))
    if len(names) == 1 or not topology.streams or not topology.all_consumers:
        return None
    weights = np.ones(topology.streams) if turns is None else turns.astype(np.float64)

    within = 0.0
    complete = True
    for name in names:
        # by topic: the weight that the host's producers send, and its consumers
        sent = np.zeros(topology.topics)
        heard = np.zeros(topology.topics, np.int64)
        for assignment, host in zip(assignments, hosts, strict=True):
            if host == name:
                streams = stream_column(assignment.streams)
                topics = topology.topic_of_stream(streams)
                sent += np.bincount(topics, weights[streams], topology.topics)
                consumers = assignment.consumers
                if isinstance(consumers, BroadcastShare):
                    consumers = np.fromiter(consumers, np.int64, len(consumers))
                topics = topology.topic_of_consumer(stream_column(consumers))
                heard += np.bincount(topics, minlength=topology.topics)
        within += float(sent @ (heard / topology.consumers_of_topic))
        complete &= bool((heard[sent > 0] == topology.consumers_of_topic).all())
    if complete:
        return Placement(1.0, True)
    return Placement(within / float(weights.sum()), False)
