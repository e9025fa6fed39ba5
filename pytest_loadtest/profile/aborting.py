"""What must hold between ``abort`` and the rest of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.verdict.abort import LATENCY, read
from pytest_loadtest.verdict.objectives import ObjectiveErrors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile


def _section(profile: Profile) -> Iterator[Misfit]:
    if profile.abort is None:
        return
    try:
        read(profile.abort)
    except ObjectiveErrors as errors:
        for path, message, suggestion in errors.problems:
            found = ("abort", *path)
            of_key = not path or message.startswith(repr(path[-1])) or path == ("loss",)
            yield Misfit(found, f"{'.'.join(map(str, found))}: {message}", suggestion, at_key=of_key)


def _possible(profile: Profile) -> Iterator[Misfit]:
    """There must be something that can be lost while it runs."""
    if profile.abort is None:
        return
    latency = [key for key in profile.abort if str(key).partition(".")[0] == LATENCY]
    if profile.connects_only or profile.consumer_only:
        yield Misfit(("abort",), "abort: the run sends nothing, so nothing of it can be late, failed or dropped", "remove it", at_key=True)
    elif profile.peak_search:
        yield Misfit(("abort",), "abort: a search ends each step that is lost, by its own objectives", "remove it", at_key=True)
    elif profile.consumer_backlog_size_gb:
        yield Misfit(("abort",), "abort: with consumerBacklogSizeGB messages wait on purpose", "remove one of them", at_key=True)
    elif latency and profile.producer_only:
        yield Misfit(("abort", latency[0]), f"abort.{latency[0]}: nothing is received without consumers", "write failed: 1%", at_key=True)
    elif latency and profile.in_bytes:
        message = f"abort.{latency[0]}: of a rate in bytes nobody knows how many messages a second has"
        yield Misfit(("abort", latency[0]), message, "write producerRate in messages, or failed: 1%", at_key=True)


_WHO = ("messages", "producerRate", "search.*", "producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription")
CHECKS = (
    # each check with the keys whose default would mislead it
    (_section, ("abort",)),
    (_possible, ("abort", "consumerBacklogSizeGB", *_WHO)),
)
