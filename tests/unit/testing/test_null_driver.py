"""The null driver: answers and copies at known times, in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from null_driver import NullDriver

from pytest_loadtest.drivers.base import Burst, DriverContext, TargetAddress
from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Status
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.testing.rig import plain_pool

TOPOLOGY = Topology(topics=1, partitions=1, producers=4, subscriptions=1, consumers=2)


def null_driver(clock, topology=TOPOLOGY, **options) -> NullDriver:
    context = DriverContext(
        target=TargetAddress(url="null://"),
        settings=None,
        clock=clock,
        run="run",
        nonce=7,
        worker="gw0",
        topology=topology,
        pool=plain_pool(),
    )
    return NullDriver(context, **options)


def burst(count: int, first: int = 0, stream: int = 0) -> Burst:
    """Build messages of one stream; the row is the sequence plus 100."""
    seq, sent, idle = (
        np.arange(first, first + count),
        np.zeros(count, np.int64),
        np.zeros(count, np.int64),
    )
    column = np.full(count, stream, np.int32)
    return Burst(
        row=seq + 100,
        stream=column,
        seq=seq,
        intended=seq * 10,
        payload=np.zeros(count, np.uint16),
        sent=sent,
        idle=idle,
    )


def test_null_driver_answers_when_its_latency_has_passed():
    """Acks and copies have the time sent + latency and come in the order of these times; each makes room in the window."""
    clock = FakeClock(1000)
    driver = null_driver(clock, window=4, latency=lambda seq: 100 - 10 * seq)
    assert driver.open_consumers([0]).tolist() == [0]
    driver.open_producers([3])
    messages = burst(6, stream=3)
    assert driver.send(messages).tolist() == [4, 5]
    assert messages.sent.tolist() == [1000] * 4 + [0, 0]
    assert (driver.send(burst(1, 4, stream=3)).tolist(), driver.acks(), driver.take()) == (
        [0],
        None,
        None,
    )
    driver.poll(85)
    acks, received = driver.acks(), driver.take()
    assert acks.row.tolist() == [103, 102]
    assert acks.time.tolist() == received.time.tolist() == [1070, 1080]
    assert acks.status.tolist() == [Status.ACKED] * 2
    heads = envelope.decode_heads(received.heads, received.size, 7)
    assert (heads.seq.tolist(), heads.stream.tolist(), heads.intended.tolist()) == (
        [3, 2],
        [3, 3],
        [30, 20],
    )
    younger = burst(6, 4, stream=3)
    assert driver.send(younger).tolist() == [2, 3, 4, 5]
    driver.poll(15)
    assert driver.acks().row.tolist() == [101, 100]
    driver.poll(45)
    assert driver.acks().time.tolist() == [1135, 1145]
    last = burst(2, 6, stream=3)
    assert (driver.send(last), last.idle.tolist(), younger.idle.tolist()) == (
        None,
        [1145, 0],
        [0] * 6,
    )


def test_null_driver_can_deliver_nothing():
    """With ``deliver=False`` messages are acked and not received."""
    driver = null_driver(FakeClock(), deliver=False)
    driver.open_consumers([0])
    driver.open_producers([0])
    assert driver.send(burst(5)) is None
    assert len(driver.acks().row) == 5
    assert driver.take() is None


@given(
    topics=st.integers(1, 4), subscriptions=st.integers(0, 3), consumers=st.integers(1, 3), leaving=st.sets(st.integers(0, 35)),
    streams=st.lists(st.integers(0, 7), max_size=30),
)  # fmt: skip
def test_null_driver_shares_streams_by_number(topics, subscriptions, consumers, leaving, streams):
    """Each subscription of the stream's topic gets a copy; the consumer with the number (stream modulo present consumers) receives it."""
    topology = Topology(
        topics=topics, partitions=1, producers=8, subscriptions=subscriptions, consumers=consumers
    )
    driver = null_driver(FakeClock(), topology)
    places = driver.open_consumers(range(topology.all_consumers)).tolist()
    driver.detach([place for place in places if place in leaving])
    present = {}
    for place in set(places) - leaving:
        own = (topology.topic_of_consumer(place), topology.subscription_of_consumer(place))
        present.setdefault(own, []).append(place)
    wanted = []
    for seq, stream in enumerate(streams):
        served = [
            sorted(present.get((stream % topics, subscription), []))
            for subscription in range(subscriptions)
        ]
        wanted += [(members[stream % len(members)], stream, seq) for members in served if members]
    driver.send(replace(burst(len(streams)), stream=np.array(streams, np.int32)))
    received = driver.take()
    if received is None:
        assert wanted == []
        return
    heads = envelope.decode_heads(received.heads, received.size, 7)
    assert sorted(
        zip(received.consumer.tolist(), heads.stream.tolist(), heads.seq.tolist(), strict=True)
    ) == sorted(wanted)


def test_null_driver_hands_over_messages_of_a_paused_consumer_that_leaves():
    """They get the time of the handover: when the consumer leaves, or when their latency has passed."""
    clock = FakeClock(1000)
    driver = null_driver(clock, latency=lambda seq: 10 * seq)
    first, second = driver.open_consumers(range(2)).tolist()
    driver.open_producers([0])
    driver.pause([first])
    driver.send(burst(4))
    driver.poll(15)
    driver.detach([first])
    driver.poll(15)
    received = driver.take()
    assert (received.consumer.tolist(), received.time.tolist()) == (
        [second] * 4,
        [1015, 1015, 1020, 1030],
    )
    driver.send(burst(1))
    assert driver.take().time.tolist() == [1030]


def test_a_detached_place_still_delivers():
    """If no other consumer is left, messages under way reach the one that left, each at its time."""
    clock = FakeClock(1000)
    driver = null_driver(clock, latency=lambda seq: 10 * seq)
    (place,) = driver.open_consumers([0]).tolist()
    driver.send(burst(3))
    driver.detach([place])
    driver.send(burst(1, 3))
    driver.close()
    driver.poll(50)
    received = driver.take()
    assert (received.consumer.tolist(), received.time.tolist()) == ([place] * 3, [1000, 1010, 1020])
