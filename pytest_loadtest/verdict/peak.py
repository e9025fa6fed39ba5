"""The search for the highest rate: its limits, its steps, and its answer.

The rule: neither end of the answer's interval depends on a single step, and only a rate that the
*target* missed is an upper end. Pure: results of steps in, the next step or the peak out.

The scripts of :mod:`pytest_loadtest.fleet.scripts` ask for the next step and record each, in the
controller's thread that answers a meeting.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.records import record
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


@record
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
        wrong = self._wrong()
        if wrong:
            raise UsageError(wrong)

    def _wrong(self) -> str:
        """Return the first impossible value, and what to write; empty if all are possible."""
        top = self.top
        hold = format_duration(self.hold)
        confirm = format_duration(self.confirm)
        message = ""
        if not 0 < self.start < math.inf:
            message = f"search.start is {self.start:g}: write a rate above 0"
        elif top < self.start:
            below = f"search.max {top:g} is below search.start {self.start:g}"
            message = f"{below}: raise search.max or lower search.start"
        elif self.hold <= 0:
            message = "search.hold is 0: write the length of a step, for example 30s"
        elif self.confirm < self.hold:
            message = f"search.confirm {confirm} is shorter than search.hold {hold}: write more"
        elif self.warmup < 0:
            message = "search.warmup is negative: write 0s for none"
        elif not FINEST <= self.precision < 1:
            precision = f"search.precision is {self.precision:.2%}"
            message = f"{precision}: write 0.1% or more, and less than 100%"
        elif self.repeats < 0:
            message = f"search.repeats is {self.repeats}: write 0 for none"
        elif top < self.floor:
            needed = f"the percentiles need {self.floor:g}/s"
            message = f"search.max {top:g} is too low: {needed}: raise search.max or search.hold"
        return message

    @property
    def top(self) -> float:
        """The highest rate to try; infinite without ``maximum``."""
        return math.inf if self.maximum is None else self.maximum

    @property
    def first(self) -> float:
        """The rate of the first step."""
        return max(self.start, self.floor)

    @property
    def lowest(self) -> float:
        """The lowest rate tried."""
        return max(readable(self.start / DEEPEST), self.floor)


@record
class Ask:
    """A step to run: ``warmup`` ns, drain, then ``duration`` ns measured, drain.

    :param number: counts from 1.
    """

    number: int
    rate: float
    duration: int
    warmup: int
    purpose: Purpose


@record
class Step:
    """The result of one step.

    :param broke: names of the objectives that did not hold, the one that broke first at the front.
    :param text: why, in a line.
    :param early: it was ended as soon as an objective could no longer be met.
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


@record
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


# The search for the highest rate at which all objectives hold.
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
# A step may be ended early once an objective can no longer be met; it is a vote like any other, and
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
        outcome, count = Counter(self.votes).most_common(1)[0]
        if 2 * count > len(self.votes):
            return outcome
        if Outcome.GENERATOR_LIMITED in self.votes:
            return Outcome.GENERATOR_LIMITED
        return Outcome.MISSED

    @property
    def outcome(self) -> Outcome:
        """The outcome of the last confirmation, or else of the vote."""
        return self.confirmations[-1] if self.confirmations else self.vote

    @property
    def confirmed(self) -> bool:
        return self.confirmations[-1:] == [Outcome.MET]

    def settled(self, repeats: int) -> bool:
        """Return whether more votes would change nothing, or are not allowed."""
        if len(self.votes) > repeats:
            return True
        majority = max(Counter(self.votes).values())
        return 2 * majority > repeats + 1


class Search:
    """A search.

    Run the step that :meth:`next` returns and :meth:`record` it, until there is none; then read
    :meth:`peak`.

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
        if self.failed is not None or len(self._steps) >= MOST_STEPS:
            return None
        choice = self._next_rate()
        if choice is None:
            return None
        purpose, rate = choice
        spec = self.spec
        return Ask(
            number=len(self._steps) + 1,
            rate=rate,
            duration=spec.confirm if purpose == "confirm" else spec.hold,
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
            cause = step.text or "no cause was given"
            self.failed = f"step {step.ask.number} at {step.ask.rate:g}/s gave no data: {cause}"
            return
        tried = self._tried.setdefault(step.ask.rate, _Tried())
        if step.ask.purpose == "confirm":
            tried.confirmations.append(step.outcome)
        else:
            tried.votes.append(step.outcome)

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
        limit = self._limit(low, unmet)
        return Peak(
            rate=low,
            low=low,
            high=high,
            limit=limit,
            at_least=low is not None and limit in ("generator", "maximum"),
            confirmed=low is not None and self._tried[low].confirmed,
            broke_first=self._broke(high),
            steps=self.steps,
        )

    def _limit(self, low: float | None, unmet: float | None) -> Limit:
        """Return why the rate is not higher. :param low: see :meth:`_bounds`, as ``unmet``."""
        if unmet is not None and self._tried[unmet].outcome is Outcome.GENERATOR_LIMITED:
            return "generator"
        if low is None:
            return "none"
        return "maximum" if unmet is None else "target"

    def _broke(self, rate: float | None) -> str | None:
        """Return the objective that broke first in the last step at a rate that names one."""
        for step in reversed(self._steps):
            if step.ask.rate == rate and step.broke:
                return step.broke[0]
        return None

    def _bounds(self) -> tuple[float | None, float | None]:
        """Return the highest rate that held, confirmed if possible, and the lowest unmet one."""
        outcomes = {rate: tried.outcome for rate, tried in self._tried.items()}
        unmet = min(
            (rate for rate, outcome in outcomes.items() if outcome is not Outcome.MET),
            default=None,
        )
        below = [rate for rate in self._tried if unmet is None or rate < unmet]
        confirmed = [rate for rate in below if self._tried[rate].confirmed]
        return max(confirmed or below, default=None), unmet

    def _next_rate(self) -> tuple[Purpose, float] | None:
        if not self._steps:
            return "bracket", self.spec.first
        if sum(len(tried.confirmations) for tried in self._tried.values()) >= MOST_CONFIRMATIONS:
            return None
        last = self._steps[-1].ask
        confirmations = self._tried[last.rate].confirmations
        # A generator-limited confirmation says nothing about the target: it is repeated once.
        limited_once = last.purpose == "confirm" and confirmations == [Outcome.GENERATOR_LIMITED]
        if limited_once and self.spec.repeats:
            return "confirm", last.rate
        unconfirmed = [
            rate
            for rate, tried in self._tried.items()
            if tried.confirmations and not tried.confirmed
        ]
        for rate in unconfirmed:
            tried = self._tried[rate]
            if tried.votes and not tried.settled(self.spec.repeats):
                return "repeat", rate
        # Rates at which short steps hold, and the long confirmation does not.
        short_only = 0
        for rate in unconfirmed:
            tried = self._tried[rate]
            if not tried.votes or tried.vote is Outcome.MET:
                short_only += 1
        return self._longer(short_only) if short_only else self._shorter()

    def _shorter(self) -> tuple[Purpose, float] | None:
        """Return the next step while ``hold`` seems long enough.

        It brackets, bisects, settles the unmet end, and confirms the met one.
        """
        spec = self.spec
        low, unmet = self._bounds()
        if low is None:
            assert unmet is not None  # there is a step
            return self._downwards(unmet)
        hurry = len(self._steps) >= MOST_STEPS - MOST_CONFIRMATIONS
        if not hurry:
            if unmet is None and low < spec.top:
                return "bracket", min(readable(low * FACTOR), spec.top)
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
        """Return the next confirmation once ``hold`` proved too short.

        The first rate is a little less than the precision below.
        """
        spec = self.spec
        low, unmet = self._bounds()
        assert unmet is not None
        if low is not None and self._tried[low].confirmed:
            if unmet / low <= 1 + spec.precision:
                return None
            return "confirm", readable(math.sqrt(low * unmet))
        if unmet <= spec.lowest:
            return None
        down = unmet / (1 + 0.9 * spec.precision) ** (2 ** (unconfirmed - 1))
        return "confirm", max(readable(down), spec.lowest)
