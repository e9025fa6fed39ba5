"""Common code for starting a broker.

It finds free ports, waits until the broker is ready, and makes the running broker.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from pytest_loadtest.brokers.base import BrokerFacts, Node, refuse_node
from pytest_loadtest.errors import TargetError, UsageError

B = TypeVar("B")
Progress = Callable[[str], None]

POLL = 0.05  # s between two checks of a starting broker
HEARTBEAT = 10.0  # s between two lines of progress
ATTEMPTS = 3
# s between SIGTERM and SIGKILL: the broker may have much to write, and needs all of it after the
# restart
RESTART_GRACE = 30.0


class Starting(Protocol):
    """A broker that is starting, for :func:`wait_ready`."""

    def failure(self) -> str | None:
        """Return the reason for its end, None while it runs."""

    def tail(self) -> str:
        """Return the last lines of its log."""

    def abandon(self) -> None:
        """Stop it, but keep its log."""


class Running(Starting, Protocol):
    """A process or container in which a broker starts or runs."""

    @property
    def pid(self) -> int | None:
        """The broker's process if it is on this machine, else None; a restart changes it."""

    def restart(self, grace: float) -> None:
        """End it and start it again with the same data; returns when it is starting, ready or not.

        :param grace: s between SIGTERM and SIGKILL; 0: SIGKILL at once.
        :raises TargetError: it cannot be started again.
        """

    def stop(self) -> None:
        """End it, wait, and remove its files, except after a failure. Safe to call twice."""


class StartedBroker:
    """A broker that the run started; see :class:`~pytest_loadtest.brokers.base.Broker`.

    :param wait: returns when clients can work again after a restart; None for a broker that cannot
        be restarted.
    """

    def __init__(
        self, facts: BrokerFacts, running: Running, wait: Callable[[], object] | None
    ) -> None:
        self._facts = facts
        self._running = running
        self._wait = wait
        self._restarting = False
        self._failure: str | None = None

    @property
    def facts(self) -> BrokerFacts:
        return replace(self._facts, pid=self._running.pid)

    def failure(self) -> str | None:
        return None if self._restarting else self._failure or self._running.failure()

    def restart(self, *, kill: bool = False) -> None:
        if self._wait is None:
            raise UsageError(
                f"{self._facts.name} cannot be restarted: it keeps no data,"
                " and clients do not reconnect to it"
            )
        self._restarting = True
        try:
            self._running.restart(0.0 if kill else RESTART_GRACE)
            self._wait()
        except TargetError as error:
            self._failure = f"after a restart: {error}"
            raise
        finally:
            self._restarting = False

    def node(self, role: str, number: int) -> Node:
        raise refuse_node(self._facts.name)

    def stop(self) -> None:
        self._running.stop()


class PortTakenError(TargetError):
    """Another process took a port after :func:`free_ports` and before the broker's bind.

    Another attempt may work.
    """


def wait_ready(
    running: Starting,
    ready: Callable[[], bool],
    name: str,
    seconds: float,
    progress: Progress,
    missing: str = "",
) -> float:
    """Wait until ``ready()`` returns True. Abandons the broker on every error. :returns: seconds.

    :param missing: what has not come after ``seconds``, and the remedy, for the error.
    :raises PortTakenError: the broker found its port in use.
    :raises TargetError: the broker ended, or was not ready in time; with the last lines of its log.
    """
    start = reported = time.monotonic()
    try:
        while not ready():
            now = time.monotonic()
            failure = running.failure()
            if failure is not None:
                raise _start_error(f"{name} did not start: {failure}", running)
            if now - start > seconds:
                late = f"{name} was not ready after {seconds:.0f} s"
                raise _start_error(f"{late}: {missing}" if missing else late, running)
            if now - reported >= HEARTBEAT:
                reported = now
                progress(f"starting {name}: {now - start:.0f} s")
            time.sleep(POLL)
    except BaseException:
        running.abandon()
        raise
    return time.monotonic() - start


def _start_error(message: str, running: Starting) -> TargetError:
    last = running.tail()
    text = f"{message}\n{last}" if last else message
    return PortTakenError(text) if "ddress already in use" in last else TargetError(text)


def on_free_ports(count: int, launch: Callable[[tuple[int, ...]], B]) -> B:
    """Launch on free ports, and again on others if another process took one first."""
    for _ in range(ATTEMPTS - 1):
        try:
            return launch(free_ports(count))
        except PortTakenError:
            continue
    return launch(free_ports(count))


# Free ports for brokers.
LOWEST = 20_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_range() -> tuple[int, int]:
    """Return the first and last port for outgoing connections.

    Linux's default if the range cannot be read.
    """
    try:
        low, high = _RANGE.read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999
    return int(low), int(high)


def free_ports(count: int) -> tuple[int, ...]:
    """Return different TCP ports that are free on 127.0.0.1 now.

    They are below the ephemeral range if possible.

    A load test opens thousands of outgoing connections, each of which could take an ephemeral port
    before the broker binds it. And a client that connects to an ephemeral port without a listener
    may get the same port as its source: it is then connected to itself.
    """
    high = ephemeral_range()[0]
    candidates = (
        random.sample(range(LOWEST, high), min(200, high - LOWEST)) if high > LOWEST else []
    )
    ports: list[int] = []
    for port in [*candidates, *([0] * count)]:
        if len(ports) == count:
            break
        ports += _bindable(port)
    return tuple(ports)


def _bindable(port: int) -> list[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return []
        return [probe.getsockname()[1]]


def listens(host: str, port: int, timeout: float = 1.0) -> bool:
    """Return True if something accepts a TCP connection at this address."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True


def serves(ports: Sequence[int]) -> bool:
    """Return True if something on this machine accepts TCP connections at all of these ports."""
    return all(listens("127.0.0.1", port) for port in ports)
