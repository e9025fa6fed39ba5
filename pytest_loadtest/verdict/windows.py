"""Objectives that must hold in each window of a run, or in all but a share of them.

The rule: each window is judged as a run of its own messages. A window with too few measurements has
*no data*, and then the objective has none too, unless more windows missed it than may. Windows that
only the generator's own pauses broke count neither as met nor as missed.

:func:`~pytest_loadtest.verdict.slo.evaluate` calls :func:`judge_windows` in the controller's thread
that judges a run, and in the command ``aggregate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.values.quantities import format_duration
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
from pytest_loadtest.verdict.observations import clock_doubt
from pytest_loadtest.verdict.slices import (
    SliceObservation,
    late_in_slice,
    may_be_missing,
    moment,
    observe_slice,
    why_absent,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.time_slices import SlicedStats
    from pytest_loadtest.verdict.objectives import Objective


NAMED: Final = 3
"""Windows without data that the text lists; the results list all."""


def judge_windows(objective: Objective, measurements: Measurements) -> Finding:
    """Judge an objective that has windows."""
    windows = measurements.windows
    absent = why_absent(objective, measurements)
    if windows is None and not absent:
        phase = f"the measured phase, {format_duration(measurements.duration)}"
        width = format_duration(objective.window or 0)
        absent = f"{phase}, is shorter than a window of {width}"
    if windows is None or absent:
        return no_data(objective, absent)
    allowed = may_be_missing(objective, measurements)
    judged = [_judge(objective, measurements, windows, at, allowed) for at in range(len(windows))]
    return _finding(objective, _by_outcome(judged))


def _judge(
    objective: Objective, measurements: Measurements, windows: SlicedStats, at: int, allowed: bool
) -> Window:
    """Judge one window. :param allowed: see :func:`may_be_missing`."""
    start = int(windows.start[at])
    end = int(windows.end[at])
    observation = observe_slice(
        objective, windows, at, objective.unit, allowed, measurements.clock_error
    )
    value = observation.value
    samples = observation.samples
    if value is None:
        return Window(start, end, None, samples, Outcome.NO_DATA, observation.why)
    doubt = clock_doubt(objective, value, measurements)
    if doubt:
        return Window(start, end, None, samples, Outcome.NO_DATA, doubt)
    if not show(objective, value).missed_by:
        return Window(start, end, value, samples, Outcome.MET)
    cause = _own_cause(objective, measurements, windows, at, observation)
    if cause:
        return Window(start, end, value, samples, Outcome.GENERATOR_LIMITED, cause)
    return Window(start, end, value, samples, Outcome.MISSED)


def _own_cause(
    objective: Objective,
    measurements: Measurements,
    windows: SlicedStats,
    at: int,
    observation: SliceObservation,
) -> str | None:
    """Return why the generator itself broke the bound in a window that missed it, or None."""
    value = observation.value
    maximum = objective.maximum
    assert value is not None
    if objective.metric == "throughput":
        return late_in_slice(windows, at, value, objective.minimum, objective.unit)
    if observation.latencies is None or maximum is None or value <= maximum:
        return None

    def counted(kind: str) -> Histogram | Lateness | None:
        return windows.of(kind, at)

    return excuse(objective, observation.latencies, counted, maximum, measurements)


# The finding about all windows.


class _Judged(NamedTuple):
    """All windows, in order, and those of each outcome that the finding names."""

    windows: tuple[Window, ...]
    missed: list[Window]
    own: list[Window]
    empty: list[Window]


def _by_outcome(windows: Sequence[Window]) -> _Judged:
    judged = _Judged(tuple(windows), missed=[], own=[], empty=[])
    lists = {
        Outcome.MISSED: judged.missed,
        Outcome.GENERATOR_LIMITED: judged.own,
        Outcome.NO_DATA: judged.empty,
    }
    for window in windows:
        if window.outcome in lists:
            lists[window.outcome].append(window)
    return judged


def _finding(objective: Objective, judged: _Judged) -> Finding:
    outcome = _outcome(objective, judged)
    worst = _worst(objective, judged)
    observed = None
    if worst is not None and outcome is not Outcome.NO_DATA:
        observed = worst.observed
    own = None
    if outcome is Outcome.GENERATOR_LIMITED:
        first = judged.own[0]
        count = _of(judged.own, judged)
        own = f"{objective.name} missed {count}; that at {moment(first.start)} {first.reason}"
    return Finding(
        objective=objective,
        outcome=outcome,
        observed=observed,
        samples=sum(window.samples for window in judged.windows),
        text=_text(objective, judged, outcome, worst),
        own=own,
        windows=judged.windows,
        shown=_shown(objective, judged, outcome, worst),
    )


def _outcome(objective: Objective, judged: _Judged) -> Outcome:
    if _too_many(objective, len(judged.missed), judged):
        return Outcome.MISSED
    if judged.empty:
        return Outcome.NO_DATA
    if _too_many(objective, len(judged.missed) + len(judged.own), judged):
        return Outcome.GENERATOR_LIMITED
    return Outcome.MET


def _too_many(objective: Objective, missed: int, judged: _Judged) -> bool:
    return missed > objective.violations * len(judged.windows) * (1 + ROUNDING)


def _worst(objective: Objective, judged: _Judged) -> Window | None:
    """Return the window whose value is farthest beyond its bounds, or nearest to them."""
    measured = [window for window in judged.windows if window.observed is not None]
    return max(
        measured, key=lambda window: _excess(objective, window.observed or 0.0), default=None
    )


def _excess(objective: Objective, value: float) -> float:
    """Return the ratio of a value to its bound: above 1 it misses."""
    above = 0.0
    below = 0.0
    if objective.maximum is not None:
        above = value / objective.maximum if objective.maximum else float(value > 0)
    if objective.minimum is not None:
        below = objective.minimum / value if value > 0 else float("inf")
    return max(above, below)


# The finding as text.


def _text(objective: Objective, judged: _Judged, outcome: Outcome, worst: Window | None) -> str:
    """Write the line of the finding: the bound, windows by outcome, and the worst value."""
    parts = _counts(objective, judged, outcome)
    if worst is not None:
        parts.append(f"worst {_value(objective, worst)}")
    width = format_duration(objective.window or 0)
    return f"{objective.name} {write_bounds(objective)} in each {width}: {'; '.join(parts)}"


def _counts(objective: Objective, judged: _Judged, outcome: Outcome) -> list[str]:
    """Write the number of windows of each outcome, the decisive one first."""
    undecided = []
    if judged.empty:
        undecided.append(f"no data in {_of(judged.empty, judged)}: {_named(judged.empty)}")
    if judged.own:
        undecided.append(f"broken by the generator's own pauses in {_of(judged.own, judged)}")
    if undecided and not judged.missed:
        return undecided
    missed = _missed(objective, judged)
    if outcome is Outcome.MISSED:
        return [missed, *undecided]
    return [*undecided, missed]


def _missed(objective: Objective, judged: _Judged) -> str:
    """Write the number of windows that missed the objective, and how many may."""
    if not judged.missed:
        return f"held in all {exact(len(judged.windows))} windows"
    count = f"missed in {_of(judged.missed, judged)}"
    if not objective.violations:
        return f"{count}, and none may"
    share = len(judged.missed) / len(judged.windows)
    observed, allowed = pair(share, objective.violations, "ratio")
    sign = ">" if _too_many(objective, len(judged.missed), judged) else "<="
    return f"{count}, {observed} {sign} {allowed}"


def _shown(objective: Objective, judged: _Judged, outcome: Outcome, worst: Window | None) -> Shown:
    """Return the worst value with the bound, and the number of windows that missed it."""
    bound = f"{write_bounds(objective)} in each {format_duration(objective.window or 0)}"
    if objective.violations:
        bound += f", but {format_value(objective.violations, 'ratio')} of them"
    observed = "" if worst is None else _value(objective, worst)
    count = f"missed in {_of(judged.missed, judged)}"
    if outcome is Outcome.MISSED:
        return Shown(observed, bound, count)
    if worst is not None and judged.missed:
        observed += f" ({count})"
    return Shown(observed, bound, "")


def _of(windows: Sequence[Window], judged: _Judged) -> str:
    return f"{exact(len(windows))} of {exact(len(judged.windows))} windows"


def _value(objective: Objective, window: Window) -> str:
    return f"{format_value(window.observed or 0.0, objective.unit)} at {moment(window.start)}"


def _named(empty: Sequence[Window]) -> str:
    """Write where the first windows without data are, and why they have none."""
    named = ", ".join(f"at {moment(window.start)} ({window.reason})" for window in empty[:NAMED])
    if len(empty) > NAMED:
        named += f", and {exact(len(empty) - NAMED)} more"
    return named
