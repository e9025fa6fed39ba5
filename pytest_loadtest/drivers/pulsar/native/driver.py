"""The driver on Pulsar's wire protocol.

See :class:`~pytest_loadtest.drivers.base.Driver` for the contract of each method.

It names, creates and deletes topics as the library driver does
(:mod:`~pytest_loadtest.drivers.pulsar.names`).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.pulsar.auth import credentials, tls_context
from pytest_loadtest.drivers.pulsar.connect_errors import credentials_remedy, explain_connect_error
from pytest_loadtest.drivers.pulsar.names import RunNames
from pytest_loadtest.drivers.pulsar.native import client
from pytest_loadtest.drivers.pulsar.native.cluster import ON_THEIR_WAY, Cluster
from pytest_loadtest.drivers.pulsar.native.consumers import NativeConsumers
from pytest_loadtest.drivers.pulsar.native.partition_producer import PartitionProducer
from pytest_loadtest.drivers.pulsar.native.producers import NativeProducers
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import (
        Acks,
        Burst,
        DriverContext,
        DriverFacts,
        Joined,
        Received,
        TopicNames,
    )
    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings

# Bytes below the broker's limit that are reserved for the
# metadata of an entry, which the limit includes.
_HEADROOM: Final = 1024


class NativePulsarDriver:
    """The producers and consumers of one worker at one Pulsar cluster.

    :raises UsageError: this client cannot apply a key, and the profile has ``strictTuning``.
    """

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._arrivals = ArrivalClock(context.clock)
        self._settings: PulsarSettings = context.settings
        self._names = RunNames(context)
        self._partitioned = context.topology.partitions > 1
        self._not_applied = client.native_unapplied_keys(self._settings, context, self._names)
        self._cluster: Cluster | None = None
        self._producers: NativeProducers | None = None
        self._consumers: NativeConsumers | None = None

    def facts(self) -> DriverFacts:
        """Return the settings applied and not applied.

        Once messages were sent, also the sizes of their batches.
        """
        batches = self._producers.batches if self._producers else None
        facts = client.native_facts(self._settings, self._names, self._not_applied, batches)
        return replace(facts, stamps=self._arrivals.source, unstamped=self._arrivals.unusable)

    def prepare(self) -> None:
        """See :meth:`~pytest_loadtest.drivers.pulsar.names.RunNames.prepare`."""
        self._names.prepare()

    def topic_names(self) -> TopicNames:
        return self._names.topic_names()

    # --- connecting

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        if not len(consumers):
            return np.empty(0, np.int32)
        with self._explained():
            own = self._own_consumers()
            begun = own.begin(consumers)
            self._connected().wait(
                "subscribing", lambda: all(one.established or one.failure for one in begun)
            )
            return own.welcome(begun).place

    def open_producers(self, streams: Sequence[int]) -> None:
        """Connect a producer of each stream to each partition of its topic.

        :raises UsageError: a payload exceeds the broker's limit.
        """
        if not len(streams):
            return
        with self._explained():
            self._open_producers(sorted(streams))

    def _open_producers(self, streams: Sequence[int]) -> None:
        cluster = self._connected()
        topology = self._context.topology
        self._look_up_partitions(cluster)
        parts: list[PartitionProducer] = []
        for stream in streams:
            for topic in self._topics(self._names.topic(topology.topic_of_stream(stream))):
                parts.append(
                    PartitionProducer(cluster, topic, len(parts), f"producer of stream {stream}")
                )
        self._producers = NativeProducers(
            cluster,
            parts,
            streams,
            self._context,
            client.partition_window(self._settings, self._names.partitions),
        )
        cluster.on_receipt = self._producers.receipt
        cluster.on_error = self._producers.error
        for part in parts:
            part.open()
        cluster.wait("connecting producers", lambda: all(part.link is not None for part in parts))
        if cluster.max_message <= _HEADROOM:
            raise TargetError(
                f"the broker takes messages of {cluster.max_message} B (maxMessageSize): raise it"
                f" above {_HEADROOM} B there"
            )
        self._producers.bound(cluster.max_message - _HEADROOM)
        largest = int(self._context.pool.sizes.max())
        if largest + _HEADROOM > cluster.max_message and not self._settings.chunking_enabled:
            raise UsageError(
                f"payloads of up to {largest} B: the broker takes messages of"
                f" {cluster.max_message} B (maxMessageSize), less {_HEADROOM} B "
                "for their metadata: send smaller ones, raise maxMessageSize at the broker, or"
                " write chunkingEnabled: true"
            )

    def attach(self, consumers: Sequence[int]) -> None:
        if len(consumers):
            self._own_consumers().begin(consumers)

    def attached(self) -> Joined | None:
        return self._consumers.attached() if self._consumers else None

    def detach(self, places: Sequence[int]) -> None:
        if self._consumers:
            self._consumers.detach(places)

    def pause(self, places: Sequence[int]) -> None:
        """Keep messages waiting; ``receiverQueueSize`` bounds what the broker still sends."""
        if self._consumers:
            self._consumers.pause(places)

    def resume(self, places: Sequence[int]) -> None:
        if self._consumers:
            self._consumers.resume(places)

    # --- messages

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Take the messages that fit into the windows and ``clientMemoryLimitMB``.

        They are sent with their batches.
        """
        assert self._producers, "send() before open_producers()"
        return self._producers.send(burst)

    def acks(self) -> Acks | None:
        return self._producers.acks() if self._producers else None

    def take(self) -> Received | None:
        return self._consumers.take() if self._consumers else None

    def poll(self, timeout_ns: int) -> None:
        cluster = self._connected()
        clock = self._context.clock
        end = clock() + timeout_ns
        while True:
            now = clock()
            cluster.turn(max(self._serve(now, end) - now, 0))
            if self._producers is not None and self._producers.may_have_room:
                return
            if clock() >= end:
                return

    def _serve(self, now: int, end: int) -> int:
        """Do what is due. :returns: when to do so again, at most ``end``."""
        due = end
        if self._producers is not None:
            at = self._producers.serve(now)
            # A batch that is due shortly before the end leaves
            # with the messages that are sent then.
            if at is not None and at < end - self._producers.slack:
                due = at
        if self._consumers is not None:
            due = min(due, self._consumers.serve(now) or due)
        return due

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Return {}: unknown for this client."""
        return {}

    def disconnected(self) -> str | None:
        """Return the first producer or consumer that is not connected at present.

        The number of the others follows. None if all are connected.
        """
        names = []
        if self._producers:
            names += self._producers.disconnected()
        if self._consumers:
            names += self._consumers.disconnected()
        if not names:
            return None
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    # --- closing

    def close(self) -> None:
        """Disconnect everything without waiting; safe to call twice, and after an error."""
        if self._cluster is not None:
            if self._consumers is not None:
                self._consumers.acknowledge()
            self._cluster.close()
            self._cluster = None

    def cleanup(self) -> None:
        """Delete the run's namespace, or its subscriptions of an existing topic."""
        self._names.clean_up(
            lambda topic, subscriptions: client.delete_subscriptions(
                self._new_cluster(), self._settings, topic, subscriptions
            )
        )

    # --- parts

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """:raises TargetError: the error of the block; if no connection was ever accepted, with the
        likely reason.
        """
        url = self._context.target.url
        try:
            yield
        except TargetError as error:
            reason = (
                None
                if self._cluster is None or self._cluster.server
                else explain_connect_error(url, self._settings)
            )
            if reason is None:
                raise
            raise TargetError(f"cannot connect to {url}: {reason}") from error

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = self._new_cluster()
        return self._cluster

    def _new_cluster(self) -> Cluster:
        settings = self._settings
        url = self._context.target.url
        method, data = credentials(settings.authentication, settings)
        cluster = Cluster(
            url,
            client=client.NAME,
            method=method,
            credentials=data,
            tls=tls_context(settings) if url.startswith("pulsar+ssl") else None,
            connections=settings.connections_per_broker,
            timeout=settings.operation_timeout,
            arrivals=self._arrivals,
            most=settings.max_concurrent_lookup_requests or ON_THEIR_WAY,
            sources=self._context.sources,
        )
        cluster.credentials_remedy = partial(credentials_remedy, settings)
        return cluster

    def _own_consumers(self) -> NativeConsumers:
        if self._consumers is None:
            cluster = self._connected()
            self._look_up_partitions(cluster)
            self._consumers = NativeConsumers(
                cluster, self._context, self._consumer, earliest=not self._names.are_existing
            )
            cluster.on_entry = self._consumers.entry
        return self._consumers

    def _consumer(self, number: int) -> tuple[str, list[str], str]:
        topology = self._context.topology
        topic = topology.topic_of_consumer(number)
        subscription = topology.subscription_of_consumer(number)
        name = f"consumer {number} (topic {topic}, subscription {subscription})"
        topics = []
        for output in self._names.outputs(topic):
            topics += self._topics(output)
        return name, topics, self._names.subscription(subscription)

    def _topics(self, topic: str) -> list[str]:
        """Return the names of a topic's partitions, or the topic itself."""
        if not self._partitioned:
            return [topic]
        return [f"{topic}-partition-{i}" for i in range(self._names.partitions)]

    def _look_up_partitions(self, cluster: Cluster) -> None:
        def ask(topic: str) -> int | None:
            partitions = client.query_partitions(cluster, topic)
            self._partitioned = bool(partitions)
            return partitions

        self._names.look_up_partitions(ask)
