"""The grammar of an ``slo:`` section: its metrics, its statistics, and how a bound is written."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from pytest_loadtest.errors import Invalid, Path, Problem, invalid
from pytest_loadtest.metrics.catalogue import OBJECTIVES, named
from pytest_loadtest.values.quantities import parse_duration

CONNECT_RATE: Final = "connectRate"
INDEX: Final = "delayedIndexBytesPerMessage"
SILENT: Final = "silent"
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
    value: object, alone: str, read: Callable[[object, str], tuple[float, str]], path: Path, problems: list[Problem]
) -> Sides | None:  # fmt: skip
    """Read ``{min: 1ms, max: 50ms}``, or a single bound. None if it has problems, which are added to ``problems``.

    :param alone: the side that a single bound means.
    :param read: reads the bound of a side to a number and its unit, or raises
        :class:`~pytest_loadtest.errors.Invalid`.
    """
    given = value if isinstance(value, Mapping) else {alone: value}
    at = len(problems)
    bounds: dict[str, tuple[float, str]] = {}
    for side, bound in given.items():
        try:
            if side not in ("min", "max"):
                raise invalid(f"{side!r} is not a bound", "write min or max", at_key=True)
            bounds[side] = read(bound, side)
        except Invalid as error:
            problems.append(
                error.problem.below(*path, *((side,) if isinstance(value, Mapping) else ()))
            )
    if not given:
        problems.append(Problem(path, "has no bound", "write {min: …, max: …}, or the bound alone"))
    if len({unit for _, unit in bounds.values()}) > 1:
        problems.append(
            Problem(path, "min and max have different units", "write both in the same unit")
        )
    elif len(bounds) == 2 and bounds["min"] > bounds["max"]:
        problems.append(Problem(path, "min is above max", "swap them"))
    if len(problems) > at:
        return None
    low, high = (bounds[side][0] if side in bounds else None for side in ("min", "max"))
    return Sides(low, high, next(iter(bounds.values()))[1])


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
    p = Decimal(match[1])
    if p == 100:
        raise invalid("p100 is the largest value", "write max", at_key=True)
    if not 0 < p < 100:
        hint = f"write p99.{match[1][2:]}" if re.fullmatch(r"999+", match[1]) else ""
        raise invalid(
            f"percentile {match[1]} is out of range: write one above 0 and below 100",
            hint,
            at_key=True,
        )
    if 100 - p < FINEST:
        raise invalid(
            f"percentile {match[1]} needs more than {10 * 100 / FINEST:,.0f} samples", "write max"
        )
    return f"p{p.normalize():f}"


def read_bound(metric: str, bound: object, side: str) -> tuple[float, str]:
    """Read a bound on a metric: its number, and its unit.

    :raises Invalid: the metric has no such bound.
    """
    text = "" if bound is None or isinstance(bound, bool | Mapping | list) else str(bound).strip()
    if not text or text.lower() in ("nan", "inf", ".nan", ".inf"):
        raise invalid(
            "has no value" if bound is None else f"{bound!r} is not a bound",
            f"write {example(metric)}",
        )
    if text.startswith("-"):
        raise invalid(f"{text!r} is negative", f"write {example(metric)}")
    number, unit = (
        _duration(text)
        if metric in _TIMES
        else _share(text)
        if "%" in text
        else _number(metric, text)
    )
    if not math.isfinite(number):
        raise invalid(f"{text!r} is not a bound", f"write {example(metric)}")
    if (
        number == 0
        and (metric in (*_TIMES, INDEX) or side == "min")
        and (metric, side) != ("earliness", "max")
    ):
        raise invalid(
            f"{text!r} {'holds for every run' if side == 'min' else 'can never hold'}",
            f"write {example(metric)}",
        )
    return number, unit


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
        raise invalid(f"{text!r} is more than all", "write 100% or less")
    return float(match[1]) / 100, "ratio"


def _number(metric: str, text: str) -> tuple[float, str]:
    """Read a bound without % as messages per second (throughput), bytes (the delayed index), or a whole number of messages."""
    match = _RATE.fullmatch(text)
    number = float(match[1]) if match else math.nan
    if metric in SHARES:
        of = "messages offered" if metric == "sent" else "connections"
        raise invalid(f"{text!r} is not a share of the {of}", f"write {example(metric)}")
    if metric == "throughput":
        if match is None:
            raise invalid(f"{text!r} is not a rate", f"write {example(metric)}")
        if not text.endswith(
            "/s"
        ):  # 0.99 and 99 are meant as shares more often than as messages per second
            share = number * 100 if number <= 1 else number
            spelled = f"{share:g}% of the rate offered, or " if share <= 100 else ""
            raise invalid(f"{text!r} has no unit", f"write {spelled}{text}/s")
        return number, "msg/s"
    if metric == INDEX:
        if match is None or text.endswith("/s"):
            raise invalid(f"{text!r} is not a number of bytes", f"write {example(metric)}")
        return number, "B"
    if match is None or text.endswith("/s") or not number.is_integer():
        percent = f"{number * 100:g}%" if number < 1 else example(metric)
        raise invalid(
            f"{text!r} is not a whole number of {'topics and streams' if metric == SILENT else 'messages'}",
            f"as a share, write {percent}",
        )
    return number, "messages"


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
    """Suggest the names most like a word, in any case (``did you mean endToEndLatency?``), or all names."""
    folded = {name.lower(): name for name in names}
    near = difflib.get_close_matches(str(word).lower(), folded, n=2, cutoff=0.6)
    return (
        f"did you mean {' or '.join(folded[name] for name in near)}?"
        if near
        else f"known: {', '.join(names)}"
    )


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
        problems.append(
            Problem(
                (REGRESSION,), "bounds no figure", f"write {REGRESSION}: {{{LATENCY}.p99: 10%}}"
            )
        )
        return
    seen: set[str] = set()
    for key, bound in section.items():
        try:
            name = _figure(key)
            if name in seen:
                raise invalid(
                    f"{key!r} is the same percentile as one before it", "remove one", at_key=True
                )
            seen.add(name)
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
    raise invalid(
        f"{key!r} is not a figure that can be compared with a baseline",
        nearest(key, _FIGURES),
        at_key=True,
    )


def _worse_share(name: str, bound: object) -> float:
    match = PERCENT.fullmatch(str(bound).strip())
    if match is None:
        raise invalid(
            "has no value" if bound is None else f"{bound!r} is not a percentage", "write 10%"
        )
    share = float(match[1]) / 100
    if share == 0:
        raise invalid(
            f"{bound!r} would fail every run: two runs always differ by noise", "write 5%"
        )
    if name == THROUGHPUT and share >= 1:
        raise invalid(f"{bound!r} holds for every run", "write 5%")
    return share
