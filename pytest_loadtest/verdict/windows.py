"""Objectives that must hold in each window of a run, or in all but a share of them, and objectives on drift.

Each window is judged as a run of its own messages. A window with too few measurements has *no data*, and then the objective has none too,
unless more windows missed it than may. Windows that only the generator's own pauses broke count neither as met nor as missed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.metrics.catalogue import NOT_RECEIVED, OBJECTIVES, Need
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import ROUNDING, exact, format_value, pair
from pytest_loadtest.verdict.excuses import excuse
from pytest_loadtest.verdict.finding import (
    Finding,
    Outcome,
    Shown,
    Window,
    no_data,
    show,
    write_bounds,
)
from pytest_loadtest.verdict.observations import (
    KINDS,
    NO_CONSUMERS,
    Latencies,
    clock_doubt,
    clock_error,
    uneven_clocks,
    unfit,
)
from pytest_loadtest.verdict.tolerance import tolerated

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.metrics.time_slices import SlicedStats
    from pytest_loadtest.verdict.objectives import Objective


NAMED: Final = 3
"""Windows without data that the text lists; the results list all."""
NOT_DUE: Final = "no message was due"


class SliceObservation(NamedTuple):
    """The observed value in one time slice. :param value: None if unknown. :param why: why it is unknown; otherwise empty."""

    value: float | None
    samples: int
    why: str
    latencies: Latencies | None = None


def judge_windows(objective: Objective, measurements: Measurements) -> Finding:
    """Judge an objective that has windows."""
    windows = measurements.windows
    absent = not_there(objective, measurements)
    if windows is None and not absent:
        width = format_duration(objective.window or 0)
        absent = f"the measured phase, {format_duration(measurements.duration)}, is shorter than a window of {width}"
    if windows is None or absent:
        return no_data(objective, absent)
    judged = tuple(_judge(objective, measurements, windows, at) for at in range(len(windows)))
    return _finding(objective, judged)


def not_there(objective: Objective, measurements: Measurements) -> str:
    """Return why the run has no measurement of the metric at all; empty if it has some."""
    if Need.CONSUMERS in OBJECTIVES[objective.metric].needs and not measurements.subscriptions:
        return NO_CONSUMERS
    if objective.metric == "throughput":
        return "" if measurements.counts.received else NOT_RECEIVED
    return (
        ""
        if KINDS[objective.metric] in measurements.latencies
        else OBJECTIVES[objective.metric].absent
    )


def may_be_missing(objective: Objective, measurements: Measurements) -> bool:
    """Return whether the profile's own bounds allow what never came in the whole run, and so in each time slice."""
    kind = KINDS.get(objective.metric)
    return (
        kind is not None
        and objective.statistic == "max"
        and tolerated(objective.tolerances, kind, measurements)
    )


def observe_slice(
    objective: Objective, slices: SlicedStats, at: int, unit: str, allowed: bool, error: int = 0
) -> SliceObservation:
    """Observe the objective's metric in one time slice.

    :param unit: ``ns``, ``ratio``, or ``msg/s``. :param allowed: see :func:`may_be_missing`.
    :param error: of the clocks between hosts, ns.
    """
    offered = int(slices.offered[at])
    if not offered:
        return SliceObservation(None, 0, NOT_DUE)
    if objective.metric == "throughput":
        in_time = int(slices.in_time[at])
        seconds = int(slices.end[at] - slices.start[at]) / SECOND
        share = in_time / (offered * slices.subscriptions)
        return SliceObservation(
            share if unit == "ratio" else in_time / slices.subscriptions / seconds, in_time, ""
        )
    kind = KINDS[objective.metric]
    measured = Latencies(
        slices.of(kind, at), slices.never_came(kind, at), allowed, slices.unstamped(kind, at)
    )
    samples, value = (
        0 if measured.histogram is None else measured.histogram.n,
        measured.statistic(objective),
    )
    why = unfit(
        measured.histogram, objective.percentile, measured.never_came, error, measured.unstamped
    )
    why = why or ("" if value is not None else OBJECTIVES[objective.metric].absent)
    return SliceObservation(None if why else value, samples, why, measured)


def _judge(
    objective: Objective, measurements: Measurements, windows: SlicedStats, at: int
) -> Window:
    seen = observe_slice(
        objective,
        windows,
        at,
        objective.unit,
        may_be_missing(objective, measurements),
        measurements.clock_error,
    )
    ends = int(windows.start[at]), int(windows.end[at])
    doubt = "" if seen.value is None else clock_doubt(objective, seen.value, measurements)
    if seen.value is None or doubt:
        return Window(*ends, None, seen.samples, Outcome.NO_DATA, doubt or seen.why)
    outcome, why = (Outcome.MISSED if show(objective, seen.value).missed_by else Outcome.MET), None
    if (
        outcome is Outcome.MISSED
        and seen.latencies is not None
        and objective.maximum is not None
        and seen.value > objective.maximum
    ):
        why = excuse(
            objective,
            seen.latencies,
            lambda kind: windows.of(kind, at),
            objective.maximum,
            measurements,
        )
    elif outcome is Outcome.MISSED and objective.metric == "throughput":
        why = _late_in_slice(windows, at, seen.value, objective.minimum, objective.unit)
    return Window(
        *ends, seen.value, seen.samples, Outcome.GENERATOR_LIMITED if why else outcome, why or ""
    )


def _finding(objective: Objective, judged: tuple[Window, ...]) -> Finding:
    missed, ours, empty = (
        _having(judged, outcome)
        for outcome in (Outcome.MISSED, Outcome.GENERATOR_LIMITED, Outcome.NO_DATA)
    )
    measured = [window for window in judged if window.observed is not None]
    worst = max(
        measured, key=lambda window: _excess(objective, window.observed or 0.0), default=None
    )
    own = None
    if _too_many(objective, len(missed), len(judged)):
        outcome = Outcome.MISSED
    elif empty:
        outcome = Outcome.NO_DATA
    elif _too_many(objective, len(missed) + len(ours), len(judged)):
        outcome = Outcome.GENERATOR_LIMITED
        own = f"{objective.name} missed {_of(ours, judged)}; that at {moment(ours[0].start)} {ours[0].reason}"
    else:
        outcome = Outcome.MET
    parts = [f"no data in {_of(empty, judged)}: {_named(empty)}"] if empty else []
    parts += [f"broken by the generator's own pauses in {_of(ours, judged)}"] if ours else []
    if missed or not parts:
        parts.insert(
            0 if outcome is Outcome.MISSED else len(parts), _counted(objective, missed, judged)
        )
    if worst is not None:
        parts.append(f"worst {_value(objective, worst)}")
    text = f"{objective.name} {write_bounds(objective)} in each {format_duration(objective.window or 0)}: {'; '.join(parts)}"
    return Finding(
        objective=objective, outcome=outcome, observed=None if worst is None or outcome is Outcome.NO_DATA else worst.observed,
        samples=sum(window.samples for window in judged), text=text, own=own, windows=judged,
        shown=_shown(objective, missed, judged, outcome, worst),
    )  # fmt: skip


def _having(judged: Sequence[Window], outcome: Outcome) -> list[Window]:
    return [window for window in judged if window.outcome is outcome]


def _too_many(objective: Objective, missed: int, of: int) -> bool:
    return missed > objective.violations * of * (1 + ROUNDING)


def _excess(objective: Objective, value: float) -> float:
    """Return the ratio of a value to its bound: above 1 it misses."""
    low, high = objective.minimum, objective.maximum
    above = (value / high if high else float(value > 0)) if high is not None else 0.0
    below = (low / value if value > 0 else float("inf")) if low is not None else 0.0
    return max(above, below)


def _counted(objective: Objective, missed: Sequence[Window], judged: Sequence[Window]) -> str:
    """Write the number of windows that missed the objective, and how many may."""
    if not missed:
        return f"held in all {exact(len(judged))} windows"
    if not objective.violations:
        return f"missed in {_of(missed, judged)}, and none may"
    here, allowed = pair(len(missed) / len(judged), objective.violations, "ratio")
    return f"missed in {_of(missed, judged)}, {here} {'>' if _too_many(objective, len(missed), len(judged)) else '<='} {allowed}"


def _of(some: Sequence[Window], judged: Sequence[Window]) -> str:
    return f"{exact(len(some))} of {exact(len(judged))} windows"


def _value(objective: Objective, window: Window) -> str:
    return f"{format_value(window.observed or 0.0, objective.unit)} at {moment(window.start)}"


def _named(empty: Sequence[Window]) -> str:
    more = f", and {exact(len(empty) - NAMED)} more" if len(empty) > NAMED else ""
    return (
        ", ".join(f"at {moment(window.start)} ({window.reason})" for window in empty[:NAMED]) + more
    )


def _shown(
    objective: Objective,
    missed: Sequence[Window],
    judged: Sequence[Window],
    outcome: Outcome,
    worst: Window | None,
) -> Shown:
    but = (
        f", but {format_value(objective.violations, 'ratio')} of them"
        if objective.violations
        else ""
    )
    bound = f"{write_bounds(objective)} in each {format_duration(objective.window or 0)}{but}"
    over = f"missed in {_of(missed, judged)}"
    remark = f" ({over})" if missed and outcome is not Outcome.MISSED else ""
    observed = "" if worst is None else _value(objective, worst) + remark
    return Shown(observed, bound, over if outcome is Outcome.MISSED else "")


def moment(ns: int) -> str:
    """Write a time since the start of the measured phase, in whole seconds: ``0:12:10``."""
    minutes, seconds = divmod(ns // SECOND, 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def late_sends(value: float, bound: float | None, late: int, came: int, per: float) -> str | None:
    """Return why a lower bound on what was in time would hold without the generator's own send delay (``would hold with …``), or None.

    :param late: messages that only their own send delay made late. :param came: messages that came late; what never came would not have
        been in time either. :param per: the unit of the value: messages offered, or seconds.
    """
    more = min(late, came) / per
    if bound is None or not more or not value < bound <= (value + more) * (1 + ROUNDING):
        return None
    return f"would hold with the {exact(late)} messages that the generator sent after the end, though the target had room before"


def _late_in_slice(
    slices: SlicedStats, at: int, value: float, bound: float | None, unit: str
) -> str | None:
    """Return why the throughput of a time slice would hold without the generator's own send delay, or None."""
    came = int(slices.received[at] - slices.in_time[at]) // slices.subscriptions
    per = (
        int(slices.offered[at])
        if unit == "ratio"
        else int(slices.end[at] - slices.start[at]) / SECOND
    )
    return late_sends(value, bound, int(slices.own_late[at]), came, per)


# Drift: the change of a metric from the first tenth of a run to the last. In soak tests it shows what leaks or fills up.

FIRST, LAST = 0, 1


def judge_drift(objective: Objective, measurements: Measurements) -> Finding:
    """Judge an objective on drift. Its bounds are changes, as shares of the value in the first tenth."""
    unit, tenths = "ratio" if objective.metric == "throughput" else "ns", measurements.tenths
    absent = not_there(objective, measurements) or (
        uneven_clocks(objective.metric, measurements) if unit == "ns" else ""
    )
    if tenths is None and not absent:
        absent = f"the measured phase, {format_duration(measurements.duration)}, is shorter than ten seconds"
    if tenths is None or absent:
        return no_data(objective, absent)
    allowed = may_be_missing(objective, measurements)
    seen = [
        observe_slice(objective, tenths, at, unit, allowed, measurements.clock_error)
        for at in (FIRST, LAST)
    ]
    samples = sum(one.samples for one in seen)
    for at, name in ((FIRST, "first"), (LAST, "last")):
        if seen[at].value is None:
            return no_data(
                objective, f"the {name} tenth, {_span(tenths, at)}: {seen[at].why}", samples
            )
    before, after = (one.value or 0.0 for one in seen)
    if before in (0.0, math.inf):
        what = "is 0" if not before else "has too many that never came"
        return no_data(
            objective,
            f"the first tenth, {_span(tenths, FIRST)}, {what}: a change cannot be a share of it",
            samples,
        )
    change = after / before - 1
    if doubt := _drift_doubt(
        objective,
        before,
        after,
        0 if unit == "ratio" else clock_error(objective.metric, measurements),
    ):
        return no_data(objective, doubt, samples)
    counts = " and ".join(exact(one.samples) for one in seen)
    where = f"{_span(tenths, FIRST)} and {_span(tenths, LAST)}; {counts} samples"
    values = f"{format_value(before, unit)}, then {format_value(after, unit)}"
    over = _over(objective, change)
    sign = "" if not over else " < " if change < 0 else " > "
    bound = (
        _bounds(objective)
        if not over
        else _percent(objective.minimum if change < 0 else objective.maximum)
    )
    text = f"{objective.name} {values}: {_percent(change)}{sign or ' within '}{bound} ({where})"
    own = None
    if over and unit == "ratio" and objective.minimum is not None:
        why = _late_in_slice(tenths, LAST, after, before * (1 + objective.minimum), unit)
        own = f"{objective.name} {why}" if why else None
    elif over and change > 0 and unit == "ns":
        own = _own(objective, measurements, seen, before)
    outcome = Outcome.MET if not over else Outcome.GENERATOR_LIMITED if own else Outcome.MISSED
    shown = Shown(
        f"{_percent(change)} ({values})",
        _bounds(objective),
        f"{_percent(change)}{sign}{bound}" if over else "",
    )
    return Finding(
        objective=objective, outcome=outcome, observed=change, samples=samples, text=text, own=own, shown=shown,
        tenths=(before, after),
    )  # fmt: skip


def _drift_doubt(objective: Objective, before: float, after: float, error: int) -> str:
    """Explain why the error of the clocks leaves open whether a drift is within its bounds; empty if it does not. :param error: ns."""
    least, most = (
        (after - error) / (before + error) - 1,
        (after + error) / (before - error) - 1 if before > error else math.inf,
    )
    if len({_over(objective, change) for change in (least, after / before - 1, most)}) == 1:
        return ""
    values, limit = (
        f"{format_value(before, 'ns')}, then {format_value(after, 'ns')}",
        format_duration(error),
    )
    return f"{values}: the error of the clocks between hosts, {limit}, leaves open whether the change is within {_bounds(objective)}"


def _over(objective: Objective, change: float) -> bool:
    low, high = objective.minimum, objective.maximum
    return (high is not None and change > high + ROUNDING) or (
        low is not None and change < low - ROUNDING
    )


def _own(
    objective: Objective, measurements: Measurements, seen: list[SliceObservation], before: float
) -> str | None:
    """Return why the generator's pauses in the last tenth caused the drift; None if they did not."""
    tenths, ranked = measurements.tenths, seen[LAST].latencies
    assert tenths is not None
    assert ranked is not None
    assert objective.maximum is not None
    bound = before * (1 + objective.maximum)
    why = excuse(objective, ranked, lambda kind: tenths.of(kind, LAST), bound, measurements)
    return f"{objective.name} {why}" if why else None


def _span(tenths: SlicedStats, at: int) -> str:
    return f"{moment(int(tenths.start[at]))} to {moment(int(tenths.end[at]))}"


def _percent(change: float | None) -> str:
    if change is None or change == math.inf:
        return "never"
    return f"{'-' if change < 0 else '+'}{format_value(abs(change), 'ratio')}"


def _bounds(objective: Objective) -> str:
    sides = [_percent(side) for side in (objective.minimum, objective.maximum) if side is not None]
    return " and ".join(sides)
