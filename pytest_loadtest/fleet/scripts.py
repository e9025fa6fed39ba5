"""Scripts supply the phases of a workload's run: those of its plan, or the steps of a search.

The run controller calls a script's ``next`` when all workers have finished a phase, in the thread
that answers the meeting, where a search also judges the step that has just ended. A search never
continues after a step without data: its answer would be unfounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.watches import AbortWatch, BacklogWatch, BrokenWatch, Watch, abort_bounds
from pytest_loadtest.plan.phases import Phase, search_phases
from pytest_loadtest.values.quantities import ByteRate, format_duration, format_rate
from pytest_loadtest.values.records import record
from pytest_loadtest.verdict.peak import Ask, Peak, Search, Step
from pytest_loadtest.verdict.slo import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.fleet.measured_run import MeasuredRun
    from pytest_loadtest.fleet.workload_run import WorkloadRun
    from pytest_loadtest.results.load import Load

    Judged = tuple[MeasuredRun, Load]


@record
class Next:
    """A phase to run.

    :param folder: the name of its folder; None if no samples are kept.
    :param watch: the watch of its progress.
    """

    phase: Phase
    folder: str | None
    watch: Watch | None = None


class PlannedScript:
    """The phases of the plan."""

    def __init__(self, workload: WorkloadRun) -> None:
        plan = workload.plan
        ordered = workload.part.profile.ordered
        self.backlog: BacklogWatch | None = None
        if plan.backlog is not None:
            self.backlog = BacklogWatch(plan.backlog, plan.mean_size, ordered=ordered)
        watch: Watch | None = self.backlog
        abort = abort_bounds(plan)
        if abort is not None:
            fan_out = plan.topology.fan_out
            watch = AbortWatch(abort, plan.measure, fan_out, workload.due_messages)
        self._rest: list[Next | None] = []
        self._rest += _recording(plan.phases, "measure", watch)

    @property
    def length(self) -> int:
        """The number of phases left."""
        return len(self._rest)

    def wait(self, turns: int) -> None:
        """Put ``turns`` turns without a phase before the next one."""
        self._rest[:0] = [None] * turns

    def next(self) -> Next | None:
        """Return the next phase, once the one before is over; None without one in this turn."""
        return self._rest.pop(0) if self._rest else None


def align_phases(scripts: list[PlannedScript | SearchScript]) -> list[PlannedScript | SearchScript]:
    """Let workloads that run together be measured at the same time.

    Those without a warm-up wait for the warm-up of the others.
    """
    planned = [script for script in scripts if isinstance(script, PlannedScript)]
    longest = max((script.length for script in planned), default=0)
    for script in planned:
        script.wait(longest - script.length)
    return scripts


class SearchScript:
    """The steps of a search for the highest rate.

    :param judge: measures and judges the samples of the phase that has just ended.
    """

    def __init__(
        self, workload: WorkloadRun, judge: Callable[[], Judged], announce: Callable[[str], None]
    ) -> None:
        assert workload.plan.search is not None
        self._workload = workload
        self._judge = judge
        self._announce = announce
        self._search = Search(workload.plan.search)
        self._ask: Ask | None = None
        self._rest: list[Next] = []
        self._watch: BrokenWatch | None = None
        self._met: dict[float, MeasuredRun] = {}  # by rate: the last step that was met
        self._last: MeasuredRun | None = None

    def next(self) -> Next | None:
        """Return the next phase, once the one before is over; None if the search has ended."""
        if self._rest:
            return self._rest.pop(0)
        if self._ask is not None:
            self._record(self._ask)
        self._ask = self._search.next()
        if self._ask is None:
            return None
        self._rest = self._phases(self._ask)
        return self._rest.pop(0)

    def _phases(self, ask: Ask) -> list[Next]:
        plan = self._workload.plan
        phases = search_phases(
            ask.rate,
            in_bytes=plan.mean_size if plan.profile.in_bytes else None,
            warmup=ask.warmup,
            hold=ask.duration,
            number=ask.number,
            streams=plan.topology.streams,
            turns=plan.turns,
        )
        due = self._workload.due_messages_of(phases[-1])
        self._watch = BrokenWatch(
            self._workload.bounds,
            phases[-1],
            plan.topology.fan_out,
            due,
            one_order=self._workload.one_order,
        )
        return _recording(phases, f"step-{ask.number:02d}", self._watch)

    def _record(self, ask: Ask) -> None:
        measured, load = self._judge()
        verdict = load.verdict
        if verdict.outcome is Outcome.NO_DATA:
            raise NoData(
                f"search step {ask.number} ({ask.rate:,.0f}/s): no data: "
                f"{'; '.join(verdict.reasons)}"
            )
        missed = verdict.having(Outcome.MISSED)
        early = None if self._watch is None else self._watch.broke
        names = [finding.objective.name for finding in missed]
        if early is not None:
            names.insert(0, early)
        # A target that went away has missed the step, whatever its objectives say.
        reasons = list(verdict.reasons)
        if verdict.outcome is Outcome.MISSED:
            # The reasons of a generator-limited step are about the generator; what it missed says
            # nothing about the target.
            reasons = [*(finding.text for finding in missed), *reasons]
        throughput = None
        if load.measurements.counts.received:
            throughput = load.measurements.throughput
        step = Step(
            ask=ask,
            outcome=verdict.outcome,
            broke=tuple(dict.fromkeys(names)),
            text=reasons[0] if reasons else "",
            early=early is not None,
            throughput=throughput,
        )
        self._search.record(step)
        self._last = measured
        if verdict.outcome is Outcome.MET:
            self._met[ask.rate] = measured
        self._announce(_line(step, in_bytes=self._workload.plan.profile.in_bytes))

    def peak(self) -> Peak:
        """Return the result of the search, once there are no more steps."""
        return self._search.peak()

    def best_step(self, peak: Peak) -> MeasuredRun:
        """Return the step whose results are shown.

        It is the last one met at the peak, or without a peak the last one of all. A step that was
        met at a higher rate does not count, because repeats of it were missed.
        """
        step = self._last if peak.rate is None else self._met[peak.rate]
        assert step is not None  # a search has at least one step
        return step


def _recording(phases: Sequence[Phase], folder: str, watch: Watch | None) -> list[Next]:
    """Return the phases to run; those that are recorded have the folder and the watch."""
    return [
        Next(phase=phase, folder=folder, watch=watch)
        if phase.recorded
        else Next(phase=phase, folder=None)
        for phase in phases
    ]


def _line(step: Step, *, in_bytes: bool) -> str:
    """``search step 4 (bisect): 12 500 msg/s for 5.00 s: missed, endToEndLatency.p99 …``"""
    ask = step.ask
    ended = ", ended early" if step.early else ""
    why = f": {step.text}" if step.text else ""
    rate = ByteRate(ask.rate) if in_bytes else ask.rate
    load = f"{format_rate(rate)} for {format_duration(ask.duration)}"
    return f"search step {ask.number} ({ask.purpose}): {load}: {step.outcome.value}{ended}{why}"
