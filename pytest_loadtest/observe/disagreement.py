"""What the broker counts itself, held against our counts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Counts
    from pytest_loadtest.observe.telemetry import Telemetry


def disagreement(telemetry: Telemetry, counts: Counts, subscriptions: int) -> str | None:
    """Counts of the broker that ours cannot be true beside, in a sentence; None where there are none, or the broker does not tell."""
    return _uncounted(telemetry, counts, subscriptions) or _unseen(telemetry, counts)


def _unseen(telemetry: Telemetry, counts: Counts) -> str | None:
    """How many fewer messages it had than we say that it confirmed, or delivered.

    It may have more: a chunked message is several to it, one that was sent again is another, and others may use the topic.
    """
    copies = counts.received + counts.duplicates
    for column, metric, did, ours, we in (
        ("sys.totalIn", "pulsar_in_messages_total", "took", counts.acked, "were acknowledged to us"),
        ("sys.totalOut", "pulsar_out_messages_total", "gave out", copies, "were received"),
    ):
        total = telemetry.column(column)
        total = total[np.isfinite(total)]
        if len(total) and total[-1] < ours:
            theirs = exact(int(total[-1]))
            return f"the broker {did} {theirs} messages ({metric}), and {exact(ours)} {we} by our count: one of the two is wrong"
    return None


def _uncounted(telemetry: Telemetry, counts: Counts, subscriptions: int) -> str | None:
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
