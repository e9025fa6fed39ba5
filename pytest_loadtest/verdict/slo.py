"""objectives × measurements → verdict. Pure.

Four outcomes, and the worst one wins: *no data* > *generator-limited* > *missed* > *met*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_loadtest.metrics.catalogue import Own
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.values.wording import exact, format_value, pair
from pytest_loadtest.verdict.drift import judge_drift
from pytest_loadtest.verdict.excuses import LENGTHENED, generator_caused
from pytest_loadtest.verdict.finding import Finding, Outcome, Verdict, no_data, show
from pytest_loadtest.verdict.grammar import CONNECT_RATE, SILENT
from pytest_loadtest.verdict.observations import (
    DELIVERIES,
    KINDS,
    Observation,
    blocked_share,
    clock_doubt,
    name_full_windows,
    observe_metric,
    sends_nothing,
    show_drain,
)
from pytest_loadtest.verdict.offering import offered_otherwise
from pytest_loadtest.verdict.slices import late_sends
from pytest_loadtest.verdict.tolerance import with_tolerances
from pytest_loadtest.verdict.windows import judge_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.metrics.expected import WorkerEvidence
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective

__all__ = [
    "REMEDY",
    "EvidenceLimits",
    "Finding",
    "Outcome",
    "Verdict",
    "evaluate",
    "overall",
    "worst",
]

REMEDY = "lower the rate, add workers (-n), or use --load-scale auto"


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
    """Combine the verdicts on the parts of a run: the worst outcome, its reasons, and the findings of all.

    :param parts: prefix for the reasons (``stage ramp: ``) and verdict of each.
    """
    outcome = worst(verdict.outcome for _, verdict in parts)
    alike = [(prefix, verdict) for prefix, verdict in parts if verdict.outcome is outcome]
    reasons = [
        f"{prefix}{reason}"
        for prefix, verdict in alike
        for reason in verdict.reasons
        if reason != REMEDY
    ]
    if any(REMEDY in verdict.reasons for _, verdict in alike):
        reasons.append(REMEDY)  # once, and last
    findings = tuple(finding for _, verdict in parts for finding in verdict.findings)
    return Verdict(outcome=outcome, findings=findings, reasons=tuple(reasons))


def evaluate(
    objectives: Iterable[Objective],
    measurements: Measurements,
    limits: EvidenceLimits,
    *,
    tolerated: Sequence[Objective] = (),
) -> Verdict:
    """Judge a run. Implicit objectives about what it leaves out on purpose (consumers, or producers) do not apply.

    :param tolerated: for a stage: the bounds of the whole profile that allow messages never to come, where the stage has none of its own.
    """
    absent, objectives = _nothing(measurements), with_tolerances(objectives, tolerated)
    findings = tuple(
        _judge(objective, measurements, absent)
        for objective in objectives
        if _applies(objective, measurements)
    )
    missing = (
        [absent]
        if absent
        else [finding.text for finding in findings if finding.outcome is Outcome.NO_DATA]
    )
    if not absent:
        missing += _no_evidence(measurements)
    if missing:
        return Verdict(outcome=Outcome.NO_DATA, findings=findings, reasons=tuple(missing))
    evidence = _evidence(measurements, limits)
    evidence += [finding.own for finding in findings if finding.own]
    if any(
        finding.outcome is Outcome.MISSED
        and finding.objective.metric in LENGTHENED[Own.RECEIVE_LAG]
        for finding in findings
    ):
        evidence += _lagging(measurements, limits)
    if evidence:
        return Verdict(
            outcome=Outcome.GENERATOR_LIMITED, findings=findings, reasons=(*evidence, REMEDY)
        )
    if any(finding.outcome is Outcome.MISSED for finding in findings):
        return Verdict(
            outcome=Outcome.MISSED, findings=findings, reasons=causes_at_target(measurements)
        )
    return Verdict(outcome=Outcome.MET, findings=findings)


def causes_at_target(measurements: Measurements) -> tuple[str, ...]:
    """Return what the target did that explains a miss: the topics that stood before full windows until their messages were dropped."""
    return (name_full_windows(measurements.full_windows),) if measurements.full_windows else ()


def _applies(objective: Objective, measurements: Measurements) -> bool:
    if not objective.implicit or objective.metric == CONNECT_RATE:
        return True
    if sends_nothing(measurements):
        return False
    if objective.metric == SILENT and not measurements.subscriptions:
        return (
            measurements.silent is not None
        )  # without acknowledgements it is unknown whether a producer reached its topic
    return measurements.subscriptions > 0 or objective.metric not in DELIVERIES


def _nothing(measurements: Measurements) -> str | None:
    """Return why the run measured nothing at all, or None."""
    counts, opening = measurements.counts, measurements.opening
    if opening is not None and opening.alone:
        return None if opening.connections else "nothing was connected"
    if sends_nothing(measurements):
        return None if counts.received else "nothing was received in the measured phase"
    if counts.offered == 0:
        return "nothing was offered: no message was due in the measured phase"
    if counts.sent == 0:
        return f"nothing was sent: all {exact(counts.offered)} messages were dropped"
    if counts.received == 0 and measurements.subscriptions:
        return f"nothing was received: {exact(counts.sent)} messages were sent, {exact(counts.acked)} acknowledged"
    return None


def _no_evidence(measurements: Measurements) -> list[str]:
    """Return the missing measurements without which a slow target cannot be told from a slow generator."""
    watched = "own_send_delay" in measurements.latencies or sends_nothing(measurements)
    missing = [] if watched else ["the generator's own send delay was not measured"]
    return (
        missing
        if measurements.workers
        else [*missing, "no worker reported its own CPU time and stalls"]
    )


def _evidence(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return why the generator, not the target, set the pace; empty if it did not. Waiting for the target's full window never counts."""
    evidence = []
    own = measurements.latencies.get("own_send_delay")
    if own is not None and own.percentile(99) > limits.send_delay_p99:
        delay, limit = pair(own.percentile(99), limits.send_delay_p99, "ns")
        evidence.append(
            f"own send delay p99 {delay} > {limit} (generator.sendDelayP99){_worst_worker(measurements, 'own_send_delay')}"
        )
    evidence += _connecting(measurements, limits)
    evidence += _overloaded_workers(measurements, limits)
    evidence += offered_otherwise(measurements.offering)
    return evidence + _own_drops(measurements)


def _own_drops(measurements: Measurements) -> list[str]:
    """Return the evidence from messages that were dropped without a full window before most of their delay."""
    if not measurements.own_drops:
        return []
    others = (
        f"; {name_full_windows(measurements.full_windows)}" if measurements.full_windows else ""
    )
    return [
        f"{exact(measurements.own_drops)} messages were dropped, late by the generator's own delay{others}"
    ]


def _lagging(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return the evidence that consumers did not take what they had, so that a target that waits for them delivered late."""
    lag = measurements.latencies.get("receive_lag")
    if lag is None or lag.percentile(99) <= limits.receive_lag_p99:
        return []
    observed, limit = pair(lag.percentile(99), limits.receive_lag_p99, "ns")
    return [
        f"receive lag p99 {observed} > {limit} (generator.receiveLagP99){_worst_worker(measurements, 'receive_lag')}"
    ]


def _worst_worker(measurements: Measurements, kind: str) -> str:
    """Return which of several workers has the largest p99, and that."""
    by_worker = {
        worker.worker: worker.latencies[kind].percentile(99)
        for worker in measurements.workers
        if kind in worker.latencies
    }
    if len(by_worker) < 2:
        return ""
    worst = max(by_worker, key=lambda worker: by_worker[worker])
    return f", most on worker {worst}: {format_duration(by_worker[worst])}"


def _connecting(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return the evidence from connecting at a rate, where each connection has a due time; without a rate there is none."""
    opening = measurements.opening
    if opening is None or opening.rate is None:
        return []
    evidence = []
    if opening.begun_late is not None and opening.begun_late > limits.send_delay_p99:
        delay, limit = pair(opening.begun_late, limits.send_delay_p99, "ns")
        evidence.append(
            f"connections were begun late though there was room, p99 {delay} > {limit} (generator.sendDelayP99)"
        )
    if opening.cpu > limits.cpu:
        evidence.append(
            f"worker {opening.busiest} used {opening.cpu:.2f} cores while it connected > {limits.cpu:g} (generator.cpu)"
        )
    return evidence


def _overloaded_workers(measurements: Measurements, limits: EvidenceLimits) -> list[str]:
    """Return for each limit the worker that is farthest beyond it, and how many others are too."""
    evidence = []
    busy = sorted(
        (worker for worker in measurements.workers if worker.cpu > limits.cpu),
        key=lambda worker: -worker.cpu,
    )
    if busy:
        evidence.append(
            f"worker {busy[0].worker} used {busy[0].cpu:.2f} cores > {limits.cpu:g} (generator.cpu){_more(busy)}"
        )
    allowed = limits.stalled * measurements.duration
    late = sorted(
        (worker for worker in measurements.workers if _stalled(worker, measurements) > allowed),
        key=lambda worker: -worker.stalled,
    )
    if late:
        share, limit = pair(
            _stalled(late[0], measurements) / measurements.duration, limits.stalled, "ratio"
        )
        by = format_duration(late[0].longest_stall)
        evidence.append(
            f"worker {late[0].worker} woke up late for {share} of the run > {limit} (generator.stalled), once by {by}{_more(late)}"
        )
    return evidence


def _stalled(worker: WorkerEvidence, measurements: Measurements) -> int:
    """Return how long a worker stalled, ns; at most the measured phase, because the loop is watched until the drain ends."""
    return min(worker.stalled, measurements.duration)


def _more(workers: Sequence[WorkerEvidence]) -> str:
    return f", and so did {len(workers) - 1} more" if len(workers) > 1 else ""


def _blocked(measurements: Measurements) -> str:
    return f"{format_value(blocked_share(measurements), 'ratio')} of the send delay was spent before the target's full window"


def _sent_late(objective: Objective, value: float, measurements: Measurements) -> str | None:
    """Return why a lower bound on what was sent, or delivered, in time would hold without the generator's own send delay, or None."""
    counts = measurements.counts
    if objective.metric not in ("sent", "throughput") or objective.bucket:
        return None
    came = counts.sent - counts.sent_in_time
    if objective.metric == "throughput":
        came = (counts.received - counts.received_in_time) // measurements.subscriptions
    per = counts.offered if objective.unit == "ratio" else measurements.duration / SECOND
    why = late_sends(value, objective.minimum, measurements.own_late, came, per)
    return f"{objective.name} {why}" if why else None


def _judge(objective: Objective, measurements: Measurements, absent: str | None) -> Finding:
    if absent is None and objective.section == "drift":
        return judge_drift(objective, measurements)
    if absent is None and objective.window is not None:
        return judge_windows(objective, measurements)
    value, samples, basis = (
        observe_metric(objective, measurements) if absent is None else Observation(None, 0, absent)
    )
    if value is not None and (doubt := clock_doubt(objective, value, measurements)):
        value, basis = None, doubt
    if value is None:
        return no_data(objective, basis, samples)
    shown = show(objective, value)
    if objective.metric == "backlogDrain" and shown.missed_by:
        shown = show_drain(shown, value, measurements.backlog)
    if (
        shown.missed_by
        and objective.metric in ("sent", "dropped", "throughput")
        and measurements.blocked
    ):
        basis += f"; {_blocked(measurements)}"
    text = f"{objective.name} {shown.comparison} ({basis})"
    over = objective.metric in KINDS and objective.maximum is not None and value > objective.maximum
    own = (
        generator_caused(objective, measurements)
        if over
        else _sent_late(objective, value, measurements)
        if shown.missed_by
        else None
    )
    outcome = (
        Outcome.MET if not shown.missed_by else Outcome.GENERATOR_LIMITED if own else Outcome.MISSED
    )
    return Finding(
        objective=objective,
        outcome=outcome,
        observed=value,
        samples=samples,
        text=text,
        own=own,
        shown=shown,
    )
