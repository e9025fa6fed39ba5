"""What a search for the highest rate is asked, its steps, and what it answers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.verdict.slo import Outcome

Purpose = Literal["bracket", "bisect", "repeat", "confirm"]
Limit = Literal["target", "generator", "maximum", "none"]

DEEPEST: Final = 1024
"""The lowest rate tried is ``start`` divided by this, or ``floor``."""
FINEST: Final = 0.001
"""Smallest precision: rates are rounded to five digits."""


def readable(rate: float) -> float:
    """Five digits: a rate that people can read and type again."""
    return float(f"{rate:.5g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What to look for.

    :param start: the first rate, msg/s (or bytes/s; all rates of a search are in the unit of this one).
    :param maximum: the highest rate to try, or None. :param hold: ns of a step. :param confirm: ns of the confirmation.
    :param warmup: ns before each step. :param precision: width of the answer's interval, 0.02 is 2 %. :param repeats: of a step near
        the peak, at most.
    :param floor: no lower rate is tried: :func:`pytest_loadtest.verdict.early.lowest_rate`. Where it is above ``start``, the search
        starts from it.
    :raises UsageError: a value that no search can have.
    """

    start: float
    maximum: float | None
    hold: int
    confirm: int
    warmup: int
    precision: float
    repeats: int
    floor: float = 0.0

    def __post_init__(self) -> None:
        top = math.inf if self.maximum is None else self.maximum
        wrong = (
            (not 0 < self.start < math.inf, f"search.start is {self.start:g}: it must be above 0"),
            (
                top < self.start,
                f"search.max {top:g} is below search.start {self.start:g}: raise the one or lower the other",
            ),
            (self.hold <= 0, "search.hold is 0: a step must last, for example 30s"),
            (
                self.confirm < self.hold,
                f"search.confirm {format_duration(self.confirm)} is shorter than search.hold {format_duration(self.hold)}: make it as long",
            ),
            (self.warmup < 0, "search.warmup is negative: write 0s for none"),
            (not FINEST <= self.precision < 1, f"search.precision is {self.precision:.2%}: write 0.1% or more, and less than 100%"),
            (self.repeats < 0, f"search.repeats is {self.repeats}: write 0 for none"),
            (
                top < self.floor,
                f"search.max {top:g} is too low: the percentiles need {self.floor:g}/s; raise it, or search.hold",
            ),
        )
        for applies, message in wrong:
            if applies:
                raise UsageError(message)

    @property
    def first(self) -> float:
        """The rate of the first step."""
        return max(self.start, self.floor)

    @property
    def lowest(self) -> float:
        """The lowest rate tried."""
        return max(readable(self.start / DEEPEST), self.floor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One step to run: ``warmup`` ns, drained, then ``duration`` ns measured, drained. ``number`` counts from 1."""

    number: int
    rate: float
    duration: int
    warmup: int
    purpose: Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What became of one step.

    :param broke: names of the objectives that did not hold, the one that broke first in front. :param text: why, in a line.
    :param early: it was ended as soon as an objective could no longer hold. :param throughput: delivered msg/s, where it was measured.
    :raises ValueError: it was ended early, and met.
    """

    ask: Ask
    outcome: Outcome
    broke: tuple[str, ...] = ()
    text: str = ""
    early: bool = False
    throughput: float | None = None

    def __post_init__(self) -> None:
        if self.early and self.outcome is Outcome.MET:
            raise ValueError(f"step {self.ask.number} was ended early, so it cannot be met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The answer.

    :param rate: the highest rate that held, or None where none did. It is ``low``.
    :param low: lower end of the interval. :param high: the lowest rate above it that the *target* missed; None where no step says so.
    :param limit: what kept the rate from being higher: the target, the generator, the ``maximum`` asked for; ``none`` where no rate held.
    :param at_least: the target may do more: the generator, or the maximum, was the limit.
    :param confirmed: ``rate`` was held for the longer time too.
    :param broke_first: the objective that broke at the lowest rate missed, or None where none was missed.
    """

    rate: float | None
    low: float | None
    high: float | None
    limit: Limit
    at_least: bool
    confirmed: bool
    broke_first: str | None
    steps: tuple[Step, ...]


# The highest rate at which all objectives hold: step results in, the next step or the peak out. Pure; no clock, no load.
#
# From ``start`` the rate doubles while steps are met, or halves while they are not, until a met rate and an unmet one stand side by side;
# then the bracket is halved in the log until it is no wider than ``precision``. The met end is confirmed by a longer hold of its own.
#
# Runs are noisy, so no end of the final bracket hangs on a single step:
#
# - *The unmet end* is repeated until one outcome has the majority of ``repeats + 1`` votes (a tie is unmet). Where repeats overturn it, a
# met rate stands above one that was missed, and the search goes on above it. That also mends a step that was spoilt early on. - *The met
# end* needs its confirmation. Where that fails, the rate is an upper bound whatever it was before, and is repeated. When the short steps
# do not hold there either, the search goes on below as before. When they do, the short hold is too short to tell: from there on every
# step is as long as the confirmation, first downwards in growing steps, then bisecting.
#
# A step may be ended early once an objective can no longer hold; it is a vote like any other, and never for *met*.
#
# A generator-limited step says nothing about the target, so it bounds the answer, which then is *at least* the rate below it. A
# confirmation that ends so is asked once more. A step without data ends the search: see :attr:`Search.failed`.

FACTOR: Final = 2.0
"""From one step of the bracket to the next."""
MOST_STEPS: Final = 60
"""No search has more steps, however noisy the target."""
MOST_CONFIRMATIONS: Final = 8


@dataclass(slots=True)
class _Tried:
    """What the steps at one rate say."""

    votes: list[Outcome] = field(default_factory=list)
    confirmations: list[Outcome] = field(default_factory=list)

    @property
    def vote(self) -> Outcome:
        """The majority; without one the most careful."""
        (first, count), *_ = Counter(self.votes).most_common()
        if 2 * count > len(self.votes):
            return first
        return Outcome.GENERATOR_LIMITED if Outcome.GENERATOR_LIMITED in self.votes else Outcome.MISSED

    @property
    def outcome(self) -> Outcome:
        """What counts: the last confirmation, or else the vote."""
        return self.confirmations[-1] if self.confirmations else self.vote

    @property
    def confirmed(self) -> bool:
        return self.confirmations[-1:] == [Outcome.MET]

    def settled(self, repeats: int) -> bool:
        """Whether more votes would change nothing, or are not allowed."""
        return len(self.votes) > repeats or 2 * max(Counter(self.votes).values()) > repeats + 1


class Search:
    """Ask :meth:`next`, run it, :meth:`record` it, until there is no next; then :meth:`peak`.

    :ivar failed: the cause, once a step gave no data; there is no next step then, and no peak.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.failed: str | None = None
        self._steps: list[Step] = []
        self._tried: dict[float, _Tried] = {}

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps so far."""
        return tuple(self._steps)

    def next(self) -> Ask | None:
        """The next step, or None at the end. The same one until it is recorded."""
        spec = self.spec
        wanted = None if self.failed is not None or len(self._steps) >= MOST_STEPS else self._wanted()
        if wanted is None:
            return None
        purpose, rate = wanted
        duration = spec.confirm if purpose == "confirm" else spec.hold
        return Ask(number=len(self._steps) + 1, rate=rate, duration=duration, warmup=spec.warmup, purpose=purpose)

    def record(self, step: Step) -> None:
        """Take in what became of the step that :meth:`next` asked for.

        :raises ValueError: it is another step.
        """
        if step.ask != self.next():
            raise ValueError(f"step {step.ask!r} was not asked for: next is {self.next()!r}")
        self._steps.append(step)
        if step.outcome is Outcome.NO_DATA:
            self.failed = f"step {step.ask.number} at {step.ask.rate:g}/s gave no data: {step.text or 'no cause was given'}"
            return
        tried = self._tried.setdefault(step.ask.rate, _Tried())
        (tried.confirmations if step.ask.purpose == "confirm" else tried.votes).append(step.outcome)

    def peak(self) -> Peak:
        """The answer, once there is no next step.

        :raises NoData: a step gave none. :raises ValueError: the search has not ended.
        """
        if self.failed is not None:
            raise NoData(self.failed)
        if self.next() is not None:
            raise ValueError(f"the search has not ended: next is {self.next()!r}")
        low, unmet = self._bounds()
        missed = [rate for rate, tried in self._tried.items() if tried.outcome is Outcome.MISSED]
        high = min(missed, default=None)
        by_generator = unmet is not None and self._tried[unmet].outcome is Outcome.GENERATOR_LIMITED
        limit: Limit = "generator" if by_generator else "none" if low is None else "maximum" if unmet is None else "target"
        return Peak(
            rate=low, low=low, high=high, limit=limit, at_least=low is not None and limit in ("generator", "maximum"),
            confirmed=low is not None and self._tried[low].confirmed, broke_first=self._broke(high), steps=self.steps,
        )  # fmt: skip

    def _broke(self, rate: float | None) -> str | None:
        return next((step.broke[0] for step in reversed(self._steps) if step.ask.rate == rate and step.broke), None)

    def _bounds(self) -> tuple[float | None, float | None]:
        """The highest rate that held, confirmed ones first, and the lowest one that did not."""
        unmet = min((rate for rate, tried in self._tried.items() if tried.outcome is not Outcome.MET), default=None)
        below = {rate: tried for rate, tried in self._tried.items() if unmet is None or rate < unmet}
        confirmed = [rate for rate, tried in below.items() if tried.confirmed]
        return max(confirmed or below, default=None), unmet

    def _wanted(self) -> tuple[Purpose, float] | None:
        if not self._steps:
            return "bracket", self.spec.first
        if sum(len(tried.confirmations) for tried in self._tried.values()) >= MOST_CONFIRMATIONS:
            return None
        rate, purpose = self._steps[-1].ask.rate, self._steps[-1].ask.purpose
        tried = self._tried[rate]
        if purpose == "confirm" and tried.confirmations == [Outcome.GENERATOR_LIMITED] and self.spec.repeats:
            return "confirm", rate
        refused = [at for at, tried in self._tried.items() if tried.confirmations and not tried.confirmed]
        for at in refused:
            if self._tried[at].votes and not self._tried[at].settled(self.spec.repeats):
                return "repeat", at
        stubborn = [at for at in refused if not self._tried[at].votes or self._tried[at].vote is Outcome.MET]
        return self._longer(len(stubborn)) if stubborn else self._shorter()

    def _shorter(self) -> tuple[Purpose, float] | None:
        """The next step while ``hold`` is thought long enough: bracket, bisect, settle the unmet end, confirm the met one."""
        spec, (low, unmet) = self.spec, self._bounds()
        hurry = len(self._steps) >= MOST_STEPS - MOST_CONFIRMATIONS
        if low is None:
            assert unmet is not None  # there is a step
            return self._downwards(unmet)
        if not hurry:
            top = math.inf if spec.maximum is None else spec.maximum
            if unmet is None and low < top:
                return "bracket", min(readable(low * FACTOR), top)
            if unmet is not None and unmet / low > 1 + spec.precision:
                return "bisect", readable(math.sqrt(low * unmet))
            if unmet is not None and not self._tried[unmet].settled(spec.repeats):
                return "repeat", unmet
        return None if self._tried[low].confirmed else ("confirm", low)

    def _downwards(self, unmet: float) -> tuple[Purpose, float] | None:
        """Nothing has held so far."""
        if unmet > self.spec.lowest:
            return "bracket", max(readable(unmet / FACTOR), self.spec.lowest)
        return None if self._tried[unmet].settled(self.spec.repeats) else ("repeat", unmet)

    def _longer(self, refused: int) -> tuple[Purpose, float] | None:
        """The next confirmation, once ``hold`` has proved too short. The first is a little less than the precision below."""
        low, unmet = self._bounds()
        assert unmet is not None
        if low is not None and self._tried[low].confirmed:
            return None if unmet / low <= 1 + self.spec.precision else ("confirm", readable(math.sqrt(low * unmet)))
        down = unmet / (1 + 0.9 * self.spec.precision) ** (2 ** (refused - 1))
        return ("confirm", max(readable(down), self.spec.lowest)) if unmet > self.spec.lowest else None
