"""objective × measurements → verdict. Pure; the definitions of what each metric counts, and of what.

Four outcomes, and the worst one wins: *no data* > *generator-limited* > *missed* > *met*.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pytest_loadtest.objectives import Objective, ObjectiveErrors, explicit, parse, scale
from pytest_loadtest.quantities import format_duration, format_rate
from pytest_loadtest.wording import exact, format_value, pair, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.measurements import Histogram, Measurements, WorkerEvidence

__all__ = [
    "REMEDY",
    "Finding",
    "GeneratorLimits",
    "Objective",
    "ObjectiveErrors",
    "Observation",
    "Outcome",
    "Verdict",
    "blocked_share",
    "evaluate",
    "explicit",
    "observe",
    "parse",
    "samples_needed",
    "scale",
    "unfit",
]

REMEDY = "lower the rate, add workers (-n), or use --load-scale auto"
TAIL = 10
"""Samples that must lie beyond a percentile before it is called a number."""


class Outcome(enum.Enum):
    """What a run says about its target, best first."""

    MET = "met"
    MISSED = "missed"
    GENERATOR_LIMITED = "generator-limited"
    NO_DATA = "no data"


class GeneratorLimits(Protocol):
    """The profile's ``generator`` section: beyond any of these the generator set the pace."""

    @property
    def send_delay_p99(self) -> int:
        """ns, of the send delay less the time blocked before the target's full window."""

    @property
    def cpu(self) -> float:
        """Cores that one worker's process may use."""

    @property
    def stalled(self) -> float:
        """Share of the measured phase that one worker's loop may wake up late."""


class Observation(NamedTuple):
    """What was seen of one metric. ``value`` is None where it cannot be told, and ``basis`` then says why.

    Otherwise ``basis`` says of what: ``100 of 5 000 deliveries``.
    """

    value: float | None
    samples: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One objective judged. ``text``: observed, bound, how far over, of how many, in one line."""

    objective: Objective
    outcome: Outcome
    observed: float | None
    samples: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a run.

    :param reasons: the causes of *no data*, or the evidence of *generator-limited* with what to change last.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()

    def having(self, outcome: Outcome) -> tuple[Finding, ...]:
        """The findings with this outcome."""
        return tuple(finding for finding in self.findings if finding.outcome is outcome)


def evaluate(objectives: Iterable[Objective], measurements: Measurements, limits: GeneratorLimits) -> Verdict:
    """Judge a run."""
    absent = _nothing(measurements)
    findings = tuple(_judge(objective, measurements, absent) for objective in objectives)
    missing = [absent] if absent else [finding.text for finding in findings if finding.outcome is Outcome.NO_DATA]
    if not absent:
        missing += _no_evidence(measurements)
    if missing:
        return Verdict(outcome=Outcome.NO_DATA, findings=findings, reasons=tuple(missing))
    evidence = _evidence(measurements, limits)
    if evidence:
        return Verdict(outcome=Outcome.GENERATOR_LIMITED, findings=findings, reasons=(*evidence, REMEDY))
    missed = any(finding.outcome is Outcome.MISSED for finding in findings)
    return Verdict(outcome=Outcome.MISSED if missed else Outcome.MET, findings=findings)


def samples_needed(percentile: float) -> int:
    """Fewest samples of which ten lie beyond this percentile: 1 000 for p99, 10 000 for p99.9."""
    return math.ceil(TAIL * 100 / (100 - Fraction(repr(float(percentile)))))  # in decimals: 99.998 is no binary fraction


def blocked_share(measurements: Measurements) -> float:
    """How much of the whole send delay was spent before the target's full window, 0 to 1: the target's doing."""
    delay = measurements.send_delay
    return min(measurements.blocked / delay.total, 1.0) if delay is not None and delay.total > 0 else 0.0


def observe(objective: Objective, measurements: Measurements) -> Observation:
    """What the objective's metric came to, in the objective's unit. Never a number for what was not measured."""
    if objective.unit == "ns":
        return _latency(objective, measurements)
    counts, subscriptions = measurements.counts, max(measurements.subscriptions, 1)
    if objective.metric == "throughput":
        offered = counts.offered * subscriptions
        if not counts.received or not offered:
            return Observation(None, 0, "nothing was received")
        value = measurements.throughput if objective.unit == "msg/s" else counts.received_in_time / offered
        basis = f"{format_rate(measurements.throughput)} of {format_rate(measurements.rate)} offered"
        return Observation(value, counts.received_in_time, basis)
    count, base, noun = _tally(objective.metric, measurements)
    if count is None:
        return Observation(None, 0, "order is not applicable to this subscription type")
    if base == 0:
        return Observation(None, 0, "nothing was offered" if noun == "offered" else "nothing was acknowledged, so no delivery was due")
    basis = f"{exact(count)} of {exact(base)} {noun}"
    if objective.metric == "failed" and counts.unknown:
        basis += f", {exact(counts.unknown)} of them unanswered"
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


def _latency(objective: Objective, measurements: Measurements) -> Observation:
    histogram, absent = {
        "publishLatency": (measurements.publish, "nothing was acknowledged, or acknowledgement is not applicable"),
        "endToEndLatency": (measurements.end_to_end, "nothing was received"),
        "sendDelay": (measurements.send_delay, "nothing was sent"),
    }[objective.metric]
    if histogram is None or histogram.n == 0:
        return Observation(None, 0, absent)
    reason = unfit(histogram, objective.percentile)
    if reason:
        return Observation(None, histogram.n, reason)
    value = {"max": histogram.maximum, "min": histogram.minimum, "mean": histogram.mean}.get(objective.statistic)
    value = histogram.percentile(objective.percentile or 0) if value is None else value
    return Observation(float(value), histogram.n, f"{exact(histogram.n)} samples")


def unfit(histogram: Histogram, percentile: float | None) -> str | None:
    """Why this histogram cannot answer for a percentile (None: for any other statistic), or None when it can."""
    if histogram.negative:
        return f"{exact(histogram.negative)} of {exact(histogram.n)} values are below zero: the clocks of sender and receiver disagree"
    if percentile is not None and histogram.n < samples_needed(percentile):
        return f"p{percentile:.10g} needs {exact(samples_needed(percentile))} samples, there are {exact(histogram.n)}"
    return None


def _nothing(measurements: Measurements) -> str | None:
    """Why the run as a whole measured nothing, or None."""
    counts = measurements.counts
    if counts.offered == 0:
        return "nothing was offered: no message was due in the measured phase"
    if counts.sent == 0:
        return f"nothing was sent: all {exact(counts.offered)} messages were dropped"
    if counts.received == 0:
        return f"nothing was received: {exact(counts.sent)} messages were sent, {exact(counts.acked)} acknowledged"
    return None


def _no_evidence(measurements: Measurements) -> list[str]:
    """What is missing to tell a slow target from a slow generator."""
    missing = [] if measurements.own_send_delay is not None else ["the generator's own send delay was not measured"]
    return missing if measurements.workers else [*missing, "no worker reported its own CPU time and stalls"]


def _evidence(measurements: Measurements, limits: GeneratorLimits) -> list[str]:
    """What says that the generator set the pace. Time before the target's full window is the target's and never counts."""
    evidence = []
    own = measurements.own_send_delay
    if own is not None and own.percentile(99) > limits.send_delay_p99:
        delay, limit = pair(own.percentile(99), limits.send_delay_p99, "ns")
        evidence.append(f"own send delay p99 {delay} > {limit} (generator.sendDelayP99)")
    evidence += _worn(measurements, limits)
    if measurements.counts.dropped and blocked_share(measurements) < 0.5:
        evidence.append(f"{exact(measurements.counts.dropped)} messages were dropped, and {_blocked(measurements)}")
    return evidence


def _worn(measurements: Measurements, limits: GeneratorLimits) -> list[str]:
    """The worker that fared worst, by each limit, and how many more are beyond it."""
    evidence = []
    busy = sorted((worker for worker in measurements.workers if worker.cpu > limits.cpu), key=lambda worker: -worker.cpu)
    if busy:
        evidence.append(f"worker {busy[0].worker} used {busy[0].cpu:.2f} cores > {limits.cpu:g} (generator.cpu){_more(busy)}")
    allowed = limits.stalled * measurements.duration
    late = sorted((worker for worker in measurements.workers if worker.stalled > allowed), key=lambda worker: -worker.stalled)
    if late:
        share, limit = pair(late[0].stalled / measurements.duration, limits.stalled, "ratio")
        by = format_duration(late[0].longest_stall)
        evidence.append(
            f"worker {late[0].worker} woke up late for {share} of the run > {limit} (generator.stalled), once by {by}{_more(late)}"
        )
    return evidence


def _more(workers: Sequence[WorkerEvidence]) -> str:
    return f", and so did {len(workers) - 1} more" if len(workers) > 1 else ""


def _blocked(measurements: Measurements) -> str:
    return f"{format_value(blocked_share(measurements), 'ratio')} of the send delay was spent before the target's full window"


def _judge(objective: Objective, measurements: Measurements, absent: str | None) -> Finding:
    value, samples, basis = observe(objective, measurements) if absent is None else Observation(None, 0, absent)
    if value is None:
        text = f"{objective.name}: {basis}"
        return Finding(objective=objective, outcome=Outcome.NO_DATA, observed=None, samples=samples, text=text)
    shown = show(objective, value)
    if shown.over and objective.metric in ("sent", "dropped", "throughput") and measurements.blocked:
        basis += f"; {_blocked(measurements)}"
    outcome = Outcome.MISSED if shown.over else Outcome.MET
    text = f"{objective.name} {shown.comparison} ({basis})"
    return Finding(objective=objective, outcome=outcome, observed=value, samples=samples, text=text)
