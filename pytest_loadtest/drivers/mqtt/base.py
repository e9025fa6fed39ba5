"""The common part of both MQTT drivers.

One epoll loop for all clients, run from the engine's thread in ``poll``.

Topics: topic ``t`` of a run is ``<topicPrefix>/<run>/<t>``. Each producer and each consumer is a
client of its own. Subscription ``s`` is the shared subscription ``$share/sub-<s>/<topic>`` if
consumers share it, otherwise the subscription of its only consumer. An existing topic is used as it
is; ``retain`` is rejected there, so that retained messages of other clients survive.

Timestamps: *sent* is taken when the message is handed over, right before
the system call that writes it. *acked* is the arrival of PUBACK or PUBCOMP;
at QoS 0, when the kernel took the last byte.

A lost connection is dialled again with growing delays. Messages without
acknowledgement are then sent again, and counted in ``resends``. At QoS 0 messages that
were not written when the connection was lost are FAILED.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.base import (
    Acks,
    Burst,
    DriverContext,
    DriverFacts,
    Joined,
    Received,
    TopicNames,
)
from pytest_loadtest.drivers.mqtt.base_connection import MqttConnectionBase
from pytest_loadtest.drivers.mqtt.clients import MakeConnection, MqttClients, Pace
from pytest_loadtest.drivers.mqtt.options import (
    client_options,
    has_existing_topics,
    is_shared,
    output_names,
    topic_filters,
    topic_name,
)
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.metrics.catalogue import with_own, without_own
from pytest_loadtest.values.quantities import SECOND, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


C = TypeVar("C", bound=MqttConnectionBase[Any])


class MqttProducers(Protocol):
    """All producers of a driver."""

    def add(self, stream: int, connection: Any) -> None:
        """Send this stream over this connection."""

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """See :meth:`MqttDriverBase.send`."""

    def acks(self) -> Acks | None:
        """See :meth:`MqttDriverBase.acks`."""


class MqttArrivals(Protocol):
    """The received messages of all consumers of a driver."""

    def take(self) -> Received | None:
        """See :meth:`MqttDriverBase.take`."""


class MqttDriverBase(ABC, Generic[C]):
    """An adapter to an MQTT broker.

    Subclasses supply ``_producers``, ``_arrivals`` and their kind of connection.

    :param client: name and version of the client.
    :param connect: makes a connection.
    :param kernel: arrivals have the kernel's stamps; None: if it has them.
    :raises UsageError: settings contradict each other, or
        ``strictTuning`` is on and a setting cannot be applied.
    """

    _producers: MqttProducers
    _arrivals: MqttArrivals

    def __init__(
        self,
        context: DriverContext,
        client: tuple[str, str],
        connect: MakeConnection[C],
        *,
        kernel: bool | None = False,
    ) -> None:
        self._context = context
        self._client = client
        self._options = client_options(context)
        self._clock = ArrivalClock(context.clock, kernel=kernel)
        self._clients = MqttClients(context, self._options, connect, self._clock)
        self._consumers: dict[
            int, tuple[int, C]
        ] = {}  # place of a present consumer → index, connection
        self._joining: list[tuple[int, C]] = []
        self._places = 0  # number of places assigned so far
        self._pace: Pace | None = None  # applies to the next connections opened
        self._times: dict[int, int] = {}  # index → how often this consumer was opened
        facts = self.facts()
        if context.settings.strict_tuning and facts.not_applied:
            listed = "; ".join(f"{key}: {reason}" for key, reason in facts.not_applied.items())
            raise UsageError(f"strictTuning: not applied by this client: {listed}")

    # --- facts

    def facts(self) -> DriverFacts:
        """Return the settings applied and not applied.

        The facts also have what happened to connections during the run.
        """
        name, version = self._client
        counts = self._clients.counts
        return DriverFacts(
            client=name,
            version=version,
            applied=self._applied(),
            not_applied=self._not_applied(),
            losses=counts.losses,
            forgotten=counts.forgotten,
            incidents=dict(counts.incidents),
            stamps=self._clock.source,
            unstamped=self._clock.unusable,
        )

    def _applied(self) -> dict[str, str]:
        settings = self._context.settings
        clients = self._clients
        topic = self._context.topology.name
        route = self._context.route
        facts = {
            "protocolVersion": settings.protocol_version,
            "qos": str(settings.qos),
            "sharedSubscription": _yaml_bool(self._options.shared),
            "cleanStart": _yaml_bool(settings.clean_start),
        }
        if settings.connect_rate:
            facts["connectRate"] = f"{settings.connect_rate:g}/s"
        facts |= {
            "keepAlive": self._keep_alive(),
            "retain": _yaml_bool(settings.retain),
            "tcpNoDelay": "true",
            "ioThreads": "none: one epoll loop in the worker",
        }
        if route is not None:
            facts["topics"] = route.text
        elif topic is None:
            facts["topicPrefix"] = settings.topic_prefix
        else:
            facts["topic"] = topic
        if settings.qos:
            window = str(settings.max_inflight_messages)
            limited = clients.allowed < settings.max_inflight_messages
            facts["maxInflightMessages"] = (
                f"{clients.allowed} (the broker's Receive Maximum; requested {window})"
                if limited
                else window
            )
        if settings.username is not None:
            facts["username"] = settings.username
        if settings.tls is not None:
            facts["tls"] = (
                "certificate's host name not checked"
                if settings.tls.insecure
                else "certificate and host name checked"
            )
        if clients.agreed:
            facts["tlsNegotiated"] = clients.agreed
        return facts | (self._mqtt5_facts() if self._options.v5 else {})

    def _keep_alive(self) -> str:
        requested = format_duration(self._context.settings.keep_alive)
        current = self._clients.keep_alive
        if current is None or current == self._options.keep_alive:
            return requested
        return (
            f"{format_duration(current * SECOND)} (the broker's Server Keep Alive; requested"
            f" {requested})"
        )

    def _not_applied(self) -> dict[str, str]:
        settings = self._context.settings
        topology = self._context.topology
        facts = (
            {}
            if self._options.v5
            else dict.fromkeys(self._mqtt5_facts(), "MQTT 3.1.1 does not have it")
        )
        if settings.topic_alias_maximum and self._clients.topic_aliases == 0:
            facts["topicAliasMaximum"] = "the broker accepts no topic alias"
        if has_existing_topics(self._context) and "topic_prefix" in settings.model_fields_set:
            facts["topicPrefix"] = "the topic has its own name"
        if not settings.qos and "max_inflight_messages" in settings.model_fields_set:
            facts["maxInflightMessages"] = (
                "QoS 0 has no acknowledgements; the window is what the system takes"
            )
        if topology.partitions > 1:
            facts["partitionsPerTopic"] = "MQTT topics have no partitions; each counts as one topic"
        return facts

    def _mqtt5_facts(self) -> dict[str, str]:
        """Return the requested settings that only MQTT 5 has.

        Aliases that the broker does not allow are left out.
        """
        settings = self._context.settings
        facts = {}
        if settings.session_expiry:
            facts["sessionExpiry"] = format_duration(settings.session_expiry)
        if settings.receive_maximum is not None:
            facts["receiveMaximum"] = str(settings.receive_maximum)
        if settings.user_properties:
            facts["userProperties"] = (
                f"{settings.user_properties}, {self._options.properties} bytes in each message"
            )
        if settings.topic_alias_maximum and self._clients.topic_aliases != 0:
            facts["topicAliasMaximum"] = f"{settings.topic_alias_maximum}; each producer uses one"
        return facts

    # --- connections

    def prepare(self) -> None:
        """Connect once: a broker that does not fit is reported before load starts.

        It may reject the client, or lack a feature. MQTT topics need no creation.

        :raises TargetError: the broker cannot be reached, rejects the client, or lacks a feature.
        """
        # Publishers and subscribers may have different addresses, so each address gets a probe.
        probes = [self._clients.make_passing("probe", "probe")]
        if self._context.target.subscriber_url is not None:
            probes.append(
                self._clients.make_passing(
                    "probe for subscribers", "probe-subscriber", consumer=True
                )
            )
        try:
            self._clients.establish(probes)
        finally:
            for probe in probes:
                probe.end()

    def topic_names(self) -> TopicNames:
        topics = range(self._context.topology.topics)
        return TopicNames(
            inputs=tuple(topic_name(self._context, topic) for topic in topics),
            outputs=tuple(chain.from_iterable(output_names(self._context, n) for n in topics)),
        )

    def poll(self, timeout_ns: int) -> None:
        """Read and write for at most ``timeout_ns``.

        Return early when a stream with rejected messages may have room.

        :raises TargetError: another client uses the client id of one of the run's clients.
        """
        self._clients.poll(timeout_ns)

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Return the times of each connect and each subscribe, including TCP and TLS.

        A reconnect counts too, unless the connection was paced.
        """
        counts = self._clients.counts
        opened = self._clients.opening_times
        reconnects = {
            "reconnect": counts.reconnects,
            with_own("reconnect"): counts.reconnects_with_own,
            without_own("reconnect"): counts.reconnects_without_own,
        }
        times = opened | {name: of_name for name, of_name in reconnects.items() if of_name}
        return {name: np.array(of_name, np.int64) for name, of_name in times.items()}

    def disconnected(self) -> str | None:
        """Return the first client that should be connected and is not, with the reason.

        The number of the others follows. None if all are connected.
        """
        return self._clients.disconnected([connection for _, connection in self._joining])

    def close(self) -> None:
        """Disconnect, and end the sessions of this driver's clients.

        No other worker knows their ids.
        """
        self._clients.end()
        # An error is left to cleanup(), which tries again and raises it.
        with contextlib.suppress(TargetError):
            self._clients.end_sessions()
        self._clients.stop()

    def cleanup(self) -> None:
        """Delete retained messages, and sessions that :meth:`close` could not end.

        :raises TargetError: the target does not answer.
        """
        try:
            self._clients.end_sessions()
            if self._context.settings.retain:
                self._clear_retained()
        finally:
            self._clients.stop()

    @abstractmethod
    def _clear_retained(self) -> None:
        """Delete the retained message of each topic.

        An empty one is published with ``retain`` (MQTT 5, 3.3.1.3).
        """

    def pace(self, due: NDArray[np.int64], idle: Callable[[], None]) -> None:
        """See :class:`~pytest_loadtest.drivers.base.PacedConnections`.

        Latencies count from these instants.
        """
        self._pace = Pace(due.tolist(), idle)

    def _establish(self, connections: Sequence[C]) -> None:
        pace = self._pace
        self._pace = None
        self._clients.establish(connections, pace=pace)

    # --- consumers

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Connect, subscribe, and return the places in the order of ``consumers``.

        It returns when every subscription is established.

        :raises UsageError: several consumers of a subscription that is not
            shared: each would receive every message.
        :raises TargetError: a client is rejected, or the broker no longer answers.
        """
        opened = self._make_consumers(consumers)
        self._establish([connection for _, connection in opened])
        return self._assign_places(opened).place

    def attach(self, consumers: Sequence[int]) -> None:
        """Start to open more consumers; they connect in :meth:`poll`.

        :raises UsageError: several consumers of a subscription that is not
            shared: each would receive every message.
        """
        opened = self._make_consumers(consumers)
        self._joining += opened
        self._clients.start([connection for _, connection in opened])

    def attached(self) -> Joined | None:
        """Return the consumers of :meth:`attach` that were subscribed since the last call, or None.

        :raises TargetError: a consumer cannot connect or subscribe.
        """
        joined = [joining for joining in self._joining if joining[1].ever_up]
        self._joining = [joining for joining in self._joining if not joining[1].ever_up]
        for _, connection in self._joining:
            if connection.has_failed:
                raise self._clients.error(f"{connection.name}: {connection.failure}", connection)
        return self._assign_places(joined) if joined else None

    def detach(self, places: Sequence[int]) -> None:
        """Start to close these consumers, paused or not.

        Only messages under way at QoS 0 when a connection breaks can be lost.
        """
        # A broker forgets what it holds for a client whose session ends, so
        # each client first takes all of it: see leave().
        for place in places:
            self._consumers.pop(place)[1].leave()

    def pause(self, places: Sequence[int]) -> None:
        """Stop reading and acknowledging, like subscribers that hang.

        Pings go on, so that the connections stay.
        """
        for place in places:
            self._consumers[place][1].pause()

    def resume(self, places: Sequence[int]) -> None:
        """Read again.

        Messages that waited in the socket or at the broker get the time of this later read.
        """
        for place in places:
            self._consumers[place][1].resume()

    def take(self) -> Received | None:
        """Return what all consumers received since the last call, or None.

        Messages of a consumer without a place wait until it has one.
        """
        return self._arrivals.take()

    def _make_consumers(self, consumers: Sequence[int]) -> list[tuple[int, C]]:
        present = [index for index, _ in (*self._consumers.values(), *self._joining)]
        subscriptions = [
            index // self._context.topology.consumers for index in (*present, *consumers)
        ]  # numbered over all topics
        if not is_shared(self._context) and len(set(subscriptions)) < len(subscriptions):
            raise UsageError(
                "consumerPerSubscription above 1 needs sharedSubscription: true, or each consumer"
                " gets every message"
            )
        return [(int(index), self._make_consumer(int(index))) for index in consumers]

    def _make_consumer(self, index: int) -> C:
        # A consumer that returns needs a new client id: its earlier client may still be connected,
        # taking its last messages, and a broker disconnects a client when another one connects with
        # the same id (MQTT 5, 3.1.4).
        times = self._times[index] = self._times.get(index, 0) + 1
        role = f"c{index}" if times == 1 else f"c{index}-{times}"
        filters = topic_filters(self._context, index, shared=is_shared(self._context))
        return self._clients.make(f"consumer {index}", role, filters)

    @abstractmethod
    def _take_place(self, connection: C, place: int) -> None:
        """Assign everything that a consumer's connection received and will receive to its place."""

    def _assign_places(self, consumers: Sequence[tuple[int, C]]) -> Joined:
        places = range(self._places, self._places + len(consumers))
        for place, (index, connection) in zip(places, consumers, strict=True):
            self._take_place(connection, place)
            self._consumers[place] = index, connection
        self._places += len(consumers)
        return Joined(
            np.array([index for index, _ in consumers], np.int32), np.array(places, np.int32)
        )

    # --- producers

    def open_producers(self, streams: Sequence[int]) -> None:
        """Connect one client for each stream.

        :raises TargetError: a client is rejected, or the broker no longer answers.
        """
        connections = [
            self._clients.make(f"producer of stream {stream}", f"p{stream}") for stream in streams
        ]
        for stream, connection in zip(streams, connections, strict=True):
            self._producers.add(stream, connection)
        if not self._options.clean_start:
            self._clients.discard_sessions([connection.client_id for connection in connections])
        self._establish(connections)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Hand over, and write, every message that its stream's window has room for.

        It never blocks. Fills in ``burst.sent`` and ``burst.idle`` of these. A stream whose
        connection is lost has no room.

        :returns: ascending positions of the other messages, the last ones
            of their streams; None if there are none.
        """
        return self._producers.send(burst)

    def acks(self) -> Acks | None:
        """Return the answers since the last call, or None.

        ``resends`` counts messages sent again after a reconnect.
        """
        return self._producers.acks()


def _yaml_bool(value: bool) -> str:
    return str(value).lower()
