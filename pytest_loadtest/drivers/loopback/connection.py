"""A worker's connection to the loopback relay.

Waiting is ``select``: microseconds count here, and ``poll`` and ``epoll`` wait whole milliseconds in Python.
"""

from __future__ import annotations

import select
import socket
import zlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_loadtest.errors import TargetError
from pytest_loadtest.wire.frames import Decoder, Frame, FrameError, Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.base import DriverContext

CONNECT_TIMEOUT = 10.0  # s
_READS = 8  # in one go, so that much that comes holds up nothing else


class RelayConnection:
    """Frames out and in.

    The relay knows topics by numbers. Runs do not meet, for each has its nonce, except on a topic that they name: that is one of the run 0,
    and each run has subscriptions of its own there.

    :ivar users: whose connection it is, for messages. :ivar failure: why it is of no more use.
    :ivar run: the run whose topics these are. :ivar first_topic: the number of the topic with the index 0, 32 bits; the others follow it.
    :raises TargetError: the relay cannot be reached.
    """

    def __init__(self, context: DriverContext) -> None:
        self.users: list[str] = []
        self.failure: str | None = None
        name = context.topology.name
        self.run, self.first_topic = (context.nonce, 0) if name is None else (0, zlib.crc32(name.encode()))
        self._url = context.target.url
        self._clock = context.clock
        self._inbox, self._outbox = Decoder(), Outbox()
        url = urlsplit(self._url)
        try:
            self._socket = socket.create_connection((url.hostname or "", url.port or 0), CONNECT_TIMEOUT)
        except (OSError, ValueError) as error:
            raise TargetError(f"cannot connect to the loopback relay at {self._url}: {error}") from error
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._descriptor = [self._socket.fileno()]

    @property
    def name(self) -> str:
        """``consumers 0, producers of streams 0, 1 at loopback://…``."""
        return f"{', '.join(self.users)} at {self._url}"

    def check(self) -> None:
        """:raises TargetError: it has failed."""
        if self.failure:
            raise TargetError(f"lost {self.name}: {self.failure}")

    def send(self, frame: Sequence[bytes | memoryview]) -> None:
        """Put a frame behind the others, and write as much as the socket takes."""
        self._outbox.add(frame)
        self._push()

    def _push(self) -> None:
        try:
            while self._outbox:
                self._outbox.sent(self._socket.sendmsg(self._outbox.next()))
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(error)

    def wait(self, timeout: float) -> list[tuple[Frame, int]]:
        """Write what waits, and read as soon as something can be read; wait ``timeout`` seconds at most.

        :returns: the frames that came, each with the instant of its read.
        """
        writing = self._descriptor if self._outbox else ()
        readable, writable, _ = select.select(self._descriptor, writing, (), 0.0 if self.failure else timeout)
        if writable:
            self._push()
        return self._pull() if readable else []

    def _pull(self) -> list[tuple[Frame, int]]:
        came: list[tuple[Frame, int]] = []
        try:
            for _ in range(_READS):
                space = self._inbox.space()
                count = self._socket.recv_into(space)
                now = self._clock()
                if not count:
                    self.failure = "the loopback relay closed the connection"
                    break
                came += [(frame, now) for frame in self._inbox.filled(count)]
                if count < len(space):
                    break
        except BlockingIOError:
            pass
        except (OSError, FrameError) as error:
            self._fail(error)
        return came

    def _fail(self, error: Exception) -> None:
        self.failure = f"connection to the loopback relay failed: {error}"

    def close(self) -> None:
        """Twice does no harm."""
        self._socket.close()
