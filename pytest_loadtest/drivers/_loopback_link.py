"""A connection to the loopback relay, and waiting for several.

Waiting is ``select``: microseconds count here, and ``poll`` and ``epoll`` wait whole milliseconds in Python.
"""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_loadtest.errors import TargetError
from pytest_loadtest.wire.frames import Decoder, Frame, FrameError, Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers._base import DriverContext

CONNECT_TIMEOUT = 10.0  # s
_READS = 8  # of one connection in one poll, so that neither connection starves the other


class Link:
    """One connection to the relay."""

    def __init__(self, context: DriverContext, what: str) -> None:
        url = urlsplit(context.target.url)
        self.name = f"{what} at {context.target.url}"
        self.failure: str | None = None
        self.outbox = Outbox()
        self._inbox = Decoder()
        self._clock = context.clock
        try:
            self.socket = socket.create_connection((url.hostname or "", url.port or 0), CONNECT_TIMEOUT)
        except (OSError, ValueError) as error:
            raise TargetError(f"cannot connect to the loopback relay at {context.target.url}: {error}") from error
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def check(self) -> None:
        if self.failure:
            raise TargetError(f"lost {self.name}: {self.failure}")

    def push(self) -> None:
        """Write as much as the socket takes."""
        try:
            while self.outbox:
                self.outbox.sent(self.socket.sendmsg(self.outbox.next()))
        except BlockingIOError:
            pass
        except OSError as error:
            self.failure = f"connection to the loopback relay failed: {error}"

    def pull(self) -> list[tuple[Frame, int]]:
        """What came, with the instant of its read."""
        came: list[tuple[Frame, int]] = []
        try:
            for _ in range(_READS):
                space = self._inbox.space()
                count = self.socket.recv_into(space)
                now = self._clock()
                if not count:
                    self.failure = "the loopback relay closed the connection"
                    break
                came.extend((frame, now) for frame in self._inbox.filled(count))
                if count < len(space):
                    break
        except BlockingIOError:
            pass
        except (OSError, FrameError) as error:
            self.failure = f"connection to the loopback relay failed: {error}"
        return came

    def close(self) -> None:
        self.socket.close()


def wait(links: Sequence[Link], timeout: float) -> list[Link]:
    """Write what can be written; the links that can be read, after at most ``timeout`` seconds. Failed ones are not waited for."""
    alive = [link for link in links if not link.failure]
    for link in alive:
        link.push()
    readers = {link.socket: link for link in alive}
    if len(alive) < len(links):
        timeout = 0.0
    readable, writable, _ = select.select(readers, [link.socket for link in alive if link.outbox], (), timeout)
    for ready in writable:
        readers[ready].push()
    return [readers[ready] for ready in readable]
