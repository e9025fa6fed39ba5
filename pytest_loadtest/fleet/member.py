"""A worker's part in one run, from the first meeting to the verdict, with and without xdist.

:class:`~pytest_loadtest.fleet.local.LocalFleet` and
:class:`~pytest_loadtest.fleet.xdist.GangWorker` call :func:`take_part` on every worker, in the
thread that then drives load. It reports every error to the controller, and closes its clients in
any case.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest.engine.run import drive
from pytest_loadtest.errors import TargetError
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
    WorkloadAssignment,
)
from pytest_loadtest.fleet.observing import worker_location
from pytest_loadtest.fleet.workload_share import WorkloadShare

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.drivers.base import Clock

# Threads of client libraries wait for the interpreter lock while the engine's loop computes. It is
# released sooner than after Python's default of 5 ms, because a timestamp taken in such a thread
# would be late by as much.
SWITCH_INTERVAL = 0.0005


def take_part(link: Link, request: Request, *, lead: bool) -> RunResult | None:
    """Drive this worker's share of a run; return the result on the lead, None on the others.

    :raises BrokenRun: the run cannot be judged.
    :raises UsageError: the request is wrong.
    """
    try:
        link.assignments = link.meet(ClaimShares(request), Shares).assignments
        line = link.assignments[0].clock
        clock = time.monotonic_ns if line is None else HostClock(line)
        with _shares(link.assignments, clock) as shares:
            _drive(link, shares, clock, lead=lead)
            facts = tuple(share.facts() for share in shares)
            is_silent = link.meet(ClientsClosed(facts), CleanUp).is_silent
            if lead:
                link.before_cleanup()
                _clean_up(shares, forgiving=link.aborted or is_silent)
        return link.meet(AwaitVerdict(), Result).result
    except Released:
        raise
    except BaseException as error:
        link.fail(error)
        raise


def _clean_up(shares: Sequence[WorkloadShare], *, forgiving: bool) -> None:
    """Delete what the run has created at its targets.

    :param forgiving: the run is lost because its target may hang: then its topics cannot be
        deleted, which is no new error.
    """
    for share in shares:
        try:
            share.driver.cleanup()
        except TargetError:
            if not forgiving:
                raise


@contextlib.contextmanager
def _shares(
    assignments: Sequence[WorkloadAssignment], clock: Clock
) -> Iterator[list[WorkloadShare]]:
    shares: list[WorkloadShare] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        shares.extend(WorkloadShare(assigned, clock) for assigned in assignments)
        yield shares
    finally:
        sys.setswitchinterval(interval)
        for share in shares:
            share.driver.close()


def _drive(link: Link, shares: Sequence[WorkloadShare], clock: Clock, *, lead: bool) -> None:
    def idle(busy: WorkloadShare | None = None) -> None:
        for share in shares:
            if share is not busy:
                share.driver.poll(0)

    def keep_alive(busy: WorkloadShare | None = None) -> None:
        link.process_messages()
        idle(busy)

    if lead:
        for share in shares:
            share.driver.prepare()

    def first_connection(clients: str, workload: str) -> int:
        return link.meet(ClientsMade(clients, workload), ConnectFrom, idle=idle).instant

    facts = None
    if lead:
        facts = tuple(share.driver.facts() for share in shares)
    link.meet(TargetPrepared(facts), Continue, idle=idle)
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
    for share in shares:
        share.driver.close()


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
                waiting.append(share.driver)
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
