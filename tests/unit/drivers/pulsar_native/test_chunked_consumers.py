"""What a consumer acknowledges, and asks for again, of messages in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fake_pulsar import FakeBroker, Peer, entry_of
from native_rig import Faulty, faulty

from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


def peer_of(broker: FakeBroker) -> Peer:
    return [seen.peer for seen in broker.seen if seen.kind == "SUBSCRIBE"][-1]


def deliver(broker: FakeBroker, chunk: str, entry: int, **fields: Any) -> None:
    """``a0``: the first of three chunks of 20 bytes of message a, which is nobody's of this run."""
    metadata = api.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=2**42, uuid=chunk[0], chunk_id=int(chunk[1]), num_chunks_from_msg=3,
        total_chunk_msg_size=60,
    )  # fmt: skip
    peer_of(broker).deliver(0, entry_of(metadata, bytes(20)), entry, **fields)


def acknowledged(broker: FakeBroker) -> list[int]:
    return [where.entry_id for ack in broker.of("ACK") for where in ack.message_id]


def read(r: Faulty, broker: FakeBroker, permits: int) -> None:
    """Until so many entries were taken, of a queue of 2."""
    r.until(lambda: sum(flow.message_permits for flow in broker.of("FLOW")) == permits + 2, "read")


SETTINGS: dict[str, Any] = {"chunking_enabled": True, "max_pending_chunked_message": 1, "receiver_queue_size": 2}


@pytest.mark.parametrize("kind", ["Shared", "Failover"])
def test_a_whole_message_is_acknowledged_chunk_by_chunk(broker: FakeBroker, kind: str) -> None:
    """When it is whole, and not before; every chunk gives its permit back."""
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


def test_what_was_given_up_is_asked_for_by_itself(broker: FakeBroker) -> None:
    """On a Shared subscription, after unackedMessagesTimeout."""
    with faulty(broker, consumers=1, subscription_type="Shared", unacked_messages_timeout=SECOND, **SETTINGS) as r:
        deliver(broker, "a0", 5)
        deliver(broker, "b0", 6)
        read(r, broker, 2)
        assert not broker.of("REDELIVER_UNACKNOWLEDGED")
        r.clock.advance(2 * SECOND)
        r.until(lambda: broker.of("REDELIVER_UNACKNOWLEDGED"), "asked for")
        (asked,) = broker.of("REDELIVER_UNACKNOWLEDGED")
        assert [where.entry_id for where in asked.message_ids] == [5]
        assert not asked.HasField("consumer_epoch")


def test_a_sole_consumer_is_sent_everything_again(broker: FakeBroker) -> None:
    """What was on its way by then is known by an earlier epoch, and left: it comes once more. The next subscription has the epoch too."""
    with faulty(broker, consumers=1, subscription_type="Failover", unacked_messages_timeout=SECOND, **SETTINGS) as r:
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


def test_what_nobody_completes_is_acknowledged(broker: FakeBroker) -> None:
    """When it has expired, though nothing else comes."""
    with faulty(broker, consumers=1, expire_time_of_incomplete_chunked_message=5 * SECOND, **SETTINGS) as r:
        deliver(broker, "a0", 5)
        deliver(broker, "a1", 6)
        read(r, broker, 2)
        r.clock.advance(6 * SECOND)
        r.until(lambda: broker.of("ACK"), "acknowledged")
        assert acknowledged(broker) == [5, 6]
