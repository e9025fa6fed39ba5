"""Pulsar through pulsar-client for Python.

With an admin URL each run has a namespace of its own, ``<namespacePrefix>-<run>``, deleted with everything in it afterwards. Without one,
topics are made by use in ``public/default``, under names that no other run has, and stay there. An existing topic is used as it is
(:mod:`~pytest_loadtest.drivers._pulsar_place`).

pulsar-client must not be used across a fork, has no connectionsPerBroker (N connections are N clients here, dealt in turn), and
hangs in ``close()`` when the broker does not answer.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pulsar

from pytest_loadtest.drivers import _pulsar_client as options
from pytest_loadtest.drivers._base import Consumer, ConsumerSpec, DriverContext, DriverFacts, Producer, ProducerSpec, TopicSpec
from pytest_loadtest.drivers._pulsar_changes import Changes
from pytest_loadtest.drivers._pulsar_memory import Memory
from pytest_loadtest.drivers._pulsar_messages import PulsarConsumer, PulsarProducer, key_of, partition_of
from pytest_loadtest.drivers._pulsar_place import Place
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.profile.settings import PulsarSettings

    T = TypeVar("T")
    S = TypeVar("S")

_CONNECTING: Final = 16  # subscribing is one round trip after another; so many go side by side
_RETRY: Final = 0.1
_LAST_WORDS: Final = 1.0  # seconds that threads whose client is closed get to see it


class PulsarDriver:
    """One worker's clients of one Pulsar cluster.

    :raises UsageError: ``strictTuning`` and a key that this client cannot apply.
    """

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._settings: PulsarSettings = context.settings
        self._place = Place(context)
        existing = self._place.namespace is None
        self._not_applied = options.not_applied(self._settings, admin=context.target.admin_url is not None, existing=existing)
        if self._settings.strict_tuning and self._not_applied:
            listed = "; ".join(f"{key}: {reason}" for key, reason in self._not_applied.items())
            raise UsageError(f"strictTuning: pulsar-client {options.VERSION} cannot apply {listed}")
        self._clients: list[Any] = []
        self._producers: list[PulsarProducer] = []
        self._consumers: list[PulsarConsumer] = []
        self._failures: list[str] = []
        limit = self._settings.memory_limit
        self._memory = None if limit is None else Memory(limit)
        self._closed = False
        self._changes = Changes(self._open_consumers)
        self._connecting = threading.Lock()

    def facts(self) -> DriverFacts:
        partitions = max((self._place.partitions(topic) for topic in self._context.topics), default=1)
        applied = options.applied(self._settings, self._place.facts, partitions, self._context.target.admin_url is not None)
        return DriverFacts(client="pulsar-client", version=options.VERSION, applied=applied, not_applied=self._not_applied)

    def prepare(self) -> None:
        self._place.prepare()

    def open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[Consumer]:
        opened = self._open_consumers(specs)
        self._consumers += opened
        return list(opened)

    def _open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[PulsarConsumer]:
        opened = self._connect(specs, self._open_consumer)
        for consumer in opened:
            consumer.thread.start()
        return opened

    def open_producers(self, specs: Sequence[ProducerSpec]) -> list[Producer]:
        opened = self._connect(specs, self._open_producer)
        self._producers += opened
        return list(opened)

    def attach(self, specs: Sequence[ConsumerSpec]) -> None:
        self._changes.attach(specs)

    def attached(self) -> list[tuple[ConsumerSpec, Consumer]]:
        opened = self._changes.attached()
        self._consumers += [consumer for _, consumer in opened]
        return list(opened)

    def detach(self, consumers: Sequence[Consumer]) -> None:
        leaving = [consumer for consumer in self._consumers if consumer in consumers]
        self._consumers = [consumer for consumer in self._consumers if consumer not in consumers]
        self._changes.detach(leaving)

    def poll(self, timeout_ns: int) -> None:
        if self._failures:
            raise TargetError("; ".join(self._failures))
        time.sleep(timeout_ns / SECOND)  # the client's own threads do the I/O

    def disconnected(self) -> str | None:
        names = [f"producer of stream {producer.spec.stream}" for producer in self._producers if not producer.connected]
        names += [consumer.name for consumer in self._consumers if not consumer.connected]
        if not names:
            return None
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.closing()
        self._changes.closing()
        with self._connecting:
            self._closed = True
            clients, self._clients = self._clients, []
        closers = options.close(clients)
        deadline = time.monotonic() + _LAST_WORDS
        for thread in [*closers, *(consumer.thread for consumer in self._consumers)]:
            thread.join(max(deadline - time.monotonic(), 0))
        self._changes.join(deadline)

    def cleanup(self) -> None:
        self._place.clean_up()

    def _open_consumer(self, client: Any, spec: ConsumerSpec) -> PulsarConsumer:
        name = f"consumer {spec.index} (topic {spec.topic.index}, subscription {spec.subscription})"
        topic, subscription = self._place.topic(spec.topic), self._place.subscription(spec.topic, spec.subscription)
        kwargs = options.consumer_options(self._settings, existing=spec.topic.name is not None)
        made = self._patiently(name, spec.topic, lambda: client.subscribe(topic, subscription, **kwargs))
        partitions, gone = self._place.partitions(spec.topic), self._failures.append
        return PulsarConsumer(made._consumer, name, self._context, self._order(partitions), gone, partitions)

    def _open_producer(self, client: Any, spec: ProducerSpec) -> PulsarProducer:
        partitions = self._place.partitions(spec.topic)
        kwargs = options.producer_options(self._settings, partitions)
        topic = self._place.topic(spec.topic)
        made = self._patiently(f"producer of stream {spec.stream}", spec.topic, lambda: client.create_producer(topic, **kwargs))
        return PulsarProducer(made._producer, spec, self._context, options.window(self._settings, partitions), self._memory)

    def _order(self, partitions: int) -> Callable[[Any], int] | None:
        """Where order is not judged a partition still tells first copies from possible second ones, by which a drain knows its end."""
        if self._context.ordered and self._settings.subscription_type == "Key_Shared":
            return key_of
        return partition_of if partitions > 1 else None

    def _connect(self, specs: Sequence[S], opening: Callable[[Any, S], T]) -> list[T]:
        """Open all side by side, dealt over the clients in turn; the first failure ends it."""
        if not specs:
            return []
        with self._connecting:  # the first of the consumers may come while the run is on
            if self._closed:
                raise TargetError("the run is over")
            if not self._clients:
                self._clients = [
                    options.make_client(self._context.target.url, self._settings) for _ in range(self._settings.connections_per_broker)
                ]
            clients = self._clients
        self._place.look_up(clients[0])
        pool = ThreadPoolExecutor(_CONNECTING, "pulsar-connect")
        try:
            return list(pool.map(opening, cycle(clients), specs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _patiently(self, what: str, topic: TopicSpec, call: Callable[[], Any]) -> Any:
        """A topic may be not found for a moment after it was made; one that somebody else made should be there."""
        deadline = time.monotonic_ns() + self._settings.operation_timeout
        while True:
            try:
                return call()
            except pulsar.PulsarException as error:
                if isinstance(error, pulsar.TopicNotFound) and topic.name is not None:
                    raise self._place.missing(topic.name) from error
                if not isinstance(error, pulsar.TopicNotFound) or time.monotonic_ns() > deadline:
                    raise TargetError(f"{what} cannot connect to {self._context.target.url}: {error}") from error
            time.sleep(_RETRY)
