"""Durations and rates for asserts in a test's body: they have a unit and a label, and compare only
with their own kind.
"""

from __future__ import annotations

from dataclasses import field
from functools import total_ordering

from pytest_loadtest.errors import NoData
from pytest_loadtest.values.quantities import MICROSECOND, MILLISECOND, SECOND, format_rate
from pytest_loadtest.values.records import immutable
from pytest_loadtest.values.wording import distance, exact, format_value, pair

_OPERATORS = ("<", "<=", ">", ">=", "==", "!=")


@total_ordering
@immutable
class Duration:
    """A duration.

    :param ns: nanoseconds.
    :param label: the measured metric, ``end-to-end p99``; empty for a bound.
    :param samples: number of samples of a measured one.
    :param error: of the clocks between hosts, ns. Sums, differences and multiples keep it; a
        comparison that is closer than the errors of both sides together is no data.
    """

    ns: float
    label: str = field(default="", compare=False)
    samples: int | None = field(default=None, compare=False)
    error: float = field(default=0, compare=False)

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
                f"{self!r} cannot be compared with {other!r}, which has no unit:"
                f" write ms({other!r}), s(…) or us(…)"
            )
        error = self.error + other.error
        if error and abs(self.ns - other.ns) < error:
            label = self.label or other.label or "durations"
            limit = format_value(error, "ns")
            raise NoData(
                f"{label}: {self!r} and {other!r} differ by less than"
                f" the error of the clocks between hosts, {limit}"
            )
        return self.ns < other.ns

    def __add__(self, other: Duration) -> Duration:
        if not isinstance(other, Duration):
            return NotImplemented
        return Duration(self.ns + other.ns, error=self.error + other.error)

    def __sub__(self, other: Duration) -> Duration:
        if not isinstance(other, Duration):
            return NotImplemented
        return self + other * -1

    def __mul__(self, factor: float) -> Duration:
        if not isinstance(factor, int | float):
            return NotImplemented
        return Duration(self.ns * factor, error=self.error * abs(factor))

    __rmul__ = __mul__

    def __truediv__(self, other: Duration) -> float:
        if not isinstance(other, Duration):
            return NotImplemented
        return self.ns / other.ns

    def __abs__(self) -> Duration:
        return Duration(abs(self.ns), error=self.error)

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
    if op not in _OPERATORS:
        return None
    if isinstance(left, Duration) and isinstance(right, Duration):
        samples = {side.label: side.samples for side in (left, right) if side.samples is not None}
        lines = [_compared(op, (left.ns, left.label), (right.ns, right.label), "ns")]
        lines += [f"{label}: {exact(count)} samples" for label, count in samples.items()]
        return lines
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return None
    if Rate in (type(left), type(right)):
        return [_compared(op, _labelled_rate(left), _labelled_rate(right), "msg/s")]
    return None


def _labelled_rate(side: float) -> tuple[float, str]:
    return float(side), "throughput" if isinstance(side, Rate) else ""


def _compared(op: str, left: tuple[float, str], right: tuple[float, str], unit: str) -> str:
    """``end-to-end p99 83.0 ms <= 50.0 ms: over by 66 %``.

    The measured side, which has a label, is the one over or short.
    """
    value, value_label = left
    bound, bound_label = right
    left_text, right_text = pair(value, bound, unit)
    left_side = f"{value_label} {left_text}".strip()
    right_side = f"{bound_label} {right_text}".strip()
    text = f"{left_side} {op} {right_side}"
    if bound_label and not value_label:
        value, bound = bound, value
    if value != bound and bound > 0:
        text += f": {distance(value, bound, unit)}"
    return text
