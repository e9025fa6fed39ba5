"""A worker's part in one run, from the first meeting to the verdict: the same path in every fleet."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers._base import DriverContext
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import Engine, drive
from pytest_loadtest.fleet.link import Link, Released
from pytest_loadtest.fleet.orders import Done, Order, Outcome, PhaseDone, PhaseOrder, Request
from pytest_loadtest.plan import profile_pool

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.drivers._base import Driver, DriverFacts

# Threads of client libraries wait for the interpreter lock while our loop computes: give it up sooner than Python's 5 ms,
# or a stamp would be late by as much.
SWITCH_INTERVAL = 0.0005


def take_part(link: Link, request: Request, *, lead: bool) -> Outcome | None:
    """Drive this worker's share of a run; return the outcome on the lead, None on the others.

    :raises BrokenRun: the run cannot be judged. :raises UsageError: it should not have been asked for.
    """
    try:
        orders: Sequence[Order] = link.meet("order", request)
        with _lanes(orders) as lanes:
            _drive(link, lanes, lead=lead)
            link.meet("closed", tuple(Done(facts=lane.facts()) for lane in lanes))
            if lead:
                for lane in lanes:
                    lane.driver.cleanup()
        outcome: Outcome | None = link.meet("judged")
        return outcome
    except Released:
        raise
    except BaseException as error:
        link.fail(error)
        raise


class Lane:
    """One workload on this worker."""

    def __init__(self, order: Order) -> None:
        profile = order.profile
        self.order, self.pool = order, profile_pool(profile, order.payload_file)
        context = DriverContext(
            target=order.target, settings=profile.driver, clock=time.monotonic_ns, run=order.run, nonce=order.nonce, worker=order.worker,
            topics=order.topics, pool=self.pool, checksum=profile.checksum, ordered=order.ordered,
            subscriptions=profile.subscriptions_per_topic,
        )  # fmt: skip
        self.driver: Driver = driver_class(profile.driver.name, profile.driver.client)(context)  # type: ignore[call-arg]
        self._recorder: Recorder | None = None
        self._told = (0, 0, 0)

    def facts(self) -> DriverFacts:
        """How the client is set up."""
        return self.driver.facts()

    def open_consumers(self) -> None:
        """Connect those that take messages from the beginning."""
        specs, order = self.order.assignment.consumers, self.order
        now = [spec for spec in specs if spec.index % max(order.consumers, 1) < order.opened]
        self._later = [spec for spec in specs if spec not in now]
        self._consumers = list(zip(now, self.driver.open_consumers(now), strict=True))

    def open_producers(self) -> None:
        """Connect them and be ready."""
        order, profile = self.order, self.order.profile
        producers = self.driver.open_producers(order.assignment.producers)
        self.engine = Engine(
            self.driver, list(zip(order.assignment.producers, producers, strict=True)), self._consumers,
            pool=self.pool, clock=time.monotonic_ns, nonce=order.nonce, seed=profile.seed, key_distributor=profile.key_distributor,
            max_send_delay=profile.max_send_delay, ordered=order.ordered, bounds=order.bounds, more=self._later,
            per_subscription=max(order.consumers, 1),
        )  # fmt: skip

    def begin(self, order: PhaseOrder, link: Link) -> None:
        """A phase begins."""
        if order.folder is not None:
            self._recorder = Recorder(order.folder, self.order.worker, self.pool)
            link.measured_since = order.start
        self.engine.begin(order.phase, order.start, link.lane(self.order.workload, order.phase.name), self._recorder)

    def end(self) -> PhaseDone:
        """A phase is over: close its samples."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            counts, evidence = self.engine.inbox.counts, self.engine.watch.evidence(self.order.worker)
            told, self._told = self._told, (counts.foreign, counts.corrupt, counts.stragglers)
            foreign, corrupt, stragglers = (now - before for now, before in zip(self._told, told, strict=True))
            recorder.close({
                "arrivals": dict(self.engine.inbox.arrivals.seconds),
                "nonce": self.order.nonce, "foreign": foreign, "corrupt": corrupt, "stragglers": stragglers,
                "evidence": {
                    "cpu": evidence.cpu, "stalled": evidence.stalled, "longest_stall": evidence.longest_stall, "gc": evidence.gc,
                },
            })  # fmt: skip
        return PhaseDone(ends=self.engine.ends, marks=self.engine.marks, disconnected=self.driver.disconnected())

    def abandon(self) -> None:
        """Keep the samples gathered so far."""
        if self._recorder is not None:
            self._recorder.abandon()


@contextlib.contextmanager
def _lanes(orders: Sequence[Order]) -> Iterator[list[Lane]]:
    lanes: list[Lane] = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        lanes.extend(map(Lane, orders))
        yield lanes
    finally:
        sys.setswitchinterval(interval)
        for lane in lanes:
            lane.driver.close()


def _drive(link: Link, lanes: Sequence[Lane], *, lead: bool) -> None:
    def idle() -> None:
        for lane in lanes:
            lane.driver.poll(0)

    if lead:
        for lane in lanes:
            lane.driver.prepare()
    link.meet("prepared", tuple(lane.facts() for lane in lanes) if lead else None, idle=idle)
    for lane in lanes:
        lane.open_consumers()
    link.meet("subscribed", idle=idle)
    for lane in lanes:
        lane.open_producers()
    try:
        with _frozen_garbage():
            _phases(link, lanes, idle)
    except BaseException:
        for lane in lanes:
            lane.abandon()
        raise
    for lane in lanes:
        lane.driver.close()


def _phases(link: Link, lanes: Sequence[Lane], idle: Any) -> None:
    """One phase after another, as the controller says, until it has no more."""
    said, number = None, 0
    while (orders := link.meet(f"next {number}", said, idle=idle)) is not None:
        active = [(lane, order) for lane, order in zip(lanes, orders, strict=True) if order is not None]
        for lane, order in active:
            lane.begin(order, link)
        drive([lane.engine for lane, _ in active], time.monotonic_ns)
        said = tuple(lane.end() if order is not None else None for lane, order in zip(lanes, orders, strict=True))
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
