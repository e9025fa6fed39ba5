"""All clients of a driver on one loop.

It creates and connects them, many at a time, and deletes their sessions at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from pytest_loadtest.drivers.mqtt.base_connection import ClientSpec, MqttConnectionBase
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, Endpoints, find_endpoints
from pytest_loadtest.drivers.mqtt.loop import ConnectionCounts, Loop, LoopConnection
from pytest_loadtest.drivers.mqtt.options import MOST_INFLIGHT, ClientOptions
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.route import IN_BODY
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.drivers.arrival_clock import ArrivalClock
    from pytest_loadtest.drivers.base import DriverContext

PATIENCE: Final = 30 * SECOND  # opening fails when no further client connects for this long
FAREWELL: Final = 3 * SECOND  # closing fails when no further client disconnects for this long


C = TypeVar("C", bound=MqttConnectionBase[Any])
MakeConnection = Callable[[ClientSpec], C]
"""Makes a client's connection."""


class Pace(NamedTuple):
    """Instants of paced connections.

    :param due: when to dial each, ns, ascending.
    :param idle: called repeatedly until all are up.
    """

    due: Sequence[int]
    idle: Callable[[], None]


class MqttClients(Generic[C]):
    """The clients of one driver. Creating this object connects none.

    :param options: options of the clients that stay for the run.
    :param connect: makes a connection.
    :param arrivals: the clock of arrivals.
    :ivar allowed: the lowest Receive Maximum of the broker so far.
    :ivar topic_aliases: number of aliases that the broker allows;
        None: not known before the first connection.
    :ivar keep_alive: s, the shortest keep-alive of the last connections opened; None: not known
        before the first connection.
    :ivar opening_times: durations by step, of clients that stay for the run.
    """

    def __init__(
        self,
        context: DriverContext,
        options: ClientOptions,
        connect: MakeConnection[C],
        arrivals: ArrivalClock,
    ) -> None:
        self._make_connection = connect
        self._arrivals = arrivals
        self.allowed = MOST_INFLIGHT
        self.topic_aliases: int | None = None
        self.keep_alive: int | None = None
        self.counts = ConnectionCounts()
        self._context = context
        self._options = options
        self._loop: Loop | None = None
        self._endpoints: Endpoints | None = None
        self._kept: list[C] = []
        self._numbers = count()
        # Each worker uses source addresses of its own: "gw7" is xdist's worker number 7.
        number = re.search(r"\d{1,4}$", context.worker)
        self._worker = int(number[0]) if number else 0
        self._sessions: dict[
            str, bool
        ] = {}  # client ids whose sessions may outlive their connections → True for a consumer
        self.opening_times: dict[str, list[int]] = {"connect": [], "subscribe": []}

    def make(self, name: str, role: str, subscription: tuple[str, ...] | None = None) -> C:
        """Make a client that stays for the run.

        :param name: name in messages.
        :param role: last part of the client id.
        :param subscription: topic filters; None for a producer.
        """
        # With cleanStart: false a run continues the session of an earlier one, so its client ids do
        # not contain the run's name.
        client_id = (
            self._client_id(role)
            if self._options.clean_start
            else f"{self._context.settings.client_id_prefix}-{role}"
        )
        connection = self._connect(
            name, client_id, subscription, self._options, consumer=subscription is not None
        )
        connection.times = self.opening_times
        self._kept.append(connection)
        if self._options.durable:
            self._sessions[client_id] = subscription is not None
        return connection

    def make_passing(self, name: str, role: str, *, consumer: bool = False) -> C:
        """Make a client without a durable session; the caller ends it.

        :param consumer: connect to the address for consumers.
        """
        return self._connect(name, self._client_id(role), None, self._passing, consumer=consumer)

    def _client_id(self, role: str) -> str:
        return f"{self._context.settings.client_id_prefix}-{self._context.run}-{role}"

    @property
    def _passing(self) -> ClientOptions:
        # No expiry: the session ends with the connection. No properties and aliases: these clients
        # send nothing that counts.
        return replace(
            self._options,
            clean_start=True,
            session_expiry=0,
            user_properties=0,
            sent=IN_BODY,
            topic_alias_maximum=0,
        )

    def _connect(
        self,
        name: str,
        client_id: str,
        subscription: tuple[str, ...] | None,
        options: ClientOptions,
        *,
        consumer: bool,
    ) -> C:
        # Addresses are resolved once for all clients of the driver.
        if self._endpoints is None:
            self._endpoints = find_endpoints(self._context)
        endpoint = self._endpoints.consumers if consumer else self._endpoints.producers
        source = self._source(endpoint)
        return self._make_connection(
            ClientSpec(self._running(), endpoint, options, name, client_id, subscription, source)
        )

    def _source(self, endpoint: BrokerEndpoint) -> str | None:
        number = next(self._numbers)
        sources = self._context.sources
        return sources[number % len(sources)] if sources else endpoint.source(number, self._worker)

    @property
    def agreed(self) -> str:
        """Versions and ciphers of the TLS connections so far, e.g.

        ``TLSv1.3 TLS_AES_256_GCM_SHA384``; empty if there are none.
        """
        sides = self._endpoints or ()
        return ", ".join(
            sorted(
                {
                    f"{version} {cipher}"
                    for side in sides
                    if side.tls
                    for version, cipher in side.tls.agreed
                }
            )
        )

    def _running(self) -> Loop:
        if self._loop is None:
            keep_alive = self._context.settings.keep_alive or 60 * SECOND
            self._loop = Loop(self._context.clock, keep_alive, self.counts, self._arrivals)
        return self._loop

    def start(self, connections: Sequence[C]) -> None:
        """Dial these connections; they are established in :meth:`poll`."""
        for connection in connections:
            self._running().start(connection)

    def establish(
        self, connections: Sequence[C], patience: int = PATIENCE, pace: Pace | None = None
    ) -> None:
        """Dial these connections, at once or paced, and wait until all are up.

        :raises TargetError: a connection is rejected, or none comes up for ``patience`` ns plus the
            longest gap between two instants.
        """
        # A paced connection may legitimately stay silent until the next one is due, so the longest
        # gap is added to the patience.
        loop = self._running()
        loop.failed = None
        if pace is None:
            self.start(connections)
        else:
            for connection, instant in zip(connections, pace.due, strict=True):
                connection.due = instant
                loop.start_at(connection, instant)
            patience += max(
                (later - before for before, later in pairwise([self._context.clock(), *pace.due])),
                default=0,
            )
        self.until(lambda: len(loop.down), patience, None if pace is None else pace.idle)
        self.allowed = min(
            [self.allowed, *(connection.receive_maximum for connection in connections)]
        )
        self.topic_aliases = min(
            (connection.topic_aliases for connection in connections), default=self.topic_aliases
        )
        self.keep_alive = min(
            (connection.keep_alive_time for connection in connections), default=self.keep_alive
        )

    def until(
        self, left: Callable[[], int], patience: int, idle: Callable[[], None] | None = None
    ) -> None:
        """Poll until ``left()`` is 0. :param idle: called between two polls.

        :raises TargetError: a client is rejected, or ``left()`` does not fall for ``patience`` ns.
        """
        loop = self._running()
        clock = self._context.clock
        before = left()
        progressed = clock()
        while (now_left := left()) > 0:
            if now_left < before:
                before = now_left
                progressed = clock()
            if loop.failed is not None:
                raise self.error(f"{loop.failed.name}: {loop.failed.failure}", loop.failed)
            if clock() - progressed > patience:
                late = next(iter(loop.down), None)
                raise self.error(
                    f"{_describe_down([*loop.down]) or 'target'}: no answer in"
                    f" {patience // SECOND} s",
                    late,
                )
            self.poll(20 * MILLISECOND)
            if idle is not None:
                idle()

    def error(self, what: str, connection: LoopConnection | None = None) -> TargetError:
        """Return an error that names the target.

        The address of ``connection``, or the run's target if it is None.
        """
        return TargetError(
            f"{self._context.target.url if connection is None else connection.endpoint.url}: {what}"
        )

    def poll(self, timeout_ns: int) -> None:
        """Read and write.

        :raises TargetError: the run cannot go on.
        """
        loop = self._running()
        loop.poll(timeout_ns)
        if loop.fatal is not None:
            raise self.error(loop.fatal)

    def disconnected(self, joining: Sequence[C]) -> str | None:
        """Return the first client that should be connected and is not, with the reason.

        The number of the others follows. None if all are connected.

        :param joining: clients that were never connected, which do not count.
        """
        never: set[LoopConnection] = {*joining}
        if self._loop is None:
            return None
        return _describe_down([down for down in self._loop.down if down not in never])

    def end(self) -> None:
        """Disconnect all clients that stayed for the run."""
        for connection in self._kept:
            connection.end()
        self._kept = []

    def end_sessions(self) -> None:
        """Delete the sessions that outlive their connections.

        :raises TargetError: the target does not answer; the sessions can be ended later.
        """
        if not self._sessions:
            return
        self._delete_sessions(sorted(self._sessions.items()), FAREWELL)
        self._sessions.clear()

    def discard_sessions(self, client_ids: Sequence[str]) -> None:
        """Delete the sessions of producers of an earlier run, which may have been killed.

        :raises TargetError: a client is rejected, or the broker does not answer.
        """
        # A producer has no state of such a session and must not continue it (MQTT 5, 3.2.2-4): at
        # QoS 2 the broker would drop new messages under its packet identifiers as second copies.
        # The producers themselves do not start clean: mosquitto 2.0 saves no session that did.
        self._delete_sessions([(client_id, False) for client_id in client_ids], PATIENCE)

    def _delete_sessions(self, sessions: Sequence[tuple[str, bool]], patience: int) -> None:
        """Delete sessions by their client ids, each with whether it is of a consumer.

        :param patience: see :meth:`establish`.
        :raises TargetError: a client is rejected, or the broker does not answer.
        """
        # Connecting with clean start and without an expiry interval deletes a
        # session (MQTT 5, 3.1.2.4 and 3.1.2.11.2).
        connections = [
            self._connect(f"session {client_id}", client_id, None, self._passing, consumer=consumer)
            for client_id, consumer in sessions
        ]
        try:
            self.establish(connections, patience)
        finally:
            for connection in connections:
                connection.end()

    def stop(self) -> None:
        """Close the loop; no client is connected any more."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None


def _describe_down(down: Sequence[LoopConnection]) -> str | None:
    if not down:
        return None
    first, *others = down
    reason = f" ({first.failure})" if first.failure else ""
    return f"{first.name}{reason}" + (f" and {len(others)} more" if others else "")
