"""Checks of a profile's objectives and its ``abort`` section against its other keys.

The rule: an objective that this run cannot measure, and a condition that could never end it, is an
error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import Problem
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.metrics.catalogue import OBJECTIVES, Need, needing
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.abort import LATENCY
from pytest_loadtest.verdict.grammar import CONNECT_RATE, INDEX, REGRESSION, SILENT, nearest
from pytest_loadtest.verdict.windowed import DRIFTING, KEYS, MOST_WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.errors import Path
    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.verdict.objectives import Slo


_SENDING = tuple(name for name, metric in OBJECTIVES.items() if Need.CONSUMERS not in metric.needs)
CONNECTING = needing(Need.CONNECTIONS)


_STAGELESS: Final = {
    "custom": "custom metrics cover the whole run, not a stage",
    "foreign": "foreign messages have no known time, so they cannot be counted per stage",
    INDEX: "the broker's index is measured when it was largest in the whole run",
    REGRESSION: "whole runs are compared, not stages",
}
"""Metrics that exist only for the whole run, each with the reason."""


def _of_stages(profile: Profile) -> Iterator[Problem]:
    """Reject objectives on metrics that exist only for the whole run, not per stage."""
    for path, slo in sections(profile):
        if path[0] != "stages":
            continue
        for metric in slo:
            remedy = "write it in the profile's own slo"
            if metric in _STAGELESS:
                yield _wrong_key((*path, metric), _STAGELESS[metric], remedy)
            elif metric == "corrupt" and not profile.checksum:
                message = "without checksum a damaged message cannot be assigned to a stage"
                yield _wrong_key((*path, metric), message, f"{remedy}, or set checksum: true")


def _bucket_names(profile: Profile) -> Iterator[Problem]:
    for path, slo in bounding(profile):
        buckets = profile.message_size_distribution or {}
        if path[0] == "stages":
            buckets = profile.stages[int(path[1])].message_size_distribution or buckets
        for name in _mapping(slo, "buckets"):
            if name not in buckets:
                hint = "without messageSizeDistribution there are none"
                if buckets:
                    hint = nearest(name, tuple(buckets))
                message = f"{name!r} is not a size bucket of this profile"
                yield _wrong_key((*path, "buckets", name), message, hint)


def sections(profile: Profile) -> Iterator[tuple[Path, Slo]]:
    """Yield every ``slo`` section with its path."""
    yield ("slo",), profile.slo
    yield ("scaled", "slo"), profile.scaled.slo
    for index, stage in enumerate(profile.stages):
        yield ("stages", index, "slo"), stage.slo


def bounding(profile: Profile) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Yield every ``slo`` section, and every part ``whole`` of one, with its path."""
    for path, slo in sections(profile):
        yield path, slo
        whole = slo.get("whole")
        if isinstance(whole, dict):
            yield (*path, "whole"), whole


def _mapping(section: Mapping[str, object], key: str) -> dict[str, object]:
    """Return a part of a section; empty if it is missing."""
    part = section.get(key)
    return part if isinstance(part, dict) else {}


def _bounded(profile: Profile, metric: str) -> Iterator[Path]:
    """Yield the path of every objective on a metric, for all messages or for one bucket."""
    for path, slo in bounding(profile):
        if metric in slo:
            yield (*path, metric)
        for key in _mapping(slo, "drift"):
            if str(key).partition(".")[0] == metric:
                yield (*path, "drift", key)
        for name, section in _mapping(slo, "buckets").items():
            if isinstance(section, dict) and metric in section:
                yield (*path, "buckets", name, metric)


def _wrong_key(path: Path, message: str, suggestion: str) -> Problem:
    return Problem(path, message, suggestion, at_key=True).named()


def _order(profile: Profile) -> Iterator[Problem]:
    if profile.unordered is None:
        return
    why, remedy = profile.unordered
    for path in _bounded(profile, "outOfOrder"):
        yield _wrong_key(path, f"order cannot be judged {why}", f"{remedy}, or remove it")


def _acknowledgements(profile: Profile) -> Iterator[Problem]:
    if profile.driver.unacknowledged is None:
        return
    why, remedy = profile.driver.unacknowledged
    for path in _bounded(profile, "publishLatency"):
        message = f"messages are not acknowledged {why}"
        yield _wrong_key(path, message, f"{remedy}, or bound endToEndLatency")
    if profile.producer_only:
        for path in _bounded(profile, SILENT):
            message = "without consumers and acknowledgements it is unknown what arrived"
            yield _wrong_key(path, message, "add consumers, or remove it")


def _broadcasts(profile: Profile) -> Iterator[Problem]:
    if profile.broadcasts:
        return
    for metric in needing(Need.BROADCAST):
        for path in _bounded(profile, metric):
            message = f"no message goes to {WIDTH} subscriptions or more of one consumer each"
            yield _wrong_key(path, message, "bound endToEndLatency")


def _openings(profile: Profile) -> Iterator[Problem]:
    for metric in CONNECTING:
        for path in _bounded(profile, metric):
            if not profile.driver.kind.opening_times:
                clients = f"clients of {profile.driver.name}"
                message = f"{clients} do not report how long connecting took"
                yield _wrong_key(path, message, "remove it")
            elif metric == CONNECT_RATE and profile.connect_rate is None:
                remedy = "write driver: {connectRate: 100}, or remove it"
                yield _wrong_key(path, "driver.connectRate is missing", remedy)
            elif path[0] == "stages":
                message = "times of connections cover the whole run, not a stage"
                yield _wrong_key(path, message, f"write it under slo: {metric}")


def _one_sided(profile: Profile) -> Iterator[Problem]:
    """Reject objectives on the missing side of a run without producers, or without consumers."""
    if profile.connects_only:
        return
    if profile.consumer_only:
        yield from _without_producers(profile)
    if profile.producer_only:
        yield from _without_consumers(profile)


def _without_producers(profile: Profile) -> Iterator[Problem]:
    for path, slo in bounding(profile):
        for metric, bound in slo.items():
            at = (*path, metric)
            if path[0] == "stages":
                message = "a run without producers measures only the throughput of the whole run"
                yield _wrong_key(at, message, "write slo: {throughput: 1000/s} for the whole run")
            elif metric in CONNECTING:
                continue
            elif metric != "throughput" or "%" in str(bound):
                message = "a run without producers measures only throughput in messages per second"
                yield _wrong_key(at, message, "write throughput: 1000/s, and nothing else")


def _without_consumers(profile: Profile) -> Iterator[Problem]:
    message = "nothing is received without consumers"
    remedy = f"use {', '.join(_SENDING)}"
    if not profile.consumer_only:
        for path, slo in bounding(profile):
            for metric in slo:
                if metric not in (*_SENDING, *KEYS):
                    yield _wrong_key((*path, metric), message, remedy)
    for metric in DRIFTING:
        if metric in _SENDING:
            continue
        for path in _bounded(profile, metric):
            if "drift" in path:
                yield _wrong_key(path, message, remedy)


def _drain(profile: Profile) -> Iterator[Problem]:
    """Reject a bound on a drain without a backlog, or longer than the run waits for it."""
    for path, slo in sections(profile):
        if "backlogDrain" not in slo:
            continue
        at = (*path, "backlogDrain")
        if not profile.consumer_backlog_size_gb:
            remedy = "write consumerBacklogSizeGB: 1, or remove it"
            yield _wrong_key(at, "the profile builds no backlog", remedy)
            continue
        longest = 0.0
        for objective in slo.objectives:
            if objective.metric == "backlogDrain":
                longest = max(longest, objective.minimum or 0, objective.maximum or 0)
        if longest > profile.backlog_drain_timeout:
            timeout = format_duration(profile.backlog_drain_timeout)
            message = f"{format_duration(longest)} is more than backlogDrainTimeout, {timeout}"
            yield Problem(at, message, "raise backlogDrainTimeout").named()


# Windows and drift against how long is measured.


def _long_enough(profile: Profile) -> Iterator[Problem]:
    """Reject windows longer than the time that is judged, and a drift over less than ten seconds.

    A backlog is measured until it is drained, so that time is unknown here.
    """
    if profile.consumer_only or profile.connects_only or profile.consumer_backlog_size_gb:
        return
    for path, slo in sections(profile):
        length, name, key = _judged_for(profile, path)
        time = f"{name}, {format_duration(length)}"
        window = slo.window if "window" in slo else None
        at = (*path, "window")
        if window is not None and window > length:
            message = f"{format_duration(window)} is longer than {time}"
            yield Problem(at, message, f"write a shorter one, or a longer {key}").named()
        elif window is not None and length // window > MOST_WINDOWS:
            shortest = -(-length // MOST_WINDOWS // SECOND)
            message = f"{time}, has more than {MOST_WINDOWS:,} of them"
            yield Problem(at, message, f"write {shortest}s or more").named()
        if "drift" in slo and length < 10 * SECOND:
            message = f"a tenth of {time}, is less than a second"
            remedy = f"remove it, or write a {key} of 10s or more"
            yield _wrong_key((*path, "drift"), message, remedy)


def _judged_for(profile: Profile, path: Path) -> tuple[int, str, str]:
    """Return the time, ns, over which a section is judged, its name, and the key that sets it."""
    if path[0] == "stages":
        stage = profile.stages[int(path[1])]
        return stage.duration, f"the stage {stage.name!r}", "duration"
    if profile.peak_search and profile.search is not None:
        return profile.search.hold, "a step of the search", "search.hold"
    return profile.test_duration, "the measured phase", "testDuration"


# The section ``abort``.


def _possible(profile: Profile) -> Iterator[Problem]:
    """Reject a section that could never end the run."""
    if profile.abort is None:
        return
    at = ("abort",)
    keys = (key for key in profile.abort.written if str(key).partition(".")[0] == LATENCY)
    latency = next(keys, None)
    if profile.connects_only or profile.consumer_only:
        message = "the run sends nothing, so no message can be late, failed or dropped"
        yield _wrong_key(at, message, "remove it")
    elif profile.peak_search:
        yield _wrong_key(at, "a search ends each lost step by its own objectives", "remove it")
    elif profile.consumer_backlog_size_gb:
        message = "with consumerBacklogSizeGB messages wait on purpose"
        yield _wrong_key(at, message, "remove one of them")
    elif latency is None:
        return
    elif profile.producer_only:
        message = "nothing is received without consumers"
        yield _wrong_key(("abort", latency), message, "write failed: 1%")
    elif profile.in_bytes:
        message = "needs a rate in messages; producerRate is in bytes"
        remedy = "write producerRate: 5000/s, or failed: 1%"
        yield _wrong_key(("abort", latency), message, remedy)


CHECKS = (
    _bucket_names,
    _of_stages,
    _order,
    _broadcasts,
    _openings,
    _acknowledgements,
    _one_sided,
    _drain,
    _possible,
    _long_enough,
)
