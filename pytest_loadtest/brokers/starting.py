"""From *started* to *ready*: the wait that every broker we start has in common, and the broker that comes of it."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from pytest_loadtest.brokers.base import BrokerFacts


Progress = Callable[[str], None]

POLL = 0.05  # s between two looks at a starting broker
HEARTBEAT = 10.0  # s between two lines of progress
ATTEMPTS = 3
RESTART_GRACE = 30.0  # s between SIGTERM and SIGKILL: the broker may have much to write, and all of it is wanted afterwards


class Running(Protocol):
    """A process or container that is to become a broker."""

    @property
    def pid(self) -> int | None:
        """Of the broker's process, where it is one of this machine; another one after a restart."""

    def restart(self, grace: float) -> None:
        """End it and start it again with the same data; returns when it is on its way, ready or not.

        :param grace: s between SIGTERM and SIGKILL; 0: SIGKILL at once.
        :raises TargetError: it cannot be started again.
        """

    def failure(self) -> str | None:
        """Why it ended, None while it runs."""

    def tail(self) -> str:
        """The last lines of its log."""

    def stop(self) -> None:
        """End it and wait; safe to call twice; removes what it left, except after a failure."""

    def abandon(self) -> None:
        """Stop it, but keep its log."""


class StartedBroker:
    """A broker that we started; see :class:`~pytest_loadtest.brokers.base.Broker`.

    :param wait: returns when clients can work again after a restart; None where there is nothing that a restart would bring back.
    """

    def __init__(self, facts: BrokerFacts, running: Running, wait: Callable[[], object] | None) -> None:
        self._facts, self._running, self._wait = facts, running, wait
        self._restarting = False
        self._failure: str | None = None

    @property
    def facts(self) -> BrokerFacts:
        return replace(self._facts, pid=self._running.pid)

    def failure(self) -> str | None:
        return None if self._restarting else self._failure or self._running.failure()

    def restart(self, *, kill: bool = False) -> None:
        if self._wait is None:
            raise UsageError(f"{self._facts.name} is not restarted: it keeps nothing, and no client comes back to it")
        self._restarting = True
        try:
            self._running.restart(0.0 if kill else RESTART_GRACE)
            self._wait()
        except TargetError as error:
            self._failure = f"after a restart: {error}"
            raise
        finally:
            self._restarting = False

    def stop(self) -> None:
        self._running.stop()


class PortTakenError(TargetError):
    """Somebody took the port between our look and the broker's bind: worth another try."""


def wait_ready(running: Running, ready: Callable[[], bool], *, name: str, seconds: float, progress: Progress) -> float:
    """Wait until ``ready()``; the seconds it took. On every other way out it is abandoned.

    :raises PortTakenError: the broker found its port in use.
    :raises TargetError: the broker ended, or was not ready in time; with the last lines of its log.
    """
    start = told = time.monotonic()
    try:
        while not ready():
            now = time.monotonic()
            failure = running.failure()
            if failure is not None:
                raise _start_error(f"{name} did not start: {failure}", running)
            if now - start > seconds:
                raise _start_error(f"{name} was not ready after {seconds:.0f} s", running)
            if now - told >= HEARTBEAT:
                told = now
                progress(f"starting {name}: {now - start:.0f} s")
            time.sleep(POLL)
    except BaseException:
        running.abandon()
        raise
    return time.monotonic() - start


def _start_error(message: str, running: Running) -> TargetError:
    last = running.tail()
    text = f"{message}\n{last}" if last else message
    return PortTakenError(text) if "ddress already in use" in last else TargetError(text)


def on_free_ports(count: int, launch: Callable[[tuple[int, ...]], StartedBroker]) -> StartedBroker:
    """Launch on free ports, on other ones when somebody was quicker."""
    for _ in range(ATTEMPTS - 1):
        try:
            return launch(free_ports(count))
        except PortTakenError:
            continue
    return launch(free_ports(count))


# Free ports for brokers, and whether something listens.

LOWEST = 20_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_range() -> tuple[int, int]:
    """The ports the kernel gives to outgoing connections, first and last; the Linux default where it cannot be read."""
    try:
        low, high = _RANGE.read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999
    return int(low), int(high)


def free_ports(count: int) -> tuple[int, ...]:
    """Different TCP ports that are free on 127.0.0.1 now.

    Below the ephemeral range where possible: a load test opens thousands of outgoing connections, any of which could take an
    ephemeral port before the broker binds it; and a client that connects to an ephemeral port where nothing listens may be given that very
    port to connect from, and is then connected to itself.
    """
    high = ephemeral_range()[0]
    candidates = random.sample(range(LOWEST, high), min(200, high - LOWEST)) if high > LOWEST else []
    found: list[int] = []
    for port in [*candidates, *([0] * count)]:
        if len(found) == count:
            break
        found += _bindable(port)
    return tuple(found)


def _bindable(port: int) -> list[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return []
        return [probe.getsockname()[1]]


def listens(host: str, port: int, timeout: float = 1.0) -> bool:
    """Whether a TCP connection is accepted there."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True
