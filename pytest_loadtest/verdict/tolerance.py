"""Tolerances: messages that a profile allows never to come.

The rule: the largest latency of a kind is that of the messages that came, if the profile's own
bounds on loss, failed and dropped allow all the others; otherwise it is infinite. The implicit
bounds allow none: 1 % of failures is meant for a reconnect, and does not say how late a message may
be.

:func:`~pytest_loadtest.verdict.slo.evaluate` attaches the bounds and the observations of latencies
apply them, in the controller's thread that judges a run, and in the command ``aggregate``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.values.wording import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.metrics.measurements import Breakdown, Counts, Measurements
    from pytest_loadtest.verdict.objectives import Objective

TOLERATING: Final = ("loss", "failed", "dropped")


def tolerances(objectives: Iterable[Objective]) -> tuple[Objective, ...]:
    """Return the explicit upper bounds on loss, failed and dropped."""
    explicit = [objective for objective in objectives if not objective.implicit]
    return tuple(
        bound for bound in explicit if bound.maximum is not None and bound.metric in TOLERATING
    )


def joint_tolerances(
    objectives: Iterable[Objective], further: Iterable[Objective]
) -> tuple[Objective, ...]:
    """Return the tolerances of a stage. :param further: see :func:`with_tolerances`."""
    bounds = tolerances(objectives)
    bounded = {(bound.metric, bound.bucket) for bound in bounds}
    inherited = [
        bound for bound in tolerances(further) if (bound.metric, bound.bucket) not in bounded
    ]
    return (*bounds, *inherited)


def with_tolerances(
    objectives: Iterable[Objective], further: Sequence[Objective] = ()
) -> tuple[Objective, ...]:
    """Return the objectives; each bound on ``max`` has the bounds that tolerate missing messages.

    :param further: for a stage, the objectives of the whole profile: each applies if the stage has
        none on the same metric.
    """
    objectives = tuple(objectives)
    bounds = joint_tolerances(objectives, further)

    def with_bounds(objective: Objective) -> Objective:
        if objective.statistic == "max" and objective.metric != "custom":
            return replace(objective, tolerances=bounds)
        return objective

    return tuple(with_bounds(objective) for objective in objectives)


def tolerated(
    bounds: Sequence[Objective],
    kind: str,
    measurements: Measurements,
    part: Breakdown | None = None,
) -> bool:
    """Return whether explicit bounds allow all messages missing from a kind of latencies.

    Each cause needs a bound of its own.

    :param bounds: see :func:`tolerances`. :param kind: key in measurements.
    :param part: this bucket only.
    """
    missing = _missing(kind, measurements, part)
    causes = [metric for metric, count in missing.items() if count]
    return all(is_allowed(metric, bounds, measurements, part) for metric in causes)


def _missing(kind: str, measurements: Measurements, part: Breakdown | None) -> dict[str, int]:
    """Return the number of messages that never came, by the metric that counts the cause."""
    counted = measurements.counts if part is None else part
    dropped = counted.offered - counted.sent
    match LATENCIES[kind].never_came:
        case "sends":
            return {"dropped": dropped}
        case "acknowledgements":
            return {"dropped": dropped, "failed": counted.sent - counted.acked}
        case "subscriptions":
            # No bound tolerates a subscription that received nothing.
            return {"silent": measurements.never_came(kind)}
    if counted.lost is None:
        # The service chooses, so none is known to be missing.
        return {}
    undelivered = counted.offered * measurements.fan_out - counted.received
    dropped_deliveries = dropped * measurements.fan_out
    # A message without an answer may have been delivered all the same, so the failed ones are what
    # neither loss nor drops explain.
    failed_deliveries = undelivered - counted.lost - dropped_deliveries
    return {"loss": counted.lost, "dropped": dropped, "failed": failed_deliveries}


def is_allowed(
    metric: str,
    bounds: Sequence[Objective],
    measurements: Measurements,
    part: Breakdown | None = None,
) -> bool:
    """Return whether a bound on this metric, the bucket's or the run's, exists and holds."""
    fan_out = measurements.fan_out
    if part is not None:
        bound = _bound_on(metric, part.name, bounds)
        if bound is not None:
            return _holds(bound, part, fan_out)
    bound = _bound_on(metric, "", bounds)
    return bound is not None and _holds(bound, measurements.counts, fan_out)


def _bound_on(metric: str, bucket: str, bounds: Sequence[Objective]) -> Objective | None:
    """Return the first bound on a metric. :param bucket: its name; empty: the whole run."""
    for bound in bounds:
        if bound.metric == metric and bound.bucket == bucket:
            return bound
    return None


def _holds(bound: Objective, counts: Counts | Breakdown, fan_out: int) -> bool:
    if bound.metric == "loss":
        if counts.lost is None:
            return False
        count = counts.lost
        base = counts.acked * fan_out
    elif bound.metric == "dropped":
        count = counts.offered - counts.sent
        base = counts.offered
    else:
        count = counts.sent - counts.acked
        base = counts.offered
    assert bound.maximum is not None
    allowed = bound.maximum * (1 + ROUNDING)
    if bound.unit == "ratio":
        allowed *= base
    return count <= allowed
