"""The controller's part in a run: plan it, get its target, set its start, aggregate and judge it, write its results."""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import BrokenRun, RunAborted, UsageError
from pytest_loadtest.fleet.aggregation import Aggregation
from pytest_loadtest.fleet.messages import StartPhase
from pytest_loadtest.fleet.outputs import Outputs, run_folder, session_folder
from pytest_loadtest.fleet.run_state import RunState
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.fleet.aggregated import Aggregated, Custom
    from pytest_loadtest.fleet.messages import Finished, Request, RunResult, WorkloadAssignment
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.rendezvous import Rendezvous, Run
    from pytest_loadtest.fleet.scripts import Next, Script
    from pytest_loadtest.fleet.targets import Targets
    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.report.live import LiveLine
    from pytest_loadtest.report.live_metrics import LiveMetrics
    from pytest_loadtest.results.load import Load
    from pytest_loadtest.schedule.changes import Change


START_IN = 200_000_000  # ns from the decision to start until the first message is due: all workers must have heard of it


class RunController:
    """Conducts the runs of one pytest session; see :class:`~pytest_loadtest.fleet.rendezvous.RunControl`."""

    def __init__(self, options: Options, live: LiveLine | None, custom: Custom | None = None, metrics: LiveMetrics | None = None) -> None:
        self._options, self._live, self._metrics = options, live, metrics
        self.folder = session_folder(options.results)
        self.outputs = Outputs(options, self.folder)
        self.aggregation = Aggregation(self.folder / "spark", options, self._announce, custom)
        self._targets: Targets | None = None
        self._restarting = threading.Lock()
        self.documents: list[dict[str, Any]] = []
        self.rendezvous: Rendezvous | None = None

    # --- meetings

    def meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]:
        """What each worker gets at this meeting; runs in a thread of its own."""
        try:
            return self._meeting(run, name, payloads)
        except OSError as error:
            from pytest_loadtest.engine.sample_files import is_full, unwritten  # loads numpy: a session without load tests must not

            if not is_full(error) or not isinstance(run.facts, RunState):
                raise
            needed = sum(workload.plan.needs.disk for workload in run.facts.workloads)
            raise unwritten("the controller", "results", self.folder, error, needed) from error

    def _meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]:
        if name == "order":
            return self._order(run, payloads[0])
        if name == "prepared":
            for workload, facts in zip(run.facts.workloads, payloads[0], strict=True):
                workload.set_driver_facts(facts)
        elif name.startswith("connect "):
            from pytest_loadtest.fleet import run_state

            return [run_state.begin(run.facts, name, len(payloads), self._announce)] * len(payloads)
        elif name == "subscribed":
            run.facts.observing.met(run.members, payloads)
        elif name.startswith("next "):
            if name == "next 0":
                self.aggregation.ready()
            return [self._next(run, payloads)] * len(payloads)
        elif name == "closed":
            self._closed(run, payloads)
        elif name == "judged":
            return [self._judge(run)] + [None] * (len(payloads) - 1)
        return [None] * len(payloads)

    def _order(self, run: Run, request: Request) -> Sequence[Sequence[WorkloadAssignment]]:
        from pytest_loadtest.fleet import planning
        from pytest_loadtest.fleet.scripts import aligned
        from pytest_loadtest.plan.connecting import takes

        self._announce(f"{request.nodeid}: planning, having a target")
        self.aggregation.start()
        plans = planning.plans(request, len(run.members), self._options)
        workloads = self._workload_runs(run, request, plans)
        run.facts = RunState(request=request, workloads=workloads, scripts=[])
        run.patience += sum(takes(plan) for plan in plans) // SECOND
        planning.check_machine(request, plans, self._options)
        with self._restarting:  # a run before this one may have ended while its target was being restarted
            for workload in workloads:
                workload.broker = self._get_targets().get(request, workload.part.profile)
        run.facts.scripts = aligned([self._script(workload) for workload in workloads])
        more = () if self._metrics is None else self._metrics.bounds
        return [[workload.order(worker, rank, more) for workload in workloads] for rank, worker in enumerate(run.members)]

    def _workload_runs(self, run: Run, request: Request, plans: Sequence[Plan]) -> list[WorkloadRun]:
        from pytest_loadtest.fleet.workload_run import WorkloadRun

        name, several = secrets.token_hex(4), len(plans) > 1
        return [
            WorkloadRun(
                name=part.profile.name if several else "", part=part, plan=plan,
                root=run_folder(self.folder, request.nodeid, request.attempt, part.profile.name).parent, nonce=secrets.randbits(32),
                test=request.nodeid, source=request.source, run=f"{name}-{i}" if several else name, workers=tuple(run.members),
            )
            for i, (part, plan) in enumerate(zip(request.parts, plans, strict=True))
        ]  # fmt: skip

    def _script(self, workload: WorkloadRun) -> Script:
        from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript

        if workload.plan.search is None:
            return PlannedScript(workload)
        return SearchScript(workload, lambda: self._judge_step(workload), self._announce)

    def _judge_step(self, workload: WorkloadRun) -> tuple[Aggregated, Load]:
        from pytest_loadtest.fleet.judge import conclude_run

        assert workload.folder is not None
        samples = self.aggregation.aggregate(workload.folder)
        return samples, conclude_run(samples)[0].load

    def _next(self, run: Run, said: Sequence[Any]) -> Sequence[StartPhase | None] | None:
        state: RunState = run.facts
        for i, workload in enumerate(state.workloads):
            done = [worker[i] for worker in said if worker is not None and worker[i] is not None]
            if done:
                workload.check_broker()
                watch = state.watches.get(workload.name)
                workload.done(done, () if watch is None else watch.spans)
                state.observing.end(workload)
        following = [script.next() for script in state.scripts]
        if not any(following):
            return None
        state.watches = {}
        start = time.monotonic_ns() + START_IN
        return [self._begin(run, workload, one, start) for workload, one in zip(state.workloads, following, strict=True)]

    def _begin(self, run: Run, workload: WorkloadRun, following: Next | None, start: int) -> StartPhase | None:
        if following is None:
            return None
        drain = workload.begin(following.phase, following.folder, start)
        run.facts.observing.begin(workload)
        if following.watch is not None:
            run.facts.watches[workload.name] = following.watch
        run.progress.pop(workload.name, None)
        run.drains[workload.name] = drain
        assert workload.phase is not None
        return StartPhase(phase=workload.phase, start=start, folder=workload.folder, wall=workload.clock.offset)

    def _closed(self, run: Run, done: Sequence[Sequence[Finished]]) -> None:
        state: RunState = run.facts
        for i, workload in enumerate(state.workloads):
            workload.check_broker()
            workload.add_worker_facts({worker: said[i].facts for worker, said in zip(run.members, done, strict=True)})
            if workload.folder is not None:
                workload.write(ended=True)

    def check(self, run: Run) -> None:
        """:raises TargetError: the target is gone."""
        if run.facts is not None:
            for workload in run.facts.workloads:
                workload.check_broker()

    def gave_up(self, run: Run, error: Exception) -> None:
        """A broken run has results too: what it was, and why it says nothing."""
        if isinstance(run.facts, RunState):
            for workload in run.facts.workloads:
                run.facts.observing.end(workload)
        if isinstance(run.facts, RunState) and isinstance(error, BrokenRun):
            broken = _write_broken(run.facts.workloads, error)
            self.documents += broken
            self.outputs.ended(broken)

    # --- while load runs

    def progressed(self, run: Run, name: str) -> None:
        """New progress: show it, and let whoever watches the phase act on it."""
        state: RunState = run.facts
        workload, progress = state.workload(name), list(run.progress[name].values())
        mine = [p for p in progress if workload.phase is not None and p.phase == workload.phase.name]
        if self._live is not None and workload.phase is not None and mine:
            self._live.show(workload.part.profile.name, workload.phase, mine)
        if self._metrics is not None and workload.phase is not None and mine:
            self._metrics.show(workload.test, workload.part.profile.name, workload.name, workload.phase, mine)
        watch = state.watches.get(name)
        if watch is not None and len(mine) == len(run.members):
            change = watch.look(mine, time.monotonic_ns() - workload.start)
            if change is not None:
                self._change(run, workload, change)
            if change is not None and change.aborted is not None:
                self._announce(f"{workload.test}: {change.aborted.reason}")

    def _change(self, run: Run, workload: WorkloadRun, change: Change) -> None:
        assert self.rendezvous is not None
        assert workload.phase is not None
        workload.change(change)
        self.rendezvous.change(run, workload.name, workload.phase.name, change)

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        """What the test's body wants: a change, at an instant that it is told (ns after the phase's start), or a restart of the target."""

        state: RunState = run.facts
        workload = measuring(state.workloads, driving=bool(run.drains))
        if kind == "restart":
            return partial(self._restart, state.request.nodeid, workload, kill=argument)
        change = change_of(workload, kind, argument, time.monotonic_ns())
        self._change(run, workload, change)
        return change.at

    def _restart(self, nodeid: str, workload: WorkloadRun, *, kill: bool) -> tuple[int, int]:
        """Takes as long as the target needs; see :meth:`~pytest_loadtest.fleet.workload_run.WorkloadRun.restart_broker`."""
        with self._restarting:
            self._announce(f"{nodeid}: restarting {workload.target}")
            return workload.restart_broker(kill=kill)

    def _announce(self, text: str, *, quiet: bool = False) -> None:
        if self._live is not None:
            self._live.announce(text, quiet=quiet)

    # --- verdict

    def _judge(self, run: Run) -> RunResult:
        from pytest_loadtest.fleet import judge

        state: RunState = run.facts
        self._announce(f"{state.request.nodeid}: aggregating samples")
        judged = [self._finish(workload, script) for workload, script in zip(state.workloads, state.scripts, strict=True)]
        if isinstance(run.error, BrokenRun):  # given up meanwhile, by a test's timeout for one: what was just written is not its result
            _write_broken(state.workloads, run.error)
            raise run.error
        self.documents += [document for _, document in judged]
        self.outputs.measured([document for _, document in judged])
        if len(judged) == 1:
            return judged[0][0]
        return judge.together(state.request.profile.name, [outcome for outcome, _ in judged])

    def _finish(self, workload: WorkloadRun, script: Script) -> tuple[RunResult, dict[str, Any]]:
        """The result of one workload whose script has ended.

        :raises NoData: there is none.
        """
        from pytest_loadtest.fleet.judge import conclude_run
        from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript

        if isinstance(script, SearchScript):
            peak = script.peak()
            return conclude_run(script.shows(peak), peak=peak, baseline=self.outputs.baseline)
        assert workload.folder is not None
        backlog = script.backlog if isinstance(script, PlannedScript) else None
        return conclude_run(self.aggregation.aggregate(workload.folder), backlog=backlog, baseline=self.outputs.baseline)

    # --- what a session has once

    def _get_targets(self) -> Targets:
        from pytest_loadtest.fleet.targets import Targets

        if self._targets is None:
            self._targets = Targets(self._options, self.folder, self._announce)
        return self._targets

    def close(self) -> None:
        """Stop Spark and every broker, beside each other; keep their logs where something failed."""
        self.aggregation.finish()
        targets, self._targets = self._targets, None
        if targets is not None:
            targets.close()
        self.aggregation.stop()


def _write_broken(workloads: Sequence[WorkloadRun], error: BrokenRun) -> list[dict[str, Any]]:
    from pytest_loadtest.fleet.judge import broken

    return [broken(workload.document(), workload.folder or workload.root / "measure", error) for workload in workloads]


# What the body of a live test may change while its load runs.


def measuring(workloads: Sequence[WorkloadRun], *, driving: bool) -> WorkloadRun:
    """The workload that is measured just now. :param driving: whether a phase goes on at all.

    :raises UsageError: there is none, or there are several. :raises RunAborted: it was lost.
    """
    workload = workloads[0]
    if len(workloads) > 1:
        raise UsageError("several workloads run together: what the body changes would not say which; give each a test of its own")
    if workload.aborted:
        raise RunAborted(workload.aborted.reason)
    if workload.phase is None or workload.folder is None or workload.ends is not None or not driving:
        raise UsageError("nothing is measured just now: begin the load first, and change it before its end")
    return workload


def change_of(workload: WorkloadRun, kind: str, argument: Any, now: int) -> Change:
    """What is to change, and when. :param now: ns of the clock.

    :raises UsageError: it cannot be changed, or not any more.
    """
    from pytest_loadtest.message.payloads import check_weights  # on use: sessions without load tests load no numpy
    from pytest_loadtest.schedule.changes import CHANGE_IN, Change

    assert workload.phase is not None
    if workload.plan.profile.connects_only and kind in ("rate", "distribution"):
        raise UsageError("messages: 0 in the profile: the run has none, so there is nothing to change about them")
    if workload.phase.stages and kind in ("rate", "distribution", "consumers"):
        raise UsageError("the profile's stages say what changes when: leave them out to change things from the test's body")
    if kind == "distribution":
        if (skew := workload.plan.profile.skew) is not None and skew.message_sizes is not None:
            raise UsageError("skew.messageSizes in the profile: each topic has its own size, so there are no weights to change")
        check_weights(argument, workload.plan.bucket_names)
    most = workload.plan.topology.consumers
    if kind == "consumers" and argument not in range(most + 1):
        raise UsageError(f"load.set_consumers({argument!r}): from 0 to {most}, the profile's consumerPerSubscription; raise it there")
    at = max(now - workload.start, 0) + CHANGE_IN
    if kind != "end" and at >= workload.duration:
        raise UsageError("the measured phase ends before the change could be agreed: make testDuration longer")
    return Change(at=min(at, workload.duration), **({"end": True} if kind == "end" else {kind: argument}))
