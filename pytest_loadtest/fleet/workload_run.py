"""One workload of a run at the controller: its plan, its target, the phase in progress, and the
workers' reports on it.

The run controller calls it, mostly in the threads that answer meetings. It writes ``run.json`` and
the sequence bounds of each recorded phase, and raises an error when the workers sent anything but
what was planned: such samples are never judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers import undelivered_function
from pytest_loadtest.drivers.base import NO_ANSWER, DriverFacts, add_worker_counts
from pytest_loadtest.engine.sample_store import make_location
from pytest_loadtest.errors import TargetError
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.messages import WorkloadAssignment
from pytest_loadtest.fleet.outages import Outages
from pytest_loadtest.fleet.phase_record import PhaseRecord, messages_due
from pytest_loadtest.fleet.planning import installed_versions, machine_document
from pytest_loadtest.fleet.targets import target_address, with_keys
from pytest_loadtest.fleet.wall_clock import WallClock
from pytest_loadtest.fleet.watches import abort_reporting
from pytest_loadtest.pipeline.run_file import (
    STREAMS_FILE,
    RunChange,
    RunCircumstances,
    RunClock,
    RunFile,
    RunStreams,
    write_columns,
)
from pytest_loadtest.plan.connecting import opened_clients, opened_consumers, opened_each
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.report.build import broker_document, driver_document
from pytest_loadtest.schedule.pacing import StreamCounts
from pytest_loadtest.values.quantities import SECOND, format_count, format_duration
from pytest_loadtest.values.wording import scale_word
from pytest_loadtest.verdict.early import exceeds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.fleet.messages import Disturbance, Part, PhaseFinished
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.metrics.clocks import ClockFit, ClockLine
    from pytest_loadtest.plan.phases import Phase, StageSpan
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.schedule.due_messages import DueMessages
    from pytest_loadtest.verdict.objectives import Objective

CONNECT_IN: Final = (
    200_000_000  # ns until all workers have received the instant from which paced connections count
)
LONG_CONNECTING: Final = 5 * SECOND  # what takes longer is announced


@dataclass(kw_only=True)
class WorkloadRun:
    """One workload.

    :param name: its name if there are several, otherwise empty.
    :param root: its folder; recorded phases have folders below it.
    :param samples: the place of its samples, as ``root``, if they are stored elsewhere: a path, or
        a URI.
    :param used: the number of messages that each stream has sent so far.
    :param record: the phase in progress, or the last one; None before the first.
    :param outages: the outages of its target in this phase.
    """

    name: str
    part: Part
    plan: Plan
    root: Path
    nonce: int
    test: str
    source: str
    run: str
    workers: Sequence[str]
    broker: Broker | None = None
    facts: DriverFacts | None = None
    record: PhaseRecord | None = None
    folder: Path | None = None
    clock: WallClock = field(default_factory=WallClock)
    started: float | None = None
    outages: Outages = field(default_factory=lambda: Outages(0))
    used: StreamCounts | None = None
    host_clocks: tuple[RunClock, ...] = ()
    samples: str | None = None
    unanswered: bool = False
    """The target left messages of the current phase without an answer: it may hang."""
    went_away: str | None = None
    """Which clients lost a target that had answered in the current phase and then fell silent; None
    if it was there at the end.
    """

    @property
    def location(self) -> str | None:
        """The place of the current phase's samples; None if it is the folder, or if none are kept."""
        return (
            None
            if self.samples is None or self.folder is None
            else f"{self.samples}/{self.folder.name}"
        )

    @property
    def scale(self) -> str:
        """The word for a run with less than the load of its profile, ``scaled ×0.01`` or
        ``shortened``; otherwise empty.
        """
        return "" if self.plan.scale is None else scale_word(self.plan.scale.factor)

    @property
    def bounds(self) -> tuple[Objective, ...]:
        """The latency objectives whose misses workers count while load runs: only for a search,
        which ends a step early by them.
        """
        if self.plan.search is None:
            return ()
        return tuple(
            o
            for o in self.plan.profile.objectives
            if o.metric == "endToEndLatency" and not o.bucket and exceeds(o)
        )

    @property
    def current(self) -> PhaseRecord:
        """The phase in progress, or the last one, once there was one."""
        assert self.record is not None
        return self.record

    def assign(self, worker: str, rank: int, bounds: tuple[int, ...] = ()) -> WorkloadAssignment:
        """Return one worker's share.

        :param bounds: more latencies, ns, whose exceedances it counts while load runs.
        """
        plan, broker, (timely_bounds, timely_seconds) = (
            self.plan,
            self.broker,
            abort_reporting(self.plan),
        )
        assert broker is not None
        profile = with_keys(self.part.profile, broker.facts)
        return WorkloadAssignment(
            workload=self.name,
            run=self.run,
            nonce=self.nonce,
            worker=worker,
            profile=profile,
            payload_file=self.part.payload_file,
            assignment=plan.assignments[rank],
            topology=plan.topology,
            target=target_address(broker.facts),
            ordered=profile.ordered,
            bounds=(*((exceeds(objective) or 1) - 1 for objective in self.bounds), *bounds),
            opened=opened_each(plan),
            disk=plan.needs.disk,
            rate=plan.rate,
            timely_bounds=timely_bounds,
            timely_seconds=timely_seconds,
        )

    def first_connection(self, clients: str, now: int, announce: Callable[[str], None]) -> int:
        """Return the instant from which all workers count their paced connections, ns.

        :param clients: ``consumers`` or ``producers``.
        :param now: ns of the clock.
        :param announce: shows a line about connecting that takes long.
        """
        plan = self.plan
        count = plan.topology.streams if clients == "producers" else opened_consumers(plan)
        rate = plan.profile.connect_rate
        assert rate is not None
        duration = round(count / rate * SECOND)
        if duration > LONG_CONNECTING:
            announce(
                f"{self.test}: connecting {format_count(count)} {clients} at {rate:g}/s, which "
                f"takes {format_duration(duration)}"
            )
        # Each worker makes its clients first.
        client = plan.profile.driver.kind.clients[choose_client(plan.profile).client]
        setup = count // len(self.workers) * client.setup_time
        return now + CONNECT_IN + setup

    def relate_clocks(
        self, hosts: Mapping[str, str], used: Mapping[str, ClockLine], fits: Mapping[str, ClockFit]
    ) -> None:
        """Keep the relation of clocks in the phase that has just ended, all by worker.

        :param used: the lines by which workers stamped.
        """
        self.host_clocks = tuple(
            RunClock(worker=worker, host=hosts[worker], used=line, fit=fits[worker])
            for worker, line in used.items()
        )

    def begin(self, phase: Phase, folder: str | None, start: int) -> Drain:
        """Begin the next phase; its sequences follow those used before."""
        begun = replace(phase, before=self.used or StreamCounts(streams=self.plan.topology.streams))
        self.record = PhaseRecord(
            plan=self.plan, phase=begun, start=start, pool=lambda: self._pool, spans=phase.stages
        )
        self.folder = self.root / folder if folder else None
        self.outages, self.clock = Outages(start), WallClock(start)
        self.went_away = None
        if folder:
            if self.location is not None:
                make_location(self.location)
            self.started = self.clock.started
            self.write(ended=False)
        # In a phase without own producers messages of others may arrive forever: there is nothing
        # to wait for.
        profile = self.part.profile
        timeout = (
            0
            if begun.idle
            else profile.drain_timeout + (profile.delays.longest if profile.delays else 0)
        )
        asks = not begun.idle and undelivered_function(profile.driver.name) is not None
        return Drain(
            phase.name, len(self.workers), self.plan.topology.subscriptions, timeout, can_ask=asks
        )

    def end_phase(
        self, reports: Sequence[PhaseFinished], spans: tuple[StageSpan, ...] = ()
    ) -> None:
        """Check that the workers sent what was planned, and complete the phase's files.

        :param spans: the stages found by a watch.

        A target that answered in a recorded phase and then fell silent has missed
        (docs/decisions/048).

        :raises NoData: they did not, or the wall clock was set while messages were delayed.
        :raises TargetError: a client was not connected when the drain ended, and there is nothing
            to judge.
        """
        record = self.current
        gone = [
            f"worker {worker}: {report.disconnected}"
            for worker, report in zip(self.workers, reports, strict=True)
            if report.disconnected
        ]
        if gone and not record.aborted:
            self.went_away = (
                f"the target {self.target} went away and was not back when the drain ended: "
                f"{'; '.join(gone)}"
            )
            answered = self.folder is not None and any(report.answered for report in reports)
            if not answered or not all(map(_is_silence, gone)):
                raise TargetError(self.went_away)
        self.unanswered = any(report.unanswered for report in reports)
        self.clock.check(self.part.profile)
        self.used = record.finish(reports, spans)
        if self.folder is not None:
            # "ended" lets `aggregate` judge these samples later; a run that was given up before
            # this point never has it
            write_columns(self.folder, record.columns())
            self.write(ended=True)

    def due_messages(self) -> DueMessages:
        """Return the messages of the phase, with the changes made so far."""
        return self.current.due_messages()

    def due_messages_of(self, phase: Phase) -> DueMessages:
        """Return the messages of a phase that has not begun."""
        return messages_due(lambda: self._pool, phase)

    @cached_property
    def _pool(self) -> PayloadPool:
        return profile_pool(self.part.profile, self.part.payload_file)

    @property
    def target(self) -> str:
        """The description of the target, for messages."""
        return (
            self.broker.facts.describe()
            if self.broker is not None
            else self.part.profile.driver.name
        )

    def check_broker(self) -> None:
        """Check the target. :raises TargetError: it is gone."""
        failure = self.broker.failure() if self.broker is not None else None
        if failure:
            raise TargetError(f"the target {self.target} went away: {failure}")

    def disturb(self, disturbance: Disturbance) -> tuple[int, int | None]:
        """End, start or restart the target or one process of it; return from when to when it was
        down, ns after the start of the phase.

        :raises UsageError: that is impossible. :raises TargetError: it did not come up again.
        """
        assert self.broker is not None
        try:
            return self.outages.make(self.broker, disturbance)
        except TargetError as error:
            raise TargetError(
                f"the target {self.target} did not come back from its restart: {error}"
            ) from error

    # --- files

    def write(self, *, ended: bool) -> None:
        """Write ``run.json`` of the current phase."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        # Samples are judged only once the load has ended. A rate in tens of thousands of pieces
        # takes seconds to write, and the start of load does not wait for it.
        planned = self.current.planned_load() if ended else None
        replace(self.run_file(), ended=ended, planned=planned).write(self.folder)

    def run_file(self) -> RunFile:
        """Return the content of ``run.json``, which describes the run to the aggregation of its
        samples.
        """
        plan, profile, topology, record = (
            self.plan,
            self.part.profile,
            self.plan.topology,
            self.record,
        )
        described = RunFile(
            run=self.run,
            workload=self.name or None,
            nonce=self.nonce,
            workers=tuple(self.workers),
            start=0,
            duration=0,
            rate=plan.rate,
            topics=topology.topics,
            subscriptions=topology.subscriptions,
            broadcasts=topology.broadcasts,
            ordered=profile.ordered,
            connections=opened_clients(plan),
            connects_only=profile.connects_only,
            connect_rate=profile.connect_rate,
            delays=self.clock.delays(profile),
            publish_acks=profile.publish_acks,
            buckets=tuple(plan.bucket_names),
            streams=RunStreams(count=topology.streams, file=STREAMS_FILE),
            stages=(),
            changes=(),
            window=plan.profile.slo.window,
            drift="drift" in plan.profile.slo,
            unattainable=None,
            aborted=None,
            went_away=self.went_away,
            started=self.started,
            seed=profile.seed,
            scale=None if plan.scale is None else plan.scale.factor,
            pace=None if plan.scale is None else plan.scale.rate,
            share=None if plan.scale is None else plan.scale.messages,
            test=self.test,
            profile=profile.document(),
            facts=self._facts(),
            clocks=self.host_clocks,
            within_hosts=bool(self.host_clocks) and plan.within_hosts,
            samples=self.location,
        )
        if record is None:
            return described
        return replace(
            described,
            start=record.start,
            duration=record.duration,
            rate=record.rate(),
            stages=() if record.ends is None else record.stages(),
            changes=tuple(
                RunChange(**change.document(in_bytes=profile.in_bytes)) for change in record.changes
            ),
            unattainable=next(
                (change.unattainable for change in record.changes if change.unattainable), None
            ),
            aborted=record.aborted,
        )

    def _facts(self) -> RunCircumstances:
        return RunCircumstances(
            plan=self.plan.document,
            scaling={} if self.plan.scale is None else dict(self.plan.scale.changes),
            broker=broker_document(self.broker.facts)
            | {"restarts": self.outages.document(self.clock)}
            if self.broker
            else {},
            driver=driver_document(self.facts),
            versions=installed_versions(),
            machine=machine_document(),
            source=self.source,
        )

    def set_driver_facts(self, facts: DriverFacts) -> None:
        """Set the client's settings, with those of an OMB driver file that have no effect.

        Losses are unknown before the load.
        """
        self.facts = replace(
            facts,
            not_applied={**self.part.profile.not_applied, **facts.not_applied},
            losses=None,
            forgotten=None,
            incidents={},
        )

    def add_worker_facts(self, facts: Mapping[str, DriverFacts | None]) -> None:
        """Add to the lead's facts from before the load what differs on a worker after it, e.g. lost
        connections.
        """
        if self.facts is None:
            return
        applied = dict(self.facts.applied)
        for worker, report in facts.items():
            if report is not None:
                applied |= {
                    f"{key} ({worker})": value
                    for key, value in report.applied.items()
                    if self.facts.applied.get(key) != value
                }
        self.facts = add_worker_counts(replace(self.facts, applied=applied), facts.values())


def _is_silence(disconnected: str) -> bool:
    """Return whether a client is disconnected because the target is silent, or for an unknown
    reason.
    """
    return NO_ANSWER in disconnected or "(" not in disconnected
