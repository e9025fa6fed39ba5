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
from pytest_loadtest.engine.run import Engine
from pytest_loadtest.fleet.link import Link, Released
from pytest_loadtest.fleet.orders import Done, Order, Outcome, Request
from pytest_loadtest.plan import profile_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.drivers._base import Driver

# Threads of client libraries wait for the interpreter lock while our loop computes: give it up sooner than Python's 5 ms,
# or a stamp would be late by as much.
SWITCH_INTERVAL = 0.0005


def take_part(link: Link, request: Request, *, lead: bool) -> Outcome | None:
    """Drive this worker's share of a run; return the outcome on the lead, None on the others.

    :raises BrokenRun: the run cannot be judged. :raises UsageError: it should not have been asked for.
    """
    try:
        order: Order = link.meet("order", request)
        pool = profile_pool(order.profile, order.payload_file)
        recorder = Recorder(order.folder, order.worker, pool)
        with _driver(order, pool) as driver:
            try:
                done = _drive(link, order, driver, recorder, lead=lead)
            except BaseException:
                recorder.abandon()
                raise
            link.meet("closed", done)
            if lead:
                driver.cleanup()
        outcome: Outcome | None = link.meet("judged")
        return outcome
    except Released:
        raise
    except BaseException as error:
        link.fail(error)
        raise


@contextlib.contextmanager
def _driver(order: Order, pool: Any) -> Iterator[Driver]:
    profile = order.profile
    context = DriverContext(
        target=order.target, settings=profile.driver, clock=time.monotonic_ns, run=order.run, nonce=order.nonce, worker=order.worker,
        topics=order.topics, pool=pool, checksum=profile.checksum, ordered=order.ordered,
    )  # fmt: skip
    driver = driver_class(profile.driver.name, profile.driver.client)(context)  # type: ignore[call-arg]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield driver
    finally:
        sys.setswitchinterval(interval)
        driver.close()


def _drive(link: Link, order: Order, driver: Driver, recorder: Recorder, *, lead: bool) -> Done:
    def idle() -> None:
        driver.poll(0)

    if lead:
        driver.prepare()
    link.meet("prepared", driver.facts() if lead else None, idle=idle)
    consumers = driver.open_consumers(order.assignment.consumers)
    link.meet("subscribed", idle=idle)
    producers = driver.open_producers(order.assignment.producers)
    profile = order.profile
    engine = Engine(
        driver, list(zip(order.assignment.producers, producers, strict=True)),
        list(zip(order.assignment.consumers, consumers, strict=True)),
        pool=recorder.pool, clock=time.monotonic_ns, recorder=recorder, nonce=order.nonce, seed=profile.seed,
        key_distributor=profile.key_distributor, max_send_delay=profile.max_send_delay, ordered=order.ordered,
    )  # fmt: skip
    with _frozen_garbage():
        for number, phase in enumerate(order.phases):
            start = link.meet(f"start {phase.name}", number, idle=idle)
            link.begin(phase.name)
            engine.run(phase, start, link)
    disconnected = driver.disconnected()
    driver.close()
    counts, evidence = engine.inbox.counts, engine.watch.evidence(order.worker)
    recorder.close({
        "nonce": order.nonce, "foreign": counts.foreign, "corrupt": counts.corrupt, "stragglers": counts.stragglers,
        "evidence": {"cpu": evidence.cpu, "stalled": evidence.stalled, "longest_stall": evidence.longest_stall, "gc": evidence.gc},
    })  # fmt: skip
    return Done(disconnected=disconnected, facts=driver.facts())


@contextlib.contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Keep the collector from walking everything that was there before the load began."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
