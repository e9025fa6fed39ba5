"""Latencies as buckets and counts, as results hold them, and the values of their ranks."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.histogram import SUB_BITS, bucket_bounds, rank
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.report import hdr
from pytest_loadtest.verdict.observations import TAIL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.report.document import Document


@dataclass(frozen=True)
class Distribution:
    """:param counts: by HDR bucket, ascending; none is 0. :param bits: significant bits of a bucket.

    :param minimum, maximum: ns; exact where they are known, otherwise the ends of the outermost buckets.
    :param never_came: how many more were due.
    :param before: how many more came with a value below zero, as delayed messages before they were due.
    """

    counts: Mapping[int, int]
    bits: int
    minimum: int
    maximum: int
    never_came: int = 0
    before: int = 0

    @cached_property
    def _cumulative(self) -> list[int]:
        return list(accumulate(self.counts.values()))

    @cached_property
    def _indexes(self) -> list[int]:
        return list(self.counts)

    @property
    def samples(self) -> int:
        """How many values."""
        return self.before + self._cumulative[-1]

    def percentile(self, p: float) -> float:
        """Nearest rank over all that was due, ns, the middle of its bucket; inf among what never came, -inf among those before."""
        at = rank(p, self.samples + self.never_came)
        if not self.before < at <= self.samples:
            return math.inf if at > self.samples else -math.inf
        low, width = bucket_bounds(self._indexes[bisect_left(self._cumulative, at - self.before)], self.bits)
        return min(max(low + width // 2, self.minimum), self.maximum)

    def proves(self, p: float) -> bool:
        """Whether enough was due to tell this percentile: ten values lie beyond it."""
        return p < 100 and (self.samples + self.never_came) * (1 - p / 100) >= TAIL - 1e-6


def latency_distribution(latency: Document | None) -> Distribution | None:
    """Of a latency of the results; None where it has no histogram, and where its clocks disagree."""
    text = None if latency is None else latency["histogram"]
    if latency is None or text is None or latency["negative"]:
        return None
    counts = decode_counts(text)
    return Distribution(
        counts=counts, bits=SUB_BITS, minimum=latency["minimum"], maximum=latency["maximum"], never_came=latency["neverCame"],
        before=latency["samples"] - sum(counts.values()),
    )  # fmt: skip


def counts_distribution(counts: Mapping[int, int], maximum: int | None = None, bits: int = SERIES_BITS) -> Distribution | None:
    """Of buckets, ascending; None where there are none. :param maximum: ns, where it is known better than by the last bucket."""
    if not counts:
        return None
    (low, _), (last, width) = (bucket_bounds(index, bits) for index in (min(counts), max(counts)))
    highest = last + width - 1
    return Distribution(counts=counts, bits=bits, minimum=low, maximum=highest if maximum is None else min(highest, maximum))


def decode_counts(text: str | None) -> dict[int, int]:
    """Counts by bucket; empty where there is no histogram."""
    return {} if text is None else dict(hdr.decode_histogram(text))


def percentile_at(x: float) -> float:
    """The percentile that stands at ``x`` = 1/(1 − q) of a percentile axis: 100 → 99."""
    return 100 * (1 - 1 / x)


def percentile_position(p: float) -> float:
    """Where a percentile stands: 99 → 100."""
    return math.inf if p >= 100 else 1 / (1 - p / 100)
