"""A fleet of one: this process is the worker and the controller. Used without xdist, with ``-n 0`` and by the tests."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING

from pytest_loadtest.fleet.coordinator import Coordinator
from pytest_loadtest.fleet.link import Key, Link, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.conductor import Conductor
    from pytest_loadtest.fleet.messages import Request, RunResult

WORKER = "main"


class LocalFleet:
    """Runs load in the calling thread."""

    def __init__(self, conductor: Conductor) -> None:
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.coordinator = Coordinator(conductor, lambda _, message: self._inbox.put(message), time.monotonic_ns, lambda: None)
        self.coordinator.join(WORKER)
        conductor.coordinator = self.coordinator
        self._runs = 0

    def run(self, request: Request, taking: Callable[[Link], None] | None = None) -> RunResult:
        """Drive the load that a test asks for and return what it says of the target.

        :param taking: gets this worker's line once there is one.

        :raises BrokenRun, UsageError: see :func:`take_part`.
        """
        from pytest_loadtest.fleet.member import take_part

        key: Key = (self._runs, request.attempt)
        self._runs += 1
        self._inbox = queue.SimpleQueue()
        self.coordinator.receive(WORKER, ("arrive", key, None))
        self._inbox.get()  # its role, always the lead: there is no other worker
        link = Link(lambda message: self.coordinator.receive(WORKER, message), self._inbox, key)
        if taking is not None:
            taking(link)
        try:
            outcome = take_part(link, request, lead=True)
            assert outcome is not None
            return outcome
        finally:
            self.coordinator.receive(WORKER, ("finished", key, None))

    def close(self) -> None:
        self.coordinator.close()
