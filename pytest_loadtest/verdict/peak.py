"""What a search for the highest rate is asked, its steps, and what it answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from pytest_loadtest.errors import UsageError
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
