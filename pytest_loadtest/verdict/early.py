"""Judgement before the end of a run: which objectives can no longer hold, and the verdict on a run that was ended for that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.histogram import SUB_BITS, bucket_bounds, rank
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.wording import ROUNDING, exact
from pytest_loadtest.verdict.excuses import generator_caused
from pytest_loadtest.verdict.finding import Finding, Outcome, Verdict
from pytest_loadtest.verdict.observations import KINDS, samples_needed
from pytest_loadtest.verdict.slo import REMEDY, causes_at_target, evaluate
from pytest_loadtest.verdict.tolerance import with_tolerances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.slo import EvidenceLimits


def lowest_rate(objectives: Sequence[Objective], hold: int, deliveries: int = 1) -> float:
    """Return the lowest rate, msg/s, at which a hold has enough messages to be judged, plus 5 %; 0 if one message is enough.

    A percentile needs its samples. Throughput counts all messages of a hold except about half a
    message at its edge (decision 004): of 8 messages that is more than the 3 % that ``throughput:
    97%`` allows.

    :param deliveries: copies of each message: an end-to-end latency has a sample for each, all
        others have one for the message.
    """
    copies = max(deliveries, 1)
    needed = [
        samples_needed(o.percentile)
        / (copies if o.metric == "endToEndLatency" else 1)
        / _length(o, hold)
        for o in objectives
        if o.percentile is not None
    ]
    floors = [
        o
        for o in objectives
        if o.metric == "throughput" and o.unit == "ratio" and not o.bucket and o.section != "drift"
    ]
    needed += [
        0.5 / (1 - o.minimum) / _length(o, hold)
        for o in floors
        if o.minimum is not None and o.minimum < 1
    ]
    return 1.05 * max(needed, default=0) * SECOND


def _length(objective: Objective, hold: int) -> int:
    """Return the time over which an objective is judged, ns: a window, a tenth, or the whole hold."""
    return objective.window or (hold // 10 if objective.section == "drift" else hold)


def exceeds(objective: Objective) -> int | None:
    """Return the smallest latency, ns, that :func:`certainly_missed` counts against the bound; None for other objectives.

    A percentile is reported as the middle of its HDR bucket, so a latency just above the bound may
    still be reported below it.
    """
    if objective.window is not None:
        return None  # a late message does not decide how many windows will miss
    if (
        objective.unit != "ns"
        or objective.maximum is None
        or (objective.percentile is None and objective.statistic != "max")
    ):
        return None
    bound = int(objective.maximum)
    if objective.statistic == "max":
        return bound + 1
    shift = max(bound.bit_length() - 1 - SUB_BITS, 0)
    low, width = bucket_bounds((shift << SUB_BITS) + (bound >> shift))
    return bound + 1 if low + width // 2 > objective.maximum else low + width


def certainly_missed(
    objectives: Iterable[Objective], planned: int, exceeded: Mapping[str, int]
) -> str | None:
    """Return the name of the first objective that can no longer hold, whatever follows in the hold; None if each still can.

    A percentile is the nearest rank of :meth:`Histogram.percentile`: p99 of n holds while ``n −
    ceil(0.99·n)`` or fewer lie above the bound. If the whole hold has too few samples for a
    percentile, it is left to the verdict, which is *no data*.

    :param planned: deliveries planned for the whole hold, of all subscriptions (messages, without
        subscriptions). A number that turns out too high is safe.
    :param exceeded: objective name → number so far. For a latency: first copies that took
        :func:`exceeds` or longer, and outstanding messages of that age. For loss, dropped, failed:
        the count itself. Objectives without an entry are not judged.
    """
    return next(
        (
            o.name
            for o in objectives
            if o.maximum is not None and _broken(o, planned, exceeded.get(o.name, 0))
        ),
        None,
    )


def _broken(objective: Objective, planned: int, count: int) -> bool:
    """Return whether ``count`` is more than the upper bound allows."""
    assert objective.maximum is not None
    if objective.section == "drift" or objective.window is not None:
        return False
    if objective.unit == "messages":
        return count > objective.maximum
    if objective.unit == "ratio":
        return count > objective.maximum * (1 + ROUNDING) * planned
    if exceeds(objective) is None:
        return False
    p = objective.percentile
    if p is None:
        return count > 0
    return planned >= samples_needed(p) and count > planned - rank(p, planned)


def evaluate_ended(
    objectives: Sequence[Objective],
    measurements: Measurements,
    limits: EvidenceLimits,
    foregone: str,
) -> Verdict:
    """Judge a run that was ended as soon as an objective could no longer hold. It is never *met*.

    That objective is missed, even if the measured part alone meets it: :func:`certainly_missed`
    counts over the whole hold. Percentiles with too few samples in that part are left open.
    Everything else is as in :func:`~pytest_loadtest.verdict.slo.evaluate`: a slow generator, or one
    whose pauses broke the objective, makes the run *generator-limited*; a missing measurement is
    *no data*.

    :param foregone: the objective's name.
    """
    objectives = with_tolerances(objectives)
    whole = evaluate(objectives, measurements, limits)
    short = {
        finding.objective.name for finding in whole.findings if _too_short(finding, measurements)
    }
    judgeable = [objective for objective in objectives if objective.name not in short]
    verdict = evaluate(judgeable, measurements, limits)
    if verdict.outcome in (Outcome.NO_DATA, Outcome.GENERATOR_LIMITED):
        return replace(verdict, findings=whole.findings)
    own = next(
        (
            generator_caused(objective, measurements)
            for objective in objectives
            if objective.name == foregone
        ),
        None,
    )
    if own is not None:
        return Verdict(
            outcome=Outcome.GENERATOR_LIMITED, findings=whole.findings, reasons=(own, REMEDY)
        )
    findings = (
        _missed(finding) if finding.objective.name == foregone else finding
        for finding in whole.findings
    )
    return Verdict(
        outcome=Outcome.MISSED, findings=tuple(findings), reasons=causes_at_target(measurements)
    )


def lost_target(verdict: Verdict, reason: str) -> Verdict:
    """Return the verdict on a run whose target answered and then went away: never *met*.

    :param verdict: that on the measured part. :param reason: which clients lost it, and why.
    """
    if verdict.outcome is Outcome.GENERATOR_LIMITED:
        return verdict
    outcome = Outcome.MISSED if verdict.outcome is Outcome.MET else verdict.outcome
    return replace(verdict, outcome=outcome, reasons=(reason, *verdict.reasons))


def _too_short(finding: Finding, measurements: Measurements) -> bool:
    """Return whether a finding has no data only because the run was too short: too few samples, or windows."""
    p = finding.objective.percentile
    if finding.objective.window is not None or finding.objective.section == "drift":
        return finding.outcome is Outcome.NO_DATA
    if (
        finding.outcome is not Outcome.NO_DATA
        or p is None
        or not 0 < finding.samples < samples_needed(p)
    ):
        return False
    return not any(
        measurements.latencies[kind].negative
        for kind in KINDS.values()
        if kind in measurements.latencies
    )


def _missed(finding: Finding) -> Finding:
    if finding.outcome is Outcome.MISSED:
        return finding
    text = f"{finding.objective.name}: could no longer hold when the run was ended early ({exact(finding.samples)} samples)"
    return replace(finding, outcome=Outcome.MISSED, observed=None, text=text)
