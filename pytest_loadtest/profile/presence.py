"""Checks of which keys are present: keys that exclude each other, and required keys.

The rule: they read the text, not the profile, in which defaults have taken the place of missing
keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


EXCLUSIVE = (
    ("testDuration", "testDurationMinutes"),
    ("warmupDuration", "warmupDurationMinutes"),
    ("stages", "testDuration"),
    ("stages", "testDurationMinutes"),
    ("stages", "messages"),
    ("messages", "testDuration"),
    ("messages", "testDurationMinutes"),
    ("deliverAfter", "deliverAt"),
    ("messageSizeDistribution", "messageSize"),
    ("messageSizeDistribution", "payloadFile"),
    ("driver.maxPendingMessages", "driver.pendingQueueSize"),
    ("skew.weights", "skew.zipf"),
    ("skew.messageSizes", "messageSize"),
    ("skew.messageSizes", "messageSizeDistribution"),
    ("skew.messageSizes", "payloadFile"),
    ("skew.messageSizes", "payload"),
    ("payload.template", "payload.templates"),
)
"""Pairs of which at most one may be present; messages suggest to keep the first."""
UNSENT = frozenset({("messages", "testDuration"), ("messages", "testDurationMinutes")})
"""Pairs that do not exclude each other if ``messages`` is 0.

The run sends nothing then, for that time.
"""
DURATION = ("testDuration", "testDurationMinutes", "messages", "stages")
SIZE = ("messageSize", "messageSizeDistribution", "skew.messageSizes", "payload")


def presence(value: Mapping[str, Any], *, omb: bool = False) -> Iterator[Problem]:
    """Yield the problems of one workload.

    :param value: as it is written.
    :param omb: it is a workload file of OMB, which searches the highest rate if there is none.
    """
    silent = value.get("messages") == 0
    for keep, other in EXCLUSIVE:
        if silent and (keep, other) in UNSENT:
            continue
        if _has(value, keep) and _has(value, other):
            message = f"{keep} and {other} exclude each other"
            path = tuple(other.split("."))
            yield Problem(path, message, f"keep one, e.g. {keep}", at_key=True)
    sends = value.get("producersPerTopic") != 0 and not silent
    rated = "producerRate" in value or "search" in value or all_stages_rated(value)
    searches = "search" in value or value.get("producerRate") == 0 or (omb and not rated)
    if sends and not rated and not searches:
        remedy = "write producerRate: 1000"
        if value.get("stages"):
            remedy += ", or a rate in each stage"
        yield Problem((), "producerRate is missing", remedy)
    lasting = [key for key in DURATION if key in value and not (silent and key == "messages")]
    if not lasting and not (sends and searches):
        remedy = "write testDuration: 30s, or OMB's testDurationMinutes: 1"
        yield Problem((), "testDuration is missing", remedy)
    if sends and not any(_has(value, name) for name in SIZE):
        remedy = 'write messageSize: 1KB, or messageSizeDistribution: {"0-256": 3, "256-1KB": 1}'
        yield Problem((), "messageSize is missing", remedy)


def all_stages_rated(value: Mapping[str, Any]) -> bool:
    """Return whether there are stages, each with a rate: ``producerRate`` would have no effect."""
    stages = value.get("stages")
    if not isinstance(stages, list) or not stages:
        return False
    return all(isinstance(stage, dict) and "rate" in stage for stage in stages)


def _has(value: Any, dotted: str) -> bool:
    for step in dotted.split("."):
        if not isinstance(value, dict) or step not in value:
            return False
        value = value[step]
    return True
