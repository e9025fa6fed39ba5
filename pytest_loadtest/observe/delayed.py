"""From what was sampled of a broker's index of delayed messages to what is judged. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.metrics.delayed_index import DelayedIndex
from pytest_loadtest.observe.telemetry import COUNTERS

if TYPE_CHECKING:
    from pytest_loadtest.observe.telemetry import Telemetry


def fullest(telemetry: Telemetry | None) -> DelayedIndex | None:
    """The sample with most messages delayed; None if no sample has any, or if the samples end before the phase does: the fullest one may
    be missing."""
    if telemetry is None or COUNTERS in telemetry.lost:
        return None
    messages, size = telemetry.column("sys.delayed"), telemetry.column("sys.delayedIndex")
    known = np.flatnonzero((messages > 0) & np.isfinite(size))
    if not len(known):
        return None
    at = known[np.argmax(messages[known])]
    return DelayedIndex(bytes=int(size[at]), messages=int(messages[at]))
