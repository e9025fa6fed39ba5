"""One workload of a run as the controller knows it: its plan, its target, the phase that runs, and what the workers said of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.drivers.base import DriverFacts, add_worker_counts
from pytest_loadtest.errors import NoData, TargetError, UsageError
from pytest_loadtest.fleet.messages import WorkloadAssignment
from pytest_loadtest.fleet.planning import describe, versions
from pytest_loadtest.fleet.targets import target_of, with_keys
from pytest_loadtest.fleet.wall_clock import WallClock
from pytest_loadtest.fleet.watches import abort_reporting
from pytest_loadtest.pipeline.run_file import RUN_VERSION, STREAMS_FILE, write_columns, write_document
from pytest_loadtest.plan.connecting import connections, opened
from pytest_loadtest.report.build import broker_document, driver_document
from pytest_loadtest.schedule.pacing import StreamCounts
from pytest_loadtest.verdict.early import exceeds
from pytest_loadtest.verdict.windowed import apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.messages import Part, PhaseFinished
    from pytest_loadtest.plan.phases import Phase, StageSpan
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.schedule.changes import Aborted, Change
    from pytest_loadtest.verdict.objectives import Objective


@dataclass(kw_only=True)
class WorkloadRun:
    """One workload.

    :param name: where there are several, otherwise empty. :param root: its folder; phases that are recorded have theirs below.
    :param used: how many messages each stream has sent so far. :param ends: the same count at the end of the current phase.
    :param marks: of each worker, what :class:`~pytest_loadtest.fleet.messages.PhaseFinished` has of that name.
    :param changes: of the phase that runs, what was told. :param restarts: of its target meanwhile: down from, and when it was ready again,
        ns after the phase's start; None while it is not.
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
    restarts: dict[int, int | None] = field(default_factory=dict)
    used: StreamCounts | None = None
    ends: StreamCounts | None = None
    marks: Sequence[tuple[tuple[int, NDArray[np.int64]], ...]] = ()
    spans: tuple[StageSpan, ...] = ()

    @property
    def bounds(self) -> tuple[Objective, ...]:
        """The latency objectives that workers count misses of while load runs: only a search looks at them."""
        if self.plan.search is None:
            return ()
        return tuple(one for one in self.plan.profile.objectives if one.metric == "endToEndLatency" and not one.bucket and exceeds(one))

    @property
    def aborted(self) -> Aborted | None:
        """That the phase that runs was lost; None where it was not."""
        return next((change.aborted for change in self.changes if change.aborted), None)

    def order(self, worker: str, rank: int, bounds: tuple[int, ...] = ()) -> WorkloadAssignment:
        """What one worker has to do. :param bounds: more latencies to hear about while load runs, ns."""
        plan, broker, (timely_bounds, timely_seconds) = self.plan, self.broker, abort_reporting(self.plan)
        assert broker is not None
        profile = with_keys(self.part.profile, broker.facts)
        return WorkloadAssignment(
            workload=self.name, run=self.run, nonce=self.nonce, worker=worker, profile=profile, payload_file=self.part.payload_file,
            assignment=plan.assignments[rank], topology=plan.topology,
            target=target_of(broker.facts), ordered=profile.ordered,
            bounds=(*((exceeds(objective) or 1) - 1 for objective in self.bounds), *bounds),
            opened=opened(plan), disk=plan.needs.disk, rate=plan.rate,
            timely_bounds=timely_bounds, timely_seconds=timely_seconds,
        )  # fmt: skip

    def begin(self, phase: Phase, folder: str | None, start: int) -> Drain:
        """The next phase begins; its sequences follow those used before."""
        self.phase, self.ends = phase.following(self.used or StreamCounts(streams=self.plan.topology.streams)), None
        self.folder, self.start, self.changes, self.spans = self.root / folder if folder else None, start, [], phase.stages
        self.restarts, self.clock = {}, WallClock(start)
        if folder:
            self.started = self.clock.started
            self.write(ended=False)
        # where nobody of the run sends, messages come for ever: nothing of them is to be waited for
        profile = self.part.profile
        timeout = 0 if self.phase.idle else profile.drain_timeout + (profile.delays.longest if profile.delays else 0)
        return Drain(phase.name, len(self.workers), self.plan.topology.subscriptions, timeout)

    def change(self, change: Change) -> None:
        """All workers were told."""
        self.changes.append(change)

    def done(self, said: Sequence[PhaseFinished], spans: tuple[StageSpan, ...] = ()) -> None:
        """The phase is over: what the workers sent must be what was planned. :param spans: the parts that it turned out to have.

        :raises NoData: it is not, or the clock that delays go by was set.
        :raises TargetError: something was not connected when the drain ended.
        """
        assert self.phase is not None
        gone = [f"worker {worker}: {one.disconnected}" for worker, one in zip(self.workers, said, strict=True) if one.disconnected]
        if gone and not self.aborted:
            raise TargetError(f"the target {self.target} went away and was not back when the drain ended: {'; '.join(gone)}")
        self.clock.check(self.part.profile)
        self.used = self.ends = self._reached(self._together([one.ends for one in said]))
        self.spans = tuple(until(self.duration, spans or self.spans))
        self.marks = [one.marks for one in said]
        if self.folder is not None:
            # "ended" lets `aggregate` judge these samples later; a run that was given up before this point never has it
            write_columns(self.folder, self._columns())
            self.write(ended=True)

    def _together(self, parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """One column of all streams. :param parts: of each worker, of its own streams."""
        column = np.empty(self.plan.topology.streams, np.int64)
        for rank, part in enumerate(parts):
            column[rank :: len(parts)] = part
        return column

    def _reached(self, ends: NDArray[np.int64]) -> StreamCounts:
        """The counts that the workers report. Where messages are paced, they must be those that the plan works out."""
        assert self.phase is not None
        if self.phase.mean_size is not None:
            return StreamCounts(streams=len(ends), counted=ends)
        planned = self._planned(self.duration)
        wrong = np.flatnonzero(ends != planned.column())
        if len(wrong):
            stream, (end,) = wrong[0], planned.of(wrong[:1])
            raise NoData(f"stream {stream} of {self.target} ended at sequence {ends[stream]}, the plan says {end}")
        return planned

    def due(self, at: int) -> int:
        """How many messages are due before ``at``, ns after the phase's start, with the changes made so far."""
        assert self.phase is not None
        pacer = self.phase.pacer
        for change in self.changes:
            if change.rate is not None:
                pacer = pacer.changed(change.at, change.rate)
        return pacer.total(at)

    def _planned(self, at: int) -> StreamCounts:
        """The same of each stream."""
        assert self.phase is not None
        return self.phase.after(self.due(at))

    def _boundary(self, at: int) -> StreamCounts:
        """As :meth:`_planned`. Where bytes are paced only the workers know it, for the instants of changes, which they marked."""
        assert self.phase is not None
        if self.phase.mean_size is None:
            return self._planned(at)
        column = self._together([mark_at(marks, at) for marks in self.marks])
        return StreamCounts(streams=len(column), counted=column)

    @property
    def duration(self) -> int:
        """Of the phase, ns; a change may have ended it early."""
        assert self.phase is not None
        return min([change.at for change in self.changes if change.end] + [self.phase.duration])

    @property
    def target(self) -> str:
        """What the load goes to, for messages."""
        return self.broker.facts.describe() if self.broker is not None else self.part.profile.driver.name

    def check_broker(self) -> None:
        """:raises TargetError: the target is gone."""
        failure = self.broker.failure() if self.broker is not None else None
        if failure:
            raise TargetError(f"the target {self.target} went away: {failure}")

    def restart_broker(self, *, kill: bool) -> tuple[int, int]:
        """Stop the target and start it again; from when to when it was down, ns after the start of the phase that runs.

        :raises UsageError: it cannot be restarted. :raises TargetError: it did not come up again.
        """
        assert self.broker is not None
        start, restarts = self.start, self.restarts  # the phase may end before the target is ready
        down = time.monotonic_ns() - start
        restarts[down] = None
        try:
            self.broker.restart(kill=kill)
        except UsageError:
            del restarts[down]
            raise
        except TargetError as error:
            raise TargetError(f"the target {self.target} did not come back from its restart: {error}") from error
        ready = restarts[down] = time.monotonic_ns() - start
        return down, ready

    # --- what is kept of it

    def write(self, *, ended: bool) -> None:
        """``run.json`` of the phase that runs."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        write_document(self.folder, self.document() | ({"ended": True} if ended else {}))

    def _columns(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Where the phase that has ended, and each of its stages, begins and ends in every stream."""
        assert self.phase is not None
        assert self.ends is not None
        stages = ((f"_{i}", *bounds) for i, bounds in enumerate(self._stage_bounds()))
        for suffix, before, after in (("", self.phase.before, self.ends), *stages):
            yield f"first{suffix}", before.column()
            yield f"end{suffix}", after.column()

    def _stage_bounds(self) -> list[tuple[StreamCounts, StreamCounts]]:
        """What each stream had sent when a stage of the phase that has ended began, and when it ended."""
        assert self.phase is not None
        assert self.ends is not None
        if not self.spans:
            return []
        return list(pairwise([self.phase.before, *(self._boundary(span.start) for span in self.spans[1:]), self.ends]))

    def document(self) -> dict[str, Any]:
        """The run's own description, for whoever aggregates its samples."""
        plan, profile, topology, phase = self.plan, self.part.profile, self.plan.topology, self.phase
        duration = 0 if phase is None else self.duration
        return {
            "version": RUN_VERSION, "run": self.run, "workload": self.name or None, "nonce": self.nonce, "workers": list(self.workers),
            "start": self.start, "duration": duration, "rate": self._rate(duration), "topics": topology.topics,
            "subscriptions": topology.subscriptions, "broadcasts": topology.broadcasts, "ordered": profile.ordered,
            "connections": connections(plan), "connects_only": profile.connects_only, "connect_rate": profile.connect_rate,
            "delays": self.clock.delays(profile), "publish_acks": profile.publish_acks, "buckets": list(plan.bucket_names),
            "streams": {"count": topology.streams, "file": STREAMS_FILE}, "stages": [] if self.ends is None else self._stages(),
            "changes": [change.document(in_bytes=profile.in_bytes) for change in self.changes], **apart(plan.profile.slo),
            "foregone": next((change.foregone for change in self.changes if change.foregone), None),
            "aborted": self.aborted and asdict(self.aborted),
            "started": self.started, "seed": profile.seed, "scale": None if plan.scale is None else plan.scale.factor,
            "pace": None if plan.scale is None else plan.scale.rate, "share": None if plan.scale is None else plan.scale.messages,
            "test": self.test, "profile": profile.document(), "facts": self._facts(),
        }  # fmt: skip

    def _rate(self, duration: int) -> float:
        """msg/s offered: as planned, or, where the rate changed while load ran, what was really offered."""
        if self.phase is None:
            return self.plan.rate
        if not self.changes and self.phase.mean_size is None and not self.phase.stages:
            return self.phase.pacer.highest
        end = self.ends or self.phase.ends
        return (end.total - self.phase.before.total) / (duration / 1e9) if duration else self.plan.rate

    def _stages(self) -> list[dict[str, Any]]:
        return [
            {
                "name": span.name, "start": self.start + span.start, "duration": span.duration, "slo": dict(span.slo) or None,
                "rate": (after.total - before.total) / (span.duration / 1e9), **apart(span.slo),
            }
            for span, (before, after) in zip(self.spans, self._stage_bounds(), strict=True)
        ]  # fmt: skip

    def _facts(self) -> dict[str, Any]:
        return {
            "plan": self.plan.document, "scaling": {} if self.plan.scale is None else dict(self.plan.scale.changes),
            "broker": broker_document(self.broker.facts) | {"restarts": self._restarts()} if self.broker else {},
            "driver": driver_document(self.facts),
            "versions": versions(), "machine": describe(), "source": self.source,
        }  # fmt: skip

    def _restarts(self) -> list[dict[str, Any]]:
        found = list(self.restarts.items())
        return [{"down": down, "ready": ready, "downAt": self.clock.at(down), "readyAt": self.clock.at(ready)} for down, ready in found]

    def set_driver_facts(self, facts: DriverFacts) -> None:
        """How the client is set up, and what of an OMB driver file does nothing here. What it will lose is not known yet."""
        self.facts = replace(facts, not_applied={**self.part.profile.not_applied, **facts.not_applied}, losses=None, forgotten=None)

    def add_worker_facts(self, facts: Mapping[str, DriverFacts | None]) -> None:
        """The lead's facts as they were before the load, and beside them what became different on a worker: connections lost, for one."""
        if self.facts is None:
            return
        applied = dict(self.facts.applied)
        for worker, said in facts.items():
            if said is not None:
                applied |= {f"{key} ({worker})": value for key, value in said.applied.items() if self.facts.applied.get(key) != value}
        self.facts = add_worker_counts(replace(self.facts, applied=applied), facts.values())


# Where the stages of a phase begin and end once it is over.


def until(end: int, spans: Sequence[StageSpan]) -> Iterator[StageSpan]:
    """The stages that began before ``end``, the last one cut off there: a change may end a phase early."""
    for span in spans:
        if span.start < end:
            yield replace(span, duration=min(span.duration, end - span.start))


def mark_at(marks: Sequence[tuple[int, NDArray[np.int64]]], at: int) -> NDArray[np.int64]:
    """What a worker marked at the change at ``at``, or at the next one after it; of two changes at one instant the last one told."""
    later = {when: column for when, column in marks if when >= at}
    return later[min(later)]


# When a phase is over: decided by what all workers together have sent, got answered and received.

# As many copies as were due have arrived; a moment more lets a late duplicate show itself. Several collects of a worker fit in it.
GRACE = 250_000_000
# Some of those copies may be second ones, or of messages that were answered as failed, and as many others still under way: wait until the
# target has been quiet for this long.
QUIET = 5_000_000_000


class Drain:
    """Watches one phase.

    :param deliveries: how many copies of an acknowledged message are due, over all subscriptions of its topic.
    :param timeout: ns from the moment that nobody sends any more until the phase ends in any case.
    """

    def __init__(self, phase: str, members: int, deliveries: int, timeout: int) -> None:
        self.phase = phase
        self._members, self._deliveries, self._timeout = members, deliveries, timeout
        self._since: int | None = None
        self._complete: tuple[int, int] | None = None

    def has_ended(self, progress: Mapping[str, Progress], now: int) -> bool:
        """Whether the phase has ended, by every worker's latest progress."""
        mine = [p for p in progress.values() if p.phase == self.phase]
        if len(mine) < self._members or any(p.sending for p in mine):
            return False
        self._since = self._since or now
        received, due = sum(p.received for p in mine), self._deliveries * sum(p.acked for p in mine)
        # A message that was answered as failed may be delivered all the same: its copy is not due, and counts as if it were.
        doubtful = received > due or any(p.failed or p.has_second_copies for p in mine)
        if sum(p.in_flight for p in mine) or received < due:
            self._complete = None
        elif self._complete is None or self._complete[1] != received:
            self._complete = (now, received)
        elif now - self._complete[0] >= (QUIET if doubtful else GRACE):
            return True
        return now - self._since >= self._timeout
