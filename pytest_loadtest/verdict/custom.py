"""The part ``custom`` of an ``slo:`` section: bounds on what users' own ``pytest_loadtest_aggregate`` returns.

::

    slo:
      custom:
        gold.p99: 50ms                  # an upper bound, as every bound here that says nothing else
        gold.rate: {min: 500/s}
        share: {min: 25%, max: 30%}
        skew: 1.5
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.values.quantities import ByteRate, parse_duration, parse_rate
from pytest_loadtest.values.units import Duration
from pytest_loadtest.verdict.grammar import Problems, WrongBound, read_sides

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import CustomValue

HOOK = "pytest_loadtest_aggregate"
"""Users' own; declared in :mod:`pytest_loadtest.plugin.hookspecs`."""
EXAMPLE = "write 50ms, 500/s, 30% or 0.3"


class CustomBound(NamedTuple):
    """A bound on the metric of a name. :param unit: ``ns``, ``msg/s``, ``ratio`` or ``number``."""

    name: str
    minimum: float | None
    maximum: float | None
    unit: str


def bounds(section: object, problems: Problems) -> Iterator[CustomBound]:
    """The bounds of the section. :param problems: gets what is wrong with the others: path, message, what to write instead."""
    if not isinstance(section, Mapping) or not section:
        problems.append((("custom",), "names nothing", 'write custom: {"gold.p99": 50ms}'))
        return
    for name, value in section.items():
        if not isinstance(name, str):
            problems.append((("custom", name), f"{name!r} is not a name", f"put it in quotes, as {HOOK} returns it"))
        elif sides := read_sides(value, "max", _read, ("custom", name), problems):
            yield CustomBound(name, *sides)


def _read(bound: object, _side: str) -> tuple[float, str]:
    try:
        return _value(bound)
    except ValueError:
        raise WrongBound("has no bound" if bound is None else f"{bound!r} is not a bound", EXAMPLE) from None


def _value(bound: object) -> tuple[float, str]:
    """A bound and its unit.

    :raises ValueError: it is none.
    """
    if isinstance(bound, int | float) and not isinstance(bound, bool):
        return _finite(float(bound)), "number"
    if not isinstance(bound, str):
        raise ValueError(bound)
    text = bound.strip()
    if text.endswith("%"):
        return _finite(float(text[:-1])) / 100, "ratio"
    if text.endswith("/s"):
        rate = parse_rate(text)
        if isinstance(rate, ByteRate):
            raise ValueError(text)
        return rate, "msg/s"
    try:
        return _finite(float(text)), "number"  # YAML reads 1e6 as a text
    except ValueError:
        return float(parse_duration(text)), "ns"


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(value)
    return value


def observe(name: str, unit: str, found: Mapping[str, CustomValue]) -> tuple[float | None, str]:
    """The value of a metric in the unit of its bound, or None; and where it comes from, or why there is none."""
    if name not in found:
        returned = f"it returned {', '.join(sorted(found))}" if found else "nothing implements the hook, or it returned nothing"
        return None, f"{HOOK} did not return it; {returned}"
    value = found[name]
    if value is None:
        return None, f"{HOOK} returned None for it"
    if isinstance(value, Duration):
        if unit != "ns":
            return None, f"it is a duration, {value!r}, and its bound is none: write a unit, as in 50ms"
        return value.ns, f"returned by {HOOK}"
    if unit == "ns":
        return None, f"it is {value!r} without a unit, and its bound is a duration: return ms(…)"
    return float(value), f"returned by {HOOK}"
