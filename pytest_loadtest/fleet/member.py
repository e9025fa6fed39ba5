"""A worker's part in one run, from the first meeting to the verdict, with and without xdist.

:class:`~pytest_loadtest.fleet.local.LocalFleet` and
:class:`~pytest_loadtest.fleet.xdist.GangWorker` make a :class:`WorkerRun` on every worker. Fixtures
of the test may begin it before the load, in the test's thread; the thread that drives load goes on
with it. It reports every error to the controller, and closes its clients in any case.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers.base import Clock, Driver, NamedTopics, TopicNames
from pytest_loadtest.engine.run import drive
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.fleet.host_clocks import HostClock
from pytest_loadtest.fleet.host_sampler import HostSampler
from pytest_loadtest.fleet.link import Link, Released
from pytest_loadtest.fleet.messages import (
    AwaitVerdict,
    ClaimShares,
    CleanUp,
    ClientsClosed,
    ClientsMade,
    ConnectFrom,
    ConsumersConnected,
    Continue,
    NextPhases,
    PhaseDone,
    PhaseFinished,
    Request,
    Result,
    RunResult,
    SampleHost,
    Shares,
    TargetPrepared,
)
from pytest_loadtest.fleet.observing import worker_location
from pytest_loadtest.fleet.service_request import Service, ServiceRequest, ServiceStarted
from pytest_loadtest.fleet.setup_steps import BeginLoad, StartService
from pytest_loadtest.fleet.workload_share import WorkloadShare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


# Threads of client libraries wait for the interpreter lock while the engine's loop computes. It is
# released sooner than after Python's default of 5 ms, because a timestamp taken in such a thread
# would be late by as much.
SWITCH_INTERVAL = 0.0005
STOPPING = 30.0
"""s for the services of a run to stop, each of which has two to end in order."""


class WorkerRun:
    """This worker's part in one run.

    Each method raises BrokenRun if the run cannot be judged, UsageError if the request is wrong,
    and Released if the run has ended without this worker.

    :param finish: called when the part is closed.
    :ivar driven: the worker has begun to drive its share.
    """

    def __init__(
        self, link: Link, request: Request, *, lead: bool, finish: Callable[[], None] = lambda: None
    ) -> None:
        self.link = link
        self.request = request
        self.driven = False
        self._lead = lead
        self._finish = finish
        self._clock: Clock = time.monotonic_ns
        self._shares: list[WorkloadShare] = []
        self._has_services = False
        self._closed = False

    def prepare(self) -> None:
        """Claim this worker's share, and create what the run needs at its targets, before the test
        begins the load.
        """
        with self._reporting():
            self._claim()

    def topic_names(self) -> TopicNames | None:
        """Return the topics of the first workload; None if its driver has no names for them.

        To be called between :meth:`prepare` and :meth:`drive`.
        """
        driver = self._shares[0].driver
        return driver.topic_names() if isinstance(driver, NamedTopics) else None

    def start_service(self, request: ServiceRequest) -> Service:
        """Let the controller start a service, once for all workers; return when it is ready."""
        self._has_services = True
        with self._reporting():
            return self.link.meet(StartService(request), ServiceStarted).service

    def drive(self) -> RunResult | None:
        """Drive this worker's share of the load; return the result on the lead, None on others."""
        self.driven = True
        link = self.link
        with self._reporting():
            try:
                if self._shares:
                    link.meet(BeginLoad(), Continue)
                else:
                    self._claim()
                with _quick_switches():
                    _drive(link, self._shares, self._clock)
                facts = tuple(share.facts() for share in self._shares)
                is_silent = link.meet(ClientsClosed(facts), CleanUp).is_silent
                if self._lead:
                    link.before_cleanup()
                    _clean_up(self._shares, forgiving=link.aborted or is_silent)
            finally:
                self._close_drivers()
            return link.meet(AwaitVerdict(), Result).result

    def close(self) -> None:
        """End the part when the test is over: stop the services of the run, and give up a load that
        was never begun. Safe to call twice.
        """
        if self._closed:
            return
        self._closed = True
        if not self.driven:
            self._withdraw()
        if self._has_services and self._lead:
            self.link.stop_services(STOPPING)
        self._finish()

    def _claim(self) -> None:
        link = self.link
        link.assignments = link.meet(ClaimShares(self.request), Shares).assignments
        line = link.assignments[0].clock
        if line is not None:
            self._clock = HostClock(line)
        for assigned in link.assignments:
            self._shares.append(WorkloadShare(assigned, self._clock))
        facts = None
        if self._lead:
            for driver in _drivers(self._shares):
                driver.prepare()
            facts = tuple(share.driver.facts() for share in self._shares)
        # No client stays connected. The others wait until the lead has created what the run needs.
        link.meet(TargetPrepared(facts), Continue)

    def _withdraw(self) -> None:
        """Give up a run whose load was not begun, and delete what was created for it.

        The test itself reports why: it was skipped, or a fixture failed. So the run has no results.
        """
        shares = self._shares
        self._close_drivers()
        if self._lead:
            _clean_up(shares, forgiving=True)
            self.link.fail(UsageError("the test ended before its load began"))

    def _close_drivers(self) -> None:
        _close(self._shares)
        self._shares = []

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report errors to the controller, which gives the run up for all workers."""
        try:
            yield
        except Released:
            raise
        except BaseException as error:
            self.link.fail(error)
            raise


def _clean_up(shares: Sequence[WorkloadShare], *, forgiving: bool) -> None:
    """Delete what the run has created at its targets.

    :param forgiving: the run is lost because its target may hang: then its topics cannot be
        deleted, which is no new error.
    """
    # A tap first: its subscriptions are on topics that the other driver may delete.
    for driver in reversed(_drivers(shares)):
        try:
            driver.cleanup()
        except TargetError:
            if not forgiving:
                raise


def _drivers(shares: Sequence[WorkloadShare]) -> list[Driver]:
    return [driver for share in shares for driver in share.drivers]


def _close(shares: Sequence[WorkloadShare]) -> None:
    for driver in _drivers(shares):
        driver.close()


@contextlib.contextmanager
def _quick_switches() -> Iterator[None]:
    """Let threads of client libraries have the interpreter lock soon after they need it."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def _drive(link: Link, shares: Sequence[WorkloadShare], clock: Clock) -> None:
    def idle(busy: WorkloadShare | None = None) -> None:
        for share in shares:
            if share is not busy:
                for driver in share.drivers:
                    driver.poll(0)

    def keep_alive(busy: WorkloadShare | None = None) -> None:
        link.process_messages()
        idle(busy)

    def first_connection(clients: str, workload: str) -> int:
        return link.meet(ClientsMade(clients, workload), ConnectFrom, idle=idle).instant

    for share in shares:
        share.open_consumers(first_connection, partial(keep_alive, share))
    sampling = link.meet(ConsumersConnected(worker_location()), SampleHost, idle=idle).sampling
    with HostSampler(sampling, keep_alive) as sampler:
        for share in shares:
            share.open_producers(first_connection, partial(keep_alive, share))
        sampler.wait_until_ready()
        try:
            with _frozen_garbage():
                _phases(link, shares, clock, idle, sampler)
        except BaseException:
            for share in shares:
                share.abandon()
            raise
    _close(shares)


def _phases(
    link: Link, shares: Sequence[WorkloadShare], clock: Clock, idle: Any, sampler: HostSampler
) -> None:
    """Drive one phase after another until the controller has no more."""
    finished: tuple[PhaseFinished | None, ...] = (None,) * len(shares)
    number = 0
    while True:
        phases = link.meet(PhaseDone(number, finished), NextPhases, idle=idle).phases
        if phases is None:
            return
        engines = []
        waiting = []
        for share, phase in zip(shares, phases, strict=True):
            if phase is None:
                waiting += share.drivers
                continue
            share.begin(phase, link)
            sampler.begin(share.assigned.workload, phase)
            engines.append(share.engine)
        drive(engines, clock, waiting)
        sampler.end(link)
        reports: list[PhaseFinished | None] = []
        for share, phase in zip(shares, phases, strict=True):
            reports.append(None if phase is None else share.end(link, idle))
        finished = tuple(reports)
        number += 1


@contextlib.contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Exclude the objects that exist before the load from garbage collection.

    A collection would stall the engine by walking them.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
