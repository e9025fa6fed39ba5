"""Who looks at a phase's progress while it runs, and changes something when the time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_loadtest.changes import CHANGE_IN, Change
from pytest_loadtest.early import certainly_missed, exceeds
from pytest_loadtest.phases import Phase, StageSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.objectives import Objective
    from pytest_loadtest.phases import BacklogPlan


class Watch(Protocol):
    """Looks at progress."""

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        """The latest progress of every worker, ``elapsed`` ns after the phase's start: what all are to change, or None."""

    @property
    def spans(self) -> tuple[StageSpan, ...]:
        """What parts the phase turned out to have."""


class BacklogWatch:
    """Lets consumers go on when the backlog is built, ends the phase when load has gone on long enough after it was drained.

    What it does about either has its instant later than what it saw, so both are kept; all times are ns after the phase's start.
    """

    def __init__(self, plan: BacklogPlan, mean_size: float) -> None:
        self._plan, self.mean_size = plan, mean_size
        self.reached: int | None = None
        """When the size asked for was seen."""
        self.resumed: int | None = None
        self.emptied: int | None = None
        """When what may be left was seen, or the drain was given up."""
        self.drained = False
        self.messages = self.received = self._before = 0
        self._over = 0
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
        if self._end is None and elapsed >= self._over:
            self._end = max(self._over + self._plan.after, elapsed + CHANGE_IN)
            return Change(at=self._end, end=True)
        return None

    def _build(self, waiting: int, elapsed: int) -> Change | None:
        if self.resumed is not None or waiting < self._plan.messages:
            return None
        self.reached, self.resumed = elapsed, elapsed + CHANGE_IN
        return Change(at=self.resumed, paused=False)

    def _drain(self, waiting: int, elapsed: int) -> Change | None:
        assert self.resumed is not None
        self.drained = waiting <= self._plan.drained
        took = elapsed - self.resumed
        if not took or (not self.drained and took < self._plan.drain_timeout):
            return None
        self.emptied, self._over = elapsed, elapsed + CHANGE_IN
        return Change(at=self._over)

    @property
    def spans(self) -> tuple[StageSpan, ...]:
        if self.resumed is None or self.emptied is None or self._end is None:
            return ()
        edges = {"build": (0, self.resumed), "drain": (self.resumed, self.emptied), "after": (self.emptied, self._end)}
        return tuple(StageSpan(name=name, start=start, duration=end - start, rate=0.0, slo={}) for name, (start, end) in edges.items())


class BrokenWatch:
    """Ends a step of a search as soon as an objective can no longer hold.

    :param objectives: upper bounds on end-to-end latencies, as the workers count them.
    """

    spans: tuple[StageSpan, ...] = ()

    def __init__(self, objectives: Sequence[Objective], phase: Phase, subscriptions: int) -> None:
        self._objectives, self._phase, self._copies = objectives, phase, subscriptions
        self.broke: str | None = None

    def look(self, progress: Sequence[Progress], elapsed: int) -> Change | None:
        if self.broke is not None or elapsed + 2 * CHANGE_IN >= self._phase.duration:
            return None
        received = sum(p.received for p in progress)
        exceeded = {}
        for i, objective in enumerate(self._objectives):
            bound = exceeds(objective) or 0
            overdue = self._phase.pacer.due(min(elapsed, self._phase.duration) - bound) if self._phase.mean_size is None else 0
            late = sum(p.over[i] for p in progress if len(p.over) > i)
            # what is older than the bound and not here yet will be late too; a copy that is here may be a younger message's
            exceeded[objective.name] = late + max(0, overdue * self._copies - received)
        self.broke = certainly_missed(self._objectives, self._phase.total * self._copies, exceeded)
        return None if self.broke is None else Change(at=elapsed + CHANGE_IN, end=True)
