"""The relations of streams, consumers, subscriptions and topics, as numbers and as columns."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.schedule.topology import BroadcastShare, Topology, assign, rows_of_broadcast

FEW = st.integers(1, 5)


@given(topics=FEW, partitions=FEW, producers=FEW, subscriptions=FEW, consumers=FEW)
def test_streams_take_turns_and_consumers_are_neighbours(
    topics: int, partitions: int, producers: int, subscriptions: int, consumers: int
) -> None:
    """A column gives the same as each of its numbers."""
    made = Topology(
        topics=topics,
        partitions=partitions,
        producers=producers,
        subscriptions=subscriptions,
        consumers=consumers,
    )
    assert [made.topic_of_stream(stream) for stream in range(made.streams)] == list(
        range(topics)
    ) * producers
    places = [
        (topic, subscription)
        for topic, subscription, _ in product(range(topics), range(subscriptions), range(consumers))
    ]
    everyone = range(made.all_consumers)
    assert [
        (made.topic_of_consumer(one), made.subscription_of_consumer(one)) for one in everyone
    ] == places
    column = np.arange(made.all_consumers)
    assert (
        list(
            zip(
                made.topic_of_consumer(column).tolist(),
                made.subscription_of_consumer(column).tolist(),
                strict=True,
            )
        )
        == places
    )
    assert made.partition_handles == partitions * (made.streams + made.all_consumers)


def broadcast(subscriptions: int, topics: int = 1) -> Topology:
    return Topology(
        topics=topics, partitions=1, producers=1, subscriptions=subscriptions, consumers=1
    )


def dealt(topology: Topology, workers: int) -> list[list[int]]:
    """Return the consumers of each worker."""
    return [list(share.consumers) for share in assign(topology, workers)]


def rows(topology: Topology, shares: list[list[int]]) -> list[int]:
    """Return the rows of a message to each topic, which each worker writes for itself."""
    found = {
        (topology.topic_of_consumer(one), topology.subscription_of_consumer(one) // WIDTH, rank)
        for rank, share in enumerate(shares)
        for one in share
    }
    return [sum(topic == which for which, _, _ in found) for topic in range(topology.topics)]


@given(subscriptions=st.integers(WIDTH, 700), topics=st.integers(1, 9), workers=st.integers(1, 40))
def test_the_consumers_of_a_broadcast_are_assigned_by_rows(
    subscriptions: int, topics: int, workers: int
) -> None:
    """Every consumer once, in order; workers differ by one at most; each cut between two workers
    adds one row at most.
    """
    topology = broadcast(subscriptions, topics)
    shares = dealt(topology, workers)
    assert sorted(one for share in shares for one in share) == list(range(topics * subscriptions))
    assert all(share == sorted(share) for share in shares)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert [len(share) for share in shares] == [
        len(one.consumers) for one in assign(topology, workers)
    ]
    assert sum(rows(topology, shares)) <= round(topics * rows_of_broadcast(topology, workers))


@given(rounds=st.integers(1, 4), topics=st.integers(1, 5), workers=st.integers(1, 20))
def test_a_message_keeps_no_worker_busier_than_another(
    rounds: int, topics: int, workers: int
) -> None:
    """If its topic has whole rows for all workers."""
    topology = broadcast(WIDTH * rounds * workers, topics)
    shares = dealt(topology, workers)
    assert {type(one) for share in shares for one in share} == {int}
    assert rows(topology, shares) == [rounds * workers] * topics
    for share in shares:
        assert set(Counter(topology.topic_of_consumer(one) for one in share).values()) == {
            rounds * WIDTH
        }


@pytest.mark.parametrize(("workers", "expected"), [(1, 16), (2, 17), (4, 19), (16, 31)])
def test_workers_of_a_broadcast_need_few_rows(workers: int, expected: int) -> None:
    """With consumers in round robin they would be 16 for each worker."""
    topology = broadcast(1000)
    assert (
        rows(topology, dealt(topology, workers))
        == [expected]
        == [rows_of_broadcast(topology, workers)]
    )


@pytest.mark.parametrize(
    "topology",
    [
        broadcast(WIDTH - 1),
        Topology(topics=3, partitions=1, producers=1, subscriptions=WIDTH, consumers=2),
        broadcast(1, topics=1000),
    ],
)
def test_other_consumers_are_assigned_in_round_robin(topology: Topology) -> None:
    """So neighbours, which share a subscription or a topic, are on different workers."""
    shares = assign(topology, 3)
    assert not any(isinstance(share.consumers, BroadcastShare) for share in shares)
    assert [share.consumers for share in shares] == [
        range(place, topology.all_consumers, 3) for place in (2, 1, 0)
    ]
