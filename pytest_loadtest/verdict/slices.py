"""One time slice of a run: the value that an objective's metric had in it.

The rule: a window or a tenth is observed as a run of its own messages, those that were intended in
it. A slice without due messages, or with too few for the statistic, has no value.

:mod:`~pytest_loadtest.verdict.windows` and :mod:`~pytest_loadtest.verdict.drift` call it in the
controller's thread that judges a run, and in the command ``aggregate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.metrics.catalogue import NOT_RECEIVED, OBJECTIVES, Need
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.wording import ROUNDING, exact, format_value
from pytest_loadtest.verdict.observations import KINDS, NO_CONSUMERS, Latencies, unfit
from pytest_loadtest.verdict.tolerance import tolerated

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.metrics.time_slices import SlicedStats
    from pytest_loadtest.verdict.objectives import Objective

NOT_DUE: Final = "no message was due"


class SliceObservation(NamedTuple):
    """The observed value in one time slice.

    :param value: None if unknown. :param why: why it is unknown; otherwise empty.
    """

    value: float | None
    samples: int
    why: str
    latencies: Latencies | None = None


def why_absent(objective: Objective, measurements: Measurements) -> str:
    """Return why the run has no measurement of the metric at all; empty if it has some."""
    metric = OBJECTIVES[objective.metric]
    if Need.CONSUMERS in metric.needs and not measurements.subscriptions:
        return NO_CONSUMERS
    if objective.metric == "throughput":
        measured = measurements.counts.received > 0
        return "" if measured else NOT_RECEIVED
    measured = KINDS[objective.metric] in measurements.latencies
    return "" if measured else metric.absent


def may_be_missing(objective: Objective, measurements: Measurements) -> bool:
    """Return whether the profile's own bounds allow the messages that never came.

    They are counted over the whole run, and what it allows each time slice allows too.
    """
    kind = KINDS.get(objective.metric)
    if kind is None or objective.statistic != "max":
        return False
    return tolerated(objective.tolerances, kind, measurements)


def observe_slice(
    objective: Objective, slices: SlicedStats, at: int, unit: str, allowed: bool, error: int
) -> SliceObservation:
    """Observe the objective's metric in one time slice.

    :param unit: ``ns``, ``ratio``, or ``msg/s``. :param allowed: see :func:`may_be_missing`.
    :param error: of the clocks between hosts, ns.
    """
    if not slices.offered[at]:
        return SliceObservation(None, 0, NOT_DUE)
    if objective.metric == "throughput":
        in_time = int(slices.in_time[at])
        base = _base(slices, at, unit)
        if unit == "ratio":
            value = in_time / (base * slices.fan_out)
        else:
            value = in_time / slices.fan_out / base
        return SliceObservation(value, in_time, "")
    kind = KINDS[objective.metric]
    never_came = slices.never_came(kind, at)
    ranked = Latencies(slices.of(kind, at), never_came, allowed, slices.unstamped(kind, at))
    latency = ranked.statistic(objective)
    why = unfit(ranked.histogram, objective.percentile, never_came, error, ranked.unstamped)
    if why is None and latency is None:
        why = OBJECTIVES[objective.metric].absent
    if why:
        return SliceObservation(None, ranked.samples, why, ranked)
    return SliceObservation(latency, ranked.samples, "", ranked)


def _base(slices: SlicedStats, at: int, unit: str) -> float:
    """Return what the throughput of a slice is divided by: messages offered, or seconds."""
    if unit == "ratio":
        return int(slices.offered[at])
    return int(slices.end[at] - slices.start[at]) / SECOND


# The generator's own share in a missed throughput.


def late_sends(value: float, bound: float | None, late: int, came: int, base: float) -> str | None:
    """Return why a lower bound on what was in time would hold without own send delay, or None.

    :param late: messages that only the generator's own send delay made late.
    :param came: messages that came late; what never came would not have been in time either.
    :param base: the unit of the value: messages offered, or seconds.
    """
    more = min(late, came) / base
    if bound is None or not more or not value < bound <= (value + more) * (1 + ROUNDING):
        return None
    messages = f"the {exact(late)} messages that the generator sent after the end"
    return f"would hold with {messages}, though the target had room before"


def late_copies(
    value: float, bound: float | None, in_time: int, base: float, unit: str
) -> str | None:
    """Return why a lower bound on a throughput would hold without the generator's own part of each
    copy, or None.

    :param in_time: deliveries that would be in time. :param base: deliveries for one of the value.
    """
    would_be = in_time / base
    if bound is None or not value < bound <= would_be * (1 + ROUNDING):
        return None
    return f"would be {format_value(would_be, unit)} without the generator's own part of each copy"


def late_in_slice(
    slices: SlicedStats, at: int, value: float, bound: float | None, unit: str
) -> str | None:
    """Return why the throughput of a time slice would hold without the generator's own delays, or
    None.
    """
    came = int(slices.received[at] - slices.in_time[at]) // slices.fan_out
    base = _base(slices, at, unit)
    why = late_sends(value, bound, int(slices.own_late[at]), came, base)
    in_time = int(slices.in_time_without_own[at])
    return why or late_copies(value, bound, in_time, base * slices.fan_out, unit)


def in_time_without_own(slices: SlicedStats, at: int) -> int:
    """Return the deliveries of a slice that would be in time without the generator's delays."""
    in_time = int(slices.in_time[at])
    came = int(slices.received[at]) - in_time
    late_sends = min(int(slices.own_late[at]) * slices.fan_out, came)
    return max(in_time + late_sends, int(slices.in_time_without_own[at]))


def moment(ns: int) -> str:
    """Write a time since the start of the measured phase, in whole seconds: ``0:12:10``."""
    minutes, seconds = divmod(ns // SECOND, 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
