"""Which missed latencies were the generator's own doing: its pauses come before everything that the target does with a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.metrics.catalogue import OBJECTIVES, Need
from pytest_loadtest.metrics.signed import Lateness
from pytest_loadtest.values.wording import exact, format_value
from pytest_loadtest.verdict.observations import Latencies, bucket_of, latencies

if TYPE_CHECKING:
    from pytest_loadtest.metrics.histogram import Histogram
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective


def our_own(objective: Objective, measurements: Measurements) -> str | None:
    """Why the generator itself broke the upper bound of a missed latency objective; None where it did not, or nobody can tell."""
    part = bucket_of(measurements, objective.bucket) if objective.bucket else None
    own = measurements.own_send_delay if part is None else part.own_send_delay
    why = pauses(objective, latencies(objective, measurements), own, measurements.subscriptions, objective.maximum)
    return f"{objective.name} {why}" if why else None


def pauses(objective: Objective, found: Latencies, own: Histogram | None, subscriptions: int, bound: float | None) -> str | None:
    """Why the generator's pauses broke an upper bound on these latencies, ``would hold without …``; None as of :func:`our_own`.

    They did where the bound would hold without as many messages as had own send delay (less the time before the target's full window)
    above half of it. Those are taken from the largest latencies, which is generous to the target; what never came stays. End to end a
    message has one latency for each subscription, that of its first copy.

    :param own: own send delay of the same messages. :param bound: ns, that was missed.
    """
    if Need.DELAYS in OBJECTIVES[objective.metric].needs:  # a delay outlasts our pauses, and nothing comes early by them
        return None
    if bound is None or own is None or found.histogram is None or isinstance(found.histogram, Lateness):
        return None
    late = own.above(bound / 2)
    delayed = late * max(subscriptions, 1) if objective.metric == "endToEndLatency" else late
    value = Latencies(found.histogram.without_largest(delayed), found.never_came).statistic(objective) if late else None
    if not late or (value is not None and value > bound):
        return None
    half = format_value(bound / 2, "ns")
    return f"would hold without the {exact(late)} messages that had own send delay above {half}, half its bound"
