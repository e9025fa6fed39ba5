"""Who sends and receives what: topics, producers and consumers, by number.

Numbers, not names: only a driver knows how a topic or a subscription is called at its broker. The one name is that of a topic that
exists without the run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic of the run by its index.

    :param partitions: as the run makes it; of an existing topic the driver asks the broker.
    :param name: of an existing topic, as its broker spells it: used as it is, never made and never deleted. None: the driver derives the
        name from the index and the run.
    """

    index: int
    partitions: int = 1
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """One producer: the number of its stream and its topic."""

    stream: int
    topic: TopicSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """One consumer: its index in the run, its topic and its subscription (index within the topic)."""

    index: int
    topic: TopicSpec
    subscription: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How many of each a workload has; ``producers`` and ``subscriptions`` per topic, ``consumers`` per subscription.

    :param name: of the one topic, where it exists without the run.
    """

    topics: int
    partitions: int
    producers: int
    subscriptions: int
    consumers: int
    name: str | None = None

    def topic_specs(self) -> tuple[TopicSpec, ...]:
        return tuple(TopicSpec(index=i, partitions=self.partitions, name=self.name) for i in range(self.topics))

    def producer_specs(self) -> tuple[ProducerSpec, ...]:
        """Streams dealt over the topics in turn: stream ``s`` belongs to topic ``s mod topics``."""
        topics = self.topic_specs()
        return tuple(ProducerSpec(stream=s, topic=topics[s % self.topics]) for s in range(self.streams))

    def consumer_specs(self) -> tuple[ConsumerSpec, ...]:
        places = [
            (topic, subscription)
            for topic in self.topic_specs()
            for subscription in range(self.subscriptions)
            for _ in range(self.consumers)
        ]
        return tuple(ConsumerSpec(index=i, topic=topic, subscription=sub) for i, (topic, sub) in enumerate(places))

    @property
    def streams(self) -> int:
        return self.topics * self.producers

    @property
    def partition_handles(self) -> int:
        """Partition producers and partition consumers that the clients hold: one per partition each."""
        return self.topics * self.partitions * (self.producers + self.subscriptions * self.consumers)
