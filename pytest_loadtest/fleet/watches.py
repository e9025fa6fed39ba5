"""Who looks at a phase's progress while it runs, and changes something when the time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pytest_loadtest.engine.run import COLLECT
from pytest_loadtest.schedule.changes import CHANGE_IN, Change
from pytest_loadtest.schedule.phases import Phase, StageSpan
from pytest_loadtest.verdict.early import certainly_missed, exceeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.schedule.phases import BacklogPlan
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


class BacklogWatch:
    """Lets consumers go on when the backlog is built, ends the phase when load has gone on long enough after it was drained.

    A change takes effect some time after the progress that called for it; both instants are kept, in ns after the phase's start.
    """

    def __init__(self, plan: BacklogPlan, mean_size: float) -> None:
        self._plan, self.mean_size = plan, mean_size
        self.reached: int | None = None
        """When the size asked for was seen."""
        self.resumed: int | None = None
        self.emptied: int | None = None
        """When no more was left than the plan allows, or when the drain took too long and was given up."""
        self.drained = False
        self.left = 0
        """Deliveries that waited when it was drained, or given up."""
        self.messages = self.received = self._before = 0
        self._drain_end = 0
        self._end: int | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        received = sum(p.received for p in progress)
        waiting = sum(p.acked for p in progress) * self._plan.subscriptions - received
        if self.resumed is None or elapsed < self.resumed:  # it goes on growing until all consumers go on at once
            self.messages, self._before = waiting, received
            return self._build(waiting, elapsed)
        if self.emptied is None:
            self.received = received - self._before
            return self._drain(waiting, elapsed)
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
        assert self.resumed is not None
        self.drained, self.left = waiting <= self.allowed, max(waiting, 0)
        took = elapsed - self.resumed
        if not took or (not self.drained and took < self._plan.drain_timeout):
            return None
        self.emptied, self._drain_end = elapsed, elapsed + CHANGE_IN
        return Change(at=self._drain_end)

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

        Percentiles rank over all that was due, so what is overdue counts whether it will come or not; ``max`` is of what came. Latencies of
        the verdict are of first copies, and workers see all copies. So a late one counts only where it cannot be a second one: no worker
        saw a sequence again, and no subscription has several consumers, because a copy that goes to another consumer of it looks like a
        first one. What is overdue counts in any case: second copies among those received make it smaller.
        """
        received = sum(p.received for p in progress)
        only_first = self._consumers <= 1 and not any(p.repeats for p in progress)
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
