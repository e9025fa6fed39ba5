"""Histograms of latencies: counts per HDR bucket.

The bucket of ``v`` is ``(shift << b) + (v >> shift)`` with ``shift = max(floor(log2 v) - b, 0)``.
With ``b`` = 10 that is the counts index of an HdrHistogram (hdrhistogram.org) with lowest value 1
ns and three significant digits.

Spark's workers count values into buckets, as do workers for the times of their connections; the
controller merges the counts, and the verdict and reports read percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


SUB_BITS = 10


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Latencies of one kind.

    :param index: int64 ``(k,)``, HDR bucket indexes, ascending.
    :param count: int64 ``(k,)``, messages per bucket.
    :param minimum: ns, exact.
    :param maximum: ns, exact.
    :param total: sum in ns, exact.
    :param negative: number of values below zero: clock errors, counted as 0 in the buckets.
    """

    index: NDArray[np.int64]
    count: NDArray[np.int64]
    minimum: int
    maximum: int
    total: int
    negative: int = 0

    @cached_property
    def n(self) -> int:
        """Number of values."""
        return int(self.count.sum())

    @property
    def mean(self) -> float:
        """Arithmetic mean, ns."""
        return self.total / self.n

    def percentile(self, p: float) -> int:
        """Return the nearest rank: the midpoint, ns, of the smallest bucket with at least
        ``ceil(p/100 · n)`` values at or below it.

        It is at most 0.05 % from the exact value (half a bucket) and never outside [minimum,
        maximum].
        """
        return self.at(rank(p, self.n))

    def percentile_of_due(self, p: float, never_came: int) -> float:
        """Return the nearest rank over these values and ``never_came`` later ones; inf if it is one
        of the latter.
        """
        at = rank(p, self.n + never_came)
        if at > self.n:
            return math.inf
        return self.at(at)

    def at(self, at: int) -> int:
        """Return the value at a rank, counted from 1, ns."""
        index = int(self.index[int(np.searchsorted(np.cumsum(self.count), at))])
        # The midpoint of the first or last bucket can lie beyond all its values; the exact extremes
        # limit it.
        return min(max(_middle(index), self.minimum), self.maximum)

    def above(self, bound: float) -> int:
        """Return the number of values above the bound, by the midpoint of their bucket."""
        return int(self.count[midpoint(self.index) > bound].sum())

    def without(self, part: Histogram) -> Histogram | None:
        """Return the histogram without the values of a part of it; None if none remain.

        An extreme that goes is known to its bucket.
        """
        count = self.count.copy()
        count[np.searchsorted(self.index, part.index)] -= part.count
        kept = np.flatnonzero(count)
        if not len(kept):
            return None

        minimum = self.minimum
        if part.minimum <= minimum:
            minimum = max(_middle(int(self.index[kept[0]])), minimum)
        maximum = self.maximum
        if part.maximum >= maximum:
            maximum = min(_middle(int(self.index[kept[-1]])), maximum)
        return Histogram(
            index=self.index[kept],
            count=count[kept],
            minimum=minimum,
            maximum=maximum,
            total=self.total - part.total,
            negative=self.negative - part.negative,
        )

    def without_largest(self, many: int) -> Histogram | None:
        """Return the histogram without that many of the largest values, each counted as the
        midpoint of its bucket; None if none remain.
        """
        if many >= self.n:
            return None
        # Counts are removed from the last bucket downwards until ``many`` are gone; one bucket can
        # lose a part of its values. Five of the counts [4, 3, 3]: [0, 2, 3] are gone.
        from_last = np.minimum(np.cumsum(self.count[::-1]), many)
        gone = np.diff(from_last, prepend=0)[::-1]
        left = self.count - gone
        kept = np.flatnonzero(left)
        # Python's integers, because the sum may not fit 64 bits
        lost = zip(midpoint(self.index).tolist(), gone.tolist(), strict=True)
        gone_total = sum(value * number for value, number in lost)
        return replace(
            self,
            index=self.index[kept],
            count=left[kept],
            maximum=self.at(self.n - many),
            total=max(self.total - gone_total, 0),
        )


EMPTY: Final = Histogram(
    index=np.zeros(0, np.int64), count=np.zeros(0, np.int64), minimum=0, maximum=0, total=0
)
"""No values: each percentile ranks among what never came."""


def rank(p: float, n: int) -> int:
    """Return the rank of a percentile among ``n`` values, counted from 1: ⌈p·n⌉."""
    # In twelve decimal digits, since float error would lift a whole product to the next rank: 99.9
    # % of 10**8 is 99 900 000.
    return max(1, math.ceil(Fraction(f"{p:.12g}") * n / 100))


def _middle(index: int) -> int:
    low, width = bucket_bounds(index)
    return low + width // 2


def bucket_bounds(index: int, sub_bits: int = SUB_BITS) -> tuple[int, int]:
    """Return the lowest value and the width of an HDR bucket, ns."""
    shift = max((index >> sub_bits) - 1, 0)
    return (index - (shift << sub_bits)) << shift, 1 << shift


# Counting indexes with numpy is two hundred times as fast as recording values one by one in an
# HdrHistogram, and drops no value that is out of its range.

# The bit at which sums are split in two, so that no 64-bit sum of nanoseconds overflows.
HALF = 20


def hdr_index(values: NDArray[np.int64], sub_bits: int = SUB_BITS) -> NDArray[np.int64]:
    """Return the HDR bucket of each value (int64 in, int64 out); values below zero fall into bucket
    0.
    """
    floored = np.maximum(values, 0)
    # The exponent bits of a float64 are floor(log2), far below zero for 0. A value that float64
    # rounds up to a power of two lies in the last bucket below it; the shifts on both sides give
    # that bucket the same index, so rounding is harmless.
    exponent = (floored.astype(np.float64).view(np.int64) >> 52) - 1023
    shift = np.maximum(exponent - sub_bits, 0)
    index: NDArray[np.int64] = (shift << sub_bits) + (floored >> shift)
    return index


def midpoint(index: NDArray[np.int64], sub_bits: int = SUB_BITS) -> NDArray[np.int64]:
    """Return the middle of each bucket, rounded down."""
    shift = np.maximum((index >> sub_bits) - 1, 0)
    middle: NDArray[np.int64] = ((index - (shift << sub_bits)) << shift) + ((1 << shift) >> 1)
    return middle


def exact_total(values: NDArray[np.int64]) -> int:
    """Return the sum as a Python integer: exact even if an int64 sum would overflow."""
    return join_total(int((values >> HALF).sum()), int((values & ((1 << HALF) - 1)).sum()))


def join_total(high: int, low: int) -> int:
    """Return the sum of values from those of their halves, ``v >> HALF`` and the bits below."""
    return (high << HALF) + low


def histogram(values: NDArray[np.int64]) -> Histogram | None:
    """Count ``values`` (int64, ns) by HDR bucket; None when there are none."""
    if len(values) == 0:
        return None
    # All of int64 falls into 54 * 1024 buckets, so a counter for each is small.
    count = np.bincount(hdr_index(values))
    index = np.flatnonzero(count)
    return Histogram(
        index=index,
        count=count[index],
        minimum=int(values.min()),
        maximum=int(values.max()),
        total=exact_total(values),
        negative=int((values < 0).sum()),
    )


def document(histogram: Histogram) -> dict[str, Any]:
    """Return the histogram as JSON values, which :func:`of_document` reads."""
    values = asdict(histogram)
    for name in ("index", "count"):
        values[name] = values[name].tolist()
    return values


def of_document(document: Mapping[str, Any]) -> Histogram:
    """Return the histogram from the values of :func:`document`.

    :raises KeyError, TypeError, ValueError: they are not a histogram's.
    """
    return Histogram(
        index=np.array(document["index"], np.int64),
        count=np.array(document["count"], np.int64),
        minimum=int(document["minimum"]),
        maximum=int(document["maximum"]),
        total=int(document["total"]),
        negative=int(document["negative"]),
    )


def merge(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """Return the histogram of all values together; None if no part has any."""
    parts = [part for part in histograms if part is not None]
    if not parts:
        return None
    index, place = np.unique(np.concatenate([part.index for part in parts]), return_inverse=True)
    count = np.zeros(len(index), np.int64)
    # Unbuffered: several parts can have the same bucket, and ``count[place] += …`` would add one of
    # them only.
    np.add.at(count, place, np.concatenate([part.count for part in parts]))
    minimum = min(part.minimum for part in parts)
    maximum = max(part.maximum for part in parts)
    total = sum(part.total for part in parts)
    negative = sum(part.negative for part in parts)
    return Histogram(
        index=index, count=count, minimum=minimum, maximum=maximum, total=total, negative=negative
    )
