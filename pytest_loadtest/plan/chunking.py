"""What messages in chunks need of the generator's memory (PIP-37: buffers × producers, and × consumers)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology


class ChunkBuffers(NamedTuple):
    """:param largest: bytes of the largest message. :param chunks: that it has, of the broker's default limit or the profile's.
    :param producers: each has one such message in the making: it is put together and cut as a whole.
    :param incomplete: messages that all consumers together may have incomplete.
    """

    largest: int
    chunks: int
    producers: int
    incomplete: int

    @property
    def sending(self) -> int:
        """Bytes of one message of each producer."""
        return self.producers * self.largest

    @property
    def receiving(self) -> int:
        """Bytes of all that may be incomplete, each as good as whole."""
        return self.incomplete * self.largest


def chunk_buffers(profile: Profile, topology: Topology, largest: int) -> ChunkBuffers | None:
    """None where no message is sent in chunks. :param largest: bytes of the largest payload.

    A producer has one message incomplete at a partition at a time, so that a consumer has no more than producers send to it.
    """
    incomplete_each, most = profile.driver.incomplete_messages, profile.max_piece
    if incomplete_each is None or largest <= most:
        return None
    each = min(incomplete_each, topology.producers)
    incomplete = topology.all_consumers * topology.partitions * each
    return ChunkBuffers(largest=largest, chunks=-(-largest // most), producers=topology.streams, incomplete=incomplete)


# How many messages share a batch: what a client that works by the batch costs depends on it.


def expected_batch(profile: Profile, topology: Topology, size: float, rate: float) -> float:
    """Mean number of messages in a batch.

    :param size: mean bytes of a message. :param rate: msg/s of all streams together.
    :returns: at least 1, which it is without batches, for drivers that have none, and for delayed messages, which no client batches.
    """
    if not topology.streams or profile.delays is not None:
        return 1.0
    return profile.driver.batch(rate / topology.streams, topology.partitions, size, keyed=profile.key_distributor != "NO_KEY")
