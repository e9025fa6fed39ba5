"""The words of an ``slo:`` section: its metrics, its statistics, and how a bound is written."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

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
"""Percent: no run has messages enough for a percentile nearer to 100."""

Path = tuple[str | int, ...]
Problems = list[tuple[Path, str, str]]
"""Each with its path inside the section, what is wrong, and what to write instead."""

PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_RATE = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*(?:(?:msg)?/s)?")
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


class WrongBound(Exception):
    """One value cannot be read: message, suggestion."""


class Sides(NamedTuple):
    """A bound with its one side or both, inclusive, in ``unit``."""

    minimum: float | None
    maximum: float | None
    unit: str


def read_sides(value: object, alone: str, read: Callable[[object, str], tuple[float, str]], path: Path, problems: Problems) -> Sides | None:
    """``{min: 1ms, max: 50ms}``, or a bound by itself; None where something is wrong, which ``problems`` get.

    :param alone: the side that a bound by itself is. :param read: a bound of a side and its unit, or :class:`WrongBound`.
    """
    given = value if isinstance(value, Mapping) else {alone: value}
    at = len(problems)
    found: dict[str, tuple[float, str]] = {}
    for side, bound in given.items():
        try:
            if side not in ("min", "max"):
                raise WrongBound(f"{side!r} is not a bound", "write min or max")
            found[side] = read(bound, side)
        except WrongBound as wrong:
            problems.append(((*path, side) if isinstance(value, Mapping) else path, *wrong.args))
    if not given:
        problems.append((path, "has no bound", "write {min: …, max: …}, or the bound alone"))
    if len({unit for _, unit in found.values()}) > 1:
        problems.append((path, "min and max have different units", "write both in the same unit"))
    elif len(found) == 2 and found["min"] > found["max"]:
        problems.append((path, "min is above max", "swap them"))
    if len(problems) > at:
        return None
    low, high = (found[side][0] if side in found else None for side in ("min", "max"))
    return Sides(low, high, next(iter(found.values()))[1])


def read_statistic(key: object) -> str:
    """``p99.90`` → ``p99.9``.

    :raises WrongBound: no statistic.
    """
    if key in ("max", "mean", "min"):
        return str(key)
    match = _PERCENTILE.fullmatch(str(key))
    if match is None:
        raise WrongBound(f"{key!r} is not a statistic", nearest(str(key), ("p50", "p90", "p99", "p99.9", "max", "mean", "min")))
    p = Decimal(match[1])
    if p == 100:
        raise WrongBound("p100 is the largest value", "write max")
    if not 0 < p < 100:
        hint = f"write p99.{match[1][2:]}" if re.fullmatch(r"999+", match[1]) else ""
        raise WrongBound(f"percentile {match[1]} is out of range: above 0 and below 100", hint)
    if 100 - p < FINEST:
        raise WrongBound(f"percentile {match[1]} needs more than {10 * 100 / FINEST:,.0f} samples", "write max")
    return f"p{p.normalize():f}"


def read_bound(metric: str, bound: object, side: str) -> tuple[float, str]:
    """A bound and its unit.

    :raises WrongBound: no such bound.
    """
    text = "" if bound is None or isinstance(bound, bool | Mapping | list) else str(bound).strip()
    if not text or text.lower() in ("nan", "inf", ".nan", ".inf"):
        raise WrongBound("has no value" if bound is None else f"{bound!r} is not a bound", f"write {example(metric)}")
    if text.startswith("-"):
        raise WrongBound(f"{text!r} is negative", f"write {example(metric)}")
    number, unit = _duration(text) if metric in _TIMES else _share(text) if "%" in text else _number(metric, text)
    if not math.isfinite(number):
        raise WrongBound(f"{text!r} is not a bound", f"write {example(metric)}")
    if number == 0 and (metric in (*_TIMES, INDEX) or side == "min") and (metric, side) != ("earliness", "max"):
        raise WrongBound(f"{text!r} {'holds for every run' if side == 'min' else 'can never hold'}", f"write {example(metric)}")
    return number, unit


def _duration(text: str) -> tuple[float, str]:
    try:
        return float(parse_duration(text)), "ns"
    except ValueError as error:
        if re.fullmatch(r"[\d._]+", text):
            raise WrongBound(f"{text!r} has no unit", f"write {text}ms or {text}s") from None
        raise WrongBound(str(error), "") from None


def _share(text: str) -> tuple[float, str]:
    match = PERCENT.fullmatch(text)
    if match is None:
        raise WrongBound(f"{text!r} is not a percentage", "write 99%")
    if float(match[1]) > 100:
        raise WrongBound(f"{text!r} is more than all", "write 100% or less")
    return float(match[1]) / 100, "ratio"


def _number(metric: str, text: str) -> tuple[float, str]:
    """Messages per second for throughput, bytes of an index, a whole number of messages otherwise."""
    match = _RATE.fullmatch(text)
    number = float(match[1]) if match else math.nan
    if metric in SHARES:
        of = "messages offered" if metric == "sent" else "connections"
        raise WrongBound(f"{text!r} is not a share of the {of}", f"write {example(metric)}")
    if metric == "throughput":
        if match is None:
            raise WrongBound(f"{text!r} is not a rate", f"write {example(metric)}")
        if not text.endswith("/s"):  # 0.99 and 99 are meant as shares more often than as messages per second
            share = number * 100 if number <= 1 else number
            spelled = f"{share:g}% of the rate offered, or " if share <= 100 else ""
            raise WrongBound(f"{text!r} has no unit", f"write {spelled}{text}/s")
        return number, "msg/s"
    if metric == INDEX:
        if match is None or text.endswith("/s"):
            raise WrongBound(f"{text!r} is not a number of bytes", f"write {example(metric)}")
        return number, "B"
    if match is None or text.endswith("/s") or not number.is_integer():
        percent = f"{number * 100:g}%" if number < 1 else example(metric)
        raise WrongBound(
            f"{text!r} is not a whole number of {'topics and streams' if metric == SILENT else 'messages'}", f"as a share, write {percent}"
        )
    return number, "messages"


def example(metric: str) -> str:
    if metric in LATENCIES:
        return "100ms"
    others = {"backlogDrain": "5min", "throughput": "99% or 5000/s", "sent": "99%", CONNECT_RATE: "95%", INDEX: "2.5"}
    return others.get(metric, "0 or 0.01%")


def nearest(word: object, known: tuple[str, ...]) -> str:
    """``did you mean endToEndLatency?``, whatever the case; otherwise what there is."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(word).lower(), folded, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(folded[name] for name in near)}?" if near else f"known: {', '.join(known)}"


# The part ``regression`` of an ``slo:`` section: how much worse than a baseline a run may be.

REGRESSION: Final = "regression"
LATENCY: Final = "endToEndLatency"
THROUGHPUT: Final = "throughput"
_KNOWN = (THROUGHPUT, *(f"{LATENCY}.{statistic}" for statistic in ("p50", "p90", "p99", "p99.9")))


def regression_bounds(section: object, problems: Problems) -> Iterator[tuple[str, float]]:
    """Each figure that is bounded, by its one name, and the share by which it may be worse.

    :param problems: gets what is wrong with the others: path, message, what to write instead.
    """
    if not isinstance(section, Mapping) or not section:
        problems.append(((REGRESSION,), "names nothing", f"write {REGRESSION}: {{{LATENCY}.p99: 10%}}"))
        return
    seen: set[str] = set()
    for key, bound in section.items():
        try:
            name = _figure(key)
            if name in seen:
                raise WrongBound(f"{key!r} is the same percentile as one before it", "remove one")
            seen.add(name)
            yield name, _worse_share(name, bound)
        except WrongBound as wrong:
            problems.append(((REGRESSION, key), *wrong.args))


def _figure(key: object) -> str:
    metric, _, statistic = str(key).partition(".")
    if metric == THROUGHPUT and not statistic:
        return THROUGHPUT
    if metric == LATENCY and statistic:
        found = read_statistic(statistic)
        if found.startswith("p"):
            return f"{LATENCY}.{found}"
    raise WrongBound(f"{key!r} is not a figure whose noise is known", nearest(key, _KNOWN))


def _worse_share(name: str, bound: object) -> float:
    match = PERCENT.fullmatch(str(bound).strip())
    if match is None:
        raise WrongBound("has no value" if bound is None else f"{bound!r} is not a percentage", "write 10%")
    share = float(match[1]) / 100
    if share == 0:
        raise WrongBound(f"{bound!r} is less than noise: no two runs are alike", "write 5%")
    if name == THROUGHPUT and share >= 1:
        raise WrongBound(f"{bound!r} holds for every run", "write 5%")
    return share
