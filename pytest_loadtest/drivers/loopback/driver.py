"""The driver of the loopback relay: columns to the socket, one frame a burst, no loop over messages.

A worker has one connection: what the relay does in one go, answers and copies, is one read. What arrives is stamped once per read, when
the read returns. The relay has one partition a topic and knows no keys, so that order is judged within the stream alone.

An existing topic is one that other runs on the same relay can name too; the relay has no other.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, DriverFacts, Joined, Received
from pytest_loadtest.drivers.loopback.connection import CONNECT_TIMEOUT, RelayConnection
from pytest_loadtest.drivers.loopback.consumers import RelayConsumers
from pytest_loadtest.drivers.loopback.faults import relay_settings
from pytest_loadtest.drivers.loopback.producers import RelayProducers
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Frame, FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


class LoopbackDriver:
    """See :class:`~pytest_loadtest.drivers.base.Driver`; ``context.settings`` is a ``LoopbackSettings``."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._connection: RelayConnection | None = None
        self._producers: RelayProducers | None = None
        self._consumers: RelayConsumers | None = None

    def facts(self) -> DriverFacts:
        """Its own settings, and what the relay was asked to do wrong."""
        settings = self._context.settings
        own = {"maxPendingMessages": str(settings.max_pending_messages), "blockIfQueueFull": str(settings.block_if_queue_full).lower()}
        return DriverFacts(client="loopback", version=f"protocol {frames.VERSION}", applied={**own, **relay_settings(settings)})

    def prepare(self) -> None:
        """See whether the relay is there; topics need no making.

        :raises TargetError: it is not.
        """
        RelayConnection(self._context).close()

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Subscribe them all with one frame, and wait for the answer.

        :raises TargetError: the relay is not there, or does not answer in time.
        """
        if not len(consumers):
            return np.empty(0, np.int32)
        own = self._own_consumers(consumers)
        places = own.subscribe(consumers)
        end = time.monotonic() + CONNECT_TIMEOUT
        while own.established <= places[-1]:
            if time.monotonic() > end:
                wanted = int(places[-1]) + 1 - own.established
                raise TargetError(f"{own.connection.name}: {wanted} subscriptions were not confirmed within {CONNECT_TIMEOUT:.0f} s")
            self._read(own.connection, 100 * MILLISECOND)
        return places

    def attach(self, consumers: Sequence[int]) -> None:
        """Subscribe more consumers; :meth:`attached` says when they are there.

        :raises UsageError: the run has no such consumer.
        """
        if len(consumers):
            self._own_consumers(consumers).attach(consumers)

    def attached(self) -> Joined | None:
        """Consumers of :meth:`attach` that the relay confirmed since the last call."""
        return self._consumers.attached() if self._consumers else None

    def detach(self, places: Sequence[int]) -> None:
        """Unsubscribe: what waits for them in the relay goes to the others of their subscription, what is on its way is still taken."""
        if self._consumers and len(places):
            self._consumers.leave(places)

    def pause(self, places: Sequence[int]) -> None:
        """Have their messages kept in the relay; those on their way wait here."""
        if self._consumers and len(places):
            self._consumers.pause(places)

    def resume(self, places: Sequence[int]) -> None:
        """Have them sent again; those that waited here are stamped now."""
        if self._consumers and len(places):
            self._consumers.resume(places)

    def open_producers(self, streams: Sequence[int]) -> None:
        """Connect; a stream needs nothing of its own at the relay.

        :raises TargetError: the relay is not there.
        """
        if len(streams):
            connection = self._connect(f"producers of streams {listed(streams)}")
            self._producers = RelayProducers(self._context, streams, connection)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """One frame with all that the windows take, or a few where that is megabytes.

        :returns: positions of what is refused, ascending; None: all is taken, or answered as FAILED with ``blockIfQueueFull`` off.
        :raises TargetError: the relay is gone.
        """
        assert self._producers, "send() before open_producers()"
        return self._producers.send(burst)

    def acks(self) -> Acks | None:
        """What was answered since the last call; nothing is ever sent twice."""
        return self._producers.acks() if self._producers else None

    def take(self) -> Received | None:
        """What all consumers got since the last call, without that of paused ones."""
        return self._consumers.take() if self._consumers else None

    def poll(self, timeout_ns: int) -> None:
        """Write, and read what comes, until the time is over or a stream that was refused finds room.

        :raises TargetError: the relay is gone.
        """
        if self._connection is None:
            time.sleep(timeout_ns / 1e9)
            return
        end = time.monotonic_ns() + timeout_ns
        while not self._read(self._connection, timeout_ns):
            timeout_ns = end - time.monotonic_ns()
            if timeout_ns <= 0:
                return

    def _read(self, connection: RelayConnection, timeout_ns: int) -> bool:
        """Write what can be written, and read as soon as something can be read.

        :returns: whether a stream that was refused finds room now.
        """
        room = False
        try:
            for frame, now in connection.wait(timeout_ns / 1e9):
                room |= self._dispatch(frame, now)
        except FrameError as error:
            connection.failure = str(error)
        connection.check()
        return room

    def _dispatch(self, frame: Frame, now: int) -> bool:
        if frame.kind is Kind.ACK and self._producers:
            return self._producers.answered(frame.n, now)
        if frame.kind is Kind.DELIVER and self._consumers:
            self._consumers.arrived(frame, now)
        elif frame.kind is Kind.SUBSCRIBED and self._consumers:
            self._consumers.subscribed(frame)
        return False

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Not told."""
        return {}

    def disconnected(self) -> str | None:
        """Names whose connection failed, with the reason."""
        connection = self._connection
        return f"{connection.name}: {connection.failure}" if connection and connection.failure else None

    def close(self) -> None:
        """Close the connection; what was taken from it can still be had."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cleanup(self) -> None:
        """Nothing to do: the relay forgets a consumer with its connection and keeps no message without one."""

    def _own_consumers(self, consumers: Sequence[int]) -> RelayConsumers:
        if self._consumers is None:
            self._consumers = RelayConsumers(self._context, self._connect(f"consumers {listed(consumers)}"))
        return self._consumers

    def _connect(self, user: str) -> RelayConnection:
        """The connection, from now on this one's too."""
        if self._connection is None:
            self._connection = RelayConnection(self._context)
        self._connection.users.append(user)
        return self._connection


def listed(numbers: Sequence[int]) -> str:
    """``0, 1, 2, 3, 4 and 7 more``: never long."""
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
