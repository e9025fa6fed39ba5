"""What must hold of a workload that only connects (``messages: 0``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.kinds.registry import able
from pytest_loadtest.profile.judging import CONNECTING, sections
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.values.quantities import format_rate
from pytest_loadtest.verdict.grammar import CONNECT_RATE, LATENCIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile

_EXAMPLE: Final = "write slo: {connectLatency: {mean: 500ms}}"


_OPENED: Final = tuple(name for name in CONNECTING if name in LATENCIES)
"""Objectives on how long single connections take."""


def _sent(profile: Profile) -> Iterator[Misfit]:
    """What says how much is sent."""
    if not profile.connects_only:
        return
    if profile.producer_rate:
        message = f"producerRate: {format_rate(profile.producer_rate)}, and messages: 0 sends none"
        yield Misfit(("producerRate",), message, "remove producerRate, or messages; driver.connectRate paces connections")
    if "search" in profile.model_fields_set and profile.search is not None:
        message = "search: looks for the highest rate of messages, and messages: 0 sends none"
        yield Misfit(("search",), message, "remove search, and make a matrix of driver.connectRate", at_key=True)
    if profile.consumer_backlog_size_gb:
        yield Misfit(("consumerBacklogSizeGB",), "consumerBacklogSizeGB: messages: 0 builds no backlog", "write 0")


def _connected(profile: Profile) -> Iterator[Misfit]:
    """Who connects."""
    if not profile.connects_only:
        return
    if not profile.driver.kind.opening_times:
        message = f"messages: 0 only connects, and clients of {profile.driver.name} do not tell how that went"
        yield Misfit(("messages",), message, f"write driver: {{name: {able('opening_times')[0].name}}}, or 1 or more messages")
    if profile.consumer_only and profile.producer_only:
        yield Misfit(("messages",), "messages: 0 only connects, and there is no producer and no consumer", "write producersPerTopic: 1")


def _judged(profile: Profile) -> Iterator[Misfit]:
    """A run that nothing can be said about is none, and nothing can be said about messages that are not there."""
    if not profile.connects_only or not profile.driver.kind.opening_times:
        return
    for path, slo, _ in sections(profile):
        for metric in slo:
            at, name = (*path, metric), ".".join(map(str, (*path, metric)))
            if metric not in CONNECTING:
                yield Misfit(
                    at,
                    f"{name}: there are no messages (messages: 0)",
                    f"bound {' or '.join(_OPENED)}",
                    at_key=True,
                )
            elif metric == "subscribeLatency" and profile.producer_only:
                yield Misfit(at, f"{name}: nothing subscribes without consumers", "bound connectLatency", at_key=True)
    if profile.slo.keys() <= {CONNECT_RATE}:
        yield Misfit(("messages",), "messages: 0 only connects, and nothing is asked of how long that takes", _EXAMPLE)


CHECKS = (
    # each check with the keys whose default would mislead it
    (_sent, ("messages", "producerRate", "search.*")),
    (_connected, ("messages", "driver.name", "producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription")),
    (_judged, ("messages", "driver.name", "slo", "producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription")),
)
