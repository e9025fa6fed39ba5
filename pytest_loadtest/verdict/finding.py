"""Findings, each about one objective, the verdict on a run, and both as text.

The rule: a finding shows the observed value next to the bound that it breaks, with enough digits
for both to differ, and by how much it misses it.

The judgements of this package make findings; reports of the controller's process and of the
commands read them.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.values.records import record
from pytest_loadtest.values.wording import ROUNDING, distance, format_value, pair

if TYPE_CHECKING:
    from pytest_loadtest.verdict.objectives import Objective


class Outcome(enum.StrEnum):
    """The outcome of a run or of one objective, best first."""

    MET = "met"
    MISSED = "missed"
    GENERATOR_LIMITED = "generator-limited"
    NO_DATA = "no data"


class Window(NamedTuple):
    """One window, judged.

    :param start: ns since the start of the measured phase, as is ``end``.
    :param observed: None if unknown; inf if too many messages never came.
    :param reason: why ``observed`` is unknown, or why the generator caused the miss; otherwise
        empty.
    """

    start: int
    end: int
    observed: float | None
    samples: int
    outcome: Outcome
    reason: str = ""


@record
class Finding:
    """One objective, judged.

    :param observed: the value; with windows the worst one; for a drift the change, as a share of
        the first tenth.
    :param text: observed value, bound, how far over, number of samples, in one line.
    :param own: why it is *generator-limited*, or None.
    :param shown: the parts of that line, if they are more than the observed value and the bound.
    :param windows: all windows, in order.
    :param tenths: for a drift, the values observed in the first and in the last tenth.
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


def no_data(objective: Objective, why: str, samples: int = 0) -> Finding:
    """Make the finding of an objective that cannot be judged.

    :param why: follows the objective's name.
    """
    return Finding(
        objective=objective,
        outcome=Outcome.NO_DATA,
        observed=None,
        samples=samples,
        text=f"{objective.name}: {why}",
    )


@record
class Verdict:
    """The outcome of a run.

    :param reasons: the causes of *no data*, or the evidence of *generator-limited* with what to
        change last.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()

    def having(self, outcome: Outcome) -> tuple[Finding, ...]:
        """The findings with this outcome."""
        return tuple(finding for finding in self.findings if finding.outcome is outcome)


# Observed values next to their bounds, as text.


class Shown(NamedTuple):
    """An observed value with its bound, as text.

    :param observed: ``83.0 ms``. :param bound: ``<= 50.0 ms``.
    :param missed_by: ``over by 66 %``; empty if the bound holds.
    """

    observed: str
    bound: str
    missed_by: str

    @property
    def comparison(self) -> str:
        """One line: ``83.0 ms > 50.0 ms: over by 66 %``, or ``12.0 ms <= 50.0 ms``."""
        if not self.missed_by:
            return f"{self.observed} {self.bound}"
        sign, bound = self.bound.split(" ", 1)
        opposite = ">" if sign == "<=" else "<"
        return f"{self.observed} {opposite} {bound}: {self.missed_by}"


def show(objective: Objective, value: float) -> Shown:
    """Return an observed value with the bound that it breaks, or with all if it breaks none."""
    minimum = objective.minimum
    maximum = objective.maximum
    unit = objective.unit
    slack = ROUNDING if unit in ("ratio", "msg/s") else 0.0
    if minimum is not None and value < minimum * (1 - slack):
        observed, bound = pair(value, minimum, unit)
        return Shown(observed, f">= {bound}", distance(value, minimum, unit))
    if maximum is not None and value > maximum * (1 + slack):
        observed, bound = pair(value, maximum, unit)
        return Shown(observed, f"<= {bound}", distance(value, maximum, unit))
    return Shown(format_value(value, unit), write_bounds(objective), "")


def write_bounds(objective: Objective) -> str:
    """Write the bounds of an objective: ``<= 50.0 ms``, ``>= 1.00 ms and <= 50.0 ms``."""
    bounds = []
    if objective.minimum is not None:
        bounds.append(f">= {format_value(objective.minimum, objective.unit)}")
    if objective.maximum is not None:
        bounds.append(f"<= {format_value(objective.maximum, objective.unit)}")
    return " and ".join(bounds)
