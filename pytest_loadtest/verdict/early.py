"""What can be told of objectives before a run ends, or before it starts, and what a run is that was ended by it: arithmetic on counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.histogram import SUB_BITS, bucket_bounds, rank
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.wording import ROUNDING, exact
from pytest_loadtest.verdict.finding import Finding, Outcome, Verdict
from pytest_loadtest.verdict.observations import KINDS, samples_needed
from pytest_loadtest.verdict.slo import REMEDY, evaluate
from pytest_loadtest.verdict.tolerance import with_tolerances
from pytest_loadtest.verdict.windows import generator_caused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective
    from pytest_loadtest.verdict.slo import EvidenceLimits


def lowest_rate(objectives: Sequence[Objective], hold: int, deliveries: int = 1) -> float:
    """The lowest rate, msg/s, at which a hold has messages enough to be judged, with a twentieth to spare; 0 where one is enough.

    A percentile needs its samples. Of a hold's messages about half of one is outside the window in which throughput counts (decision 004):
    of 8 that is more than the 3 % that ``throughput: 97%`` leaves.

    :param deliveries: of each message: a latency from end to end has a sample for each, all others one for the message.
    """
    each = max(deliveries, 1)
    needed = [
        samples_needed(o.percentile) / (each if o.metric == "endToEndLatency" else 1) / _length(o, hold)
        for o in objectives
        if o.percentile is not None
    ]
    floors = [o for o in objectives if o.metric == "throughput" and o.unit == "ratio" and not o.bucket and o.section != "drift"]
    needed += [0.5 / (1 - o.minimum) / _length(o, hold) for o in floors if o.minimum is not None and o.minimum < 1]
    return 1.05 * max(needed, default=0) * SECOND


def _length(objective: Objective, hold: int) -> int:
    """Of what it is judged in, ns: a window, a tenth, or the whole hold."""
    return objective.window or (hold // 10 if objective.section == "drift" else hold)


def exceeds(objective: Objective) -> int | None:
    """The smallest latency, ns, that breaks the objective's bound, as :func:`certainly_missed` counts; None for other objectives.

    A percentile is reported as the middle of its HDR bucket, so a latency just above the bound may still be reported below it.
    """
    if objective.window is not None:
        return None  # one message too late says nothing of how many windows will miss
    if objective.unit != "ns" or objective.maximum is None or (objective.percentile is None and objective.statistic != "max"):
        return None
    bound = int(objective.maximum)
    if objective.statistic == "max":
        return bound + 1
    shift = max(bound.bit_length() - 1 - SUB_BITS, 0)
    low, width = bucket_bounds((shift << SUB_BITS) + (bound >> shift))
    return bound + 1 if low + width // 2 > objective.maximum else low + width


def certainly_missed(objectives: Iterable[Objective], planned: int, exceeded: Mapping[str, int]) -> str | None:
    """The name of the first objective that can no longer hold, however the rest of the hold goes; None where each still can.

    A percentile is the nearest rank of :meth:`Histogram.percentile`: p99 of n holds while ``n − ceil(0.99·n)`` or fewer lie above the
    bound. A percentile for which the whole hold has too few samples is left to the verdict, which is *no data*.

    :param planned: deliveries that the whole hold plans, all subscriptions together (messages, where there are none). More than there
        turn out to be is safe.
    :param exceeded: by objective name, how many so far: of a latency, first copies that took :func:`exceeds` or longer, and messages that
        are that old and still outstanding; of loss, dropped, failed and the like, the count itself. A name that is left out is not judged.
    """
    return next((o.name for o in objectives if o.maximum is not None and _broken(o, planned, exceeded.get(o.name, 0))), None)


def _broken(objective: Objective, planned: int, count: int) -> bool:
    """Whether ``count`` is beyond what the upper bound allows."""
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
    objectives: Sequence[Objective], measurements: Measurements, limits: EvidenceLimits, foregone: str, *, our_drops: bool = True
) -> Verdict:
    """Judge a run that was ended as soon as an objective could no longer hold. It is never *met*.

    That objective is missed, whatever the part that ran says of it by itself: :func:`certainly_missed` counts over the whole. Percentiles
    for which that part is too short are left open. All else is as in :func:`~pytest_loadtest.verdict.slo.evaluate`: a slow generator, or
    one whose own pauses broke the objective, makes the run *generator-limited*, and what was not measured at all is *no data*.

    :param foregone: the objective's name. :param our_drops: see :func:`~pytest_loadtest.verdict.slo.evaluate`.
    """
    objectives = with_tolerances(objectives)
    whole = evaluate(objectives, measurements, limits, our_drops=our_drops)
    short = {finding.objective.name for finding in whole.findings if _too_short(finding, measurements)}
    told = [objective for objective in objectives if objective.name not in short]
    verdict = evaluate(told, measurements, limits, our_drops=our_drops)
    if verdict.outcome in (Outcome.NO_DATA, Outcome.GENERATOR_LIMITED):
        return replace(verdict, findings=whole.findings)
    own = next((generator_caused(objective, measurements) for objective in objectives if objective.name == foregone), None)
    if own is not None:
        return Verdict(outcome=Outcome.GENERATOR_LIMITED, findings=whole.findings, reasons=(own, REMEDY))
    findings = (_missed(finding) if finding.objective.name == foregone else finding for finding in whole.findings)
    return Verdict(outcome=Outcome.MISSED, findings=tuple(findings))


def _too_short(finding: Finding, measurements: Measurements) -> bool:
    """Whether nothing but the number of samples, or of windows, keeps a percentile from being told."""
    p = finding.objective.percentile
    if finding.objective.window is not None or finding.objective.section == "drift":
        return finding.outcome is Outcome.NO_DATA
    if finding.outcome is not Outcome.NO_DATA or p is None or not 0 < finding.samples < samples_needed(p):
        return False
    return not any(measurements.latencies[kind].negative for kind in KINDS.values() if kind in measurements.latencies)


def _missed(finding: Finding) -> Finding:
    if finding.outcome is Outcome.MISSED:
        return finding
    text = f"{finding.objective.name}: could no longer hold when the run was ended early ({exact(finding.samples)} samples)"
    return replace(finding, outcome=Outcome.MISSED, observed=None, text=text)
