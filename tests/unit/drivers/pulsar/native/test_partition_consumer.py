"""Permits, acknowledgements and redelivery requests of one consumer at one partition, and incomplete messages in chunks."""

from __future__ import annotations

from typing import Any

import pytest
from fake_pulsar import FakeBroker, entry_of
from native_rig import Faulty, acknowledged, asked, entries, faulty, peer_of, seqs

from pytest_loadtest.drivers.pulsar.native.partition_consumer import ChunkedMessages
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.values.quantities import MILLISECOND, MINUTE, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api


def test_permits_never_exceed_the_queue(broker: FakeBroker) -> None:
    """The broker may send receiverQueueSize messages ahead, and one more for each that was taken."""
    bodies = entries(broker, 100)
    with faulty(broker, consumers=1, receiver_queue_size=10) as r:
        sent = 0
        while sent < 100:
            r.until(lambda: sum(asked(broker)) > sent, "permits")  # noqa: B023
            assert sum(asked(broker)) - len(r.column("size")) <= 10
            peer_of(broker).deliver(0, bodies[sent], sent)
            sent += 1
            r.until(lambda: len(r.column("size")) == sent, "received")  # noqa: B023
        assert seqs(r) == list(range(100))
        assert asked(broker)[:3] == [10, 5, 5]


def test_only_pending_messages_of_a_batch_take_permits(broker: FakeBroker) -> None:
    """The broker counts only these (``Consumer.sendMessages`` of Pulsar 4)."""
    bodies = entries(broker, 2, batch=10)
    with faulty(broker, consumers=1, receiver_queue_size=10) as r:
        r.until(lambda: asked(broker), "permits")
        for entry, ack_set in enumerate((0b10_0000_0101, 0b11)):
            peer_of(broker).deliver(0, bodies[entry], entry, ack_set=[ack_set])
        r.until(lambda: len(r.column("size")) == 5 and len(asked(broker)) > 1, "received")
        assert seqs(r) == [0, 2, 9, 10, 11]
        assert asked(broker) == [10, 5]
        r.clock.advance(SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert acknowledged(broker) == [1]  # of the whole entry, and of all before it


@pytest.mark.parametrize("where", [-1, 12])
def test_a_damaged_batch_gives_its_permits_back(where: int, broker: FakeBroker) -> None:
    """The broker charged one for each of its messages: kept, they would be missing until the consumer gets nothing any more.

    :param where: of the damage: in the last payload, or in the metadata, whose number of messages may then be wrong.
    """
    bodies = entries(broker, 4, batch=10)
    with faulty(broker, consumers=1, receiver_queue_size=20) as r:
        r.until(lambda: asked(broker), "permits")
        for entry, body in enumerate(bodies):
            changed = bytearray(body)
            changed[where] ^= 1
            peer_of(broker).deliver(0, bytes(changed), entry)
        r.until(lambda: len(r.column("size")) == 4, "received")
        r.clock.advance(SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert asked(broker) == [20, 10, 10, 10, 10]


def test_partitions_share_the_queue_of_their_consumer() -> None:
    """maxTotalReceiverQueueSizeAcrossPartitions, in equal parts."""
    settings = {
        "receiver_queue_size": 10,
        "max_total_receiver_queue_size_across_partitions": 12,
        "name": "persistent://a/b/c",
    }
    with FakeBroker(partitions=3) as broker, faulty(broker, consumers=1, **settings) as r:
        r.until(lambda: len(asked(broker)) == 3, "permits")
        assert asked(broker) == [4, 4, 4]


@pytest.mark.parametrize(
    ("kind", "wanted"), [("Shared", [0, 1, 2, 3]), ("Failover", [3]), ("Exclusive", [3])]
)
def test_a_sole_consumer_acknowledges_cumulatively(
    broker: FakeBroker, kind: str, wanted: list[int]
) -> None:
    """On a shared subscription each entry is acknowledged."""
    bodies = entries(broker, 4)
    with faulty(broker, consumers=1, subscription_type=kind) as r:
        for entry, body in enumerate(bodies):
            peer_of(broker).deliver(0, body, entry)
        r.until(lambda: len(r.column("size")) == 4, "received")
        r.clock.advance(SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert acknowledged(broker) == wanted


def test_a_lost_connection_loses_no_acknowledgement(broker: FakeBroker) -> None:
    """They are sent on the next connection before the first permit: otherwise the messages would be delivered twice."""
    bodies = entries(broker, 2)
    with faulty(broker, consumers=1, subscription_type="Shared") as r:
        for entry, body in enumerate(bodies):
            peer_of(broker).deliver(0, body, entry)
        r.until(lambda: len(r.column("size")) == 2, "received")
        assert not broker.of("ACK")
        peer_of(broker).drop()
        r.until(lambda: len(broker.of("FLOW")) == 2, "there again", step=MILLISECOND)
        kinds = [seen.kind for seen in broker.seen if seen.kind in ("SUBSCRIBE", "ACK", "FLOW")]
        assert kinds == ["SUBSCRIBE", "FLOW", "SUBSCRIBE", "ACK", "FLOW"]
        assert acknowledged(broker) == [0, 1]


def deliver(broker: FakeBroker, chunk: str, entry: int, **fields: Any) -> None:
    """Deliver a chunk of 20 bytes: ``a0`` is the first of three of message a, a foreign one."""
    metadata = api.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2**42, uuid=chunk[0], chunk_id=int(chunk[1]), num_chunks_from_msg=3,
        total_chunk_msg_size=60,
    )  # fmt: skip
    peer_of(broker).deliver(0, entry_of(metadata, bytes(20)), entry, **fields)


def read(r: Faulty, broker: FakeBroker, permits: int) -> None:
    """Wait until so many entries were taken, with a queue of 2."""
    r.until(lambda: sum(flow.message_permits for flow in broker.of("FLOW")) == permits + 2, "read")


SETTINGS: dict[str, Any] = {
    "chunking_enabled": True,
    "max_pending_chunked_message": 1,
    "receiver_queue_size": 2,
}


@pytest.mark.parametrize("kind", ["Shared", "Failover"])
def test_the_chunks_of_a_message_are_acknowledged_when_it_is_whole(
    broker: FakeBroker, kind: str
) -> None:
    """Every chunk gives its permit back at once."""
    with faulty(broker, consumers=1, subscription_type=kind, **SETTINGS) as r:
        for number in range(2):
            deliver(broker, f"a{number}", number)
        read(r, broker, 2)
        r.clock.advance(SECOND)
        r.turn()
        assert acknowledged(broker) == [] and not r.received
        deliver(broker, "a2", 2)
        r.until(lambda: r.received, "received")
        r.clock.advance(SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert acknowledged(broker) == [0, 1, 2]
        assert r.column("size") == [60]


def test_chunks_that_were_given_up_are_requested_again(broker: FakeBroker) -> None:
    """On a Shared subscription only these, after unackedMessagesTimeout."""
    with faulty(
        broker, consumers=1, subscription_type="Shared", unacked_messages_timeout=SECOND, **SETTINGS
    ) as r:
        deliver(broker, "a0", 5)
        deliver(broker, "b0", 6)
        read(r, broker, 2)
        assert not broker.of("REDELIVER_UNACKNOWLEDGED")
        r.clock.advance(2 * SECOND)
        r.until(lambda: broker.of("REDELIVER_UNACKNOWLEDGED"), "asked for")
        (asked,) = broker.of("REDELIVER_UNACKNOWLEDGED")
        assert [where.entry_id for where in asked.message_ids] == [5]
        assert not asked.HasField("consumer_epoch")


def test_a_sole_consumer_requests_everything_again(broker: FakeBroker) -> None:
    """Entries that were already sent have an earlier epoch and are ignored. The next subscription has the epoch too."""
    with faulty(
        broker,
        consumers=1,
        subscription_type="Failover",
        unacked_messages_timeout=SECOND,
        **SETTINGS,
    ) as r:
        deliver(broker, "a0", 5)
        deliver(broker, "b0", 6)
        read(r, broker, 2)
        r.clock.advance(2 * SECOND)
        r.until(lambda: broker.of("REDELIVER_UNACKNOWLEDGED"), "asked for")
        (asked,) = broker.of("REDELIVER_UNACKNOWLEDGED")
        assert (asked.consumer_epoch, len(asked.message_ids)) == (1, 0)
        for number, epoch in ((1, 0), (2, 0), (0, 1), (1, 1), (2, 1)):
            deliver(broker, f"b{number}", 6 + number, consumer_epoch=epoch)
        r.until(lambda: r.received, "received")
        assert r.column("size") == [60]
        peer_of(broker).drop()
        r.until(lambda: len(broker.of("SUBSCRIBE")) == 2, "there again", step=SECOND // 100)
        assert [one.consumer_epoch for one in broker.of("SUBSCRIBE")] == [0, 1]


def test_a_message_that_stays_incomplete_is_acknowledged(broker: FakeBroker) -> None:
    """When it has expired, without any further entry."""
    with faulty(
        broker, consumers=1, expire_time_of_incomplete_chunked_message=5 * SECOND, **SETTINGS
    ) as r:
        deliver(broker, "a0", 5)
        deliver(broker, "a1", 6)
        read(r, broker, 2)
        r.clock.advance(6 * SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert acknowledged(broker) == [5, 6]


WALL = 1_700_000_000 * SECOND


class Held:
    """Messages of three chunks each, two of which may be incomplete."""

    def __init__(self, **settings: Any) -> None:
        self.chunks: ChunkedMessages[str] = ChunkedMessages(
            PulsarSettings(chunking_enabled=True, max_pending_chunked_message=2, **settings)
        )

    def add(self, *names: str, now: int = 0, published: int = WALL) -> list[str]:
        """Add chunks by message and number (``a0``), and return those of whole messages."""
        whole: list[str] = []
        for name in names:
            metadata = api.MessageMetadata(
                producer_name="p", sequence_id=1, publish_time=published // 1_000_000, uuid=name[0], chunk_id=int(name[1]),
                num_chunks_from_msg=3, total_chunk_msg_size=3,
            )  # fmt: skip
            found = self.chunks.add(metadata, memoryview(b"x"), name, now, WALL)
            whole += [] if found is None else found.where
        return whole


def test_the_oldest_of_too_many_messages_stays_unacknowledged() -> None:
    """None of its chunks is requested again; the others become whole."""
    held = Held()
    assert held.add("a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2") == [
        "b0",
        "b1",
        "b2",
        "c0",
        "c1",
        "c2",
    ]
    assert held.chunks.look(9 * SECOND) == held.chunks.to_ack == []
    assert not held.chunks.waits


def test_the_oldest_of_too_many_messages_is_requested_again() -> None:
    """After unackedMessagesTimeout, with its later chunks; then it becomes whole."""
    held = Held(unacked_messages_timeout=SECOND)
    held.add("a0", "b0", "c0", "a1", now=5)
    assert held.chunks.look(SECOND + 4) == []
    assert held.chunks.waits
    assert held.chunks.look(SECOND + 5) == ["a0", "a1"]
    held.add("b1", "b2", "a0", now=SECOND + 6)
    assert held.add("a1", "a2", now=SECOND + 7) == ["a0", "a1", "a2"]
    assert held.chunks.look(9 * SECOND) == held.chunks.to_ack == []


def test_a_chunk_that_was_delivered_again_is_not_requested() -> None:
    held = Held(unacked_messages_timeout=SECOND)
    held.add("a0", "b0", "c0", "c1", "c2", "a0", now=5)
    assert held.chunks.look(2 * SECOND) == []


def test_the_oldest_of_too_many_messages_may_be_acknowledged() -> None:
    """With autoAckOldestChunkedMessageOnQueueFull; its later chunks have no first one and stay unacknowledged."""
    held = Held(auto_ack_oldest_chunked_message_on_queue_full=True)
    held.add("a0", "a1", "b0", "c0", "a2")
    assert held.chunks.to_ack == ["a0", "a1"]


def test_an_expired_message_is_acknowledged() -> None:
    held = Held(expire_time_of_incomplete_chunked_message=SECOND)
    held.add("a0", "a1", now=5)
    held.chunks.look(SECOND + 5)
    assert held.chunks.to_ack == []
    held.chunks.look(SECOND + 6)
    assert held.chunks.to_ack == ["a0", "a1"]
    assert not held.chunks.waits


@pytest.mark.parametrize(("age", "acked"), [(MINUTE, []), (MINUTE + SECOND, ["a1"])])
def test_an_old_chunk_without_those_before_it_is_acknowledged(age: int, acked: list[str]) -> None:
    """If it was published longer ago than an incomplete message may live: those before it have expired."""
    held = Held()
    held.add("a1", published=WALL - age)
    assert held.chunks.to_ack == acked


def test_the_first_copy_of_a_message_published_twice_is_acknowledged() -> None:
    """The chunks of the second copy make the message."""
    held = Held()
    held.add("a0", "a1")
    for name in ("A0", "A1"):
        metadata = api.MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=WALL // 1_000_000, uuid="a", chunk_id=int(name[1]), num_chunks_from_msg=2,
            total_chunk_msg_size=2,
        )  # fmt: skip
        whole = held.chunks.add(metadata, memoryview(b"x"), name, 0, WALL)
    assert whole is not None and whole.where == ["A0", "A1"]
    assert held.chunks.to_ack == ["a0", "a1"]
