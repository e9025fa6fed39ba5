"""Observed values and bounds as people read them: both in one unit, precise enough to show that they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.quantities import format_duration, format_rate

if TYPE_CHECKING:
    from pytest_loadtest.objectives import Objective

ROUNDING = 1e-9
"""Relative error that arithmetic on rates may bring; bounds are inclusive."""


class Shown(NamedTuple):
    """An observed value beside its bound: ``83.0 ms``, ``<= 50.0 ms``, ``over by 66 %`` (empty where the bound holds)."""

    observed: str
    bound: str
    over: str

    @property
    def comparison(self) -> str:
        """``83.0 ms > 50.0 ms: over by 66 %``, or ``12.0 ms <= 50.0 ms``."""
        if not self.over:
            return f"{self.observed} {self.bound}"
        sign, bound = self.bound.split(" ", 1)
        return f"{self.observed} {'>' if sign == '<=' else '<'} {bound}: {self.over}"


def exact(count: float) -> str:
    """``12345`` → ``12 345``."""
    return f"{int(count):,}".replace(",", " ")


def format_value(value: float, unit: str, digits: int = 3) -> str:
    """A value of an objective's unit; ``digits`` above 3 spells it out."""
    if unit == "messages":
        return exact(value)
    if unit == "ratio":
        return f"{_plain(value * 100, digits + 1)} %"
    if unit == "msg/s":
        return format_rate(value) if digits == 3 else f"{_plain(value, digits + 6)} msg/s"
    return format_duration(value) if digits == 3 else f"{_plain(value / 1e6, digits + 6)} ms"


def pair(left: float, right: float, unit: str) -> tuple[str, str]:
    """Both values, with as many digits as it takes to tell them apart."""
    for digits in (3, 5, 8):
        shown = format_value(left, unit, digits), format_value(right, unit, digits)
        if left == right or shown[0] != shown[1]:
            break
    return shown


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


def distance(value: float, bound: float, unit: str) -> str:
    """How far beyond its bound a value lies: ``over by 66 %``, ``40 times the bound``, ``short by 49 %``, ``3 too many``."""
    if unit == "messages":
        return f"{exact(abs(value - bound))} too {'many' if value > bound else 'few'}"
    if value < bound:
        return f"short by {_plain((1 - value / bound) * 100, 2)} %"
    if bound == 0:
        return "nothing is allowed"
    return f"over by {_plain((value / bound - 1) * 100, 2)} %" if value < 3 * bound else f"{_plain(value / bound, 2)} times the bound"


def _plain(value: float, digits: int) -> str:
    """Significant digits, never an exponent, no trailing zeros, no digit of the integer part lost."""
    whole = len(str(int(abs(value))))
    text = f"{float(f'{value:.{max(digits, whole)}g}'):.12f}".rstrip("0").rstrip(".")
    return text or "0"
