"""The times in which a cluster had too few bookies to store messages.

They follow from the outages that a test made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any, Final, NamedTuple

from pytest_loadtest.brokers.base import restarts_of
from pytest_loadtest.values.quantities import format_duration

_ROLE: Final = "bookie "
_DELAY: Final = "bookkeeper_delayEnsembleChange"


class _Outage(NamedTuple):
    number: str
    down: float
    ready: float


def bookie_outage_notes(
    broker: Mapping[str, Any], ensemble_size: int | None, ack_quorum: int | None
) -> Iterator[str]:
    """Yield a sentence for each time in which no message could be stored.

    :param broker: ``broker`` of ``results.json``: its settings, and the outages in ``restarts``.
    :param ensemble_size, ack_quorum: of the run's namespace; None: the broker's default.
    """
    settings = broker.get("settings", {})
    outages = []
    for restart in restarts_of(broker):
        if restart.node.startswith(_ROLE):
            ready = math.inf if restart.ready is None else restart.ready
            outages.append(_Outage(restart.node.removeprefix(_ROLE), restart.down, ready))
    if not outages:
        return
    bookies = int(settings["bookies"])
    # BookKeeper's client replaces a lost bookie of a ledger at once. Without a spare one it closes
    # the ledger, and a new one needs all.
    delayed = settings.get(_DELAY) == "true"
    key, reason = (
        ("AckQuorum", "an entry needs acknowledgements of")
        if delayed
        else ("EnsembleSize", "a new ledger needs")
    )
    own = ack_quorum if delayed else ensemble_size
    # A cluster that the run started applies at most as many as it has.
    needed = min(own or int(settings[f"managedLedgerDefault{key}"]), bookies)
    for down, start, end in _spans(outages):
        if bookies - len(down) < needed:
            which = (
                f"bookie {down[0]} of {bookies} was"
                if len(down) == 1
                else f"bookies {' and '.join(down)} of {bookies} were"
            )
            until = "on" if end == math.inf else f"to {format_duration(end)}"
            yield (
                f"{which} down from {format_duration(start)} into the phase {until}: {reason}"
                f" {needed} bookies"
                f" ({key[0].lower()}{key[1:]}), so no message could be stored"
            )


def _spans(outages: list[_Outage]) -> Iterator[tuple[tuple[str, ...], float, float]]:
    """Yield each time in which the same bookies were down, with their numbers, in order of time."""
    edges = sorted({edge for one in outages for edge in (one.down, one.ready)})
    parts = []
    for start, end in pairwise(edges):
        numbers = sorted(bookie.number for bookie in outages if bookie.down <= start < bookie.ready)
        parts.append((tuple(numbers), start, end))
    for down, same in groupby(parts, key=lambda part: part[0]):
        spans = list(same)
        if down:
            yield down, spans[0][1], spans[-1][2]
