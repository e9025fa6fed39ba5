"""The grammar of time in an ``slo:`` section: windows, and how much a run may drift.

The rule: metrics of messages hold in each window, all others in the whole run.

:mod:`~pytest_loadtest.verdict.objectives` calls it while a profile is read, in every process.

::

    slo:
      window: 10s                           # its latencies and throughput hold in each 10 s
      violations: 1%                        # except in this share of them
      endToEndLatency: {p99: 100ms}
      whole: {endToEndLatency: {p99: 80ms}}     # also over the whole run
      drift: {endToEndLatency.p99: 20%}     # the last tenth is at most so much above the first
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pytest_loadtest.errors import Invalid, Problem, invalid
from pytest_loadtest.metrics.catalogue import named
from pytest_loadtest.values.quantities import SECOND, format_duration, parse_duration
from pytest_loadtest.verdict.grammar import PERCENT, Sides, nearest, read_sides, read_statistic

KEYS: Final = ("window", "violations", "whole", "drift")
WINDOWED: Final = named(per_window=True)
"""Metrics that can be judged in windows: those of messages, which have an intended time."""
DRIFTING: Final = named(drifts=True)
"""Metrics that are always above 0: the last tenth can be written as a share of the first."""
MOST_WINDOWS: Final = 100_000


class WindowTerms(NamedTuple):
    """The windows in which a section's bounds hold.

    :param window: ns; None: the whole run. :param violations: share that may miss.
    """

    window: int | None
    violations: float


def read_windows(section: Mapping[str, object], problems: list[Problem]) -> WindowTerms:
    """Read ``window`` and ``violations`` of a section.

    :param problems: their problems are added to it.
    """
    if "window" not in section:
        problems += _without_window(section)
        return WindowTerms(None, 0.0)
    window = _window(section["window"], problems)
    if not any(metric in WINDOWED for metric in section):
        message = "no bound of this section is judged in windows: all are judged over the whole run"
        remedy = "write, for example, endToEndLatency: {p99: 100ms} next to it"
        problems.append(Problem(("window",), message, remedy))
    if "buckets" in section:
        message = "size buckets are judged over the whole run, not by window"
        problems.append(Problem(("buckets",), message, "write whole: {buckets: …}"))
    violations = 0.0
    if "violations" in section:
        violations = _violations(section["violations"], problems)
    return WindowTerms(window, violations)


def _without_window(section: Mapping[str, object]) -> Iterator[Problem]:
    """Yield the keys that need windows, for a section without them."""
    for key in ("violations", "whole"):
        if key in section:
            message = f"{key!r} has no effect without window"
            yield Problem((key,), message, "write window: 10s next to it", at_key=True)


def _window(value: object, problems: list[Problem]) -> int | None:
    path = ("window",)
    try:
        width = parse_duration(value) if isinstance(value, str) else None
    except ValueError as error:
        problems.append(Problem(path, str(error), "write 10s"))
        return None
    if width is None:
        problems.append(Problem(path, f"{value!r} is not a duration", "write 10s"))
        return None
    if width < SECOND or width % SECOND:
        message = f"{format_duration(width)} is not a whole number of seconds"
        problems.append(Problem(path, message, "write 1s or more"))
        return None
    return width


def _violations(value: object, problems: list[Problem]) -> float:
    path = ("violations",)
    match = PERCENT.fullmatch(str(value).strip())
    if match is None:
        if isinstance(value, bool) or value != 0:
            message = f"{value!r} is not a share of the windows"
            problems.append(Problem(path, message, "write 1%"))
        return 0.0
    percent = float(match[1])
    if percent >= 100:
        message = f"{value!r} lets every window miss"
        problems.append(Problem(path, message, "write less than 100%"))
    return percent / 100


def read_drift(section: object, problems: list[Problem]) -> Iterator[tuple[str, str, Sides]]:
    """Yield the bounds on drift: metric, statistic, and the bounds on the change.

    These are the shares by which the last tenth may be below the first (0 or less), and above it.

    :param problems: the problems of the other bounds are added to it.
    """
    if not isinstance(section, Mapping) or not section:
        remedy = "write drift: {endToEndLatency.p99: 20%}"
        problems.append(Problem(("drift",), "bounds no metric", remedy))
        return
    for key, value in section.items():
        faults: list[Problem] = []
        metric, statistic = _drifting(key, faults)
        side = "min" if metric == "throughput" else "max"
        sides = read_sides(value, side, _change, ("drift", str(key)), faults)
        problems += faults
        if sides is not None and not faults:
            yield metric, statistic, sides


def _drifting(key: str | int, problems: list[Problem]) -> tuple[str, str]:
    """Read a key of the section: the metric, and the normal form of its statistic."""
    metric, _, statistic = str(key).partition(".")
    path = ("drift", key)
    if metric not in DRIFTING:
        message = f"{metric!r} is not a metric with drift"
        problems.append(Problem(path, message, nearest(metric, DRIFTING), metric == key))
    elif metric == "throughput":
        if statistic:
            message = f"{key!r} is not a metric: throughput has no statistics"
            problems.append(Problem(path, message, "write throughput", at_key=True))
    elif not statistic:
        problems.append(Problem(path, f"{key!r} names no statistic", f"write {metric}.p99"))
    else:
        try:
            statistic = read_statistic(statistic)
        except Invalid as error:
            problems.append(error.problem.below(*path))
    return metric, statistic


def _change(bound: object, side: str) -> tuple[float, str]:
    """Read the share by which the last tenth may be below (``min``) or above the first."""
    if bound is None:
        raise invalid("has no bound", "write 20%")
    match = PERCENT.fullmatch(str(bound).strip())
    if match is None:
        raise invalid(f"{bound!r} is not a share of the first tenth", "write 20%")
    share = float(match[1]) / 100
    if side == "max":
        return share, "ratio"
    if share >= 1:
        raise invalid(f"{bound!r} allows any drop", "write less than 100%")
    return -share, "ratio"
