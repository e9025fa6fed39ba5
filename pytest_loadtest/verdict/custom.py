"""The part ``custom`` of an ``slo:`` section: bounds on values that a user's hook returns.

The rule: a value is judged in the unit of its bound, and a value in another unit is *no data*.

Profiles read the section when tests are collected, in every process. The values are observed in the
controller's thread that judges a run, and in the command ``aggregate``. The hook is
``pytest_loadtest_aggregate``.

::

    slo:
      custom:
        gold.p99: 50ms                  # a single bound is an upper bound
        gold.rate: {min: 500/s}
        share: {min: 25%, max: 30%}
        skew: 1.5
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.errors import Problem, invalid
from pytest_loadtest.values.quantities import ByteRate, parse_duration, parse_rate
from pytest_loadtest.values.units import Duration
from pytest_loadtest.verdict.grammar import read_sides

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import CustomValue

HOOK = "pytest_loadtest_aggregate"
"""The hook, declared in :mod:`pytest_loadtest.plugin.hookspecs`, that users implement."""
EXAMPLE = "write 50ms, 500/s, 30% or 0.3"


class CustomBound(NamedTuple):
    """A bound on one custom metric. :param unit: ``ns``, ``msg/s``, ``ratio`` or ``number``."""

    name: str
    minimum: float | None
    maximum: float | None
    unit: str


def read_custom(section: object, problems: list[Problem]) -> Iterator[CustomBound]:
    """Yield the bounds of the section.

    :param problems: the problems of the others are added to it.
    """
    if not isinstance(section, Mapping) or not section:
        problem = Problem(("custom",), "bounds no metric", 'write custom: {"gold.p99": 50ms}')
        problems.append(problem)
        return
    for name, value in section.items():
        if not isinstance(name, str):
            remedy = f"put it in quotes, as {HOOK} returns it"
            problem = Problem(("custom", name), f"{name!r} is not a name", remedy, at_key=True)
            problems.append(problem)
            continue
        sides = read_sides(value, "max", _read_bound, ("custom", name), problems)
        if sides is not None:
            yield CustomBound(name, *sides)


def _read_bound(bound: object, _side: str) -> tuple[float, str]:
    try:
        return _number_and_unit(bound)
    except ValueError:
        message = "has no bound" if bound is None else f"{bound!r} is not a bound"
        raise invalid(message, EXAMPLE) from None


def _number_and_unit(bound: object) -> tuple[float, str]:
    """:raises ValueError: it is not a bound."""
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
        return _finite(float(text)), "number"  # YAML 1.1 reads 1e6 as text
    except ValueError:
        return float(parse_duration(text)), "ns"


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(value)
    return value


def observe_custom(
    name: str, unit: str, values: Mapping[str, CustomValue]
) -> tuple[float | None, str]:
    """Return the value of a metric in the unit of its bound, and its source.

    If the value is missing: None, and why.
    """
    if name not in values:
        returned = "nothing implements the hook, or it returned nothing"
        if values:
            returned = f"it returned {', '.join(sorted(values))}"
        return None, f"{HOOK} did not return it; {returned}"
    value = values[name]
    if value is None:
        return None, f"{HOOK} returned None for it"
    source = f"returned by {HOOK}"
    if isinstance(value, Duration):
        if unit == "ns":
            return value.ns, source
        duration = f"the value is a duration ({value!r}) but the bound has no unit"
        return None, f"{duration}: write e.g. 50ms"
    if unit == "ns":
        return None, f"the value ({value!r}) has no unit but the bound is a duration: return ms(…)"
    return float(value), source
