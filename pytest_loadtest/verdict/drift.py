"""Objectives on drift: the change of a metric from the first tenth of a run to the last.

The rule: the change is a share of the value in the first tenth, and must lie within the bounds,
also with the error of the clocks between hosts. In soak tests it shows what leaks or fills up. A
drift that is within its bounds with the generator's own delays and not without them, or the
reverse, is *generator-limited*.

:func:`~pytest_loadtest.verdict.slo.evaluate` calls :func:`judge_drift` in the controller's thread
that judges a run, and in the command ``aggregate``.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import ROUNDING, exact, format_value
from pytest_loadtest.verdict.excuses import excuse, without_own_part
from pytest_loadtest.verdict.finding import Finding, Outcome, Shown, no_data
from pytest_loadtest.verdict.observations import clock_error, uneven_clocks
from pytest_loadtest.verdict.slices import (
    SliceObservation,
    in_time_without_own,
    late_in_slice,
    may_be_missing,
    moment,
    observe_slice,
    why_absent,
)

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.time_slices import SlicedStats
    from pytest_loadtest.verdict.objectives import Objective

FIRST: Final = 0
LAST: Final = 1


class _Tenths(NamedTuple):
    """The observations of the first and of the last tenth.

    :param slices: their measurements. :param unit: ``ns``, or ``ratio`` for throughput.
    """

    slices: SlicedStats
    unit: str
    first: SliceObservation
    last: SliceObservation

    @property
    def samples(self) -> int:
        return self.first.samples + self.last.samples

    @property
    def before(self) -> float:
        """The value in the first tenth."""
        return self.first.value or 0.0

    @property
    def after(self) -> float:
        """The value in the last tenth."""
        return self.last.value or 0.0

    @property
    def change(self) -> float:
        """The change as a share of the value in the first tenth."""
        if not self.before:  # it can be 0 without the generator's own delays
            return math.inf if self.after else 0.0
        return self.after / self.before - 1

    @property
    def values(self) -> str:
        """Both values as text: ``10.0 ms, then 12.0 ms``."""
        return f"{format_value(self.before, self.unit)}, then {format_value(self.after, self.unit)}"

    def span(self, at: int) -> str:
        """Write the time of a tenth: ``0:00:00 to 0:01:00``."""
        return f"{moment(int(self.slices.start[at]))} to {moment(int(self.slices.end[at]))}"


def judge_drift(objective: Objective, measurements: Measurements) -> Finding:
    """Judge an objective on drift. Its bounds are shares of the value in the first tenth."""
    slices = measurements.tenths
    absent = _why_unmeasured(objective, measurements)
    if slices is None or absent:
        return no_data(objective, absent)
    tenths = _observe(objective, slices, measurements)
    doubt = _why_no_change(tenths) or _why_uncertain(objective, tenths, measurements)
    if doubt:
        return no_data(objective, doubt, tenths.samples)
    return _finding(objective, tenths, measurements)


def _why_unmeasured(objective: Objective, measurements: Measurements) -> str:
    """Return why the metric has no value in the tenths of this run; empty if it may have one."""
    absent = why_absent(objective, measurements)
    if not absent:
        absent = uneven_clocks(objective.metric, measurements)
    if not absent and measurements.tenths is None:
        duration = format_duration(measurements.duration)
        absent = f"the measured phase, {duration}, is shorter than ten seconds"
    return absent


def _observe(objective: Objective, slices: SlicedStats, measurements: Measurements) -> _Tenths:
    unit = "ratio" if objective.metric == "throughput" else "ns"
    allowed = may_be_missing(objective, measurements)
    error = measurements.clock_error
    first = observe_slice(objective, slices, FIRST, unit, allowed, error)
    last = observe_slice(objective, slices, LAST, unit, allowed, error)
    return _Tenths(slices, unit, first, last)


def _why_no_change(tenths: _Tenths) -> str:
    """Return why the values have no relative change; empty if they have one."""
    if tenths.first.value is None:
        return f"the first tenth, {tenths.span(FIRST)}: {tenths.first.why}"
    if tenths.last.value is None:
        return f"the last tenth, {tenths.span(LAST)}: {tenths.last.why}"
    if tenths.before == 0:
        state = "is 0"
    elif tenths.before == math.inf:
        state = "has too many that never came"
    else:
        return ""
    return f"the first tenth, {tenths.span(FIRST)}, {state}: a change cannot be a share of it"


def _why_uncertain(objective: Objective, tenths: _Tenths, measurements: Measurements) -> str:
    """Return why the clocks leave open whether the drift is within its bounds; else ''."""
    if tenths.unit == "ratio":
        return ""
    error = clock_error(objective.metric, measurements)
    # Each value may be off by the error, in either direction.
    least = (tenths.after - error) / (tenths.before + error) - 1
    most = math.inf
    if tenths.before > error:
        most = (tenths.after + error) / (tenths.before - error) - 1
    judgements = {_exceeds(objective, change) for change in (least, tenths.change, most)}
    if len(judgements) == 1:
        return ""
    limit = f"the error of the clocks between hosts, {format_duration(error)}"
    question = f"whether the change is within {_write_bounds(objective)}"
    return f"{tenths.values}: {limit}, leaves open {question}"


def _exceeds(objective: Objective, change: float) -> bool:
    if objective.maximum is not None and change > objective.maximum + ROUNDING:
        return True
    return objective.minimum is not None and change < objective.minimum - ROUNDING


def _own_cause(objective: Objective, tenths: _Tenths, measurements: Measurements) -> str | None:
    """Return why the generator itself caused a drift beyond its bounds; None if it did not."""
    cause = None
    if tenths.unit == "ratio":
        if objective.minimum is not None:
            bound = tenths.before * (1 + objective.minimum)
            cause = late_in_slice(tenths.slices, LAST, tenths.after, bound, tenths.unit)
    elif tenths.change > 0:
        cause = _own_pauses(objective, tenths, measurements)
    return f"{objective.name} {cause}" if cause else None


def _own_pauses(objective: Objective, tenths: _Tenths, measurements: Measurements) -> str | None:
    """Return how the generator's pauses in the last tenth lengthened its latencies, or None."""
    assert tenths.last.latencies is not None
    assert objective.maximum is not None
    bound = tenths.before * (1 + objective.maximum)
    counted = partial(_of_tenth, tenths.slices, LAST)
    return excuse(objective, tenths.last.latencies, counted, bound, measurements)


def _own_share(objective: Objective, tenths: _Tenths, measurements: Measurements) -> str | None:
    """Return how the generator's own delays decide whether the drift exceeds its bounds.

    None if they do not decide it.
    """
    exceeds = _exceeds(objective, tenths.change)
    if not measurements.pauses_known:  # of older releases
        return _own_cause(objective, tenths, measurements) if exceeds else None
    rest = _without_own(objective, tenths)
    if _exceeds(objective, rest.change) == exceeds:
        return None
    of_each = "the generator's own part of each message"
    return f"{objective.name} would be {rest.values} without {of_each}"


def _without_own(objective: Objective, tenths: _Tenths) -> _Tenths:
    """Return the tenths without the generator's own delays."""
    first = _value_without_own(objective, tenths, FIRST, tenths.first)
    last = _value_without_own(objective, tenths, LAST, tenths.last)
    return tenths._replace(
        first=tenths.first._replace(value=first), last=tenths.last._replace(value=last)
    )


def _value_without_own(
    objective: Objective, tenths: _Tenths, at: int, observed: SliceObservation
) -> float | None:
    slices = tenths.slices
    if tenths.unit == "ratio":
        return in_time_without_own(slices, at) / (int(slices.offered[at]) * slices.fan_out)
    assert observed.latencies is not None
    value = without_own_part(objective, observed.latencies, partial(_of_tenth, slices, at))
    return observed.value if value is None else value


def _of_tenth(slices: SlicedStats, at: int, kind: str) -> Histogram | Lateness | None:
    return slices.of(kind, at)


def _finding(objective: Objective, tenths: _Tenths, measurements: Measurements) -> Finding:
    change = tenths.change
    own = _own_share(objective, tenths, measurements)
    if not _exceeds(objective, change):
        outcome = Outcome.GENERATOR_LIMITED if own else Outcome.MET
        comparison = f"{_percent(change)} within {_write_bounds(objective)}"
        missed_by = ""
    else:
        outcome = Outcome.GENERATOR_LIMITED if own else Outcome.MISSED
        if change < 0:
            comparison = f"{_percent(change)} < {_percent(objective.minimum)}"
        else:
            comparison = f"{_percent(change)} > {_percent(objective.maximum)}"
        missed_by = comparison
    spans = f"{tenths.span(FIRST)} and {tenths.span(LAST)}"
    samples = f"{exact(tenths.first.samples)} and {exact(tenths.last.samples)} samples"
    return Finding(
        objective=objective,
        outcome=outcome,
        observed=change,
        samples=tenths.samples,
        text=f"{objective.name} {tenths.values}: {comparison} ({spans}; {samples})",
        own=own,
        shown=Shown(f"{_percent(change)} ({tenths.values})", _write_bounds(objective), missed_by),
        tenths=(tenths.before, tenths.after),
    )


def _percent(change: float | None) -> str:
    """Write a change with its sign: ``+20.0 %``; an infinite change is ``never``."""
    if change is None or change == math.inf:
        return "never"
    sign = "-" if change < 0 else "+"
    return f"{sign}{format_value(abs(change), 'ratio')}"


def _write_bounds(objective: Objective) -> str:
    sides = (objective.minimum, objective.maximum)
    return " and ".join(_percent(side) for side in sides if side is not None)
