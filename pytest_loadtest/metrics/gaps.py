"""The longest time without delivery of each subscription of each topic.

A pause of some topics is a small share of all messages: percentiles of latency over a long run do not show it, nor how long it was.

The *delivery gap* of a subscription of a topic is the longest time between two successive first copies of the topic's measured messages
that it received, wherever they were sent from; also the time from the phase's start to the first of them, and the time from the last of
them to the phase's end. A gap that began in the phase and ended in the drain counts to its end. One shorter than :func:`gap_resolution`
counts as that. A subscription that received nothing of a topic has no gap: it is one of the ``pairs`` of
:class:`~pytest_loadtest.metrics.silent.Silent`, and later than any bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest.metrics.histogram import histogram
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.histogram import Histogram

# Most cells, of one length, that all subscriptions of all topics have in the phase; Spark merges one row for each that is not empty.
CELLS: Final = 1 << 21


def gap_resolution(run: Expected) -> int:
    """Return the length of a cell, ns: 1 ms, or more if there are too many topics and subscriptions, or the phase is too long."""
    return max(MILLISECOND, -(-run.duration * run.topics * run.subscriptions // CELLS))


def gap_cells(copies: Mapping[str, NDArray[Any]], run: Expected) -> NDArray[np.int64]:
    """Return the cell of each first copy, numbered from the phase's start."""
    cells: NDArray[np.int64] = (gap_times(copies, run) - run.start) // gap_resolution(run)
    return cells


def gap_times(copies: Mapping[str, NDArray[Any]], run: Expected) -> NDArray[np.int64]:
    """Return the times of receipt, ns; those before the start, as by an error of a clock, are at the start."""
    times: NDArray[np.int64] = np.maximum(copies["received"], run.start)
    return times


def delivery_gaps(
    run: Expected, subscription: NDArray[np.int64], topic: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]
) -> Histogram | None:  # fmt: skip
    """Return the delivery gaps of all subscriptions of topics that received something; None if none did.

    :param first: and :param last: ns, each row's earliest and latest receipt. Rows of one subscription and topic do not overlap, and no gap
        within a row is as long as the resolution.
    """
    if not len(first):
        return None
    order = np.lexsort((first, topic, subscription))
    pair, first, last = (subscription * run.topics + topic)[order], first[order], last[order]
    begins = np.flatnonzero(np.diff(pair, prepend=-1))
    before = np.roll(last, 1)
    before[begins] = run.start
    after_last = run.start + run.duration - last[np.append(begins[1:], len(pair)) - 1]
    longest = np.maximum(np.maximum.reduceat(first - before, begins), after_last)
    return histogram(np.maximum(longest, gap_resolution(run)))
