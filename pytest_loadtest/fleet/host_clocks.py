"""The clocks of other hosts: exchanges of times, and the relation of clocks computed from them.

Exchanges use the channel that each worker has anyway. One worker of each host answers for all of
them, in the thread that receives the channel's messages, so that load does not stop for it. Workers
on the controller's host share its clock and need no exchanges.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.messages import ControllerMessage, ReadClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.metrics.clocks import ClockExchange, ClockFit, ClockLine

BURST: Final = 40
"""Exchanges before and after a phase: some milliseconds each at most, so that no phase waits for
them noticeably.
"""
SMALL_BURST: Final = 3
"""Exchanges at a time while load runs.

The first often waits for a thread that sleeps, so the fastest one is kept.
"""
INTERVAL: Final = 0.25
"""s between two small bursts.

The stated error grows by :data:`~pytest_loadtest.metrics.clocks.MOST_SLEW` of it, 125 µs.
"""
RECENT: Final = 250_000_000
"""ns: a phase does not begin with exchanges that are older, for the same reason."""
TIMEOUT: Final = 10
"""s until a host that does not answer counts as lost."""
REMEMBERED: Final = 600_000_000_000
"""ns: older exchanges do not show the present drift of a clock that is disciplined, as NTP does."""


class HostClock:
    """The controller's clock, estimated by a worker on another host. Call it for the time, ns.

    :ivar line: relation of this host's clock to the controller's; it changes between phases.
    """

    def __init__(self, line: ClockLine) -> None:
        self.line = line

    def __call__(self) -> int:
        return self.line.to_controller(time.monotonic_ns())

    def until(self, instant: int) -> int:
        """Return the time from now to an instant of the controller's clock, ns."""
        return instant - self()


class HostClocks:
    """The clocks of all hosts but the controller's.

    :param send: sends a message to a worker.
    :param disconnect: called with the name of a host that does not answer.
    :ivar hosts: name of the host of each worker that is not on the controller's host.
    """

    def __init__(
        self,
        send: Callable[[str, ControllerMessage], None],
        disconnect: Callable[[str], None] = lambda host: None,
    ) -> None:
        self._send = send
        self._disconnect = disconnect
        self.hosts: dict[str, str] = {}
        self._answers: dict[str, queue.SimpleQueue[tuple[int, int, int] | None]] = {}
        self._exchanges: dict[str, list[ClockExchange]] = {}
        # One burst at a time: exchanges of one host would delay those of another.
        self._lock = threading.Lock()
        self._number = 0

    def add(self, worker: str, host: str) -> None:
        """Add a worker that is on another host."""
        self.hosts[worker] = host
        self._answers[worker] = queue.SimpleQueue()

    def remove(self, worker: str) -> None:
        """Remove a worker that is gone; an exchange that waits for its answer ends."""
        if self.hosts.pop(worker, None) is not None:
            self._answers[worker].put(None)

    def receive(self, worker: str, number: int, host_time: int) -> None:
        """Store the answer of a worker; called in the thread that receives its messages."""
        self._answers[worker].put((number, host_time, time.monotonic_ns()))

    def ask(self, count: int = BURST) -> int:
        """Make a burst of exchanges with every host, between two phases.

        :returns: the instant at which it began, ns.
        :raises NoData: a host does not answer.
        """
        with self._lock:
            began = time.monotonic_ns()
            for host, worker in self._answering():
                exchanges = self._exchanges.setdefault(host, [])
                for _ in range(count):
                    exchanges.append(self._exchange(worker, host))
        return began

    def ask_under_load(self) -> None:
        """Make a small burst with every host, of which the fastest exchange is kept.

        If another thread makes a burst just now, nothing is done.

        :raises NoData: a host does not answer.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            for host, worker in self._answering():
                burst = [self._exchange(worker, host) for _ in range(SMALL_BURST)]
                fastest = min(burst, key=lambda exchange: exchange.round_trip)
                self._exchanges.setdefault(host, []).append(fastest)
        finally:
            self._lock.release()

    def _answering(self) -> list[tuple[str, str]]:
        """Return each host with the worker that answers for it."""
        return list({host: worker for worker, host in list(self.hosts.items())}.items())

    def _exchange(self, worker: str, host: str) -> ClockExchange:
        # On use: sessions without load tests load no numpy.
        from pytest_loadtest.metrics.clocks import ClockExchange

        self._number += 1
        left = time.monotonic_ns()
        self._send(worker, ReadClock(self._number))
        while True:
            try:
                answer = self._answers[worker].get(timeout=TIMEOUT)
            except queue.Empty:
                self._disconnect(host)
                raise NoData(
                    f"host {host} (worker {worker}) did not answer within {TIMEOUT} s: is it still "
                    "reachable?"
                ) from None
            if answer is None:
                # The other workers of the host, and one that replaces this one, are not silent.
                raise NoData(f"worker {worker} of host {host} is gone")
            number, host_time, came = answer
            if number == self._number:  # else a late answer to an earlier message that timed out
                return ClockExchange(left, host_time, came)

    def fits(self, since: int | None = None) -> dict[str, ClockFit]:
        """Return the relation of each worker's clock to the controller's, by worker.

        :param since: leave out exchanges before this instant of the controller's clock, ns. None:
            the relation for the next phase, by the last ten minutes, or by the last burst if a
            clock was set in them.
        """
        fits = {host: self._fit(host, since) for host in sorted(set(self.hosts.values()))}
        return {worker: fits[host] for worker, host in self.hosts.items()}

    def _fit(self, host: str, since: int | None) -> ClockFit:
        from pytest_loadtest.metrics.clocks import fit_clock

        begin = time.monotonic_ns() - REMEMBERED if since is None else since
        exchanges = [exchange for exchange in self._exchanges[host] if exchange.left >= begin]
        fit = fit_clock(exchanges)
        if since is not None:
            return fit
        # The last burst may be a small one, and the clock may have been set just before it.
        for burst in (BURST, SMALL_BURST):
            if fit.holds:
                break
            fit = fit_clock(exchanges[-burst:])
        return fit
