"""What became of objectives: one found to hold or not, and the verdict that all of them make."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.values.wording import ROUNDING, distance, format_value, pair

if TYPE_CHECKING:
    from pytest_loadtest.verdict.objectives import Objective


class Outcome(enum.StrEnum):
    """What a run says about its target, best first."""

    MET = "met"
    MISSED = "missed"
    GENERATOR_LIMITED = "generator-limited"
    NO_DATA = "no data"


class Window(NamedTuple):
    """One window judged.

    :param start: and :param end: ns since the measured phase's start. :param observed: None where it cannot be told; inf where too many
        never came. :param reason: why it cannot be told, or why it is the generator's doing; otherwise empty.
    """

    start: int
    end: int
    observed: float | None
    samples: int
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One objective judged.

    :param observed: in windows the worst; of a drift the change, as a share of the first tenth.
    :param text: observed, bound, how far over, of how many, in one line. :param own: why it is *generator-limited*, otherwise None.
    :param shown: the same in pieces, where the observed value beside the bound would not tell it. :param windows: all of them, in order.
    :param tenths: of a drift, what was observed in the first and in the last tenth.
    """

    objective: Objective
    outcome: Outcome
    observed: float | None
    samples: int
    text: str
    own: str | None = None
    shown: Shown | None = None
    windows: tuple[Window, ...] = ()
    tenths: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a run.

    :param reasons: the causes of *no data*, or the evidence of *generator-limited* with what to change last.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()

    def having(self, outcome: Outcome) -> tuple[Finding, ...]:
        """The findings with this outcome."""
        return tuple(finding for finding in self.findings if finding.outcome is outcome)


# Observed values beside their bounds, as people read them.


class Shown(NamedTuple):
    """An observed value beside its bound: ``83.0 ms``, ``<= 50.0 ms``, and by how much it misses it, ``over by 66 %`` (empty: it holds)."""

    observed: str
    bound: str
    missed_by: str

    @property
    def comparison(self) -> str:
        """``83.0 ms > 50.0 ms: over by 66 %``, or ``12.0 ms <= 50.0 ms``."""
        if not self.missed_by:
            return f"{self.observed} {self.bound}"
        sign, bound = self.bound.split(" ", 1)
        return f"{self.observed} {'>' if sign == '<=' else '<'} {bound}: {self.missed_by}"


def show(objective: Objective, value: float) -> Shown:
    """A value observed, beside the bound that it breaks, or beside all bounds where it breaks none."""
    low, high, unit = objective.minimum, objective.maximum, objective.unit
    slack = ROUNDING if unit in ("ratio", "msg/s") else 0.0
    if low is not None and value < low * (1 - slack):
        observed, bound = pair(value, low, unit)
        return Shown(observed, f">= {bound}", distance(value, low, unit))
    if high is not None and value > high * (1 + slack):
        observed, bound = pair(value, high, unit)
        return Shown(observed, f"<= {bound}", distance(value, high, unit))
    return Shown(format_value(value, unit), write_bounds(objective), "")


def write_bounds(objective: Objective) -> str:
    """``<= 50.0 ms``, ``>= 1.00 ms and <= 50.0 ms``."""
    sides = ((">=", objective.minimum), ("<=", objective.maximum))
    return " and ".join(f"{sign} {format_value(bound, objective.unit)}" for sign, bound in sides if bound is not None)
