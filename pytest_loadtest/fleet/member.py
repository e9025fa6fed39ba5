"""A worker's part in one run, from the first meeting to the verdict, with and without xdist.

:class:`~pytest_loadtest.fleet.local.LocalFleet` and
:class:`~pytest_loadtest.fleet.xdist.GangWorker` call :func:`take_part` on every worker, in the
thread that then drives load. It reports every error to the controller, and closes its clients in
any case.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import DriverContext, Joined
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import Engine, drive
from pytest_loadtest.engine.sample_store import store_samples
from pytest_loadtest.engine.send import Setup
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
    StartPhase,
    TargetPrepared,
    WorkloadAssignment,
)
from pytest_loadtest.fleet.observing import worker_location
from pytest_loadtest.fleet.scratch import ScratchFolder
from pytest_loadtest.message.samples import EVIDENCE
from pytest_loadtest.message.streams import stream_column, stream_list
from pytest_loadtest.metrics.histogram import document, histogram
from pytest_loadtest.plan.connecting import connect_times, connected_in_time, connection_numbers
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.profile.model import choose_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Clock, Driver, DriverFacts, PacedConnections

    Meet = Callable[[str, str], int]
    Idle = Callable[[], None]

# Threads of client libraries wait for the interpreter lock while the engine's loop computes. It is
# released sooner than after Python's default of 5 ms, because a timestamp taken in such a thread
# would be late by as much.
SWITCH_INTERVAL = 0.0005
# While samples are stored: seconds between two polls of the drivers, and between two signs of life
# for the controller.
IDLE_SECONDS, BUSY_SECONDS = 0.02, 1.0


def take_part(link: Link, request: Request, *, lead: bool) -> RunResult | None:
    """Drive this worker's share of a run; return the result on the lead, None on the others.

    :raises BrokenRun: the run cannot be judged. :raises UsageError: the request is wrong.
    """
    try:
        link.assignments = link.meet(ClaimShares(request), Shares).assignments
        line = link.assignments[0].clock
        clock = time.monotonic_ns if line is None else HostClock(line)
        with _shares(link.assignments, clock) as shares:
            _drive(link, shares, clock, lead=lead)
            is_silent = link.meet(
                ClientsClosed(tuple(share.facts() for share in shares)), CleanUp
            ).is_silent
            if lead:
                link.before_cleanup()
                for share in shares:
                    # a run may be lost because its target hangs: then its topics cannot be deleted,
                    # which is no new error
                    with contextlib.suppress(*[TargetError] * (link.aborted or is_silent)):
                        share.driver.cleanup()
        return link.meet(AwaitVerdict(), Result).result
    except Released:
        raise
    except BaseException as error:
        link.fail(error)
        raise


class WorkloadShare:
    """One worker's share of one workload."""

    def __init__(self, assigned: WorkloadAssignment, clock: Clock) -> None:
        profile = assigned.profile
        self.assigned, self._clock, self.pool = (
            assigned,
            clock,
            profile_pool(profile, assigned.payload_file),
        )
        assert (
            self.pool.bodies
        )  # generates the payloads before load runs, not with the first message
        context = DriverContext(
            target=assigned.target,
            settings=profile.driver,
            clock=clock,
            run=assigned.run,
            nonce=assigned.nonce,
            worker=assigned.worker,
            topology=assigned.topology,
            pool=self.pool,
            checksum=profile.checksum,
            ordered=assigned.ordered,
            sources=assigned.sources,
            broker=profile.broker.settings if assigned.target.started else {},
        )
        self.driver: Driver = driver_class(profile.driver.name, choose_client(profile).client)(
            context
        )  # type: ignore[call-arg]
        self._recorder: Recorder | None = None
        self._counted = (
            0,
            0,
            0,
        )  # foreign, corrupt and straggling messages up to the last phase's end
        # the folder of samples that move when the phase is over, and their target: a folder on the
        # controller's host, or a location
        self._samples: tuple[Path, Path | str] | None = None
        self._scratch: ScratchFolder | None = None
        self._connected: dict[str, tuple[int, int, int, int | None]] = {}

    def open_consumers(self, meet: Meet, idle: Idle) -> None:
        """Connect the consumers that take messages from the beginning.

        :param meet: clients (``consumers``, ``producers``) and workload → the instant at which the
            first may begin to connect, ns.
        :param idle: handles messages of the controller, and polls the worker's other drivers.
        """
        assigned, share = self.assigned, self.assigned.assignment.consumers
        each, consumers = (
            max(assigned.topology.consumers, 1),
            np.fromiter(share, np.int32, len(share)),
        )
        is_early = consumers % each < assigned.opened
        early, self._later = consumers[is_early], consumers[~is_early].tolist()
        with self._connecting(
            "consumers",
            connection_numbers(early.astype(np.int64), each, assigned.opened),
            meet,
            idle,
        ):
            self._opened = Joined(early, self.driver.open_consumers(early.tolist()))

    def open_producers(self, meet: Meet, idle: Idle) -> None:
        """Connect the producers and make the engine. Parameters as for :meth:`open_consumers`."""
        assigned, profile = self.assigned, self.assigned.profile
        with self._connecting("producers", stream_column(assigned.assignment.streams), meet, idle):
            self.driver.open_producers(stream_list(assigned.assignment.streams))
        self.engine = Engine(
            Setup(
                driver=self.driver,
                clock=self._clock,
                pool=self.pool,
                topology=assigned.topology,
                streams=assigned.assignment.streams,
                opened=self._opened,
                later=self._later,
                nonce=assigned.nonce,
                seed=profile.seed,
                key_distributor=profile.key_distributor,
                max_send_delay=profile.max_send_delay,
                ordered=assigned.ordered,
                bounds=assigned.bounds,
                delays=profile.delays,
                timely_bounds=assigned.timely_bounds,
                timely_seconds=assigned.timely_seconds,
            )
        )

    @contextlib.contextmanager
    def _connecting(
        self, who: str, numbers: NDArray[np.int64], meet: Meet, idle: Idle
    ) -> Iterator[None]:
        """Pace the connections opened in the block if the profile has a rate; note their duration
        and CPU time.

        :param numbers: the position of each connection among those of all workers.
        """
        rate, start, spent = self.assigned.profile.connect_rate, self._clock(), list[int]()

        def waiting() -> None:
            if (
                len(spent) == 1
            ):  # all clients exist, and the first is not due yet: from here on CPU time is spent on connecting
                spent.append(time.process_time_ns())
            idle()

        if rate is not None:  # all workers count from one instant
            start = meet(who, self.assigned.workload)
            cast("PacedConnections", self.driver).pace(connect_times(start, rate, numbers), waiting)
        spent.append(time.process_time_ns())
        yield
        cpu, ended, in_time = time.process_time_ns() - spent[-1], self._clock(), None
        if len(numbers) and rate is not None:
            up, latency = (
                self.driver.opening_times()[name][-len(numbers) :] for name in ("up", "connect")
            )
            in_time = connected_in_time(start, rate, numbers, up, latency)
        if len(numbers):
            self._connected[who] = (start, ended, cpu, in_time)

    def begin(self, phase: StartPhase, link: Link) -> None:
        assigned, name = self.assigned, phase.phase.name
        if isinstance(self._clock, HostClock) and phase.clock is not None:
            self._clock.line = phase.clock
        if phase.folder is not None:
            folder = self._sample_folder(phase, phase.folder)
            self._recorder = Recorder(
                folder,
                assigned.worker,
                self.pool,
                assigned.topology,
                assigned.assignment.streams,
                assigned.disk,
                assigned.nonce,
            )
            link.measured_since = phase.start
            if isinstance(
                self._clock, HostClock
            ):  # the test's body waits by the clock of its own host
                link.measured_since = time.monotonic_ns() + self._clock.until(phase.start)
        self.engine.begin(
            phase.phase,
            phase.start,
            link.phase_control(assigned.workload, name),
            self._recorder,
            phase.wall,
        )

    def facts(self) -> DriverFacts:
        """Return the driver's facts, with what only the engine knows of its arrivals."""
        facts = self.driver.facts()
        return (
            facts
            if facts.unstamped is None
            else replace(facts, late_stamps=self.engine.inbox.late_stamps)
        )

    def _sample_folder(self, phase: StartPhase, folder: Path) -> Path:
        """Return the folder to record in. :param folder: the phase's, on the controller's host."""
        if (
            phase.clock is not None
        ):  # the controller's folders are not on this host: samples travel when the phase is over
            here = self._temporary_folder(stored=phase.samples is not None)
        elif phase.samples is not None:
            here = folder / f"samples-{self.assigned.worker}"
        else:
            return folder
        self._samples = (here, phase.samples or folder)
        return here

    def _temporary_folder(self, *, stored: bool) -> Path:
        # Samples that a killed worker would have stored elsewhere are kept for the user; others
        # cannot be used any more.
        if stored:
            return Path(tempfile.mkdtemp(prefix="loadtest-samples-"))
        self._scratch = ScratchFolder("loadtest-unsent-")
        return self._scratch.path

    def _remove_samples(self, here: Path) -> None:
        shutil.rmtree(here, ignore_errors=True)
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def end(self, link: Link, idle: Idle) -> PhaseFinished:
        """Close the samples of the phase that is over.

        :param idle: polls the worker's drivers while samples are stored.
        """
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            counts, evidence = (
                self.engine.inbox.counts,
                self.engine.watch.evidence(self.assigned.worker),
            )
            before, self._counted = (
                self._counted,
                (counts.foreign, counts.corrupt, counts.stragglers),
            )
            foreign, corrupt, stragglers = (
                now - then for now, then in zip(self._counted, before, strict=True)
            )
            recorder.close(
                {
                    "opening": {
                        name: document(distribution)
                        for name, times in self.driver.opening_times().items()
                        if name != "up" and (distribution := histogram(times)) is not None
                    },
                    "connecting": self._connected,
                    "arrivals": dict(self.engine.inbox.arrivals.seconds),
                    "nonce": self.assigned.nonce,
                    "foreign": foreign,
                    "corrupt": corrupt,
                    "stragglers": stragglers,
                    "evidence": {
                        "cpu": evidence.cpu,
                        "stalled": evidence.stalled,
                        "longest_stall": evidence.longest_stall,
                        "gc": evidence.gc,
                        "seconds": dict(zip(EVIDENCE, evidence.seconds.T.tolist(), strict=True)),
                        "pauses": {
                            **self.engine.pauses.document(
                                exact=self.driver.facts().stamps == "kernel"
                            ),
                            "late": self.engine.sender.late.document(),
                        },
                    },
                }
            )
        if self._samples is not None:
            self._move_samples(link, *self._samples, idle)
        sender, received = self.engine.sender, self.engine.inbox.counts.received
        # At QoS 0 an acknowledgement only says that the kernel took the message.
        acknowledged = self.assigned.profile.publish_acks and sender.counts.acked > 0
        return PhaseFinished(
            ends=sender.ends,
            marks=sender.marks,
            disconnected=self.driver.disconnected(),
            answered=acknowledged or received > 0,
            unanswered=sender.counts.in_flight > 0,
        )

    def _move_samples(self, link: Link, here: Path, there: Path | str, idle: Idle) -> None:
        if isinstance(there, Path):
            _send_samples(link, here, there)
        else:
            self._samples = None  # what cannot be stored is kept: the error names its folder
            _store_samples(link, f"worker {self.assigned.worker}", here, there, idle)
        self._remove_samples(here)
        self._samples = None

    def abandon(self) -> None:
        """Keep the samples gathered so far."""
        if self._recorder is not None:
            self._recorder.abandon()
        if self._samples is not None and isinstance(
            self._clock, HostClock
        ):  # on the controller's host they stay in the run's folder
            self._remove_samples(self._samples[0])


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

    facts = tuple(share.driver.facts() for share in shares) if lead else None
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
    while (
        phases := link.meet(PhaseDone(number, finished), NextPhases, idle=idle).phases
    ) is not None:
        pairs = list(zip(shares, phases, strict=True))
        for share, phase in pairs:
            if phase is not None:
                share.begin(phase, link)
                sampler.begin(share.assigned.workload, phase)
        waiting = [share.driver for share, phase in pairs if phase is None]
        drive([share.engine for share, phase in pairs if phase is not None], clock, waiting)
        sampler.end(link)
        finished = tuple(None if phase is None else share.end(link, idle) for share, phase in pairs)
        number += 1


def _send_samples(link: Link, here: Path, there: Path) -> None:
    """Send the samples of a phase to the controller.

    The manifest is sent last, as it is written last.
    """
    files = sorted(
        (file for file in here.rglob("*") if file.is_file()),
        key=lambda file: (file.parent == here, file),
    )
    for file in files:
        link.send_file(file, there / file.relative_to(here))


def _store_samples(link: Link, who: str, here: Path, location: str, idle: Idle) -> None:
    """Store the samples of a phase in a thread, while connections and the controller are kept
    alive.

    :raises NoData: they cannot be written.
    """
    stopped, progressed, failures, last_sign = (
        threading.Event(),
        threading.Event(),
        list[BaseException](),
        time.monotonic(),
    )

    def is_stopped() -> bool:  # asked before each part
        progressed.set()
        return stopped.is_set()

    def store() -> None:
        try:
            store_samples(who, here, location, is_stopped)
        except BaseException as error:
            failures.append(error)

    # A daemon: an interrupted session does not wait for a store that does not answer.
    storing = threading.Thread(target=store, name="loadtest-samples", daemon=True)
    storing.start()
    try:
        while storing.is_alive():
            storing.join(IDLE_SECONDS)
            idle()
            link.process_messages()
            # Without progress there is no sign, so that the controller does not wait for ever for a
            # disk that hangs.
            if progressed.is_set() and time.monotonic() - last_sign > BUSY_SECONDS:
                progressed.clear()
                last_sign = time.monotonic()
                link.keep_waiting()
    finally:
        stopped.set()
    if failures:
        raise failures[0]


@contextlib.contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Exclude the objects that exist before the load from garbage collection, so that no collection
    stalls the engine by walking them.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
