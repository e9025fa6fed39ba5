"""From *started* to *ready*: the wait that every broker we start has in common, and the broker that comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pytest_loadtest.brokers._ports import free_ports
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from pytest_loadtest.brokers._base import BrokerFacts

Progress = Callable[[str], None]

POLL = 0.05  # s between two looks at a starting broker
HEARTBEAT = 10.0  # s between two lines of progress
ATTEMPTS = 3


class Running(Protocol):
    """A process or container that is to become a broker."""

    def failure(self) -> str | None:
        """Why it ended, None while it runs."""

    def tail(self) -> str:
        """The last lines of its log."""

    def stop(self) -> None:
        """End it and wait; safe to call twice; removes what it left, except after a failure."""

    def abandon(self) -> None:
        """Stop it, but keep its log."""


class StartedBroker:
    """A broker that we started; see :class:`~pytest_loadtest.brokers._base.Broker`."""

    def __init__(self, facts: BrokerFacts, running: Running) -> None:
        self._facts = facts
        self._running = running

    @property
    def facts(self) -> BrokerFacts:
        return self._facts

    def failure(self) -> str | None:
        return self._running.failure()

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
