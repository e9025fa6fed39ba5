"""Latency histograms as HdrHistogram has them: encoded, for documents, and as a log (``.hlog``, format 1.3) that the usual viewers open.

The lines are written here, because the library's own log writer leaves out tags; it encodes the histograms.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from hdrh.histogram import HdrHistogram

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.metrics.histogram import SUB_BITS, Histogram, bucket_bounds
from pytest_loadtest.metrics.series import SERIES_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_loadtest.metrics.measurements import Measurements

DIGITS, COARSE_DIGITS = 3, 2
MILLISECOND = 1e6
"""The unit of the line's maximum; the histograms are in ns."""


def write_log(path: Path, measurements: Measurements, started: float) -> None:
    """One interval for each latency that was measured, tagged by its label (``end-to-end``, ``send-delay``), as long as the measured phase.

    :param started: wall clock at the start of the measured phase, seconds since the epoch.
    """
    path.write_text("\n".join(log_lines(measurements, started)) + "\n", encoding="ascii")


def log_lines(measurements: Measurements, started: float) -> Iterator[str]:
    """The lines of the log. A latency that can be below zero has none: HdrHistogram cannot hold it."""
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    yield "#[Histogram log format version 1.3]"
    yield f"#[StartTime: {started:.3f} (seconds since epoch), {date}]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    for attribute, metric in LATENCIES.items():
        histogram, tag = getattr(measurements, attribute), metric.label.replace(" ", "-")
        if isinstance(histogram, Histogram) and histogram.n:
            length, highest = measurements.duration / 1e9, histogram.maximum / MILLISECOND
            yield f"Tag={tag},0.000,{length:.3f},{highest:.3f},{encode_histogram(histogram)}"


def encode_histogram(histogram: Histogram) -> str:
    """The library's compressed V2 form, in base64; bucket for bucket the same counts."""
    counts = dict(zip(histogram.index.tolist(), histogram.count.tolist(), strict=True))
    return _encoded(counts, SUB_BITS, DIGITS, histogram.maximum)


def encode_coarse_counts(counts: Mapping[int, int]) -> str:
    """The same of buckets of seven bits, which are those of a histogram with two significant digits. :param counts: by bucket."""
    return _encoded(counts, SERIES_BITS, COARSE_DIGITS, bucket_bounds(max(counts), SERIES_BITS)[0])


def _encoded(counts: Mapping[int, int], bits: int, digits: int, maximum: int) -> str:
    """:param counts: by bucket of so many bits. :param digits: the library's word for the same. :param maximum: of the values, ns."""
    encoder = HdrHistogram(1, max(2 * maximum, 2), digits)
    for index, count in counts.items():
        if not encoder.record_value(bucket_bounds(index, bits)[0], count):
            raise ValueError(f"bucket {index} lies beyond the histogram's maximum {maximum} ns")
    return str(encoder.encode().decode("ascii"))


def decode_histogram(text: str) -> list[tuple[int, int]]:
    """What :func:`encode_histogram` or :func:`encode_coarse_counts` made of it: index and count of each bucket that has values, ascending."""
    counts = np.asarray(HdrHistogram.decode(text).counts)
    index = np.flatnonzero(counts)
    return list(zip(index.tolist(), counts[index].tolist(), strict=True))
