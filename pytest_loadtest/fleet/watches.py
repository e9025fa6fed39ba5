"""Who looks at a phase's progress while it runs, and changes something when the time has come."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pytest_loadtest.engine.run import COLLECT
from pytest_loadtest.plan.phases import Phase, StageSpan
from pytest_loadtest.schedule.changes import CHANGE_IN, Aborted, Change
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.abort import lost_seconds, too_late, too_many
from pytest_loadtest.verdict.early import certainly_missed, exceeds
from pytest_loadtest.verdict.objectives import scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import BacklogPlan
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.verdict.abort import Abort
    from pytest_loadtest.verdict.objectives import Objective


BYTES_SPREAD: Final = 1.1
"""Where bytes are paced: at most so many times the messages planned come of them."""


class Watch(Protocol):
    """Looks at progress."""

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        """The latest progress of every worker, ``elapsed`` ns after the phase's start: what all are to change, or None."""

    @property
    def spans(self) -> tuple[StageSpan, ...]:
        """The parts of the phase, known only after it has ended; empty where it has none."""


class Look(NamedTuple):
    """The deliveries that waited, by the copies received so far, and these copies. :param elapsed: ns after the phase's start."""

    elapsed: int
    waiting: int
    received: int


class BacklogWatch:
    """Lets consumers go on when the backlog is built, ends the phase when load has gone on long enough after it was drained.

    A change takes effect some time after the progress that called for it; both instants are kept, in ns after the phase's start.

    Workers count copies. A second copy, or one of a message that was answered as failed, makes the backlog look smaller than it is, and no
    worker knows of all of them: the first copy may be another worker's. So the phase goes on until the backlog is drained even if all
    copies that may be second ones are, and :meth:`drained_between` tells the instants once the samples told how many there were.

    :param ordered: each consumer gets the messages of a stream in order, so that only a second copy has a sequence that is not above the
        highest before. Otherwise a first copy may have, and nothing is taken off.
    """

    def __init__(self, plan: BacklogPlan, mean_size: float, *, ordered: bool = True) -> None:
        self._plan, self.mean_size, self._ordered = plan, mean_size, ordered
        self.reached: int | None = None
        """When the size asked for was seen."""
        self.resumed: int | None = None
        self.emptied: int | None = None
        """When no more was left than the plan allows, or when the drain took too long and was given up."""
        self.messages = self._before = 0
        self._looks: list[Look] = []
        self._drain_end = 0
        self._end: int | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        received = sum(p.received for p in progress)
        waiting = sum(p.acked for p in progress) * self._plan.subscriptions - received
        if self.resumed is None or elapsed < self.resumed:  # it goes on growing until all consumers go on at once
            self.messages, self._before = waiting, received
            return self._build(waiting, elapsed)
        if self._end is None or elapsed <= self._end:
            self._looks.append(Look(elapsed, waiting, received - self._before))
        if self.emptied is None:
            return self._drain(waiting + (sum(p.repeats for p in progress) if self._ordered else 0), elapsed)
        if self._end is None and elapsed >= self._drain_end:
            self._end = max(self._drain_end + self._plan.after, elapsed + CHANGE_IN)
            return Change(at=self._end, end=True)
        return None

    def _build(self, waiting: int, elapsed: int) -> Change | None:
        if self.resumed is not None or waiting < self._plan.messages:
            return None
        self.reached, self.resumed = elapsed, elapsed + CHANGE_IN
        return Change(at=self.resumed, paused=False)

    def _drain(self, waiting: int, elapsed: int) -> Change | None:
        """:param waiting: the most that may still wait, as far as the workers know."""
        assert self.resumed is not None
        took = elapsed - self.resumed
        if not took or (waiting > self.allowed and took < self._plan.drain_timeout):
            return None
        self.emptied, self._drain_end = elapsed, elapsed + CHANGE_IN
        return Change(at=self._drain_end)

    def drained_between(self, uncounted: int) -> tuple[Look | None, Look | None]:
        """The first look at which the backlog may have been drained, and the first at which it was for certain; None where there is none.

        At most ``uncounted`` more waited than each look shows, and never fewer. Both are one look if that number is 0. The first is of the
        time until the drain was given up, the second also of the time after it in which load went on.

        :param uncounted: copies that are no first copies of acknowledged messages, over the whole phase.
        """
        assert self.resumed is not None
        assert self.emptied is not None
        looks = [look for look in self._looks if look.elapsed > self.resumed]
        first = next((look for look in looks if look.elapsed <= self.emptied and look.waiting <= self.allowed), None)
        return first, next((look for look in looks if look.waiting + uncounted <= self.allowed), None)

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
        edges = {"build": (0, self.resumed), "drain": (self.resumed, self.emptied), "after": (self.emptied, self._end)}
        return tuple(StageSpan(name=name, start=start, duration=end - start, rate=0.0, slo={}) for name, (start, end) in edges.items())


class BrokenWatch:
    """Ends a step of a search as soon as an objective can no longer hold, and only when that is certain.

    What workers tell is up to :data:`~pytest_loadtest.engine.run.PROGRESS` old, of each worker differently, and what arrived just before is
    not in it. So the messages that should be here are those that were due at the time of the oldest report less the interval between two
    looks at arrivals: one of them that nobody has counted will be too late, if it comes at all.

    :param objectives: upper bounds on end-to-end latencies, as the workers count them. :param consumers: of each subscription.
    """

    spans: tuple[StageSpan, ...] = ()

    def __init__(self, objectives: Sequence[Objective], phase: Phase, subscriptions: int, consumers: int) -> None:
        self._objectives, self._phase, self._fan_out, self._consumers = objectives, phase, subscriptions, consumers
        self._in_bytes = phase.mean_size is not None
        self.broke: str | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        if self.broke is not None or elapsed + 2 * CHANGE_IN >= self._phase.duration:
            return None
        planned = self._phase.total * self._fan_out
        if self._in_bytes:  # as many messages as the bytes make, which depends on the sizes that are drawn
            planned = round(planned * BYTES_SPREAD)
        self.broke = certainly_missed(self._objectives, planned, self._exceeded(progress))
        return None if self.broke is None else Change(at=elapsed + CHANGE_IN, end=True, foregone=self.broke)

    def _exceeded(self, progress: Sequence[Progress]) -> dict[str, int]:
        """How many deliveries are beyond each bound for certain, by objective name.

        Percentiles rank over all that was due, so what is overdue counts whether it will come or not. For ``max`` it does not: the profile
        may allow it never to come. Latencies of the verdict are of first copies, and workers see all copies. So a late one counts only
        where it cannot be a second one: no worker saw a sequence again, and no subscription has several consumers, because a copy that
        goes to another consumer of it looks like a first one. What is overdue counts in any case: second copies make it smaller.
        """
        received = sum(p.received for p in progress)
        only_first = self._consumers <= 1 and not any(p.has_second_copies for p in progress)
        seen = min(p.elapsed for p in progress) - COLLECT
        exceeded = {}
        for i, objective in enumerate(self._objectives):
            late = sum(p.beyond_bounds[i] for p in progress if len(p.beyond_bounds) > i) if only_first else 0
            if objective.percentile is None:
                exceeded[objective.name] = late
            else:
                overdue = 0 if self._in_bytes else self._phase.pacer.due(seen - (exceeds(objective) or 0)) * self._fan_out
                # a copy that is here may be a younger message's
                exceeded[objective.name] = late + max(0, overdue - received)
        return exceeded


# Ends a run that is lost, by what workers tell while it runs. Decision 022.

STALE = 70
"""Seconds that workers tell beyond those that are judged: one that is silent for a minute ends the run."""


def abort_of(plan: Plan) -> Abort | None:
    """When a run is lost, by its profile; counts shrink with a scaled run."""
    abort, scaled = plan.profile.aborts, plan.scale
    if abort is None or scaled is None:
        return abort
    return replace(abort, counts=scale(abort.counts, scaled.rate, scaled.messages))


def abort_reporting(plan: Plan) -> tuple[tuple[int, ...], int]:
    """Return the latency bounds (ns) that workers count against, and how many past seconds they report."""
    abort = abort_of(plan)
    if abort is None:
        return (), 0
    return tuple(int(one.maximum or 0) for one in abort.latencies), abort.hold + -(-abort.latest // SECOND) + STALE


class AbortWatch:
    """Ends the measured phase once, when a bound of ``abort`` was broken for long enough.

    A second is judged when all that was intended in it is older than the bound, by the oldest report less the interval between two looks
    at arrivals: whatever was not counted by then took longer.

    :param due: how many messages are due before an instant, ns after the phase's start, with all changes so far.
    :param deliveries: of each message.
    """

    spans: tuple[StageSpan, ...] = ()

    def __init__(self, abort: Abort, phase: Phase, deliveries: int, due: Callable[[int], int]) -> None:
        self._abort, self._phase, self._deliveries, self._due = abort, phase, deliveries, due
        self.reason: str | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        """See :class:`~pytest_loadtest.fleet.watches.Watch`."""
        if self.reason is not None or elapsed + 2 * CHANGE_IN >= self._phase.duration:
            return None
        self.reason = self._too_many(progress) or self._too_late(progress)
        if self.reason is None:
            return None
        reason = f"aborted {format_duration(elapsed)} into the phase: {self.reason}"
        return Change(at=elapsed + CHANGE_IN, end=True, aborted=Aborted(reason=reason, blocked=any(p.blocked for p in progress)))

    def _too_many(self, progress: Sequence[Progress]) -> str | None:
        if not self._abort.counts:
            return None
        in_bytes = self._phase.mean_size is not None
        planned = round(self._phase.total * BYTES_SPREAD) if in_bytes else self._due(self._phase.duration)
        counts = {"failed": sum(p.failed for p in progress), "dropped": sum(p.dropped for p in progress)}
        name = certainly_missed(self._abort.counts, planned, counts)
        broken = next((one for one in self._abort.counts if one.name == name), None)
        return None if broken is None else too_many(broken, counts[broken.name], planned)

    def _too_late(self, progress: Sequence[Progress]) -> str | None:
        reports = [p.timely for p in progress if p.timely is not None]
        if len(reports) < len(progress) or not self._abort.latencies:
            return None
        seen, hold = min(p.elapsed for p in progress) - COLLECT, self._abort.hold
        for i, objective in enumerate(self._abort.latencies):
            last = (seen - int(objective.maximum or 0)) // SECOND
            first = last - hold
            if first < max(report.first for report in reports):
                continue
            edges = [self._due(second * SECOND) * self._deliveries for second in range(first, last + 1)]
            due = [later - before for before, later in pairwise(edges)]
            came = [sum(report.count(i, second) for report in reports) for second in range(first, last)]
            if lost_seconds(due, came, objective.percentile or 0) == hold:
                return too_late(objective, hold, first, sum(due), sum(came))
        return None
