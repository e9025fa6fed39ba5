"""Differences between two plays that prove nothing: a loop's tick falls elsewhere, or one message falls on the other side of an edge.

A worker's loop hands over messages at its ticks, which a millisecond separates; where they fall depends on clocks and on everything before.
A throughput counts messages in a time that is shifted by the median latency, so that the first or the last one may fall out of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from simulation.world import MS, TARGET

if TYPE_CHECKING:
    from simulation.truth import Played

TICKS: Final = 2 * MS
"""ns by which a latency may differ: a tick on the way out, and one of the reading loop."""
RESOLUTION: Final = 0.0011
"""Relative error of a percentile: histograms keep three digits (docs/reference/results.md)."""
STRUCK: Final = ("loss", "duplicates", "outOfOrder", "failed", "corrupt", "foreign", "silent")
"""Metrics that count what the target's faults do, each in its time: a pause moves messages into that time, or out of it."""
EDGE: Final = 2
"""Messages at the edges of the measured time."""


def within_margins(played: Played, other: Played) -> bool:
    """Return whether every objective that one play misses and the other meets differs by no more than the margins."""
    ours, theirs = _findings(played), _findings(other)
    for name, finding in ours.items():
        counterpart = theirs.get(name)
        if counterpart is None:
            return False
        outcomes = {finding["outcome"], counterpart["outcome"]}
        if outcomes == {"met", "missed"} and not _is_close(finding, counterpart, played):
            return False
    return True


def _findings(played: Played) -> dict[str, dict[str, Any]]:
    verdict = (played.results or {}).get("verdict", {})
    return {
        f"{finding['name']} {finding.get('maximum')} {finding.get('minimum')}": finding
        for finding in verdict.get("findings", ())
    }


def _is_close(finding: dict[str, Any], other: dict[str, Any], played: Played) -> bool:
    if finding["windows"]:
        return False
    if finding["metric"] in STRUCK and played.world.of_side(TARGET):
        return True
    if finding["metric"] == "throughput":
        assert played.results is not None
        subscriptions = played.results["measurements"]["subscriptions"]
        counted = abs(finding["samples"] - other["samples"])
        return bool(counted <= EDGE * max(subscriptions, 1))
    values = (finding["observed"], other["observed"])
    if finding["unit"] != "ns" or None in values:
        return False
    return bool(abs(values[0] - values[1]) <= TICKS + RESOLUTION * max(values))
