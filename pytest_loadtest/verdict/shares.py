"""The share of messages with an output of a service that chooses which ones have one.

The rule: such a share is a sample of what the service does, so it is judged by its interval. It is
met only if all of the interval is within the bounds, and missed only if all of it is outside.

:mod:`~pytest_loadtest.verdict.observations` calls it in the controller's thread that judges a run,
and in the command ``aggregate``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_loadtest.values.wording import exact, format_value

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Measurements
    from pytest_loadtest.verdict.objectives import Objective

NORMAL_99: Final = 2.5758293035489004
"""99 % of a normal distribution lie within so many standard deviations of its mean."""

FEW_CHOSEN: Final = (
    "each topic and stream has so few messages that the service may have chosen none of them"
)


def known_due(measurements: Measurements) -> int:
    """Return the number of deliveries that are known to have been due: of a service that chooses,
    those that came, if any did.
    """
    counts = measurements.counts
    most = counts.acked * measurements.fan_out
    return counts.received or most if measurements.selective else most


def share_interval(share: float, trials: int) -> tuple[float, float]:
    """Return the Wilson score interval of an observed share, 99 %.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, Journal of
    the American Statistical Association 22 (1927), 209 to 212: all shares p whose distance from the
    observed one is at most z standard deviations √(p (1 − p) / n).

    :param trials: 1 or more.
    """
    z2 = NORMAL_99**2 / trials
    center = share + z2 / 2
    spread = math.sqrt(z2 * (share * (1 - share) + z2 / 4))
    low = max(center - spread, 0.0) / (1 + z2)
    high = min((center + spread) / (1 + z2), 1.0)
    return low, high


def observe_share(
    objective: Objective, measurements: Measurements
) -> tuple[float | None, int, str]:
    """Return the share of acknowledged messages with an output, the most that could come, and what
    it rests on; None in place of a share whose interval does not decide.

    The subscriptions get the same outputs, so each must hold the bounds by itself, and they are no
    further trials. The first one is observed that is certainly outside, or else is not decided.
    """
    answered = measurements.answered
    acked = measurements.counts.acked
    if not answered or not acked:
        return None, 0, "nothing was acknowledged, so no output was due"
    due = acked * measurements.subscriptions // len(answered)
    minimum = objective.minimum or 0.0
    maximum = 1.0 if objective.maximum is None else objective.maximum
    judged = []
    for subscription, came in enumerate(answered):
        low, high = share_interval(came / due, acked)
        is_within = low >= minimum and high <= maximum
        is_outside = high < minimum or low > maximum
        judged.append((int(is_within) - int(is_outside), subscription, came, low, high))
    decided, subscription, came, low, high = min(judged)

    basis = f"{exact(came)} of {exact(due)} have an output"
    if len(answered) > 1:
        basis += f" on subscription {subscription}"
    basis += f"; with 99 % certainty {format_value(low, 'ratio')} to {format_value(high, 'ratio')}"
    if decided:
        return came / due, due, basis
    bounds = f"{format_value(minimum, 'ratio')} to {format_value(maximum, 'ratio')}"
    return None, due, f"{basis}, which does not decide whether it is {bounds}"
