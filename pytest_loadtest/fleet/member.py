"""A worker's part in one run, from the first meeting to the verdict: the same path in every fleet."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import DriverContext, Joined
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import Engine, drive
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.errors import TargetError
from pytest_loadtest.fleet.link import Link, Released
from pytest_loadtest.fleet.messages import Finished, PhaseFinished, Request, RunResult, StartPhase, WorkloadAssignment
from pytest_loadtest.fleet.observing import whereabouts
from pytest_loadtest.message.samples import EVIDENCE
from pytest_loadtest.metrics.histogram import document, histogram
from pytest_loadtest.plan.connecting import instants, opened_before, up_in_time
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.profile.model import choose_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Driver, DriverFacts, PacedConnections
    from pytest_loadtest.metrics.histogram import Histogram

    Meet = Callable[[str], int]
    Idle = Callable[[], None]

# Threads of client libraries wait for the interpreter lock while our loop computes: give it up sooner than Python's 5 ms,
# or a stamp would be late by as much.
SWITCH_INTERVAL = 0.0005


def take_part(link: Link, request: Request, *, lead: bool) -> RunResult | None:
    """Drive this worker's share of a run; return the outcome on the lead, None on the others.

    :raises BrokenRun: the run cannot be judged. :raises UsageError: it should not have been asked for.
    """
    try:
        link.orders = link.meet("order", request)
        with _shares(link.orders) as shares:
            _drive(link, shares, lead=lead)
            link.meet("closed", tuple(Finished(facts=share.facts()) for share in shares))
            if lead:
                link.look()
                for share in shares:
                    with contextlib.suppress(*[TargetError] * link.aborted):  # a target that stands still is why, and stays as it is
                        share.driver.cleanup()
        outcome: RunResult | None = link.meet("judged")
        return outcome
    except Released:
        raise
    except BaseException as error:
        link.fail(error)
        raise


class WorkloadShare:
    """One worker's share of one workload."""

    def __init__(self, order: WorkloadAssignment) -> None:
        profile = order.profile
        self.order, self.pool = order, profile_pool(profile, order.payload_file)
        assert self.pool.bodies  # made before load runs, not by the first message
        context = DriverContext(
            target=order.target, settings=profile.driver, clock=time.monotonic_ns, run=order.run, nonce=order.nonce, worker=order.worker,
            topology=order.topology, pool=self.pool, checksum=profile.checksum, ordered=order.ordered,
        )  # fmt: skip
        self.driver: Driver = driver_class(profile.driver.name, choose_client(profile).client)(context)  # type: ignore[call-arg]
        self._recorder: Recorder | None = None
        self._told = (0, 0, 0)
        self._connected: dict[str, tuple[int, int, int, int | None]] = {}

    def facts(self) -> DriverFacts:
        """How the client is set up."""
        return self.driver.facts()

    def open_consumers(self, meet: Meet, idle: Idle) -> None:
        """Connect those that take messages from the beginning.

        :param meet: asks when the first connection may be begun, ns. :param idle: hears the controller, and gives the worker's
            other drivers their turn.
        """
        order, share = self.order, self.order.assignment.consumers
        each, all_of_them = max(order.topology.consumers, 1), np.fromiter(share, np.int32, len(share))
        early = all_of_them % each < order.opened
        consumers, self._later = all_of_them[early], all_of_them[~early].tolist()
        with self._connecting("consumers", opened_before(consumers.astype(np.int64), each, order.opened), meet, idle):
            self._opened = Joined(consumers, self.driver.open_consumers(consumers.tolist()))

    def open_producers(self, meet: Meet, idle: Idle) -> None:
        """Connect them and be ready. Parameters as of :meth:`open_consumers`."""
        order, profile = self.order, self.order.profile
        with self._connecting("producers", np.array(order.assignment.streams, np.int64), meet, idle):
            self.driver.open_producers(order.assignment.streams)
        self.engine = Engine(Setup(
            driver=self.driver, clock=time.monotonic_ns, pool=self.pool, topology=order.topology, streams=order.assignment.streams,
            opened=self._opened, later=self._later, nonce=order.nonce, seed=profile.seed, key_distributor=profile.key_distributor,
            max_send_delay=profile.max_send_delay, ordered=order.ordered, bounds=order.bounds, delays=profile.delays,
            timely_bounds=order.timely_bounds, timely_seconds=order.timely_seconds,
        ))  # fmt: skip

    @contextlib.contextmanager
    def _connecting(self, who: str, numbers: NDArray[np.int64], meet: Meet, idle: Idle) -> Iterator[None]:
        """Pace what is opened meanwhile, if it is to be, and note how long it took and what it cost. :param numbers: over all workers."""
        rate, start, spent = self.order.profile.connect_rate, time.monotonic_ns(), list[int]()

        def waiting() -> None:
            if len(spent) == 1:  # the clients are made, before the first of them was due
                spent.append(time.process_time_ns())
            idle()

        if rate is not None:  # all workers count from one instant
            start = meet(f"connect {who} {self.order.workload}".rstrip())
            cast("PacedConnections", self.driver).pace(instants(start, rate, numbers), waiting)
        spent.append(time.process_time_ns())
        yield
        cpu, ended, in_time = time.process_time_ns() - spent[-1], time.monotonic_ns(), None
        if len(numbers) and rate is not None:
            up, latency = (self.driver.opening_times()[name][-len(numbers) :] for name in ("up", "connect"))
            in_time = up_in_time(start, rate, numbers, up, latency)
        if len(numbers):
            self._connected[who] = (start, ended, cpu, in_time)

    def begin(self, order: StartPhase, link: Link) -> None:
        """A phase begins."""
        if order.folder is not None:
            mine = self.order
            self._recorder = Recorder(order.folder, mine.worker, self.pool, mine.topology, mine.assignment.streams, mine.disk)
            link.measured_since = order.start
        self.engine.begin(order.phase, order.start, link.phase_control(self.order.workload, order.phase.name), self._recorder, order.wall)

    def end(self) -> PhaseFinished:
        """A phase is over: close its samples."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            counts, evidence = self.engine.inbox.counts, self.engine.watch.evidence(self.order.worker)
            told, self._told = self._told, (counts.foreign, counts.corrupt, counts.stragglers)
            foreign, corrupt, stragglers = (now - before for now, before in zip(self._told, told, strict=True))
            recorder.close({
                "opening": {name: document(found) for name, found in self._opening() if found is not None},
                "connecting": self._connected,
                "arrivals": dict(self.engine.inbox.arrivals.seconds),
                "nonce": self.order.nonce, "foreign": foreign, "corrupt": corrupt, "stragglers": stragglers,
                "evidence": {
                    "cpu": evidence.cpu, "stalled": evidence.stalled, "longest_stall": evidence.longest_stall, "gc": evidence.gc,
                    "seconds": dict(zip(EVIDENCE, evidence.seconds.T.tolist(), strict=True)),
                },
            })  # fmt: skip
        return PhaseFinished(ends=self.engine.sender.ends, marks=self.engine.sender.marks, disconnected=self.driver.disconnected())

    def _opening(self) -> list[tuple[str, Histogram | None]]:
        return [(name, histogram(times)) for name, times in self.driver.opening_times().items() if name != "up"]

    def abandon(self) -> None:
        """Keep the samples gathered so far."""
        if self._recorder is not None:
            self._recorder.abandon()


@contextlib.contextmanager
def _shares(orders: Sequence[WorkloadAssignment]) -> Iterator[list[WorkloadShare]]:
    shares: list[WorkloadShare] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        shares.extend(map(WorkloadShare, orders))
        yield shares
    finally:
        sys.setswitchinterval(interval)
        for share in shares:
            share.driver.close()


def _drive(link: Link, shares: Sequence[WorkloadShare], *, lead: bool) -> None:
    def idle(busy: WorkloadShare | None = None) -> None:
        for share in shares:
            if share is not busy:
                share.driver.poll(0)

    def meanwhile(busy: WorkloadShare) -> None:
        link.hear()
        idle(busy)

    if lead:
        for share in shares:
            share.driver.prepare()
    meet = partial(link.meet, idle=idle)
    meet("prepared", tuple(share.facts() for share in shares) if lead else None)
    for share in shares:
        share.open_consumers(meet, partial(meanwhile, share))
    meet("subscribed", whereabouts())
    for share in shares:
        share.open_producers(meet, partial(meanwhile, share))
    try:
        with _frozen_garbage():
            _phases(link, shares, idle)
    except BaseException:
        for share in shares:
            share.abandon()
        raise
    for share in shares:
        share.driver.close()


def _phases(link: Link, shares: Sequence[WorkloadShare], idle: Any) -> None:
    """One phase after another, as the controller says, until it has no more."""
    said, number = None, 0
    while (orders := link.meet(f"next {number}", said, idle=idle)) is not None:
        active = [(share, order) for share, order in zip(shares, orders, strict=True) if order is not None]
        for share, order in active:
            share.begin(order, link)
        waiting = [share.driver for share, order in zip(shares, orders, strict=True) if order is None]
        drive([share.engine for share, _ in active], time.monotonic_ns, waiting)
        said = tuple(share.end() if order is not None else None for share, order in zip(shares, orders, strict=True))
        number += 1


@contextlib.contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Keep the collector from walking everything that was there before the load began."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
