"""The words of an ``slo:`` section about time: the windows in which its objectives hold, and how much a run may drift.

::

    slo:
      window: 10s                           # each latency and the throughput of this section hold in each 10 s
      violations: 1%                        # but in so many of them
      endToEndLatency: {p99: 100ms}
      whole: {endToEndLatency: {p99: 80ms}}     # besides, of the whole run
      drift: {endToEndLatency.p99: 20%}     # the last tenth of the run is at most so much above the first
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pytest_loadtest.metrics.catalogue import named
from pytest_loadtest.values.quantities import SECOND, format_duration, parse_duration
from pytest_loadtest.verdict.grammar import (
    PERCENT,
    Problems,
    Sides,
    WrongBound,
    nearest,
    read_sides,
    read_statistic,
)

KEYS: Final = ("window", "violations", "whole", "drift")
WINDOWED: Final = named(per_window=True)
"""Metrics that a window can have: of messages, which have the time at which they were intended."""
DRIFTING: Final = named(drifts=True)
"""Metrics of which a tenth can be a share of another: those that are above 0."""
MOST_WINDOWS: Final = 100_000


class WindowTerms(NamedTuple):
    """In what the bounds of a section hold. :param window: ns; None: in the whole run. :param violations: share that may miss."""

    window: int | None
    violations: float


def read_held(section: Mapping[str, object], problems: Problems) -> WindowTerms:
    """``window`` and ``violations`` of a section. :param problems: get what is wrong."""
    window = _window(section["window"], problems) if "window" in section else None
    if "window" not in section:
        for key in ("violations", "whole"):
            if key in section:
                problems.append(((key,), f"{key!r} is nothing without windows", "write window: 10s beside it"))
        return WindowTerms(None, 0.0)
    if not any(metric in WINDOWED for metric in section):
        message = "no bound of this section is held in windows: counts are of the whole run"
        problems.append((("window",), message, "write, for example, endToEndLatency: {p99: 100ms} beside it"))
    if "buckets" in section:
        message = "size buckets are judged over the whole run, not by window"
        problems.append((("buckets",), message, "write whole: {buckets: …}"))
    return WindowTerms(window, _violations(section["violations"], problems) if "violations" in section else 0.0)


def _window(value: object, problems: Problems) -> int | None:
    try:
        width = parse_duration(value) if isinstance(value, str) else None
    except ValueError as error:
        problems.append((("window",), str(error), "write 10s"))
        return None
    if width is None:
        problems.append((("window",), f"{value!r} is not a duration", "write 10s"))
    elif width < SECOND or width % SECOND:
        problems.append((("window",), f"{format_duration(width)} is not a whole number of seconds", "write 1s or more"))
    else:
        return width
    return None


def _violations(value: object, problems: Problems) -> float:
    match = PERCENT.fullmatch(str(value).strip())
    if match is None and (isinstance(value, bool) or value != 0):
        problems.append((("violations",), f"{value!r} is not a share of the windows", "write 1%"))
    elif match and float(match[1]) >= 100:
        problems.append((("violations",), f"{value!r} of the windows holds for every run", "write less than 100%"))
    return float(match[1]) / 100 if match else 0.0


def read_drift(section: object, problems: Problems) -> Iterator[tuple[str, str, Sides]]:
    """The bounds on drift: metric, statistic, and by what share the last tenth may be below the first (0 or less) and above it.

    :param problems: get what is wrong with the others.
    """
    if not isinstance(section, Mapping) or not section:
        problems.append((("drift",), "names nothing", "write drift: {endToEndLatency.p99: 20%}"))
        return
    for key, value in section.items():
        metric, _, statistic = str(key).partition(".")
        at = len(problems)
        if metric not in DRIFTING:
            problems.append((("drift", key), f"{metric!r} is not a metric that drifts", nearest(metric, DRIFTING)))
        elif metric == "throughput" and statistic:
            problems.append((("drift", key), f"{key!r} is no metric: throughput has no statistics", "write throughput"))
        elif metric != "throughput" and not statistic:
            problems.append((("drift", key), f"{key!r} does not say which statistic drifts", f"write {metric}.p99"))
        elif metric != "throughput":
            try:
                statistic = read_statistic(statistic)
            except WrongBound as wrong:
                problems.append((("drift", key), *wrong.args))
        sides = read_sides(value, "min" if metric == "throughput" else "max", _change, ("drift", str(key)), problems)
        if sides is not None and len(problems) == at:
            yield metric, statistic, sides


def _change(bound: object, side: str) -> tuple[float, str]:
    match = PERCENT.fullmatch(str(bound).strip())
    if match is None:
        raise WrongBound("has no bound" if bound is None else f"{bound!r} is not a share of the first tenth", "write 20%")
    share = float(match[1]) / 100
    if side == "min" and share >= 1:
        raise WrongBound(f"{bound!r} less holds for every run", "write less than 100%")
    return (math.copysign(share, -1 if side == "min" else 1)), "ratio"


def apart(section: Mapping[str, object]) -> dict[str, object]:
    """What a right section wants to be measured apart: ``window`` in ns, or None, and whether ``drift``."""
    return {"window": read_held(section, []).window, "drift": "drift" in section}
