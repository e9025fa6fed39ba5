"""The Pulsar driver on pulsar-client for Python.

See :class:`~pytest_loadtest.drivers.base.Driver` for the contract of each method.

With an admin URL each run has a namespace of its own, ``<namespacePrefix>-<run>``, which is deleted
with everything in it afterwards. Without one, topics are created on use in ``public/default``,
under names unique to the run, and stay there. An existing topic is used as it is
(:mod:`~pytest_loadtest.drivers.pulsar.names`).

pulsar-client must not be used across a fork, has no connectionsPerBroker (N connections are N
clients here, used in turn), and hangs in ``close()`` if the broker does not answer. It resends
after a reconnect without reporting it: ``resends`` is unknown.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pulsar

from pytest_loadtest.drivers.base import (
    Acks,
    Burst,
    DriverContext,
    DriverFacts,
    Joined,
    Received,
    TopicNames,
)
from pytest_loadtest.drivers.pulsar.library import client as options
from pytest_loadtest.drivers.pulsar.library.consumers import (
    PulsarConsumer,
    PulsarConsumers,
    key_of,
    partition_of,
    topic_order,
)
from pytest_loadtest.drivers.pulsar.library.producers import PulsarProducers
from pytest_loadtest.drivers.pulsar.names import RunNames
from pytest_loadtest.drivers.pulsar.settings_facts import stream_window, unapplied_keys
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.pulsar.settings import PulsarSettings

    T = TypeVar("T")

# Threads that connect in parallel: subscribing is a sequence of round
# trips, during which the thread only waits.
_CONNECTING: Final = 16
_RETRY: Final = 0.1  # seconds
_LOOK: Final = MILLISECOND  # between two checks whether a full window has room again
_THREADS_END: Final = 1.0  # seconds to wait for threads to notice that their client was closed


class PulsarDriver:
    """The clients of one worker at one Pulsar cluster.

    :raises UsageError: this client cannot apply a key, and the profile has ``strictTuning``.
    """

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._settings: PulsarSettings = context.settings
        self._names = RunNames(context)
        existing = self._names.are_existing
        self._not_applied = options.library_unapplied_keys(self._settings) | unapplied_keys(
            self._settings, admin=context.target.admin_url is not None, existing=existing
        )
        if self._settings.strict_tuning and self._not_applied:
            listed = "; ".join(f"{key}: {reason}" for key, reason in self._not_applied.items())
            raise UsageError(f"strictTuning: pulsar-client {options.VERSION} cannot apply {listed}")
        self._clients: list[Any] = []
        self._producers = PulsarProducers([], [], context, window=None, memory=None)
        self._consumers = PulsarConsumers(self._open_consumers, context.received_place.carrier)
        self._failures: list[str] = []
        self._closed = False
        self._connecting = threading.Lock()

    def facts(self) -> DriverFacts:
        """Return the settings applied and not applied.

        No connection is needed, but the partitions of an existing topic are known only after one,
        and the persistence of the run's namespace only in the worker that prepared it.
        """
        applied = options.library_applied_keys(
            self._settings, self._names.facts, self._names.partitions
        )
        unapplied = self._not_applied | self._names.not_applied
        return DriverFacts(
            client="pulsar-client", version=options.VERSION, applied=applied, not_applied=unapplied
        )

    def prepare(self) -> None:
        """See :meth:`~pytest_loadtest.drivers.pulsar.names.RunNames.prepare`."""
        self._names.prepare()

    def topic_names(self) -> TopicNames:
        return self._names.topic_names()

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        return self._consumers.open(consumers)

    def open_producers(self, streams: Sequence[int]) -> None:
        streams = sorted(streams)
        clients = self._connect(streams, self._open_producer)
        most = stream_window(self._settings, self._names.partitions)
        self._producers = PulsarProducers(
            clients, streams, self._context, window=most, memory=self._settings.memory_limit
        )

    def attach(self, consumers: Sequence[int]) -> None:
        self._consumers.attach(consumers)

    def attached(self) -> Joined | None:
        return self._consumers.attached()

    def detach(self, places: Sequence[int]) -> None:
        self._consumers.detach(places)

    def pause(self, places: Sequence[int]) -> None:
        self._consumers.pause(places)

    def resume(self, places: Sequence[int]) -> None:
        self._consumers.resume(places)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        return self._producers.send(burst)

    def acks(self) -> Acks | None:
        return self._producers.acks()

    def take(self) -> Received | None:
        return self._consumers.take()

    def poll(self, timeout_ns: int) -> None:
        """Wait while the client's own threads do the I/O.

        After a refusal, return within 1 ms of the next answer.
        """
        if self._failures:
            raise TargetError("; ".join(self._failures))
        end = time.monotonic_ns() + timeout_ns
        while (left := end - time.monotonic_ns()) > 0:
            time.sleep((min(left, _LOOK) if self._producers.refused else left) / SECOND)
            if self._producers.may_have_room:
                return

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Return {}: unknown for this client."""
        return {}

    def disconnected(self) -> str | None:
        """Return the first producer or consumer that is not connected at present.

        The number of the others follows. None if all are connected.
        """
        names = self._producers.disconnected() + self._consumers.disconnected()
        if not names:
            return None
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    def close(self) -> None:
        """Disconnect everything within some seconds; safe to call twice, and after an error."""
        self._consumers.expect_close()
        with self._connecting:
            self._closed = True
            clients = self._clients
            self._clients = []
        closers = options.close(clients)
        deadline = time.monotonic() + _THREADS_END
        for closer in closers:
            closer.join(max(deadline - time.monotonic(), 0))
        self._consumers.join_threads(deadline)

    def cleanup(self) -> None:
        """Delete the run's namespace, or its subscriptions of an existing topic."""
        self._names.clean_up(
            partial(options.unsubscribe_as_consumer, self._context.target.url, self._settings)
        )

    def _open_consumers(self, consumers: Sequence[int]) -> list[PulsarConsumer]:
        return self._connect(consumers, self._open_consumer)

    def _open_consumer(self, client: Any, consumer: int) -> PulsarConsumer:
        topology = self._context.topology
        names = self._names
        topic = topology.topic_of_consumer(consumer)
        number = topology.subscription_of_consumer(consumer)
        name = f"consumer {consumer} (topic {topic}, subscription {number})"
        kwargs = options.consumer_options(self._settings, existing=names.are_existing)
        outputs = names.outputs(topic)
        # Only a list makes pulsar-client subscribe to several topics.
        topics = outputs if len(outputs) > 1 else outputs[0]
        subscribed = self._wait_for_topic(
            name,
            lambda: client.subscribe(topics, names.subscription(number), **kwargs),
        )
        return PulsarConsumer(
            subscribed._consumer,
            name,
            self._context,
            self._order(names.partitions, outputs),
            self._failures.append,
            names.partitions,
            outputs,
        )

    def _open_producer(self, client: Any, stream: int) -> Any:
        """:returns: the compiled producer."""
        topic = self._names.topic(self._context.topology.topic_of_stream(stream))
        kwargs = options.producer_options(self._settings, self._names.partitions)
        return self._wait_for_topic(
            f"producer of stream {stream}", lambda: client.create_producer(topic, **kwargs)
        )._producer

    def _order(self, partitions: int, topics: Sequence[str]) -> Callable[[Any], int] | None:
        """Return the function that gives the group in which order is judged.

        None: only the stream.
        """
        # Needed also if order is not judged: messages that arrive interleaved from several
        # partitions would look like second copies, and every drain would wait for more of them.
        keyed = self._context.ordered and self._settings.subscription_type == "Key_Shared"
        if len(topics) > 1:
            return topic_order(topics, keyed=keyed)
        if keyed:
            return key_of
        return partition_of if partitions > 1 else None

    def _connect(self, numbers: Sequence[int], opening: Callable[[Any, int], T]) -> list[T]:
        """Open all in parallel, with the clients in turn; the first failure ends it."""
        if not numbers:
            return []
        with self._connecting:
            # Attaching runs in threads, so two of them may get here at once.
            if self._closed:
                raise TargetError("the run is over")
            if not self._clients:
                connections = range(self._settings.connections_per_broker)
                self._clients = [
                    options.make_client(self._context.target.url, self._settings)
                    for _ in connections
                ]
            clients = self._clients
        self._names.look_up_partitions(
            partial(options.count_partitions, clients[0], self._context.target.url)
        )
        pool = ThreadPoolExecutor(_CONNECTING, "pulsar-connect")
        try:
            return list(pool.map(opening, cycle(clients), numbers))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _wait_for_topic(self, what: str, call: Callable[[], Any]) -> Any:
        """Retry while the topic is not found: a new topic may be missing for a moment.

        An existing topic must exist at once.
        """
        deadline = time.monotonic_ns() + self._settings.operation_timeout
        while True:
            try:
                return call()
            except pulsar.PulsarException as error:
                missing = isinstance(error, pulsar.TopicNotFound)
                if missing and self._names.existing is not None:
                    raise self._names.missing_topic() from error
                if not missing or time.monotonic_ns() > deadline:
                    raise options.not_connected(
                        what, self._context.target.url, self._settings, error
                    ) from error
            time.sleep(_RETRY)
