"""Who sends and receives what: topics, producers and consumers are numbers, and who belongs to what is arithmetic on them.

Nothing here grows with how many there are. Only a driver knows how a topic or a subscription is called at its broker; the one name is that
of a topic that exists without the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from pytest_loadtest.message.samples import WIDTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = TypeVar("Numbers", int, NDArray[np.integer[Any]])
    from collections.abc import Iterator


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


# Which worker has which streams and consumers. A share is a few numbers, however many it is of.


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastShare:
    """One worker's consumers of a broadcast. A message has hardly more rows than it would have on one worker: at most ``workers - 1``.

    The subscriptions of a broadcast row stay together: whole rows of all topics are dealt in turn as long as every worker gets one, so that
    each topic is spread. Of the rows that are left, and of what is no whole row, each worker gets as many neighbours as any other.

    :param topics: with ``subscriptions`` of one consumer each. :param place: of ``workers``, from 0.
    """

    topics: int
    subscriptions: int
    workers: int
    place: int

    def __len__(self) -> int:
        return self._rounds * WIDTH + len(self._left)

    def __iter__(self) -> Iterator[int]:
        """Indexes in the run, ascending."""
        rows = np.arange(self._rounds) * self.workers + self.place
        numbers = np.append(rows[:, None] * WIDTH + np.arange(WIDTH), np.array(self._left, np.int64))  # an empty range is of floats
        return iter(np.sort(self._consumers(numbers)).tolist())

    @property
    def _whole(self) -> int:
        """Subscriptions of a topic that fill rows."""
        return self.subscriptions // WIDTH * WIDTH

    @property
    def _rounds(self) -> int:
        return self.topics * self._whole // WIDTH // self.workers

    @property
    def _left(self) -> range:
        """Numbers in the order of dealing."""
        dealt = self._rounds * self.workers * WIDTH
        left = self.topics * self.subscriptions - dealt
        return range(dealt + left * self.place // self.workers, dealt + left * (self.place + 1) // self.workers)

    def _consumers(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Consumers by their number in the order of dealing: the whole rows of every topic come first."""
        whole, rest = self._whole, self.subscriptions - self._whole
        topic, subscription = np.divmod(number, whole)
        last = topic >= self.topics
        if last.any():
            topic[last], subscription[last] = np.divmod(number[last] - self.topics * whole, rest)
            subscription[last] += whole
        consumers: NDArray[np.int64] = topic * self.subscriptions + subscription
        return consumers


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One worker's share: numbers of streams, which are those of their producers, and of consumers."""

    streams: range
    consumers: range | BroadcastShare


def assign(topology: Topology, workers: int) -> tuple[Assignment, ...]:
    """Producers dealt from the first worker on, consumers from the last one back, so that few of each land apart.

    No worker has two more of either than another.
    """
    streams, consumers = range(topology.streams), range(topology.all_consumers)

    def consumers_of(place: int) -> range | BroadcastShare:
        if not topology.broadcasts:
            return consumers[place::workers]
        return BroadcastShare(topics=topology.topics, subscriptions=topology.subscriptions, workers=workers, place=place)

    return tuple(Assignment(streams=streams[rank::workers], consumers=consumers_of(workers - 1 - rank)) for rank in range(workers))


def rows_of_broadcast(topology: Topology, workers: int) -> float:
    """Of one message to a topic, on the average of all topics; at most, as a cut between two workers may fall between two rows."""
    return math.ceil(topology.subscriptions / WIDTH) + (workers - 1) / topology.topics
