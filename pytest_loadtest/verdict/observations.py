"""metric × measurements → the observed value, or why it is unknown.

The rule: each metric counts what its row in the catalogue says, out of what is due. A value that
the run did not measure is unknown, and an unknown value is never a number. Percentiles rank over
messages that never came, too, and need ten samples beyond them.

:mod:`~pytest_loadtest.verdict.slo` calls it in the controller's thread that judges a run, and in
the command ``aggregate``; reports use it for metrics without an objective.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.metrics.catalogue import LATENCIES, NOT_RECEIVED, OBJECTIVES, Need, needing
from pytest_loadtest.metrics.histogram import Histogram, rank
from pytest_loadtest.metrics.measurements import (
    UNCHECKED,
    Backlog,
    Breakdown,
    DelayedIndex,
    Measurements,
)
from pytest_loadtest.values.quantities import format_duration, format_rate
from pytest_loadtest.values.wording import counted, exact
from pytest_loadtest.verdict import grammar
from pytest_loadtest.verdict.custom import observe_custom
from pytest_loadtest.verdict.shares import FEW_CHOSEN, known_due, observe_share
from pytest_loadtest.verdict.tolerance import tolerated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.metrics.expected import Opening
    from pytest_loadtest.metrics.full_windows import FullWindows
    from pytest_loadtest.metrics.signed import Lateness
    from pytest_loadtest.metrics.silent import Silent
    from pytest_loadtest.verdict.finding import Shown
    from pytest_loadtest.verdict.objectives import Objective


TAIL = 10
"""Samples that must lie beyond a percentile before it is reported as a number."""
BLOCKED_NAMED: Final = 3
"""Topics that the reason of a verdict names."""
KINDS: Final = {metric.name: attribute for attribute, metric in LATENCIES.items() if metric.name}
"""Metric of an objective → the key of its latencies in measurements."""
DELIVERIES: Final = needing(Need.CONSUMERS)
"""Metrics that need a consumer."""

NO_CONSUMERS = "not applicable: nothing subscribes in this run"
NOT_RESUMED = "and it is unknown whether the broker still had the session"
NOT_DUE = "nothing was acknowledged, so no delivery was due"


class Observation(NamedTuple):
    """The observed value of one metric, and its ``basis``: ``100 of 5 000 deliveries``.

    If ``value`` is None, ``basis`` says why it is unknown.
    """

    value: float | None
    samples: int
    basis: str


def observe_metric(objective: Objective, measurements: Measurements) -> Observation:
    """Return the value of the objective's metric, in the objective's unit; None if not measured."""
    if objective.metric == "custom":
        value, basis = observe_custom(objective.statistic, objective.unit, measurements.custom)
        return Observation(value, 0, basis)
    if objective.metric in DELIVERIES and not measurements.subscriptions:
        return Observation(None, 0, NO_CONSUMERS)
    if objective.metric in IN_TIME and measurements.uneven_hosts:
        return Observation(None, 0, uneven_clocks(objective.metric, measurements))
    if objective.bucket:
        return _of_bucket(objective, measurements)
    return _of_run(objective, measurements)


def _of_run(objective: Objective, measurements: Measurements) -> Observation:
    match objective.metric:
        case "backlogDrain":
            return _drain(objective, measurements.backlog)
        case grammar.CONNECT_RATE:
            return _connect_rate(measurements.opening)
        case grammar.INDEX:
            return _index(measurements.delayed_index)
        case grammar.SILENT:
            return _silent(objective, measurements)
        case grammar.OUTPUT_SHARE:
            return Observation(*observe_share(objective, measurements))
    return _of_messages(objective, measurements)


def _of_messages(objective: Objective, measurements: Measurements) -> Observation:
    if objective.unit == "ns":
        return _latency(objective, measurements)
    if objective.metric == "throughput":
        return _throughput(objective, measurements)
    return _count(objective, measurements)


def samples_needed(percentile: float) -> int:
    """Return the smallest number of samples with ten beyond this percentile: 1 000 for p99."""
    # The percentile is read in decimals: 99.998 has no exact binary fraction.
    percent_beyond = 100 - Fraction(repr(float(percentile)))
    return math.ceil(TAIL * 100 / percent_beyond)


def unfit(
    histogram: Histogram | Lateness | None,
    percentile: float | None,
    never: int = 0,
    error: int = 0,
    unstamped: int = 0,
) -> str | None:
    """Return why this histogram cannot give a statistic, or None if it can.

    :param percentile: None for any other statistic.
    :param never: number of due messages that never came: the percentile ranks over them too.
    :param error: of the clocks between hosts, ns: smaller negative values are no sign of a fault.
    :param unstamped: number of further values that are unknown.
    """
    count = 0 if histogram is None else histogram.n
    if histogram is not None and histogram.negative and (not error or histogram.minimum < -error):
        values = f"{exact(histogram.negative)} of {exact(count)} values are below zero"
        return f"{values}: the clocks of sender and receiver disagree"
    # An unknown value may be the largest one, so only a percentile whose rank is below all of them
    # is known.
    if unstamped and (percentile is None or rank(percentile, count + unstamped) > count):
        return f"{exact(unstamped)} of {exact(count + unstamped)} have no time of the kernel"
    if percentile is None:
        return None
    needed = samples_needed(percentile)
    if count + never >= needed:
        return None
    available = f"there are {exact(count)}{never_came(never)}"
    return f"p{percentile:.10g} needs {exact(needed)} samples, {available}"


def blocked_share(measurements: Measurements) -> float:
    """Return the share of the send delay that was spent before the target's full window, 0 to 1.

    The target caused that part. The delay of a message that was dropped before a full window is the
    time for which it waited. Messages that the generator dropped are left out: their delay is not
    recorded.
    """
    delay = measurements.latencies.get("send_delay")
    own_delay = measurements.latencies.get("own_send_delay")
    waited = 0
    if measurements.full_windows is not None:
        waited = measurements.full_windows.waited
    total = waited
    if delay is not None:
        total += delay.total
    if total <= 0:
        return 0.0
    blocked = measurements.blocked
    if measurements.own_drops and delay is not None and own_delay is not None:
        blocked = min(blocked, delay.total - own_delay.total + waited)
    return min(blocked / total, 1.0)


def name_full_windows(full: FullWindows) -> str:
    """Return how many messages were dropped before full windows, and the topics that waited first.

    Their times are those since the start of the phase.
    """
    named = [
        f"topic {topic.topic} from {format_duration(topic.start)} to {format_duration(topic.end)}"
        for topic in full.first_topics[:BLOCKED_NAMED]
    ]
    more = full.topics - len(named)
    if more:
        named.append(f"and {exact(more)} more")
    cause = "because the target's in-flight windows were full"
    return f"{exact(full.dropped)} messages were dropped {cause}: {', '.join(named)} of the phase"


def sends_nothing(measurements: Measurements) -> bool:
    """Return whether the run only receives or connects, so objectives on sending do not apply."""
    return measurements.rate == 0


def bucket_of(measurements: Measurements, key: str) -> Breakdown | None:
    """Return the part of the run's messages in a size bucket; None if there is no such bucket.

    :param key: its key in the profile; empty for all messages, which are no bucket.
    """
    return next((part for part in measurements.buckets if part.name == key), None)


def _drain(objective: Objective, backlog: Backlog | None) -> Observation:
    if backlog is None:
        return Observation(None, 0, "no backlog was built, or its drain was not seen")
    size = f"{exact(backlog.size_messages)} deliveries"
    if backlog.between is not None:
        return _open_drain(objective, backlog, size)
    if backlog.waited is not None:
        return _given_up(objective, backlog, backlog.waited, size)
    return Observation(backlog.drain, backlog.size_messages, size)


def _given_up(objective: Objective, backlog: Backlog, waited: int, size: str) -> Observation:
    """Observe a drain that did not end while the run waited for it.

    If the backlog did not shrink, it is never drained. Otherwise the drain is only known to be
    longer than the wait: it has a value if that decides about each bound, one nanosecond more than
    the wait.
    """
    allowed = exact(backlog.allowed)
    left = f"more than {allowed}" if backlog.left is None else exact(backlog.left)
    waiting = f"{left} of {size} still waiting after {format_duration(waited)}"
    basis = f"NOT drained: {waiting}, at most {allowed} are allowed"
    if backlog.drain == math.inf:
        return Observation(math.inf, backlog.size_messages, basis)
    bound = objective.maximum
    if bound is None:
        bound = objective.minimum or 0
    if bound <= waited:
        return Observation(waited + 1, backlog.size_messages, basis)
    return Observation(
        None, 0, f"more than {format_duration(waited)}, then it was given up: {basis}"
    )


def show_drain(shown: Shown, value: float, backlog: Backlog | None) -> Shown:
    """Return a missed drain as text: one that was given up has no end.

    :param shown: as for other metrics. :param value: ns.
    """
    if backlog is None or backlog.waited is None or value <= backlog.waited:
        return shown
    if value == math.inf:
        return shown._replace(missed_by="it did not shrink")
    return shown._replace(
        observed=f"more than {format_duration(backlog.waited)}",
        missed_by="it was not drained by then",
    )


def _open_drain(objective: Objective, backlog: Backlog, size: str) -> Observation:
    """Observe a drain whose end is only known to be between two times.

    Second copies make it uncertain, and lost messages that are allowed.

    It has a value only if both times are on the same side of each bound: the time nearer to the
    bound.
    """
    assert backlog.between is not None
    first, last = backlog.between
    until = "an unknown time" if last is None else format_duration(last)
    copies = f"{exact(backlog.uncounted)} copies were second ones"
    basis = (
        f"{size}, drained between {format_duration(first)} and {until}: {copies},"
        f" or of messages without a good acknowledgement{never_came(backlog.lost)}"
    )
    minimum = objective.minimum or 0
    maximum = objective.maximum
    if maximum is not None and first > maximum:
        return Observation(first, backlog.size_messages, basis)
    if last is None:
        return Observation(None, 0, basis)
    too_short = last < minimum
    within = first >= minimum and (maximum is None or last <= maximum)
    if too_short or within:
        return Observation(last, backlog.size_messages, basis)
    return Observation(None, 0, basis)


def _index(index: DelayedIndex | None) -> Observation:
    if index is None:
        unknown = "the broker was not sampled until the end, or had no delayed messages then"
        return Observation(None, 0, unknown)
    basis = f"{exact(index.bytes)} B for {exact(index.messages)} delayed messages"
    return Observation(index.bytes_per_message, index.messages, basis)


def _silent(objective: Objective, measurements: Measurements) -> Observation:
    silent = measurements.silent
    if silent is None:
        return Observation(None, 0, "nothing subscribes, and acknowledgement is not applicable")
    if not silent.due:
        return Observation(None, 0, FEW_CHOSEN if measurements.selective else "nothing was offered")
    value = _in_unit(objective, silent.count, silent.due)
    return Observation(value, silent.due, name_silent(silent))


def _in_unit(objective: Objective, count: int, base: int) -> float:
    """Return a count in the unit of its bound: itself, or as a share of its base."""
    return count / base if objective.unit == "ratio" else count


def _connect_rate(opening: Opening | None) -> Observation:
    """Observe the share of connections that came up in time.

    As for throughput, that time is moved by the median latency.
    """
    if opening is None or opening.in_time is None:
        return Observation(None, 0, "the run has no rate of connections (driver.connectRate)")
    basis = f"{exact(opening.in_time)} of {exact(opening.connections)} connections in time"
    return Observation(opening.in_time / opening.connections, opening.connections, basis)


def _throughput(objective: Objective, measurements: Measurements) -> Observation:
    counts = measurements.counts
    if not counts.received:
        return Observation(None, 0, NOT_RECEIVED)
    basis = format_rate(measurements.throughput)
    if not sends_nothing(measurements) or objective.unit == "ratio":
        basis += f" of {format_rate(measurements.rate)} offered"
    if objective.unit == "msg/s":
        return Observation(measurements.throughput, counts.received_in_time, basis)
    if not counts.offered:
        return Observation(None, 0, "nothing was offered")
    share = counts.received_in_time / (counts.offered * measurements.fan_out)
    return Observation(share, counts.received_in_time, basis)


def _count(objective: Objective, measurements: Measurements) -> Observation:
    count, base, noun = _tally(objective.metric, measurements)
    if count is None:
        absent = OBJECTIVES[objective.metric].absent
        return Observation(None, 0, NOT_DUE if sends_nothing(measurements) else absent)
    if objective.metric == "duplicates" and objective.implicit:
        count -= excused(measurements)
        if not count and measurements.forgotten is None and measurements.counts.duplicates:
            resent = f"{exact(measurements.counts.duplicates)} of messages sent again"
            return Observation(None, 0, f"{resent}, {NOT_RESUMED}")
    if base == 0:
        return Observation(None, 0, "nothing was offered" if noun == "offered" else NOT_DUE)
    tally = f"{exact(count)} of {exact(base)} {noun}"
    basis = ", ".join([tally, *remarks(objective, measurements)])
    return Observation(_in_unit(objective, count, base), base, basis)


def _tally(metric: str, measurements: Measurements) -> tuple[int | None, int, str]:
    """Return a metric's count, the number it is a share of, and what that counts; a message without
    an answer counts as failed.
    """
    counts = measurements.counts
    sending = {
        "sent": counts.sent_in_time,
        "dropped": counts.dropped,
        "failed": counts.failed + counts.unknown,
    }
    if metric in sending:
        return sending[metric], counts.offered, "offered"
    receiving: dict[str, int | None] = {
        "loss": counts.lost,
        "duplicates": counts.duplicates,
        "outOfOrder": counts.out_of_order,
        "corrupt": counts.corrupt,
        "foreign": counts.foreign,
    }
    return receiving[metric], known_due(measurements), "deliveries"


def _of_bucket(objective: Objective, measurements: Measurements) -> Observation:
    part = bucket_of(measurements, objective.bucket)
    if part is None:
        return Observation(None, 0, "there is no such size bucket")
    if not part.offered:
        return Observation(None, 0, "no message of this size was due")
    if objective.unit == "ns":
        return _latency(objective, measurements)
    if objective.metric == "throughput":
        return _bucket_throughput(objective, part, measurements)
    due = part.acked * measurements.fan_out
    if not due or part.lost is None:
        return Observation(None, 0, NOT_DUE)
    basis = f"{exact(part.lost)} of {exact(due)} deliveries"
    return Observation(_in_unit(objective, part.lost, due), due, basis)


def _bucket_throughput(
    objective: Objective, part: Breakdown, measurements: Measurements
) -> Observation:
    """Observe the throughput of a bucket, which counts messages received in time."""
    if not part.received:
        return Observation(None, 0, NOT_RECEIVED)
    seconds = measurements.duration / 1e9
    deliveries = part.received_in_time / measurements.fan_out
    rate = deliveries / seconds
    value = rate if objective.unit == "msg/s" else deliveries / part.offered
    basis = f"{format_rate(rate)} of {format_rate(part.offered / seconds)} offered"
    return Observation(value, part.received_in_time, basis)


class Latencies(NamedTuple):
    """Latencies of one kind: the measured ones, and the number of due messages that never came.

    Percentiles rank over both.

    :param tolerated: the profile's own bounds allow that number, so the largest value is that of
        the messages that came.
    :param unstamped: the number of further values that are unknown: percentiles rank over them as
        if they were the largest.
    """

    histogram: Histogram | Lateness | None
    never_came: int
    tolerated: bool = False
    unstamped: int = 0

    @property
    def samples(self) -> int:
        """The number of measured latencies."""
        return 0 if self.histogram is None else self.histogram.n

    def statistic(self, objective: Objective) -> float | None:
        """Return the objective's statistic, ns; None if no message came.

        It is infinite for a percentile whose rank is among the messages that never came, and for
        ``max`` if they are not tolerated.
        """
        histogram = self.histogram
        percentile = objective.percentile
        if objective.statistic == "max" and self.never_came > 0 and not self.tolerated:
            return math.inf
        if histogram is None or not histogram.n:
            return math.inf if percentile is not None and self.never_came else None
        if percentile is not None:
            return histogram.percentile_of_due(percentile, self.never_came + self.unstamped)
        match objective.statistic:
            case "max":
                return float(histogram.maximum)
            case "min":
                return float(histogram.minimum)
        return float(histogram.mean)


def latencies(objective: Objective, measurements: Measurements) -> Latencies:
    """Return the latencies that an objective is about: those of the whole run, or of one bucket."""
    part = bucket_of(measurements, objective.bucket)
    return latencies_of(KINDS[objective.metric], measurements, part, objective.tolerances)


def latencies_of(
    kind: str, measurements: Measurements, part: Breakdown | None, tolerances: Sequence[Objective]
) -> Latencies:
    """Return the latencies of a kind.

    :param kind: key in measurements. :param part: the bucket; None: the whole run.
    """
    histogram = (measurements if part is None else part).latencies.get(kind)
    never = measurements.never_came(kind, part)
    if kind == "publish" and kind not in measurements.latencies:
        # Nothing says that acknowledgement is applicable, so no acknowledgement is known to be
        # missing.
        never = 0
    allowed = never > 0 and tolerated(tolerances, kind, measurements, part)
    return Latencies(histogram, never, allowed, measurements.unstamped(kind, part))


def _latency(objective: Objective, measurements: Measurements) -> Observation:
    ranked = latencies(objective, measurements)
    samples = ranked.samples
    value = ranked.statistic(objective)
    if value is None:
        return Observation(None, 0, OBJECTIVES[objective.metric].absent)
    reason = unfit(
        ranked.histogram,
        objective.percentile,
        ranked.never_came,
        measurements.clock_error,
        ranked.unstamped,
    )
    if reason:
        # A clock that was set is the cause of values below zero.
        return Observation(None, samples, uneven_clocks(objective.metric, measurements) or reason)
    basis = f"{exact(samples)} samples"
    if objective.statistic == "mean" and ranked.never_came:
        basis = f"mean of the {exact(samples)} that came"
    return Observation(value, samples, basis + never_came(ranked.never_came))


def never_came(count: int) -> str:
    """Write the number of messages that never came, ``, 12 never came``; empty if all came."""
    return f", {exact(count)} never came" if count else ""


# Remarks on a count: silent subscriptions by name, duplicates that the protocol allows, how damage
# was detected.

NAMED = 3
"""Silent subscriptions, and silent streams, that a finding lists; the results list more."""


def name_silent(silent: Silent, most: int = NAMED) -> str:
    """Write the counts, then the first of each: ``1 of 200 streams: stream 17 of topic 17``."""
    counts = []
    if silent.pairs_due:
        count = f"{exact(silent.pairs)} of {exact(silent.pairs_due)}"
        counts.append(f"{count} subscriptions of topics")
    counts.append(f"{exact(silent.streams)} of {exact(silent.streams_due)} streams")
    pairs = [
        f"topic {pair.topic} subscription {pair.subscription}" for pair in silent.first_pairs[:most]
    ]
    streams = [
        f"stream {silence.stream} of topic {silence.topic}"
        for silence in silent.first_streams[:most]
    ]
    named = [_first(pairs, silent.pairs), _first(streams, silent.streams)]
    return ": ".join(filter(None, [", ".join(counts), "; ".join(filter(None, named))]))


def _first(names: list[str], count: int) -> str:
    return ", ".join(names) + (", …" if count > len(names) else "")


def excused(measurements: Measurements) -> int:
    """Return the number of duplicates that MQTT allows at QoS 2.

    They are those of resent messages, unless every broker still had the session: a broker that has
    lost the session cannot know what was sent before (MQTT 5, 4.1); one that has it must (4.3.3).
    The connection of a message is not recorded, so if any session of a producer was lost, all these
    duplicates are excused.
    """
    return 0 if measurements.forgotten == 0 else measurements.counts.duplicates_of_resent


def remarks(objective: Objective, measurements: Measurements) -> Iterator[str]:
    """Yield remarks that belong to a count."""
    counts = measurements.counts
    match objective.metric:
        case "corrupt":
            if measurements.checked is not None:
                yield f"by {measurements.checked} alone: {UNCHECKED[measurements.checked]}"
            if counts.corrupt_heads:
                heads = f"{exact(counts.corrupt_heads)} of them with a damaged head"
                yield f"{heads}, at any time of the run"
        case "foreign":
            if counts.foreign:
                yield "at any time of the run"
        case "failed":
            if counts.unknown:
                yield f"{exact(counts.unknown)} of them unanswered"
        case "duplicates":
            allowed = excused(measurements)
            if objective.implicit and allowed:
                duplicates = counted(allowed, "further duplicate")
                verb = "is" if allowed == 1 else "are"
                remark = f"{duplicates} {verb} excused: sent again"
                if measurements.forgotten is not None:
                    remark += " to a broker that had forgotten the session"
                yield remark


# Clocks of several hosts.

ONE_CLOCK: Final = ("receiveLag", "connectLatency", "subscribeLatency", "reconnectLatency")
"""Latencies whose two ends are stamped by the same clock."""
TWO_CLOCKS: Final = ("broadcastSpread", "deliveryGap")
"""Latencies between two arrivals, maybe on two hosts: the errors of both clocks count."""
IN_TIME: Final = ("sent", "throughput")
"""Counts of what was sent, or came, before an instant of the controller's clock."""


def uneven_clocks(metric: str, measurements: Measurements) -> str:
    """Explain why a metric is unknown because a host's clock was set while load ran; else ''."""
    uneven = measurements.uneven_hosts
    if not uneven or metric in ONE_CLOCK:
        return ""
    cause = f"the clock of host {', '.join(uneven)} was set while load ran"
    if metric in IN_TIME:
        return f"{cause}, so what was in time is unknown"
    place = "within the host" if measurements.one_clock else "between hosts"
    return f"{cause}, so latencies {place} are unknown"


def clock_error(metric: str, measurements: Measurements) -> int:
    """Return the bound on a latency's error by the clocks of several hosts, ns; 0 on one clock."""
    if metric in ONE_CLOCK:
        return 0
    return measurements.clock_error_of(2 if metric in TWO_CLOCKS else 1)


def clock_doubt(objective: Objective, value: float, measurements: Measurements) -> str:
    """Explain why the clocks of several hosts leave open whether a bound is met; else ''.

    :param value: ns; infinite for messages that never came.
    """
    if objective.metric in IN_TIME:
        return uneven_clocks(objective.metric, measurements)
    if objective.metric not in KINDS or math.isinf(value):
        return ""
    error = clock_error(objective.metric, measurements)
    lateness = measurements.latencies.get("lateness")
    if objective.metric == "earliness" and not value and lateness is not None:
        value = -lateness.minimum  # of the earliest, which was late
    for bound in (objective.minimum, objective.maximum):
        if bound is not None and abs(value - bound) < error:
            observed = format_duration(round(value))
            limit = f"the error of the clocks between hosts, {format_duration(error)}"
            return f"{observed} is closer to the bound than {limit}"
    return uneven_clocks(objective.metric, measurements)
