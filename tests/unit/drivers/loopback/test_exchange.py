"""Routing of messages in the relay, compared with a definition for one message at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.batch import Batch, HeldCopies, pick
from pytest_loadtest.drivers.loopback.exchange import (
    CONSUMER_DTYPE,
    Exchange,
    SubscriptionTable,
    consumer_key,
)
from pytest_loadtest.drivers.loopback.faults import Faults
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Decoder, Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPICS = st.sampled_from(
    [0, 1, 2, 5, 1 << 32, (1 << 32) + 1, (3 << 32) + 0xFFFF_FFFF]
)  # close together and far apart
CONSUMERS = st.lists(
    st.tuples(TOPICS, st.sampled_from([0, 1, 7, 0xFFFF_FFFF]), st.integers(0, 5)), max_size=20
)
MESSAGES = st.lists(st.tuples(TOPICS, st.integers(0, 9)), max_size=20)


def consumers_of(consumers: list[tuple[int, int, int]], connection: int = 0) -> Any:
    """Make consumers from (topic, subscription, consumer); their places count from 0."""
    made = np.zeros(len(consumers), CONSUMER_DTYPE)
    for name, column in zip(
        ("topic", "subscription", "consumer"), zip(*consumers, strict=True), strict=False
    ):
        made[name] = column
    made["key"] = consumer_key(connection, np.arange(len(consumers)))
    return made


def definition(
    consumers: dict[int, tuple[int, int, int]], messages: list[tuple[int, int]]
) -> dict[int, list[int]]:
    """Return the messages that the consumer at each place gets, in order."""
    delivered: dict[int, list[int]] = {}
    for number, (topic, stream) in enumerate(messages):
        for subscription in sorted(
            {consumer[1] for consumer in consumers.values() if consumer[0] == topic}
        ):
            sharing = sorted(
                (consumer[2], place)
                for place, consumer in consumers.items()
                if consumer[:2] == (topic, subscription)
            )
            delivered.setdefault(sharing[stream % len(sharing)][1], []).append(number)
    return delivered


def routed(
    consumers: SubscriptionTable, messages: list[tuple[int, int]], only: list[int] | None = None
) -> dict[int, list[int]]:
    """Return the messages that the table routes to the consumer at each place, in order."""
    topic, stream = np.array(messages, np.int64).reshape(-1, 2).T
    message, row = consumers.route(
        topic, stream, None if only is None else np.array(only, np.uint32)
    )
    delivered: dict[int, list[int]] = {}
    for number, place in zip(
        pick(np.arange(len(messages)), message).tolist(), consumers.place[row].tolist(), strict=True
    ):
        delivered.setdefault(place, []).append(number)
    return delivered


@given(CONSUMERS, MESSAGES)
def test_each_subscription_gets_each_message_at_one_consumer(consumers, messages):
    """For any topics, subscriptions and consumers, added in any order; each consumer gets its messages in order."""
    present = SubscriptionTable()
    present.add(consumers_of(consumers[:5]))
    made = consumers_of(consumers)[5:]
    present.add(made)
    assert routed(present, messages) == definition(dict(enumerate(consumers)), messages)


@given(CONSUMERS, MESSAGES, st.sets(st.integers(0, 19)))
def test_the_remaining_consumers_share_the_messages_of_one_that_left(consumers, messages, leaving):
    """The result is the same as if it had never subscribed."""
    present = SubscriptionTable()
    present.add(consumers_of(consumers))
    routed(present, messages)
    left = present.leave(consumer_key(0, np.array(sorted(leaving), np.int32)))
    assert sorted(left["key"].tolist()) == sorted(
        place for place in leaving if place < len(consumers)
    )
    stayed = {place: consumer for place, consumer in enumerate(consumers) if place not in leaving}
    assert routed(present, messages) == definition(stayed, messages)


@given(CONSUMERS, MESSAGES, st.sampled_from([0, 1, 7, 0xFFFF_FFFF]))
def test_messages_for_one_subscription_go_to_no_other(consumers, messages, subscription):
    present = SubscriptionTable()
    present.add(consumers_of(consumers))
    own = {
        place: consumer for place, consumer in enumerate(consumers) if consumer[1] == subscription
    }
    assert routed(present, messages, [subscription] * len(messages)) == definition(own, messages)


def test_a_consumer_is_identified_by_connection_and_place():
    """The same place on two connections is two consumers; one can be paused and found without the other."""
    present = SubscriptionTable()
    for connection in (3, 2):
        present.add(consumers_of([(0, 0, connection), (1, 0, connection)], connection))
    keys = consumer_key(3, np.array([1, 0], np.int32))
    rows = present.rows(keys)
    assert (present.connection[rows].tolist(), present.place[rows].tolist()) == ([3, 3], [1, 0])
    present.pause(keys[:1], True)
    assert present.paused[present.rows(keys)].tolist() == [True, False]
    present.pause(keys, False)
    assert not present.paused[present.rows(keys)].any()
    assert sorted(present.of_connection(2).tolist()) == consumer_key(2, np.array([0, 1])).tolist()


def test_twenty_thousand_topics_are_found():
    """By lookup table and by search: one distant topic makes the table too long."""
    for far in ([], [(1 << 40, 0, 0)]):
        present = SubscriptionTable()
        present.add(consumers_of([*((topic, 0, 0) for topic in range(20_000)), *far]))
        topic = np.random.default_rng(1).permutation(20_000)
        message, row = present.route(topic, topic)
        assert message is None
        assert np.array_equal(present.place[row], topic)


def batch(first: int, count: int, size: int = 3) -> Batch:
    seq = np.arange(first, first + count)
    return Batch(
        seq, seq, seq, np.full(count, size, np.int32), np.repeat(seq, size).astype(np.uint8)
    )


@pytest.mark.parametrize("size", [3, 40_000], ids=["joined", "apart"])
def test_held_messages_are_returned_in_order_and_once(size):
    """Each consumer gets its own messages in order of arrival; those of the others go on waiting."""
    held = HeldCopies()
    for first in range(0, 12, 3):
        held.add(batch(first, 3, size), np.array([7, 8, 7]))
    assert [part.seq.tolist() for part, _ in held.take(np.array([9]))] == []
    taken = held.take(np.array([7]))
    assert np.concatenate([part.seq for part, _ in taken]).tolist() == [0, 2, 3, 5, 6, 8, 9, 11]
    assert b"".join(part.payload.tobytes() for part, _ in taken) == b"".join(
        bytes([n]) * size for n in [0, 2, 3, 5, 6, 8, 9, 11]
    )
    assert all((keys == 7).all() for _, keys in taken)
    rest = held.take(np.array([7, 8]))
    assert np.concatenate([part.seq for part, _ in rest]).tolist() == [1, 4, 7, 10]
    assert held.take(np.array([7, 8])) == []


def test_delayed_messages_are_acknowledged_at_once_and_delivered_when_they_are_due() -> None:
    """By the wall clock, each at its time and in the order of these times; other messages are delivered at once."""
    posted: list[tuple[int, Frame]] = []

    def post(client: int, buffers: Sequence[bytes | memoryview]) -> None:
        posted.append((client, one_frame(b"".join(buffers))))

    wall = 10**18
    exchange = Exchange(Faults(), post, wall)
    exchange.handle_frame(
        1,
        one_frame(
            b"".join(
                frames.encode_frame(
                    Kind.SUBSCRIBE,
                    columns(topic=[0], subscription=[0], consumer=[0], place=[0]),
                    run=1,
                )
            )
        ),
        0,
    )
    due = [(wall + 30 * MILLISECOND) // MILLISECOND, 0, (wall + 20 * MILLISECOND) // MILLISECOND]
    produced = columns(seq=[0, 1, 2], due=due, stream=[0, 0, 0], size=[1, 1, 1])
    exchange.handle_frame(
        2,
        one_frame(
            b"".join(
                frames.encode_frame(
                    Kind.PRODUCE_LATER, produced, run=1, topics=1, payloads=[b"abc"]
                )
            )
        ),
        5,
    )
    bodies = dict[int, bytes]()
    for now in (5, 19 * MILLISECOND, 20 * MILLISECOND, 29 * MILLISECOND, 30 * MILLISECOND):
        posted.clear()
        exchange.release(now)
        bodies[now // MILLISECOND] = b"".join(
            bytes(frame.payload) for _, frame in posted if frame.kind is Kind.DELIVER
        )
        assert sum(frame.n for _, frame in posted if frame.kind is Kind.ACK) == (
            3 if now == 5 else 0
        )
    assert bodies == {0: b"b", 19: b"", 20: b"c", 29: b"", 30: b"a"}
    assert exchange.next_due() is None


def test_an_undelayed_message_follows_messages_that_were_due_before_it_arrived() -> None:
    """The relay looked late: three messages are due, and an undelayed one arrived after that."""
    posted: list[tuple[int, Frame]] = []
    exchange = Exchange(
        Faults(), lambda client, buffers: posted.append((client, one_frame(b"".join(buffers))))
    )
    exchange.handle_frame(
        1,
        one_frame(
            b"".join(
                frames.encode_frame(
                    Kind.SUBSCRIBE,
                    columns(topic=[0], subscription=[0], consumer=[0], place=[0]),
                    run=1,
                )
            )
        ),
        0,
    )
    for seq, due, body, now in (
        (0, 20, b"a", 1),
        (1, 20, b"b", 2),
        (2, 30, b"c", 3),
        (3, 0, b"d", 25),
    ):
        produced = columns(seq=[seq], due=[due], stream=[0], size=[1])
        later = frames.encode_frame(Kind.PRODUCE_LATER, produced, run=1, topics=1, payloads=[body])
        exchange.handle_frame(2, one_frame(b"".join(later)), now * MILLISECOND)
    exchange.release(40 * MILLISECOND)
    assert (
        b"".join(bytes(frame.payload) for _, frame in posted if frame.kind is Kind.DELIVER)
        == b"abdc"
    )


def columns(**lists: list[int]) -> dict[str, Any]:
    return {name: np.array(values, np.int64) for name, values in lists.items()}


def one_frame(data: bytes) -> Frame:
    decoder = Decoder()
    decoder.space()[: len(data)] = data
    (frame,) = decoder.filled(len(data))
    return frame


def test_a_tap_gets_what_the_service_is_sent_and_consumers_what_it_sends() -> None:
    """The service loses every second input, and takes 25 ms; the tap of another run gets nothing."""
    posted: list[tuple[int, Frame]] = []
    faults = Faults(service_lose=2, service_slow=1, service_threads=9)
    exchange = Exchange(
        faults, lambda client, buffers: posted.append((client, one_frame(b"".join(buffers))))
    )
    for client, subscription, run in ((1, 0, 1), (2, frames.TAP, 1), (3, frames.TAP, 2)):
        consumer = columns(topic=[0], subscription=[subscription], consumer=[0], place=[0])
        subscribe = frames.encode_frame(Kind.SUBSCRIBE, consumer, run=run)
        exchange.handle_frame(client, one_frame(b"".join(subscribe)), 0)
    produced = columns(seq=[0, 1], stream=[0, 0], size=[1, 1])

    def delivered(now: int) -> list[tuple[int, bytes]]:
        posted.clear()
        exchange.release(now)
        return [
            (client, bytes(frame.payload)) for client, frame in posted if frame.kind is Kind.DELIVER
        ]

    def produce(now: int) -> None:
        frame = frames.encode_frame(Kind.PRODUCE, produced, run=1, topics=1, payloads=[b"ab"])
        exchange.handle_frame(4, one_frame(b"".join(frame)), now)

    produce(0)
    assert delivered(0) == [(2, b"ab")]
    assert delivered(25 * MILLISECOND) == [(1, b"a")]
    exchange.disconnect(2)
    produce(30 * MILLISECOND)
    assert delivered(30 * MILLISECOND) == []
    assert delivered(55 * MILLISECOND) == [(1, b"a")]
