"""Counts and acknowledgements of consumers: damaged entries, closes by the broker, pauses, leaving."""

from __future__ import annotations

import pytest
from fake_pulsar import FakeBroker, answer, damaged, entry_of, refuse
from native_rig import acknowledged, asked, entries, faulty, peer_of, seqs

from pytest_loadtest.drivers.pulsar.names import OUTPUT_BITS
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message import envelope
from pytest_loadtest.message.route import Route
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api


def test_close_acknowledges_the_taken_messages(broker: FakeBroker) -> None:
    """So that they are not delivered to others."""
    bodies = entries(broker, 1)
    with faulty(broker, consumers=1, subscription_type="Shared") as r:
        peer_of(broker).deliver(0, bodies[0], 7)
        r.until(lambda: r.received, "received")
        r.driver.close()
        r.driver.close()
    end = peer_of(broker)
    broker.close()
    assert end.gone and acknowledged(broker) == [7]


@pytest.mark.parametrize("size", [64, 20])
def test_an_entry_with_a_wrong_crc_counts_once_as_corrupt(broker: FakeBroker, size: int) -> None:
    """It is acknowledged, so that it is not delivered again; other entries are unaffected."""
    bodies = entries(broker, 3, size=size)
    with faulty(broker, consumers=1, size=size, subscription_type="Shared") as r:
        for entry, body in enumerate([bodies[0], damaged(bodies[1]), bodies[2]]):
            peer_of(broker).deliver(0, body, entry)
        r.until(lambda: len(r.column("size")) == 3, "received")
        assert r.heads.kind.tolist() == [envelope.OURS, envelope.CORRUPT, envelope.OURS]
        assert [
            seq
            for seq, kind in zip(seqs(r), r.heads.kind.tolist(), strict=True)
            if kind == envelope.OURS
        ] == [0, 2]
        r.clock.advance(SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert acknowledged(broker) == [0, 1, 2]


METADATA = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)


@pytest.mark.parametrize(
    "change",
    [
        {"num_messages_in_batch": 3},
        {"num_messages_in_batch": -3},
        {"num_messages_in_batch": 2**31 - 1},
        {"compression": 1, "uncompressed_size": 100},
        {"compression": 77},
    ],
    ids=str,
)
def test_an_unreadable_entry_counts_once_as_corrupt(
    broker: FakeBroker, change: dict[str, int]
) -> None:
    """Its CRC matches, but its metadata are contradictory; the next entry is read."""
    bodies = entries(broker, 1)
    wrong = api.MessageMetadata()
    wrong.CopyFrom(METADATA)
    for name, value in change.items():
        setattr(wrong, name, value)
    with faulty(broker, consumers=1) as r:
        peer_of(broker).deliver(0, entry_of(wrong, b"\xff" * 40), 0)
        peer_of(broker).deliver(0, bodies[0], 1)
        r.until(lambda: len(r.column("size")) == 2, "received")
        assert r.heads.kind.tolist() == [envelope.CORRUPT, envelope.OURS]


def test_a_marker_is_no_message(broker: FakeBroker) -> None:
    """Transactions and replication leave markers in a topic; they are acknowledged and not counted."""
    marker = api.MessageMetadata()
    marker.CopyFrom(METADATA)
    marker.marker_type = 20
    with faulty(broker, consumers=1, subscription_type="Shared") as r:
        peer_of(broker).deliver(0, entry_of(marker, b"x"), 0)
        peer_of(broker).deliver(0, entry_of(METADATA, b"theirs" * 9), 1, redelivery_count=2)
        r.until(lambda: r.received, "received")
        assert (r.heads.kind.tolist(), r.column("size"), r.column("flags")) == (
            [envelope.FOREIGN],
            [54],
            [Flag.REDELIVERED],
        )
        r.clock.advance(SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert acknowledged(broker) == [0, 1]


def test_an_entry_for_a_consumer_that_left_is_ignored(broker: FakeBroker) -> None:
    """It was sent before the broker knew."""
    bodies = entries(broker, 2)
    with faulty(broker, consumers=2) as r:
        r.driver.detach([0])
        r.until(lambda: broker.of("CLOSE_CONSUMER"), "closed")
        peer_of(broker).deliver(0, bodies[0])
        peer_of(broker).deliver(99, bodies[0])
        peer_of(broker).deliver(1, bodies[1])
        r.until(lambda: r.received, "received")
        assert (r.column("consumer"), seqs(r)) == ([1], [1])


def test_a_consumer_that_the_broker_closed_subscribes_again(broker: FakeBroker) -> None:
    """With a lookup, or at the broker that was named."""
    with FakeBroker() as other, faulty(broker, consumers=1, receiver_queue_size=10) as r:
        r.until(lambda: broker.of("FLOW"), "permits")
        broker.peers[0].tell("CLOSE_CONSUMER", consumer_id=0, request_id=1)
        r.until(lambda: len(broker.of("FLOW")) == 2, "there again", step=MILLISECOND)
        assert (len(broker.of("LOOKUP")), len(broker.of("SUBSCRIBE")), len(broker.peers)) == (
            2,
            2,
            1,
        )
        broker.peers[0].tell(
            "CLOSE_CONSUMER", consumer_id=0, request_id=1, assigned_broker_service_url=other.url
        )
        r.until(lambda: other.of("FLOW"), "at the other")
        assert (len(broker.of("LOOKUP")), other.of("LOOKUP"), asked(other)) == (2, [], [10])
        assert r.driver.disconnected() is None


def test_waiting_messages_of_a_lost_connection_count_once(broker: FakeBroker) -> None:
    """The broker delivers them again."""
    bodies = entries(broker, 2)
    with faulty(broker, consumers=1) as r:
        r.driver.pause([0])
        peer_of(broker).deliver(0, bodies[0], 0)
        peer_of(broker).tell("PING")
        r.until(lambda: broker.of("PONG"), "read")
        peer_of(broker).drop()
        r.until(lambda: len(broker.of("FLOW")) == 2, "there again", step=MILLISECOND)
        for entry, body in enumerate(bodies):
            peer_of(broker).deliver(0, body, entry, redelivery_count=1)
        peer_of(broker).tell("PING")
        r.until(lambda: len(broker.of("PONG")) == 2, "read")
        assert not r.received and not broker.of("ACK")
        r.driver.resume([0])
        r.until(lambda: len(r.column("size")) == 2, "received")
        assert seqs(r) == [0, 1]


def test_a_resumed_consumer_hands_over_in_order_of_arrival(broker: FakeBroker) -> None:
    """Not partition by partition, or topic by topic: delayed messages would seem to be out of order."""
    bodies = entries(broker, 8)
    with faulty(broker, consumers=1, route=Route(input="in", output=("yes", "no"))) as r:
        r.driver.pause([0])
        outputs = [1, 0, 0, 1, 0, 1, 1, 0]
        for entry, output in enumerate(outputs):
            peer_of(broker).deliver(output, bodies[entry], entry)
        peer_of(broker).tell("PING")
        r.until(lambda: broker.of("PONG"), "read")
        assert not r.received
        r.driver.resume([0])
        r.until(lambda: len(r.column("size")) == 8, "received")
        assert seqs(r) == list(range(8))
        assert [group >> OUTPUT_BITS for group in r.column("order")] == outputs


def test_a_consumer_that_one_partition_rejects_leaves_the_others() -> None:
    """Otherwise the broker would keep messages for it there."""
    with (
        FakeBroker(partitions=3) as broker,
        faulty(broker, consumers=1, name="persistent://a/b/c", subscription_type="Failover") as r,
    ):
        broker.once["SUBSCRIBE"] += [answer, refuse(api.AuthorizationError, "not you"), answer]
        r.driver.attach([1])
        with pytest.raises(
            TargetError,
            match=r"consumer 1 \(topic 0, subscription 0\) cannot connect to \S+: AuthorizationError: not you",
        ):
            r.until(lambda: r.driver.attached() is not None, "attached")
        r.until(lambda: len(broker.of("CLOSE_CONSUMER")) == 2, "closed")
        assert sorted(closed.consumer_id for closed in broker.of("CLOSE_CONSUMER")) == [3, 5]
        assert r.driver.attached() is None and r.driver.disconnected() is None


def test_a_consumer_of_several_outputs_numbers_their_messages(broker: FakeBroker) -> None:
    """It subscribes to each of them under one name; order is judged for each."""
    bodies = entries(broker, 3)
    route = Route(input="in", output=("yes", "no"))
    with faulty(broker, consumers=1, route=route) as r:
        subscribed = broker.of("SUBSCRIBE")
        assert [command.topic.rpartition("/")[2] for command in subscribed] == ["yes", "no"]
        assert len({command.subscription for command in subscribed}) == 1
        for entry, output in enumerate((0, 1, 0)):
            peer_of(broker).deliver(output, bodies[entry], entry)
        r.until(lambda: len(r.column("size")) == 3, "received")
        assert r.column("consumer") == [0, 0, 0]
        assert [group >> OUTPUT_BITS for group in r.column("order")] == [0, 1, 0]
