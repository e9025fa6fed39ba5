"""Topics, producers and consumers as numbers, with arithmetic for their relations, and the share of
each worker: streams in round robin, consumers in round robin from the last worker back.

The controller assigns shares while it plans; workers and drivers get theirs, and calculate with it.
The size of these objects does not depend on the number of clients. Names of topics and
subscriptions at the broker are up to the driver; the only name here is that of an existing topic.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.message.streams import Streams

    Numbers = TypeVar("Numbers", int, NDArray[np.integer[Any]])
    from collections.abc import Iterator


MOST: Final = 20_000_000
"""The most streams, and the most consumers, of one workload."""


def scaled_count(count: int, factor: float) -> int:
    """Return ``factor`` of a number, but at least 1 if it is above 0."""
    return max(round(count * factor), min(1, count))


@record
class Topology:
    """The numbers of a workload; ``producers`` and ``subscriptions`` per topic, ``consumers`` per
    subscription.

    Streams are assigned to topics in round robin; the consumers of a subscription have consecutive
    numbers.

    :param partitions: of each topic that the run creates; those of an existing topic are known to
        the broker.
    :param name: the broker's name of the only topic, if it is an existing one, which the run never
        creates or deletes.
    :param hashes: the hash that each topic is to have at its broker; empty: any.
    :param outputs: the messages that a service under test sends for each that it gets; without one
        the broker delivers the message itself.
    :param selective: the service chooses which messages have an output.
    :param tapped: one more consumer of the run reads each input of the service.
    """

    topics: int
    partitions: int
    producers: int
    subscriptions: int
    consumers: int
    name: str | None = None
    hashes: tuple[int, ...] = ()
    outputs: int = 1
    selective: bool = False
    tapped: bool = False

    @property
    def fan_out(self) -> int:
        """The number of deliveries that are due for each message, over all subscriptions; the most
        that can be due, if a service chooses.
        """
        return self.subscriptions * self.outputs

    @property
    def reads(self) -> int:
        """The number of messages that the run reads for each that it sends."""
        return self.fan_out + self.tapped

    @property
    def taps(self) -> int:
        """The number of consumers that read inputs of a service: one for each topic, or none."""
        return self.topics if self.tapped else 0

    @property
    def streams(self) -> int:
        """The number of all streams: one for each producer."""
        return self.topics * self.producers

    @property
    def consumers_of_topic(self) -> int:
        """The number of consumers of all subscriptions of one topic."""
        return self.subscriptions * self.consumers

    @property
    def all_consumers(self) -> int:
        """The number of consumers of all subscriptions of all topics."""
        return self.topics * self.consumers_of_topic

    @property
    def clients(self) -> int:
        """The number of producers and consumers."""
        return self.streams + self.all_consumers

    @property
    def broadcasts(self) -> bool:
        """True if topics have so many subscriptions, of one consumer each, that copies are recorded
        64 to a row.
        """
        return self.subscriptions >= WIDTH and self.consumers == 1

    def topic_of_stream(self, stream: Numbers) -> Numbers:
        """Return the index of the topic of a stream, or of each stream of a column."""
        return stream % self.topics

    def topic_of_consumer(self, consumer: Numbers) -> Numbers:
        """Return the index of the topic that a consumer, or each consumer of a column, reads."""
        return consumer // self.consumers_of_topic

    def subscription_of_consumer(self, consumer: Numbers) -> Numbers:
        """Return the index, within the topic, of the subscription of a consumer, or of each
        consumer of a column.
        """
        return consumer // self.consumers % self.subscriptions

    @property
    def partition_handles(self) -> int:
        """The number of partition producers and partition consumers: each client has one per
        partition.
        """
        return self.topics * self.partitions * (self.producers + self.consumers_of_topic)


@record
class BroadcastShare:
    """One worker's consumers of a broadcast, chosen so that a message has at most ``workers - 1``
    more rows than on one worker.

    The subscriptions of a broadcast row stay together. Whole rows of all topics are assigned in
    round robin as long as every worker gets one, which spreads each topic. Of the remaining
    subscriptions each worker gets the same number of neighbours.

    :param topics: number of topics, with ``subscriptions`` of one consumer each.
    :param place: position among ``workers``, from 0.
    """

    topics: int
    subscriptions: int
    workers: int
    place: int

    def __len__(self) -> int:
        return self._rounds * WIDTH + len(self._left)

    def __iter__(self) -> Iterator[int]:
        """Yield the consumers' indexes in the run, ascending."""
        # (rounds, 64): the rows 1 and 4 of three workers are the numbers 64 … 127 and 256 … 319
        rows = np.arange(self._rounds) * self.workers + self.place
        whole = rows[:, None] * WIDTH + np.arange(WIDTH)
        left = np.array(self._left, np.int64)  # an empty range would make floats
        numbers = np.append(whole, left)
        return iter(np.sort(self._consumers(numbers)).tolist())

    @property
    def _whole(self) -> int:
        """The number of subscriptions of a topic that fill whole rows."""
        return self.subscriptions // WIDTH * WIDTH

    @property
    def _rounds(self) -> int:
        return self.topics * self._whole // WIDTH // self.workers

    @property
    def _left(self) -> range:
        """The worker's part of the other subscriptions, as numbers in the order of assignment."""
        dealt = self._rounds * self.workers * WIDTH
        left = self.topics * self.subscriptions - dealt
        first = left * self.place // self.workers
        end = left * (self.place + 1) // self.workers
        return range(dealt + first, dealt + end)

    def _consumers(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return consumers by their number in the order of assignment, where the whole rows of all
        topics are first.
        """
        whole = self._whole
        topic, subscription = np.divmod(number, whole)
        last = topic >= self.topics
        if last.any():
            behind = number[last] - self.topics * whole
            topic[last], subscription[last] = np.divmod(behind, self.subscriptions - whole)
            subscription[last] += whole
        return topic * self.subscriptions + subscription


@record
class Assignment:
    """One worker's share: the numbers of its streams (each of one producer) and of its consumers,
    both ascending.
    """

    streams: Streams
    consumers: range | NDArray[np.int64] | BroadcastShare


def assign(topology: Topology, workers: int) -> tuple[Assignment, ...]:
    """Return the share of each worker: streams in round robin from the first worker on, consumers
    from the last one back.

    The opposite directions balance workers when there are few of both. No worker has two more of
    either than another.
    """
    assignments = []
    for rank in range(workers):
        place = workers - 1 - rank
        consumers: range | BroadcastShare = range(place, topology.all_consumers, workers)
        if topology.broadcasts:
            consumers = BroadcastShare(
                topics=topology.topics,
                subscriptions=topology.subscriptions,
                workers=workers,
                place=place,
            )
        streams = range(rank, topology.streams, workers)
        assignments.append(Assignment(streams=streams, consumers=consumers))
    return tuple(assignments)


def rows_of_broadcast(topology: Topology, workers: int) -> float:
    """Return the rows of one message to a topic, on the average of all topics.

    An upper bound: a cut between workers may split no row.
    """
    return math.ceil(topology.subscriptions / WIDTH) + (workers - 1) / topology.topics
