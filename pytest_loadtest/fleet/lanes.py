"""One workload of a run as the controller knows it: its plan, its target, the phase that runs, and what the workers said of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers._base import TargetAddress
from pytest_loadtest.early import exceeds
from pytest_loadtest.errors import NoData, TargetError
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.orders import Order

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.brokers._base import Broker
    from pytest_loadtest.changes import Change
    from pytest_loadtest.drivers._base import DriverFacts
    from pytest_loadtest.fleet.orders import Part, PhaseDone
    from pytest_loadtest.objectives import Objective
    from pytest_loadtest.phases import Phase, StageSpan
    from pytest_loadtest.plan import Plan

VERSION = 1


@dataclass(kw_only=True)
class Lane:
    """One workload.

    :param name: where there are several, otherwise empty. :param root: its folder; phases that are recorded have theirs below.
    :param used: one past each stream's last sequence so far. :param ends: the same of the phase that runs, once it is over.
    :param changes: of the phase that runs, what was told.
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
    started: float | None = None
    changes: list[Change] = field(default_factory=list)
    used: tuple[int, ...] = ()
    ends: tuple[int, ...] | None = None
    spans: tuple[StageSpan, ...] = ()

    @property
    def bounds(self) -> tuple[Objective, ...]:
        """The latency objectives that workers count misses of while load runs: only a search looks at them."""
        if self.plan.search is None:
            return ()
        return tuple(one for one in self.part.profile.objectives if one.metric == "endToEndLatency" and not one.bucket and exceeds(one))

    def order(self, worker: str, rank: int) -> Order:
        """What one worker has to do."""
        plan, profile, broker = self.plan, self.part.profile, self.broker
        assert broker is not None
        consumers = plan.topology.consumers
        return Order(
            workload=self.name, run=self.run, nonce=self.nonce, worker=worker, profile=profile, payload_file=self.part.payload_file,
            assignment=plan.assignments[rank], topics=plan.topology.topic_specs(),
            target=TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url), ordered=profile.ordered,
            bounds=tuple((exceeds(objective) or 1) - 1 for objective in self.bounds), consumers=consumers,
            opened=min((phase.consumers or consumers for phase in plan.phases), default=consumers),
        )  # fmt: skip

    def begin(self, phase: Phase, folder: str | None, start: int) -> Drain:
        """The next phase begins; its sequences follow those used before."""
        streams = self.plan.topology.streams
        self.phase, self.ends = phase.following(self.used or (0,) * streams), None
        self.folder, self.start, self.changes, self.spans = self.root / folder if folder else None, start, [], phase.stages
        if folder:
            self.started = time.time() + (start - time.monotonic_ns()) / 1e9
            self.write(ended=False)
        # where nobody of the run sends, messages come for ever: nothing of them is to be waited for
        timeout = self.part.profile.drain_timeout if streams else 0
        return Drain(phase.name, len(self.workers), self.plan.topology.subscriptions, timeout)

    def change(self, change: Change) -> None:
        """All workers were told."""
        self.changes.append(change)

    def done(self, said: Sequence[PhaseDone], spans: tuple[StageSpan, ...] = ()) -> None:
        """The phase is over: what the workers sent must be what was planned. :param spans: the parts that it turned out to have.

        :raises NoData: it is not. :raises TargetError: something was not connected when the drain ended.
        """
        assert self.phase is not None
        gone = [f"worker {worker}: {one.disconnected}" for worker, one in zip(self.workers, said, strict=True) if one.disconnected]
        if gone:
            raise TargetError(f"the target {self.target} went away and was not back when the drain ended: {'; '.join(gone)}")
        ends = {stream: end for one in said for stream, end in one.ends.items()}
        self.used = self.ends = tuple(ends[stream] for stream in range(self.plan.topology.streams))
        self._check(ends)
        self.spans = spans or self.spans
        self._marks = {stream: dict(marks) for one in said for stream, marks in one.marks.items()}
        if self.folder is not None:
            # from here on the samples can be aggregated again and judged; a run that was given up earlier stays one, whatever they say
            self.write(ended=True)

    def _check(self, ends: Mapping[int, int]) -> None:
        """Where messages are paced, the plan's own arithmetic must come to the same ends."""
        if self.phase is None or self.phase.mean_size is not None:
            return
        for stream, planned in enumerate(self._planned(self.duration)):
            if ends[stream] != planned:
                raise NoData(f"stream {stream} of {self.target} ended at sequence {ends[stream]}, the plan says {planned}")

    def _planned(self, at: int) -> list[int]:
        """By stream, the first sequence that is due ``at`` ns after the phase's start or later; the changes that were told are in it."""
        assert self.phase is not None
        pacer = self.phase.pacer
        for change in self.changes:
            if change.rate is not None:
                pacer = pacer.changed(change.at, change.rate)
        total = pacer.total(at)
        return [first + pacer.share(total, stream) for stream, first in enumerate(self.phase.first)]

    def _boundary(self, at: int) -> list[int]:
        """The same, also where bytes are paced: there only the workers know, and of the instants that they marked."""
        assert self.phase is not None
        if self.phase.mean_size is None:
            return self._planned(at)
        marks = (self._marks[stream] for stream in range(len(self.phase.first)))
        return [next(seq for when, seq in sorted(mine.items()) if when >= at) for mine in marks]

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

    # --- what is kept of it

    def write(self, *, ended: bool) -> None:
        """``run.json`` of the phase that runs."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        document = self.document() | ({"ended": True} if ended else {})
        (self.folder / "run.json").write_text(json.dumps(document, indent=1), encoding="utf-8")

    def document(self) -> dict[str, Any]:
        """The run's own description, for whoever aggregates its samples."""
        plan, profile, topology, phase = self.plan, self.part.profile, self.plan.topology, self.phase
        first = () if phase is None else phase.first
        end = self.ends or (phase.ends if phase is not None else ())
        duration = 0 if phase is None else self.duration
        return {
            "version": VERSION, "run": self.run, "workload": self.name or None, "nonce": self.nonce, "workers": list(self.workers),
            "start": self.start, "duration": duration, "rate": self._rate(first, end, duration), "topics": topology.topics,
            "subscriptions": topology.subscriptions, "ordered": profile.ordered, "publish_acks": profile.publish_acks,
            "buckets": list(plan.bucket_names),
            "streams": {
                "count": topology.streams, "topics": [spec.topic.index for spec in topology.producer_specs()], "first": list(first),
                "end": list(end),
            },
            "stages": [] if self.ends is None else self._stages(first, end),
            "started": self.started, "seed": profile.seed, "scale": None if plan.scale is None else plan.scale.factor,
            "test": self.test, "profile": profile.document(), "facts": self._facts(),
        }  # fmt: skip

    def _rate(self, first: Sequence[int], end: Sequence[int], duration: int) -> float:
        """msg/s offered: as planned, or where that changed on the way, as it came to be."""
        if self.phase is None or (not self.changes and self.phase.mean_size is None and not self.phase.stages):
            return self.phase.pacer.highest if self.phase is not None else self.plan.rate
        return (sum(end) - sum(first)) / (duration / 1e9) if duration else self.plan.rate

    def _stages(self, first: Sequence[int], end: Sequence[int]) -> list[dict[str, Any]]:
        """Where each stage begins and ends, by stream."""
        if not self.spans:
            return []
        edges = [list(first), *(self._boundary(span.start) for span in self.spans[1:]), list(end)]
        return [
            {
                "name": span.name, "start": self.start + span.start, "duration": span.duration,
                "rate": (sum(after) - sum(before)) / (span.duration / 1e9), "first": before, "end": after, "slo": dict(span.slo) or None,
            }
            for span, (before, after) in zip(self.spans, pairwise(edges), strict=True)
        ]  # fmt: skip

    def _facts(self) -> dict[str, Any]:
        from pytest_loadtest.fleet.judge import broker_document, driver_document
        from pytest_loadtest.fleet.machine import describe, versions

        return {
            "plan": self.plan.document, "scaling": {} if self.plan.scale is None else dict(self.plan.scale.changes),
            "broker": broker_document(self.broker.facts) if self.broker else {}, "driver": driver_document(self.facts),
            "versions": versions(), "machine": describe(), "source": self.source,
        }  # fmt: skip

    def have(self, facts: DriverFacts) -> None:
        """How the client is set up, and what of an OMB driver file does nothing here."""
        self.facts = replace(facts, not_applied={**self.part.profile.not_applied, **facts.not_applied})

    def differ(self, facts: Mapping[str, DriverFacts | None]) -> None:
        """The lead's facts as they were before the load, and beside them what became different on a worker: connections lost, for one."""
        if self.facts is None:
            return
        applied = dict(self.facts.applied)
        for worker, said in facts.items():
            if said is not None:
                applied |= {f"{key} ({worker})": value for key, value in said.applied.items() if self.facts.applied.get(key) != value}
        self.facts = replace(self.facts, applied=applied)
