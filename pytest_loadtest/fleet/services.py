"""The services of one run at the controller: started in the threads that answer steps, looked at by
the watch, and stopped at the end of the test.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pytest_loadtest.brokers.service import ServiceProcess
from pytest_loadtest.brokers.starting import serves
from pytest_loadtest.errors import NoData, TargetError, UsageError
from pytest_loadtest.fleet.service_request import Service, ServiceRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Services:
    """Starts and stops the services of one run.

    :param folder: for their logs.
    :param cwd: the folder that they run in.
    """

    def __init__(self, folder: Path, cwd: Path) -> None:
        self._folder = folder
        self._cwd = cwd
        self._lock = threading.Lock()
        self._processes: tuple[ServiceProcess, ...] = ()
        self._is_over = False

    def start(self, request: ServiceRequest, announce: Callable[[str], None]) -> Service:
        """Start a service and return when it is ready.

        :param announce: shows a line of progress.
        :raises UsageError: it cannot be run, or another process listens on its port.
        :raises TargetError: it ended, or was not ready in time.
        :raises NoData: the run has ended meanwhile.
        """
        if isinstance(request.ready, int) and serves([request.ready]):
            raise UsageError(
                f"load_service: another process listens on port {request.ready}, so the service "
                f"{request.name} could not be told from it: end that process, or choose another "
                "port"
            )
        with self._lock:
            if self._is_over:
                raise NoData("the run ended before its service was started")
            number = len(self._processes) + 1
            process = ServiceProcess(
                request.name,
                request.command,
                folder=self._folder / f"service-{number}",
                cwd=self._cwd,
                env=dict(request.env),
            )
            self._processes += (process,)
        process.wait(request.ready, request.timeout, announce)
        return Service(name=process.name, pid=process.pid, log=process.log)

    def deaths(self) -> tuple[str, ...]:
        """Return how each service that ended by itself did so."""
        deaths = [process.death() for process in self._processes]
        return tuple(filter(None, deaths))

    @property
    def noted_deaths(self) -> tuple[str, ...]:
        """The deaths that were found so far, without a look at the processes."""
        return tuple(filter(None, (process.noted_death for process in self._processes)))

    @property
    def pids(self) -> dict[str, int]:
        """The process ids of those that were started, by name: one whose name is taken gets the
        first number from 2 that is free.
        """
        pids = {}
        for process in self._processes:
            name = process.name
            number = 1
            while name in pids:
                number += 1
                name = f"{process.name} {number}"
            pids[name] = process.pid
        return pids

    def check(self) -> None:
        """Check the services before load begins.

        :raises TargetError: one has ended.
        """
        deaths = self.deaths()
        if deaths:
            raise TargetError(f"before the load began, {'; '.join(deaths)}")

    def stop(self) -> None:
        """Stop all of them, the last one first; none can be started any more."""
        with self._lock:
            self._is_over = True
        for process in reversed(self._processes):
            process.stop()
