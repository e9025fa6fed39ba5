"""objectives × measurements → verdict. Pure.

The rule: a run has one of four outcomes, and the worst one wins: *no data* > *generator-limited* >
*missed* > *met*. What was not measured never passes, and a run in which the generator set the pace
says nothing about the target.

:mod:`pytest_loadtest.fleet.judge` calls :func:`evaluate` for the run and for each stage, in the
controller's thread that answers the last meeting (after each step of a search), and in the command
``aggregate``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from pytest_loadtest.metrics.catalogue import Own
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import exact, format_value, pair
from pytest_loadtest.verdict.drift import judge_drift
from pytest_loadtest.verdict.excuses import LENGTHENED, generator_caused, longest_stall
from pytest_loadtest.verdict.finding import Finding, Outcome, Shown, Verdict, no_data, show
from pytest_loadtest.verdict.grammar import CONNECT_RATE, SILENT
from pytest_loadtest.verdict.observations import (
    DELIVERIES,
    KINDS,
    blocked_share,
    bucket_of,
    clock_doubt,
    name_full_windows,
    observe_metric,
    sends_nothing,
    show_drain,
)
from pytest_loadtest.verdict.offering import offered_otherwise
from pytest_loadtest.verdict.slices import late_copies, late_sends
from pytest_loadtest.verdict.tolerance import with_tolerances
from pytest_loadtest.verdict.windows import judge_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.metrics.expected import WorkerEvidence
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective

__all__ = [
    "REMEDY",
    "WINDOW_REMEDY",
    "EvidenceLimits",
    "Finding",
    "Outcome",
    "Verdict",
    "evaluate",
    "overall",
    "worst",
]

REMEDY = "lower the rate, add workers (-n), free the machine, or use --load-scale auto"
WINDOW_REMEDY = (
    "allow more messages in flight, use more producers, or lower the rate: messages waited for the"
    " answers to earlier ones of their stream, so more workers do not help"
)
MOSTLY_BLOCKED = 0.5
"""Share of the send delay before full windows from which on they are what limits the load. The same
share decides whose a dropped message is (docs/decisions/048)."""


class EvidenceLimits(Protocol):
    """The profile's ``generator`` section: beyond any of these the generator set the pace."""

    @property
    def send_delay_p99(self) -> int:
        """ns, of the send delay less the time blocked before the target's full window."""

    @property
    def receive_lag_p99(self) -> int:
        """ns, of the time from the kernel's receipt of a message until the client took it."""

    @property
    def cpu(self) -> float:
        """Cores that one worker's process may use."""

    @property
    def stalled(self) -> float:
        """Share of the measured phase that one worker's loop may wake up late."""


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome; *no data* if there is none."""
    order = list(Outcome)
    return max(outcomes, key=order.index, default=Outcome.NO_DATA)


def overall(parts: Sequence[tuple[str, Verdict]]) -> Verdict:
    """Combine the verdicts on the parts of a run: the worst outcome, its reasons, and all findings.

    :param parts: prefix for the reasons (``stage ramp: ``) and verdict of each.
    """
    outcome = worst(verdict.outcome for _, verdict in parts)
    findings: list[Finding] = []
    reasons = []
    remedies: set[str] = set()
    for prefix, verdict in parts:
        findings += verdict.findings
        if verdict.outcome is not outcome:
            continue
        for reason in verdict.reasons:
            if reason in (REMEDY, WINDOW_REMEDY):
                remedies.add(reason)
            else:
                reasons.append(prefix + reason)
    if remedies:
        # One for all parts, and last: that of windows only where it is that of every part.
        reasons.append(REMEDY if REMEDY in remedies else WINDOW_REMEDY)
    return Verdict(outcome=outcome, findings=tuple(findings), reasons=tuple(reasons))


def evaluate(
    objectives: Iterable[Objective],
    measurements: Measurements,
    limits: EvidenceLimits,
    *,
    tolerated: Sequence[Objective] = (),
) -> Verdict:
    """Judge a run.

    Implicit objectives about what the run leaves out on purpose (consumers, or producers) do not
    apply.

    :param tolerated: for a stage: the bounds of the whole profile that allow messages never to
        come, where the stage has none of its own.
    """
    nothing = _nothing(measurements)
    findings = tuple(
        _judge(objective, measurements, nothing)
        for objective in with_tolerances(objectives, tolerated)
        if _applies(objective, measurements)
    )
    unknown = _unknown(findings, measurements, nothing)
    if unknown:
        return Verdict(outcome=Outcome.NO_DATA, findings=findings, reasons=tuple(unknown))
    evidence = _evidence(findings, measurements, limits)
    if evidence:
        reasons = (*evidence, _remedy(evidence, measurements, limits))
        return Verdict(outcome=Outcome.GENERATOR_LIMITED, findings=findings, reasons=reasons)
    if any(finding.outcome is Outcome.MISSED for finding in findings):
        causes = causes_at_target(measurements)
        return Verdict(outcome=Outcome.MISSED, findings=findings, reasons=causes)
    return Verdict(outcome=Outcome.MET, findings=findings)


def causes_at_target(measurements: Measurements) -> tuple[str, ...]:
    """Return what the target did that explains a miss.

    These are the topics that waited before full windows until their messages were dropped.
    """
    if not measurements.full_windows:
        return ()
    return (name_full_windows(measurements.full_windows),)


def _applies(objective: Objective, measurements: Measurements) -> bool:
    if not objective.implicit or objective.metric == CONNECT_RATE:
        return True
    if sends_nothing(measurements):
        return False
    if objective.metric == SILENT and measurements.selective and measurements.silent is not None:
        # With few messages of each topic and stream the service may have chosen none of them.
        return measurements.silent.due > 0
    if measurements.subscriptions:
        return True
    if objective.metric == SILENT:
        # Without acknowledgements it is unknown whether a producer reached its topic.
        return measurements.silent is not None
    return objective.metric not in DELIVERIES


# No data: what is missing without which nothing can be said.


def _nothing(measurements: Measurements) -> str | None:
    """Return why the run measured nothing at all, or None."""
    counts = measurements.counts
    opening = measurements.opening
    if opening is not None and opening.alone:
        return None if opening.connections else "nothing was connected"
    if sends_nothing(measurements):
        return None if counts.received else "nothing was received in the measured phase"
    if counts.offered == 0:
        return "nothing was offered: no message was due in the measured phase"
    if counts.sent == 0:
        return f"nothing was sent: all {exact(counts.offered)} messages were dropped"
    if counts.received == 0 and measurements.subscriptions:
        sent = f"{exact(counts.sent)} messages were sent"
        return f"nothing was received: {sent}, {exact(counts.acked)} acknowledged"
    return None


def _unknown(
    findings: Iterable[Finding], measurements: Measurements, nothing: str | None
) -> list[str]:
    """Return why the run has *no data*; empty if it has all that is needed.

    :param nothing: see :func:`_nothing`.
    """
    if nothing:
        return [nothing]
    unknown = [finding.text for finding in findings if finding.outcome is Outcome.NO_DATA]
    # Without these a slow target cannot be told from a slow generator.
    if "own_send_delay" not in measurements.latencies and not sends_nothing(measurements):
        unknown.append("the generator's own send delay was not measured")
    if not measurements.workers:
        unknown.append("no worker reported its own CPU time and stalls")
    return unknown


# Generator-limited: the evidence that the generator, not the target, set the pace.


def _evidence(
    findings: Sequence[Finding], measurements: Measurements, limits: EvidenceLimits
) -> list[str]:
    """Return why the generator, not the target, set the pace; empty if it did not.

    Waiting for the target's full window never counts.
    """
    return [
        *_sending_late(measurements, limits),
        *_connecting(measurements, limits),
        *_using_cpu(measurements, limits),
        *_stalling(measurements, limits),
        *offered_otherwise(measurements.offering),
        *_own_drops(measurements),
        *(finding.own for finding in findings if finding.own),
        *_lagging(findings, measurements, limits),
    ]


def _remedy(evidence: Sequence[str], measurements: Measurements, limits: EvidenceLimits) -> str:
    """Return what to do about a slow generator.

    A message that waits before a full window leaves up to a tick after the answer that makes room.
    Messages of one stream add up these ticks, whatever the number of workers.
    """
    is_sending_alone = list(evidence) == _sending_late(measurements, limits)
    if is_sending_alone and blocked_share(measurements) >= MOSTLY_BLOCKED:
        return WINDOW_REMEDY
    return REMEDY


def _sending_late(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return the evidence from messages that were sent late though the target had room for them."""
    delay = measurements.latencies.get("own_send_delay")
    if delay is None or delay.percentile(99) <= limits.send_delay_p99:
        return []
    observed, limit = pair(delay.percentile(99), limits.send_delay_p99, "ns")
    where = _worst_worker(measurements, "own_send_delay")
    return [f"own send delay p99 {observed} > {limit} (generator.sendDelayP99){where}"]


def _own_drops(measurements: Measurements) -> list[str]:
    """Return the evidence from dropped messages that no full window had delayed most."""
    if not measurements.own_drops:
        return []
    dropped = f"{exact(measurements.own_drops)} messages were dropped"
    evidence = f"{dropped}, late by the generator's own delay"
    if measurements.full_windows:
        evidence += f"; {name_full_windows(measurements.full_windows)}"
    return [evidence]


def _lagging(
    findings: Iterable[Finding], measurements: Measurements, limits: EvidenceLimits
) -> list[str]:
    """Return the evidence that consumers did not take what they had.

    A target that waits for them delivered late, so it counts only if a metric missed its bound that
    receive lag can make worse. A percentile among messages that never came is no such miss.
    """
    lag = measurements.latencies.get("receive_lag")
    if lag is None or lag.percentile(99) <= limits.receive_lag_p99:
        return []
    missed = {
        finding.objective.metric
        for finding in findings
        if finding.outcome is Outcome.MISSED
        for part in finding.windows or (finding,)
        if part.outcome is Outcome.MISSED and part.observed != math.inf
    }
    if missed.isdisjoint(LENGTHENED[Own.RECEIVE_LAG]):
        return []
    observed, limit = pair(lag.percentile(99), limits.receive_lag_p99, "ns")
    where = _worst_worker(measurements, "receive_lag")
    return [f"receive lag p99 {observed} > {limit} (generator.receiveLagP99){where}"]


def _worst_worker(measurements: Measurements, kind: str) -> str:
    """Return which of several workers has the largest p99, and that."""
    by_worker = {
        worker.worker: worker.latencies[kind].percentile(99)
        for worker in measurements.workers
        if kind in worker.latencies
    }
    if len(by_worker) < 2:
        return ""
    slowest = max(by_worker, key=lambda worker: by_worker[worker])
    return f", most on worker {slowest}: {format_duration(by_worker[slowest])}"


def _connecting(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return the evidence from connecting at a rate, where each connection has a due time."""
    opening = measurements.opening
    if opening is None or opening.rate is None:
        return []
    evidence = []
    if opening.begun_late is not None and opening.begun_late > limits.send_delay_p99:
        delay, limit = pair(opening.begun_late, limits.send_delay_p99, "ns")
        evidence.append(
            "connections were begun late though there was room,"
            f" p99 {delay} > {limit} (generator.sendDelayP99)"
        )
    if opening.cpu > limits.cpu:
        used = f"used {opening.cpu:.2f} cores while it connected"
        evidence.append(f"worker {opening.busiest} {used} > {limits.cpu:g} (generator.cpu)")
    return evidence


def _using_cpu(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return the worker that used most cores beyond the limit, and how many others did too."""
    busy = [worker for worker in measurements.workers if worker.cpu > limits.cpu]
    if not busy:
        return []
    busiest = max(busy, key=lambda worker: worker.cpu)
    used = f"worker {busiest.worker} used {busiest.cpu:.2f} cores"
    return [f"{used} > {limits.cpu:g} (generator.cpu){_more(busy)}"]


def _stalling(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return the worker that stalled longest beyond the limit, and how many others did too."""
    duration = measurements.duration

    def stalled(worker: WorkerEvidence) -> int:
        # Samples of older releases also have what a stall took beyond the phase's end.
        return min(worker.stalled, duration)

    late = [
        worker for worker in measurements.workers if stalled(worker) > limits.stalled * duration
    ]
    if not late:
        return []
    latest = max(late, key=lambda worker: worker.stalled)
    share, limit = pair(stalled(latest) / duration, limits.stalled, "ratio")
    woke = f"worker {latest.worker} woke up late for {share} of the run"
    longest = format_duration(latest.longest_stall)
    return [f"{woke} > {limit} (generator.stalled), once by {longest}{_more(late)}"]


def _more(workers: Sequence[WorkerEvidence]) -> str:
    return f", and so did {len(workers) - 1} more" if len(workers) > 1 else ""


# One objective.


def _judge(objective: Objective, measurements: Measurements, nothing: str | None) -> Finding:
    """Judge one objective. :param nothing: see :func:`_nothing`."""
    if nothing is not None:
        return no_data(objective, nothing)
    if objective.section == "drift":
        return judge_drift(objective, measurements)
    if objective.window is not None:
        return judge_windows(objective, measurements)
    observation = observe_metric(objective, measurements)
    value = observation.value
    if value is None:
        return no_data(objective, observation.basis, observation.samples)
    doubt = clock_doubt(objective, value, measurements)
    if doubt:
        return no_data(objective, doubt, observation.samples)

    shown = show(objective, value)
    if not shown.missed_by:
        outcome = Outcome.MET
        own = None
    else:
        own = _own_cause(objective, value, measurements)
        outcome = Outcome.GENERATOR_LIMITED if own else Outcome.MISSED
    if objective.metric == "backlogDrain" and shown.missed_by:
        shown = show_drain(shown, value, measurements.backlog)
    remark = _blocked(objective, shown, measurements)
    return Finding(
        objective=objective,
        outcome=outcome,
        observed=value,
        samples=observation.samples,
        text=f"{objective.name} {shown.comparison} ({observation.basis}{remark})",
        own=own,
        shown=shown,
    )


def _blocked(objective: Objective, shown: Shown, measurements: Measurements) -> str:
    """Return how much of the send delay the target caused, for a miss that it may explain."""
    explains = objective.metric in ("sent", "dropped", "throughput")
    if not explains or not shown.missed_by or not measurements.blocked:
        return ""
    share = format_value(blocked_share(measurements), "ratio")
    return f"; {share} of the send delay was spent before the target's full window"


def _own_cause(objective: Objective, value: float, measurements: Measurements) -> str | None:
    """Return why the generator itself caused a miss, or None."""
    if objective.metric not in KINDS:
        return _late(objective, value, measurements)
    if objective.maximum is None or value <= objective.maximum:
        return None
    return generator_caused(objective, measurements)


def _late(objective: Objective, value: float, measurements: Measurements) -> str | None:
    """Return why a lower bound on what was sent, or delivered, in time would hold without the
    generator's own delays, or None.
    """
    why = _sent_late(objective, value, measurements)
    if why is None and objective.metric == "throughput":
        part = bucket_of(measurements, objective.bucket)
        base = measurements.duration / SECOND
        if objective.unit == "ratio":
            base = (part or measurements.counts).offered
        base *= measurements.fan_out
        in_time = (part or measurements).in_time_without_own
        why = late_copies(value, objective.minimum, in_time, base, objective.unit)
        if why is not None:
            why += longest_stall(measurements)
    return f"{objective.name} {why}" if why else None


def _sent_late(objective: Objective, value: float, measurements: Measurements) -> str | None:
    """Return why the bound would hold without own send delay, or None."""
    counts = measurements.counts
    if objective.metric not in ("sent", "throughput") or objective.bucket:
        return None
    if objective.metric == "sent":
        came = counts.sent - counts.sent_in_time
    else:
        came = (counts.received - counts.received_in_time) // measurements.fan_out
    base = counts.offered if objective.unit == "ratio" else measurements.duration / SECOND
    return late_sends(value, objective.minimum, measurements.own_late, came, base)
