"""One worker's share of one workload: its driver, its engine, and the samples of its phases.

Used on every worker by :class:`~pytest_loadtest.fleet.member.WorkerRun`, in the thread that drives
load. It never talks to other workers: all that they agree on comes with the messages of the link.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import (
    Clock,
    Driver,
    DriverContext,
    DriverFacts,
    Joined,
    NamedTopics,
    PacedConnections,
)
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import Engine
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.engine.tap import Tap, tap_context, tapped_topics
from pytest_loadtest.fleet.host_clocks import HostClock
from pytest_loadtest.fleet.messages import PhaseFinished, StartPhase, WorkloadAssignment
from pytest_loadtest.fleet.sample_transfer import SampleTransfer
from pytest_loadtest.message.samples import EVIDENCE
from pytest_loadtest.message.streams import stream_column, stream_list
from pytest_loadtest.metrics.histogram import document, histogram
from pytest_loadtest.metrics.strays import Stray, printable
from pytest_loadtest.plan.connecting import connect_record, connect_times, connection_numbers
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.profile.model import choose_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pytest_loadtest.fleet.link import Link

    Meet = Callable[[str, str], int]
    Idle = Callable[[], None]


class WorkloadShare:
    """One worker's share of one workload.

    :ivar drivers: that of the load, and that of a tap.
    """

    def __init__(self, assigned: WorkloadAssignment, clock: Clock) -> None:
        profile = assigned.profile
        self.assigned = assigned
        self._clock = clock
        self._route = None if profile.route is None else profile.route.route()
        self.pool = profile_pool(profile, assigned.files)
        # Generates the payloads before load runs, not with the first message.
        assert self.pool.filler or self.pool.bodies
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
            route=self._route,
        )
        make_driver: Any = driver_class(profile.driver.name, choose_client(profile).client)
        self.driver: Driver = make_driver(context)
        self.drivers = [self.driver]
        self._tap: Tap | None = None
        if assigned.topology.tapped:
            tap = make_driver(tap_context(context))
            self._tap = Tap(tap, self.pool.place, assigned.nonce)
            self.drivers.append(tap)
        self._recorder: Recorder | None = None
        # Foreign, corrupt and straggling messages up to the last phase's end.
        self._counted = (0, 0, 0)
        self._transfer = SampleTransfer(assigned.worker, clock)
        self._connected: dict[str, tuple[int, int, int, dict[str, Any] | None]] = {}

    def open_consumers(self, meet: Meet, idle: Idle) -> None:
        """Connect the consumers that take messages from the beginning.

        :param meet: clients (``consumers``, ``producers``) and workload → the instant at which the
            first may begin to connect, ns.
        :param idle: handles messages of the controller, and polls the worker's other drivers.
        """
        assigned = self.assigned
        share = assigned.assignment.consumers
        per_subscription = max(assigned.topology.consumers, 1)
        consumers = np.fromiter(share, np.int32, len(share))
        is_early = consumers % per_subscription < assigned.opened
        early = consumers[is_early]
        self._later = consumers[~is_early].tolist()
        numbers = connection_numbers(early.astype(np.int64), per_subscription, assigned.opened)
        topology = assigned.topology
        connections = topology.topics * topology.subscriptions * assigned.opened
        with self._connecting("consumers", numbers, connections, meet, idle):
            self._opened = Joined(early, self.driver.open_consumers(early.tolist()))
        if self._tap is not None:
            self._tap.open(tapped_topics(assigned.topology, consumers))

    def open_producers(self, meet: Meet, idle: Idle) -> None:
        """Connect the producers and make the engine.

        Parameters as for :meth:`open_consumers`.
        """
        assigned = self.assigned
        profile = self.assigned.profile
        numbers = stream_column(assigned.assignment.streams)
        connections = assigned.topology.streams
        with self._connecting("producers", numbers, connections, meet, idle):
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
                received=None if self._route is None else self._route.received,
                tap=self._tap,
            )
        )

    @contextlib.contextmanager
    def _connecting(
        self, who: str, numbers: NDArray[np.int64], connections: int, meet: Meet, idle: Idle
    ) -> Iterator[None]:
        """Pace the connections opened in the block if the profile has a rate.

        Note their duration and CPU time.

        :param numbers: the position of each connection among those of all workers.
        :param connections: those of all workers.
        """
        rate = self.assigned.profile.connect_rate
        start = self._clock()
        spent: list[int] = []

        def waiting() -> None:
            if len(spent) == 1:
                # All clients exist, and the first is not due yet: from here on CPU time is spent on
                # connecting.
                spent.append(time.process_time_ns())
            idle()

        if rate is not None:  # all workers count from one instant
            start = meet(who, self.assigned.workload)
            cast("PacedConnections", self.driver).pace(connect_times(start, rate, numbers), waiting)
        spent.append(time.process_time_ns())
        yield
        cpu = time.process_time_ns() - spent[-1]
        ended = self._clock()
        record = None
        if len(numbers) and rate is not None:
            times = self.driver.opening_times()
            up = times["up"][-len(numbers) :]
            latency = times["connect"][-len(numbers) :]
            record = connect_record(start, rate, connections, up, latency)
        if len(numbers):
            self._connected[who] = (start, ended, cpu, record)

    def begin(self, phase: StartPhase, link: Link) -> None:
        """Begin a phase at its instant; record its samples if it has a folder."""
        assigned = self.assigned
        if isinstance(self._clock, HostClock) and phase.clock is not None:
            self._clock.line = phase.clock
        if phase.folder is not None:
            self._recorder = Recorder(
                self._transfer.folder(phase, phase.folder),
                assigned.worker,
                self.pool,
                assigned.topology,
                assigned.assignment.streams,
                assigned.disk,
                assigned.nonce,
            )
            link.measured_since = phase.start
            if isinstance(self._clock, HostClock):
                # The test's body waits by the clock of its own host.
                link.measured_since = time.monotonic_ns() + self._clock.until(phase.start)
        self.engine.begin(
            phase.phase,
            phase.start,
            link.phase_control(assigned.workload, phase.phase.name),
            self._recorder,
            phase.wall,
        )

    def facts(self) -> DriverFacts:
        """Return the driver's facts, with what only the engine knows of its arrivals."""
        facts = self.driver.facts()
        if facts.unstamped is None:
            return facts
        return replace(facts, late_stamps=self.engine.inbox.late_stamps)

    def end(self, link: Link, idle: Idle) -> PhaseFinished:
        """Close the samples of the phase that is over.

        :param idle: polls the worker's drivers while samples are stored.
        """
        recorder = self._recorder
        self._recorder = None
        if recorder is not None:
            recorder.close(self._sample_facts())
        self._transfer.move(link, idle)
        sender = self.engine.sender
        received = self.engine.inbox.counts.received
        # At QoS 0 an acknowledgement only says that the kernel took the message.
        acknowledged = self.assigned.profile.publish_acks and sender.counts.acked > 0
        return PhaseFinished(
            ends=sender.ends,
            marks=sender.marks,
            disconnected=self.driver.disconnected(),
            answered=acknowledged or received > 0,
            unanswered=sender.counts.in_flight > 0,
        )

    def _sample_facts(self) -> dict[str, Any]:
        """Return what the samples of the phase that is over do not contain themselves."""
        counts = self.engine.inbox.counts
        before = self._counted
        self._counted = (counts.foreign, counts.corrupt, counts.stragglers)
        opening = {}
        for name, times in self.driver.opening_times().items():
            distribution = None if name == "up" else histogram(times)
            if distribution is not None:
                opening[name] = document(distribution)
        evidence = self.engine.watch.evidence(self.assigned.worker)
        pauses = self.engine.pauses.document(exact=self.driver.facts().stamps == "kernel")
        return {
            "opening": opening,
            "connecting": self._connected,
            "arrivals": dict(self.engine.inbox.arrivals.seconds),
            "nonce": self.assigned.nonce,
            "foreign": counts.foreign - before[0],
            "corrupt": counts.corrupt - before[1],
            "stragglers": counts.stragglers - before[2],
            "strays": [asdict(stray) for stray in self._strays()],
            "evidence": {
                "cpu": evidence.cpu,
                "stalled": evidence.stalled,
                "longest_stall": evidence.longest_stall,
                "gc": evidence.gc,
                "seconds": dict(zip(EVIDENCE, evidence.seconds.T.tolist(), strict=True)),
                "pauses": {**pauses, "late": self.engine.sender.late.document()},
            },
        }

    def _strays(self) -> list[Stray]:
        """Return the first foreign and corrupt messages since the last phase's end.

        Their times are those of the clock.
        """
        kept = self.engine.inbox.take_strays()
        if not kept:
            return []
        topology = self.assigned.topology
        outputs: tuple[str, ...] = ()
        if isinstance(self.driver, NamedTopics):
            outputs = self.driver.topic_names().outputs
        each = len(outputs) // topology.topics
        strays = []
        for kind, at, consumer, size, beginning in kept:
            topic = topology.topic_of_consumer(consumer)
            names = outputs[topic * each : (topic + 1) * each]
            stray = Stray(
                kind=kind,
                at=at,
                topic=" or ".join(names) or f"topic {topic}",
                size=size,
                beginning=None if beginning is None else printable(beginning),
            )
            strays.append(stray)
        return strays

    def abandon(self) -> None:
        """Keep the samples gathered so far."""
        if self._recorder is not None:
            self._recorder.abandon()
        self._transfer.abandon()
