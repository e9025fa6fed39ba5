"""Consumers paired with producers by host: which host has which topics, and the share of each of
its workers.

A topic goes to one host, with all its streams and all its consumers. A delivery then begins and
ends on one host, and its latency is read on one clock. Hosts get topics in proportion to their
workers, and the workers of a host share its streams and consumers evenly. Streams, sequences and
payloads do not depend on any of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.schedule.topology import Assignment, BroadcastShare, assign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.schedule.topology import Topology


def topics_of_hosts(topics: int, workers: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Return the topics of each host, ascending; empty on one host, and if there are fewer topics
    than hosts.

    Each host gets its workers' share of the topics, to within one topic. Neighbouring topics go to
    different hosts, which spreads a skew.

    :param workers: number of workers by host.
    """
    if len(workers) == 1 or topics < len(workers):
        return {}
    # Turns as for the streams of a skewed workload: the turns of a host with w workers are at (2k +
    # 1) / 2w.
    turns = sorted(
        ((2 * k + 1) / (2 * count), number)
        for number, count in enumerate(workers.values())
        for k in range(count)
    )
    home = np.resize(np.array([number for _, number in turns], np.int64), topics)
    return {host: np.flatnonzero(home == number) for number, host in enumerate(workers)}


def topic_shares(topics: int, hosts: Sequence[str]) -> dict[str, float]:
    """Return the share of the topics that each host has; empty if hosts have no whole topics.

    :param hosts: of each worker, by rank.
    """
    return {
        host: len(own) / topics
        for host, own in topics_of_hosts(topics, count_workers(hosts)).items()
    }


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
    each, rounds = (
        topology.subscriptions * topology.consumers,
        np.arange(topology.producers)[:, None] * topology.topics,
    )
    streams = {host: (rounds + own).ravel() for host, own in homes.items()}
    consumers = {
        host: (own[:, None] * each + np.arange(each)).ravel() for host, own in homes.items()
    }
    shares, done = [], dict.fromkeys(workers, 0)
    for host in hosts:
        place, of = done[host], workers[host]
        done[host] += 1
        shares.append(
            Assignment(
                streams=streams[host][place::of], consumers=consumers[host][of - 1 - place :: of]
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
    within, complete = 0.0, True
    for name in names:
        own = [
            assignment for assignment, host in zip(assignments, hosts, strict=True) if host == name
        ]
        sent, heard = np.zeros(topology.topics), np.zeros(topology.topics, np.int64)
        for assignment in own:
            streams, share = stream_column(assignment.streams), assignment.consumers
            consumers = (
                np.fromiter(share, np.int64, len(share))
                if isinstance(share, BroadcastShare)
                else stream_column(share)
            )
            sent += np.bincount(
                topology.topic_of_stream(streams), weights[streams], topology.topics
            )
            heard += np.bincount(topology.topic_of_consumer(consumers), minlength=topology.topics)
        each = topology.subscriptions * topology.consumers
        within += float(sent @ (heard / each))
        complete &= bool((heard[sent > 0] == each).all())
    return Placement(1.0 if complete else within / float(weights.sum()), complete)
