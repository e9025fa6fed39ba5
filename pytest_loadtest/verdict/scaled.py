"""The objectives of a profile as they bound a scaled run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pytest_loadtest.verdict.objectives import Objective


def scale(objectives: Iterable[Objective], rate: float, messages: float, written: Collection[str] = ()) -> tuple[Objective, ...]:
    """The objectives of a scaled run: absolute throughput and counts shrink with the load, shares and durations stay.

    :param rate: of the run, by the profile's. :param messages: that the run plans, by those that the profile does.
    :param written: keys of the section (``loss``, ``buckets``) that were written for a scaled run: those stay too.
    """
    return tuple(objective if objective.key in written else _scaled(objective, rate, messages) for objective in objectives)


def _scaled(objective: Objective, rate: float, messages: float) -> Objective:
    """Counts are rounded down: a tolerance never grows by it."""
    if objective.unit == "msg/s":
        low, high = (bound and bound * rate for bound in (objective.minimum, objective.maximum))
    elif objective.unit == "messages":
        low, high = (bound and math.floor(bound * messages + 1e-9) for bound in (objective.minimum, objective.maximum))
    else:
        return objective
    return replace(objective, minimum=low, maximum=high)
