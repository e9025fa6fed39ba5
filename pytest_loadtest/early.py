"""What can be told of objectives before a run ends, or before it starts: arithmetic on counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_loadtest.measurements import SUB_BITS, bucket_bounds
from pytest_loadtest.quantities import SECOND
from pytest_loadtest.slo import samples_needed
from pytest_loadtest.wording import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_loadtest.objectives import Objective


def lowest_rate(objectives: Iterable[Objective], hold: int) -> float:
    """The lowest rate, msg/s, at which a hold has messages enough for every percentile, with a twentieth to spare; 0 without any."""
    needed = [samples_needed(o.percentile) for o in objectives if o.percentile is not None]
    return 1.05 * max(needed, default=0) / hold * SECOND


def exceeds(objective: Objective) -> int | None:
    """From which latency on, in ns, a message counts in ``exceeded`` of :func:`certainly_missed`; None where the objective has no such.

    A percentile is reported as the middle of its HDR bucket, so a latency just above the bound may still be reported below it.
    """
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
    :param exceeded: by objective name, how many so far: of a latency, messages that took :func:`exceeds` or longer or are that old and
        still outstanding; of loss, dropped, failed and the like, the count itself. A name that is left out is not judged.
    """
    return next((o.name for o in objectives if o.maximum is not None and _broken(o, planned, exceeded.get(o.name, 0))), None)


def _broken(objective: Objective, planned: int, count: int) -> bool:
    """Whether ``count`` is beyond what the upper bound allows."""
    assert objective.maximum is not None
    if objective.unit == "messages":
        return count > objective.maximum
    if objective.unit == "ratio":
        return count > objective.maximum * (1 + ROUNDING) * planned
    if exceeds(objective) is None:
        return False
    p = objective.percentile
    if p is None:
        return count > 0
    return planned >= samples_needed(p) and count > planned - math.ceil(p / 100 * planned - 1e-9)
