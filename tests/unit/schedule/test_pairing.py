"""Consumers paired with producers by host: nothing is left over, everything is balanced, and each
delivery is within one host.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.schedule.pairing import (
    assign_by_host,
    count_workers,
    placement,
    topic_shares,
    topics_of_hosts,
)
from pytest_loadtest.schedule.topology import Assignment, Topology, assign

FEW = st.integers(1, 5)
HOSTS = st.lists(st.sampled_from(["h1", "h2", "h3", "h4"]), min_size=1, max_size=9)
TOPOLOGIES = st.builds(
    lambda topics, producers, subscriptions, consumers: Topology(
        topics=topics, partitions=1, producers=producers, subscriptions=subscriptions, consumers=consumers
    ),
    st.integers(1, 30), FEW, st.integers(1, 3), FEW,
)  # fmt: skip


def numbers(shares: tuple[Assignment, ...]) -> list[tuple[list[int], list[int]]]:
    """Return the streams and the consumers of each worker."""
    return [(list(share.streams), list(share.consumers)) for share in shares]


@given(topology=TOPOLOGIES, hosts=HOSTS)
def test_every_stream_and_consumer_has_one_worker_in_the_order_of_numbers(
    topology: Topology, hosts: list[str]
) -> None:
    shares = numbers(assign_by_host(topology, hosts))
    assert len(shares) == len(hosts)
    assert sorted(stream for streams, _ in shares for stream in streams) == list(
        range(topology.streams)
    )
    assert sorted(consumer for _, consumers in shares for consumer in consumers) == list(
        range(topology.all_consumers)
    )
    assert all(share == sorted(share) for both in shares for share in both)


@given(topology=TOPOLOGIES, hosts=HOSTS)
def test_a_topic_is_on_one_host_if_there_is_one_for_each(
    topology: Topology, hosts: list[str]
) -> None:
    """Otherwise, and on one host, everything is as without pairing."""
    shares = assign_by_host(topology, hosts)
    several = len(set(hosts))
    if several == 1 or topology.topics < several:
        assert numbers(shares) == numbers(assign(topology, len(hosts)))
        return
    homes: dict[int, set[str]] = {}
    for host, (streams, consumers) in zip(hosts, numbers(shares), strict=True):
        for topic in {
            *map(topology.topic_of_stream, streams),
            *map(topology.topic_of_consumer, consumers),
        }:
            homes.setdefault(topic, set()).add(host)
    assert all(len(home) == 1 for home in homes.values())
    assert placement(topology, shares, hosts) == (1.0, True)


@given(topology=TOPOLOGIES, hosts=HOSTS)
def test_hosts_and_their_workers_are_balanced(topology: Topology, hosts: list[str]) -> None:
    """A host has its workers' share of the topics to within one, its workers the same numbers to
    within one.
    """
    workers, shares = count_workers(hosts), assign_by_host(topology, hosts)
    for host, own in topics_of_hosts(topology.topics, workers).items():
        assert abs(len(own) - topology.topics * workers[host] / len(hosts)) <= 1
        assert topic_shares(topology.topics, hosts)[host] == len(own) / topology.topics
        mine = [share for name, share in zip(hosts, shares, strict=True) if name == host]
        for counts in (
            [len(share.streams) for share in mine],
            [len(share.consumers) for share in mine],
        ):
            assert max(counts) - min(counts) <= 1
        assert sum(len(share.streams) for share in mine) == len(own) * topology.producers


@given(rounds=st.integers(1, 5), hosts=HOSTS)
def test_as_many_topics_as_workers_are_one_for_each(rounds: int, hosts: list[str]) -> None:
    """And neighbouring topics are on different hosts as far as their workers allow."""
    workers = count_workers(hosts)
    topics = topics_of_hosts(rounds * len(hosts), workers)
    assert {host: len(own) for host, own in topics.items()} == (
        {host: rounds * n for host, n in workers.items()} if len(workers) > 1 else {}
    )


def test_equal_hosts_take_turns() -> None:
    assert {host: own.tolist() for host, own in topics_of_hosts(5, {"a": 4, "b": 4}).items()} == {
        "a": [0, 2, 4],
        "b": [1, 3],
    }


@given(
    topology=TOPOLOGIES,
    hosts=HOSTS.filter(lambda hosts: len(set(hosts)) > 1),
    seed=st.integers(0, 99),
)
def test_the_expected_share_is_that_of_all_pairs(
    topology: Topology, hosts: list[str], seed: int
) -> None:
    """Of a stream and a consumer of its topic, by the weight of the stream."""
    shares = assign(topology, len(hosts))
    turns = np.random.default_rng(seed).integers(1, 9, topology.streams)
    within: Counter[bool] = Counter()
    for (sender, one), (receiver, other) in product(zip(hosts, shares, strict=True), repeat=2):
        for stream, consumer in product(one.streams, other.consumers):
            if topology.topic_of_stream(stream) == topology.topic_of_consumer(consumer):
                within[sender == receiver] += int(turns[stream])
    expected = placement(topology, shares, hosts, turns)
    assert expected is not None
    assert expected.share == pytest.approx(within[True] / within.total())
    assert expected.complete is (within[False] == 0)


@pytest.mark.parametrize(
    ("producers", "subscriptions", "hosts"),
    [(0, 1, ["a", "b"]), (1, 0, ["a", "b"]), (1, 1, ["a", "a"])],
)
def test_without_deliveries_and_on_one_host_there_is_no_share(
    producers: int, subscriptions: int, hosts: list[str]
) -> None:
    topology = Topology(
        topics=4, partitions=1, producers=producers, subscriptions=subscriptions, consumers=1
    )
    assert placement(topology, assign(topology, 2), hosts) is None


def test_a_broadcast_has_a_share_too() -> None:
    """Its consumers are spread over all workers."""
    topology = Topology(topics=1, partitions=1, producers=1, subscriptions=256, consumers=1)
    assert placement(topology, assign(topology, 2), ["a", "b"]) == (0.5, False)
