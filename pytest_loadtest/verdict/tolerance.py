"""Messages that a profile allows never to come: as many as its own bounds on loss, failed and dropped allow.

The implicit bounds allow none: 1 % of failures is meant for a reconnect, and does not say how late a message may be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_loadtest.metrics.catalogue import LATENCIES
from pytest_loadtest.values.wording import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_loadtest.metrics.measurements import Breakdown, Measurements
    from pytest_loadtest.verdict.objectives import Objective

TOLERATING: Final = ("loss", "failed", "dropped")


def tolerances(objectives: Iterable[Objective]) -> tuple[Objective, ...]:
    """Return the explicit upper bounds on loss, failed and dropped."""
    return tuple(
        one
        for one in objectives
        if one.metric in TOLERATING and not one.implicit and one.maximum is not None
    )


def joint_tolerances(
    objectives: Iterable[Objective], further: Iterable[Objective]
) -> tuple[Objective, ...]:
    """Return the tolerances of a stage. :param further: see :func:`with_tolerances`."""
    own = tolerances(objectives)
    named = {(one.metric, one.bucket) for one in own}
    return (*own, *(one for one in tolerances(further) if (one.metric, one.bucket) not in named))


def with_tolerances(
    objectives: Iterable[Objective], further: Sequence[Objective] = ()
) -> tuple[Objective, ...]:
    """Return the objectives, where each bound on ``max`` has the bounds that tolerate messages that never came.

    :param further: for a stage, the objectives of the whole profile: each applies if the stage has none on the same metric.
    """
    objectives = tuple(objectives)
    bounds = joint_tolerances(objectives, further)
    return tuple(
        replace(one, tolerances=bounds)
        if one.statistic == "max" and one.metric != "custom"
        else one
        for one in objectives
    )


def tolerated(
    bounds: Sequence[Objective],
    kind: str,
    measurements: Measurements,
    part: Breakdown | None = None,
) -> bool:
    """Return whether explicit bounds allow all messages missing from a kind of latencies; each cause needs a bound of its own.

    :param bounds: see :func:`tolerances`. :param kind: key in measurements. :param part: this bucket only.
    """
    missing = _missing(kind, measurements, part)
    return all(
        _allowed(metric, bounds, measurements, part) for metric, count in missing.items() if count
    )


def _missing(kind: str, measurements: Measurements, part: Breakdown | None) -> dict[str, int]:
    """Return the number of messages that never came, by the metric that counts the cause."""
    counted = measurements.counts if part is None else part
    dropped, unanswered = counted.offered - counted.sent, counted.sent - counted.acked
    cause = LATENCIES[kind].never_came
    if cause in ("acknowledgements", "sends"):
        return {"dropped": dropped, "failed": unanswered if cause == "acknowledgements" else 0}
    if cause == "subscriptions":
        return {
            "silent": measurements.never_came(kind)
        }  # no bound tolerates one that received nothing
    undelivered = counted.offered * measurements.subscriptions - counted.received
    # a message without an answer may have been delivered all the same
    return {
        "loss": counted.lost,
        "dropped": dropped,
        "failed": undelivered - counted.lost - dropped * measurements.subscriptions,
    }


def _allowed(
    metric: str, bounds: Sequence[Objective], measurements: Measurements, part: Breakdown | None
) -> bool:
    """Return whether a bound on this metric exists and holds: the bucket's own, or that of the whole run."""
    same = [one for one in bounds if one.metric == metric]
    own = [one for one in same if part is not None and one.bucket == part.name]
    for bound in own or [one for one in same if not one.bucket]:
        counts = part if own and part is not None else measurements.counts
        count, of = counts.lost, counts.acked * measurements.subscriptions
        if metric != "loss":  # no bucket has a bound on these
            count, of = (
                (
                    counts.offered - counts.sent
                    if metric == "dropped"
                    else counts.sent - counts.acked
                ),
                counts.offered,
            )
        assert bound.maximum is not None
        return count <= bound.maximum * (1 + ROUNDING) * (of if bound.unit == "ratio" else 1)
    return False
