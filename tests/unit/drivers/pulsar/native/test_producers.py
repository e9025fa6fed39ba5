"""Entries that the broker rejects or does not answer, and the size of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_pulsar import FakeBroker, Seen, answer, nothing
from native_rig import faulty

from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Callable

ACKED, FAILED = Status.ACKED, Status.FAILED


@pytest.mark.parametrize("error", [api.NotAllowedError, api.ChecksumError])
def test_a_final_error_fails_its_entry_alone(broker: FakeBroker, error: int) -> None:
    broker.once["SEND"] += [
        answer,
        lambda seen: seen.peer.tell(
            "SEND_ERROR",
            producer_id=0,
            sequence_id=seen.said.sequence_id,
            error=error,
            message="no",
        ),
    ]
    with faulty(broker, streams=1) as r:
        r.send(3)
        r.until(lambda: len(r.answers()) == 3, "answered")
        assert r.answers() == [(0, ACKED, 0), (1, FAILED, 0), (2, ACKED, 0)]
        assert len(broker.peers) == 1


@pytest.mark.parametrize(
    "error", [api.PersistenceError, api.UnknownError, api.ProducerBlockedQuotaExceededError]
)
def test_any_other_error_ends_the_connection_and_the_entry_is_sent_again(
    broker: FakeBroker, error: int
) -> None:
    """The Java client reconnects the producer alone, this one all of the connection."""
    broker.once["SEND"] += [
        lambda seen: seen.peer.tell(
            "SEND_ERROR",
            producer_id=0,
            sequence_id=seen.said.sequence_id,
            error=error,
            message="disk",
        ),
        nothing,
    ]
    with faulty(broker, streams=1) as r:
        r.send(2)
        r.until(lambda: len(r.answers()) == 2, "answered", step=MILLISECOND)
        assert r.answers() == [(0, ACKED, 1), (1, ACKED, 1)]
        assert len(broker.peers) == 2


def sequences(broker: FakeBroker) -> list[int]:
    return [sent.sequence_id for sent in broker.of("SEND")]


def test_an_entry_without_an_answer_fails_after_the_send_timeout(broker: FakeBroker) -> None:
    """A late receipt is ignored, and it is not sent again."""
    held: list[Seen] = []
    broker.rules["SEND"] = held.append
    with faulty(broker, streams=1, send_timeout=5 * SECOND) as r:
        r.send(2)
        r.until(lambda: len(held) == 2, "sent")
        r.clock.advance(4 * SECOND)
        r.turn()
        assert not r.answers()
        r.send(1)
        r.clock.advance(2 * SECOND)
        r.until(lambda: len(r.answers()) == 2, "given up")
        r.until(lambda: len(held) == 3, "sent")
        for seen in held[:2]:
            answer(seen)
        broker.peers[0].drop()
        del broker.rules["SEND"]
        r.until(lambda: len(r.answers()) == 3, "answered", step=MILLISECOND)
        assert r.answers() == [(0, FAILED, 0), (1, FAILED, 0), (2, ACKED, 1)]
        assert sequences(broker) == [0, 1, 2, 2]


def test_a_failed_entry_leaves_the_window(broker: FakeBroker) -> None:
    broker.rules["SEND"] = nothing
    with faulty(broker, streams=1, send_timeout=5 * SECOND, max_pending_messages=2) as r:
        assert r.send(3) == [2]
        r.clock.advance(6 * SECOND)
        r.until(lambda: len(r.answers()) == 2, "given up")
        assert r.send(2) == []


@pytest.mark.parametrize("size", [20, 1000])
def test_batches_stay_below_the_brokers_limit(size: int) -> None:
    """With a batchingMaxBytes above maxMessageSize: the broker would close the connection for each larger entry."""
    with FakeBroker(max_message=8192) as broker:
        settings = {
            "batching_enabled": True,
            "batching_max_bytes": 1 << 20,
            "batching_max_messages": 0,
            "max_pending_messages": 5000,
        }
        with faulty(broker, streams=1, size=size, **settings) as r:
            r.send(2000)
            r.until(lambda: len(r.answers()) == 2000, "answered")
        assert max(len(seen.body) for seen in broker.seen if seen.kind == "SEND") <= 8192
        assert max(sent.num_messages for sent in broker.of("SEND")) > 2


HOUR = 3600 * SECOND  # of publish delay, which no test takes
BATCHED = {
    "batching_enabled": True,
    "batching_max_messages": 0,
    "batching_max_publish_delay_ms": HOUR // MILLISECOND,
}


def batches(broker: FakeBroker) -> list[int]:
    """Return the number of messages of each batch that the broker got."""
    return [sent.num_messages for sent in broker.of("SEND")]


def test_the_wait_for_a_tick_is_part_of_the_publish_delay(broker: FakeBroker) -> None:
    with faulty(broker, streams=1, **BATCHED) as r:
        r.send(1, intended=r.clock())
        r.turn()
        r.clock.advance(HOUR // 2)
        r.send(2, intended=r.clock())
        r.turn()
        assert not batches(broker)
        r.clock.advance(HOUR // 2)
        r.until(lambda: batches(broker) == [3], "sent after the delay of its oldest message")
        r.clock.advance(2 * HOUR)
        r.send(1, intended=r.clock() - HOUR)
        r.until(lambda: batches(broker) == [3, 1], "sent at once")


def test_a_message_that_was_due_at_an_earlier_call_waits_for_its_batch(broker: FakeBroker) -> None:
    """It had no room in its window until then. Otherwise each answer of a slow broker would make a batch of a few messages."""
    with faulty(broker, streams=1, **BATCHED) as r:
        r.send(1, intended=r.clock() - HOUR)
        r.until(lambda: batches(broker) == [1], "sent at once")
        r.clock.advance(SECOND)
        r.send(1, intended=r.clock() - HOUR)
        r.turn()
        assert batches(broker) == [1]
        r.clock.advance(HOUR)
        r.until(lambda: batches(broker) == [1, 1], "sent")


def final_error(sequence: int) -> Callable[[Seen], None]:
    """Return an action that rejects the message with this sequence id for good."""
    return lambda seen: seen.peer.tell(
        "SEND_ERROR",
        producer_id=0,
        sequence_id=sequence,
        error=api.NotAllowedError,
        message="no",
    )


def test_a_rejected_batch_is_found_by_its_highest_sequence_id(broker: FakeBroker) -> None:
    """Pulsar names that one; the batch fails at once, and the next one is unaffected."""
    broker.once["SEND"].append(final_error(4))
    with faulty(broker, streams=1, batching_enabled=True) as r:
        r.send(5)
        r.until(lambda: len(r.answers()) == 5, "rejected")
        r.send(2)
        r.until(lambda: len(r.answers()) == 7, "acknowledged")
        statuses = [FAILED] * 5 + [ACKED] * 2
        assert r.answers() == [(number, status, 0) for number, status in enumerate(statuses)]
        assert batches(broker) == [5, 2]
        assert len(broker.peers) == 1


def test_a_rejection_may_overtake_the_receipts_of_earlier_entries(broker: FakeBroker) -> None:
    """The broker rejects an entry at once, and stores those before it first."""
    stored: list[Seen] = []

    def store_later(seen: Seen) -> None:
        stored.append(seen)
        if seen.said.sequence_id == 3:
            for earlier in stored:
                answer(earlier)

    broker.once["SEND"] += [store_later, store_later, final_error(2), store_later]
    with faulty(broker, streams=1) as r:
        r.send(4)
        r.until(lambda: len(r.answers()) == 4, "answered")
        assert r.answers() == [(2, FAILED, 0), (0, ACKED, 0), (1, ACKED, 0), (3, ACKED, 0)]
        assert sequences(broker) == [0, 1, 2, 3]
        assert len(broker.peers) == 1


@pytest.mark.parametrize("rejected", [0, 1, 2])
def test_a_message_fails_with_any_of_its_chunks(rejected: int) -> None:
    """No consumer can assemble it. The receipts of its other chunks belong to no entry."""
    with FakeBroker(max_message=2048) as broker:
        rules = [answer, answer, answer]
        rules[rejected] = final_error(0)
        broker.once["SEND"] += rules
        with faulty(broker, streams=1, size=3000, chunking_enabled=True) as r:
            r.send(1)
            r.until(r.answers, "answered")
            r.send(1)
            r.until(lambda: len(r.answers()) == 2, "the next answered")
            assert r.answers() == [(0, FAILED, 0), (1, ACKED, 0)]
            assert len(broker.of("SEND")) == 6
            assert len(broker.peers) == 1


@pytest.mark.parametrize("blocks", [True, False])
def test_a_full_partition_holds_the_others_back_only_where_messages_wait(blocks: bool) -> None:
    """Where they fail, those for other partitions are sent, as in Pulsar's own clients."""
    with FakeBroker(partitions=2) as broker:
        broker.rules["SEND"] = lambda seen: None if seen.said.producer_id else answer(seen)
        settings = {"block_if_queue_full": blocks, "max_pending_messages": 2}
        with faulty(broker, streams=1, name="persistent://public/default/t", **settings) as r:
            r.send(4)
            r.until(lambda: len(r.answers()) == 2, "answered")
            assert r.send(4) == ([1, 2, 3] if blocks else [])
            r.until(lambda: len(r.answers()) == (3 if blocks else 6), "answered")
            failed = [number for number, status, _ in r.answers() if status == FAILED]
            assert failed == ([] if blocks else [5, 7])
