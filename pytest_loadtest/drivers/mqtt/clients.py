"""All clients of a driver, over one loop: made, connected many at a time, and at the end their sessions deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from pytest_loadtest.drivers.mqtt.base_connection import MqttConnectionBase
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, Endpoints, find_endpoints
from pytest_loadtest.drivers.mqtt.loop import Loop, LoopConnection
from pytest_loadtest.drivers.mqtt.options import MOST_INFLIGHT, ClientOptions
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.base import DriverContext

PATIENCE: Final = 30 * SECOND  # opening is given up when no further client gets connected for so long
FAREWELL: Final = 3 * SECOND  # closing is given up when no further client gets disconnected for so long


C = TypeVar("C", bound=MqttConnectionBase[Any])
MakeConnection = Callable[[Loop, BrokerEndpoint, ClientOptions, str, str, str | None], C]
"""Makes a connection with a name, a client id and perhaps a subscription."""


class Pace(NamedTuple):
    """:param due: when each connection is to be dialled, ns, ascending. :param idle: called again and again until all are up."""

    due: Sequence[int]
    idle: Callable[[], None]


class MqttClients(Generic[C]):
    """The clients of one driver. Nothing is connected before it is told to.

    :param options: what those have in common that stay for the run. :param connect: makes one.
    """

    def __init__(self, context: DriverContext, options: ClientOptions, connect: MakeConnection[C]) -> None:
        self._make_connection = connect
        self.allowed = MOST_INFLIGHT  # the least Receive Maximum that the broker gave so far
        self.topic_aliases: int | None = None  # that the broker allows; None before it said so
        self._context, self._options = context, options
        self._loop: Loop | None = None
        self._endpoints: Endpoints | None = None
        self._kept: list[C] = []
        self._sessions: dict[str, bool] = {}  # ids of clients whose sessions may outlive their connections: whether each is a consumer's
        self._losses = self._forgotten = self._repeated = 0
        self.opening_times: dict[str, list[int]] = {"connect": [], "subscribe": []}  # of clients that stay for the run

    @property
    def losses(self) -> int:
        """Connections that were lost in mid-run."""
        return self._losses + (0 if self._loop is None else self._loop.losses)

    @property
    def forgotten(self) -> int:
        """Connections of producers that came up again at a broker which had forgotten their session."""
        return self._forgotten + (0 if self._loop is None else self._loop.forgotten)

    @property
    def repeated(self) -> int:
        """Subscriptions asked for again, because the broker hung up instead of answering."""
        return self._repeated + (0 if self._loop is None else self._loop.repeated)

    def make(self, name: str, role: str, subscription: str | None = None) -> C:
        """A client that stays for the run.

        Its id is the same in every run when its session is to be found again, and holds the run's name otherwise.

        :param name: for messages. :param role: last part of the id. :param subscription: topic filter.
        """
        client_id = self._client_id(role) if self._options.clean_start else f"{self._context.settings.client_id_prefix}-{role}"
        connection = self._connect(name, client_id, subscription, self._options, consumer=subscription is not None)
        connection.times = self.opening_times
        self._kept.append(connection)
        if self._options.durable:
            self._sessions[client_id] = subscription is not None
        return connection

    def make_passing(self, name: str, role: str, *, consumer: bool = False) -> C:
        """A client that leaves nothing behind; whoever asks for it ends it. :param consumer: it connects where consumers do."""
        return self._connect(name, self._client_id(role), None, self._passing, consumer=consumer)

    def _client_id(self, role: str) -> str:
        return f"{self._context.settings.client_id_prefix}-{self._context.run}-{role}"

    @property
    def _passing(self) -> ClientOptions:
        return replace(self._options, clean_start=True, session_expiry=0, user_properties=0, topic_alias_maximum=0)

    def _connect(self, name: str, client_id: str, subscription: str | None, options: ClientOptions, *, consumer: bool) -> C:
        if self._endpoints is None:
            self._endpoints = find_endpoints(self._context)
        endpoint = self._endpoints.consumers if consumer else self._endpoints.producers
        return self._make_connection(self._running(), endpoint, options, name, client_id, subscription)

    @property
    def agreed(self) -> str:
        """Version and cipher of the TLS connections so far, ``TLSv1.3 TLS_AES_256_GCM_SHA384``; empty where there are none."""
        sides = self._endpoints or ()
        return ", ".join(sorted({f"{version} {cipher}" for side in sides if side.tls for version, cipher in side.tls.agreed}))

    def _running(self) -> Loop:
        if self._loop is None:
            self._loop = Loop(self._context.clock, self._context.settings.keep_alive or 60 * SECOND)
        return self._loop

    def start(self, connections: Sequence[C]) -> None:
        """Dial these; they come up in :meth:`poll`."""
        for connection in connections:
            self._running().start(connection)

    def establish(self, connections: Sequence[C], patience: int = PATIENCE, pace: Pace | None = None) -> None:
        """Dial these, at once or at a pace, and wait until all are up.

        :raises TargetError: one is refused, or for ``patience`` ns beside the longest gap between two of them no other comes up.
        """
        loop = self._running()
        loop.failed = None
        if pace is None:
            self.start(connections)
        else:
            for connection, instant in zip(connections, pace.due, strict=True):
                connection.due = instant
                loop.start_at(connection, instant)
            patience += max((later - before for before, later in pairwise([self._context.clock(), *pace.due])), default=0)
        self.until(lambda: len(loop.down), patience, None if pace is None else pace.idle)
        self.allowed = min([self.allowed, *(connection.receive_maximum for connection in connections)])
        self.topic_aliases = min((connection.topic_aliases for connection in connections), default=self.topic_aliases)

    def until(self, left: Callable[[], int], patience: int, idle: Callable[[], None] | None = None) -> None:
        """Poll until nothing is left. :param idle: called between two polls.

        :raises TargetError: a client is refused, or for ``patience`` ns nothing moves.
        """
        loop, clock = self._running(), self._context.clock
        before, moved = left(), clock()
        while (now_left := left()) > 0:
            if now_left < before:
                before, moved = now_left, clock()
            if loop.failed is not None:
                raise self.error(f"{loop.failed.name}: {loop.failed.failure}", loop.failed)
            if clock() - moved > patience:
                late = next(iter(loop.down), None)
                raise self.error(f"{_name([*loop.down]) or 'target'}: no answer in {patience // SECOND} s", late)
            self.poll(20 * MILLISECOND)
            if idle is not None:
                idle()

    def error(self, what: str, connection: LoopConnection | None = None) -> TargetError:
        """It names the target, by the address that ``connection`` has."""
        return TargetError(f"{self._context.target.url if connection is None else connection.endpoint.url}: {what}")

    def poll(self, timeout_ns: int) -> None:
        """Read and write.

        :raises TargetError: it makes no sense to go on.
        """
        loop = self._running()
        loop.poll(timeout_ns)
        if loop.gone is not None:
            raise self.error(loop.gone)

    def disconnected(self, joining: Sequence[C]) -> str | None:
        """Names the first client that should be connected and is not, with the reason, and how many others there are; None when all are.

        :param joining: those that never were.
        """
        never: set[LoopConnection] = {*joining}
        return None if self._loop is None else _name([one for one in self._loop.down if one not in never])

    def end(self) -> None:
        """Disconnect all that stayed for the run."""
        for connection in self._kept:
            connection.end()
        self._kept = []

    def end_sessions(self) -> None:
        """Connect once more with clean start and without expiry: that is what deletes a session (MQTT 5, 3.1.2.4 and 3.1.2.11.2).

        :raises TargetError: the target does not answer; they can be ended later.
        """
        if not self._sessions:
            return
        connections = [
            self._connect(f"session {client_id}", client_id, None, self._passing, consumer=consumer)
            for client_id, consumer in sorted(self._sessions.items())
        ]
        try:
            self.establish(connections, FAREWELL)
            self._sessions.clear()
        finally:
            for connection in connections:
                connection.end()

    def stop(self) -> None:
        """Nothing is connected any more."""
        if self._loop is not None:
            self._losses += self._loop.losses
            self._forgotten += self._loop.forgotten
            self._repeated += self._loop.repeated
            self._loop.close()
            self._loop = None


def _name(down: Sequence[LoopConnection]) -> str | None:
    """What is not connected just now."""
    if not down:
        return None
    first, *others = down
    reason = f" ({first.failure})" if first.failure else ""
    return f"{first.name}{reason}" + (f" and {len(others)} more" if others else "")
