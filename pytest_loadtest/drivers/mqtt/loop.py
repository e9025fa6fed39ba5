"""One epoll loop for all MQTT connections of a driver, run from the engine's thread.

paho's own loops use ``select()``, which is limited to about 340 clients
in a process, or one thread for each client.
"""

from __future__ import annotations

import heapq
import itertools
import resource
import select
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.metrics.pauses import STALL
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.base import Clock
    from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket

# mosquitto listens with a backlog of 100. More simultaneous connects overflow it, and then a
# connect measures SYN retransmission (1 s).
MAX_OPENING: Final = 64
ANSWER: Final = 10 * SECOND  # limit for connect, handshake, CONNACK and SUBACK together
# A broker disconnects a client after 1.5 times its keep-alive (MQTT 5, 3.1.2.10), so each
# connection is checked this often within it.
_KEEP_ALIVE_PARTS: Final = 16
# Number of SUBSCRIBEs of a client whose broker closes the connection instead of answering. Artemis
# may do that when several clients open a shared subscription at once (docs/decisions/017).
SUBSCRIBES: Final = 3
# Violations of the protocol after which the run ends. One of them may be damage in transfer, for
# which a new connection is enough.
MOST_VIOLATIONS: Final = 10
# Stalls of the loop that are remembered. An opening that takes
# a minute has fewer than 1 200 of 50 ms.
_MOST_STALLS: Final = 1200
VIOLATED: Final = (
    f"{MOST_VIOLATIONS} violations of the protocol in this run: is an MQTT broker there, and no"
    " proxy of another protocol?"
)


class LoopConnection(Protocol):
    """The attributes and methods of a connection that the loop uses.

    See :class:`MqttConnectionBase` for their meaning.
    """

    @property
    def name(self) -> str: ...
    @property
    def endpoint(self) -> BrokerEndpoint: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def socket(self) -> BrokerSocket | None: ...
    def dial(self) -> None: ...
    def turn(self, sock: Any, mask: int) -> None: ...
    def keep_alive(self) -> None: ...
    def abandon(self, reason: str) -> None: ...


@dataclass(slots=True)
class ConnectionCounts:
    """Counts of a driver's connections during the run.

    ``losses``: connections that ended though they were needed. ``forgotten``: reconnects of
    producers to a broker that had forgotten their session. ``incidents``: see
    :class:`~pytest_loadtest.drivers.base.DriverFacts`. ``reconnects``: ns from each loss to the
    established connection; of those that stalls of the loop lengthened, ``reconnects_with_own`` has
    the same and ``reconnects_without_own`` the rest.
    """

    losses: int = 0
    forgotten: int = 0
    incidents: Counter[str] = field(default_factory=Counter)
    reconnects: list[int] = field(default_factory=list)
    reconnects_with_own: list[int] = field(default_factory=list)
    reconnects_without_own: list[int] = field(default_factory=list)


class Loop:
    """Dials connections, waits for events, and gives each connection its turn.

    :param keep_alive: ns.
    :param counts: where losses are counted.
    :param arrivals: the clock of arrivals; None: the client stamps them.
    :ivar down: connections that should be up and are not, in the order in which they went down.
    :ivar failed: a connection whose first attempt failed.
    :ivar fatal: the reason why the run cannot go on.
    :ivar violations: how often brokers sent what the protocol forbids.
    :ivar freed: instant at which there was room for another
        handshake again, after there had been none.
    :ivar settle: called after the connections with events have had their turns.
    """

    def __init__(
        self,
        clock: Clock,
        keep_alive: int = 60 * SECOND,
        counts: ConnectionCounts | None = None,
        arrivals: ArrivalClock | None = None,
    ) -> None:
        self.clock = clock
        self.arrivals = arrivals or ArrivalClock(clock, kernel=False)
        self.down: dict[LoopConnection, None] = {}
        self.failed: LoopConnection | None = None
        self.fatal: str | None = None
        self.violations = 0
        self.counts = counts or ConnectionCounts()
        # Each connection is an open file, and the soft limit of many systems is 1 024.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._epoll = select.epoll()
        self._connections: dict[int, LoopConnection] = {}
        self._turns: deque[tuple[LoopConnection, BrokerSocket, int]] = deque()
        self.freed = 0
        self._due: list[tuple[int, int, LoopConnection]] = []
        self._order = itertools.count()
        self._opening: dict[LoopConnection, int] = {}
        self._check_every = keep_alive // _KEEP_ALIVE_PARTS
        self._checks: deque[tuple[int, LoopConnection, BrokerSocket]] = (
            deque()
        )  # instants of the next checks, ascending
        self._woken = False
        self._planned = (
            0  # instant at which connections were to have their turns; 0 before the first poll
        )
        self._stalls: deque[tuple[int, int]] = deque(maxlen=_MOST_STALLS)
        self.settle: Callable[[], None] = lambda: None

    def start(self, connection: LoopConnection, delay: int = 0) -> None:
        """Dial ``connection`` after ``delay`` ns.

        It is later if 64 others are being opened then.
        """
        self.start_at(connection, self.clock() + delay)

    def start_at(self, connection: LoopConnection, instant: int) -> None:
        """Dial ``connection`` at an instant.

        It is later if 64 others are being opened then.
        """
        self.down[connection] = None
        heapq.heappush(self._due, (instant, next(self._order), connection))

    def watch(self, connection: LoopConnection, sock: BrokerSocket, mask: int) -> None:
        """Wait for these epoll events on the socket of a connection."""
        fd = sock.fileno()
        self._connections[fd] = connection
        self._epoll.register(fd, mask)
        sock.epoll = self._epoll
        self._checks.append((self.clock() + self._check_every, connection, sock))

    def check_within(self, keep_alive: int) -> None:
        """Check connections often enough for this keep-alive too.

        :param keep_alive: ns; 0: none.
        """
        every = keep_alive // _KEEP_ALIVE_PARTS
        if 0 < every < self._check_every:
            self._check_every = every
            soon = self.clock() + every
            self._checks = deque(
                (min(at, soon), connection, sock) for at, connection, sock in self._checks
            )

    def change(self, fd: int, mask: int) -> None:
        """Wait for other epoll events on a watched socket."""
        self._epoll.modify(fd, mask)

    def ended(self, connection: LoopConnection, fd: int) -> None:
        """Handle the end of a connection, whose socket is closed."""
        self._connections.pop(fd, None)
        self._opened(connection)

    def established(self, connection: LoopConnection) -> None:
        """Handle an established connection."""
        self._opened(connection)
        self.down.pop(connection, None)
        self._woken = True

    def _opened(self, connection: LoopConnection) -> None:
        # From now on there is room: a later start of a connection that is due is the generator's
        # delay, no longer the target's.
        if (
            self._opening.pop(connection, None) is not None
            and len(self._opening) == MAX_OPENING - 1
        ):
            self.freed = self.clock()

    def wake(self) -> None:
        """Make :meth:`poll` return after the current turns."""
        self._woken = True

    def again(self, connection: LoopConnection, sock: BrokerSocket, mask: int) -> None:
        """Give ``connection`` another turn without waiting for epoll."""
        self._turns.append((connection, sock, mask))

    def poll(self, timeout_ns: int) -> None:
        """Read and write until ``timeout_ns`` is over or :meth:`wake` is called.

        It overruns by at most one turn of one connection.
        """
        now = self.clock()
        self._note_stall(now)
        deadline = now + timeout_ns
        self._woken = False
        while True:
            self._planned = now
            # Hot path: established connections, of which none is to be checked.
            if self._due or self._opening or (self._checks and self._checks[0][0] <= now):
                self._tend(now)
            if not self._turns:
                wake = self._next(deadline)
                self._planned = max(wake, now)
                self._wait(wake - now)
            # At the deadline the remaining turns wait for the next
            # poll, so that no connection is starved.
            while self._turns:
                connection, sock, mask = self._turns.popleft()
                connection.turn(sock, mask)
                if self.clock() >= deadline:
                    break
            self.settle()
            now = self.clock()
            self._note_stall(now)
            if self._woken or now >= deadline:
                self._planned = now
                return

    def _note_stall(self, now: int) -> None:
        """Note the time in which no connection had its turn if it is long.

        The process stood still, or others kept the loop.
        """
        if self._planned and now - self._planned > STALL:
            self._stalls.append((self._planned, now))

    def stalled(self, since: int) -> int:
        """Return for how long of the time since an instant the loop stalled, up to now, ns."""
        now = self.clock()
        # A connection has its turn after the stall and before its end is noted.
        total = now - max(self._planned, since) if now - self._planned > STALL else 0
        for begin, end in reversed(self._stalls):
            if end <= since:
                break
            total += end - max(begin, since)
        return total

    def _next(self, deadline: int) -> int:
        """Return the deadline, or the instant of the next dial if that is earlier."""
        if not self._due or len(self._opening) >= MAX_OPENING:
            return deadline
        return min(deadline, self._due[0][0])

    def _wait(self, ns: int) -> None:
        # The socket is kept with the turn: when the turn comes, the
        # connection may have ended or been dialled again.
        for fd, mask in self.arrivals.wait(self._epoll, ns / SECOND):
            connection = self._connections[fd]
            if connection.socket is not None:
                self._turns.append((connection, connection.socket, mask))

    def _tend(self, now: int) -> None:
        if self._due or self._opening:
            self._open(now)
        # Each connection is checked at its own instants, so that checks of
        # thousands of connections do not coincide.
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
        for connection in [
            opening for opening, since in self._opening.items() if now - since > ANSWER
        ]:
            connection.abandon(f"no answer in {ANSWER // SECOND} s")

    def close(self) -> None:
        """Release epoll; the connections have ended."""
        self._epoll.close()
