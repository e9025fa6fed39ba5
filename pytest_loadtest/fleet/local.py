"""A fleet of one worker: this process is the worker and the controller, without xdist and with ``-n
0``.

The plugin's session calls it for each load test, in the thread of the test (or of a live load).
Messages are handed over by direct calls, so that a single process runs the same code as a fleet
under xdist.
"""

from __future__ import annotations

import queue
import time
from functools import partial
from typing import TYPE_CHECKING

from pytest_loadtest.fleet.link import Link
from pytest_loadtest.fleet.messages import (
    Arrive,
    ClockRead,
    ControllerMessage,
    Finished,
    HostFiles,
    Key,
    LeadsTest,
    LoadItems,
    Request,
    RunResult,
    SamplePart,
    UsageFound,
    WorkerMessage,
)
from pytest_loadtest.fleet.rendezvous import Rendezvous

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.member import WorkerRun
    from pytest_loadtest.fleet.run_controller import RunController

WORKER = "main"


class LocalFleet:
    """Drives load in the calling thread."""

    def __init__(self, controller: RunController) -> None:
        self._inbox: queue.SimpleQueue[ControllerMessage] = queue.SimpleQueue()
        self.rendezvous = Rendezvous(
            controller, lambda _, message: self._inbox.put(message), time.monotonic_ns, lambda: None
        )
        self.rendezvous.join(WORKER)
        controller.rendezvous = self.rendezvous
        self._runs = 0

    def run(self, request: Request, on_link: Callable[[Link], None] | None = None) -> RunResult:
        """Drive the load that a test requests and return its result.

        :param on_link: called with this worker's connection before the run begins.
        :raises BrokenRun, UsageError: see :class:`~pytest_loadtest.fleet.member.WorkerRun`.
        """
        worker_run = self.begin(request)
        if on_link is not None:
            on_link(worker_run.link)
        try:
            result = worker_run.drive()
            assert result is not None
            return result
        finally:
            worker_run.close()

    def begin(self, request: Request) -> WorkerRun:
        """Begin the run of a test, before its load; the caller closes it."""
        from pytest_loadtest.fleet.member import WorkerRun

        key: Key = (self._runs, request.attempt)
        self._runs += 1
        self._inbox = queue.SimpleQueue()
        self.rendezvous.receive(WORKER, Arrive(key))
        self._inbox.get()  # the role: the only worker is always the lead
        link = Link(self._send, self._inbox, key)
        finish = partial(self.rendezvous.receive, WORKER, Finished(key))
        return WorkerRun(link, request, lead=True, finish=finish)

    def _send(self, message: WorkerMessage) -> None:
        assert not isinstance(
            message, SamplePart | LoadItems | LeadsTest | UsageFound | HostFiles | ClockRead
        ), "only other processes send these"
        self.rendezvous.receive(WORKER, message)

    def close(self) -> None:
        self.rendezvous.close()
