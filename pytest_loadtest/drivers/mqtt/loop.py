"""One epoll loop for all of a driver's MQTT connections, run from the engine's thread.

paho's own loops use ``select()``, which ends at about 340 clients a process, or a thread for each client.
"""

from __future__ import annotations

import heapq
import itertools
import resource
import select
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.base import Clock
    from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket

MAX_OPENING: Final = 64  # mosquitto listens with a backlog of 100; beyond it a connect measures SYN retransmission
ANSWER: Final = 10 * SECOND  # for connect, handshake, CONNACK and SUBACK together
_KEEP_ALIVE_PARTS: Final = 16  # looks at a connection within its keep-alive
_FD_SETSIZE: Final = 1024
SUBSCRIBES: Final = 3  # of a client whose broker hangs up instead of answering: Artemis may, when a shared subscription is begun by several


class LoopConnection(Protocol):
    """What the loop needs of a connection."""

    @property
    def name(self) -> str:
        """For messages: ``consumer 3``."""

    @property
    def endpoint(self) -> BrokerEndpoint:
        """Where it connects to."""

    @property
    def failure(self) -> str | None:
        """Why it is not up."""

    @property
    def socket(self) -> BrokerSocket | None:
        """Of the attempt that is under way or came up; None when there is none."""

    def dial(self) -> None:
        """Begin to connect."""

    def turn(self, sock: Any, mask: int) -> None:
        """epoll says that there is something to do on ``sock``, which was its socket then."""

    def keep_alive(self) -> None:
        """Ping the broker when it is time to, and notice that it does not answer."""

    def abandon(self, reason: str) -> None:
        """Give the present attempt up."""


class Loop:
    """Dials, waits, and gives each connection its turn.

    :param keep_alive: ns; each connection is looked at sixteen times within it, for brokers hang up after one and a half of it
        (MQTT 5, 3.1.2.10).
    """

    def __init__(self, clock: Clock, keep_alive: int = 60 * SECOND) -> None:
        self.clock = clock
        self.down: dict[LoopConnection, None] = {}  # to be up and not up, in the order they went down
        self.failed: LoopConnection | None = None  # could not come up the first time
        self.gone: str | None = None  # why it makes no sense to go on
        self.losses = 0  # connections that ended while they were wanted
        self.forgotten = 0  # of producers, that came up again at a broker which had forgotten their session
        self.repeated = 0  # subscriptions that were asked for again, for the broker had hung up
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection is an open file, and many systems begin with 1 024
        self._epoll = select.epoll()
        self._connections: dict[int, LoopConnection] = {}
        self._turns: deque[tuple[LoopConnection, BrokerSocket, int]] = deque()
        self.freed = 0  # when there was room for one more opening again, after there had been none
        self._due: list[tuple[int, int, LoopConnection]] = []
        self._order = itertools.count()
        self._opening: dict[LoopConnection, int] = {}
        self._check_every = keep_alive // _KEEP_ALIVE_PARTS
        self._checks: deque[tuple[int, LoopConnection, BrokerSocket]] = deque()  # when to look at each one, the next first
        self._woken = False
        self.settle: Callable[[], None] = lambda: None  # called when those that had something to do have had their turns

    def start(self, connection: LoopConnection, delay: int = 0) -> None:
        """Dial ``connection`` after ``delay`` ns, as soon as fewer than 64 others are being opened."""
        self.start_at(connection, self.clock() + delay)

    def start_at(self, connection: LoopConnection, instant: int) -> None:
        """The same, at an instant or as soon after it as fewer than 64 others are being opened."""
        self.down[connection] = None
        heapq.heappush(self._due, (instant, next(self._order), connection))

    def watch(self, connection: LoopConnection, sock: BrokerSocket, mask: int) -> None:
        """Wait for these epoll events on the socket of a connection."""
        fd = sock.fileno()
        self._connections[fd] = connection
        self._epoll.register(fd, mask)
        self._checks.append((self.clock() + self._check_every, connection, sock))

    def change(self, fd: int, mask: int) -> None:
        """Wait for other events."""
        self._epoll.modify(fd, mask)

    def ended(self, connection: LoopConnection, fd: int) -> None:
        """The connection is closed, which took it out of epoll."""
        self._connections.pop(fd, None)
        self._opened(connection)

    def established(self, connection: LoopConnection) -> None:
        """The connection is up."""
        self._opened(connection)
        self.down.pop(connection, None)
        self._woken = True

    def _opened(self, connection: LoopConnection) -> None:
        if self._opening.pop(connection, None) is not None and len(self._opening) == MAX_OPENING - 1:
            self.freed = self.clock()

    def wake(self) -> None:
        """Let :meth:`poll` return as soon as it can: somebody waits for what just happened."""
        self._woken = True

    def again(self, connection: LoopConnection, sock: BrokerSocket, mask: int) -> None:
        """Give ``connection`` another turn without waiting for epoll."""
        self._turns.append((connection, sock, mask))

    def poll(self, timeout_ns: int) -> None:
        """Move bytes until ``timeout_ns`` is over, or until :meth:`wake`; overruns by one turn of one connection at most."""
        now = self.clock()
        deadline = now + timeout_ns
        self._woken = False
        while True:
            self._tend(now)
            if not self._turns:
                self._wait(self._next(deadline) - now)
            while self._turns:
                connection, sock, mask = self._turns.popleft()
                connection.turn(sock, mask)
                if self.clock() >= deadline:
                    break
            self.settle()
            now = self.clock()
            if self._woken or now >= deadline:
                return

    def _next(self, deadline: int) -> int:
        """Until when there is nothing to do but to wait for events: the next connection may be due before the deadline."""
        if not self._due or len(self._opening) >= MAX_OPENING:
            return deadline
        return min(deadline, self._due[0][0])

    def _wait(self, ns: int) -> None:
        if ns > 0:
            if self._epoll.fileno() >= _FD_SETSIZE:
                self._turn_all(self._epoll.poll(ns / SECOND))
                return
            if not select.select((self._epoll,), (), (), ns / SECOND)[0]:  # epoll itself only waits for whole milliseconds
                return
        self._turn_all(self._epoll.poll(0))

    def _turn_all(self, events: list[tuple[int, int]]) -> None:
        for fd, mask in events:
            connection = self._connections[fd]
            if connection.socket is not None:
                self._turns.append((connection, connection.socket, mask))

    def _tend(self, now: int) -> None:
        if self._due or self._opening:
            self._open(now)
        while self._checks and self._checks[0][0] <= now:
            _, connection, sock = self._checks.popleft()
            if connection.socket is sock:
                connection.keep_alive()
                self._checks.append((now + self._check_every, connection, sock))

    def _open(self, now: int) -> None:
        while self._due and self._due[0][0] <= now and len(self._opening) < MAX_OPENING:
            connection = heapq.heappop(self._due)[2]
            self._opening[connection] = now
            connection.dial()
        for connection in [one for one, since in self._opening.items() if now - since > ANSWER]:
            connection.abandon(f"no answer in {ANSWER // SECOND} s")

    def close(self) -> None:
        """Forget everything; the connections have ended."""
        self._epoll.close()
