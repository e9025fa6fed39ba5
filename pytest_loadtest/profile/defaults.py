"""Defaults of a profile's keys that follow from other keys. ``data`` is what was read of the keys before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from pytest_loadtest.profile.sections import SearchSection
from pytest_loadtest.values.quantities import MINUTE, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.profile.stages import Stage


def minutes(minutes: float | None, default: int) -> int:
    """ns. :param default: where it is not written."""
    return default if minutes is None else round(minutes * MINUTE)


def duration(data: dict[str, Any]) -> int:
    """As long as the stages, or as a fixed number of messages takes; otherwise what OMB's spelling says."""
    if data.get("stages"):
        stages: tuple[Stage, ...] = data["stages"]
        return sum(stage.duration for stage in stages)
    if data.get("messages") and data.get("producer_rate"):
        return math.ceil(int(data["messages"]) * SECOND / float(data["producer_rate"]))
    return minutes(data.get("test_duration_minutes"), 0)


def search(data: dict[str, Any]) -> SearchSection | None:
    """Of a workload that names no rate."""
    sends = data.get("producers_per_topic") and data.get("messages") != 0
    return SearchSection() if data.get("producer_rate") == 0 and sends else None


def by_default(search: object) -> object:
    """``search: true``."""
    return {} if search is True else search


def representative(data: dict[str, Any]) -> Literal["midpoint", "uniform"]:
    """Which sizes stand for a range, where the profile does not say."""
    return "uniform" if data.get("payloads_per_bucket", 1) > 1 else "midpoint"


def warmup(data: dict[str, Any]) -> int:
    """OMB's default is a minute, but nobody who writes ``testDuration: 5s`` wants that."""
    in_minutes = data.get("test_duration_minutes") is not None
    return minutes(data.get("warmup_duration_minutes"), MINUTE if in_minutes else 0)
