"""The grammar of time in an ``slo:`` section: the windows in which its objectives hold, and how much a run may drift.

::

    slo:
      window: 10s                           # each latency and the throughput of this section hold in each 10 s
      violations: 1%                        # except in this share of them
      endToEndLatency: {p99: 100ms}
      whole: {endToEndLatency: {p99: 80ms}}     # also over the whole run
      drift: {endToEndLatency.p99: 20%}     # the last tenth of the run is at most this much above the first
"""

from __future__ import annotations

import math
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
"""Metrics that are always above 0, so that the last tenth can be written as a share of the first."""
MOST_WINDOWS: Final = 100_000


class WindowTerms(NamedTuple):
    """The windows in which a section's bounds hold. :param window: ns; None: the whole run. :param violations: share that may miss."""

    window: int | None
    violations: float


def read_windows(section: Mapping[str, object], problems: list[Problem]) -> WindowTerms:
    """Read ``window`` and ``violations`` of a section. :param problems: their problems are added to it."""
    window = _window(section["window"], problems) if "window" in section else None
    if "window" not in section:
        orphans = [key for key in ("violations", "whole") if key in section]
        remedy = "write window: 10s next to it"
        problems += (
            Problem((key,), f"{key!r} has no effect without window", remedy, at_key=True)
            for key in orphans
        )
        return WindowTerms(None, 0.0)
    if not any(metric in WINDOWED for metric in section):
        message = "no bound of this section is judged in windows: all are judged over the whole run"
        problems.append(
            Problem(
                ("window",), message, "write, for example, endToEndLatency: {p99: 100ms} next to it"
            )
        )
    if "buckets" in section:
        message = "size buckets are judged over the whole run, not by window"
        problems.append(Problem(("buckets",), message, "write whole: {buckets: …}"))
    return WindowTerms(
        window, _violations(section["violations"], problems) if "violations" in section else 0.0
    )


def _window(value: object, problems: list[Problem]) -> int | None:
    try:
        width = parse_duration(value) if isinstance(value, str) else None
    except ValueError as error:
        problems.append(Problem(("window",), str(error), "write 10s"))
        return None
    if width is None:
        problems.append(Problem(("window",), f"{value!r} is not a duration", "write 10s"))
    elif width < SECOND or width % SECOND:
        problems.append(
            Problem(
                ("window",),
                f"{format_duration(width)} is not a whole number of seconds",
                "write 1s or more",
            )
        )
    else:
        return width
    return None


def _violations(value: object, problems: list[Problem]) -> float:
    match = PERCENT.fullmatch(str(value).strip())
    if match is None and (isinstance(value, bool) or value != 0):
        problems.append(
            Problem(("violations",), f"{value!r} is not a share of the windows", "write 1%")
        )
    elif match and float(match[1]) >= 100:
        problems.append(
            Problem(
                ("violations",),
                f"{value!r} of the windows holds for every run",
                "write less than 100%",
            )
        )
    return float(match[1]) / 100 if match else 0.0


def read_drift(section: object, problems: list[Problem]) -> Iterator[tuple[str, str, Sides]]:
    """Yield the bounds on drift: metric, statistic, and the shares by which the last tenth may be below the first (0 or less) and above.

    :param problems: the problems of the other bounds are added to it.
    """
    if not isinstance(section, Mapping) or not section:
        problems.append(
            Problem(("drift",), "bounds no metric", "write drift: {endToEndLatency.p99: 20%}")
        )
        return
    for key, value in section.items():
        metric, _, statistic = str(key).partition(".")
        at = len(problems)
        if metric not in DRIFTING:
            message, of_key = f"{metric!r} is not a metric with drift", metric == key
            problems.append(Problem(("drift", key), message, nearest(metric, DRIFTING), of_key))
        elif metric == "throughput" and statistic:
            message = f"{key!r} is not a metric: throughput has no statistics"
            problems.append(Problem(("drift", key), message, "write throughput", at_key=True))
        elif metric != "throughput" and not statistic:
            problems.append(
                Problem(("drift", key), f"{key!r} names no statistic", f"write {metric}.p99")
            )
        elif metric != "throughput":
            try:
                statistic = read_statistic(statistic)
            except Invalid as error:
                problems.append(error.problem.below("drift", key))
        sides = read_sides(
            value,
            "min" if metric == "throughput" else "max",
            _change,
            ("drift", str(key)),
            problems,
        )
        if sides is not None and len(problems) == at:
            yield metric, statistic, sides


def _change(bound: object, side: str) -> tuple[float, str]:
    match = PERCENT.fullmatch(str(bound).strip())
    if match is None:
        raise invalid(
            "has no bound" if bound is None else f"{bound!r} is not a share of the first tenth",
            "write 20%",
        )
    share = float(match[1]) / 100
    if side == "min" and share >= 1:
        raise invalid(f"{bound!r} less holds for every run", "write less than 100%")
    return math.copysign(share, -1 if side == "min" else 1), "ratio"
