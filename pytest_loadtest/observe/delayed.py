"""From what was sampled of a broker's index of delayed messages to what is judged. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.metrics.delayed_index import DelayedIndex

if TYPE_CHECKING:
    from pytest_loadtest.observe.telemetry import Telemetry


def fullest(telemetry: Telemetry | None) -> DelayedIndex | None:
    """The sample with most messages delayed; None where none has any."""
    if telemetry is None:
        return None
    messages, size = telemetry.column("sys.delayed"), telemetry.column("sys.delayedIndex")
    known = np.flatnonzero((messages > 0) & np.isfinite(size))
    if not len(known):
        return None
    at = known[np.argmax(messages[known])]
    return DelayedIndex(bytes=int(size[at]), messages=int(messages[at]))
