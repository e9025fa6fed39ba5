"""The figures of a measured phase as they follow from the truth: each as an interval, as wide as what is uncertain about it.

The definitions are those of docs/reference/profile.md (slo), docs/howto/read-a-verdict.md and docs/glossary.md, in brute force.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from simulation.asked import rate_of
from simulation.connecting import RESOLUTION, connect_latencies, connected_in_time
from simulation.facts import lateness
from simulation.world import MS

if TYPE_CHECKING:
    from simulation.facts import Facts

MOST_DRIFT: Final = 500e-6
"""Seconds per second by which a clock may drift or be slewed (docs/decisions/050)."""

Interval = tuple[float, float]
NEVER: Final = (math.inf, math.inf)

LATENCIES: Final = {
    "publishLatency": "publish",
    "endToEndLatency": "endToEnd",
    "sendDelay": "sendDelay",
    "receiveLag": "receiveLag",
    "broadcastCompletion": "completion",
    "broadcastSpread": "spread",
    "lateness": "lateness",
    "earliness": "earliness",
    "deliveryGap": "deliveryGap",
    "connectLatency": "connect",
}
"""Metric → its key in results.json."""
PARTS_OF_A_ROUTE: Final = {"toTap": "toTap", "afterTap": "afterTap", "pastTap": "pastTap"}
"""The same of those that nothing is judged by."""
TWO_ENDS: Final = ("broadcastSpread", "deliveryGap", "afterTap")
"""Metrics whose both ends are stamped by hosts, so that the error of clocks counts twice."""


def percentile_of(statistic: str | None) -> Fraction | None:
    """Return the number of ``p99.9``; None for another statistic."""
    match = re.fullmatch(r"p([\d.]+)", statistic or "")
    return None if match is None else Fraction(match[1])


def needed(statistic: str | None) -> int:
    """Return the samples that a statistic needs: ten beyond a percentile (docs/howto/read-a-verdict.md, No data)."""
    percentile = percentile_of(statistic)
    return 1 if percentile is None else math.ceil(1000 / (100 - percentile))


def latencies(facts: Facts, metric: str) -> tuple[list[int], int | None]:
    """Return the values of a latency, ns, and how many more are due and never came; None: unknown.

    Latencies are of first copies, and count from the intended time on (docs/reference/profile.md).
    """
    offered = facts.offered
    if metric in OF_OTHERS:
        return OF_OTHERS[metric](facts)
    if metric == "publishLatency":
        values = [(sent.answered or 0) - sent.intended for sent in facts.acked]
        return values, None if offered is None else offered - len(values)
    if metric == "sendDelay":
        return [sent.at - sent.intended for sent in facts.messages], facts.dropped
    firsts = list(facts.firsts())
    late = [lateness(sent, copy) for sent, copy in firsts]
    values = {
        "endToEndLatency": [(copy.stamped or 0) - sent.intended for sent, copy in firsts],
        "receiveLag": [
            ((copy.taken or 0) - (copy.stamped or 0)) // 1_000 * 1_000 for _, copy in firsts
        ],
        "lateness": late,
        "earliness": [max(-value, 0) for value in late],
    }[metric]
    if metric in ("receiveLag", "earliness"):
        return values, 0
    if facts.chooses:
        return values, 0
    return values, None if offered is None else offered * facts.fan_out - len(values)


def _broadcasts(facts: Facts, metric: str) -> tuple[list[int], int | None]:
    """Return completion or spread of each message that every subscription received."""
    times: dict[tuple[int, int], list[int]] = defaultdict(list)
    intended: dict[tuple[int, int], int] = {}
    for sent, copy in facts.firsts():
        times[sent.stream, sent.seq].append(copy.stamped or 0)
        intended[sent.stream, sent.seq] = sent.intended
    values = []
    for message, stamps in times.items():
        if len(stamps) == facts.subscriptions:
            since = min(stamps) if metric == "broadcastSpread" else intended[message]
            values.append(max(stamps) - since)
    return values, None if facts.offered is None else facts.offered - len(values)


def _gaps(facts: Facts) -> tuple[list[int], int | None]:
    """Return the longest time without delivery of each subscription of each topic, from the phase's start to its end at least."""
    stamps: dict[tuple[int, int], list[int]] = defaultdict(list)
    for _, copy in facts.firsts():
        stamps[copy.topic, copy.subscription].append(copy.stamped or 0)
    values = []
    for times in stamps.values():
        times.sort()
        edges = [facts.begin, *times, max(facts.end, times[-1])]
        values.append(max(later - earlier for earlier, later in pairwise(edges)))
    silent = silence(facts)
    return values, None if silent is None else silent[0]


def _past_a_tap(facts: Facts, metric: str) -> tuple[list[int], int | None]:
    """Return the parts of the latency of what a tap received too (docs/howto/test-a-service.md)."""
    values = []
    for sent, copy in facts.firsts():
        received = copy.stamped or 0
        tapped = (facts.taps or {}).get((sent.stream, sent.seq))
        if tapped is None:
            continue
        tapped = min(tapped, received)
        begin = tapped if metric == "afterTap" else sent.intended
        end = tapped if metric == "toTap" else received
        values.append(end - begin)
    return values, 0


OF_OTHERS: Final[dict[str, Callable[[Facts], tuple[list[int], int | None]]]] = {
    "deliveryGap": _gaps,
    "broadcastCompletion": partial(_broadcasts, metric="broadcastCompletion"),
    "broadcastSpread": partial(_broadcasts, metric="broadcastSpread"),
    "connectLatency": lambda facts: (connect_latencies(facts), 0),
    **{part: partial(_past_a_tap, metric=part) for part in PARTS_OF_A_ROUTE},
}
"""Latencies that are not those of single messages or deliveries."""


def silence(facts: Facts) -> tuple[int, int, int] | None:
    """Return silent pairs of topic and subscription, silent streams, and all pairs and streams with messages due; None: unknown.

    Unknown where messages were dropped, or a service chooses: then it is open which streams had some due.
    """
    if facts.dropped != 0 or facts.chooses:
        return None
    topics = facts.profile.get("topics", 1)
    due_streams = {sent.stream for sent in facts.messages}
    due_pairs = {
        (stream % topics, subscription)
        for stream in due_streams
        for subscription in range(facts.subscriptions)
    }
    heard = {(copies[0].topic, copies[0].subscription) for copies in facts.copies.values()}
    arrived = {stream for stream, _, _ in facts.copies}
    if not facts.subscriptions:
        arrived = {sent.stream for sent in facts.acked}
    return len(due_pairs - heard), len(due_streams - arrived), len(due_pairs) + len(due_streams)


def statistic_of(
    values: list[int], never: int | None, statistic: str | None, error: float
) -> Interval | None:
    """Return a statistic; percentiles rank over what never came too (docs/howto/read-a-verdict.md). None: unknown."""
    if not values:
        return NEVER if never and percentile_of(statistic) else None
    percentile = percentile_of(statistic)
    if percentile is not None:
        if never is None:
            return None
        rank = math.ceil(percentile / 100 * (len(values) + never))
        if rank > len(values):
            return NEVER
        value = float(sorted(values)[max(rank, 1) - 1])
        slack = abs(value) * RESOLUTION + error + 1
        return value - slack, value + slack
    exact = {"max": max(values), "min": min(values), "mean": sum(values) / len(values)}
    value = float(exact[statistic or ""])
    return value - error - 1, value + error + 1


def clock_error(facts: Facts, metric: str) -> float:
    """Return by how much clocks may have changed a latency, ns."""
    return facts.error * (2 if metric in TWO_ENDS else 1)


def is_latency_certain(facts: Facts, metric: str) -> bool:
    """Return whether the truth tells a latency.

    Not where both ends are read on the clock of one host, whose time is not the controller's; and no receive lag if a worker was stopped
    or read late: the product states the longest that it can have been (docs/decisions/037).
    """
    within = facts.results["measurements"].get("withinHosts")
    if within is not None and within["complete"]:
        return False
    if not has_even_clocks(facts):
        return False
    if metric == "connectLatency":
        return facts.exact
    if metric in PARTS_OF_A_ROUTE:
        return facts.taps is not None
    if metric == "receiveLag":
        return facts.exact and facts.steady
    return True


def figure(
    facts: Facts,
    metric: str,
    statistic: str | None,
    unit: str,
    tolerance: dict[str, Any] | None,
    whole: Facts | None = None,
) -> Interval | None:
    """Return the value of an objective's metric as the truth has it; None: unknown.

    :param tolerance: the ``slo`` section that may allow messages never to come; None: unknown. :param whole: the phase, if ``facts`` is a
        window of it.
    """
    if metric in LATENCIES:
        return _latency(facts, metric, statistic, tolerance, whole or facts)
    if metric in ("throughput", "sent") and not has_even_clocks(facts):
        return None
    if metric == "throughput":
        return _throughput(facts, unit, whole)
    counted = count(facts, metric)
    if counted is None:
        return None
    low, high, base = counted
    if unit != "ratio":
        return low, high
    return (low / base, high / base) if base else None


def _latency(
    facts: Facts,
    metric: str,
    statistic: str | None,
    tolerance: dict[str, Any] | None,
    whole: Facts,
) -> Interval | None:
    if not is_latency_certain(facts, metric):
        return None
    values, never = latencies(facts, metric)
    if statistic == "max" and never != 0:
        missing = _is_too_much_missing(whole, metric, tolerance)
        if missing is None or (missing and never is None):
            return None
        if missing:
            return NEVER
    true = statistic_of(values, never, statistic, clock_error(facts, metric))
    if true is None or metric == "lateness":
        return true
    # Histograms begin at 0: what is less, since a clock was ahead, counts as 0.
    return true[0], max(true[1], 0.0)


def has_even_clocks(facts: Facts) -> bool:
    """Return whether no clock counts as set while load ran."""
    return all(clock["fit"]["holds"] for clock in facts.run.get("clocks", ()))


Count = tuple[float, float, int]


def count(facts: Facts, metric: str) -> Count | None:
    """Return a count, as an interval, and what it is a share of (docs/glossary.md); None: unknown."""
    if metric in COUNTS:
        return COUNTS[metric](facts)
    acked = len(facts.acked)
    deliveries = acked * facts.fan_out
    if facts.chooses:
        # Shares are those of what came (docs/howto/test-a-service.md).
        deliveries = facts.received or deliveries
    offered = facts.offered or 0
    simple: dict[str, tuple[int | None, int]] = {
        "loss": (facts.lost, deliveries),
        "duplicates": (sum(map(len, facts.copies.values())) - facts.received, deliveries),
        "failed": (len(facts.messages) - acked, offered),
        "outputShare": (facts.answered, acked * facts.subscriptions),
        "dropped": (facts.dropped, offered),
    }
    number, base = simple.get(metric, (None, 0))
    return None if number is None or facts.offered is None else (number, number, base)


def _silent(facts: Facts) -> Count | None:
    silent = silence(facts)
    if silent is None or (not facts.subscriptions and not facts.acknowledges):
        return None
    return silent[0] + silent[1], silent[0] + silent[1], silent[2]


def _corrupt(facts: Facts) -> Count | None:
    """Damaged heads cannot be told apart by phase and part."""
    is_whole = facts.begin == facts.phase.start and facts.end == facts.phase_end
    if not is_whole or not facts.heads_settled:
        return None
    damaged = len(facts.damaged)
    most = damaged + len(facts.heads)
    base = len(facts.acked) * facts.fan_out
    if facts.chooses:
        base = facts.received or base
    return damaged, most, base


def _sent_in_time(facts: Facts) -> Count | None:
    if facts.offered is None:
        return None
    slack = _error_of_times(facts)
    surely = sum(sent.at < facts.end - slack for sent in facts.messages)
    maybe = sum(sent.at < facts.end + slack for sent in facts.messages)
    return surely, maybe, facts.offered


COUNTS: Final[dict[str, Callable[[Facts], Count | None]]] = {
    "silent": _silent,
    "corrupt": _corrupt,
    "sent": _sent_in_time,
    "connectRate": lambda facts: connected_in_time(facts) if facts.exact else None,
}
"""Counts that are not of messages or deliveries, or are open."""


def _error_of_times(facts: Facts) -> float:
    """Return by how much the time at which a message was sent, or came, may be wrong, ns.

    Times are corrected by what is known of a clock after the load. Where they stay as a worker stamped them, it converted them by what was known
    before, and the offset may have changed since (docs/decisions/050).
    """
    within = facts.results["measurements"].get("withinHosts")
    if within is None or not within["complete"]:
        return facts.error + 1
    return facts.error + MOST_DRIFT * (facts.end - facts.phase.start) + MS


def _throughput(facts: Facts, unit: str, whole: Facts | None) -> Interval | None:
    """Return the deliveries in time: within the phase, moved by the median latency and so that both ends have the same room; in a window, before its
    end (docs/decisions/004).
    """
    if not facts.subscriptions or not facts.copies or facts.bucket:
        return None
    shift = (whole or facts).shift
    # The times of a delivery, of the median, and of the first and last message are known up to the error of the clocks.
    slack = shift * RESOLUTION + 3 * _error_of_times(facts)
    begin, end = facts.begin + shift, facts.end + shift
    least, most = (0.0, 0.0) if whole is not None else _moved_back(facts)
    if whole is not None:
        begin = -math.inf
    outputs = facts.outputs
    surely = maybe = 0
    for (stream, seq, _), copies in facts.copies.items():
        sent = facts.message(stream, seq)
        # The delay of a delayed message is subtracted.
        delay = 0 if sent.due is None else sent.due - sent.intended
        times = [(copy.stamped or 0) - delay for copy in copies]
        certain = sum(begin - least + slack <= time < end - most - slack for time in times)
        possible = sum(begin - most - slack <= time < end - least + slack for time in times)
        surely += min(certain, outputs)
        maybe += min(possible, outputs)
    if unit == "ratio":
        base = float((facts.offered or 0) * facts.fan_out)
    else:
        base = facts.fan_out * (facts.end - facts.begin) / 1e9
    return (surely / base, maybe / base) if base else None


def _moved_back(facts: Facts) -> Interval:
    """Return by how much less than the median a phase is moved (docs/decisions/004).

    As far as the last message is due before the end, and the first one after the begin, both are then equally far; at most by half of the mean
    time between two messages, and not later after a longer pause at the begin.
    """
    due = [sent.intended for sent in facts.messages]
    length = facts.end - facts.begin
    if facts.offered != len(due):  # When a dropped message was due is unknown.
        most = length / 2 / max(facts.offered or 0, len(due))
        return -most, most
    behind, ahead = facts.end - max(due), min(due) - facts.begin
    limit = length / len(due) / 2
    forth = limit if ahead <= 2 * limit else 0.0
    back = sorted((-forth, (behind - ahead) / 2, limit))[1]
    return back, back


def _is_too_much_missing(
    facts: Facts, metric: str, tolerance: dict[str, Any] | None
) -> bool | None:
    """Return whether something never came that no explicit bound allows; None: unknown (docs/howto/read-a-verdict.md)."""
    if metric in ("earliness", "receiveLag"):
        return False
    # For broadcasts and gaps it is left open what allows it.
    is_known = metric in ("publishLatency", "endToEndLatency", "sendDelay", "lateness")
    if not is_known or facts.dropped is None or tolerance is None:
        return None
    verdicts = [
        _is_beyond(number, base, tolerance.get(name))
        for name, (number, base) in _causes(facts, metric, facts.dropped).items()
        if number
    ]
    if True in verdicts:
        return True
    return None if None in verdicts else False


def _causes(facts: Facts, metric: str, dropped: int) -> dict[str, tuple[int, int]]:
    """Return what is missing and what that is a share of, by the bound that may allow it.

    ``loss`` allows lost messages, ``failed`` those rejected or unanswered, ``dropped`` dropped ones.
    """
    offered = facts.offered or 0
    unanswered = len(facts.messages) - len(facts.acked)
    causes = {"dropped": (dropped, offered)}
    if metric == "publishLatency":
        causes["failed"] = (unanswered, offered)
    if metric in ("endToEndLatency", "lateness"):
        undelivered = offered * facts.fan_out - facts.received
        causes["loss"] = (facts.lost, len(facts.acked) * facts.fan_out)
        is_rejected = undelivered > facts.lost + dropped * facts.fan_out
        causes["failed"] = (unanswered if is_rejected else 0, offered)
    return causes


def _is_beyond(number: int, base: int, bound: Any) -> bool | None:
    """Return whether a number is beyond an explicit bound, or has none; None where rounding decides."""
    upper = _upper(bound)
    if upper is None:
        return True
    allowed = upper[0] * base if upper[1] else upper[0]
    if abs(number - allowed) < 1e-6 * max(allowed, 1):
        return None
    return number > allowed


def _upper(bound: Any) -> tuple[float, bool] | None:
    """Return an upper bound, and whether it is a share; None if there is none."""
    if isinstance(bound, dict):
        bound = bound.get("max")
    if bound is None:
        return None
    if isinstance(bound, str) and bound.endswith("%"):
        return float(bound[:-1]) / 100, True
    return rate_of(bound), False
