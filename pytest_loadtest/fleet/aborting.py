"""Ends a run that is lost, by what workers tell while it runs. Decision 022."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_loadtest.engine.run import COLLECT
from pytest_loadtest.fleet.watches import BYTES_SPREAD
from pytest_loadtest.schedule.changes import CHANGE_IN, Aborted, Change
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.abort import lost_seconds, too_late, too_many
from pytest_loadtest.verdict.early import certainly_missed
from pytest_loadtest.verdict.scaled import scale

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.plan.phases import Phase, StageSpan
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.verdict.abort import Abort

STALE = 70
"""Seconds that workers tell beyond those that are judged: one that is silent for a minute ends the run."""


def abort_of(plan: Plan) -> Abort | None:
    """When a run is lost, by its profile; counts shrink with a scaled run."""
    abort, scaled = plan.profile.aborts, plan.scale
    if abort is None or scaled is None:
        return abort
    return replace(abort, counts=scale(abort.counts, scaled.rate, scaled.messages))


def told(plan: Plan) -> tuple[tuple[int, ...], int]:
    """What workers are asked while load runs: latencies, ns, and of how many seconds they tell the messages that took no longer."""
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
        prompts = [p.prompt for p in progress if p.prompt is not None]
        if len(prompts) < len(progress) or not self._abort.latencies:
            return None
        seen, hold = min(p.elapsed for p in progress) - COLLECT, self._abort.hold
        for i, objective in enumerate(self._abort.latencies):
            last = (seen - int(objective.maximum or 0)) // SECOND
            first = last - hold
            if first < max(prompt.first for prompt in prompts):
                continue
            edges = [self._due(second * SECOND) * self._deliveries for second in range(first, last + 1)]
            due = [later - before for before, later in pairwise(edges)]
            came = [sum(prompt.of(i, second) for prompt in prompts) for second in range(first, last)]
            if lost_seconds(due, came, objective.percentile or 0) == hold:
                return too_late(objective, hold, first, sum(due), sum(came))
        return None
