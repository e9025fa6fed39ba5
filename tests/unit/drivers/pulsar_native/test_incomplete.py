"""What becomes of messages of which chunks are missing, by the keys of the profile."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.drivers.pulsar.native.partition_consumer import ChunkedMessages
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.values.quantities import MINUTE, SECOND
from pytest_loadtest.wire.pulsar import api_pb2 as api

WALL = 1_700_000_000 * SECOND


class Held:
    """Messages of three chunks each, of which two may be incomplete."""

    def __init__(self, **settings: Any) -> None:
        self.chunks: ChunkedMessages[str] = ChunkedMessages(
            PulsarSettings(chunking_enabled=True, max_pending_chunked_message=2, **settings)
        )

    def add(self, *names: str, now: int = 0, published: int = WALL) -> list[str]:
        """Chunks by message and number: ``a0``; those that became whole messages."""
        whole: list[str] = []
        for name in names:
            metadata = api.MessageMetadata(
                producer_name="p", sequence_id=1, publish_time=published // 1_000_000, uuid=name[0], chunk_id=int(name[1]),
                num_chunks_from_msg=3, total_chunk_msg_size=3,
            )  # fmt: skip
            found = self.chunks.add(metadata, memoryview(b"x"), name, now, WALL)
            whole += [] if found is None else found.where
        return whole


def test_one_too_many_is_left() -> None:
    """It is neither acknowledged nor asked for, and its other chunks neither; the others become whole."""
    held = Held()
    assert held.add("a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2") == ["b0", "b1", "b2", "c0", "c1", "c2"]
    assert held.chunks.look(9 * SECOND) == held.chunks.to_ack == []
    assert not held.chunks.waits


def test_one_too_many_comes_again() -> None:
    """After unackedMessagesTimeout, with the chunks that came after it; then it is whole."""
    held = Held(unacked_messages_timeout=SECOND)
    held.add("a0", "b0", "c0", "a1", now=5)
    assert held.chunks.look(SECOND + 4) == []
    assert held.chunks.waits
    assert held.chunks.look(SECOND + 5) == ["a0", "a1"]
    held.add("b1", "b2", "a0", now=SECOND + 6)
    assert held.add("a1", "a2", now=SECOND + 7) == ["a0", "a1", "a2"]
    assert held.chunks.look(9 * SECOND) == held.chunks.to_ack == []


def test_what_came_again_by_itself_is_not_asked_for() -> None:
    """A chunk that is here again waits for nothing."""
    held = Held(unacked_messages_timeout=SECOND)
    held.add("a0", "b0", "c0", "c1", "c2", "a0", now=5)
    assert held.chunks.look(2 * SECOND) == []


def test_one_too_many_is_acknowledged() -> None:
    """With autoAckOldestChunkedMessageOnQueueFull: the chunks that came; those that come later have no first and are left."""
    held = Held(auto_ack_oldest_chunked_message_on_queue_full=True)
    held.add("a0", "a1", "b0", "c0", "a2")
    assert held.chunks.to_ack == ["a0", "a1"]


def test_a_message_that_nobody_completes() -> None:
    """It is acknowledged when its time is over."""
    held = Held(expire_time_of_incomplete_chunked_message=SECOND)
    held.add("a0", "a1", now=5)
    held.chunks.look(SECOND + 5)
    assert held.chunks.to_ack == []
    held.chunks.look(SECOND + 6)
    assert held.chunks.to_ack == ["a0", "a1"]
    assert not held.chunks.waits


@pytest.mark.parametrize(("age", "acked"), [(MINUTE, []), (MINUTE + SECOND, ["a1"])])
def test_a_late_chunk_without_those_before_it(age: int, acked: list[str]) -> None:
    """Published longer ago than an incomplete message lives, it is acknowledged: what came before it has expired."""
    held = Held()
    held.add("a1", published=WALL - age)
    assert held.chunks.to_ack == acked


def test_published_twice() -> None:
    """The chunks of the first time are acknowledged, for those of the second make the message."""
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
