"""Watches: they read the workers' progress while a phase runs, and change it when a condition is
met.

The run controller calls :meth:`Watch.look` for each progress report once every worker has reported
in the phase, in the controller's process and under the rendezvous' lock. A watch ends a phase early
only on certain evidence, because reports are old, each by a different time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pytest_loadtest.engine.run import COLLECT
from pytest_loadtest.plan.phases import BacklogPlan, Phase, StageSpan
from pytest_loadtest.schedule.changes import CHANGE_IN, Aborted, Change
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.abort import Abort, describe_count, describe_latency, lost_seconds
from pytest_loadtest.verdict.early import certainly_missed, exceeds
from pytest_loadtest.verdict.objectives import Objective, Slo, scale_objectives

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.schedule.due_messages import DueMessages


# A worker reports this many seconds more than are judged; one that is silent for a minute ends the
# run anyway.
STALE: Final = 70


class Watch(Protocol):
    """Reads progress and decides on changes."""

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        """Return the change for all workers, or None.

        :param progress: each worker's latest.
        :param elapsed: ns after the phase's start.
        """

    @property
    def spans(self) -> tuple[StageSpan, ...]:
        """The stages that the watch found in the phase, known after its end; empty if there are
        none.
        """


class Look(NamedTuple):
    """One look at a backlog, ``elapsed`` ns after the phase's start: deliveries still waiting, and
    copies received so far.
    """

    elapsed: int
    waiting: int
    received: int


class BacklogWatch:
    """Resumes the consumers when the backlog is built, and ends the phase some time after the
    backlog was drained.

    A change takes effect some time after the progress that caused it; both instants are kept, in ns
    after the phase's start.

    The counts of all workers are of one instant while the drain lasts, unless it takes too long:
    they report at the same instants, each by its own clock.

    Workers count copies. A second copy, or a copy of a message that was answered as failed, makes
    the backlog look smaller than it is, and workers cannot identify all of them: the first copy may
    have gone to another worker. So the phase continues until the backlog is drained even if every
    copy that may be a second one is. :meth:`drained_between` computes the exact instants once the
    samples have been counted.

    :param ordered: each consumer gets the messages of a stream in order, so that a sequence not
        above the highest one before is always a second copy. Otherwise it may be a first copy, and
        is counted as one.
    """

    def __init__(self, plan: BacklogPlan, mean_size: float, *, ordered: bool = True) -> None:
        self._plan = plan
        self.mean_size = mean_size
        self._ordered = ordered
        self.reached: int | None = None
        """The instant at which the requested size was seen."""
        self.resumed: int | None = None
        self.emptied: int | None = None
        """The instant at which no more was left than the plan allows, or at which the drain was
        given up because it took too long.
        """
        self.messages = self._before = 0
        self._looks: list[Look] = []
        self._drain_end = 0
        self._end: int | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        received = sum(p.received for p in progress)
        waiting = sum(p.acked for p in progress) * self._plan.subscriptions - received
        if self.resumed is None or elapsed < self.resumed:
            # The backlog grows until all consumers resume at one instant.
            self.messages = waiting
            self._before = received
            return self._build(waiting, elapsed)
        # Only counts of one instant add up. Copies that one worker has counted and acknowledgements
        # that another has not reported yet make the backlog smaller than it ever was.
        is_over = elapsed - self.resumed >= self._plan.drain_timeout
        reported = [report.elapsed for report in progress]
        if self.emptied is None and not is_over and max(reported) - min(reported) > COLLECT:
            return None
        if self._end is None or elapsed <= self._end:
            self._looks.append(Look(elapsed, waiting, received - self._before))
        if self.emptied is None:
            repeats = sum(p.repeats for p in progress) if self._ordered else 0
            # The most deliveries that may still wait, by the workers' counts.
            is_left = waiting + repeats > self.allowed
            if elapsed == self.resumed or (is_left and not is_over):
                return None
            self.emptied = elapsed
            self._drain_end = elapsed + CHANGE_IN
            return Change(at=self._drain_end)
        if self._end is None and elapsed >= self._drain_end:
            end = max(self._drain_end + self._plan.after, elapsed + CHANGE_IN)
            self._end = min(end, self._plan.longest)
            return Change(at=self._end, end=True)
        return None

    def _build(self, waiting: int, elapsed: int) -> Change | None:
        if self.resumed is not None or waiting < self._plan.messages:
            return None
        self.reached = elapsed
        self.resumed = elapsed + CHANGE_IN
        return Change(at=self.resumed, paused=False)

    def drained_between(self, uncounted: int, lost: int) -> tuple[Look | None, Look | None]:
        """Return the first looks at which the backlog may and must have been drained, or None.

        At most ``uncounted`` more deliveries waited than a look shows, and at most ``lost`` fewer;
        if both are 0, both looks are the same. The first look lies before the drain was given up;
        the second may lie after it, while load continued.

        :param uncounted: copies other than first copies of acknowledged messages, over the whole
            phase.
        :param lost: deliveries that never came, if they need not have waited.
        """
        assert self.resumed is not None
        assert self.emptied is not None
        first: Look | None = None
        certain: Look | None = None
        for look in self._looks:
            if look.elapsed <= self.resumed:
                continue
            may_be_drained = look.waiting - lost <= self.allowed
            if first is None and look.elapsed <= self.emptied and may_be_drained:
                first = look
            if certain is None and look.waiting + uncounted <= self.allowed:
                certain = look
        return first, certain

    @property
    def last(self) -> Look:
        """The look at which the drain was seen to be over, or given up."""
        return next(look for look in self._looks if look.elapsed == self.emptied)

    @property
    def allowed(self) -> int:
        """Deliveries that may be left of a backlog that counts as drained."""
        return self._plan.drained

    @property
    def spans(self) -> tuple[StageSpan, ...]:
        if self.resumed is None or self.emptied is None or self._end is None:
            return ()
        edges = {
            "build": (0, self.resumed),
            "drain": (self.resumed, self.emptied),
            "after": (self.emptied, self._end),
        }
        return tuple(
            StageSpan(name=name, start=start, duration=end - start, rate=0.0, slo=Slo())
            for name, (start, end) in edges.items()
        )


class BrokenWatch:
    """Ends a step of a search as soon as an objective can certainly no longer be met.

    Reports are up to :data:`~pytest_loadtest.engine.run.PROGRESS` old, each by a different time,
    and lack what arrived just before. So the messages that should have been counted are those due
    at the time of the oldest report minus the interval between two looks at arrivals: a message
    among them that no worker has counted is too late, if it comes at all.

    :param objectives: upper bounds on end-to-end latencies, as the workers count them.
    :param fan_out: the deliveries due for each message.
    :param due: the messages of the phase.
    :param one_order: all copies of a delivery come to one consumer, from one topic.
    """

    spans: tuple[StageSpan, ...] = ()

    def __init__(
        self,
        objectives: Sequence[Objective],
        phase: Phase,
        fan_out: int,
        due: DueMessages,
        *,
        one_order: bool = True,
    ) -> None:
        self._objectives = objectives
        self._phase = phase
        self._fan_out = fan_out
        self._one_order = one_order
        self._due = due
        self.broke: str | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        if self.broke is not None or elapsed + 2 * CHANGE_IN >= self._phase.duration:
            return None
        planned = self._due.most(self._phase.duration) * self._fan_out
        self.broke = certainly_missed(self._objectives, planned, self._exceeded(progress))
        if self.broke is None:
            return None
        return Change(at=elapsed + CHANGE_IN, end=True, unattainable=self.broke)

    def _exceeded(self, progress: Sequence[Progress]) -> dict[str, int]:
        """Return the number of deliveries that are certainly beyond each bound, by objective name.

        Percentiles rank over all that was due, so an overdue delivery counts whether it will come
        or not. For ``max`` it does not count: the profile may allow it never to come. The verdict
        uses latencies of first copies; workers see all copies. So a late copy counts only if it
        cannot be a second one: no worker saw a sequence again, and all copies come to one consumer
        from one topic, because a second copy elsewhere looks like a first one. Overdue
        deliveries always count: second copies only make their number smaller.
        """
        received = sum(p.received for p in progress)
        only_first = self._one_order and not any(p.has_second_copies for p in progress)
        counted_until = min(p.elapsed for p in progress) - COLLECT
        exceeded = {}
        for number, objective in enumerate(self._objectives):
            late = 0
            if only_first:
                reports = [p.beyond_bounds for p in progress if len(p.beyond_bounds) > number]
                late = sum(beyond[number] for beyond in reports)
            exceeded[objective.name] = late
            if objective.percentile is not None:
                due_before = counted_until - (exceeds(objective) or 0) + 1
                overdue = self._due.fewest(due_before) * self._fan_out
                # A lower bound: a received copy may belong to a message due later.
                exceeded[objective.name] += max(0, overdue - received)
        return exceeded


def abort_bounds(plan: Plan) -> Abort | None:
    """Return the bounds of the profile's ``abort`` section (docs/decisions/022), scaled."""
    abort = plan.profile.abort
    scaled = plan.scale
    if abort is None or scaled is None:
        return abort
    return replace(abort, counts=scale_objectives(abort.counts, scaled.rate, scaled.messages))


def abort_reporting(plan: Plan) -> tuple[tuple[int, ...], int]:
    """Return the latency bounds (ns) that workers count against, and the seconds they report."""
    abort = abort_bounds(plan)
    if abort is None:
        return (), 0
    bounds = tuple(int(objective.maximum or 0) for objective in abort.latencies)
    latest = -(-abort.latest // SECOND)
    return bounds, abort.hold + latest + STALE


class AbortWatch:
    """Ends the measured phase when a bound of ``abort`` was broken for long enough.

    A second is judged once every message intended in it is older than the bound at the time of the
    oldest report minus the interval between two looks at arrivals: a message that was not counted
    by then took longer than the bound.

    :param due: returns the messages of the phase, with all changes so far.
    :param deliveries: number for each message.
    """

    spans: tuple[StageSpan, ...] = ()

    def __init__(
        self, abort: Abort, phase: Phase, deliveries: int, due: Callable[[], DueMessages]
    ) -> None:
        self._abort = abort
        self._phase = phase
        self._deliveries = deliveries
        self._due = due
        self.reason: str | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        if self.reason is not None or elapsed + 2 * CHANGE_IN >= self._phase.duration:
            return None
        self.reason = self._too_many(progress) or self._too_late(progress)
        if self.reason is None:
            return None
        reason = f"aborted {format_duration(elapsed)} into the phase: {self.reason}"
        return Change(at=elapsed + CHANGE_IN, end=True, aborted=Aborted(reason=reason))

    def _too_many(self, progress: Sequence[Progress]) -> str | None:
        if not self._abort.counts:
            return None
        planned = self._due().most(self._phase.duration)
        failed = sum(p.failed for p in progress)
        dropped = sum(p.dropped for p in progress)
        counts = {"failed": failed, "dropped": dropped}
        name = certainly_missed(self._abort.counts, planned, counts)
        for objective in self._abort.counts:
            if objective.name == name:
                in_bytes = self._phase.mean_size is not None
                return describe_count(objective, counts[name], planned, at_most=in_bytes)
        return None

    def _too_late(self, progress: Sequence[Progress]) -> str | None:
        reports = [p.timely for p in progress if p.timely is not None]
        if len(reports) < len(progress) or not self._abort.latencies:
            return None
        counted_until = min(p.elapsed for p in progress) - COLLECT
        hold = self._abort.hold
        for number, objective in enumerate(self._abort.latencies):
            last = (counted_until - int(objective.maximum or 0)) // SECOND
            first = last - hold
            if first < max(report.first for report in reports):
                continue
            # The section has no latency if the rate is in bytes, so the numbers are exact.
            messages = self._due()
            before = messages.most(first * SECOND)
            due = []
            timely = []
            for second in range(first, last):
                after = messages.most((second + 1) * SECOND)
                due.append((after - before) * self._deliveries)
                before = after
                timely.append(sum(report.count(number, second) for report in reports))
            if lost_seconds(due, timely, objective.percentile or 0) == hold:
                return describe_latency(objective, hold, first, sum(due), sum(timely))
        return None
