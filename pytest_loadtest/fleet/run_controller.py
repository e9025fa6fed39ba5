"""The controller's part in every run: plan it, get its target, start its phases, measure and judge
it, write its results.

Called by the rendezvous in the process that pytest was started in. It keeps what was planned for a
run until the run has ended, and the session's targets, Spark session and results documents. A
planned run always ends in a document: with a verdict, or with the reason why there is none.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import BrokenRun, UsageError
from pytest_loadtest.fleet.messages import (
    AwaitVerdict,
    ClaimShares,
    CleanUp,
    ClientsClosed,
    ClientsMade,
    ConnectFrom,
    ConsumersConnected,
    Continue,
    Disturbance,
    NextPhases,
    PhaseDone,
    Result,
    SampleHost,
    Shares,
    StartPhase,
    TargetPrepared,
)
from pytest_loadtest.fleet.observing import Observing, load_samplers
from pytest_loadtest.fleet.outputs import Outputs, session_folder, workload_folder
from pytest_loadtest.fleet.rendezvous import StepAnswers
from pytest_loadtest.fleet.spark_service import SparkService
from pytest_loadtest.report.ended_runs import EndedRuns
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_loadtest.drivers.base import DriverFacts
    from pytest_loadtest.fleet.drain import Drain
    from pytest_loadtest.fleet.host_clocks import HostClocks
    from pytest_loadtest.fleet.measured_run import Custom, MeasuredRun
    from pytest_loadtest.fleet.messages import (
        HostSampling,
        Key,
        PhaseFinished,
        Request,
        RunResult,
        RunStep,
        StepAnswer,
        WorkloadAssignment,
    )
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.rendezvous import Rendezvous
    from pytest_loadtest.fleet.run_states import Run
    from pytest_loadtest.fleet.scripts import Next, PlannedScript, SearchScript
    from pytest_loadtest.fleet.spark_fleet import SparkFleet
    from pytest_loadtest.fleet.targets import Targets
    from pytest_loadtest.fleet.watches import Watch
    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.metrics.clocks import ClockLine
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.report.document import RunDocument
    from pytest_loadtest.report.live import LiveLine
    from pytest_loadtest.report.live_metrics import LiveMetrics
    from pytest_loadtest.results.load import Load
    from pytest_loadtest.schedule.changes import Change


# ns from the decision to start a phase until its first message is due: all workers must have
# received the decision by then.
START_IN = 200_000_000


@dataclass(slots=True)
class PlannedRun:
    """One run, from its plan to its end."""

    request: Request
    workloads: list[WorkloadRun]
    scripts: list[PlannedScript | SearchScript] = field(default_factory=list)
    watches: dict[str, Watch] = field(default_factory=dict)
    observing: Observing = field(default_factory=Observing)
    clock_lines: dict[str, ClockLine] = field(
        default_factory=dict
    )  # by worker on another host: the line that it uses now
    clocks_since: int = 0  # exchanges from this instant on belong to the current phase, ns

    def workload(self, name: str) -> WorkloadRun:
        return next(workload for workload in self.workloads if workload.name == name)


class RunController:
    """Controls the runs of one pytest session.

    The rendezvous calls :meth:`answer` in a thread of its own and :meth:`check` once a second in
    its watch thread, both without its lock. It calls :meth:`progressed`, :meth:`command`,
    :meth:`gave_up` and :meth:`ended` with the lock held, in the thread that received the message:
    they must return quickly.
    """

    def __init__(
        self,
        options: Options,
        live: LiveLine | None,
        custom: Custom | None = None,
        metrics: LiveMetrics | None = None,
        fleet: SparkFleet | None = None,
    ) -> None:
        """:param fleet: the workers that Spark has started; its session aggregates too."""
        self._options, self._live, self._metrics = options, live, metrics
        self.folder = session_folder(options.results) if fleet is None else fleet.folder
        self.outputs = Outputs(options, self.folder)
        host = None if fleet is None else fleet.host
        self.spark = SparkService(self.folder / "spark", options, self._announce, custom, host)
        self._targets: Targets | None = None
        self._restarting = threading.Lock()
        self._planned: dict[Key, PlannedRun] = {}
        self.documents = EndedRuns()
        self.rendezvous: Rendezvous | None = None
        self.clocks: HostClocks | None = None  # None if all workers are on this host

    # --- steps

    def answer(self, run: Run, brought: Sequence[RunStep]) -> StepAnswers:
        """Return each worker's answer to a step.

        :param brought: the step as each worker has brought it, by rank.
        """
        try:
            return self._answer(run, brought)
        except OSError as error:
            from pytest_loadtest.engine.sample_files import (
                is_full,
                unwritten,
            )  # loads numpy: a session without load tests must not

            planned = self._planned.get(run.key)
            if not is_full(error) or planned is None:
                raise
            needed = sum(workload.plan.needs.disk for workload in planned.workloads)
            raise unwritten("the controller", "results", self.folder, error, needed) from error

    def _answer(self, run: Run, brought: Sequence[RunStep]) -> StepAnswers:
        by_rank: Sequence[StepAnswer] = (Continue(),) * len(brought)
        match brought[0]:
            case ClaimShares(request):
                by_rank = [Shares(tuple(shares)) for shares in self._assign(run, request)]
            case TargetPrepared(facts):
                self._set_driver_facts(run, facts)
            case ClientsMade(clients, workload_name):
                workload = self._planned[run.key].workload(workload_name)
                by_rank = (ConnectFrom(workload.first_connection(clients, self._announce)),) * len(
                    brought
                )
            case ConsumersConnected():
                by_rank = [SampleHost(order) for order in self._locate(run, brought)]
            case PhaseDone(number):
                if number == 0:
                    self.spark.wait_until_ready()
                    load_samplers(
                        workload.part.profile.driver.name
                        for workload in self._planned[run.key].workloads
                    )
                return self._next(
                    run, [step.finished for step in brought if isinstance(step, PhaseDone)]
                )
            case ClientsClosed():
                self._closed(
                    run, [step.facts for step in brought if isinstance(step, ClientsClosed)]
                )
                workloads = self._planned[run.key].workloads
                is_silent = any(workload.went_away or workload.unanswered for workload in workloads)
                by_rank = (CleanUp(is_silent),) * len(brought)
            case AwaitVerdict():
                by_rank = [Result(self._judge(run)), *(Result(None) for _ in brought[1:])]
            case step:
                raise AssertionError(f"no answer to {step}")
        return StepAnswers(by_rank=tuple(by_rank))

    def _set_driver_facts(self, run: Run, facts: tuple[DriverFacts, ...] | None) -> None:
        assert facts is not None, "the lead has prepared the target"
        for workload, driver_facts in zip(self._planned[run.key].workloads, facts, strict=True):
            workload.set_driver_facts(driver_facts)

    def _locate(self, run: Run, brought: Sequence[RunStep]) -> Sequence[HostSampling | None]:
        planned = self._planned[run.key]
        locations = {
            member: step.location
            for member, step in zip(run.members, brought, strict=True)
            if isinstance(step, ConsumersConnected)
        }
        hosts = self.clocks.hosts if self.clocks else {}
        return planned.observing.locate_workers(locations, hosts, planned.workloads)

    def _assign(self, run: Run, request: Request) -> Sequence[Sequence[WorkloadAssignment]]:
        from pytest_loadtest.fleet import planning
        from pytest_loadtest.fleet.scripts import align_phases
        from pytest_loadtest.plan.connecting import connect_duration
        from pytest_loadtest.plan.hosts import CONTROLLER

        self._announce(f"{request.nodeid}: planning, starting the target")
        self.spark.start()
        elsewhere = {} if self.clocks is None else self.clocks.hosts
        plans = planning.make_plans(
            request, [elsewhere.get(worker, CONTROLLER) for worker in run.members], self._options
        )
        workloads = self._workload_runs(run, request, plans)
        planned = PlannedRun(request=request, workloads=workloads)
        self._planned[run.key] = planned
        run.patience += sum(connect_duration(plan) for plan in plans) // SECOND
        planning.check_capacity(request, plans, self._options)
        with self._restarting:  # an earlier run may have ended while its target was being restarted
            for workload in workloads:
                workload.broker = self._get_targets().get(request, workload.part.profile)
        planned.scripts = align_phases([self._script(workload) for workload in workloads])
        more = () if self._metrics is None else self._metrics.bounds
        self._relate_clocks(planned, ())
        lines = planned.clock_lines
        sources = self._worker_sources()
        return [
            [
                replace(
                    workload.assign(worker, rank, more),
                    clock=lines.get(worker),
                    sources=sources.get(worker, ()),
                )
                for workload in workloads
            ]
            for rank, worker in enumerate(run.members)
        ]

    def _worker_sources(self) -> dict[str, tuple[str, ...]]:
        from pytest_loadtest.plan.hosts import spread_sources

        return {} if self.clocks is None else spread_sources(self._options.hosts, self.clocks.hosts)

    def _relate_clocks(self, planned: PlannedRun, ended: Sequence[WorkloadRun]) -> None:
        """Exchange times with other hosts between two phases, and relate their clocks in the phase
        that ended.

        :param ended: the workloads that had a phase; others keep the lines by which their earlier
            samples were stamped.
        :raises NoData: a host does not answer.
        """
        if self.clocks is None:
            return
        began = self.clocks.ask()
        if ended:
            fits = self.clocks.fits(planned.clocks_since)
            for workload in ended:
                workload.relate_clocks(self.clocks.hosts, planned.clock_lines, fits)
        planned.clocks_since = began
        planned.clock_lines = {worker: fit.line for worker, fit in self.clocks.fits().items()}

    def _renew_clocks(self, planned: PlannedRun) -> None:
        """Exchange times again if the last burst is too old to begin a phase with."""
        if self.clocks is None:
            return
        from pytest_loadtest.fleet.host_clocks import RECENT, SMALL_BURST

        # A burst with many hosts takes seconds, and so does the judgement of a step of a search.
        if time.monotonic_ns() - planned.clocks_since > RECENT:
            planned.clocks_since = self.clocks.ask(SMALL_BURST)
            planned.clock_lines = {worker: fit.line for worker, fit in self.clocks.fits().items()}

    def _workload_runs(
        self, run: Run, request: Request, plans: Sequence[Plan]
    ) -> list[WorkloadRun]:
        from pytest_loadtest.fleet.workload_run import WorkloadRun

        name, several = secrets.token_hex(4), len(plans) > 1
        roots = [
            workload_folder(self.folder, request.nodeid, request.attempt, part.profile.name)
            for part in request.parts
        ]
        return [
            WorkloadRun(
                name=part.profile.name if several else "",
                part=part,
                plan=plan,
                root=roots[i],
                nonce=secrets.randbits(32),
                samples=self._options.samples
                and f"{self._options.samples}/{roots[i].relative_to(self._options.results).as_posix()}",
                test=request.nodeid,
                source=request.source,
                run=f"{name}-{i}" if several else name,
                workers=tuple(run.members),
            )
            for i, (part, plan) in enumerate(zip(request.parts, plans, strict=True))
        ]

    def _script(self, workload: WorkloadRun) -> PlannedScript | SearchScript:
        from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript

        if workload.plan.search is None:
            return PlannedScript(workload)
        return SearchScript(workload, lambda: self._judge_step(workload), self._announce)

    def _judge_step(self, workload: WorkloadRun) -> tuple[MeasuredRun, Load]:
        from pytest_loadtest.fleet.judge import conclude_run

        assert workload.folder is not None
        measured = self.spark.measure(workload.folder)
        return measured, conclude_run(measured)[0].load

    def _next(self, run: Run, finished: Sequence[Sequence[PhaseFinished | None]]) -> StepAnswers:
        """Return what each worker does next: a phase of each workload, or nothing more.

        :param finished: by rank, then by workload.
        """
        planned = self._planned[run.key]
        reported = [
            [report for report in reports if report is not None]
            for reports in zip(*finished, strict=True)
        ]
        self._relate_clocks(
            planned,
            [
                workload
                for workload, reports in zip(planned.workloads, reported, strict=True)
                if reports
            ],
        )
        for workload, reports in zip(planned.workloads, reported, strict=True):
            if reports:
                workload.check_broker()
                watch = planned.watches.get(workload.name)
                workload.end_phase(reports, () if watch is None else watch.spans)
                planned.observing.end(workload)
        following = [script.next() for script in planned.scripts]
        if not any(following):
            return StepAnswers(by_rank=(NextPhases(None),) * len(finished))
        planned.watches = {}
        self._renew_clocks(planned)
        start = time.monotonic_ns() + START_IN
        drains: dict[str, Drain] = {}
        phases: list[StartPhase | None] = []
        for workload, phase in zip(planned.workloads, following, strict=True):
            if phase is None:
                phases.append(None)
                continue
            drains[workload.name] = workload.begin(phase.phase, phase.folder, start)
            phases.append(self._started(planned, workload, phase, start))
        if (
            run.error is not None
        ):  # given up meanwhile, and `gave_up` may have ended what was sampled before this phase began
            for workload in planned.workloads:
                planned.observing.end(workload)
        by_rank = []
        for worker in run.members:
            line = planned.clock_lines.get(worker)
            by_rank.append(
                NextPhases(tuple(phase and replace(phase, clock=line) for phase in phases))
            )
        return StepAnswers(by_rank=tuple(by_rank), drains=drains)

    def _started(
        self, planned: PlannedRun, workload: WorkloadRun, following: Next, start: int
    ) -> StartPhase:
        """Observe a phase that has begun, and return it as the workers get it."""
        planned.observing.begin(workload)
        if following.watch is not None:
            planned.watches[workload.name] = following.watch
        return StartPhase(
            phase=workload.current.phase,
            start=start,
            folder=workload.folder,
            wall=workload.clock.offset,
            samples=workload.location,
        )

    def _closed(self, run: Run, facts: Sequence[Sequence[DriverFacts]]) -> None:
        for i, workload in enumerate(self._planned[run.key].workloads):
            workload.check_broker()
            workload.add_worker_facts(
                {worker: parts[i] for worker, parts in zip(run.members, facts, strict=True)}
            )
            if workload.folder is not None:
                workload.write(ended=True)

    def check(self, run: Run) -> None:
        """Check the targets of a run. :raises TargetError: a target is gone."""
        planned = self._planned.get(run.key)
        for workload in [] if planned is None else planned.workloads:
            workload.check_broker()

    def store(self, target: Path, part: bytes, last: bool) -> None:
        """Write a part of a sample file of another host; the file gets its name when it is whole.

        :raises OSError: it cannot be written.
        """
        if not target.resolve().is_relative_to(self.folder.resolve()):
            raise OSError(f"{target} is outside of {self.folder}")
        aside = target.with_name(f".{target.name}.part")
        target.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("ab") as stream:
            stream.write(part)
        if last:
            aside.replace(target)

    def gave_up(self, run: Run, error: Exception) -> None:
        """Write the results of a broken run: its description, and the reason why it has no verdict."""
        planned = self._planned.get(run.key)
        if planned is None:
            return
        for workload in planned.workloads:
            self.outputs.write_broken(
                workload.folder or workload.root, partial(planned.observing.end, workload)
            )
        if isinstance(error, BrokenRun):
            documents = self._write_broken(planned.workloads, error)
            self.documents.add(documents)
            self.outputs.add_to_history(documents)

    def ended(self, run: Run) -> None:
        """Forget what was planned for a run: a session may have thousands of them."""
        self._planned.pop(run.key, None)

    # --- while load runs

    def progressed(self, run: Run, name: str) -> None:
        """Show new progress, and let the watch of the phase act on it."""
        planned = self._planned[run.key]
        workload = planned.workload(name)
        if workload.record is None:
            return
        record = workload.record
        progress = [p for p in run.progress[name].values() if p.phase == record.phase.name]
        drain, now = run.drains.get(name), time.monotonic_ns()
        if self._live is not None and progress:
            shown = ", ".join(filter(None, (workload.part.profile.name, workload.scale)))
            self._live.show(
                shown, record.phase, progress, None if drain is None else drain.describe(now)
            )
        if self._metrics is not None and progress:
            self._metrics.show(
                workload.test,
                workload.part.profile.name,
                workload.name,
                record.phase,
                progress,
                workload.scale,
            )
        if drain is not None and drain.asks(now):
            from pytest_loadtest.fleet.undelivered import ask_target

            ask_target(workload, drain)
        watch = planned.watches.get(name)
        if watch is not None and len(progress) == len(run.members):
            change = watch.look(progress, now - record.start)
            if change is not None:
                self._change(run, workload, change)
            if change is not None and change.aborted is not None:
                self._announce(f"{workload.test}: {change.aborted.reason}")

    def _change(self, run: Run, workload: WorkloadRun, change: Change) -> None:
        assert self.rendezvous is not None
        workload.current.changes.append(change)
        self.rendezvous.change(run, workload.name, workload.current.phase.name, change)

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        """Carry out a command of the test's body: return the instant of a change (ns after the
        phase's start), or a slow function that
        restarts the target, to be called in a thread of its own.

        :raises UsageError: the command is impossible. Any other error of the function ends the run.
        """
        from pytest_loadtest.fleet.live_changes import (
            measured_workload,
            requested_change,
        )  # on use: they load numpy

        planned = self._planned.get(run.key)
        if planned is None:
            raise UsageError("cannot change the load: it has not begun, or has ended")
        workload = measured_workload(planned.workloads, driving=bool(run.drains))
        if isinstance(argument, Disturbance):
            return partial(self._disturb, planned.request.nodeid, workload, argument)
        change = requested_change(workload, kind, argument, time.monotonic_ns())
        self._change(run, workload, change)
        return change.at

    def _disturb(
        self, nodeid: str, workload: WorkloadRun, disturbance: Disturbance
    ) -> tuple[int, int | None]:
        with self._restarting:
            self._announce(f"{nodeid}: {disturbance.text} {workload.target}")
            return workload.disturb(disturbance)

    def _announce(self, text: str, *, quiet: bool = False) -> None:
        if self._live is not None:
            self._live.announce(text, quiet=quiet)

    # --- verdict

    def _judge(self, run: Run) -> RunResult:
        from pytest_loadtest.fleet.judge import combine_workloads

        planned = self._planned[run.key]
        self._announce(f"{planned.request.nodeid}: aggregating samples")
        judged = [
            self._conclude(workload, script)
            for workload, script in zip(planned.workloads, planned.scripts, strict=True)
        ]
        assert self.rendezvous is not None
        self.rendezvous.conclude(run)
        if isinstance(
            run.error, BrokenRun
        ):  # given up while it was judged, e.g. by the test's timeout: overwrite what was just written
            self._write_broken(planned.workloads, run.error)
            raise run.error
        documents = [document for _, document in judged]
        self.documents.add(documents)
        self.outputs.write_results(documents)
        if len(judged) == 1:
            return judged[0][0]
        return combine_workloads(planned.request.profile.name, [result for result, _ in judged])

    def _conclude(
        self, workload: WorkloadRun, script: PlannedScript | SearchScript
    ) -> tuple[RunResult, RunDocument]:
        """Return the result of one workload whose script has ended, and its document.

        :raises NoData: it cannot be measured.
        """
        from pytest_loadtest.fleet.judge import conclude_run
        from pytest_loadtest.fleet.scripts import SearchScript

        if isinstance(script, SearchScript):
            peak = script.peak()
            return conclude_run(script.best_step(peak), peak=peak, baseline=self.outputs.baseline)
        assert workload.folder is not None
        return conclude_run(
            self.spark.measure(workload.folder),
            backlog=script.backlog,
            baseline=self.outputs.baseline,
        )

    def _write_broken(
        self, workloads: Sequence[WorkloadRun], error: BrokenRun
    ) -> list[RunDocument]:
        """Write the results of a run that was given up; return them."""
        from pytest_loadtest.fleet.judge import broken_results, write_results

        documents = []
        for workload in workloads:
            folder = workload.folder or workload.root / "measure"
            documents.append(broken_results(workload.run_file(), folder, error))
            self.outputs.write_broken(folder, partial(write_results, folder, documents[-1]))
        return documents

    # --- once for each session

    def _get_targets(self) -> Targets:
        from pytest_loadtest.fleet.targets import Targets

        if self._targets is None:
            self._targets = Targets(self._options, self.folder, self._announce)
        return self._targets

    def close(self) -> None:
        """Stop Spark and every broker, in parallel; keep their logs if something failed."""
        self.spark.begin_stop()
        targets, self._targets = self._targets, None
        if targets is not None:
            targets.close()
        self.spark.stop()
