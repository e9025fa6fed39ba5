"""The facts of a workload, and the content of ``run.json``: what aggregation has to know of a run.

:class:`~pytest_loadtest.fleet.workload_run.WorkloadRun` changes the facts and writes the file, in
the threads that answer steps. Only the description of this machine is read here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_loadtest.drivers.base import DriverFacts, add_worker_counts
from pytest_loadtest.fleet.outages import Outages
from pytest_loadtest.fleet.planning import installed_versions, machine_document
from pytest_loadtest.fleet.wall_clock import WallClock
from pytest_loadtest.pipeline.run_file import (
    STREAMS_FILE,
    RunChange,
    RunCircumstances,
    RunClock,
    RunFile,
    RunStreams,
)
from pytest_loadtest.plan.connecting import opened_clients
from pytest_loadtest.report.build import broker_document, driver_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.fleet.messages import Part
    from pytest_loadtest.fleet.phase_record import PhaseRecord
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.schedule.pacing import StreamCounts


@dataclass(kw_only=True)
class DescribedWorkload:
    """The facts of one workload of a run.

    :param name: its name if there are several, otherwise empty.
    :param root: its folder; recorded phases have folders below it.
    :param samples: the place of its samples, as ``root``, if they are stored elsewhere: a path, or
        a URI.
    :param sole_user: no other workload of the run uses its target.
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
    sole_user: bool = False
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
    ended_services: tuple[str, ...] = ()
    """How services of the run ended by themselves before the end of the load."""

    @property
    def location(self) -> str | None:
        """The place of the phase's samples; None if it is the folder or if none are kept."""
        if self.samples is None or self.folder is None:
            return None
        return f"{self.samples}/{self.folder.name}"

    def run_file(self) -> RunFile:
        """Return the content of ``run.json``: the phase in progress, or a run without a phase."""
        plan = self.plan
        profile = self.part.profile
        topology = plan.topology
        scale = plan.scale
        described = RunFile(
            run=self.run,
            workload=self.name or None,
            sole_user=self.sole_user,
            nonce=self.nonce,
            workers=tuple(self.workers),
            start=0,
            duration=0,
            rate=plan.rate,
            topics=topology.topics,
            subscriptions=topology.subscriptions,
            outputs=topology.outputs,
            selective=topology.selective,
            tapped=topology.tapped,
            broadcasts=topology.broadcasts,
            ordered=profile.ordered,
            connections=opened_clients(plan),
            connects_only=profile.connects_only,
            connect_rate=profile.connect_rate,
            delays=self.clock.delays(profile),
            publish_acks=profile.publish_acks,
            buckets=tuple(plan.bucket_names),
            streams=RunStreams(count=topology.streams, file=STREAMS_FILE),
            window=plan.profile.slo.window,
            drift="drift" in plan.profile.slo,
            went_away=self.went_away,
            ended_services=self.ended_services,
            started=self.started,
            seed=profile.seed,
            scale=None if scale is None else scale.factor,
            pace=None if scale is None else scale.rate,
            share=None if scale is None else scale.messages,
            test=self.test,
            profile=profile.document(),
            facts=self._circumstances(),
            clocks=self.host_clocks,
            within_hosts=bool(self.host_clocks) and plan.within_hosts,
            samples=self.location,
        )
        record = self.record
        if record is None:
            return described
        unattainable = (change.unattainable for change in record.changes)
        changes = [change.document(in_bytes=profile.in_bytes) for change in record.changes]
        return replace(
            described,
            start=record.start,
            duration=record.duration,
            rate=record.rate(),
            stages=() if record.ends is None else record.stages(),
            changes=tuple(RunChange(**change) for change in changes),
            unattainable=next(filter(None, unattainable), None),
            aborted=record.aborted,
        )

    def _circumstances(self) -> RunCircumstances:
        plan = self.plan
        broker: dict[str, Any] = {}
        if self.broker is not None:
            restarts = self.outages.document(self.clock)
            broker = broker_document(self.broker.facts) | {"restarts": restarts}
        return RunCircumstances(
            plan=plan.document,
            scaling={} if plan.scale is None else dict(plan.scale.changes),
            broker=broker,
            driver=driver_document(self.facts),
            versions=installed_versions(),
            machine=machine_document(),
            source=self.source,
        )

    def set_driver_facts(self, facts: DriverFacts) -> None:
        """Set the client's settings, with those that the plan found to have no effect.

        Losses are unknown before the load.
        """
        self.facts = replace(
            facts,
            not_applied={**self.plan.profile.not_applied, **facts.not_applied},
            losses=None,
            forgotten=None,
            incidents={},
        )

    def add_worker_facts(self, facts: Mapping[str, DriverFacts | None]) -> None:
        """Add what differs on a worker after the load, e.g. lost connections.

        The facts so far are the lead's, from before the load.
        """
        if self.facts is None:
            return
        applied = dict(self.facts.applied)
        for worker, report in facts.items():
            if report is None:
                continue
            for key, value in report.applied.items():
                if self.facts.applied.get(key) != value:
                    applied[f"{key} ({worker})"] = value
        self.facts = add_worker_counts(replace(self.facts, applied=applied), facts.values())
