"""The driver of the loopback relay.

Columns to the socket, one frame for each burst, no loop over messages.

A worker has one connection, so that answers and deliveries which the relay writes together are one
read. Messages get the time at which the kernel received the last bytes of their read. The relay has
one partition for each topic and no keys, so order is judged within the stream.

The relay creates topics on demand: an existing topic is one
that other runs on the same relay name too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, DriverFacts, Joined, Received
from pytest_loadtest.drivers.loopback.connection import CONNECT_TIMEOUT, RelayConnection, Stamped
from pytest_loadtest.drivers.loopback.consumers import RelayConsumers
from pytest_loadtest.drivers.loopback.faults import relay_settings
from pytest_loadtest.drivers.loopback.producers import RelayProducers
from pytest_loadtest.errors import TargetError
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


class LoopbackDriver:
    """See :class:`~pytest_loadtest.drivers.base.Driver`.

    ``context.settings`` is a ``LoopbackSettings``.
    """

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._arrivals = ArrivalClock(context.clock)
        self._connection: RelayConnection | None = None
        self._producers: RelayProducers | None = None
        self._consumers: RelayConsumers | None = None

    def facts(self) -> DriverFacts:
        """Return the client's settings and the faults of the relay."""
        settings = self._context.settings
        own = {
            "maxPendingMessages": str(settings.max_pending_messages),
            "blockIfQueueFull": str(settings.block_if_queue_full).lower(),
        }
        return DriverFacts(
            client="loopback",
            version=f"protocol {frames.VERSION}",
            applied={**own, **relay_settings(settings)},
            stamps=self._arrivals.source,
            unstamped=self._arrivals.unusable,
        )

    def prepare(self) -> None:
        """Check that the relay can be reached; topics need no creation.

        :raises TargetError: the relay cannot be reached.
        """
        RelayConnection(self._context, self._arrivals).close()

    def open_consumers(self, consumers: Sequence[int]) -> NDArray[np.int32]:
        """Subscribe all consumers with one frame, and wait for the answer.

        :raises TargetError: the relay cannot be reached, or does not answer in time.
        """
        if not len(consumers):
            return np.empty(0, np.int32)
        own = self._own_consumers(consumers)
        places = own.subscribe(consumers)
        end = time.monotonic() + CONNECT_TIMEOUT
        while own.established <= places[-1]:
            if time.monotonic() > end:
                missing = int(places[-1]) + 1 - own.established
                raise TargetError(
                    f"{own.connection.name}: {missing} subscriptions were not confirmed within"
                    f" {CONNECT_TIMEOUT:.0f} s"
                )
            self._read(own.connection, 100 * MILLISECOND)
        return places

    def attach(self, consumers: Sequence[int]) -> None:
        """Subscribe more consumers; :meth:`attached` returns them when they are established.

        :raises UsageError: the run has no such consumer.
        """
        if len(consumers):
            self._own_consumers(consumers).attach(consumers)

    def attached(self) -> Joined | None:
        """Return the consumers of :meth:`attach` confirmed since the last call, or None."""
        return self._consumers.attached() if self._consumers else None

    def detach(self, places: Sequence[int]) -> None:
        """Unsubscribe.

        Messages that wait in the relay go to the others of the subscription, messages under way are
        still received.
        """
        if self._consumers and len(places):
            self._consumers.detach(places)

    def pause(self, places: Sequence[int]) -> None:
        """Hold messages in the relay; messages under way wait in the driver."""
        if self._consumers and len(places):
            self._consumers.pause(places)

    def resume(self, places: Sequence[int]) -> None:
        """Deliver messages again; those that waited in the driver get the current time."""
        if self._consumers and len(places):
            self._consumers.resume(places)

    def open_producers(self, streams: Sequence[int]) -> None:
        """Connect; streams need no setup at the relay.

        :raises TargetError: the relay cannot be reached.
        """
        if len(streams):
            connection = self._connect(f"producers of streams {listed(streams)}")
            self._producers = RelayProducers(self._context, streams, connection)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Send the messages that fit into the windows in one frame.

        Several frames if they have megabytes.

        :returns: ascending positions of the rejected messages; None: all are taken, or answered as
            FAILED with ``blockIfQueueFull: false``.
        :raises TargetError: the connection is lost.
        """
        assert self._producers, "send() before open_producers()"
        return self._producers.send(burst)

    def acks(self) -> Acks | None:
        """Return the answers since the last call, or None.

        The client never sends a message again.
        """
        return self._producers.acks() if self._producers else None

    def take(self) -> Received | None:
        """Return what all consumers received since the last call, or None.

        Messages of paused consumers are held.
        """
        return self._consumers.take() if self._consumers else None

    def poll(self, timeout_ns: int) -> None:
        """Write and read until the time is over or a stream with rejected messages has room.

        :raises TargetError: the connection is lost.
        """
        # A worker without streams and consumers has no connection,
        # but the engine still polls its driver.
        if self._connection is None:
            time.sleep(timeout_ns / 1e9)
            return
        end = time.monotonic_ns() + timeout_ns
        while not self._read(self._connection, timeout_ns):
            timeout_ns = end - time.monotonic_ns()
            if timeout_ns <= 0:
                return

    def _read(self, connection: RelayConnection, timeout_ns: int) -> bool:
        """Write and read once; return True if a stream with rejected messages has room now."""
        room = False
        # After an inconsistent frame nothing that follows can be
        # trusted, so the connection counts as failed.
        try:
            for came in connection.wait(timeout_ns / 1e9):
                room |= self._dispatch(came)
        except FrameError as error:
            connection.failure = str(error)
        connection.check()
        return room

    def _dispatch(self, came: Stamped) -> bool:
        frame = came.frame
        if frame.kind is Kind.ACK and self._producers:
            return self._producers.answered(frame.n, came.time)
        if frame.kind is Kind.DELIVER and self._consumers:
            self._consumers.arrived(came)
        elif frame.kind is Kind.SUBSCRIBED and self._consumers:
            self._consumers.subscribed(frame)
        return False

    def opening_times(self) -> Mapping[str, NDArray[np.int64]]:
        """Return nothing: connecting to the relay is not measured."""
        return {}

    def disconnected(self) -> str | None:
        """Return the users of a failed connection with the reason, or None."""
        connection = self._connection
        return (
            f"{connection.name}: {connection.failure}"
            if connection and connection.failure
            else None
        )

    def close(self) -> None:
        """Close the connection; :meth:`take` still returns what was received."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cleanup(self) -> None:
        """Do nothing.

        The relay removes consumers with their connection, and keeps no message without a consumer.
        """

    def _own_consumers(self, consumers: Sequence[int]) -> RelayConsumers:
        if self._consumers is None:
            self._consumers = RelayConsumers(
                self._context, self._connect(f"consumers {listed(consumers)}")
            )
        return self._consumers

    def _connect(self, user: str) -> RelayConnection:
        """Return the worker's connection, with one more user."""
        if self._connection is None:
            self._connection = RelayConnection(self._context, self._arrivals)
        self._connection.users.append(user)
        return self._connection


def listed(numbers: Sequence[int]) -> str:
    """Return at most five numbers as text, e.g. ``0, 1, 2, 3, 4 and 7 more``."""
    return ", ".join(map(str, numbers[:5])) + (
        f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    )
