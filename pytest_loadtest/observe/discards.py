"""The broker's own count of messages that it dropped, held against ours. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Counts
    from pytest_loadtest.observe.telemetry import Telemetry


def uncounted(telemetry: Telemetry, counts: Counts, subscriptions: int) -> str | None:
    """How many more the broker dropped than we found missing, in a sentence; None where it did not, or does not tell.

    Ours may be more: what a lost connection cost is no drop to the broker, and what it dropped in the first second may be in its first
    number already. Messages that were not acknowledged are lost to nobody, and may be among its drops.
    """
    dropped = telemetry.column("sys.dropped")
    dropped = dropped[np.isfinite(dropped)]
    if len(dropped) < 2 or (np.diff(dropped) < 0).any():  # it was started anew meanwhile
        return None
    theirs, ours = int(dropped[-1] - dropped[0]), counts.lost + (counts.unknown + counts.failed) * subscriptions
    if theirs <= ours:
        return None
    return (
        f"the broker dropped {exact(theirs)} messages ($SYS/broker/publish/messages/dropped), and {exact(ours)} are missing by our count:"
        " another client of it missed the others, or a count is wrong"
    )
