"""One epoll loop for all of a driver's MQTT connections, run from the engine's thread.

paho's own loops use ``select()``, which ends at about 340 clients a process, or a thread for each client.
"""

from __future__ import annotations

import heapq
import itertools
import select
from collections import deque
from typing import TYPE_CHECKING, Final

from pytest_loadtest.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import Clock
    from pytest_loadtest.drivers._mqtt_link import Link
    from pytest_loadtest.drivers._mqtt_socket import PacketSocket

MAX_OPENING: Final = 64  # mosquitto listens with a backlog of 100; beyond it a connect measures SYN retransmission
ANSWER: Final = 10 * SECOND  # for connect, handshake, CONNACK and SUBACK together
_FD_SETSIZE: Final = 1024


class Loop:
    """Dials, waits, and gives each connection its turn.

    :param keep_alive: ns; brokers hang up after one and a half of it (MQTT 5, 3.1.2.10), so that a short one is looked at more often.
    """

    def __init__(self, clock: Clock, keep_alive: int = 60 * SECOND) -> None:
        self.clock = clock
        self._misc_every = min(SECOND, keep_alive // 4)
        self.down: dict[Link, None] = {}  # to be up and not up, in the order they went down
        self.failed: Link | None = None  # could not come up the first time
        self.gone: str | None = None  # why it makes no sense to go on
        self.losses = 0  # connections that ended while they were wanted
        self._epoll = select.epoll()
        self._links: dict[int, Link] = {}
        self._turns: deque[tuple[Link, PacketSocket, int]] = deque()
        self._due: list[tuple[int, int, Link]] = []
        self._order = itertools.count()
        self._opening: dict[Link, int] = {}
        self._misc_at = 0
        self._woken = False

    def start(self, link: Link, delay: int = 0) -> None:
        """Dial ``link`` after ``delay`` ns, as soon as fewer than 64 others are being opened."""
        self.down[link] = None
        heapq.heappush(self._due, (self.clock() + delay, next(self._order), link))

    def watch(self, link: Link, fd: int, mask: int) -> None:
        self._links[fd] = link
        self._epoll.register(fd, mask)

    def change(self, fd: int, mask: int) -> None:
        self._epoll.modify(fd, mask)

    def ended(self, link: Link, fd: int) -> None:
        """The connection is closed, which took it out of epoll."""
        self._links.pop(fd, None)
        self._opening.pop(link, None)

    def established(self, link: Link) -> None:
        self._opening.pop(link, None)
        self.down.pop(link, None)
        self._woken = True

    def wake(self) -> None:
        """Let :meth:`poll` return as soon as it can: somebody waits for what just happened."""
        self._woken = True

    def again(self, link: Link, sock: PacketSocket, mask: int) -> None:
        """Give ``link`` another turn without waiting for epoll."""
        self._turns.append((link, sock, mask))

    def poll(self, timeout_ns: int) -> None:
        """Move bytes until ``timeout_ns`` is over, or until :meth:`wake`; overruns by one turn of one connection at most."""
        now = self.clock()
        deadline = now + timeout_ns
        self._woken = False
        while True:
            self._tend(now)
            if not self._turns:
                self._wait(deadline - now)
            while self._turns:
                link, sock, mask = self._turns.popleft()
                link.turn(sock, mask)
                if self.clock() >= deadline:
                    return
            now = self.clock()
            if self._woken or now >= deadline:
                return

    def _wait(self, ns: int) -> None:
        if ns > 0:
            if self._epoll.fileno() < _FD_SETSIZE:  # epoll itself only waits for whole milliseconds
                select.select((self._epoll,), (), (), ns / SECOND)
            else:
                self._turn_all(self._epoll.poll(ns / SECOND))
                return
        self._turn_all(self._epoll.poll(0))

    def _turn_all(self, events: list[tuple[int, int]]) -> None:
        for fd, mask in events:
            link = self._links[fd]
            if link.socket is not None:
                self._turns.append((link, link.socket, mask))

    def _tend(self, now: int) -> None:
        while self._due and self._due[0][0] <= now and len(self._opening) < MAX_OPENING:
            link = heapq.heappop(self._due)[2]
            self._opening[link] = now
            link.dial()
        if now >= self._misc_at:
            self._misc_at = now + self._misc_every
            for link in [link for link, since in self._opening.items() if now - since > ANSWER]:
                link.abandon(f"no answer in {ANSWER // SECOND} s")
            for link in list(self._links.values()):
                link.misc()

    def close(self) -> None:
        self._epoll.close()
