"""Durations and rates for asserts in a test's body: they have a unit and a label, and compare only
with their own kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering

from pytest_loadtest.errors import NoData
from pytest_loadtest.values.quantities import MICROSECOND, MILLISECOND, SECOND, format_rate
from pytest_loadtest.values.wording import distance, exact, format_value, pair

_OPERATORS = ("<", "<=", ">", ">=", "==", "!=")


@total_ordering
@dataclass(frozen=True, slots=True)
class Duration:
    """A duration.

    :param ns: nanoseconds.
    :param label: the measured metric, ``end-to-end p99``; empty for a bound.
    :param samples: number of samples of a measured one.
    :param error: of the clocks between hosts, ns; comparisons that are closer than it are no data.
    """

    ns: float
    label: str = field(default="", compare=False)
    samples: int | None = field(default=None, compare=False)
    error: int = field(default=0, compare=False)

    @property
    def ms(self) -> float:
        """The duration in milliseconds."""
        return self.ns / MILLISECOND

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.ns / SECOND

    def __lt__(self, other: Duration) -> bool:
        """Compare lengths.

        :raises TypeError: the other value is a number without a unit.
        :raises NoData: the error of clocks leaves open which is longer.
        """
        if not isinstance(other, Duration):
            raise TypeError(
                f"{self!r} cannot be compared with {other!r}, which has no unit: write ms({other!r}), s(…) or us(…)"
            )
        error = max(self.error, other.error)
        if error and abs(self.ns - other.ns) < error:
            limit = format_value(error, "ns")
            raise NoData(
                f"{self.label or other.label}: {self!r} and {other!r} differ by less than the error of the clocks between hosts, {limit}"
            )
        return self.ns < other.ns

    def __add__(self, other: Duration) -> Duration:
        return Duration(self.ns + other.ns) if isinstance(other, Duration) else NotImplemented

    def __sub__(self, other: Duration) -> Duration:
        return Duration(self.ns - other.ns) if isinstance(other, Duration) else NotImplemented

    def __mul__(self, factor: float) -> Duration:
        return Duration(self.ns * factor) if isinstance(factor, int | float) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Duration) -> float:
        return self.ns / other.ns if isinstance(other, Duration) else NotImplemented

    def __abs__(self) -> Duration:
        return Duration(abs(self.ns))

    def __repr__(self) -> str:
        return format_value(self.ns, "ns")


class Rate(float):
    """Messages per second; compares with plain numbers."""

    __slots__ = ()

    def __repr__(self) -> str:
        return format_rate(float(self))


def us(value: float) -> Duration:
    """A duration in microseconds."""
    return Duration(value * MICROSECOND)


def ms(value: float) -> Duration:
    """A duration in milliseconds."""
    return Duration(value * MILLISECOND)


def s(value: float) -> Duration:
    """A duration in seconds."""
    return Duration(value * SECOND)


def compare_lines(op: str, left: object, right: object) -> list[str] | None:
    """Return the lines for ``pytest_assertrepr_compare``: both sides, the distance between them,
    and the numbers of samples.

    None if the sides are not two durations, or a rate and a number: then pytest has its own
    explanation.
    """
    if isinstance(left, Duration) and isinstance(right, Duration):
        text = _compared(op, (left.ns, left.label), (right.ns, right.label), "ns")
        samples = {side.label: side.samples for side in (left, right) if side.samples is not None}
        return (
            None
            if text is None
            else [text, *(f"{label}: {exact(n)} samples" for label, n in samples.items())]
        )
    if (
        isinstance(left, int | float)
        and isinstance(right, int | float)
        and Rate in (type(left), type(right))
    ):
        sides = [
            (float(side), "throughput" if isinstance(side, Rate) else "") for side in (left, right)
        ]
        text = _compared(op, sides[0], sides[1], "msg/s")
        return None if text is None else [text]
    return None


def _compared(op: str, left: tuple[float, str], right: tuple[float, str], unit: str) -> str | None:
    """``end-to-end p99 83.0 ms <= 50.0 ms: over by 66 %``.

    The measured side, which has a label, is the one over or short.
    """
    if op not in _OPERATORS:
        return None
    shown = pair(left[0], right[0], unit)
    sides = [f"{name} {text}".strip() for (_, name), text in zip((left, right), shown, strict=True)]
    value, bound = (left[0], right[0]) if left[1] or not right[1] else (right[0], left[0])
    off = "" if value == bound or bound <= 0 else f": {distance(value, bound, unit)}"
    return f"{sides[0]} {op} {sides[1]}{off}"
