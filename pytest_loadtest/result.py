"""What the ``load`` fixture gives a test: numbers with units that compare, or an error instead of a number.

::

    load.assert_slo()
    assert load.end_to_end.p99 <= ms(100)
    assert load.throughput >= 5000
    assert load.lost == 0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_loadtest.errors import GeneratorLimited, NoData, UsageError
from pytest_loadtest.objectives import Objective
from pytest_loadtest.slo import Outcome, Verdict, explicit, observe, unfit
from pytest_loadtest.units import Duration, Rate, compare_lines, ms, s, us
from pytest_loadtest.wording import exact

if TYPE_CHECKING:
    from pytest_loadtest.measurements import Histogram, Measurements

__all__ = ["Duration", "Latency", "Load", "Rate", "SloMissed", "compare_lines", "ms", "s", "us"]


class SloMissed(AssertionError):
    """Objectives did not hold; the text lists every one of them, then those that did."""


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
class Load:
    """One finished run.

    :param scale: factor of ``--load-scale``; None where the profile ran as written.
    """

    profile_name: str
    measurements: Measurements
    verdict: Verdict
    scale: float | None = None

    def assert_slo(self) -> None:
        """Hold the run against every objective of the profile and the implicit ones.

        :raises SloMissed: at least one does not hold; names all of them.
        :raises UsageError: the profile has no objectives.
        :raises NoData: something that had to be measured was not.
        :raises GeneratorLimited: the generator set the pace.
        """
        __tracebackhide__ = True
        self.ensure_judged()
        if not explicit(finding.objective for finding in self.verdict.findings):
            hint = "write, for example, slo: {throughput: 99%, endToEndLatency: {p99: 100ms}}"
            raise UsageError(f"profile {self.profile_name} has no objectives, so assert_slo() has nothing to assert: {hint}")
        if self.verdict.outcome is Outcome.MISSED:
            raise SloMissed(self._misses())

    def ensure_judged(self) -> None:
        """Raise what a broken run is: for the fixture's setup, so that it is pytest's *error* and no test body ever sees it.

        :raises NoData: something that had to be measured was not.
        :raises GeneratorLimited: the generator set the pace.
        """
        __tracebackhide__ = True
        text = f"load run of profile {self.profile_name}: {self.verdict.outcome.value}\n" + "\n".join(
            f"  {line}" for line in self.verdict.reasons
        )
        if self.verdict.outcome is Outcome.NO_DATA:
            raise NoData(text)
        if self.verdict.outcome is Outcome.GENERATOR_LIMITED:
            raise GeneratorLimited(text)

    @property
    def end_to_end(self) -> Latency:
        """From the intended send to the receipt."""
        return Latency(kind="end-to-end", histogram=self.measurements.end_to_end, absent="nothing was received")

    @property
    def publish(self) -> Latency:
        """From the intended send to the acknowledgement."""
        absent = "nothing was acknowledged, or acknowledgement is not applicable"
        return Latency(kind="publish", histogram=self.measurements.publish, absent=absent)

    @property
    def send_delay(self) -> Latency:
        """From the intended send to the hand-over to the client."""
        return Latency(kind="send delay", histogram=self.measurements.send_delay, absent="nothing was sent")

    @property
    def throughput(self) -> Rate:
        """Delivered msg/s, per subscription."""
        return Rate(self._observed("throughput", "msg/s"))

    @property
    def lost(self) -> int:
        """Deliveries that were due and did not come, over all subscriptions."""
        return int(self._observed("loss"))

    @property
    def duplicates(self) -> int:
        """Copies beyond the first."""
        return int(self._observed("duplicates"))

    @property
    def out_of_order(self) -> int:
        """Deliveries that came after a later one of their stream and partition or key.

        :raises NoData: order is not applicable (Shared subscriptions).
        """
        return int(self._observed("outOfOrder"))

    @property
    def corrupt(self) -> int:
        """Payloads that arrived damaged."""
        return int(self._observed("corrupt"))

    @property
    def foreign(self) -> int:
        """Payloads received that this run did not send."""
        return int(self._observed("foreign"))

    @property
    def failed(self) -> int:
        """Messages that were refused, or got no answer until drain ended."""
        return int(self._observed("failed"))

    @property
    def dropped(self) -> int:
        """Messages never sent, because they were later than ``maxSendDelay``."""
        return int(self._observed("dropped"))

    def _observed(self, metric: str, unit: str = "messages") -> float:
        seen = observe(Objective(metric=metric, minimum=None, maximum=None, unit=unit), self.measurements)
        if seen.value is None:
            raise NoData(f"no {metric}: {seen.basis}")
        return seen.value

    def _misses(self) -> str:
        missed, met = self.verdict.having(Outcome.MISSED), self.verdict.having(Outcome.MET)
        scaled = "" if self.scale is None else f", scaled ×{self.scale:g}: this says nothing about the full load"
        lines = [f"{len(missed)} of {len(self.verdict.findings)} objectives missed (profile {self.profile_name}{scaled})"]
        lines += [f"  missed  {finding.text}{'  [implicit]' if finding.objective.implicit else ''}" for finding in missed]
        return "\n".join(lines + [f"  met     {finding.text}" for finding in met])

    def __repr__(self) -> str:
        return f"<load run of {self.profile_name}: {self.verdict.outcome.value}>"
