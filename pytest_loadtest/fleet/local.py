"""A fleet of one: this process is the worker and the controller. Used without xdist, with ``-n 0`` and by the tests."""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING

from pytest_loadtest.fleet.link import Key, Link, Message
from pytest_loadtest.fleet.rendezvous import Rendezvous

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.messages import Request, RunResult
    from pytest_loadtest.fleet.run_controller import RunController

WORKER = "main"


class LocalFleet:
    """Runs load in the calling thread."""

    def __init__(self, controller: RunController) -> None:
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.rendezvous = Rendezvous(controller, lambda _, message: self._inbox.put(message), time.monotonic_ns, lambda: None)
        self.rendezvous.join(WORKER)
        controller.rendezvous = self.rendezvous
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
        self.rendezvous.receive(WORKER, ("arrive", key, None))
        self._inbox.get()  # its role, always the lead: there is no other worker
        link = Link(lambda message: self.rendezvous.receive(WORKER, message), self._inbox, key)
        if taking is not None:
            taking(link)
        try:
            outcome = take_part(link, request, lead=True)
            assert outcome is not None
            return outcome
        finally:
            self.rendezvous.receive(WORKER, ("finished", key, None))

    def close(self) -> None:
        self.rendezvous.close()
