"""The controller's part in a run: plan it, have its target, say when it starts, aggregate and judge it, write what came of it."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import BrokenRun, GeneratorLimited, TargetError
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.folders import run_folder, session_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

    from pytest_loadtest.brokers._base import Broker
    from pytest_loadtest.drivers._base import DriverFacts
    from pytest_loadtest.fleet.coordinator import Run
    from pytest_loadtest.fleet.orders import Done, Order, Outcome, Request
    from pytest_loadtest.fleet.targets import Targets
    from pytest_loadtest.live import LiveLine
    from pytest_loadtest.pipeline.session import SparkHost
    from pytest_loadtest.plan import Plan

START_IN = 200_000_000  # ns from the decision to start until the first message is due: all workers must have heard of it
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about load."""

    results: Path
    scale: float | str | None
    duration: int | None
    force: bool
    broker: str
    target: str | None
    admin: str | None
    spark_master: str | None
    spark_remote: str | None
    spark_conf: dict[str, str]

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """:raises pytest.UsageError: an option says something it cannot."""
        from pytest_loadtest.fleet.options import duration, scale, spark_conf

        option = config.option
        return cls(
            results=Path(config.rootpath, config.getini("load_results")), scale=scale(option.load_scale),
            duration=duration(option.load_duration),
            force=option.load_force, broker=option.load_broker, target=option.load_target, admin=option.load_admin_url,
            spark_master=option.load_spark_master, spark_remote=option.load_spark_remote, spark_conf=spark_conf(option.load_spark_conf),
        )  # fmt: skip


@dataclass(slots=True)
class RunState:
    """What the conductor knows of one run."""

    request: Request
    plan: Plan
    folder: Path
    name: str
    nonce: int
    broker: Broker | None = None
    facts: DriverFacts | None = None
    start: int = 0
    started: float | None = None


def _with_differences(facts: DriverFacts | None, done: Mapping[str, Done]) -> DriverFacts | None:
    """The lead's facts as they were before the load, and beside them what became different on a worker: connections lost, for one."""
    if facts is None:
        return None
    applied = dict(facts.applied)
    for worker, said in done.items():
        if said.facts is not None:
            applied |= {f"{key} ({worker})": value for key, value in said.facts.applied.items() if facts.applied.get(key) != value}
    return replace(facts, applied=applied)


def _name(state: RunState) -> str:
    return state.broker.facts.describe() if state.broker is not None else state.request.profile.driver.name


class Conductor:
    """Conducts the runs of one pytest session; see :class:`~pytest_loadtest.fleet.coordinator.Conducting`."""

    def __init__(self, options: Options, live: LiveLine | None) -> None:
        self._options, self._live = options, live
        self._session = session_folder(options.results)
        self._spark: SparkHost | None = None
        self._targets: Targets | None = None
        self.documents: list[dict[str, Any]] = []

    # --- meetings

    def meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]:
        """What each worker gets at this meeting; runs in a thread of its own."""
        if name == "order":
            return self._order(run, payloads[0])
        if name == "prepared":
            run.facts.facts = payloads[0]
        elif name.startswith("start "):
            return [self._start(run, payloads[0])] * len(payloads)
        elif name == "closed":
            self._still_there(run, payloads)
        elif name == "judged":
            return [self._judge(run)] + [None] * (len(payloads) - 1)
        return [None] * len(payloads)

    def _order(self, run: Run, request: Request) -> Sequence[Order]:
        from pytest_loadtest.drivers._base import TargetAddress
        from pytest_loadtest.fleet.orders import Order

        self._say(f"{request.nodeid}: planning, having a target, warming Spark")
        plan = self._plan(request, len(run.members))
        state = run.facts = RunState(
            request=request, plan=plan, nonce=secrets.randbits(32), name=secrets.token_hex(4),
            folder=run_folder(self._session, request.nodeid, request.attempt, request.profile.name),
        )  # fmt: skip
        self._gate(plan)
        if self._spark is None:
            self._spark = self._make_spark()
        self._spark.warm()
        broker = state.broker = self._have_targets().get(request)
        address = TargetAddress(url=broker.facts.url, admin_url=broker.facts.admin_url)
        return [
            Order(
                run=state.name, nonce=state.nonce, worker=worker, profile=request.profile, payload_file=request.payload_file,
                assignment=plan.assignments[rank], phases=plan.phases, topics=plan.topology.topic_specs(), target=address,
                folder=state.folder, ordered=request.profile.ordered,
            )
            for rank, worker in enumerate(run.members)
        ]  # fmt: skip

    def _plan(self, request: Request, workers: int) -> Plan:
        from pytest_loadtest.fleet.machine import costs, machine
        from pytest_loadtest.fleet.targets import here
        from pytest_loadtest.plan import make_plan, profile_cost_key, profile_pool

        profile = request.profile
        broker_here = here(request, self._options)
        pool = profile_pool(profile, request.payload_file)
        return make_plan(
            profile, pool, workers=workers, cost=costs()[profile_cost_key(profile)], machine=machine(), broker_here=broker_here,
            scale=self._options.scale, duration_cap=self._options.duration,
        )  # fmt: skip

    def _gate(self, plan: Plan) -> None:
        from pytest_loadtest.fleet.machine import machine

        reasons = plan.beyond(machine())
        if reasons and not self._options.force:
            text = "\n".join(f"  {reason}" for reason in reasons)
            raise GeneratorLimited(
                f"load run of profile {plan.profile.name}: generator-limited before any load: this machine cannot carry the plan\n{text}\n"
                "  use --load-scale auto (--load-plan shows the whole plan), more workers or machines, or --load-force to try it anyway"
            )

    def _start(self, run: Run, number: int) -> int:
        state: RunState = run.facts
        phase = state.plan.phases[number]
        profile, topology = state.request.profile, state.plan.topology
        run.drain = Drain(phase.name, len(run.members), topology.subscriptions, profile.drain_timeout)
        start = time.monotonic_ns() + START_IN
        if phase.recorded:
            state.start, state.started = start, time.time() + START_IN / 1e9
            self._write(state, "run.json", self._run_document(run))
        return start

    def _run_document(self, run: Run) -> dict[str, Any]:
        state: RunState = run.facts
        plan, profile = state.plan, state.request.profile
        phase, topology = plan.measure, plan.topology
        return {
            "version": _VERSION, "run": state.name, "nonce": state.nonce, "workers": run.members, "start": state.start,
            "duration": phase.duration,
            "rate": plan.rate, "topics": topology.topics, "subscriptions": topology.subscriptions, "ordered": profile.ordered,
            "publish_acks": profile.publish_acks, "buckets": list(plan.bucket_names),
            "streams": {
                "count": topology.streams, "topics": [spec.topic.index for spec in topology.producer_specs()], "first": list(phase.first),
                "end": [first + count for first, count in zip(phase.first, phase.count, strict=True)],
            },
            "started": state.started, "seed": profile.seed, "scale": None if plan.scale is None else plan.scale.factor,
            "test": state.request.nodeid, "profile": profile.document(), "facts": self._facts(state),
        }  # fmt: skip

    def _still_there(self, run: Run, done: Sequence[Done]) -> None:
        state: RunState = run.facts
        self._check_broker(state)
        gone = [f"worker {worker}: {said.disconnected}" for worker, said in zip(run.members, done, strict=True) if said.disconnected]
        if gone:
            raise TargetError(f"the target {_name(state)} went away and was not back when the drain ended: {'; '.join(gone)}")
        state.facts = _with_differences(state.facts, dict(zip(run.members, done, strict=True)))
        # from here on the samples can be aggregated again and judged; a run that was given up earlier stays one, whatever its samples say
        self._write(state, "run.json", {**self._run_document(run), "ended": True})

    def check(self, run: Run) -> None:
        """:raises TargetError: the target is gone."""
        if run.facts is not None:
            self._check_broker(run.facts)

    def _check_broker(self, state: RunState) -> None:
        failure = state.broker.failure() if state.broker is not None else None
        if failure:
            raise TargetError(f"the target {_name(state)} went away: {failure}")

    def gave_up(self, run: Run, error: Exception) -> None:
        """A broken run has results too: what it was, and why it says nothing."""
        from pytest_loadtest.fleet.judge import broken

        if isinstance(run.facts, RunState) and isinstance(error, BrokenRun):
            self.documents.append(broken(self._run_document(run), run.facts.folder, error))

    def show(self, run: Run) -> None:
        """Hand new progress to whoever shows it."""
        if self._live is not None and run.facts is not None:
            self._live.show(run.facts.request.nodeid, run.facts.plan, list(run.progress.values()))

    def _say(self, text: str) -> None:
        if self._live is not None:
            self._live.say(text)

    # --- verdict

    def _judge(self, run: Run) -> Outcome:
        from pytest_loadtest.fleet.judge import judge

        state: RunState = run.facts
        assert self._spark is not None
        self._say(f"{state.request.nodeid}: aggregating samples")
        outcome, document = judge(self._spark.session(), state.folder)
        self.documents.append(document)
        return outcome

    def _facts(self, state: RunState) -> dict[str, Any]:
        from pytest_loadtest.fleet.judge import broker_document, driver_document
        from pytest_loadtest.fleet.machine import describe, versions

        return {
            "plan": state.plan.document, "scaling": {} if state.plan.scale is None else dict(state.plan.scale.changes),
            "broker": broker_document(state.broker.facts) if state.broker else {}, "driver": driver_document(state.facts),
            "versions": versions(), "machine": describe(),
            "source": state.request.source,
        }  # fmt: skip

    def _write(self, state: RunState, name: str, document: dict[str, Any]) -> None:
        state.folder.mkdir(parents=True, exist_ok=True)
        (state.folder / name).write_text(json.dumps(document, indent=1), encoding="utf-8")

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

    def plan_lines(self, request: Request, workers: int) -> list[str]:
        """The plan of one test as lines.

        :raises UsageError: it cannot be planned.
        """
        from pytest_loadtest.drivers import planned_facts
        from pytest_loadtest.fleet.machine import machine
        from pytest_loadtest.report.plan import lines

        plan = self._plan(request, workers)
        return lines(plan, machine(), planned_facts(request.profile.driver))
