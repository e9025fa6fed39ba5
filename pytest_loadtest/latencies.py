"""Latencies, and one size bucket, as a test asks for them: numbers with units, or an error that says why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_loadtest.errors import NoData
from pytest_loadtest.objectives import Objective
from pytest_loadtest.observations import NOT_ACKED, NOT_RECEIVED, bucket_of, observe, unfit
from pytest_loadtest.units import Duration, Rate
from pytest_loadtest.wording import exact

if TYPE_CHECKING:
    from pytest_loadtest.measurements import Breakdown, Histogram, Measurements


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Latency:
    """Latencies of one kind, over the whole measured phase.

    Every statistic is a :class:`Duration` and raises :class:`NoData` where it was not measured, or on too few samples.

    :param kind: ``end-to-end``, ``publish``, ``send delay``. :param absent: why there is no histogram.
    """

    kind: str
    histogram: Histogram | None
    absent: str

    @property
    def samples(self) -> int:
        """How many messages were measured."""
        return 0 if self.histogram is None else self.histogram.n

    def percentile(self, p: float) -> Duration:
        """The latency that ``p`` per cent of the messages did not exceed; ten samples at least must lie beyond it.

        :raises ValueError: ``p`` is not between 0 and 100.
        """
        if not 0 < p < 100:
            raise ValueError(f"percentile {p!r} is out of range: above 0 and below 100; for the largest value take max")
        return self._duration(f"p{p:.10g}", self._fit(p).percentile(p))

    @property
    def p50(self) -> Duration:
        """Median."""
        return self.percentile(50)

    @property
    def p90(self) -> Duration:
        """90th percentile."""
        return self.percentile(90)

    @property
    def p99(self) -> Duration:
        """99th percentile."""
        return self.percentile(99)

    @property
    def p999(self) -> Duration:
        """99.9th percentile."""
        return self.percentile(99.9)

    @property
    def max(self) -> Duration:
        """Largest, exact."""
        return self._duration("max", self._fit(None).maximum)

    @property
    def min(self) -> Duration:
        """Smallest, exact."""
        return self._duration("min", self._fit(None).minimum)

    @property
    def mean(self) -> Duration:
        """Arithmetic mean, exact."""
        return self._duration("mean", self._fit(None).mean)

    def _fit(self, p: float | None) -> Histogram:
        if self.histogram is None or not self.histogram.n:
            raise NoData(f"no {self.kind} latency: {self.absent}")
        reason = unfit(self.histogram, p)
        if reason:
            raise NoData(f"no {self.kind} latency: {reason}")
        return self.histogram

    def _duration(self, statistic: str, ns: float) -> Duration:
        return Duration(ns, label=f"{self.kind} {statistic}", samples=self.samples)

    def __repr__(self) -> str:
        return f"<{self.kind} latency: {exact(self.samples)} samples>" if self.samples else f"<{self.kind} latency: {self.absent}>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BucketResult:
    """What was observed of one size bucket.

    :param key: as in the profile's ``messageSizeDistribution``. :param measurements: of the whole run.
    """

    key: str
    measurements: Measurements

    @property
    def end_to_end(self) -> Latency:
        """From the intended send to the receipt."""
        return Latency(kind=f"{self.key} end-to-end", histogram=self._part.end_to_end, absent=NOT_RECEIVED)

    @property
    def publish(self) -> Latency:
        """From the intended send to the acknowledgement."""
        return Latency(kind=f"{self.key} publish", histogram=self._part.publish, absent=NOT_ACKED)

    @property
    def throughput(self) -> Rate:
        """Received msg/s, per subscription."""
        return Rate(self._observed("throughput", "msg/s"))

    @property
    def lost(self) -> int:
        """Deliveries that were due and did not come, over all subscriptions."""
        return int(self._observed("loss", "messages"))

    @property
    def sent(self) -> int:
        """Messages handed to the client."""
        return self._part.sent

    @property
    def _part(self) -> Breakdown:
        part = bucket_of(self.measurements, self.key)
        assert part is not None, self.key
        return part

    def _observed(self, metric: str, unit: str) -> float:
        return number(Objective(metric=metric, minimum=None, maximum=None, unit=unit, bucket=self.key), self.measurements)

    def __repr__(self) -> str:
        return f"<size bucket {self.key}: {exact(self.sent)} messages sent>"


def number(objective: Objective, measurements: Measurements) -> float:
    """What the objective's metric came to.

    :raises NoData: it was not measured, or is not applicable.
    """
    seen = observe(objective, measurements)
    if seen.value is None:
        raise NoData(f"no {objective.name}: {seen.basis}")
    return seen.value
