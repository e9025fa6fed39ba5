"""One workload of a run at the controller: its plan, its target, the phase in progress, and the
workers' reports on it.

The run controller calls it, mostly in the threads that answer meetings. It writes ``run.json`` and
the sequence bounds of each recorded phase, and raises an error when the workers sent anything but
what was planned: such samples are never judged.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_loadtest.drivers import undelivered_function
from pytest_loadtest.drivers.base import NO_ANSWER
from pytest_loadtest.engine.sample_store import make_location
from pytest_loadtest.errors import TargetError
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.messages import PhaseFinished, Request, WorkloadAssignment
from pytest_loadtest.fleet.outages import Disturbance, Outages
from pytest_loadtest.fleet.outputs import workload_folder
from pytest_loadtest.fleet.phase_record import PhaseRecord, messages_due
from pytest_loadtest.fleet.run_description import DescribedWorkload
from pytest_loadtest.fleet.targets import target_address, with_keys
from pytest_loadtest.fleet.wall_clock import WallClock
from pytest_loadtest.fleet.watches import abort_reporting
from pytest_loadtest.pipeline.run_file import (
    RunClock,
    write_columns,
)
from pytest_loadtest.plan.connecting import opened_each
from pytest_loadtest.plan.plan import Plan, profile_pool
from pytest_loadtest.schedule.pacing import StreamCounts
from pytest_loadtest.values.wording import scale_word
from pytest_loadtest.verdict.early import exceeds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.metrics.clocks import ClockFit, ClockLine
    from pytest_loadtest.plan.phases import Phase, StageSpan
    from pytest_loadtest.schedule.due_messages import DueMessages
    from pytest_loadtest.verdict.objectives import Objective


class WorkloadRun(DescribedWorkload):
    """One workload of a run: its target, and its phases from their begin to their end."""

    @property
    def scale(self) -> str:
        """``scaled ×0.01`` or ``shortened`` with less than the profile's load; otherwise empty."""
        return "" if self.plan.scale is None else scale_word(self.plan.scale.factor)

    @property
    def bounds(self) -> tuple[Objective, ...]:
        """The latency objectives whose misses workers count while load runs.

        Only a search has some: it ends a step early by them.
        """
        if self.plan.search is None:
            return ()
        bounds = []
        for objective in self.plan.profile.objectives:
            is_latency = objective.metric == "endToEndLatency" and not objective.bucket
            if is_latency and exceeds(objective):
                bounds.append(objective)
        return tuple(bounds)

    @property
    def current(self) -> PhaseRecord:
        """The phase in progress, or the last one, once there was one."""
        assert self.record is not None
        return self.record

    def assign(self, worker: str, rank: int, bounds: tuple[int, ...] = ()) -> WorkloadAssignment:
        """Return one worker's share.

        :param bounds: more latencies, ns, whose exceedances it counts while load runs.
        """
        plan = self.plan
        broker = self.broker
        assert broker is not None
        profile = with_keys(self.part.profile, broker.facts)
        own_bounds = [(exceeds(objective) or 1) - 1 for objective in self.bounds]
        timely_bounds, timely_seconds = abort_reporting(plan)
        return WorkloadAssignment(
            workload=self.name,
            run=self.run,
            nonce=self.nonce,
            worker=worker,
            profile=profile,
            files=self.part.files,
            assignment=plan.assignments[rank],
            topology=plan.topology,
            target=target_address(broker.facts),
            ordered=profile.ordered,
            bounds=(*own_bounds, *bounds),
            opened=opened_each(plan),
            disk=plan.needs.disk,
            rate=plan.rate,
            timely_bounds=timely_bounds,
            timely_seconds=timely_seconds,
        )

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

    @property
    def one_order(self) -> bool:
        """True if all copies of a delivery come to one consumer, from one topic."""
        route = self.part.profile.route
        topics = 1 if route is None else len(route.output)
        return self.plan.topology.consumers <= 1 and topics == 1

    def begin(self, phase: Phase, folder: str | None, start: int) -> Drain:
        """Begin the next phase; its sequences follow those used before."""
        begun = replace(phase, before=self.used or StreamCounts(streams=self.plan.topology.streams))
        self.record = PhaseRecord(
            plan=self.plan, phase=begun, start=start, pool=lambda: self._pool, spans=phase.stages
        )
        self.folder = self.root / folder if folder else None
        self.outages = Outages(start)
        self.clock = WallClock(start)
        self.went_away = None
        if folder:
            if self.location is not None:
                make_location(self.location)
            self.started = self.clock.started
            self.write(ended=False)
        # In a phase without own producers messages of others may arrive forever: there is nothing
        # to wait for.
        profile = self.part.profile
        timeout = 0
        can_ask = False
        if not begun.idle:
            timeout = profile.drain_timeout
            if profile.delays is not None:
                timeout += profile.delays.longest
            # No target knows what a service has yet to send.
            known = profile.route is None
            can_ask = known and undelivered_function(profile.driver.name) is not None
        topology = self.plan.topology
        return Drain(
            phase.name,
            len(self.workers),
            topology.fan_out,
            timeout,
            can_ask=can_ask,
            one_order=self.one_order,
            routed=profile.route is not None,
            selective=topology.selective,
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
            # Each client lost a silent target, or for an unknown reason.
            silent = all(NO_ANSWER in why or "(" not in why for why in gone)
            if not answered or not silent:
                raise TargetError(self.went_away)
        self.unanswered = any(report.unanswered for report in reports)
        self.clock.check(self.part.profile)
        self.used = record.finish(reports, spans)
        if self.folder is not None:
            # "ended" lets `aggregate` judge these samples later; a run that was given up before
            # this point never has it.
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
        return profile_pool(self.part.profile, self.part.files)

    @property
    def target(self) -> str:
        """The description of the target, for messages."""
        if self.broker is None:
            return self.part.profile.driver.name
        return self.broker.facts.describe()

    def check_broker(self) -> None:
        """Check the target.

        :raises TargetError: it is gone.
        """
        failure = None if self.broker is None else self.broker.failure()
        if failure:
            raise TargetError(f"the target {self.target} went away: {failure}")

    def disturb(self, disturbance: Disturbance) -> tuple[int, int | None]:
        """End, start or restart the target or one process of it.

        :returns: from when to when it was down, ns after the start of the phase.
        :raises UsageError: that is impossible.
        :raises TargetError: it did not come up again.
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


def make_workloads(
    request: Request,
    plans: Sequence[Plan],
    members: Sequence[str],
    session: Path,
    options: Options,
) -> list[WorkloadRun]:
    """Return the workloads of a run, each with a folder and a nonce of its own.

    :param session: the folder of the session's results.
    """
    run = secrets.token_hex(4)
    several = len(plans) > 1
    workloads = []
    for number, (part, plan) in enumerate(zip(request.parts, plans, strict=True)):
        profile_name = part.profile.name
        root = workload_folder(session, request.nodeid, request.attempt, profile_name)
        samples = options.samples
        if samples:
            samples = f"{samples}/{root.relative_to(options.results).as_posix()}"
        workload = WorkloadRun(
            name=profile_name if several else "",
            part=part,
            plan=plan,
            root=root,
            samples=samples,
            nonce=secrets.randbits(32),
            test=request.nodeid,
            source=request.source,
            run=f"{run}-{number}" if several else run,
            workers=tuple(members),
        )
        workloads.append(workload)
    return workloads
