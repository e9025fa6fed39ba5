"""Who belongs to what: every number of streams and consumers, in integers and in columns."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.schedule.topology import Topology

FEW = st.integers(1, 5)


@given(topics=FEW, partitions=FEW, producers=FEW, subscriptions=FEW, consumers=FEW)
def test_streams_take_turns_and_consumers_are_neighbours(
    topics: int, partitions: int, producers: int, subscriptions: int, consumers: int
) -> None:
    """Each topic has its producers, each of its subscriptions its consumers; a column gives what each number gives."""
    made = Topology(topics=topics, partitions=partitions, producers=producers, subscriptions=subscriptions, consumers=consumers)
    assert [made.topic_of_stream(stream) for stream in range(made.streams)] == list(range(topics)) * producers
    places = [(topic, subscription) for topic, subscription, _ in product(range(topics), range(subscriptions), range(consumers))]
    everyone = range(made.all_consumers)
    assert [(made.topic_of_consumer(one), made.subscription_of_consumer(one)) for one in everyone] == places
    column = np.arange(made.all_consumers)
    assert list(zip(made.topic_of_consumer(column).tolist(), made.subscription_of_consumer(column).tolist(), strict=True)) == places
    assert made.partition_handles == partitions * (made.streams + made.all_consumers)
