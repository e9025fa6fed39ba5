"""The grammar of a profile's ``slo:`` section: one bound per metric, each with its own direction.

::

    slo:
      throughput: 99%                 # of the offered rate; or 5000/s. A lower bound, as is `sent`; all others are upper bounds
      sent: 99%                       # of the messages offered, handed over before the measured phase ended
      endToEndLatency: {p50: 20ms, p99: 100ms, max: 2s}
      publishLatency: {p99: {min: 1ms, max: 50ms}}
      loss: 0                         # a number of messages, or a share of the deliveries expected
      duplicates: 0.01%
      buckets: {"1048576-5242880": {endToEndLatency: {p99: 2s}, loss: 0}}     # by their keys in messageSizeDistribution

Loss, corrupt, dropped, sent and failed have an implicit bound where the section names none, so that no run passes
that did not do what it was asked to do.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from pytest_loadtest.quantities import parse_duration

Path = tuple[str | int, ...]

LATENCIES = ("publishLatency", "endToEndLatency", "sendDelay")
FLOORS = ("throughput", "sent")
COUNTS = ("loss", "duplicates", "outOfOrder", "failed", "corrupt", "dropped", "foreign")
METRICS = (*FLOORS, *LATENCIES, *COUNTS)
BUCKET_METRICS = ("throughput", "publishLatency", "endToEndLatency", "loss")

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_RATE = re.compile(r"(\d[\d_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*(?:(?:msg)?/s)?")
_PERCENTILE = re.compile(r"p(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One bound, or two, on one metric.

    :param metric: one of :data:`METRICS`.
    :param statistic: of a latency: ``p99.9``, ``max``, ``mean``, ``min``; otherwise empty.
    :param minimum: in ``unit``, inclusive. :param maximum: in ``unit``, inclusive.
    :param unit: ``ns``, ``msg/s``, ``ratio`` (0 to 1) or ``messages``.
    :param implicit: holds because the profile says nothing else.
    :param bucket: the size bucket that it is about, by its key in the profile; empty for the whole run.
    """

    metric: str
    statistic: str = ""
    minimum: float | None
    maximum: float | None
    unit: str
    implicit: bool = False
    bucket: str = ""

    @property
    def name(self) -> str:
        """Its place in the section: ``endToEndLatency.p99``, ``loss``, ``buckets.0-256.loss``."""
        own = f"{self.metric}.{self.statistic}" if self.statistic else self.metric
        return f"buckets.{self.bucket}.{own}" if self.bucket else own

    @property
    def percentile(self) -> float | None:
        """99.9 for ``p99.9``; None for ``max``, ``mean``, ``min`` and all that is no latency."""
        return float(self.statistic[1:]) if self.statistic.startswith("p") else None


class ObjectiveErrors(ValueError):
    """An ``slo`` section says what it cannot mean.

    :param problems: all of them, each with its path inside the section, what is wrong, and what to write instead.
    """

    def __init__(self, problems: list[tuple[Path, str, str]]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(
            f"{'.'.join(map(str, path)) or 'slo'}: {message}" + (f" ({hint})" if hint else "") for path, message, hint in self.problems
        )


class _Wrong(Exception):
    """One value cannot be read: message, suggestion."""


IMPLICIT = (
    Objective(metric="loss", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="corrupt", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="dropped", minimum=None, maximum=0, unit="messages", implicit=True),
    Objective(metric="sent", minimum=0.99, maximum=None, unit="ratio", implicit=True),
    # a backlog that fits into the client's window is all "sent" in time: only what is delivered tells that the target did not keep up
    Objective(metric="throughput", minimum=0.95, maximum=None, unit="ratio", implicit=True),
    Objective(metric="failed", minimum=None, maximum=0.01, unit="ratio", implicit=True),
)


def parse(section: Mapping[str, object], buckets: Collection[str] | None = None) -> tuple[Objective, ...]:
    """The objectives of a section in its own order, then the implicit ones that it does not override. An empty section is allowed.

    :param buckets: keys of the profile's ``messageSizeDistribution``, which the section's ``buckets`` may name; None allows any.
    :raises ObjectiveErrors: with everything that is wrong.
    """
    problems: list[tuple[Path, str, str]] = []
    whole = {metric: value for metric, value in section.items() if metric != "buckets"}
    found = _metrics(whole, (*METRICS, "buckets"), problems)
    if "buckets" in section:
        found += _buckets(section["buckets"], buckets, problems)
    if problems:
        raise ObjectiveErrors(problems)
    return (*found, *(objective for objective in IMPLICIT if objective.metric not in section))


def explicit(objectives: Iterable[Objective]) -> tuple[Objective, ...]:
    """Those that the profile names: without any, ``assert_slo()`` has nothing to assert."""
    return tuple(objective for objective in objectives if not objective.implicit)


def scale(objectives: Iterable[Objective], factor: float) -> tuple[Objective, ...]:
    """The objectives of a run at ``factor`` times the load: an absolute throughput shrinks with it, shares and counts stay.

    A count is a tolerance, written as a number because it does not grow with the load.
    """
    return tuple(_scaled(objective, factor) if objective.unit == "msg/s" else objective for objective in objectives)


def _scaled(objective: Objective, factor: float) -> Objective:
    low, high = objective.minimum, objective.maximum
    return replace(objective, minimum=None if low is None else low * factor, maximum=None if high is None else high * factor)


def _metrics(section: Mapping[str, object], known: tuple[str, ...], problems: list[tuple[Path, str, str]]) -> list[Objective]:
    found: list[Objective] = []
    for metric, value in section.items():
        if metric not in known:
            whole = f"{metric} is judged for the whole run, not by bucket"
            problems.append(((metric,), whole if metric in METRICS else f"{metric!r} is not a metric", _nearest(metric, known)))
        elif metric in LATENCIES:
            found += _latencies(metric, value, problems)
        else:
            found += _bounds(metric, "", value, (metric,), problems)
    return found


def _buckets(section: object, known: Collection[str] | None, problems: list[tuple[Path, str, str]]) -> list[Objective]:
    if not isinstance(section, Mapping) or not section:
        problems.append((("buckets",), "names no bucket", 'write buckets: {"1048576-5242880": {endToEndLatency: {p99: 2s}}}'))
        return []
    found: list[Objective] = []
    for key, metrics in section.items():
        wrong: list[tuple[Path, str, str]] = []
        if known is not None and key not in known:
            hint = _nearest(key, tuple(known)) if known else "without messageSizeDistribution there are none"
            wrong.append(((), f"{key!r} is not a size bucket of this profile", hint))
        elif not isinstance(metrics, Mapping) or not metrics:
            wrong.append(((), "has no objective", "write, for example, {endToEndLatency: {p99: 2s}, loss: 0}"))
        else:
            found += (replace(objective, bucket=str(key)) for objective in _metrics(metrics, BUCKET_METRICS, wrong))
        problems += ((("buckets", key, *path), message, hint) for path, message, hint in wrong)
    return found


def _latencies(metric: str, value: object, problems: list[tuple[Path, str, str]]) -> list[Objective]:
    if not isinstance(value, Mapping) or not value:
        message = "has no statistic" if isinstance(value, Mapping) or value is None else f"{value!r} does not say which statistic it bounds"
        problems.append(((metric,), message, f"write {metric}: {{p99: {value if isinstance(value, str) else '100ms'}}}"))
        return []
    found: list[Objective] = []
    for key, bound in value.items():
        try:
            statistic = _statistic(key)
            if any(statistic == other.statistic for other in found):
                raise _Wrong(f"{key!r} is the same percentile as one before it", "remove one")
            if statistic == "min" and not isinstance(bound, Mapping):
                raise _Wrong("a bound on the smallest latency can go either way", f"write min: {{min: {bound}}} or min: {{max: {bound}}}")
        except _Wrong as wrong:
            problems.append(((metric, key), *wrong.args))
        else:
            found += _bounds(metric, statistic, bound, (metric, key), problems)
    return found


def _statistic(key: object) -> str:
    """``p99.90`` → ``p99.9``."""
    if key in ("max", "mean", "min"):
        return str(key)
    match = _PERCENTILE.fullmatch(str(key))
    if match is None:
        raise _Wrong(f"{key!r} is not a statistic", _nearest(str(key), ("p50", "p90", "p99", "p99.9", "max", "mean", "min")))
    p = Decimal(match[1])
    if p == 100:
        raise _Wrong("p100 is the largest value", "write max")
    if not 0 < p < 100:
        hint = f"write p99.{match[1][2:]}" if re.fullmatch(r"999+", match[1]) else ""
        raise _Wrong(f"percentile {match[1]} is out of range: above 0 and below 100", hint)
    return f"p{p.normalize():f}"


def _bounds(metric: str, statistic: str, value: object, path: Path, problems: list[tuple[Path, str, str]]) -> list[Objective]:
    """One objective, or a problem noted."""
    given = value if isinstance(value, Mapping) else {"min" if metric in FLOORS else "max": value}
    at = len(problems)
    read: dict[str, tuple[float, str]] = {}
    for side, bound in given.items():
        place = (*path, side) if isinstance(value, Mapping) else path
        try:
            if side not in ("min", "max"):
                raise _Wrong(f"{side!r} is not a bound", "write min or max")
            read[side] = _value(metric, bound, side)
        except _Wrong as wrong:
            problems.append((place, *wrong.args))
    if not given:
        problems.append((path, "has no bound", "write {min: …, max: …}, or the bound alone"))
    if len({unit for _, unit in read.values()}) > 1:
        problems.append((path, "min and max have different units", "write both as a share, or both as a number"))
    elif len(read) == 2 and read["min"] > read["max"]:
        problems.append((path, "min is above max", "swap them"))
    if len(problems) > at:
        return []
    low, high = (read[side][0] if side in read else None for side in ("min", "max"))
    unit = next(iter(read.values()))[1]
    return [Objective(metric=metric, statistic=statistic, minimum=low, maximum=high, unit=unit)]


def _value(metric: str, bound: object, side: str) -> tuple[float, str]:
    """A bound and its unit."""
    text = "" if bound is None or isinstance(bound, bool | Mapping | list) else str(bound).strip()
    if not text or text.lower() in ("nan", "inf", ".nan", ".inf"):
        raise _Wrong("has no value" if bound is None else f"{bound!r} is not a bound", f"write {_example(metric)}")
    if text.startswith("-"):
        raise _Wrong(f"{text!r} is negative", f"write {_example(metric)}")
    number, unit = _duration(text) if metric in LATENCIES else _share(text) if "%" in text else _number(metric, text)
    if number == 0 and (metric in LATENCIES or side == "min"):
        raise _Wrong(f"{text!r} {'holds for every run' if side == 'min' else 'can never hold'}", f"write {_example(metric)}")
    return number, unit


def _duration(text: str) -> tuple[float, str]:
    try:
        return float(parse_duration(text)), "ns"
    except ValueError as error:
        if re.fullmatch(r"[\d._]+", text):
            raise _Wrong(f"{text!r} has no unit", f"write {text}ms or {text}s") from None
        raise _Wrong(str(error), "") from None


def _share(text: str) -> tuple[float, str]:
    match = _PERCENT.fullmatch(text)
    if match is None:
        raise _Wrong(f"{text!r} is not a percentage", "write 99%")
    if float(match[1]) > 100:
        raise _Wrong(f"{text!r} is more than all", "write 100% or less")
    return float(match[1]) / 100, "ratio"


def _number(metric: str, text: str) -> tuple[float, str]:
    """Messages per second for throughput, a whole number of messages otherwise."""
    match = _RATE.fullmatch(text)
    number = float(match[1]) if match else math.nan
    if metric == "sent":
        raise _Wrong(f"{text!r} is not a share of the messages offered", f"write {_example(metric)}")
    if metric == "throughput":
        if match is None:
            raise _Wrong(f"{text!r} is not a rate", f"write {_example(metric)}")
        return number, "msg/s"
    if match is None or text.endswith("/s") or number != int(number):
        percent = f"{number * 100:g}%" if number < 1 else _example(metric)
        raise _Wrong(f"{text!r} is not a whole number of messages", f"as a share, write {percent}")
    return number, "messages"


def _example(metric: str) -> str:
    if metric in LATENCIES:
        return "100ms"
    return {"throughput": "99% or 5000/s", "sent": "99%"}.get(metric, "0 or 0.01%")


def _nearest(word: object, known: tuple[str, ...]) -> str:
    """``did you mean endToEndLatency?``, whatever the case; otherwise what there is."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(str(word).lower(), folded, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(folded[name] for name in near)}?" if near else f"known: {', '.join(known)}"
