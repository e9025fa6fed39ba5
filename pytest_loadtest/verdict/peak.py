"""The search for the highest rate: its limits, its steps, and its answer."""

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
"""The lowest rate tried is ``start`` divided by this number, or ``floor``."""
FINEST: Final = 0.001
"""The smallest precision: rates are rounded to five digits."""


def readable(rate: float) -> float:
    """Round a rate to five digits, so that people can read and type it."""
    return float(f"{rate:.5g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The limits of a search.

    :param start: the first rate, msg/s (or bytes/s; all rates of a search have the unit of this
        one).
    :param maximum: the highest rate to try, or None.
    :param hold: length of a step, ns.
    :param confirm: length of the confirmation, ns.
    :param warmup: length of the warm-up before each step, ns.
    :param precision: width of the answer's interval, 0.02 is 2 %.
    :param repeats: highest number of repeats of a step near the peak.
    :param floor: no lower rate is tried: :func:`pytest_loadtest.verdict.early.lowest_rate`. If it
        is above ``start``, the search starts from it.
    :raises UsageError: a value is impossible.
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
            (
                not 0 < self.start < math.inf,
                f"search.start is {self.start:g}: write a rate above 0",
            ),
            (
                top < self.start,
                f"search.max {top:g} is below search.start {self.start:g}: raise search.max or lower search.start",
            ),
            (self.hold <= 0, "search.hold is 0: write the length of a step, for example 30s"),
            (
                self.confirm < self.hold,
                f"search.confirm {format_duration(self.confirm)} is shorter than search.hold {format_duration(self.hold)}: write more",
            ),
            (self.warmup < 0, "search.warmup is negative: write 0s for none"),
            (
                not FINEST <= self.precision < 1,
                f"search.precision is {self.precision:.2%}: write 0.1% or more, and less than 100%",
            ),
            (self.repeats < 0, f"search.repeats is {self.repeats}: write 0 for none"),
            (
                top < self.floor,
                f"search.max {top:g} is too low: the percentiles need {self.floor:g}/s: raise search.max or search.hold",
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
    """A step to run: ``warmup`` ns, drain, then ``duration`` ns measured, drain. ``number`` counts from 1."""

    number: int
    rate: float
    duration: int
    warmup: int
    purpose: Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one step.

    :param broke: names of the objectives that did not hold, the one that broke first at the front.
    :param text: why, in a line.
    :param early: it was ended as soon as an objective could no longer hold.
    :param throughput: delivered msg/s; None if not measured.
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
    """The answer of a search.

    :param rate: the highest rate that held, or None if none did. It is ``low``.
    :param low: lower end of the interval.
    :param high: the lowest rate above it that the *target* missed; None if no step missed.
    :param limit: why the rate is not higher: the target, the generator, or the ``maximum``;
        ``none`` if no rate held.
    :param at_least: the target may be able to do more: the generator, or the maximum, was the
        limit.
    :param confirmed: ``rate`` also held for the longer time.
    :param broke_first: the objective that broke first at the lowest missed rate, or None if no rate
        was missed.
    """

    rate: float | None
    low: float | None
    high: float | None
    limit: Limit
    at_least: bool
    confirmed: bool
    broke_first: str | None
    steps: tuple[Step, ...]


# The search for the highest rate at which all objectives hold: step results in, the next step or
# the peak out. Pure: no clock, no load.
#
# From ``start`` the rate doubles while steps are met, or halves while they are not, until a met
# rate and an unmet one are neighbours. Then the bracket is halved on a logarithmic scale until it
# is no wider than ``precision``. The met end is confirmed by a longer hold.
#
# Runs are noisy, so neither end of the final bracket depends on a single step:
#
# - *The unmet end* is repeated until one outcome has the majority of ``repeats + 1`` votes (a tie
#   is unmet). If the repeats overturn it, there is a met rate above the missed one, and the search
#   continues above it. That also corrects a disturbed early step.
# - *The met end* needs its confirmation. If that fails, the rate is an upper bound whatever it was
#   before, and is repeated. If the short steps do not hold there either, the search continues below
#   as before. If they do, the short hold is too short to decide: from then on every step is as long
#   as the confirmation, first downwards in growing steps, then by bisection.
#
# A step may be ended early once an objective can no longer hold; it is a vote like any other, and
# never for *met*.
#
# A generator-limited step says nothing about the target, so it bounds the answer, which then is *at
# least* the rate below it. A confirmation that ends so is repeated once. A step without data ends
# the search: see :attr:`Search.failed`.

FACTOR: Final = 2.0
"""The ratio of one rate of the bracket to the next."""
MOST_STEPS: Final = 60
"""The largest number of steps, however noisy the target."""
MOST_CONFIRMATIONS: Final = 8


@dataclass(slots=True)
class _Tried:
    """The outcomes of the steps at one rate."""

    votes: list[Outcome] = field(default_factory=list)
    confirmations: list[Outcome] = field(default_factory=list)

    @property
    def vote(self) -> Outcome:
        """The outcome of the majority; without one, the most careful."""
        (first, count), *_ = Counter(self.votes).most_common()
        if 2 * count > len(self.votes):
            return first
        return (
            Outcome.GENERATOR_LIMITED if Outcome.GENERATOR_LIMITED in self.votes else Outcome.MISSED
        )

    @property
    def outcome(self) -> Outcome:
        """The outcome of the last confirmation, or else of the vote."""
        return self.confirmations[-1] if self.confirmations else self.vote

    @property
    def confirmed(self) -> bool:
        return self.confirmations[-1:] == [Outcome.MET]

    def settled(self, repeats: int) -> bool:
        """Return whether more votes would change nothing, or are not allowed."""
        return len(self.votes) > repeats or 2 * max(Counter(self.votes).values()) > repeats + 1


class Search:
    """A search. Run the step that :meth:`next` returns and :meth:`record` it, until there is none; then read :meth:`peak`.

    :ivar failed: why a step had no data; then there is no next step, and no peak. None otherwise.
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
        """Return the next step, the same one until it is recorded, or None at the end."""
        spec = self.spec
        chosen = (
            None if self.failed is not None or len(self._steps) >= MOST_STEPS else self._next_rate()
        )
        if chosen is None:
            return None
        purpose, rate = chosen
        duration = spec.confirm if purpose == "confirm" else spec.hold
        return Ask(
            number=len(self._steps) + 1,
            rate=rate,
            duration=duration,
            warmup=spec.warmup,
            purpose=purpose,
        )

    def record(self, step: Step) -> None:
        """Record the result of the step that :meth:`next` returned.

        :raises ValueError: it is another step.
        """
        if step.ask != self.next():
            raise ValueError(f"step {step.ask!r} is not the next step, which is {self.next()!r}")
        self._steps.append(step)
        if step.outcome is Outcome.NO_DATA:
            self.failed = f"step {step.ask.number} at {step.ask.rate:g}/s gave no data: {step.text or 'no cause was given'}"
            return
        tried = self._tried.setdefault(step.ask.rate, _Tried())
        (tried.confirmations if step.ask.purpose == "confirm" else tried.votes).append(step.outcome)

    def peak(self) -> Peak:
        """Return the answer, once there is no next step.

        :raises NoData: a step had no data. :raises ValueError: the search has not ended.
        """
        if self.failed is not None:
            raise NoData(self.failed)
        if self.next() is not None:
            raise ValueError(f"the search has not ended: next is {self.next()!r}")
        low, unmet = self._bounds()
        missed = [rate for rate, tried in self._tried.items() if tried.outcome is Outcome.MISSED]
        high = min(missed, default=None)
        by_generator = unmet is not None and self._tried[unmet].outcome is Outcome.GENERATOR_LIMITED
        limit: Limit = (
            "generator"
            if by_generator
            else "none"
            if low is None
            else "maximum"
            if unmet is None
            else "target"
        )
        return Peak(
            rate=low, low=low, high=high, limit=limit, at_least=low is not None and limit in ("generator", "maximum"),
            confirmed=low is not None and self._tried[low].confirmed, broke_first=self._broke(high), steps=self.steps,
        )  # fmt: skip

    def _broke(self, rate: float | None) -> str | None:
        return next(
            (
                step.broke[0]
                for step in reversed(self._steps)
                if step.ask.rate == rate and step.broke
            ),
            None,
        )

    def _bounds(self) -> tuple[float | None, float | None]:
        """Return the highest rate that held, preferring confirmed ones, and the lowest one that did not."""
        unmet = min(
            (rate for rate, tried in self._tried.items() if tried.outcome is not Outcome.MET),
            default=None,
        )
        below = {
            rate: tried for rate, tried in self._tried.items() if unmet is None or rate < unmet
        }
        confirmed = [rate for rate, tried in below.items() if tried.confirmed]
        return max(confirmed or below, default=None), unmet

    def _next_rate(self) -> tuple[Purpose, float] | None:
        if not self._steps:
            return "bracket", self.spec.first
        if sum(len(tried.confirmations) for tried in self._tried.values()) >= MOST_CONFIRMATIONS:
            return None
        rate, purpose = self._steps[-1].ask.rate, self._steps[-1].ask.purpose
        tried = self._tried[rate]
        if (
            purpose == "confirm"
            and tried.confirmations == [Outcome.GENERATOR_LIMITED]
            and self.spec.repeats
        ):
            return "confirm", rate
        unconfirmed = [
            at for at, tried in self._tried.items() if tried.confirmations and not tried.confirmed
        ]
        for at in unconfirmed:
            if self._tried[at].votes and not self._tried[at].settled(self.spec.repeats):
                return "repeat", at
        short_only = [
            at
            for at in unconfirmed
            if not self._tried[at].votes or self._tried[at].vote is Outcome.MET
        ]
        return self._longer(len(short_only)) if short_only else self._shorter()

    def _shorter(self) -> tuple[Purpose, float] | None:
        """Return the next step while ``hold`` seems long enough: bracket, bisect, settle the unmet end, confirm the met one."""
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
        """Return the next step while no rate has held."""
        if unmet > self.spec.lowest:
            return "bracket", max(readable(unmet / FACTOR), self.spec.lowest)
        return None if self._tried[unmet].settled(self.spec.repeats) else ("repeat", unmet)

    def _longer(self, unconfirmed: int) -> tuple[Purpose, float] | None:
        """Return the next confirmation once ``hold`` proved too short. The first rate is a little less than the precision below."""
        low, unmet = self._bounds()
        assert unmet is not None
        if low is not None and self._tried[low].confirmed:
            return (
                None
                if unmet / low <= 1 + self.spec.precision
                else ("confirm", readable(math.sqrt(low * unmet)))
            )
        down = unmet / (1 + 0.9 * self.spec.precision) ** (2 ** (unconfirmed - 1))
        return (
            ("confirm", max(readable(down), self.spec.lowest)) if unmet > self.spec.lowest else None
        )
