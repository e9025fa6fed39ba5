"""Drift: what a metric is in the last tenth of a run, as against the first. For soaks: what leaks or fills up shows there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.signed import Lateness
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import ROUNDING, exact, format_value
from pytest_loadtest.verdict.finding import Finding, Outcome
from pytest_loadtest.verdict.own_delay import pauses
from pytest_loadtest.verdict.shown import Shown
from pytest_loadtest.verdict.windows import may_be_missing, moment, not_there, see

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.metrics.stretches import Stretches
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.windows import SeenInStretch

FIRST, LAST = 0, 1


def judge(objective: Objective, measurements: Measurements) -> Finding:
    """Judge an objective on drift. Its bounds are changes, as shares of what the first tenth has."""
    unit, tenths = "ratio" if objective.metric == "throughput" else "ns", measurements.tenths
    absent = not_there(objective, measurements)
    if tenths is None and not absent:
        absent = f"the measured phase, {format_duration(measurements.duration)}, is shorter than ten seconds"
    if tenths is None or absent:
        return _no_data(objective, absent)
    allowed = may_be_missing(objective, measurements)
    seen = [see(objective, tenths, at, unit, allowed) for at in (FIRST, LAST)]
    for at, name in ((FIRST, "first"), (LAST, "last")):
        if seen[at].value is None:
            return _no_data(objective, f"the {name} tenth, {_lies(tenths, at)}: {seen[at].why}", seen)
    before, after = (one.value or 0.0 for one in seen)
    if before in (0.0, math.inf):
        what = "is 0" if not before else "has too many that never came"
        return _no_data(objective, f"the first tenth, {_lies(tenths, FIRST)}, {what}, so nothing can be a share of it", seen)
    change = after / before - 1
    samples = " and ".join(exact(one.samples) for one in seen)
    where = f"{_lies(tenths, FIRST)} and {_lies(tenths, LAST)}; {samples} samples"
    values = f"{format_value(before, unit)}, then {format_value(after, unit)}"
    over = _over(objective, change)
    sign = "" if not over else " < " if change < 0 else " > "
    bound = _bounds(objective) if not over else _percent(objective.minimum if change < 0 else objective.maximum)
    text = f"{objective.name} {values}: {_percent(change)}{sign or ' within '}{bound} ({where})"
    own = _own(objective, measurements, seen, before) if over and change > 0 and unit == "ns" else None
    outcome = Outcome.MET if not over else Outcome.GENERATOR_LIMITED if own else Outcome.MISSED
    shown = Shown(f"{_percent(change)} ({values})", _bounds(objective), f"{_percent(change)}{sign}{bound}" if over else "")
    return Finding(
        objective=objective, outcome=outcome, observed=change, samples=sum(one.samples for one in seen), text=text, own=own, shown=shown,
        tenths=(before, after),
    )  # fmt: skip


def _no_data(objective: Objective, why: str, seen: list[SeenInStretch] | None = None) -> Finding:
    samples = sum(one.samples for one in seen or ())
    return Finding(objective=objective, outcome=Outcome.NO_DATA, observed=None, samples=samples, text=f"{objective.name}: {why}")


def _over(objective: Objective, change: float) -> bool:
    low, high = objective.minimum, objective.maximum
    return (high is not None and change > high + ROUNDING) or (low is not None and change < low - ROUNDING)


def _own(objective: Objective, measurements: Measurements, seen: list[SeenInStretch], before: float) -> str | None:
    """Why the generator's pauses in the last tenth made the drift; None where they did not."""
    tenths, found = measurements.tenths, seen[LAST].latencies
    assert tenths is not None
    assert found is not None
    assert objective.maximum is not None
    own = tenths.of("own_send_delay", LAST)
    assert not isinstance(own, Lateness)
    why = pauses(objective, found, own, measurements.subscriptions, before * (1 + objective.maximum))
    return f"{objective.name} {why}" if why else None


def _lies(tenths: Stretches, at: int) -> str:
    return f"{moment(int(tenths.start[at]))} to {moment(int(tenths.end[at]))}"


def _percent(change: float | None) -> str:
    if change is None or change == math.inf:
        return "never"
    return f"{'-' if change < 0 else '+'}{format_value(abs(change), 'ratio')}"


def _bounds(objective: Objective) -> str:
    sides = [_percent(side) for side in (objective.minimum, objective.maximum) if side is not None]
    return " and ".join(sides)
