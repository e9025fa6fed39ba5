"""One run at the controller, from plan to end: the answers that need nothing of the session.

Created by the run controller when the lead requests load, and used in the threads that answer the
steps of the run; :meth:`PlannedRun.look` under the rendezvous' lock. It starts no thread and reads
no clock: messages and instants are arguments, answers and drains are returned. Its workloads write
``run.json``, and :class:`~pytest_loadtest.fleet.observing.Observing` has threads of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_loadtest.fleet.messages import (
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
    RunStep,
    SampleHost,
    Shares,
    StartPhase,
    StepAnswer,
    TargetPrepared,
)
from pytest_loadtest.fleet.observing import Observing
from pytest_loadtest.fleet.rendezvous import StepAnswers
from pytest_loadtest.fleet.run_clocks import RunClocks
from pytest_loadtest.fleet.setup_steps import BeginLoad
from pytest_loadtest.values.quantities import SECOND, format_count, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.scripts import Next, PlannedScript, SearchScript
    from pytest_loadtest.fleet.services import Services
    from pytest_loadtest.fleet.watches import Watch
    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.schedule.changes import Change

Step = TypeVar("Step")

CONNECT_IN: Final = 200_000_000
"""ns until all workers have received the instant from which paced connections count."""
LONG_CONNECTING: Final = 5 * SECOND
"""What takes longer is announced."""


@dataclass(slots=True)
class PlannedRun:
    """One run, from its plan to its end.

    :param scripts: the phases of each workload, in the order of the workloads.
    :param watches: by workload, those of the phases in progress.
    :param services: the services under test that the run has started; None: it cannot start any.
    """

    request: Request
    workloads: list[WorkloadRun]
    scripts: list[PlannedScript | SearchScript] = field(default_factory=list)
    watches: dict[str, Watch] = field(default_factory=dict)
    observing: Observing = field(default_factory=Observing)
    clocks: RunClocks = field(default_factory=RunClocks)
    services: Services | None = None

    def set_brokers(self, brokers: Sequence[Broker]) -> None:
        """Set the target of each workload. :param brokers: in the order of the workloads."""
        for workload, broker in zip(self.workloads, brokers, strict=True):
            workload.broker = broker
            workload.sole_user = brokers.count(broker) == 1

    def workload(self, name: str) -> WorkloadRun:
        """Return a workload by its name."""
        return next(workload for workload in self.workloads if workload.name == name)

    def assign(
        self,
        members: Sequence[str],
        bounds: tuple[int, ...],
        sources: Mapping[str, tuple[str, ...]],
    ) -> StepAnswers:
        """Return each member's share of each workload.

        :param bounds: more latencies, ns, whose exceedances workers count while load runs.
        :param sources: by member, the addresses that its connections come from.
        """
        by_rank = []
        for rank, member in enumerate(members):
            shares = []
            for workload in self.workloads:
                assignment = workload.assign(member, rank, bounds)
                line = self.clocks.lines.get(member)
                shares.append(replace(assignment, clock=line, sources=sources.get(member, ())))
            by_rank.append(Shares(tuple(shares)))
        return StepAnswers(by_rank=tuple(by_rank))

    def answer(
        self,
        members: Sequence[str],
        brought: Sequence[RunStep],
        now: int,
        announce: Callable[[str], None],
    ) -> StepAnswers:
        """Return each member's answer to a step between planning, phases and verdict.

        :param brought: the step as each member has brought it, by rank.
        :param now: ns of the clock.
        :raises TargetError: the target, or a service, is gone.
        """
        answer: StepAnswer = Continue()
        match brought[0]:
            case TargetPrepared(facts):
                assert facts is not None, "the lead has prepared the target"
                for workload, driver_facts in zip(self.workloads, facts, strict=True):
                    workload.set_driver_facts(driver_facts)
            case BeginLoad():
                if self.services is not None:
                    self.services.check()
            case ClientsMade(clients, name):
                workload = self.workload(name)
                answer = ConnectFrom(_first_connection(workload, clients, now, announce))
            case ConsumersConnected():
                return self._locate(members, _steps(brought, ConsumersConnected))
            case ClientsClosed():
                answer = self._close(members, _steps(brought, ClientsClosed))
            case step:
                raise AssertionError(f"no answer to {step}")
        return StepAnswers(by_rank=(answer,) * len(brought))

    def _locate(self, members: Sequence[str], brought: Sequence[ConsumersConnected]) -> StepAnswers:
        locations = {member: step.location for member, step in zip(members, brought, strict=True)}
        orders = self.observing.locate_workers(locations, self.clocks.hosts, self.workloads)
        return StepAnswers(by_rank=tuple(SampleHost(order) for order in orders))

    def _close(self, members: Sequence[str], brought: Sequence[ClientsClosed]) -> CleanUp:
        for number, workload in enumerate(self.workloads):
            workload.check_broker()
            facts = {
                member: step.facts[number] for member, step in zip(members, brought, strict=True)
            }
            workload.add_worker_facts(facts)
            if workload.folder is not None:
                workload.write(ended=True)
        return CleanUp(any(load.went_away or load.unanswered for load in self.workloads))

    # --- phases

    def reports(self, brought: Sequence[RunStep]) -> list[list[PhaseFinished]]:
        """Return the members' reports on the phase of each workload; none if it had no phase."""
        finished = [step.finished for step in _steps(brought, PhaseDone)]
        reports = []
        for of_workload in zip(*finished, strict=True):
            reports.append([report for report in of_workload if report is not None])
        return reports

    def end_phases(self, reports: Sequence[Sequence[PhaseFinished]]) -> None:
        """Check and complete the phases that ended.

        :raises NoData: the workers did not send what was planned.
        :raises TargetError: the target is gone.
        """
        if self.services is not None:
            self.note_deaths(self.services.deaths())
        for workload, of_workload in zip(self.workloads, reports, strict=True):
            if of_workload:
                workload.check_broker()
                watch = self.watches.get(workload.name)
                workload.end_phase(of_workload, () if watch is None else watch.spans)
                self.observing.end(workload)

    def note_deaths(self, deaths: tuple[str, ...]) -> None:
        """Let the results of all workloads say which services ended by themselves."""
        for workload in self.workloads:
            workload.ended_services = deaths

    def begin_phases(
        self, members: Sequence[str], following: Sequence[Next | None], start: int
    ) -> StepAnswers:
        """Begin the next phase of each workload that has one.

        :param following: by workload.
        :param start: the instant at which the first message is due, ns.
        """
        self.watches = {}
        drains = {}
        phases: list[StartPhase | None] = []
        for workload, phase in zip(self.workloads, following, strict=True):
            if phase is None:
                phases.append(None)
            else:
                drains[workload.name] = workload.begin(phase.phase, phase.folder, start)
                phases.append(self._start_phase(workload, phase, start))
        by_rank = []
        for member in members:
            line = self.clocks.lines.get(member)
            own = [phase and replace(phase, clock=line) for phase in phases]
            by_rank.append(NextPhases(tuple(own)))
        return StepAnswers(by_rank=tuple(by_rank), drains=drains)

    def _start_phase(self, workload: WorkloadRun, following: Next, start: int) -> StartPhase:
        """Observe a phase that has begun, and return it as the workers get it."""
        services = {} if self.services is None else self.services.pids
        self.observing.begin(workload, services)
        if following.watch is not None:
            self.watches[workload.name] = following.watch
        return StartPhase(
            phase=workload.current.phase,
            start=start,
            folder=workload.folder,
            wall=workload.clock.offset,
            samples=workload.location,
        )

    def look(self, workload: WorkloadRun, reports: list[Progress], now: int) -> Change | None:
        """Return the change that the watch of the phase wants, or None; no second end of it.

        :param reports: the latest report of each member.
        :param now: ns of the clock.
        """
        watch = self.watches.get(workload.name)
        if watch is None:
            return None
        phase = workload.current
        change = watch.look(reports, now - phase.start)
        # The test's body may have ended the load. The watch does not know that: it waits for
        # messages that will not be sent, and its end is not the reason why the phase ends.
        if change is not None and change.end and any(earlier.end for earlier in phase.changes):
            return None
        return change


def _first_connection(
    workload: WorkloadRun, clients: str, now: int, announce: Callable[[str], None]
) -> int:
    """Return the instant from which all workers count their paced connections, ns.

    :param clients: ``consumers`` or ``producers``.
    :param announce: shows a line about connecting that takes long.
    """
    # On use: a session without load tests must not load numpy and profiles.
    from pytest_loadtest.plan.connecting import opened_consumers
    from pytest_loadtest.profile.model import choose_client

    plan = workload.plan
    profile = plan.profile
    count = plan.topology.streams if clients == "producers" else opened_consumers(plan)
    rate = profile.connect_rate
    assert rate is not None
    duration = round(count / rate * SECOND)
    if duration > LONG_CONNECTING:
        announce(
            f"{workload.test}: connecting {format_count(count)} {clients} at {rate:g}/s, which "
            f"takes {format_duration(duration)}"
        )
    # Each worker makes its clients first.
    client = profile.driver.kind.clients[choose_client(profile).client]
    setup = count // len(workload.workers) * client.setup_time
    return now + CONNECT_IN + setup


def _steps(brought: Sequence[RunStep], kind: type[Step]) -> list[Step]:
    return [step for step in brought if isinstance(step, kind)]
