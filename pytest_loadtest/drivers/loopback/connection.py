"""A worker's connection to the loopback relay."""

from __future__ import annotations

import select
import socket
import zlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from pytest_loadtest.drivers.arrival_clock import ArrivalClock, SocketReader
from pytest_loadtest.drivers.source_addresses import connect_from
from pytest_loadtest.errors import TargetError
from pytest_loadtest.wire.buffers import Outbox
from pytest_loadtest.wire.frames import Decoder, Frame, FrameError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.base import DriverContext

CONNECT_TIMEOUT = 10.0  # s
# Number of reads in one wait(): a backlog of deliveries must not delay sending.
_READS = 8


class Stamped(NamedTuple):
    """A received frame.

    :param time: when its last bytes arrived, ns.
    :param lag: time from then until they were read, ns; -1: unknown.
    """

    frame: Frame
    time: int
    lag: int


class RelayConnection:
    """A connection that sends and receives frames.

    :param arrivals: the clock of arrivals.
    :ivar users: users of the connection, for messages.
    :ivar failure: why it can no longer be used.
    :ivar run: run number of the topics.
    :ivar first_topic: number of the topic with index 0, 32 bits; the others follow it.
    :raises TargetError: the relay cannot be reached.
    """

    # The relay identifies a topic by run and number. Runs have different nonces,
    # so they share no topic unless both name an existing one: that belongs to run
    # 0, and each run has its own subscriptions there.

    def __init__(self, context: DriverContext, arrivals: ArrivalClock) -> None:
        self.users: list[str] = []
        self.failure: str | None = None
        name = context.topology.name
        self.run, self.first_topic = (
            (context.nonce, 0) if name is None else (0, zlib.crc32(name.encode()))
        )
        self._url = context.target.url
        self._clock = context.clock
        self._arrivals = arrivals
        self._inbox = Decoder()
        self._outbox = Outbox()
        url = urlsplit(self._url)
        try:
            source = context.sources[0] if context.sources else None  # a worker has one connection
            self._socket = connect_from(url.hostname or "", url.port or 0, CONNECT_TIMEOUT, source)
        except (OSError, ValueError) as error:
            raise TargetError(
                f"cannot connect to the loopback relay at {self._url}: {error}"
            ) from error
        # Without Nagle's algorithm: a small frame must not wait for
        # the acknowledgement of earlier ones.
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = [self._socket.fileno()]
        self._reader = SocketReader(self._socket, arrivals)

    @property
    def name(self) -> str:
        """The users and the address, e.g.

        ``consumers 0, producers of streams 0, 1 at loopback://…``.
        """
        return f"{', '.join(self.users)} at {self._url}"

    def check(self) -> None:
        """Check the connection. :raises TargetError: it has failed."""
        if self.failure:
            raise TargetError(f"lost {self.name}: {self.failure}")

    def send(self, frame: Sequence[bytes | memoryview]) -> None:
        """Queue a frame, and write as much as the socket takes."""
        self._outbox.add(frame)
        self._write()

    def _write(self) -> None:
        try:
            while self._outbox:
                self._outbox.sent(self._socket.sendmsg(self._outbox.next()))
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)

    def wait(self, timeout: float) -> list[Stamped]:
        """Write queued frames, and read as soon as data arrives; wait ``timeout`` seconds at most.

        :returns: the frames received.
        """
        readable, writable = self._select(0.0)
        if not readable and not writable and timeout > 0 and not self.failure:
            readable, writable = self._select(timeout)
            # This process may have woken up long after the first packet came.
            self._arrivals.look(self._clock())
        if writable:
            self._write()
        return self._read() if readable else []

    def _select(self, timeout: float) -> tuple[list[int], list[int]]:
        # A look without waiting comes first: only that shows since when the socket was empty.
        self._arrivals.look(self._clock())
        # select() waits for microseconds; poll() and epoll() in Python wait for whole milliseconds.
        writing = self._descriptor if self._outbox else ()
        readable, writable, _ = select.select(self._descriptor, writing, (), timeout)
        return readable, writable

    def _read(self) -> list[Stamped]:
        received = []
        reader = self._reader
        try:
            for _ in range(_READS):
                count = reader.read(self._inbox.space())
                if not count:
                    self.failure = "the loopback relay closed the connection"
                    break
                received += [
                    Stamped(frame, reader.arrived, reader.lag)
                    for frame in self._inbox.filled(count)
                ]
                # The socket is empty; reading it again would only cost a system call.
                if not reader.filled:
                    break
        except BlockingIOError:
            pass
        except (OSError, FrameError) as error:
            self._fail(error)
        return received

    def _fail(self, error: Exception) -> None:
        self.failure = f"connection to the loopback relay failed: {error}"

    def close(self) -> None:
        self._socket.close()
