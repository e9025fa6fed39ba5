"""How long connecting took (docs/howto/only-connect.md, docs/glossary.md), from the connections that the target accepted before the load.

Connection ``i`` of the consumers, and then of the producers, is due ``i / connectRate`` after the first one, in whichever worker; without a
rate it is due when it begins. Only runs on the controller's host are judged: other hosts begin by a clock as it was known before the load.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from simulation.violation import Violation
from simulation.world import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.facts import Facts
    from simulation.truth import Connection


RESOLUTION: Final = 0.0011
"""Relative error of a percentile: histograms keep three digits (docs/reference/results.md)."""


def sides(facts: Facts) -> Iterator[list[Connection]]:
    """Yield the connections of the consumers, and those of the producers, in the order in which they began."""
    for side in ("consumers", "producers"):
        of_side = [one for one in facts.connections if one.side == side]
        if of_side:
            yield sorted(of_side, key=lambda one: one.begun)


def connect_latencies(facts: Facts) -> list[int]:
    """Return the latency of each connection, ns. It begins when it is due (:func:`check_connecting`)."""
    return [one.accepted - one.begun for one in facts.connections]


def connected_in_time(facts: Facts) -> tuple[int, int, int] | None:
    """Return the connections that surely, and maybe, were established in time, and all; None without a rate.

    In time is within the span in which they are due, moved by their median latency.
    """
    rate = facts.profile["driver"].get("connectRate")
    if rate is None or not facts.connections:
        return None
    surely = maybe = 0
    for connections in sides(facts):
        end = connections[0].begun + len(connections) * SECOND / rate
        latencies = sorted(one.accepted - one.begun for one in connections)
        shift = latencies[math.ceil(len(latencies) / 2) - 1]
        # The median is that of a histogram, and so is by how much each was too late.
        slack = 2 * RESOLUTION * shift + 2
        surely += sum(one.accepted < end + shift - slack for one in connections)
        maybe += sum(one.accepted < end + shift + slack for one in connections)
    return surely, maybe, len(facts.connections)


def check_connecting(facts: Facts) -> Iterator[Violation]:
    """Connections begin when they are due."""
    rate = facts.profile["driver"].get("connectRate")
    if rate is None or not facts.exact:
        return
    for connections in sides(facts):
        for number, one in enumerate(connections):
            due = connections[0].begun + number * SECOND / rate
            if abs(one.begun - due) > 1:
                text = f"connection {number} of {one.side} began {one.begun - due:.0f} ns after it was due"
                yield Violation("connect", text)
                return
