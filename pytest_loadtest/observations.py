"""metric × measurements → the number observed, or why there is none: of what each metric counts, and of how many."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.quantities import format_rate
from pytest_loadtest.wording import exact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.measurements import Breakdown, Histogram, Measurements
    from pytest_loadtest.objectives import Objective

TAIL = 10
"""Samples that must lie beyond a percentile before it is called a number."""
DELIVERIES = ("throughput", "endToEndLatency", "loss", "duplicates", "outOfOrder", "corrupt", "foreign")
"""Metrics that need a consumer."""

NO_CONSUMERS = "not applicable: nothing subscribes in this run"
NOT_RECEIVED = "nothing was received"
NOT_ACKED = "nothing was acknowledged, or acknowledgement is not applicable"
NOT_SENT = "nothing was sent"
NOT_DUE = "nothing was acknowledged, so no delivery was due"


class Observation(NamedTuple):
    """What was seen of one metric. ``value`` is None where it cannot be told, and ``basis`` then says why.

    Otherwise ``basis`` says of what: ``100 of 5 000 deliveries``.
    """

    value: float | None
    samples: int
    basis: str


def observe(objective: Objective, measurements: Measurements) -> Observation:
    """What the objective's metric came to, in the objective's unit. Never a number for what was not measured."""
    if objective.metric in DELIVERIES and not measurements.subscriptions:
        return Observation(None, 0, NO_CONSUMERS)
    if objective.bucket:
        return _of_bucket(objective, measurements)
    if objective.unit == "ns":
        m = measurements
        return _latency(objective, {"publishLatency": m.publish, "endToEndLatency": m.end_to_end, "sendDelay": m.send_delay})
    if objective.metric == "throughput":
        return _throughput(objective, measurements)
    return _count(objective, measurements)


def samples_needed(percentile: float) -> int:
    """Fewest samples of which ten lie beyond this percentile: 1 000 for p99, 10 000 for p99.9."""
    return math.ceil(TAIL * 100 / (100 - Fraction(repr(float(percentile)))))  # in decimals: 99.998 is no binary fraction


def unfit(histogram: Histogram, percentile: float | None) -> str | None:
    """Why this histogram cannot answer for a percentile (None: for any other statistic), or None when it can."""
    if histogram.negative:
        return f"{exact(histogram.negative)} of {exact(histogram.n)} values are below zero: the clocks of sender and receiver disagree"
    if percentile is not None and histogram.n < samples_needed(percentile):
        return f"p{percentile:.10g} needs {exact(samples_needed(percentile))} samples, there are {exact(histogram.n)}"
    return None


def blocked_share(measurements: Measurements) -> float:
    """How much of the whole send delay was spent before the target's full window, 0 to 1: the target's doing."""
    delay = measurements.send_delay
    return min(measurements.blocked / delay.total, 1.0) if delay is not None and delay.total > 0 else 0.0


def consumer_only(measurements: Measurements) -> bool:
    """The run only reads what others send: nothing was to be offered, so only what arrived can be judged."""
    return measurements.rate == 0


def bucket_of(measurements: Measurements, key: str) -> Breakdown | None:
    """The part of the run's messages in a size bucket; None where there is no such bucket."""
    return next((part for part in measurements.buckets if part.name == key), None)


def _throughput(objective: Objective, measurements: Measurements) -> Observation:
    counts = measurements.counts
    if not counts.received:
        return Observation(None, 0, NOT_RECEIVED)
    done = format_rate(measurements.throughput)
    if objective.unit == "msg/s":
        offered = "" if consumer_only(measurements) else f" of {format_rate(measurements.rate)} offered"
        return Observation(measurements.throughput, counts.received_in_time, done + offered)
    if not counts.offered:
        return Observation(None, 0, "nothing was offered")
    share = counts.received_in_time / (counts.offered * measurements.subscriptions)
    return Observation(share, counts.received_in_time, f"{done} of {format_rate(measurements.rate)} offered")


def _count(objective: Objective, measurements: Measurements) -> Observation:
    count, base, noun = _tally(objective.metric, measurements)
    if count is None:
        return Observation(None, 0, "order is not applicable to this subscription type")
    if base == 0:
        return Observation(None, 0, "nothing was offered" if noun == "offered" else NOT_DUE)
    basis = f"{exact(count)} of {exact(base)} {noun}"
    if objective.metric == "failed" and measurements.counts.unknown:
        basis += f", {exact(measurements.counts.unknown)} of them unanswered"
    return Observation(count / base if objective.unit == "ratio" else count, base, basis)


def _tally(metric: str, measurements: Measurements) -> tuple[int | None, int, str]:
    """A metric's count, of how many, of what. A message without an answer counts as failed: nobody said that it arrived."""
    counts = measurements.counts
    on_the_way_out = {"sent": counts.sent_in_time, "dropped": counts.dropped, "failed": counts.failed + counts.unknown}
    if metric in on_the_way_out:
        return on_the_way_out[metric], counts.offered, "offered"
    deliveries: dict[str, int | None] = {
        "loss": counts.lost,
        "duplicates": counts.duplicates,
        "outOfOrder": counts.out_of_order,
        "corrupt": counts.corrupt,
        "foreign": counts.foreign,
    }
    return deliveries[metric], counts.acked * measurements.subscriptions, "deliveries"


def _of_bucket(objective: Objective, measurements: Measurements) -> Observation:
    part = bucket_of(measurements, objective.bucket)
    if part is None or not part.offered:
        return Observation(None, 0, "there is no such size bucket" if part is None else "no message of this size was due")
    if objective.unit == "ns":
        return _latency(objective, {"publishLatency": part.publish, "endToEndLatency": part.end_to_end})
    if objective.metric == "throughput":
        return _bucket_throughput(objective, part, measurements)
    due = part.acked * measurements.subscriptions
    if not due:
        return Observation(None, 0, NOT_DUE)
    return Observation(part.lost / due if objective.unit == "ratio" else part.lost, due, f"{exact(part.lost)} of {exact(due)} deliveries")


def _bucket_throughput(objective: Objective, part: Breakdown, measurements: Measurements) -> Observation:
    """Everything received of the bucket, late or not: nothing is known by bucket about when."""
    if not part.received:
        return Observation(None, 0, NOT_RECEIVED)
    seconds, deliveries = measurements.duration / 1e9, part.received / measurements.subscriptions
    value = deliveries / seconds if objective.unit == "msg/s" else deliveries / part.offered
    return Observation(value, part.received, f"{format_rate(deliveries / seconds)} of {format_rate(part.offered / seconds)} offered")


def _latency(objective: Objective, histograms: Mapping[str, Histogram | None]) -> Observation:
    histogram = histograms[objective.metric]
    if histogram is None or histogram.n == 0:
        absent = {"publishLatency": NOT_ACKED, "endToEndLatency": NOT_RECEIVED, "sendDelay": NOT_SENT}
        return Observation(None, 0, absent[objective.metric])
    reason = unfit(histogram, objective.percentile)
    if reason:
        return Observation(None, histogram.n, reason)
    value = {"max": histogram.maximum, "min": histogram.minimum, "mean": histogram.mean}.get(objective.statistic)
    value = histogram.percentile(objective.percentile or 0) if value is None else value
    return Observation(float(value), histogram.n, f"{exact(histogram.n)} samples")
