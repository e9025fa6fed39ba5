"""What was observed in one run, with counts, or an explicit nothing.

None always means "not measured" or "not applicable", never zero. Histograms hold counts per HDR bucket: the index of a value in an
HdrHistogram with lowest value 1 ns and three significant digits, ``(shift << 10) + (v >> shift)``, ``shift = max(floor(log2 v) - 10, 0)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
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
        rank = max(1, math.ceil(p / 100 * self.n - 1e-9))
        index = int(self.index[int(np.searchsorted(np.cumsum(self.count), rank))])
        low, width = bucket_bounds(index)
        return min(max(low + width // 2, self.minimum), self.maximum)


def bucket_bounds(index: int) -> tuple[int, int]:
    """Lowest value and width of an HDR bucket, ns."""
    shift = max((index >> SUB_BITS) - 1, 0)
    return (index - (shift << SUB_BITS)) << shift, 1 << shift


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Messages of the measured phase. Deliveries (received, lost, duplicates, out of order) are summed over subscriptions.

    offered = sent + dropped; sent = acked + failed + unknown; expected deliveries = acked × subscriptions = received_acked + lost.
    ``sent_in_time`` were handed over before the measured phase ended. ``received`` counts first copies.
    ``out_of_order`` is None where order is not applicable.
    """

    offered: int
    sent: int
    sent_in_time: int
    acked: int
    failed: int
    dropped: int
    unknown: int
    received: int
    received_in_time: int
    lost: int
    duplicates: int
    out_of_order: int | None
    foreign: int
    corrupt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One topic or one size bucket."""

    name: str
    offered: int = 0
    sent: int
    acked: int
    received: int
    lost: int = 0
    bytes_sent: int
    end_to_end: Histogram | None
    publish: Histogram | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Per second of the measured phase (and its drain), one entry a second; times in ns, NaN where nothing was measured."""

    offered: NDArray[np.int64]
    sent: NDArray[np.int64]
    acked: NDArray[np.int64]
    received: NDArray[np.int64]
    end_to_end_p50: NDArray[np.float64]
    end_to_end_p99: NDArray[np.float64]
    end_to_end_max: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Latencies of the messages due in one stretch of the measured phase."""

    publish: Histogram | None
    end_to_end: Histogram | None
    send_delay: Histogram | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEvidence:
    """How one worker's own process fared while it measured: the evidence for *generator-limited*.

    :param cpu: its CPU time over wall time; 1.0 is one core.
    :param stalled: ns that its loop woke up late, summed over wake-ups later than 50 ms. :param longest_stall: ns.
    :param gc: ns in garbage collection pauses.
    """

    worker: str
    cpu: float
    stalled: int
    longest_stall: int
    gc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A backlog built while consumers stood still, then read while producers went on, as the workers' reports showed it twice a second.

    :param size_messages: deliveries that were waiting when consumers resumed, summed over subscriptions. :param size_bytes: the same in
        payload bytes. :param build: ns from the pause until the size was reached.
    :param drain: ns from the resumption until the backlog was down to what ``backlogDrainRatio`` leaves, or until
        ``backlogDrainTimeout``. :param drained: it came down that far in time.
    :param drain_rate: deliveries per second during the drain. :param publish_during_drain: acked − intended of the messages due
        meanwhile; None where acknowledgement is not applicable or nothing was acked.
    """

    size_messages: int
    size_bytes: int
    build: int
    drain: int
    drained: bool
    drain_rate: float
    publish_during_drain: Histogram | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A range of messages that a subscription should have got and did not: ``first..last`` inclusive."""

    topic: int
    subscription: int
    stream: int
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Everything observed in one measured phase.

    :param duration: ns, the measured phase as planned. :param rate: offered msg/s. :param subscriptions: per topic.
    :param publish: acked − intended; None where acknowledgement is not applicable or nothing was acked.
    :param end_to_end: received − intended, first copies and duplicates alike; None when nothing was received.
    :param send_delay: sent − intended. :param own_send_delay: the same less the time blocked before the target's full window.
    :param blocked: ns, summed over messages. :param intervals: of ten seconds each, where there is more than one.
    :param lost: ranges, at most 10 000 of them; ``counts.lost`` is exact.
    """

    duration: int
    rate: float
    subscriptions: int
    counts: Counts
    bytes_sent: int
    publish: Histogram | None
    end_to_end: Histogram | None
    send_delay: Histogram | None
    own_send_delay: Histogram | None
    blocked: int
    series: Series
    intervals: tuple[Interval, ...] = ()
    topics: tuple[Breakdown, ...] = ()
    buckets: tuple[Breakdown, ...] = ()
    workers: tuple[WorkerEvidence, ...] = ()
    lost: tuple[Lost, ...] = field(default=())

    @property
    def throughput(self) -> float:
        """Delivered msg/s, per subscription: first copies received within the measured phase, moved by the median latency."""
        deliveries = self.counts.received_in_time / max(self.subscriptions, 1)
        return deliveries / (self.duration / 1e9)

    @property
    def publish_rate(self) -> float:
        """Messages handed over in time, per second."""
        return self.counts.sent_in_time / (self.duration / 1e9)
