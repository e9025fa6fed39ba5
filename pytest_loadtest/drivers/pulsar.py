"""Pulsar through pulsar-client for Python.

With an admin URL each run has a namespace of its own, ``<namespacePrefix>-<run>``, deleted with everything in it afterwards. Without one,
topics are made by use in ``public/default``, under names that no other run has, and stay there.

pulsar-client must not be used across a fork, has no connectionsPerBroker (N connections are N clients here, dealt in turn), and
hangs in ``close()`` when the broker does not answer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pulsar

from pytest_loadtest.drivers import _pulsar_client as options
from pytest_loadtest.drivers._base import Consumer, ConsumerSpec, DriverContext, DriverFacts, Producer, ProducerSpec, TopicSpec
from pytest_loadtest.drivers._pulsar_admin import Admin
from pytest_loadtest.drivers._pulsar_messages import PulsarConsumer, PulsarProducer, key_of, partition_of
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.profile.settings import PulsarSettings

    T = TypeVar("T")
    S = TypeVar("S")

DEFAULT_NAMESPACE: Final = "public/default"
CLOSE_TIMEOUT: Final = 5.0  # seconds until a broker that does not answer is not waited for any more
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
        self._not_applied = options.not_applied(self._settings, context.target.admin_url is not None)
        if self._settings.strict_tuning and self._not_applied:
            listed = "; ".join(f"{key}: {reason}" for key, reason in self._not_applied.items())
            raise UsageError(f"strictTuning: pulsar-client {options.VERSION} cannot apply {listed}")
        self._clients: list[Any] = []
        self._producers: list[PulsarProducer] = []
        self._consumers: list[PulsarConsumer] = []
        self._failures: list[str] = []
        self._created = False

    def facts(self) -> DriverFacts:
        partitions = max((topic.partitions for topic in self._context.topics), default=1)
        applied = options.applied(self._settings, self._namespace, partitions, self._context.target.admin_url is not None)
        return DriverFacts(client="pulsar-client", version=options.VERSION, applied=applied, not_applied=self._not_applied)

    def prepare(self) -> None:
        admin = self._admin()
        if admin is None:
            partitioned = next((topic for topic in self._context.topics if topic.partitions > 1), None)
            if partitioned is not None:
                raise TargetError(f"topics with {partitioned.partitions} partitions are made by admin REST: give target.adminUrl")
            return
        admin.create_namespace(self._namespace, self._settings.persistence)
        self._created = True
        for topic in self._context.topics:
            admin.create_topic(self._topic(topic), topic.partitions)

    def open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[Consumer]:
        opened = self._connect(specs, self._open_consumer)
        for consumer in opened:
            consumer.thread.start()
        self._consumers += opened
        return list(opened)

    def open_producers(self, specs: Sequence[ProducerSpec]) -> list[Producer]:
        opened = self._connect(specs, self._open_producer)
        self._producers += opened
        return list(opened)

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
        clients, self._clients = self._clients, []
        closers = [threading.Thread(target=_close, args=(client,), name="pulsar-close", daemon=True) for client in clients]
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for closer in closers:
            closer.start()
        for client, closer in zip(clients, closers, strict=True):
            closer.join(max(deadline - time.monotonic(), 0))
            if closer.is_alive():
                # Only now: on its own, shutdown() holds the GIL for which the callbacks of what is in flight wait; close() has answered
                # those. And not without: a thread still in close() when the interpreter ends takes the process down.
                client.shutdown()
        deadline = time.monotonic() + _LAST_WORDS
        for thread in [*closers, *(consumer.thread for consumer in self._consumers)]:
            thread.join(max(deadline - time.monotonic(), 0))

    def cleanup(self) -> None:
        admin = self._admin() if self._created else None
        if admin is not None:
            admin.delete_namespace(self._namespace)
            self._created = False

    def _admin(self) -> Admin | None:
        url = self._context.target.admin_url
        return None if url is None else Admin(url, self._settings)

    @property
    def _namespace(self) -> str:
        own = self._context.target.admin_url is not None
        return f"{self._settings.namespace_prefix}-{self._context.run}" if own else DEFAULT_NAMESPACE

    def _topic(self, topic: TopicSpec) -> str:
        own = self._context.target.admin_url is not None
        name = f"topic-{topic.index}" if own else f"loadtest-{self._context.run}-{self._context.nonce:08x}-{topic.index}"
        return f"{self._settings.topic_type}://{self._namespace}/{name}"

    def _open_consumer(self, client: Any, spec: ConsumerSpec) -> PulsarConsumer:
        name = f"consumer {spec.index} (topic {spec.topic.index}, subscription {spec.subscription})"
        topic, subscription = self._topic(spec.topic), f"subscription-{spec.subscription}"
        kwargs = options.consumer_options(self._settings)
        made = self._patiently(name, lambda: client.subscribe(topic, subscription, **kwargs))
        return PulsarConsumer(made._consumer, name, self._context, self._order(spec.topic), self._failures.append)

    def _open_producer(self, client: Any, spec: ProducerSpec) -> PulsarProducer:
        partitions = spec.topic.partitions
        kwargs = options.producer_options(self._settings, partitions)
        topic = self._topic(spec.topic)
        made = self._patiently(f"producer of stream {spec.stream}", lambda: client.create_producer(topic, **kwargs))
        return PulsarProducer(made._producer, spec, self._context, options.window(self._settings, partitions))

    def _order(self, topic: TopicSpec) -> Callable[[Any], int] | None:
        if not self._context.ordered:
            return None
        if self._settings.subscription_type == "Key_Shared":
            return key_of
        return partition_of if topic.partitions > 1 else None

    def _connect(self, specs: Sequence[S], opening: Callable[[Any, S], T]) -> list[T]:
        """Open all side by side, dealt over the clients in turn; the first failure ends it."""
        if not self._clients:
            self._clients = [
                options.make_client(self._context.target.url, self._settings) for _ in range(self._settings.connections_per_broker)
            ]
        pool = ThreadPoolExecutor(_CONNECTING, "pulsar-connect")
        try:
            return list(pool.map(opening, cycle(self._clients), specs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _patiently(self, what: str, call: Callable[[], Any]) -> Any:
        """A topic may be not found for a moment after it was made."""
        deadline = time.monotonic_ns() + self._settings.operation_timeout
        while True:
            try:
                return call()
            except pulsar.PulsarException as error:
                if not isinstance(error, pulsar.TopicNotFound) or time.monotonic_ns() > deadline:
                    raise TargetError(f"{what} cannot connect to {self._context.target.url}: {error}") from error
            time.sleep(_RETRY)


def _close(client: Any) -> None:
    with contextlib.suppress(pulsar.PulsarException):  # closed under us, or the broker is gone: nothing is left to disconnect
        client.close()
