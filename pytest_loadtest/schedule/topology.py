"""Who sends and receives what: topics, producers and consumers are numbers, and who belongs to what is arithmetic on them.

Nothing here grows with how many there are. Only a driver knows how a topic or a subscription is called at its broker; the one name is that
of a topic that exists without the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pytest_loadtest.message.samples import WIDTH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = TypeVar("Numbers", int, NDArray[np.integer[Any]])

MOST: Final = 20_000_000
"""Streams, and consumers, of one workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How many of each a workload has; ``producers`` and ``subscriptions`` per topic, ``consumers`` per subscription.

    Streams are dealt over the topics in turn; the consumers of a subscription are neighbours.

    :param partitions: of each topic as the run makes it; of an existing topic the driver asks the broker.
    :param name: of the one topic, as its broker spells it, where it exists without the run: used as it is, never made and never deleted.
    :param hashes: where each topic is to fall among the hashes of its broker; empty: anywhere.
    """

    topics: int
    partitions: int
    producers: int
    subscriptions: int
    consumers: int
    name: str | None = None
    hashes: tuple[int, ...] = ()

    @property
    def streams(self) -> int:
        """All producers: each has one stream."""
        return self.topics * self.producers

    @property
    def all_consumers(self) -> int:
        """Over all subscriptions of all topics."""
        return self.topics * self.subscriptions * self.consumers

    @property
    def clients(self) -> int:
        """Producers and consumers."""
        return self.streams + self.all_consumers

    @property
    def broadcasts(self) -> bool:
        """Whether each message goes to so many subscriptions, of one consumer each, that copies are recorded 64 to a row."""
        return self.subscriptions >= WIDTH and self.consumers == 1

    def topic_of_stream(self, stream: Numbers) -> Numbers:
        """Index of the topic that a stream, or each of a column of them, goes to."""
        return stream % self.topics

    def topic_of_consumer(self, consumer: Numbers) -> Numbers:
        """Index of the topic that a consumer, or each of a column of them, reads."""
        return consumer // (self.subscriptions * self.consumers)

    def subscription_of_consumer(self, consumer: Numbers) -> Numbers:
        """Index of the subscription, within its topic, that a consumer, or each of a column of them, belongs to."""
        return consumer // self.consumers % self.subscriptions

    @property
    def partition_handles(self) -> int:
        """Partition producers and partition consumers that the clients hold: one per partition each."""
        return self.topics * self.partitions * (self.producers + self.subscriptions * self.consumers)
