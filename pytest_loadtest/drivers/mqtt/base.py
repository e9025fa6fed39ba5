"""MQTT 3.1.1 and 5 in one epoll loop for all clients, run from the engine's thread in ``poll``: what both clients have in common.

Topic ``t`` of a run is ``<topicPrefix>/<run>/<t>``; each producer and each consumer is a client of its own. Subscription ``s`` is the
shared subscription ``$share/sub-<s>/<topic>`` when consumers share it; otherwise it is its one consumer. An existing topic is used as it
is; nothing that it retains is touched, for ``retain`` is refused there.

What the instants mean. *sent*: the message is handed over, right before the system call that writes it. *acked*: PUBACK or PUBCOMP was
read; at QoS 0 the last byte was taken by the kernel.

A lost connection is dialled again with growing delays; what was not acknowledged is then sent again, which ``resends`` tells. At QoS 0
what was not yet written when the connection went is FAILED.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from pytest_loadtest.drivers.base import Joined
from pytest_loadtest.drivers.mqtt.base_connection import MqttConnectionBase
from pytest_loadtest.drivers.mqtt.clients import MakeConnection, MqttClients, Pace
from pytest_loadtest.drivers.mqtt.options import client_facts, client_options, is_shared, topic_filter
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, DriverFacts, Received


C = TypeVar("C", bound=MqttConnectionBase[Any])


class MqttDriverBase(ABC, Generic[C]):
    """What adapters to an MQTT broker have in common.

    :param client: name and version of what speaks to the broker. :param connect: makes a connection.
    :raises UsageError: settings that contradict each other, or under ``strictTuning`` one that cannot be applied.
    """

    def __init__(self, context: DriverContext, client: tuple[str, str], connect: MakeConnection[C]) -> None:
        self._context, self._client = context, client
        self._options = client_options(context)
        self._clients = MqttClients(context, self._options, connect)
        self._consumers: dict[int, tuple[int, C]] = {}  # by place, those that are here: index, connection
        self._joining: list[tuple[int, C]] = []
        self._places = 0  # given so far
        self._pace: Pace | None = None  # of the connections that are opened next
        self._times: dict[int, int] = {}  # how often a consumer came, by index
        facts = self.facts()
        if context.settings.strict_tuning and facts.not_applied:
            listed = "; ".join(f"{key}: {reason}" for key, reason in facts.not_applied.items())
            raise UsageError(f"strictTuning: not applied by this client: {listed}")

    def facts(self) -> DriverFacts:
        """Settings applied and not applied; connections lost in mid-run are told here, as ``connectionsLost``."""
        clients = self._clients
        found = client_facts(
            self._context,
            self._options,
            self._client,
            allowed=clients.allowed,
            aliases=clients.topic_aliases,
            losses=clients.losses,
            repeated=clients.repeated,
            agreed=clients.agreed,
        )
        return replace(found, forgotten=clients.forgotten)

    def prepare(self) -> None:
        """Connect once, so that a broker that refuses or lacks something is known before load starts. MQTT topics need no creation.

        :raises TargetError: it cannot be reached, refuses, or lacks something.
        """
        probes = [self._clients.make_passing("probe", "probe")]
        if self._context.target.subscriber_url is not None:
            probes.append(self._clients.make_passing("probe for subscribers", "probe-subscriber", consumer=True))
        try:
            self._clients.establish(probes)
        finally:
            for probe in probes:
                probe.end()

    def poll(self, timeout_ns: int) -> None:
        """Read and write for at most ``timeout_ns``; return early when a stream that was refused may find room.

        :raises TargetError: another client uses the id of one of ours.
        """
        self._clients.poll(timeout_ns)

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Of every time that a connection of the run came up or a subscription was confirmed, TCP and TLS included; reconnects too, but for
        connections that were paced.
        """
        return {name: np.array(times, np.int64) for name, times in self._clients.opening_times.items()}

    def disconnected(self) -> str | None:
        """Names the first client that should be connected and is not, with the reason, and how many others there are; None when all are."""
        return self._clients.disconnected([connection for _, connection in self._joining])

    def close(self) -> None:
        """Disconnect, and end the sessions of this driver's clients: no other worker knows which they are."""
        self._clients.end()
        with contextlib.suppress(TargetError):  # cleanup tries again, and says so
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
        """Replace what topics keep by nothing: an empty retained message takes the place of the one there (MQTT 5, 3.3.1.3)."""

    def pace(self, due: NDArray[np.int64], idle: Callable[[], None]) -> None:
        """See :class:`~pytest_loadtest.drivers.base.PacedConnections`. Latencies count from these instants."""
        self._pace = Pace(due.tolist(), idle)

    def _establish(self, connections: Sequence[C]) -> None:
        pace, self._pace = self._pace, None
        self._clients.establish(connections, pace=pace)

    # --- consumers

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Connect and subscribe; return the places, in the order asked, when every subscription is established.

        :raises UsageError: several consumers of a subscription that does not share: each would get every message.
        :raises TargetError: one is refused, or nothing is answered any more.
        """
        made = self._make_consumers(consumers)
        self._establish([connection for _, connection in made])
        return self._settle(made).place

    def attach(self, consumers: Sequence[int]) -> None:
        """Begin to open more consumers; they connect in :meth:`poll`.

        :raises UsageError: several consumers of a subscription that does not share: each would get every message.
        """
        made = self._make_consumers(consumers)
        self._joining += made
        self._clients.start([connection for _, connection in made])

    def attached(self) -> Joined | None:
        """Consumers of :meth:`attach` that are subscribed since the last call, or None.

        :raises TargetError: one cannot connect or subscribe.
        """
        joined = [one for one in self._joining if one[1].ever_up]
        self._joining = [one for one in self._joining if not one[1].ever_up]
        for _, connection in self._joining:
            if connection.failure is not None:
                raise self._clients.error(f"{connection.name}: {connection.failure}", connection)
        return self._settle(joined) if joined else None

    def detach(self, places: Sequence[int]) -> None:
        """Begin to close these consumers.

        Brokers forget what they hold for a client that ends its session: it takes all of that before it goes, paused or not. At QoS 0
        too; only what is under way when a connection breaks is lost.
        """
        for place in places:
            self._consumers.pop(place)[1].leave()

    def pause(self, places: Sequence[int]) -> None:
        """These consumers stop reading and acknowledging, as subscribers that hang would; pings go on, so that connections stay."""
        for place in places:
            self._consumers[place][1].pause()

    def resume(self, places: Sequence[int]) -> None:
        """These consumers read again; what waited in the socket or at the broker is stamped as it is read."""
        for place in places:
            self._consumers[place][1].resume()

    @abstractmethod
    def take(self) -> Received | None:
        """What all consumers got since the last call, or None; never of a consumer whose place was not told yet."""

    def _make_consumers(self, consumers: Sequence[int]) -> list[tuple[int, C]]:
        here = [index for index, _ in (*self._consumers.values(), *self._joining)]
        subscriptions = [index // self._context.topology.consumers for index in (*here, *consumers)]  # numbered over all topics
        if not is_shared(self._context) and len(set(subscriptions)) < len(subscriptions):
            raise UsageError("consumerPerSubscription above 1 needs sharedSubscription: true, or each consumer gets every message")
        return [(int(index), self._make_consumer(int(index))) for index in consumers]

    def _make_consumer(self, index: int) -> C:
        # One that comes again needs a client id of its own: its earlier client may still be connected, taking the last of its messages,
        # and a broker disconnects a client when another one connects under the same id.
        times = self._times[index] = self._times.get(index, 0) + 1
        role = f"c{index}" if times == 1 else f"c{index}-{times}"
        topic = topic_filter(self._context, index, shared=is_shared(self._context))
        return self._consuming(self._clients.make(f"consumer {index}", role, topic))

    def _consuming(self, connection: C) -> C:
        """A connection that will get messages."""
        return connection

    @abstractmethod
    def _take_place(self, connection: C, place: int) -> None:
        """A consumer's connection has its place now: what it got and gets is the place's."""

    def _settle(self, consumers: Sequence[tuple[int, C]]) -> Joined:
        """Give each the next place."""
        places = range(self._places, self._places + len(consumers))
        for place, (index, connection) in zip(places, consumers, strict=True):
            self._take_place(connection, place)
            self._consumers[place] = index, connection
        self._places += len(consumers)
        return Joined(np.array([index for index, _ in consumers], np.int32), np.array(places, np.int32))

    # --- producers

    def open_producers(self, streams: Sequence[int]) -> None:
        """Connect one client for each stream.

        :raises TargetError: one is refused, or nothing is answered any more.
        """
        connections = [self._clients.make(f"producer of stream {stream}", f"p{stream}") for stream in streams]
        for stream, connection in zip(streams, connections, strict=True):
            self._producing(stream, connection)
        self._establish(connections)

    @abstractmethod
    def _producing(self, stream: int, connection: C) -> None:
        """This stream is sent over this connection."""

    @abstractmethod
    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Hand over, and write, every message for which its stream's window has room; never block.

        Fills ``burst.sent`` and ``burst.idle`` of those. A stream whose connection is lost has no room.

        :returns: ascending positions of the others, of each stream all from some message on; None when there are none.
        """

    @abstractmethod
    def acks(self) -> Acks | None:
        """What was answered since the last call, or None. ``resends`` counts what was sent again after a reconnect."""
