"""The controller's part in every run of a session: the shell around what was planned for each run.

Called by the rendezvous, in the process that pytest was started in. It owns what the runs of a
session share: targets, Spark, results, the display and the clocks of other hosts. The answers that
need nothing of these are in :mod:`~pytest_loadtest.fleet.planned_run`. A planned run always ends in
a document: with a verdict, or with the reason why there is none.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import BrokenRun, UsageError
from pytest_loadtest.fleet.display import Display
from pytest_loadtest.fleet.messages import (
    AwaitVerdict,
    ClaimShares,
    ClientsClosed,
    Key,
    NextPhases,
    PhaseDone,
    Request,
    Result,
    RunResult,
    RunStep,
    TargetPrepared,
)
from pytest_loadtest.fleet.observing import load_samplers
from pytest_loadtest.fleet.outages import Disturbance
from pytest_loadtest.fleet.outputs import Outputs, session_folder
from pytest_loadtest.fleet.planned_run import PlannedRun
from pytest_loadtest.fleet.rendezvous import Rendezvous, StepAnswers
from pytest_loadtest.fleet.run_clocks import RunClocks
from pytest_loadtest.fleet.run_results import RunResults
from pytest_loadtest.fleet.service_request import STOP_SERVICES, ServiceRequest, ServiceStarted
from pytest_loadtest.fleet.setup_steps import StartService
from pytest_loadtest.fleet.spark_service import SparkService
from pytest_loadtest.fleet.stopwatch import Stopwatch
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.fleet.host_clocks import HostClocks
    from pytest_loadtest.fleet.measured_run import Custom
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.run_states import Run
    from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript
    from pytest_loadtest.fleet.services import Services
    from pytest_loadtest.fleet.spark_fleet import SparkFleet
    from pytest_loadtest.fleet.targets import Targets
    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.report.live import LiveLine
    from pytest_loadtest.report.live_metrics import LiveMetrics
    from pytest_loadtest.schedule.changes import Change

# ns from the decision to start a phase until its first message is due: all workers must have
# received the decision by then.
START_IN = 200_000_000


_PARTS: Final = {
    ClaimShares: "planning, target",
    StartService: "services",
    TargetPrepared: "connecting",
    ClientsClosed: "closing",
    AwaitVerdict: "verdict",
}
"""The part of a session that begins when the workers bring a step."""


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
        """Read the options of the session.

        :param fleet: the workers that Spark has started; its session aggregates too.
        """
        self._options = options
        self._display = Display(live, metrics)
        self.folder = session_folder(options.results) if fleet is None else fleet.folder
        self.outputs = Outputs(options, self.folder)
        host = None if fleet is None else fleet.host
        announce = self._display.announce
        self.spark = SparkService(self.folder / "spark", options, announce, custom, host)
        self._results = RunResults(self.outputs, self.spark.measure)
        self.documents = self._results.documents
        self._targets: Targets | None = None
        self._restarting = threading.Lock()
        self._planned: dict[Key, PlannedRun] = {}
        self._services: set[Services] = set()  # those that may run
        self.stopwatch = Stopwatch()
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
            # On use: it loads numpy, which a session without load tests must not.
            from pytest_loadtest.engine.sample_files import is_full, unwritten

            planned = self._planned.get(run.key)
            if not is_full(error) or planned is None:
                raise
            needed = sum(workload.plan.needs.disk for workload in planned.workloads)
            raise unwritten("the controller", "results", self.folder, error, needed) from error

    def _answer(self, run: Run, brought: Sequence[RunStep]) -> StepAnswers:
        part = _PARTS.get(type(brought[0]))
        if part is not None:
            self.stopwatch.begin(part)
        match brought[0]:
            case ClaimShares(request):
                return self._assign(run, request)
            case StartService(request):
                return self._start_service(run, request)
            case PhaseDone(number):
                return self._continue(run, number, brought)
            case AwaitVerdict():
                others = (Result(None),) * (len(brought) - 1)
                return StepAnswers(by_rank=(Result(self._judge(run)), *others))
        now = time.monotonic_ns()
        planned = self._planned[run.key]
        return planned.answer(run.members, brought, now, self._display.announce)

    def _assign(self, run: Run, request: Request) -> StepAnswers:
        from pytest_loadtest.fleet import planning
        from pytest_loadtest.fleet.scripts import align_phases
        from pytest_loadtest.fleet.services import Services
        from pytest_loadtest.fleet.workload_run import make_workloads
        from pytest_loadtest.plan.connecting import connect_duration
        from pytest_loadtest.plan.hosts import CONTROLLER, spread_sources

        self._display.announce(f"{request.nodeid}: planning, starting the target")
        self.spark.start()
        clocks = RunClocks(self.clocks)
        hosts = [clocks.hosts.get(worker, CONTROLLER) for worker in run.members]
        plans = planning.make_plans(request, hosts, self._options)
        workloads = make_workloads(request, plans, run.members, self.folder, self._options)
        planned = PlannedRun(
            request=request,
            workloads=workloads,
            clocks=clocks,
            services=Services(workloads[0].root.parent, self._options.root),
        )
        self._planned[run.key] = planned
        run.patience += sum(connect_duration(plan) for plan in plans) // SECOND
        planning.check_capacity(request, plans, self._options)
        with self._restarting:  # an earlier run may have ended while its target was being restarted
            targets = self._get_targets()
            planned.set_brokers([targets.get(request, part.profile) for part in request.parts])
        planned.scripts = align_phases([self._script(workload) for workload in workloads])
        clocks.relate(())
        sources: Mapping[str, tuple[str, ...]] = {}
        if self.clocks is not None:
            sources = spread_sources(self._options.hosts, self.clocks.hosts)
        return planned.assign(run.members, self._display.bounds, sources)

    def _start_service(self, run: Run, request: ServiceRequest) -> StepAnswers:
        planned = self._planned[run.key]
        assert planned.services is not None
        self._services.add(planned.services)
        self._display.announce(f"{planned.request.nodeid}: starting the service {request.name}")
        service = planned.services.start(request, self._display.announce)
        return StepAnswers(by_rank=(ServiceStarted(service),) * len(run.members))

    def _script(self, workload: WorkloadRun) -> PlannedScript | SearchScript:
        from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript

        if workload.plan.search is None:
            return PlannedScript(workload)
        judge = partial(self._results.judge_step, workload)
        return SearchScript(workload, judge, self._display.announce)

    def _continue(self, run: Run, number: int, brought: Sequence[RunStep]) -> StepAnswers:
        """Return what each worker does next: a phase of each workload, or nothing more.

        :param number: of the phase that ended; 0: none was driven yet.
        """
        planned = self._planned[run.key]
        workloads = planned.workloads
        if number == 0:
            self.stopwatch.begin("Spark")
            self.spark.wait_until_ready()
            self.stopwatch.begin("load")
            load_samplers(workload.part.profile.driver.name for workload in workloads)
        reports = planned.reports(brought)
        ended = []
        for workload, of_workload in zip(workloads, reports, strict=True):
            if of_workload:
                ended.append(workload)
        planned.clocks.relate(ended)
        planned.end_phases(reports)
        following = [script.next() for script in planned.scripts]
        if not any(following):
            return StepAnswers(by_rank=(NextPhases(None),) * len(brought))
        planned.clocks.renew(time.monotonic_ns())
        answers = planned.begin_phases(run.members, following, time.monotonic_ns() + START_IN)
        if run.error is not None:
            # Given up meanwhile: `gave_up` may have ended what was sampled before this phase began.
            for workload in workloads:
                planned.observing.end(workload)
        return answers

    def _judge(self, run: Run) -> RunResult:
        planned = self._planned[run.key]
        self._display.announce(f"{planned.request.nodeid}: aggregating samples")
        judged = self._results.judge(planned)
        self.stopwatch.begin("tests")
        assert self.rendezvous is not None
        self.rendezvous.conclude(run)
        if isinstance(run.error, BrokenRun):
            # Given up while it was judged, e.g. by the test's timeout: overwrite the results.
            self._results.write_broken(planned, run.error)
            raise run.error
        return self._results.add(planned.request.profile.name, judged)

    # --- while the run lasts

    def check(self, run: Run) -> None:
        """Check the targets of a run, and note services that have ended.

        :raises TargetError: a target is gone.
        """
        planned = self._planned.get(run.key)
        if planned is not None:
            if planned.services is not None:
                planned.services.deaths()
            for workload in planned.workloads:
                workload.check_broker()

    def progressed(self, run: Run, name: str) -> None:
        """Show new progress, and let the watch of the phase act on it."""
        planned = self._planned[run.key]
        workload = planned.workload(name)
        if workload.record is None:
            return
        phase = workload.record.phase.name
        reports = [report for report in run.progress[name].values() if report.phase == phase]
        drain = run.drains.get(name)
        now = time.monotonic_ns()
        self._display.show(workload, reports, drain, now)
        if drain is not None and drain.asks(now):
            from pytest_loadtest.fleet.undelivered import ask_target

            ask_target(workload, drain)
        if len(reports) < len(run.members):
            return
        change = planned.look(workload, reports, now)
        if change is None:
            return
        self._change(run, workload, change)
        if change.aborted is not None:
            self._display.announce(f"{workload.test}: {change.aborted.reason}")

    def _change(self, run: Run, workload: WorkloadRun, change: Change) -> None:
        assert self.rendezvous is not None
        workload.current.changes.append(change)
        self.rendezvous.change(run, workload.name, workload.current.phase.name, change)

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        """Carry out a command of the test's body.

        :returns: the instant of a change, ns after the phase's start; or a slow function that
            restarts the target, to be called in a thread of its own. An error of the function
            other than a usage error ends the run.
        :raises UsageError: the command is impossible.
        """
        # On use: they load numpy.
        from pytest_loadtest.fleet.live_changes import measured_workload, requested_change

        planned = self._planned.get(run.key)
        if kind == STOP_SERVICES:
            return partial(self._stop_services, planned)
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
            self._display.announce(f"{nodeid}: {disturbance.text} {workload.target}")
            return workload.disturb(disturbance)

    def gave_up(self, run: Run, error: Exception) -> None:
        """Write the results of a broken run: its description, and why it has no verdict."""
        planned = self._planned.get(run.key)
        if planned is None:
            return
        if planned.services is not None:
            planned.note_deaths(planned.services.noted_deaths)
        for workload in planned.workloads:
            end = partial(planned.observing.end, workload)
            self.outputs.write_broken(workload.folder or workload.root, end)
        if isinstance(error, BrokenRun):
            self._results.add_broken(planned, error)

    def ended(self, run: Run) -> None:
        """Forget what was planned for a run: a session may have thousands of them.

        Its services are stopped, if its lead did not have that done before it was gone.
        """
        planned = self._planned.pop(run.key, None)
        if planned is not None and planned.services in self._services:
            stop = partial(self._stop_services, planned)
            threading.Thread(target=stop, name="loadtest-services", daemon=True).start()

    def _stop_services(self, planned: PlannedRun | None) -> str:
        """Stop the services of a run; return the answer to the command."""
        if planned is not None and planned.services is not None:
            planned.services.stop()
            self._services.discard(planned.services)
        return STOP_SERVICES

    # --- once for each session

    def _get_targets(self) -> Targets:
        from pytest_loadtest.fleet.targets import Targets

        if self._targets is None:
            self._targets = Targets(self._options, self.folder, self._display.announce)
        return self._targets

    def close(self) -> None:
        """Stop services, Spark and every broker, the latter two in parallel.

        Logs are kept if something failed.
        """
        self.spark.begin_stop()
        for services in tuple(self._services):
            services.stop()
        if self._targets is not None:
            self._targets.close()
            self._targets = None
        self.spark.stop()
