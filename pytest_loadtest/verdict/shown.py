"""Observed values beside their bounds, as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.values.wording import ROUNDING, distance, format_value, pair

if TYPE_CHECKING:
    from pytest_loadtest.verdict.objectives import Objective


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
    return Shown(format_value(value, unit), bounds(objective), "")


def bounds(objective: Objective) -> str:
    """``<= 50.0 ms``, ``>= 1.00 ms and <= 50.0 ms``."""
    sides = ((">=", objective.minimum), ("<=", objective.maximum))
    return " and ".join(f"{sign} {format_value(bound, objective.unit)}" for sign, bound in sides if bound is not None)
