"""Messages sent through pulsar-client: windows, memory, answers."""

from __future__ import annotations

from typing import Any

import _pulsar
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulsar_library_rig import FULL, ROW, NullProducer, burst, context, producer_on, taken

from pytest_loadtest.drivers.pulsar.library.producers import PulsarProducers
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing.rig import FakeClock


def test_a_full_window_refuses_messages_until_answers_arrive() -> None:
    """Three of five are sent, none while it is full, the rest after the answers; it is idle since the last answer."""
    client, clock = NullProducer(), FakeClock(10)
    producers = producer_on(client, 3, clock=clock)
    first = burst(5)
    refused = producers.send(first)
    assert refused is not None and (refused.tolist(), refused.dtype) == ([3, 4], np.int64)
    assert (first.sent.tolist(), first.idle.tolist(), taken(producers, burst(2, 3))) == (
        [10, 10, 10, 0, 0],
        [0] * 5,
        0,
    )
    clock.now = 20
    client.answer(3)
    acks = producers.acks()
    assert acks is not None
    assert [acks.row.tolist(), acks.time.tolist(), acks.status.tolist()] == [
        [ROW, ROW + 1, ROW + 2],
        [20] * 3,
        [Status.ACKED] * 3,
    ]
    assert [c.dtype for c in (acks.row, acks.time, acks.status)] == [np.int64, np.int64, np.int8]
    assert acks.resends is None
    second = burst(2, 3)
    assert (producers.acks(), producers.send(second), second.idle.tolist()) == (None, None, [20, 0])


def test_a_full_stream_does_not_hold_up_others() -> None:
    """A suffix of each stream is refused; each stream has its own producer and idle time."""
    clients, clock = {stream: NullProducer() for stream in (1, 3, 5)}, FakeClock(10)
    producers = PulsarProducers(
        list(clients.values()), list(clients), context(clock=clock), window=2, memory=None
    )
    refused = producers.send(burst(7, streams=(5, 1)))
    assert refused is not None and refused.tolist() == [4, 5, 6]
    assert [len(client.pending) for client in clients.values()] == [2, 0, 2]
    for clock.now, stream in ((20, 5), (30, 1), (40, 1)):
        clients[stream].answer(1)
    second = burst(6, first=7, streams=(5, 3, 1))
    refused = producers.send(second)
    assert refused is not None and refused.tolist() == [3]
    assert second.idle.tolist() == [0, 0, 40, 0, 0, 0], (
        "5 is not empty, 3 never had anything, 1 ran empty at 40"
    )
    acks = producers.acks()
    assert acks is not None
    assert (acks.row - ROW).tolist() == [0, 1, 3]


def test_a_stream_is_idle_since_its_latest_answer() -> None:
    """Threads of several partitions may append their answers in another order than that of their times."""
    client, clock = NullProducer(), FakeClock(10)
    producers = producer_on(client, 2, clock=clock)
    producers.send(burst(2))
    for clock.now in (30, 20):
        client.answer(1)
    assert producers.acks() is not None
    second = burst(1, 2)
    producers.send(second)
    assert second.idle.tolist() == [30]


def test_answers_belong_to_their_message_in_any_order() -> None:
    """The client's answers do not name the message: each callback belongs to one."""
    client = NullProducer()
    producers = producer_on(client, None)
    producers.send(burst(3))
    client.answer(1, FULL, newest_first=True)
    client.answer(2)
    acks = producers.acks()
    assert acks is not None
    assert dict(zip((acks.row - ROW).tolist(), acks.status.tolist(), strict=True)) == {
        2: Status.FAILED,
        0: Status.ACKED,
        1: Status.ACKED,
    }


def test_messages_have_envelope_and_key() -> None:
    client = NullProducer()
    producer_on(client, None).send(burst(2, first=40, key=12))
    datas = [message.data() for message, _ in client.pending]
    fronts = np.frombuffer(b"".join(data[:32] for data in datas), np.uint8).reshape(2, 32)
    heads = envelope.decode_heads(fronts, np.full(2, 64, np.int32), 7)
    assert (heads.kind.tolist(), heads.stream.tolist()) == ([envelope.OURS] * 2, [3, 3])
    assert (heads.seq.tolist(), heads.intended.tolist()) == ([40, 41], [140, 141])
    assert [message.partition_key() for message, _ in client.pending] == ["key-12", "key-12"]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=30),
    st.integers(1, 8),
)
def test_every_message_in_flight_is_counted_once(
    steps: list[tuple[int, int, bool]], window: int
) -> None:
    """In any sequence of sends, answers and calls of acks()."""
    client = NullProducer()
    producers = producer_on(client, window)
    sent, seen = 0, []
    for send, answer, look in steps:
        room = window - len(client.pending)
        found = taken(producers, burst(send, sent))
        assert found == min(send, room)
        sent += found
        client.answer(answer)
        if look and (acks := producers.acks()) is not None:
            seen += (acks.row - ROW).tolist()
    client.answer(window)
    if (acks := producers.acks()) is not None:
        seen += (acks.row - ROW).tolist()
    assert seen == list(range(sent))


SIZES = (20, 40, 150)
"""Bytes of the payloads of a pool."""


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 8), st.integers(0, 8)),
        max_size=30,
    )
)
def test_memory_is_limited_and_freed_with_the_answers(
    steps: list[tuple[int, int, int, int]],
) -> None:
    """Two streams share 100 bytes."""
    limit, clients = 100, (NullProducer(), NullProducer())
    buckets = [payloads.Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in SIZES]
    pool = payloads.build_pool(
        buckets=buckets,
        message_size=None,
        randomized=False,
        random_ratio=0.0,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
    )
    producers = PulsarProducers(clients, range(2), context(pool=pool), window=None, memory=limit)

    def used() -> int:
        return sum(len(message.data()) for client in clients for message, _ in client.pending)

    for who, payload, wanted, back in steps:
        before = used()
        found = taken(producers, burst(wanted, streams=(who,), payload=payload))
        assert used() == before + found * SIZES[payload]
        assert found == wanted or used() >= limit
        assert found == 0 or used() - SIZES[payload] < limit
        clients[who].answer(back)
    for client in clients:
        client.answer(100)
    assert taken(producers, burst(9, streams=(0,), payload=1)) == 3


def test_messages_beyond_the_memory_wait_or_fail() -> None:
    """They wait under blockIfQueueFull, and fail without it."""
    client = NullProducer()
    producers = producer_on(client, None, 150)
    assert [taken(producers, burst(5)), taken(producers, burst(2, 3))] == [3, 0]
    client.answer(3)
    assert taken(producers, burst(2, 3)) == 2
    settings = PulsarSettings(block_if_queue_full=False)
    producers = producer_on(client := NullProducer(), None, 150, settings=settings)
    assert taken(producers, burst(5)) == 5
    client.answer(3)
    acks = producers.acks()
    assert acks is not None
    assert dict(zip((acks.row - ROW).tolist(), acks.status.tolist(), strict=True)) == dict.fromkeys(
        (3, 4), Status.FAILED
    ) | dict.fromkeys(range(3), Status.ACKED)
    assert (producers.acks(), taken(producers, burst(3, 5)), len(client.pending)) == (None, 3, 3)


def test_each_answer_frees_the_memory_of_its_message() -> None:
    """Though other messages of the burst are still in flight."""
    client = NullProducer()
    producers = producer_on(client, None, 150)
    assert taken(producers, burst(5)) == 3
    client.answer(1)
    assert taken(producers, burst(2, 3)) == 1


def test_a_closed_producer_is_named() -> None:
    """The client raises instead of answering, and the run ends."""

    class Closed:
        def send_async(self, message: Any, callback: object) -> None:
            raise _pulsar.PulsarException("AlreadyClosed")

    producers = PulsarProducers(
        [NullProducer(), Closed()], [3, 7], context(), window=None, memory=None
    )
    with pytest.raises(TargetError, match="producer of stream 7: AlreadyClosed"):
        producers.send(burst(2, streams=(3, 7)))
