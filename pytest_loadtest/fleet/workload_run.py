"""One workload of a run at the controller: its plan, its target, the phase in progress, and the workers' reports on it.

The run controller calls it, mostly in the threads that answer meetings. It writes ``run.json`` and the sequence bounds of each recorded
phase, and raises an error when the workers sent anything but what was planned: such samples are never judged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers import undelivered_function
from pytest_loadtest.drivers.base import NO_ANSWER, DriverFacts, add_worker_counts
from pytest_loadtest.engine.sample_store import make_location
from pytest_loadtest.errors import NoData, TargetError
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.messages import WorkloadAssignment
from pytest_loadtest.fleet.outages import Outages
from pytest_loadtest.fleet.planning import installed_versions, machine_document
from pytest_loadtest.fleet.targets import target_address, with_keys
from pytest_loadtest.fleet.wall_clock import WallClock
from pytest_loadtest.fleet.watches import abort_reporting
from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.metrics.offering import PlannedLoad, PlannedSizes, PlannedStage, PlannedStep
from pytest_loadtest.pipeline.run_file import (
    STREAMS_FILE,
    RunChange,
    RunCircumstances,
    RunClock,
    RunFile,
    RunStage,
    RunStreams,
    write_columns,
)
from pytest_loadtest.plan.connecting import opened_clients, opened_consumers, opened_each
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.report.build import broker_document, driver_document
from pytest_loadtest.schedule.due_messages import DueMessages
from pytest_loadtest.schedule.pacing import StreamCounts
from pytest_loadtest.values.quantities import SECOND, format_count, format_duration
from pytest_loadtest.values.wording import scale_word
from pytest_loadtest.verdict.early import exceeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.fleet.messages import Disturbance, Part, PhaseFinished
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.message.size_mix import SizeMix
    from pytest_loadtest.metrics.clocks import ClockFit, ClockLine
    from pytest_loadtest.plan.phases import Phase, StageSpan
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.schedule.changes import Aborted, Change
    from pytest_loadtest.verdict.objectives import Objective

CONNECT_IN: Final = 200_000_000  # ns until all workers have received the instant from which paced connections count
LONG_CONNECTING: Final = 5 * SECOND  # what takes longer is announced


@dataclass(kw_only=True)
class WorkloadRun:
    """One workload.

    :param name: its name if there are several, otherwise empty. :param root: its folder; recorded phases have folders below it.
    :param samples: the place of its samples, as ``root``, if they are stored elsewhere: a path, or a URI.
    :param used: the number of messages that each stream has sent so far. :param ends: that number at the end of the current phase; None
        before. :param marks: the ``marks`` of each worker's :class:`~pytest_loadtest.fleet.messages.PhaseFinished`.
    :param changes: the changes sent to the workers in the current phase. :param outages: the outages of its target in this phase.
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
    phase: Phase | None = None
    folder: Path | None = None
    start: int = 0
    clock: WallClock = field(default_factory=WallClock)
    started: float | None = None
    changes: list[Change] = field(default_factory=list)
    outages: Outages = field(default_factory=lambda: Outages(0))
    used: StreamCounts | None = None
    ends: StreamCounts | None = None
    marks: Sequence[tuple[tuple[int, NDArray[np.int64]], ...]] = ()
    spans: tuple[StageSpan, ...] = ()
    host_clocks: tuple[RunClock, ...] = ()
    samples: str | None = None
    unanswered: bool = False
    """The target left messages of the current phase without an answer: it may hang."""
    went_away: str | None = None
    """Which clients lost a target that had answered in the current phase and then fell silent; None if it was there at the end."""

    @property
    def location(self) -> str | None:
        """The place of the current phase's samples; None if it is the folder, or if none are kept."""
        return None if self.samples is None or self.folder is None else f"{self.samples}/{self.folder.name}"

    @property
    def scale(self) -> str:
        """The word for a run with less than the load of its profile, ``scaled ×0.01`` or ``shortened``; otherwise empty."""
        return "" if self.plan.scale is None else scale_word(self.plan.scale.factor)

    @property
    def bounds(self) -> tuple[Objective, ...]:
        """The latency objectives whose misses workers count while load runs: only for a search, which ends a step early by them."""
        if self.plan.search is None:
            return ()
        return tuple(o for o in self.plan.profile.objectives if o.metric == "endToEndLatency" and not o.bucket and exceeds(o))

    @property
    def aborted(self) -> Aborted | None:
        """The reason why the profile's ``abort`` section ended the current phase; None if it did not."""
        return next((change.aborted for change in self.changes if change.aborted), None)

    def assign(self, worker: str, rank: int, bounds: tuple[int, ...] = ()) -> WorkloadAssignment:
        """Return one worker's share. :param bounds: more latencies, ns, whose exceedances it counts while load runs."""
        plan, broker, (timely_bounds, timely_seconds) = self.plan, self.broker, abort_reporting(self.plan)
        assert broker is not None
        profile = with_keys(self.part.profile, broker.facts)
        return WorkloadAssignment(
            workload=self.name, run=self.run, nonce=self.nonce, worker=worker, profile=profile, payload_file=self.part.payload_file,
            assignment=plan.assignments[rank], topology=plan.topology,
            target=target_address(broker.facts), ordered=profile.ordered,
            bounds=(*((exceeds(objective) or 1) - 1 for objective in self.bounds), *bounds),
            opened=opened_each(plan), disk=plan.needs.disk, rate=plan.rate,
            timely_bounds=timely_bounds, timely_seconds=timely_seconds,
        )  # fmt: skip

    def first_connection(self, clients: str, announce: Callable[[str], None]) -> int:
        """Return the instant from which all workers count their paced connections, ns; announce what takes long.

        :param clients: ``consumers`` or ``producers``.
        """
        plan = self.plan
        count, rate = plan.topology.streams if clients == "producers" else opened_consumers(plan), plan.profile.connect_rate
        assert rate is not None
        duration = round(count / rate * SECOND)
        if duration > LONG_CONNECTING:
            announce(f"{self.test}: connecting {format_count(count)} {clients} at {rate:g}/s, which takes {format_duration(duration)}")
        client = plan.profile.driver.kind.clients[choose_client(plan.profile).client]
        return time.monotonic_ns() + CONNECT_IN + count // len(self.workers) * client.setup_time  # each worker makes its clients first

    def relate_clocks(self, hosts: Mapping[str, str], used: Mapping[str, ClockLine], fits: Mapping[str, ClockFit]) -> None:
        """Keep the relation of clocks in the phase that has just ended, all by worker. :param used: the lines by which workers stamped."""
        self.host_clocks = tuple(RunClock(worker=worker, host=hosts[worker], used=line, fit=fits[worker]) for worker, line in used.items())

    def begin(self, phase: Phase, folder: str | None, start: int) -> Drain:
        """Begin the next phase; its sequences follow those used before."""
        self.phase, self.ends = replace(phase, before=self.used or StreamCounts(streams=self.plan.topology.streams)), None
        self.folder, self.start, self.changes, self.spans = self.root / folder if folder else None, start, [], phase.stages
        self.outages, self.clock = Outages(start), WallClock(start)
        self.went_away = None
        if folder:
            if self.location is not None:
                make_location(self.location)
            self.started = self.clock.started
            self.write(ended=False)
        # In a phase without own producers messages of others may arrive forever: there is nothing to wait for.
        profile = self.part.profile
        timeout = 0 if self.phase.idle else profile.drain_timeout + (profile.delays.longest if profile.delays else 0)
        asks = not self.phase.idle and undelivered_function(profile.driver.name) is not None
        return Drain(phase.name, len(self.workers), self.plan.topology.subscriptions, timeout, can_ask=asks)

    def end_phase(self, reports: Sequence[PhaseFinished], spans: tuple[StageSpan, ...] = ()) -> None:
        """Check that the workers sent what was planned, and complete the phase's files. :param spans: the stages found by a watch.

        A target that answered in a recorded phase and then fell silent has missed (docs/decisions/048).

        :raises NoData: they did not, or the wall clock was set while messages were delayed.
        :raises TargetError: a client was not connected when the drain ended, and there is nothing to judge.
        """
        assert self.phase is not None
        gone = [
            f"worker {worker}: {report.disconnected}" for worker, report in zip(self.workers, reports, strict=True) if report.disconnected
        ]
        if gone and not self.aborted:
            self.went_away = f"the target {self.target} went away and was not back when the drain ended: {'; '.join(gone)}"
            answered = self.folder is not None and any(report.answered for report in reports)
            if not answered or not all(map(_is_silence, gone)):
                raise TargetError(self.went_away)
        self.unanswered = any(report.unanswered for report in reports)
        self.clock.check(self.part.profile)
        self.used = self.ends = self._reached(self._column([report.ends for report in reports]))
        self.spans = tuple(spans_until(self.duration, spans or self.spans))
        self.marks = [report.marks for report in reports]
        if self.folder is not None:
            # "ended" lets `aggregate` judge these samples later; a run that was given up before this point never has it
            write_columns(self.folder, self._columns())
            self.write(ended=True)

    def _column(self, parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Return one column over all streams. :param parts: each worker's column, over its own streams."""
        column = np.empty(self.plan.topology.streams, np.int64)
        for assignment, part in zip(self.plan.assignments, parts, strict=True):
            column[stream_column(assignment.streams)] = part
        return column

    def _reached(self, ends: NDArray[np.int64]) -> StreamCounts:
        """Return the counts that the workers report, which must be the planned ones.

        If bytes are paced, only the workers know how many messages there are, but their order says which streams have them.
        """
        assert self.phase is not None
        planned = self._planned(self.duration) if self.phase.mean_size is None else self._counted(ends)
        wrong = np.flatnonzero(ends != planned.column())
        if len(wrong):
            stream, (end,) = wrong[0], planned.of(wrong[:1])
            raise NoData(f"stream {stream} of {self.target} ended at sequence {ends[stream]}, the plan says {end}")
        return planned

    def due_messages(self) -> DueMessages:
        """Return the messages of the phase, with the changes made so far."""
        assert self.phase is not None
        return self.due_messages_of(self.phase, self.changes)

    def due_messages_of(self, phase: Phase, changes: Sequence[Change] = ()) -> DueMessages:
        """Return the messages of a phase. :param changes: those that are not planned."""
        pacer = phase.pacer
        for change in changes:
            if change.rate is not None:
                pacer = pacer.changed(change.at, change.rate)
        return DueMessages(pacer) if phase.mean_size is None else DueMessages(pacer, self._mixes(phase, changes))

    def _mixes(self, phase: Phase, changes: Sequence[Change]) -> tuple[tuple[int, SizeMix], ...]:
        """Return the sizes of messages, each from an instant on, ns after the phase's start."""
        mixed = ((change.at, change.distribution) for change in (*phase.changes, *changes))
        later = ((at, self._pool.mix(distribution)) for at, distribution in mixed if distribution is not None)
        return (0, self._pool.mix(0)), *later

    @cached_property
    def _pool(self) -> PayloadPool:
        return profile_pool(self.part.profile, self.part.payload_file)

    def _planned(self, at: int) -> StreamCounts:
        """Return the number of messages that each stream has due before ``at``, if messages are paced."""
        assert self.phase is not None
        return self.phase.after(self.due_messages().most(at))

    def _counted(self, reached: NDArray[np.int64]) -> StreamCounts:
        """Return the counts of as many messages as the workers report. :param reached: their number in each stream."""
        assert self.phase is not None
        return self.phase.after(int(reached.sum()) - self.phase.before.total)

    def _boundary(self, at: int) -> StreamCounts:
        """Return the counts at ``at``, the instant of a change; if bytes are paced, only the workers' marks have them."""
        assert self.phase is not None
        if self.phase.mean_size is None:
            return self._planned(at)
        return self._counted(self._column([mark_at(marks, at) for marks in self.marks]))

    @property
    def duration(self) -> int:
        """The duration of the phase, ns; a change may have ended it early."""
        assert self.phase is not None
        return min([change.at for change in self.changes if change.end] + [self.phase.duration])

    @property
    def target(self) -> str:
        """The description of the target, for messages."""
        return self.broker.facts.describe() if self.broker is not None else self.part.profile.driver.name

    def check_broker(self) -> None:
        """Check the target. :raises TargetError: it is gone."""
        failure = self.broker.failure() if self.broker is not None else None
        if failure:
            raise TargetError(f"the target {self.target} went away: {failure}")

    def disturb(self, disturbance: Disturbance) -> tuple[int, int | None]:
        """End, start or restart the target or one process of it; return from when to when it was down, ns after the start of the phase.

        :raises UsageError: that is impossible. :raises TargetError: it did not come up again.
        """
        assert self.broker is not None
        try:
            return self.outages.make(self.broker, disturbance)
        except TargetError as error:
            raise TargetError(f"the target {self.target} did not come back from its restart: {error}") from error

    # --- files

    def write(self, *, ended: bool) -> None:
        """Write ``run.json`` of the current phase."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        replace(self.run_file(), ended=ended).write(self.folder)

    def _columns(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Return the first and the end sequence in every stream, for the phase that has ended and for each of its stages."""
        assert self.phase is not None
        assert self.ends is not None
        stages = ((f"_{i}", *bounds) for i, bounds in enumerate(self._stage_bounds()))
        for suffix, before, after in (("", self.phase.before, self.ends), *stages):
            yield f"first{suffix}", before.column()
            yield f"end{suffix}", after.column()

    def _stage_bounds(self) -> list[tuple[StreamCounts, StreamCounts]]:
        """Return for each stage the number of messages that each stream had sent at its begin and at its end."""
        assert self.phase is not None
        assert self.ends is not None
        if not self.spans:
            return []
        return list(pairwise([self.phase.before, *(self._boundary(span.start) for span in self.spans[1:]), self.ends]))

    def run_file(self) -> RunFile:
        """Return the content of ``run.json``, which describes the run to the aggregation of its samples."""
        plan, profile, topology, phase = self.plan, self.part.profile, self.plan.topology, self.phase
        duration = 0 if phase is None else self.duration
        return RunFile(
            run=self.run, workload=self.name or None, nonce=self.nonce, workers=tuple(self.workers),
            start=self.start, duration=duration, rate=self._rate(duration), topics=topology.topics,
            subscriptions=topology.subscriptions, broadcasts=topology.broadcasts, ordered=profile.ordered,
            connections=opened_clients(plan), connects_only=profile.connects_only, connect_rate=profile.connect_rate,
            delays=self.clock.delays(profile), publish_acks=profile.publish_acks, buckets=tuple(plan.bucket_names),
            streams=RunStreams(count=topology.streams, file=STREAMS_FILE), stages=() if self.ends is None else self._stages(),
            changes=tuple(RunChange(**change.document(in_bytes=profile.in_bytes)) for change in self.changes),
            window=plan.profile.slo.window, drift="drift" in plan.profile.slo,
            foregone=next((change.foregone for change in self.changes if change.foregone), None), aborted=self.aborted,
            went_away=self.went_away,
            started=self.started, seed=profile.seed, scale=None if plan.scale is None else plan.scale.factor,
            pace=None if plan.scale is None else plan.scale.rate, share=None if plan.scale is None else plan.scale.messages,
            test=self.test, profile=profile.document(), facts=self._facts(), clocks=self.host_clocks,
            within_hosts=bool(self.host_clocks) and plan.within_hosts, samples=self.location, planned=self._planned_load(),
        )  # fmt: skip

    def _planned_load(self) -> PlannedLoad | None:
        """Return the load that was requested in this phase so far; None before it, and if it sends nothing."""
        phase = self.phase
        if phase is None or phase.idle or not phase.steps:
            return None
        load = PlannedLoad(
            in_bytes=phase.mean_size is not None,
            steps=tuple(PlannedStep(length=length, rate=float(rate)) for length, rate in phase.steps),
            stages=tuple(PlannedStage(name=span.name, start=span.start) for span in phase.stages),
            sizes=tuple(PlannedSizes(at=at, mix=mix) for at, mix in self._mixes(phase, self.changes)),
        )
        for change in self.changes:
            if change.rate is not None:
                load = load.changed(change.at, change.rate)
        return load

    def _rate(self, duration: int) -> float:
        """Return the offered msg/s: the planned rate, or the mean of what was sent if the rate changed in the phase."""
        if self.phase is None:
            return self.plan.rate
        if not self.changes and self.phase.mean_size is None and not self.phase.stages:
            return self.phase.pacer.highest
        end = self.ends or self.phase.ends
        return (end.total - self.phase.before.total) / (duration / 1e9) if duration else self.plan.rate

    def _stages(self) -> tuple[RunStage, ...]:
        return tuple(
            RunStage(
                name=span.name, start=self.start + span.start, duration=span.duration, slo=dict(span.slo) or None,
                rate=(after.total - before.total) / (span.duration / 1e9), window=span.slo.window, drift="drift" in span.slo,
            )
            for span, (before, after) in zip(self.spans, self._stage_bounds(), strict=True)
        )  # fmt: skip

    def _facts(self) -> RunCircumstances:
        return RunCircumstances(
            plan=self.plan.document, scaling={} if self.plan.scale is None else dict(self.plan.scale.changes),
            broker=broker_document(self.broker.facts) | {"restarts": self.outages.document(self.clock)} if self.broker else {},
            driver=driver_document(self.facts), versions=installed_versions(), machine=machine_document(), source=self.source,
        )  # fmt: skip

    def set_driver_facts(self, facts: DriverFacts) -> None:
        """Set the client's settings, with those of an OMB driver file that have no effect. Losses are unknown before the load."""
        self.facts = replace(
            facts, not_applied={**self.part.profile.not_applied, **facts.not_applied}, losses=None, forgotten=None, incidents={}
        )

    def add_worker_facts(self, facts: Mapping[str, DriverFacts | None]) -> None:
        """Add to the lead's facts from before the load what differs on a worker after it, e.g. lost connections."""
        if self.facts is None:
            return
        applied = dict(self.facts.applied)
        for worker, report in facts.items():
            if report is not None:
                applied |= {f"{key} ({worker})": value for key, value in report.applied.items() if self.facts.applied.get(key) != value}
        self.facts = add_worker_counts(replace(self.facts, applied=applied), facts.values())


def _is_silence(disconnected: str) -> bool:
    """Return whether a client is disconnected because the target is silent, or for an unknown reason."""
    return NO_ANSWER in disconnected or "(" not in disconnected


def spans_until(end: int, spans: Sequence[StageSpan]) -> Iterator[StageSpan]:
    """Return the stages that began before ``end``, the last one cut off there: a change may end a phase early."""
    for span in spans:
        if span.start < end:
            yield replace(span, duration=min(span.duration, end - span.start))


def mark_at(marks: Sequence[tuple[int, NDArray[np.int64]]], at: int) -> NDArray[np.int64]:
    """Return a worker's mark at the change at ``at``, or at the next one after it; the later mark if two changes have one instant."""
    later = {when: column for when, column in marks if when >= at}
    return later[min(later)]
