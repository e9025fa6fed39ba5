"""Counts per HDR bucket: the index of a value in an HdrHistogram with lowest value 1 ns and three significant digits.

The index is ``(shift << 10) + (v >> shift)``, ``shift = max(floor(log2 v) - 10, 0)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUB_BITS = 10


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Latencies of one kind.

    :param index: int64 ``(k,)``, HDR bucket indexes, ascending.
    :param count: int64 ``(k,)``, messages per bucket.
    :param minimum: ns, exact. :param maximum: ns, exact. :param total: sum in ns, exact.
    :param negative: how many values were below zero (counted as 0 in the buckets: a clock error).
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
        """Nearest rank: the smallest bucket with at least ``ceil(p/100 · n)`` values at or below it, as its midpoint in ns.

        At most 0.05 % from the exact value (half a bucket); never outside [minimum, maximum].
        """
        return self.at(rank(p, self.n))

    def percentile_of_due(self, p: float, never_came: int) -> float:
        """The same rank over all that was due: these values, and ``never_came`` that are later than any; inf where it lies among those."""
        at = rank(p, self.n + never_came)
        return self.at(at) if at <= self.n else math.inf

    def at(self, at: int) -> int:
        """The value at this rank, counted from 1, ns."""
        index = int(self.index[int(np.searchsorted(np.cumsum(self.count), at))])
        return min(max(_middle(index), self.minimum), self.maximum)

    def above(self, bound: float) -> int:
        """How many values are larger, by the middle of their bucket."""
        return int(self.count[[_middle(index) > bound for index in self.index.tolist()]].sum())

    def without_largest(self, many: int) -> Histogram | None:
        """What is left without that many of the largest values, each taken for the middle of its bucket; None when nothing is."""
        if many >= self.n:
            return None
        left = self.count - np.diff(np.minimum(np.cumsum(self.count[::-1]), many), prepend=0)[::-1]
        kept = np.flatnonzero(left)
        gone = sum(_middle(index) * taken for index, taken in zip(self.index.tolist(), (self.count - left).tolist(), strict=True) if taken)
        return replace(
            self, index=self.index[kept], count=left[kept], maximum=self.at(self.n - many), total=max(self.total - gone, 0),
        )  # fmt: skip


def rank(p: float, n: int) -> int:
    """Which of ``n`` values in order, counted from 1, the percentile is: ⌈p·n⌉."""
    return max(1, math.ceil(p / 100 * n - 1e-9))


def _middle(index: int) -> int:
    low, width = bucket_bounds(index)
    return low + width // 2


def bucket_bounds(index: int, sub_bits: int = SUB_BITS) -> tuple[int, int]:
    """Lowest value and width of an HDR bucket, ns."""
    shift = max((index >> sub_bits) - 1, 0)
    return (index - (shift << sub_bits)) << shift, 1 << shift
