"""What the broker counts itself, held against our counts. Pure. Decision 020."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_loadtest.observe.telemetry import COUNTERS
from pytest_loadtest.values.wording import exact

if TYPE_CHECKING:
    from pytest_loadtest.metrics.measurements import Counts
    from pytest_loadtest.observe.telemetry import Column, Telemetry


class Disagreement(NamedTuple):
    """A count of the broker that contradicts ours, as a sentence.

    :param certain: other clients or a restart of the counter cannot explain it: the run is no data. Otherwise it is a note.
    """

    text: str
    certain: bool = True
    compared: bool = True  # else the counts could not be: nothing speaks against ours


def disagreement(
    telemetry: Telemetry, counts: Counts, subscriptions: int, *, shared: bool = False, restarted: bool = False
) -> Disagreement | None:
    """The gravest contradiction between the broker's counts and ours, or that they cannot be compared any more although they could at
    first; None if there is neither, or the broker does not report its counts.

    :param shared: the broker was there before the run, so others may use it and its operators may move topics.
    :param restarted: the run restarted it on purpose: its counters began anew.
    """
    unknown = None if restarted else _uncompared(telemetry, shared)
    found = [one for one in (_unseen(telemetry, counts, shared), _uncounted(telemetry, counts, subscriptions, shared), unknown) if one]
    return max(found, key=lambda one: one.certain, default=None)


def _unseen(telemetry: Telemetry, counts: Counts, shared: bool) -> Disagreement | None:
    """Fewer messages at the broker than it confirmed to us, or delivered to us.

    It may have more: a chunked message is several to it, one that was sent again is another, and others may use the topic. It can have
    fewer only if its counter began anew. A broker of our own loads each topic once; on another's cluster a topic that was unloaded and
    loaded again is not noticed unless the broker reports when it loaded each of them.
    """
    copies = counts.received + counts.duplicates
    for column, metric, did, ours, we in (
        ("sys.totalIn", "pulsar_in_messages_total", "took", counts.acked, "were acknowledged to us"),
        ("sys.totalOut", "pulsar_out_messages_total", "gave out", copies, "were received"),
    ):
        total = _known(telemetry, column)
        if len(total) and not _fell(total) and total[-1] < ours:
            certain = not shared or bool((telemetry.column("sys.continuous")[-1:] == 1).any())
            theirs = exact(int(total[-1]))
            text = f"the broker {did} {theirs} messages ({metric}), and {exact(ours)} {we} by our count: one of the two is wrong"
            return Disagreement(text if certain else f"{text}, or it began to count anew when it loaded a topic again", certain)
    return None


def _uncounted(telemetry: Telemetry, counts: Counts, subscriptions: int, shared: bool) -> Disagreement | None:
    """More messages dropped by the broker than we found missing.

    Ours may be more: what a lost connection cost is no drop to the broker, and what it dropped in the first second may be in its first
    number already. Messages that were not acknowledged are lost to nobody, and may be among its drops.
    """
    dropped = _known(telemetry, "sys.dropped")
    if len(dropped) < 2 or _fell(dropped) or _fell(_known(telemetry, "sys.uptime")):  # it was started anew meanwhile
        return None
    theirs, ours = int(dropped[-1] - dropped[0]), counts.lost + (counts.unknown + counts.failed) * subscriptions
    if theirs <= ours:
        return None
    return Disagreement(
        f"the broker dropped {exact(theirs)} messages ($SYS/broker/publish/messages/dropped), and {exact(ours)} are missing by our count:"
        " another client of it missed the others, or a count is wrong",
        certain=not shared,
    )


def _uncompared(telemetry: Telemetry, shared: bool) -> Disagreement | None:
    """The source of the broker's counts was lost while they could be compared with ours."""
    why = telemetry.lost.get(COUNTERS)
    if why is None:
        return None
    told = [np.isfinite(column) for name, column in telemetry.columns.items() if name.startswith("sys.")]
    rows = np.flatnonzero(np.any(told, axis=0)) if told else np.zeros(0, np.int64)
    # Pulsar's source says in each of its rows whether its counts can be compared, mosquitto's drops always can
    continuous = telemetry.column("sys.continuous")[rows[-1:]]
    drops = len(_known(telemetry, "sys.dropped")) > 0
    if not drops and not np.isfinite(continuous).any():
        return None
    certain = not shared or bool((continuous == 1).any())
    return Disagreement(f"{why}: the broker's counts cannot be compared with ours", certain, compared=False)


def _known(telemetry: Telemetry, name: str) -> Column:
    column = telemetry.column(name)
    return column[np.isfinite(column)]


def _fell(values: Column) -> bool:
    """Whether a counter was set back."""
    return bool((np.diff(values) < 0).any())
