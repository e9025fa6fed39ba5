"""What must hold between delays (``deliverAfter``, ``deliverAt``) and the rest of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import able
from pytest_loadtest.metrics.catalogue import Need, needing
from pytest_loadtest.profile.judging import bounding
from pytest_loadtest.profile.sections import DELAY_EXAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile


def _key(profile: Profile) -> str:
    return "deliverAt" if profile.deliver_after is None else "deliverAfter"


def _heeded(profile: Profile) -> Iterator[Problem]:
    """Brokers that delay messages."""
    if profile.delays is None:
        return
    key, kind = _key(profile), profile.driver.kind
    if not kind.delays:
        remedy = f"remove it, or write driver: {{name: {able('delays')[0].name}}}"
        yield Problem((key,), f"{key}: {kind.label} has no delayed delivery", remedy, at_key=True)


def _apart(profile: Profile) -> Iterator[Problem]:
    """What no delay goes with."""
    if profile.delays is None:
        if profile.allow_undelayed:
            yield Problem(("allowUndelayed",), "allowUndelayed: no message is delayed", DELAY_EXAMPLE, at_key=True)
        return
    key = _key(profile)
    others = {
        "producersPerTopic: 0": profile.consumer_only,
        "messages: 0": profile.connects_only,
        "a search for the highest rate": profile.peak_search,
        "consumerBacklogSizeGB": bool(profile.consumer_backlog_size_gb),
        "64 subscriptions of a topic or more": profile.broadcasts,
    }
    for other, there in others.items():
        if there:
            yield Problem((key,), f"{key}: cannot be combined with {other}", "remove one of them", at_key=True)


def _judged(profile: Profile) -> Iterator[Problem]:
    """Objectives on delays want delays."""
    for path, slo in bounding(profile):
        for metric in needing(Need.DELAYS):
            if metric in slo and profile.delays is None:
                yield Problem((*path, metric), f"{'.'.join(map(str, (*path, metric)))}: no message is delayed", DELAY_EXAMPLE, at_key=True)


_HEEDED = ("allowUndelayed", "deliverAfter.*", "deliverAt")
CHECKS = (
    # each check with the keys whose default would mislead it
    (_heeded, ("driver.name", "deliverAfter.*", "deliverAt")),
    (_apart, (*_HEEDED, "producersPerTopic", "messages", "producerRate", "search.*", "subscriptionsPerTopic", "consumerPerSubscription")),
    (_judged, ("deliverAfter.*", "deliverAt")),
)
