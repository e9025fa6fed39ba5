"""What a plan says of messages in chunks."""

from __future__ import annotations

import pytest

from pytest_loadtest import profile as profiles
from pytest_loadtest.plan.chunking import chunk_buffers
from pytest_loadtest.schedule.topology import Topology

TEXT = """\
name: x
producerRate: 1
testDuration: 1s
messageSize: 20MB
driver: {name: pulsar, chunkingEnabled: true, batchingEnabled: false}
"""
MB = 1024**2


@pytest.mark.parametrize(
    ("producers", "limit", "chunks", "incomplete"), [(4, "", 5, 3 * 2 * 4), (40, "", 5, 3 * 2 * 10), (4, "1048576", 21, 3 * 2 * 4)]
)
def test_buffers(producers: int, limit: str, chunks: int, incomplete: int) -> None:
    """A message for each producer; for each consumer at each partition as many as may be incomplete, or as there are producers."""
    text = TEXT + (f"broker: {{settings: {{maxMessageSize: {limit}}}}}\n" if limit else "")
    topology = Topology(topics=1, partitions=2, producers=producers, subscriptions=1, consumers=3, name=None)
    found = chunk_buffers(profiles.loads(text, "x.yaml"), topology, 20 * MB)
    assert found is not None
    assert (found.chunks, found.producers, found.incomplete) == (chunks, producers, incomplete)
    assert (found.sending, found.receiving) == (producers * 20 * MB, incomplete * 20 * MB)


def test_no_chunks() -> None:
    """Where messages are small enough, or chunks were not asked for."""
    topology = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1, name=None)
    assert chunk_buffers(profiles.loads(TEXT, "x.yaml"), topology, 5 * MB - 1024) is None
    plain = profiles.loads("name: x\nproducerRate: 1\ntestDuration: 1s\nmessageSize: 1KB\ndriver: {name: pulsar}\n", "x.yaml")
    assert chunk_buffers(plain, topology, 20 * MB) is None
