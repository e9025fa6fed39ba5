"""Defects that the product once had, and others like them: does the oracle find them?

A mutant replaces one function of the product, by its name, while worlds are played. ``scripts/simulate --mutants`` plays worlds of
the classes in which a mutant can matter (hunt.py), until a rule is violated. The names of rows are those of the lists in which the
defects were written down: *nineteen* for "Twenty defects found by reading", *thirty* for "Wrong verdicts and wrong loads".
"""

from __future__ import annotations

import importlib
import inspect
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from simulation.player import install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Function = Any
"""A function of the product, with any signature."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A defect.

    :param source: the list and the item that it comes from; ``more`` for others. :param place: ``module:name`` below ``pytest_loadtest``;
        the name may have a class. :param make: the function → the one in its place.
    :param likely: classes (coverage.py) of the worlds in which it can matter: a world belongs to all of them. One of several lists.
    """

    name: str
    source: str
    place: str
    make: Callable[[Function], Function]
    likely: tuple[tuple[str, ...], ...] = ((),)


@contextmanager
def applied(mutant: Mutant) -> Iterator[list[int]]:
    """Replace the function of a mutant; yield a list with the number of its calls."""
    # A module that is loaded later would keep the replacement.
    install()
    module_name, _, path = mutant.place.partition(":")
    owner: Any = importlib.import_module(f"pytest_loadtest.{module_name}")
    *classes, name = path.split(".")
    for class_name in classes:
        owner = getattr(owner, class_name)
    original = inspect.getattr_static(owner, name)
    calls = [0]
    mutated = _replaced(original, mutant.make, calls)
    # A module that imported the function by its name has it as its own.
    places = [(owner, name)]
    if not classes:
        places += [
            (module, key)
            for loaded, module in list(sys.modules.items())
            if loaded.startswith("pytest_loadtest.") and module is not owner
            for key, value in list(vars(module).items())
            if value is original
        ]
    for holder, key in places:
        setattr(holder, key, mutated)
    try:
        yield calls
    finally:
        for holder, key in places:
            setattr(holder, key, original)


def _replaced(original: Any, make: Callable[[Function], Function], calls: list[int]) -> Any:
    """Return the replacement of a function, property or class method, which counts its calls."""

    def counted(function: Function) -> Function:
        mutated = make(function)

        @wraps(function)
        def call(*arguments: Any, **keywords: Any) -> Any:
            calls[0] += 1
            return mutated(*arguments, **keywords)

        return call

    if isinstance(original, property):
        return property(counted(original.fget))
    if isinstance(original, cached_property):
        return property(counted(original.func))
    if isinstance(original, classmethod):
        return classmethod(counted(original.__func__))
    return counted(original)


# --- what may replace a function


def always(value: Any) -> Callable[[Function], Function]:
    """Return a constant instead."""
    return lambda _: lambda *arguments, **keywords: value


def after(change: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Change the function's result."""
    return lambda original: lambda *arguments, **keywords: change(original(*arguments, **keywords))


def instead(function: Function) -> Callable[[Function], Function]:
    """Call another function with the same arguments."""
    return lambda _: function


def before(change: Callable[[Any], Any], number: int = 0) -> Callable[[Function], Function]:
    """Change an argument. :param number: of the argument."""

    def make(original: Function) -> Function:
        def call(*arguments: Any, **keywords: Any) -> Any:
            changed = [*arguments]
            changed[number] = change(changed[number])
            return original(*changed, **keywords)

        return call

    return make


# --- nineteen


def _not_silent(silent: Any) -> Any:
    return silent and replace(silent, pairs=0, streams=0, first_pairs=(), first_streams=())


def _without_implicit_throughput(original: Function) -> Function:
    def with_tolerances(objectives: Any, *further: Any) -> Any:
        objectives = tuple(objectives)
        explicit = any(one.metric == "throughput" and not one.implicit for one in objectives)
        kept = [
            one
            for one in objectives
            if not (explicit and one.metric == "throughput" and one.implicit)
        ]
        return original(kept, *further)

    return with_tolerances


def _all_first(copies: Any, run: Any) -> Any:
    return np.ones(len(copies["seq"]), np.bool_)


def _largest_that_came(original: Function) -> Function:
    def statistic(self: Any, objective: Any) -> Any:
        return original(replace_named(self, tolerated=True), objective)

    return statistic


def replace_named(value: Any, **changes: Any) -> Any:
    """Return a named tuple with other values."""
    return value._replace(**changes)


def _without_doubt(original: Function) -> Function:
    def has_ended(self: Any, progress: Any, now: int) -> Any:
        due = self._deliveries * sum(report.acked for report in progress.values())
        trusted = {
            name: replace(
                report,
                repeats=0,
                redelivered=0,
                resent=0,
                failed=0,
                received=min(report.received, due),
            )
            for name, report in progress.items()
        }
        return original(self, trusted, now)

    return has_ended


# --- thirty


def _bytes_of_each_stream(original: Function) -> Function:
    """Give each stream a train of bytes of its own, which begins with its first message."""

    def keep(self: Any, message: int, count: int, places: Any, payload: Any) -> None:
        index, _, _ = self._everyone.rows(np.arange(message, message + count, dtype=np.int64))
        streams = int(index.max()) + 1 if count else 1
        size = self._drawing.sizes.take(payload[:count]).astype(np.int64)
        own = np.zeros(count, np.int64)
        for stream in range(streams):
            mine = index == stream
            own[mine] = np.cumsum(size[mine]) - size[mine]
        moved = np.concatenate([np.sort(places[0] + own * streams), places[count:]])
        original(self, message, count, np.minimum(moved, places[count]), payload)

    return keep


def _excused_by_any_late_send(original: Function) -> Function:
    def caused(objective: Any, measurements: Any) -> Any:
        found = original(objective, measurements)
        delay = measurements.latencies.get("own_send_delay")
        if found is None and delay is not None and delay.maximum > 10_000_000:
            return f"{objective.name} may have been lengthened by own send delay"
        return found

    return caused


def _forgets_tolerance(original: Function) -> Function:
    def without(objective: Any, ranked: Any, *further: Any) -> Any:
        return original(objective, replace_named(ranked, tolerated=False), *further)

    return without


def _no_part(self: Any, times: Any, floor: Any, lag: Any) -> Any:
    return np.zeros(len(times), np.int64)


def _of_the_best_exchange(fit: Any) -> Any:
    return replace(fit, error=fit.round_trip // 2, holds=True)


def _of_whole_cells(lengths: Any) -> Any:
    return -(-lengths // 10_000_000) * 10_000_000


# --- more: the verdict


def _all_in_time(original: Function) -> Function:
    def throughput(objective: Any, measurements: Any) -> Any:
        counts = replace(measurements.counts, received_in_time=measurements.counts.received)
        return original(objective, replace(measurements, counts=counts))

    return throughput


def _excused_by_any_late_read(original: Function) -> Function:
    def late(value: float, bound: Any, in_time: int, base: float, unit: str) -> Any:
        found = original(value, bound, in_time, base, unit)
        return found or (f"may be lower by late reads than {bound}" if in_time else None)

    return late


def _one_window_more(original: Function) -> Function:
    return lambda objective, missed, judged: original(objective, missed - 1, judged)


def _last_bucket(measurements: Any, key: str) -> Any:
    return measurements.buckets[-1] if key and measurements.buckets else None


def _met_stage(original: Function) -> Function:
    def verdict(*arguments: Any) -> Any:
        from pytest_loadtest.verdict.finding import Outcome, Verdict

        found = original(*arguments)
        findings = tuple(replace(finding, outcome=Outcome.MET) for finding in found.findings)
        return Verdict(outcome=Outcome.MET, findings=findings)

    return verdict


def _lost_seconds_of_any(due: Any, timely: Any, percentile: float) -> int:
    return len(due)


# --- more: counts


def _counts(**changes: Callable[[Any], Any]) -> Callable[[Function], Function]:
    return after(
        lambda counts: replace(counts, **{name: change(counts) for name, change in changes.items()})
    )


def _first_of_the_copies(kinds: Any) -> Any:
    rows, values = kinds["completion"]
    return {**kinds, "completion": (rows, values - kinds["spread"][1])}


def _blocked_is_ours(original: Function) -> Function:
    def latencies(*arguments: Any) -> Any:
        kinds = original(*arguments)
        out, delay = kinds["send_delay"]
        return {**kinds, "own_send_delay": (out, np.maximum(delay, 0))}

    return latencies


# --- more: the drain and the search


def _any_answer(original: Function) -> Function:
    def nothing_can_come(self: Any, reports: Any, now: int) -> bool:
        return original(self, reports, now) or self._answer is not None

    return nothing_can_come


def _ends_without_the_rest(original: Function) -> Function:
    def has_ended(self: Any, progress: Any, now: int) -> Any:
        reports = [one for one in progress.values() if one.phase == self.phase]
        quiet = len(reports) >= self._members and not any(one.sending for one in reports)
        return original(self, progress, now) or (
            quiet and self._since is not None and now - self._since > 10**9
        )

    return has_ended


def _peak_above(peak: Any) -> Any:
    return replace(peak, rate=peak.high) if peak.rate is not None and peak.high else peak


def _vote_of_one(original: Function) -> Function:
    def vote(self: Any) -> Any:
        from pytest_loadtest.verdict.finding import Outcome

        return Outcome.MET if Outcome.MET in self.votes else original(self)

    return vote


def _one_is_too_slow(percentile: Any, planned: int, count: int) -> bool:
    return count > 0


# --- more: clocks and the schedule


def _other_sign(original: Function) -> Function:
    """Correct times by a line whose drift has the other sign. (In the line itself it would only make the stated error larger.)"""

    def apply(self: Any, times: Any) -> Any:
        better = replace(self.better, drift=-self.better.drift)
        return original(replace(self, better=better), times)

    return apply


def _half_a_period_late(original: Function) -> Function:
    def times(self: Any, numbers: Any) -> Any:
        found = original(self, numbers)
        period = int(1e9 / max(self.highest, 1e-9) / 2)
        return np.where(found < 1 << 60, found + period, found)

    return times


def _even_turns(original: Function) -> Function:
    return lambda cls, weights, **keywords: original(cls, [1] * len(weights), **keywords)


def _one_rate(original: Function) -> Function:
    return lambda cls, steps, streams: original(
        cls, [(length, steps[0][1] or rate) for length, rate in steps], streams
    )


def _of_one_output(original: Function) -> Function:
    """Count as if one output were due for each input."""

    def one(*arguments: Any, **keywords: Any) -> Any:
        from pytest_loadtest.metrics.expected import Expected

        single = [
            replace(one, outputs=1) if isinstance(one, Expected) else one for one in arguments
        ]
        return original(*single, **keywords)

    return one


def _of_a_worker_alone(original: Function) -> Function:
    @wraps(original)
    def mutated(start: int, rate: float, numbers: Any) -> Any:
        return original(start, rate, np.arange(len(numbers)))

    return mutated


def _by_own_medians(original: Function) -> Function:
    return lambda records: sum(original([record]) for record in records)


DOUBLES: Final = (("fault: double",), ("fault: redeliver",))
PAUSES: Final = (("fault: pause",),)
OUTPUTS: Final = (("shape: several outputs",),)
SLOW: Final = (
    ("fault: latency",),
    ("fault: stall",),
    ("fault: throttle",),
    ("fault: slow-delivery",),
)

MUTANTS: Final = (
    # "Twenty defects found by reading"
    Mutant(name="silent topics pass", source="nineteen 1", place="metrics.silent:silence", make=after(_not_silent),
        likely=(("shape: 100 streams", "fault: lose-acknowledged"), ("shape: 100 streams", "fault: lose-unanswered"), ("fault: hang",), ("fault: lose-acknowledged",), ("fault: lose-copy",))),
    Mutant(name="a bound removes the implicit throughput", source="nineteen 2", place="verdict.tolerance:with_tolerances",
        make=_without_implicit_throughput, likely=(("metric: throughput", "tag: unrestricted"),)),
    Mutant(name="foreign messages pass", source="nineteen 4", place="metrics.stats:_counts", make=_counts(foreign=lambda counts: 0),
        likely=(("fault: foreign",), ("fault: misrouted",))),
    Mutant(name="duplicates drain a backlog", source="nineteen 5", place="fleet.settled_backlog:_uncounted", make=always(0),
        likely=(("shape: backlog", "shape: faults of one rule", "metric: backlogDrain"),)),
    Mutant(name="latencies of all copies", source="nineteen 6", place="metrics.stats:_is_first", make=instead(_all_first), likely=DOUBLES),
    Mutant(name="max of what came", source="nineteen 7", place="verdict.observations:Latencies.statistic", make=_largest_that_came,
        likely=(("fault: lose-acknowledged", "statistic: max"), ("fault: reject", "statistic: max"), ("fault: hang", "statistic: max"))),
    Mutant(name="second copies end a drain", source="nineteen 14", place="fleet.drain:Drain.has_ended", make=_without_doubt,
        likely=tuple((two, late, "shape: fault into the drain") for two in ("fault: double", "fault: redeliver") for late in ("fault: slow-delivery", "fault: no-delivery"))),
    Mutant(name="damaged messages pass", source="nineteen, small things", place="metrics.stats:_counts", make=_counts(corrupt=lambda counts: 0),
        likely=(("fault: corrupt-body", "shape: checksum"), ("fault: corrupt-head",))),
    # "Wrong verdicts and wrong loads"
    Mutant(name="a train of bytes for each stream", source="thirty 1", place="schedule.schedules:ByteSchedule._keep", make=_bytes_of_each_stream,
        likely=(("shape: rate in bytes", "shape: size mix"),)),
    Mutant(name="drops before full windows are ours", source="thirty 2", place="metrics.measurements:Measurements.own_drops",
        make=instead(lambda self: self.counts.dropped), likely=(("fault: hang",), ("fault: stall", "shape: short send delay"), ("fault: stall",))),
    Mutant(name="any late send excuses", source="thirty 3", place="verdict.excuses:generator_caused", make=_excused_by_any_late_send,
        likely=(("fault: pause", "fault: stall"), ("fault: slow-send", "fault: latency"), ("fault: pause",), ("fault: slow-send",))),
    Mutant(name="an excuse forgets tolerances", source="thirty 4", place="verdict.excuses:_without_own_part", make=_forgets_tolerance,
        likely=(("shape: faults of one rule", "fault: pause", "statistic: max"),)),
    Mutant(name="our consumer's pause is the target's", source="thirty 5", place="metrics.pauses:Pauses.waited", make=instead(_no_part),
        likely=(("fault: pause", "shape: several workers", "metric: endToEndLatency"),)),
    Mutant(name="a clock that is set is not seen", source="thirty 6", place="metrics.clocks:fit_clock", make=after(_of_the_best_exchange),
        likely=(("shape: clock that is set", "metric: endToEndLatency"), ("shape: clock that is set",))),
    Mutant(name="gaps of whole cells", source="thirty 7", place="metrics.gaps:DeliveryGaps.lengths", make=after(_of_whole_cells),
        likely=(("metric: deliveryGap",),)),
    Mutant(name="a drain that never ends has an end", source="thirty 8", place="fleet.settled_backlog:given_up", make=always(None),
        likely=(("shape: backlog", "fault: throttle"), ("shape: backlog", "fault: hang"), ("shape: backlog", "fault: stall"), ("shape: backlog",))),
    # The verdict.
    Mutant(name="everything that came was in time", source="more", place="verdict.observations:_throughput", make=_all_in_time, likely=SLOW),
    Mutant(name="a late read excuses what the target was late with", source="more", place="verdict.slices:late_copies",
        make=_excused_by_any_late_read,
        likely=(("fault: pause", "fault: hang", "metric: throughput"), ("fault: slow-read", "metric: throughput"), ("fault: pause", "fault: throttle"),
            ("fault: pause", "metric: throughput"))),
    Mutant(name="percentiles of what came", source="more", place="metrics.histogram:Histogram.percentile_of_due",
        make=instead(lambda self, percentile, never: self.percentile(percentile)),
        likely=(("fault: lose-acknowledged",), ("fault: lose-unanswered",), ("fault: hang",))),
    Mutant(name="nothing missing is ever too much", source="more", place="verdict.tolerance:tolerated", make=always(True),
        likely=(("fault: lose-acknowledged", "statistic: max"), ("fault: lose-unanswered", "statistic: max"))),
    Mutant(name="one window more may miss", source="more", place="verdict.windows:_too_many", make=_one_window_more,
        likely=(("shape: objectives in windows", "tag: unrestricted"), ("shape: objectives in windows", "tag: stormy"))),
    Mutant(name="drift is no drift", source="more", place="verdict.drift:_Tenths.change", make=always(0.0),
        likely=(("shape: drift", "tag: unrestricted"), ("shape: drift", "tag: stormy"))),
    Mutant(name="no evidence against the generator", source="more", place="verdict.slo:_evidence", make=always([]), likely=PAUSES),
    Mutant(name="stalls are not limited", source="more", place="verdict.slo:_stalling", make=always([]), likely=PAUSES),
    Mutant(name="every stage is met", source="more", place="fleet.stage_verdicts:_judge_stage", make=_met_stage,
        likely=(("shape: stage objectives", "tag: unrestricted"), ("shape: stage objectives", "tag: stormy"))),
    Mutant(name="the last size bucket for each", source="more", place="verdict.observations:bucket_of", make=instead(_last_bucket),
        likely=(("shape: buckets",),)),
    Mutant(name="a percentile of one sample", source="more", place="verdict.observations:samples_needed", make=always(1),
        likely=(("statistic: p99.9",), ("statistic: p99.5",), ("statistic: p99",))),
    Mutant(name="an abort without a reason", source="more", place="verdict.abort:lost_seconds", make=instead(_lost_seconds_of_any),
        likely=(("shape: abort",),)),
    Mutant(name="blocked time is our own", source="more", place="metrics.stats:_latencies", make=_blocked_is_ours,
        likely=tuple((slow, window) for slow in ("fault: stall", "fault: throttle", "fault: latency") for window in ("shape: small window", "shape: window of one"))),
    # Counts.
    Mutant(name="half of the losses", source="more", place="metrics.stats:_counts", make=_counts(lost=lambda counts: counts.lost // 2),
        likely=(("fault: lose-acknowledged",),)),
    Mutant(name="unanswered messages are acknowledged", source="more", place="metrics.stats:_counts",
        make=_counts(acked=lambda counts: counts.acked + counts.unknown, unknown=lambda counts: 0), likely=(("fault: lose-unanswered",),)),
    Mutant(name="nothing is out of order", source="more", place="engine.order:OrderCheck.late", make=always(None), likely=(("fault: reorder",),)),
    Mutant(name="the first copy completes a broadcast", source="more", place="metrics.stats:_completions", make=after(_first_of_the_copies),
        likely=(("shape: broadcast",),)),
    Mutant(name="delays are 5 ms shorter", source="more", place="metrics.expected:Expected.lateness", make=after(lambda late: late - 5_000_000),
        likely=(("shape: delays",),)),
    Mutant(name="connections in time by the median of each worker", source="more", place="plan.connecting:connected_in_time", make=_by_own_medians,
        likely=(("shape: connections at a rate", "shape: several workers"),)),
    Mutant(name="each worker connects at the whole rate", source="more", place="plan.connecting:connect_times", make=_of_a_worker_alone,
        likely=(("shape: connections at a rate", "shape: several workers"),)),
    # Outputs of a service.
    Mutant(name="second outputs are duplicates", source="more", place="metrics.stats:_deliveries", make=_of_one_output, likely=OUTPUTS),
    Mutant(name="latencies of first outputs alone", source="more", place="metrics.stats:_is_first", make=_of_one_output, likely=OUTPUTS),
    Mutant(name="one output is due for each input", source="more", place="metrics.measurements:Measurements.fan_out",
        make=instead(lambda self: self.subscriptions), likely=OUTPUTS),
    Mutant(name="a share without its interval", source="more", place="verdict.shares:share_interval",
        make=instead(lambda share, trials: (share, share)), likely=(("shape: chosen outputs",),)),
    Mutant(name="order across output topics", source="more", place="engine.order:OrderCheck.late", make=before(lambda order: order * 0, 3),
        likely=(("shape: several output topics",),)),
    Mutant(name="a tap is compared with one subscription", source="more", place="metrics.tapped:tapped_rows",
        make=before(lambda run: replace(run, subscriptions=1), 3), likely=(("shape: tap",),)),
    # The drain and the search.
    Mutant(name="any answer of the target ends a drain", source="more", place="fleet.drain:Drain._nothing_can_come", make=_any_answer,
        likely=(("fault: slow-delivery",), ("fault: stall",), ("shape: delays",))),
    Mutant(name="a drain ends after a second", source="more", place="fleet.drain:Drain.has_ended", make=_ends_without_the_rest,
        likely=(("fault: slow-delivery", "shape: fault into the drain"), ("fault: no-delivery", "shape: fault into the drain"))),
    Mutant(name="a peak that was missed", source="more", place="verdict.peak:Search.peak", make=after(_peak_above), likely=(("shape: search",),)),
    Mutant(name="one vote of several", source="more", place="verdict.peak:_Tried.vote", make=_vote_of_one, likely=(("shape: search",),)),
    Mutant(name="one late message ends a step", source="more", place="verdict.early:_too_slow", make=instead(_one_is_too_slow),
        likely=(("shape: long steps", "metric: endToEndLatency"),)),
    # Clocks.
    Mutant(name="times are never corrected", source="more", place="metrics.clocks:Correction.apply", make=instead(lambda self, times: times),
        likely=(("shape: clock that drifts", "shape: long load"), ("shape: clock that slews", "shape: long load"))),
    Mutant(name="drift of the other sign", source="more", place="metrics.clocks:Correction.apply", make=_other_sign,
        likely=(("shape: clock that drifts", "shape: long load"), ("shape: clock that slews", "shape: long load"))),
    Mutant(name="clocks are exact", source="more", place="metrics.clocks:_largest_distance", make=always(0), likely=(("shape: several hosts",),)),
    # The schedule.
    Mutant(name="half a period late", source="more", place="schedule.pacing:Pacer.times", make=_half_a_period_late),
    Mutant(name="one message more is due", source="more", place="schedule.pacing:Pacer.total",
        make=instead(lambda self, duration: self.due(duration)), likely=(("tag: calm",),)),
    Mutant(name="all topics have one weight", source="more", place="schedule.stream_order:Turns.weighted", make=_even_turns,
        likely=(("shape: skew",),)),
    Mutant(name="one rate for all stages", source="more", place="schedule.pacing:Pacer.through", make=_one_rate, likely=(("shape: stages",),)),
)  # fmt: skip


def named(name: str) -> Mutant:
    """Return the mutant of a name. :raises KeyError: there is none."""
    return {mutant.name: mutant for mutant in MUTANTS}[name]
