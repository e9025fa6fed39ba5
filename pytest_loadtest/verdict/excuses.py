"""Missed latencies that the generator itself caused (decision 049).

The rule: a miss is excused only if the bound would hold without the generator's own delays, and
only by those that can lengthen the metric: its row in the catalogue names them. Messages that never
came are not excused.

The judgements of objectives, windows and drift call it for a miss, in the controller's thread that
judges a run, and in the command ``aggregate``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import (
    LATENCIES,
    OBJECTIVES,
    Need,
    Own,
    with_own,
    without_own,
)
from pytest_loadtest.metrics.histogram import Histogram
from pytest_loadtest.metrics.signed import Lateness, exchanged
from pytest_loadtest.values.quantities import format_duration
from pytest_loadtest.values.wording import exact, format_value
from pytest_loadtest.verdict.observations import KINDS, Latencies, bucket_of, latencies

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective

Counted = Callable[[str], Histogram | Lateness | None]
"""Returns the latencies of a kind in the part of the run that an objective is about."""


LENGTHENED: Final = {
    delay: {name for name, metric in OBJECTIVES.items() if delay in metric.lengthened_by}
    for delay in Own
}
"""The metrics that each of the generator's own delays can make worse."""
_RECORDED: Final = ("connect", "subscribe", "reconnect")
"""Latencies that workers record with the part of their own stalls, without a phase's pauses."""


def generator_caused(objective: Objective, measurements: Measurements) -> str | None:
    """Return why the generator itself broke the upper bound of a missed latency objective.

    None if it did not, or if that is unknown.
    """
    part = bucket_of(measurements, objective.bucket)
    counted = (measurements if part is None else part).latencies
    ranked = latencies(objective, measurements)
    why = excuse(objective, ranked, counted.get, objective.maximum, measurements)
    return f"{objective.name} {why}" if why else None


def excuse(
    objective: Objective,
    ranked: Latencies,
    counted: Counted,
    bound: float | None,
    measurements: Measurements,
) -> str | None:
    """Return why the generator broke an upper bound (``would be 3.00 ms without …``), or None.

    :param ranked: the latencies that missed it. :param bound: ns.
    """
    kind = KINDS[objective.metric]
    own_delays = OBJECTIVES[objective.metric].lengthened_by
    if bound is None or not own_delays or ranked.histogram is None:
        return None
    if own_delays == (Own.RECEIVE_LAG,):
        return "is the generator's own delay from end to end"
    if measurements.pauses_known or kind in _RECORDED:
        return _without_own_part(objective, ranked, counted, bound, measurements)
    return _without_as_many(objective, ranked, counted, bound, measurements.fan_out)


def _without_own_part(
    objective: Objective,
    ranked: Latencies,
    counted: Counted,
    bound: float,
    measurements: Measurements,
) -> str | None:
    """Return why the bound would hold if each message had come earlier by its own part, or None."""
    value = without_own_part(objective, ranked, counted)
    if value is None or value > bound:
        return None
    lengthened = counted(with_own(KINDS[objective.metric]))
    assert isinstance(lengthened, Histogram)
    assert ranked.histogram is not None
    would_be = f"would be {format_value(value, 'ns')}"
    share = f"{exact(lengthened.n)} of {exact(ranked.histogram.n)}"
    delays = OBJECTIVES[objective.metric].lengthened_by
    causes = ", ".join(delay.name.lower().replace("_", " ") for delay in delays)
    stall = longest_stall(measurements)
    return f"{would_be} without the generator's own part of {share} ({causes}){stall}"


def without_own_part(objective: Objective, ranked: Latencies, counted: Counted) -> float | None:
    """Return the latency, ns, if each message had come earlier by the generator's own part of it.

    None if that is unknown, or no message has such a part.
    """
    kind = KINDS[objective.metric]
    lengthened = counted(with_own(kind))
    rest = counted(without_own(kind))
    if not isinstance(lengthened, Histogram) or not isinstance(rest, Histogram):
        return None
    assert ranked.histogram is not None
    exchanged_part = exchanged(ranked.histogram, lengthened, rest)
    return ranked._replace(histogram=exchanged_part).statistic(objective)


def longest_stall(measurements: Measurements) -> str:
    """Write the longest stall of all workers, as the end of a sentence; empty if none stalled."""
    longest = max(measurements.workers, key=lambda worker: worker.longest_stall, default=None)
    if longest is None or not longest.longest_stall:
        return ""
    return f"; longest stall {format_duration(longest.longest_stall)} on worker {longest.worker}"


# Samples of older releases do not have the pauses of their workers. How many messages and copies
# were late by the generator is known, and not which of the latencies are theirs: as many of the
# largest are taken for them.


def _without_as_many(
    objective: Objective, ranked: Latencies, counted: Counted, bound: float, fan_out: int
) -> str | None:
    """Return why the bound would hold without some of the largest latencies, or None.

    They are as many as the generator itself made late by more than half the bound.
    """
    metric = OBJECTIVES[objective.metric]
    if Need.DELAYS in metric.needs:
        return None  # The delay of a delayed message is longer than our pauses.
    if metric.attribute == "delivery_gap" or not isinstance(ranked.histogram, Histogram):
        return None  # A gap is no latency of a message.
    for own, kind, text in (
        (Own.SEND_DELAY, "own_send_delay", "messages that had own send delay above"),
        (Own.RECEIVE_LAG, "receive_lag", "copies that had receive lag above"),
    ):
        delays = counted(kind)
        if own not in metric.lengthened_by or not isinstance(delays, Histogram):
            continue
        late = delays.above(bound / 2)
        if not late:
            continue
        copies = 1
        if own is Own.SEND_DELAY and LATENCIES[metric.attribute].never_came == "deliveries":
            copies = max(fan_out, 1)
        remaining = ranked._replace(histogram=ranked.histogram.without_largest(late * copies))
        value = remaining.statistic(objective)
        if value is None or value <= bound:
            half = format_value(bound / 2, "ns")
            return f"would hold without the {exact(late)} {text} {half}, half its bound"
    return None
