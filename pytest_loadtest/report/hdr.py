"""Latency histograms in HdrHistogram's formats.

They are encoded, for documents, and a log (``.hlog``, format 1.3) that the usual viewers open.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.hdr_codec import decode_hdr, encode_hdr
from pytest_loadtest.metrics.histogram import SUB_BITS, Histogram, bucket_bounds, rank
from pytest_loadtest.metrics.series import SERIES_BITS
from pytest_loadtest.verdict.observations import TAIL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.report.measurements_section import LatencySection


DIGITS = 3
COARSE_DIGITS = 2
MILLISECOND = 1e6
"""The unit of the maximum in a line of the log, ns; the histograms are in ns."""


def write_log(path: Path, measurements: Measurements, started: float) -> None:
    """Write one interval, as long as the measured phase, for each measured latency.

    It is tagged by its label (``end-to-end``, ``send-delay``).

    :param started: wall clock at the start of the measured phase, seconds since the epoch.
    """
    path.write_text("\n".join(log_lines(measurements, started)) + "\n", encoding="ascii")


def log_lines(measurements: Measurements, started: float) -> Iterator[str]:
    """Yield the lines of the log.

    A latency that can be below zero has no line: HdrHistogram cannot represent it.
    """
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    yield "#[Histogram log format version 1.3]"
    yield f"#[StartTime: {started:.3f} (seconds since epoch), {date}]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    for attribute, metric in LATENCIES.items():
        histogram = measurements.latencies.get(attribute)
        if not isinstance(histogram, Histogram) or not histogram.n:
            continue
        tag = metric.label.replace(" ", "-")
        if never_came := measurements.never_came(attribute):
            # Neither the format's histogram nor its maximum can be infinite.
            came = f"the histogram and its maximum are of the {histogram.n} that came"
            yield f"#[{tag}: {never_came} never came; {came}]"
        length = measurements.duration / 1e9
        highest = histogram.maximum / MILLISECOND
        yield f"Tag={tag},0.000,{length:.3f},{highest:.3f},{encode_histogram(histogram)}"


def encode_histogram(histogram: Histogram) -> str:
    """Return the compressed V2 form in base64; each bucket has the same count."""
    counts = dict(zip(histogram.index.tolist(), histogram.count.tolist(), strict=True))
    return encode_hdr(counts, DIGITS, histogram.maximum)


def encode_coarse_counts(counts: Mapping[int, int]) -> str:
    """Encode counts of buckets with seven bits: those of a histogram with two significant digits.

    :param counts: by bucket.
    """
    maximum, _ = bucket_bounds(max(counts), SERIES_BITS)
    return encode_hdr(counts, COARSE_DIGITS, maximum)


def decode_counts(text: str | None) -> dict[int, int]:
    """Return the counts of all buckets that have values, ascending; empty if there is no text.

    :param text: from an encoder above.
    """
    if text is None:
        return {}
    return dict(decode_hdr(text).counts)


# Distributions of latencies: the buckets and counts of the results, and the values at their ranks.


@dataclass(frozen=True)
class Distribution:
    """Counts of latencies by bucket.

    :param counts: by HDR bucket, ascending; none is 0. :param bits: significant bits of a bucket.
    :param minimum, maximum: ns; exact where they are known, otherwise the ends of the outermost
        buckets.
    :param never_came: number of further messages that were due.
    :param complete: all messages came, or the profile allows the others: ``maximum`` is the largest
        value of all.
    :param before: number of further values below zero, of delayed messages that came before they
        were due.
    """

    counts: Mapping[int, int]
    bits: int
    minimum: int
    maximum: int
    never_came: int = 0
    before: int = 0
    complete: bool = True

    @cached_property
    def _cumulative(self) -> list[int]:
        return list(accumulate(self.counts.values()))

    @cached_property
    def _indexes(self) -> list[int]:
        return list(self.counts)

    @property
    def samples(self) -> int:
        """The number of values, including those below zero."""
        return self.before + self._cumulative[-1]

    def percentile(self, p: float) -> float:
        """Return the nearest rank over all due messages, the middle of its bucket, ns.

        It is inf if it never came, -inf if it is below zero.
        """
        at = rank(p, self.samples + self.never_came)
        if at > self.samples:
            return math.inf
        if at <= self.before:
            return -math.inf
        bucket = self._indexes[bisect_left(self._cumulative, at - self.before)]
        low, width = bucket_bounds(bucket, self.bits)
        return min(max(low + width // 2, self.minimum), self.maximum)

    def proves(self, p: float) -> bool:
        """Return True if at least ten values lie beyond the percentile."""
        due = self.samples + self.never_came
        return p < 100 and due * (1 - p / 100) >= TAIL - 1e-6


def latency_distribution(latency: LatencySection | None) -> Distribution | None:
    """Return the distribution of a latency of the results.

    It is None if there is no histogram, or the clocks disagree.
    """
    if latency is None or latency.histogram is None or latency.clocks_disagree:
        return None
    counts = decode_counts(latency.histogram)
    return Distribution(
        counts=counts,
        bits=SUB_BITS,
        minimum=latency.minimum,
        maximum=latency.largest_came,
        never_came=latency.never_came,
        before=latency.samples - sum(counts.values()),
        complete=latency.maximum is not None,
    )


def counts_distribution(
    counts: Mapping[int, int], maximum: int | None = None, bits: int = SERIES_BITS
) -> Distribution | None:
    """Return the distribution of ascending buckets; None if there are none.

    :param maximum: ns, if it is known more exactly.
    """
    if not counts:
        return None
    lowest, _ = bucket_bounds(min(counts), bits)
    last, width = bucket_bounds(max(counts), bits)
    highest = last + width - 1
    if maximum is not None:
        highest = min(highest, maximum)
    return Distribution(counts=counts, bits=bits, minimum=lowest, maximum=highest)


def percentile_at(x: float) -> float:
    """Return the percentile at position ``x`` = 1/(1 − q) of a percentile axis: 100 → 99."""
    return 100 * (1 - 1 / x)


def percentile_position(p: float) -> float:
    """Return the position of a percentile on that axis: 99 → 100."""
    return math.inf if p >= 100 else 1 / (1 - p / 100)
