"""The controller's part in a run: plan it, have its target, say when it starts, aggregate and judge it, write what came of it."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_loadtest.changes import CHANGE_IN, Change
from pytest_loadtest.errors import BrokenRun, UsageError
from pytest_loadtest.fleet.folders import run_folder, session_folder
from pytest_loadtest.fleet.orders import PhaseOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.fleet.coordinator import Coordinator, Run
    from pytest_loadtest.fleet.judge import Aggregated
    from pytest_loadtest.fleet.lanes import Lane
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.orders import Done, Order, Outcome, Request
    from pytest_loadtest.fleet.scripts import Next, Script
    from pytest_loadtest.fleet.targets import Targets
    from pytest_loadtest.fleet.watches import Watch
    from pytest_loadtest.live import LiveLine
    from pytest_loadtest.pipeline.session import SparkHost
    from pytest_loadtest.plan import Plan
    from pytest_loadtest.result import Load

START_IN = 200_000_000  # ns from the decision to start until the first message is due: all workers must have heard of it


@dataclass(slots=True)
class RunState:
    """What the conductor knows of one run."""

    request: Request
    lanes: list[Lane]
    scripts: list[Script]
    watches: dict[str, Watch] = field(default_factory=dict)

    def lane(self, workload: str) -> Lane:
        """The workload of that name."""
        return next(lane for lane in self.lanes if lane.name == workload)


class Conductor:
    """Conducts the runs of one pytest session; see :class:`~pytest_loadtest.fleet.coordinator.Conducting`."""

    def __init__(self, options: Options, live: LiveLine | None) -> None:
        self._options, self._live = options, live
        self._session = session_folder(options.results)
        self._spark: SparkHost | None = None
        self._targets: Targets | None = None
        self.documents: list[dict[str, Any]] = []
        self.coordinator: Coordinator | None = None

    # --- meetings

    def meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]:
        """What each worker gets at this meeting; runs in a thread of its own."""
        if name == "order":
            return self._order(run, payloads[0])
        if name == "prepared":
            for lane, facts in zip(run.facts.lanes, payloads[0], strict=True):
                lane.have(facts)
        elif name.startswith("next "):
            return [self._next(run, payloads)] * len(payloads)
        elif name == "closed":
            self._closed(run, payloads)
        elif name == "judged":
            return [self._judge(run)] + [None] * (len(payloads) - 1)
        return [None] * len(payloads)

    def _order(self, run: Run, request: Request) -> Sequence[Sequence[Order]]:
        from pytest_loadtest.fleet import planning
        from pytest_loadtest.fleet.scripts import aligned

        self._say(f"{request.nodeid}: planning, having a target, warming Spark")
        plans = planning.plans(request, len(run.members), self._options)
        lanes = self._lanes(run, request, plans)
        run.facts = RunState(request=request, lanes=lanes, scripts=[])
        planning.gate(request, plans, self._options)
        if self._spark is None:
            self._spark = self._make_spark()
        self._spark.warm()
        for lane in lanes:
            lane.broker = self._have_targets().get(request, lane.part.profile)
        run.facts.scripts = aligned([self._script(lane) for lane in lanes])
        return [[lane.order(worker, rank) for lane in lanes] for rank, worker in enumerate(run.members)]

    def _lanes(self, run: Run, request: Request, plans: Sequence[Plan]) -> list[Lane]:
        from pytest_loadtest.fleet.lanes import Lane

        name, several = secrets.token_hex(4), len(plans) > 1
        return [
            Lane(
                name=part.profile.name if several else "", part=part, plan=plan,
                root=run_folder(self._session, request.nodeid, request.attempt, part.profile.name).parent, nonce=secrets.randbits(32),
                test=request.nodeid, source=request.source, run=f"{name}-{i}" if several else name, workers=tuple(run.members),
            )
            for i, (part, plan) in enumerate(zip(request.parts, plans, strict=True))
        ]  # fmt: skip

    def _script(self, lane: Lane) -> Script:
        from pytest_loadtest.fleet.scripts import PlannedScript, SearchScript

        if lane.plan.search is None:
            return PlannedScript(lane)
        return SearchScript(lane, lambda: self._judge_step(lane), self._say)

    def _judge_step(self, lane: Lane) -> tuple[Aggregated, Load]:
        from pytest_loadtest.fleet.judge import aggregate, judge

        assert self._spark is not None
        assert lane.folder is not None
        samples = aggregate(self._spark.session(), lane.folder)
        return samples, judge(samples)[0].load

    def _next(self, run: Run, said: Sequence[Any]) -> Sequence[PhaseOrder | None] | None:
        state: RunState = run.facts
        for i, lane in enumerate(state.lanes):
            done = [worker[i] for worker in said if worker is not None and worker[i] is not None]
            if done:
                lane.check_broker()
                watch = state.watches.get(lane.name)
                lane.done(done, () if watch is None else watch.spans)
        following = [script.next() for script in state.scripts]
        if not any(following):
            return None
        state.watches = {}
        start = time.monotonic_ns() + START_IN
        return [self._begin(run, lane, one, start) for lane, one in zip(state.lanes, following, strict=True)]

    def _begin(self, run: Run, lane: Lane, following: Next | None, start: int) -> PhaseOrder | None:
        if following is None:
            return None
        drain = lane.begin(following.phase, following.folder, start)
        if following.watch is not None:
            run.facts.watches[lane.name] = following.watch
        run.progress.pop(lane.name, None)
        run.drains[lane.name] = drain
        assert lane.phase is not None
        return PhaseOrder(phase=lane.phase, start=start, folder=lane.folder)

    def _closed(self, run: Run, done: Sequence[Sequence[Done]]) -> None:
        state: RunState = run.facts
        for i, lane in enumerate(state.lanes):
            lane.check_broker()
            lane.differ({worker: said[i].facts for worker, said in zip(run.members, done, strict=True)})
            if lane.folder is not None:
                lane.write(ended=True)

    def check(self, run: Run) -> None:
        """:raises TargetError: the target is gone."""
        if run.facts is not None:
            for lane in run.facts.lanes:
                lane.check_broker()

    def gave_up(self, run: Run, error: Exception) -> None:
        """A broken run has results too: what it was, and why it says nothing."""
        if isinstance(run.facts, RunState) and isinstance(error, BrokenRun):
            self.documents += _write_broken(run.facts.lanes, error)

    # --- while load runs

    def progressed(self, run: Run, workload: str) -> None:
        """New progress: show it, and let whoever watches the phase act on it."""
        state: RunState = run.facts
        lane, progress = state.lane(workload), list(run.progress[workload].values())
        mine = [p for p in progress if lane.phase is not None and p.phase == lane.phase.name]
        if self._live is not None and lane.phase is not None and mine:
            self._live.show(lane.part.profile.name, lane.phase, mine)
        watch = state.watches.get(workload)
        if watch is not None and len(mine) == len(run.members):
            change = watch.look(mine, time.monotonic_ns() - lane.start)
            if change is not None:
                self._change(run, lane, change)

    def _change(self, run: Run, lane: Lane, change: Change) -> None:
        assert self.coordinator is not None
        assert lane.phase is not None
        lane.change(change)
        self.coordinator.change(run, lane.name, lane.phase.name, change)

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        """What the test's body wants: a change, at an instant that it is told (ns after the phase's start)."""
        from pytest_loadtest.payloads import check_weights

        state: RunState = run.facts
        lane = state.lanes[0]
        if len(state.lanes) > 1:
            raise UsageError("several workloads run together: what the body changes would not say which; give each a test of its own")
        if lane.phase is None or lane.folder is None or lane.ends is not None or not run.drains:
            raise UsageError("nothing is measured just now: begin the load first, and change it before its end")
        if lane.phase.stages and kind in ("rate", "distribution"):
            raise UsageError("the profile's stages say what changes when: leave them out to change things from the test's body")
        if kind == "distribution":
            check_weights(argument, lane.plan.bucket_names)
        at = max(time.monotonic_ns() - lane.start, 0) + CHANGE_IN
        if kind != "end" and at >= lane.duration:
            raise UsageError("the measured phase ends before the change could be agreed: make testDuration longer")
        self._change(run, lane, Change(at=min(at, lane.duration), **({"end": True} if kind == "end" else {kind: argument})))
        return at

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._live.say(text)

    # --- verdict

    def _judge(self, run: Run) -> Outcome:
        from pytest_loadtest.fleet import judge

        state: RunState = run.facts
        assert self._spark is not None
        self._say(f"{state.request.nodeid}: aggregating samples")
        session = self._spark.session()
        judged = [judge.finish(session, lane, script) for lane, script in zip(state.lanes, state.scripts, strict=True)]
        if isinstance(run.error, BrokenRun):  # given up meanwhile, by a test's timeout for one: what was just written is not its result
            _write_broken(state.lanes, run.error)
            raise run.error
        self.documents += [document for _, document in judged]
        self._export([document for _, document in judged])
        if len(judged) == 1:
            return judged[0][0]
        return judge.together(state.request.profile.name, [outcome for outcome, _ in judged])

    def _export(self, documents: Sequence[dict[str, Any]]) -> None:
        if self._options.omb_json is None:
            return
        from pytest_loadtest.report import omb

        for document in documents:
            omb.write(document, self._options.omb_json)

    # --- what a session has once

    def _make_spark(self) -> SparkHost:
        from pytest_loadtest.pipeline.session import SparkHost

        options = self._options
        return SparkHost(self._session / "spark", options.spark_conf, options.spark_master, options.spark_remote)

    def _have_targets(self) -> Targets:
        from pytest_loadtest.fleet.targets import Targets

        if self._targets is None:
            self._targets = Targets(self._options, self._session, self._say)
        return self._targets

    def close(self) -> None:
        """Stop Spark and every broker; keep their logs where something failed."""
        closing: list[Callable[[], None]] = []
        if self._targets is not None:
            closing.append(self._targets.close)
        if self._spark is not None:
            closing.append(self._spark.stop)
        self._targets = self._spark = None
        for close in closing:
            close()


def _write_broken(lanes: Sequence[Lane], error: BrokenRun) -> list[dict[str, Any]]:
    from pytest_loadtest.fleet.judge import broken

    return [broken(lane.document(), lane.folder or lane.root / "measure", error) for lane in lanes]
