"""The grammar of an ``slo:`` section: its metrics, its statistics, and how a bound is written.

The rule: a bound is read in the unit of its metric, and one that every run meets, or none, is an
error.

:mod:`~pytest_loadtest.verdict.objectives` and its neighbours call it while a profile is read: when
tests are collected, in every process, and whenever a command reads a profile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from pytest_loadtest.errors import Invalid, Path, Problem, did_you_mean, invalid
from pytest_loadtest.metrics.catalogue import OBJECTIVES, named
from pytest_loadtest.values.quantities import parse_duration

CONNECT_RATE: Final = "connectRate"
INDEX: Final = "delayedIndexBytesPerMessage"
SILENT: Final = "silent"
OUTPUT_SHARE: Final = "outputShare"
METRICS: Final = tuple(OBJECTIVES)
LATENCIES: Final = named(form="latency")
SHARES: Final = named(form="share")
FLOORS: Final = named(floor=True)
BUCKET_METRICS: Final = named(per_bucket=True)
_TIMES = (*LATENCIES, *named(form="duration"))

FINEST = Decimal("1e-6")
"""Percent: no run has enough messages for a percentile nearer to 100."""

PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_RATE = re.compile(r"(\d+(?:_\d+)*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*(?:(?:msg)?/s)?")
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


class Sides(NamedTuple):
    """A bound on one side or on both, inclusive, in ``unit``."""

    minimum: float | None
    maximum: float | None
    unit: str


def read_sides(
    value: object,
    alone: str,
    read: Callable[[object, str], tuple[float, str]],
    path: Path,
    problems: list[Problem],
) -> Sides | None:
    """Read ``{min: 1ms, max: 50ms}``, or a single bound.

    None if it has problems, which are added to ``problems``.

    :param alone: the side that a single bound means.
    :param read: reads the bound of a side to a number and its unit, or raises
        :class:`~pytest_loadtest.errors.Invalid`.
    """
    written = value if isinstance(value, Mapping) else {alone: value}
    faults = []
    bounds: dict[str, tuple[float, str]] = {}
    for side, bound in written.items():
        try:
            if side not in ("min", "max"):
                raise invalid(f"{side!r} is not a bound", "write min or max", at_key=True)
            bounds[side] = read(bound, side)
        except Invalid as error:
            place = (*path, side) if isinstance(value, Mapping) else path
            faults.append(error.problem.below(*place))
    if not written:
        faults.append(Problem(path, "has no bound", "write {min: …, max: …}, or the bound alone"))
    units = {unit for _, unit in bounds.values()}
    if len(units) > 1:
        message = "min and max have different units"
        faults.append(Problem(path, message, "write both in the same unit"))
    elif len(bounds) == 2 and bounds["min"] > bounds["max"]:
        faults.append(Problem(path, "min is above max", "swap them"))
    if faults:
        problems += faults
        return None
    minimum, _ = bounds.get("min", (None, ""))
    maximum, _ = bounds.get("max", (None, ""))
    return Sides(minimum, maximum, units.pop())


def read_statistic(key: object) -> str:
    """Return the normal form of a statistic: ``p99.90`` → ``p99.9``.

    :raises Invalid: it is not a statistic.
    """
    if key in ("max", "mean", "min"):
        return str(key)
    match = _PERCENTILE.fullmatch(str(key))
    if match is None:
        hint = nearest(str(key), ("p50", "p90", "p99", "p99.9", "max", "mean", "min"))
        raise invalid(f"{key!r} is not a statistic", hint, at_key=True)
    percentile = Decimal(match[1])
    if percentile == 100:
        raise invalid("p100 is the largest value", "write max", at_key=True)
    if not 0 < percentile < 100:
        message = f"percentile {match[1]} is out of range: write one above 0 and below 100"
        hint = ""
        if re.fullmatch(r"999+", match[1]):
            hint = f"write p99.{match[1][2:]}"
        raise invalid(message, hint, at_key=True)
    if 100 - percentile < FINEST:
        needed = 10 * 100 / FINEST
        message = f"percentile {match[1]} needs more than {needed:,.0f} samples"
        raise invalid(message, "write max")
    return f"p{percentile.normalize():f}"


def read_bound(metric: str, bound: object, side: str) -> tuple[float, str]:
    """Read a bound on a metric: its number, and its unit.

    :raises Invalid: the metric has no such bound.
    """
    remedy = f"write {example(metric)}"
    if bound is None:
        raise invalid("has no value", remedy)
    text = "" if isinstance(bound, bool | Mapping | list) else str(bound).strip()
    if not text or text.lower() in ("nan", "inf", ".nan", ".inf"):
        raise invalid(f"{bound!r} is not a bound", remedy)
    if text.startswith("-"):
        raise invalid(f"{text!r} is negative", remedy)
    if metric in _TIMES:
        number, unit = _duration(text)
    elif "%" in text:
        number, unit = _share(text)
    else:
        number, unit = _number(metric, text)
    if not math.isfinite(number):
        raise invalid(f"{text!r} is not a bound", remedy)
    if number == 0 and not _may_be_zero(metric, side):
        effect = "is always met" if side == "min" else "can never be met"
        raise invalid(f"{text!r} {effect}", remedy)
    return number, unit


def _may_be_zero(metric: str, side: str) -> bool:
    if side == "min":
        return False
    return metric == "earliness" or metric not in (*_TIMES, INDEX)


def _duration(text: str) -> tuple[float, str]:
    try:
        return float(parse_duration(text)), "ns"
    except ValueError as error:
        if re.fullmatch(r"[\d._]+", text):
            raise invalid(f"{text!r} has no unit", f"write {text}ms or {text}s") from None
        raise invalid(str(error), "") from None


def _share(text: str) -> tuple[float, str]:
    match = PERCENT.fullmatch(text)
    if match is None:
        raise invalid(f"{text!r} is not a percentage", "write 99%")
    if float(match[1]) > 100:
        raise invalid(f"{text!r} is above 100%", "write 100% or less")
    return float(match[1]) / 100, "ratio"


def _number(metric: str, text: str) -> tuple[float, str]:
    """Read a bound without %.

    It is messages per second (throughput), bytes (the delayed index), or a whole number of
    messages.
    """
    match = _RATE.fullmatch(text)
    number = float(match[1]) if match else math.nan
    if metric in SHARES:
        base = "messages offered" if metric == "sent" else "connections"
        raise invalid(f"{text!r} is not a share of the {base}", f"write {example(metric)}")
    if metric == "throughput":
        if match is None:
            raise invalid(f"{text!r} is not a rate", f"write {example(metric)}")
        if not text.endswith("/s"):
            raise invalid(f"{text!r} has no unit", f"write {_as_share(number)}{text}/s")
        return number, "msg/s"
    if metric == INDEX:
        if match is None or text.endswith("/s"):
            raise invalid(f"{text!r} is not a number of bytes", f"write {example(metric)}")
        return number, "B"
    if match is None or text.endswith("/s") or not number.is_integer():
        counted = "topics and streams" if metric == SILENT else "messages"
        percent = f"{number * 100:g}%" if number < 1 else example(metric)
        message = f"{text!r} is not a whole number of {counted}"
        raise invalid(message, f"as a share, write {percent}")
    return number, "messages"


def _as_share(number: float) -> str:
    """Write the share that a throughput without unit may mean; empty if it can be none.

    0.99 and 99 are meant as shares more often than as messages per second.
    """
    percent = number * 100 if number <= 1 else number
    return f"{percent:g}% of the rate offered, or " if percent <= 100 else ""


def example(metric: str) -> str:
    if metric in LATENCIES:
        return "100ms"
    others = {
        "backlogDrain": "5min",
        "throughput": "99% or 5000/s",
        "sent": "99%",
        CONNECT_RATE: "95%",
        INDEX: "2.5",
    }
    return others.get(metric, "0 or 0.01%")


def nearest(word: object, names: tuple[str, ...]) -> str:
    """Suggest the two names most like a word: ``did you mean endToEndLatency?``, or all names."""
    return did_you_mean(str(word), names, most=2, listed=len(names))


# The part ``regression`` of an ``slo:`` section: how much worse than a baseline a run may be.

REGRESSION: Final = "regression"
LATENCY: Final = "endToEndLatency"
THROUGHPUT: Final = "throughput"
_FIGURES = (THROUGHPUT, *(f"{LATENCY}.{statistic}" for statistic in ("p50", "p90", "p99", "p99.9")))


def regression_bounds(section: object, problems: list[Problem]) -> Iterator[tuple[str, float]]:
    """Yield each bounded figure by its normal name, with the share by which it may be worse.

    :param problems: the problems of the other figures are added to it.
    """
    if not isinstance(section, Mapping) or not section:
        remedy = f"write {REGRESSION}: {{{LATENCY}.p99: 10%}}"
        problems.append(Problem((REGRESSION,), "bounds no figure", remedy))
        return
    bounded = set()
    for key, bound in section.items():
        try:
            name = _figure(key)
            if name in bounded:
                message = f"{key!r} is the same percentile as one before it"
                raise invalid(message, "remove one", at_key=True)
            bounded.add(name)
            yield name, _worse_share(name, bound)
        except Invalid as error:
            problems.append(error.problem.below(REGRESSION, key))


def _figure(key: object) -> str:
    metric, _, statistic = str(key).partition(".")
    if metric == THROUGHPUT and not statistic:
        return THROUGHPUT
    if metric == LATENCY and statistic:
        normal = read_statistic(statistic)
        if normal.startswith("p"):
            return f"{LATENCY}.{normal}"
    message = f"{key!r} is not a figure that can be compared with a baseline"
    raise invalid(message, nearest(key, _FIGURES), at_key=True)


def _worse_share(name: str, bound: object) -> float:
    if bound is None:
        raise invalid("has no value", "write 10%")
    match = PERCENT.fullmatch(str(bound).strip())
    if match is None:
        raise invalid(f"{bound!r} is not a percentage", "write 10%")
    share = float(match[1]) / 100
    if share == 0:
        message = f"{bound!r} would fail every run: two runs always differ by noise"
        raise invalid(message, "write 5%")
    if name == THROUGHPUT and share >= 1:
        raise invalid(f"{bound!r} allows any drop", "write 5%")
    return share
