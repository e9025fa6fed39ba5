"""Judgement before the end of a run: objectives that can no longer be met, and runs ended for that.

The rule: a run may end once a count of the whole hold is certainly beyond a bound, whatever
follows. Such a run is never *met*.

While load runs, the watches of :mod:`pytest_loadtest.fleet.watches` call :func:`certainly_missed`,
in the controller's process and under the rendezvous' lock. The run is judged in the controller's
thread that answers the last meeting, and in the command ``aggregate``. The plan asks for the lowest
rate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.histogram import SUB_BITS, bucket_bounds, rank
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.values.wording import ROUNDING, exact
from pytest_loadtest.verdict.excuses import generator_caused
from pytest_loadtest.verdict.finding import Finding, Outcome, Verdict
from pytest_loadtest.verdict.grammar import OUTPUT_SHARE, SILENT
from pytest_loadtest.verdict.observations import KINDS, samples_needed
from pytest_loadtest.verdict.slo import REMEDY, EvidenceLimits, causes_at_target, evaluate
from pytest_loadtest.verdict.tolerance import with_tolerances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective


def lowest_rate(objectives: Sequence[Objective], hold: int, deliveries: int = 1) -> float:
    """Return the lowest rate, msg/s, at which a hold has enough messages to be judged, plus 5 %.

    0 if one message is enough. A percentile needs its samples. The throughput of a window counts
    all messages except about half a message at its end (decision 021): of 8 messages that is more
    than the 3 % that ``throughput: 97%`` allows. The same limit applies to a hold without windows.

    :param deliveries: copies of each message: an end-to-end latency has a sample for each, all
        others have one for the message.
    """
    rates = [0.0]
    for objective in objectives:
        duration = _judged_time(objective, hold)
        minimum = objective.minimum
        if objective.percentile is not None:
            copies = max(deliveries, 1) if objective.metric == "endToEndLatency" else 1
            rates.append(samples_needed(objective.percentile) / copies / duration)
        elif _is_share_of_rate(objective) and minimum is not None and minimum < 1:
            rates.append(0.5 / (1 - minimum) / duration)
    return 1.05 * max(rates) * SECOND


def _is_share_of_rate(objective: Objective) -> bool:
    if objective.metric != "throughput" or objective.unit != "ratio":
        return False
    return not objective.bucket and objective.section != "drift"


def _judged_time(objective: Objective, hold: int) -> int:
    """Return the time over which an objective is judged, ns."""
    if objective.window:
        return objective.window
    return hold // 10 if objective.section == "drift" else hold


def exceeds(objective: Objective) -> int | None:
    """Return the smallest latency, ns, that :func:`certainly_missed` counts against the bound.

    None for other objectives. A percentile is reported as the middle of its HDR bucket, so a
    latency just above the bound may still be reported below it.
    """
    if objective.window is not None:
        return None  # A late message does not decide how many windows will miss.
    if objective.unit != "ns" or objective.maximum is None:
        return None
    bound = int(objective.maximum)
    if objective.statistic == "max":
        return bound + 1
    if objective.percentile is None:
        return None
    # The bucket of the bound: its middle is reported for all latencies in it.
    shift = max(bound.bit_length() - 1 - SUB_BITS, 0)
    low, width = bucket_bounds((shift << SUB_BITS) + (bound >> shift))
    middle = low + width // 2
    return bound + 1 if middle > objective.maximum else low + width


def certainly_missed(
    objectives: Iterable[Objective], planned: int, exceeded: Mapping[str, int]
) -> str | None:
    """Return the name of the first objective that cannot be met any more, whatever follows.

    None if each still can. A percentile is the nearest rank of :meth:`Histogram.percentile`: p99 of
    n holds while ``n − ceil(0.99·n)`` or fewer lie above the bound. If the whole hold has too few
    samples for a percentile, it is left to the verdict, which is *no data*.

    :param planned: deliveries planned for the whole hold, of all subscriptions (messages, without
        subscriptions). A number that turns out too high is safe.
    :param exceeded: objective name → number so far. For a latency: first copies that took
        :func:`exceeds` or longer, and outstanding messages of that age. For loss, dropped, failed:
        the count itself. Objectives without an entry are not judged.
    """
    for objective in objectives:
        if _broken(objective, planned, exceeded.get(objective.name, 0)):
            return objective.name
    return None


def _broken(objective: Objective, planned: int, count: int) -> bool:
    """Return whether ``count`` is more than the upper bound allows."""
    maximum = objective.maximum
    if maximum is None or objective.section == "drift" or objective.window is not None:
        return False
    if objective.unit == "messages":
        return count > maximum
    if objective.unit == "ratio":
        return count > maximum * (1 + ROUNDING) * planned
    return exceeds(objective) is not None and _too_slow(objective.percentile, planned, count)


def _too_slow(percentile: float | None, planned: int, count: int) -> bool:
    """Return whether so many late deliveries break a percentile, or the maximum (None)."""
    if percentile is None:
        return count > 0
    if planned < samples_needed(percentile):
        return False
    return count > planned - rank(percentile, planned)


def evaluate_ended(
    objectives: Sequence[Objective],
    measurements: Measurements,
    limits: EvidenceLimits,
    unattainable: str,
) -> Verdict:
    """Judge a run that was ended as soon as an objective could no longer be met. It is never *met*.

    That objective is missed, even if the measured part alone meets it: :func:`certainly_missed`
    counts over the whole hold. Percentiles with too few samples in that part are left open.
    Everything else is as in :func:`~pytest_loadtest.verdict.slo.evaluate`: a slow generator, or one
    whose pauses broke the objective, makes the run *generator-limited*; a missing measurement is
    *no data*.

    :param unattainable: the objective's name.
    """
    objectives = with_tolerances(objectives)
    whole = evaluate(objectives, measurements, limits)
    unmeasured = {
        finding.objective.name for finding in whole.findings if _too_short(finding, measurements)
    }
    judgeable = [objective for objective in objectives if objective.name not in unmeasured]
    verdict = evaluate(judgeable, measurements, limits)
    if verdict.outcome in (Outcome.NO_DATA, Outcome.GENERATOR_LIMITED):
        return replace(verdict, findings=whole.findings)
    own = None
    for objective in objectives:
        if objective.name == unattainable:
            own = generator_caused(objective, measurements)
    if own is not None:
        return Verdict(
            outcome=Outcome.GENERATOR_LIMITED, findings=whole.findings, reasons=(own, REMEDY)
        )
    findings = tuple(_with_miss(finding, unattainable) for finding in whole.findings)
    return Verdict(
        outcome=Outcome.MISSED, findings=findings, reasons=causes_at_target(measurements)
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
    """Return whether a finding has no data only because the run was too short.

    Then it has too few samples, or windows; or of a service that chooses there are too few outputs
    to decide.
    """
    objective = finding.objective
    if finding.outcome is not Outcome.NO_DATA:
        return False
    if objective.metric == OUTPUT_SHARE:
        return finding.samples > 0
    if objective.metric == SILENT and measurements.selective:
        return measurements.silent is not None
    if objective.window is not None or objective.section == "drift":
        return True
    percentile = objective.percentile
    if percentile is None or not 0 < finding.samples < samples_needed(percentile):
        return False
    # Values below zero are another reason, which more samples would not remove.
    measured = measurements.latencies
    return not any(measured[kind].negative for kind in KINDS.values() if kind in measured)


def _with_miss(finding: Finding, unattainable: str) -> Finding:
    """Return the finding; one about the unattainable objective is a miss."""
    if finding.objective.name != unattainable or finding.outcome is Outcome.MISSED:
        return finding
    reason = "could no longer be met when the run was ended early"
    text = f"{unattainable}: {reason} ({exact(finding.samples)} samples)"
    return replace(finding, outcome=Outcome.MISSED, observed=None, text=text)
