"""Checks of a profile's objectives and its ``abort`` section against its other keys."""

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


ORDER_KEYS: Final = "<order_keys>"
ACKNOWLEDGING_KEYS: Final = "<acknowledging_keys>"
"""Placeholders for the keys that the kind's settings model lists in the class variable of that name."""


def _objectives(profile: Profile) -> Iterator[Problem]:
    for path, slo in sections(profile):
        yield from (problem.below(*path).named() for problem in slo.problems)


def _of_stages(profile: Profile) -> Iterator[Problem]:
    """Reject objectives on metrics that exist only for the whole run, not per stage."""
    whole_run = {
        "custom": "custom metrics are of the whole run, not of a stage",
        "foreign": "foreign messages have no known time, so they cannot be counted per stage",
        INDEX: "the broker's index is measured when it was largest in the whole run",
        REGRESSION: "whole runs are compared, not stages",
    } | (
        {}
        if profile.checksum
        else {"corrupt": "without checksum a damaged message cannot be assigned to a stage"}
    )
    for path, slo in sections(profile):
        for metric in slo if path[0] == "stages" else ():
            if metric in whole_run:
                remedy = ", or set checksum: true" if metric == "corrupt" else ""
                yield Problem(
                    (*path, metric),
                    whole_run[metric],
                    f"write it in the profile's own slo{remedy}",
                    at_key=True,
                ).named()


def _bucket_names(profile: Profile) -> Iterator[Problem]:
    for path, slo in bounding(profile):
        buckets = profile.message_size_distribution or {}
        if path[0] == "stages":
            buckets = profile.stages[int(path[1])].message_size_distribution or buckets
        names = slo.get("buckets")
        for name in names if isinstance(names, dict) else ():
            if name not in buckets:
                hint = (
                    nearest(name, tuple(buckets))
                    if buckets
                    else "without messageSizeDistribution there are none"
                )
                message = f"{name!r} is not a size bucket of this profile"
                yield Problem((*path, "buckets", name), message, hint, at_key=True).named()


def sections(profile: Profile) -> Iterator[tuple[Path, Slo]]:
    """Yield every ``slo`` section with its path."""
    yield ("slo",), profile.slo
    yield ("scaled", "slo"), profile.scaled.slo
    yield from ((("stages", i, "slo"), stage.slo) for i, stage in enumerate(profile.stages))


def bounding(profile: Profile) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Yield every ``slo`` section, and every part ``whole`` of one, with its path."""
    for path, slo in sections(profile):
        yield path, slo
        if isinstance(whole := slo.get("whole"), dict):
            yield (*path, "whole"), whole


def _bounded(profile: Profile, metric: str) -> Iterator[Path]:
    """Yield the path of every objective on a metric, for all messages or for one bucket."""
    for path, slo in bounding(profile):
        if metric in slo:
            yield (*path, metric)
        drift = slo.get("drift")
        yield from (
            (*path, "drift", key)
            for key in (drift if isinstance(drift, dict) else ())
            if str(key).partition(".")[0] == metric
        )
        by_bucket = slo.get("buckets")
        for name, section in by_bucket.items() if isinstance(by_bucket, dict) else ():
            if isinstance(section, dict) and metric in section:
                yield (*path, "buckets", name, metric)


def _wrong_key(path: Path, message: str, suggestion: str) -> Problem:
    return Problem(path, message, suggestion, at_key=True).named()


def _order(profile: Profile) -> Iterator[Problem]:
    if (reason := profile.unordered) is not None:
        why, remedy = reason
        for path in _bounded(profile, "outOfOrder"):
            yield _wrong_key(path, f"order cannot be judged {why}", f"{remedy}, or remove it")


def _acknowledgements(profile: Profile) -> Iterator[Problem]:
    if (reason := profile.driver.unacknowledged) is None:
        return
    why, remedy = reason
    for path in _bounded(profile, "publishLatency"):
        yield _wrong_key(
            path, f"messages are not acknowledged {why}", f"{remedy}, or bound endToEndLatency"
        )
    for path in _bounded(profile, SILENT) if profile.producer_only else ():
        yield _wrong_key(
            path,
            "without consumers and acknowledgements it is unknown what arrived",
            "add consumers, or remove it",
        )


def _broadcasts(profile: Profile) -> Iterator[Problem]:
    for metric in needing(Need.BROADCAST) if not profile.broadcasts else ():
        for path in _bounded(profile, metric):
            message = f"no message goes to {WIDTH} subscriptions or more of one consumer each"
            yield _wrong_key(path, message, "bound endToEndLatency")


def _openings(profile: Profile) -> Iterator[Problem]:
    for metric in CONNECTING:
        for path in _bounded(profile, metric):
            if not profile.driver.kind.opening_times:
                yield _wrong_key(
                    path,
                    f"clients of {profile.driver.name} do not report how long connecting took",
                    "remove it",
                )
            elif metric == CONNECT_RATE and profile.connect_rate is None:
                yield _wrong_key(
                    path,
                    "driver.connectRate is missing",
                    "write driver: {connectRate: 100}, or remove it",
                )
            elif path[0] == "stages":
                yield _wrong_key(
                    path,
                    "times of connections are of the whole run, not of a stage",
                    f"write it under slo: {metric}",
                )


def _one_sided(profile: Profile) -> Iterator[Problem]:
    """Reject objectives on the missing side of a run without producers, or without consumers."""
    if profile.connects_only:
        return
    for path, slo in bounding(profile):
        for metric, bound in slo.items():
            if profile.consumer_only and path[0] == "stages":
                message = "a run without producers measures only the throughput of the whole run"
                yield _wrong_key(
                    (*path, metric), message, "write slo: {throughput: 1000/s} for the whole run"
                )
            elif (
                profile.consumer_only
                and metric not in CONNECTING
                and (metric != "throughput" or "%" in str(bound))
            ):
                message = "a run without producers measures only throughput in messages per second"
                yield _wrong_key(
                    (*path, metric), message, "write throughput: 1000/s, and nothing else"
                )
            elif (
                profile.producer_only
                and not profile.consumer_only
                and metric not in (*_SENDING, *KEYS)
            ):
                yield _wrong_key(
                    (*path, metric),
                    "nothing is received without consumers",
                    f"use {', '.join(_SENDING)}",
                )
    for metric in DRIFTING if profile.producer_only else ():
        for path in _bounded(profile, metric):
            if "drift" in path and metric not in _SENDING:
                yield _wrong_key(
                    path, "nothing is received without consumers", f"use {', '.join(_SENDING)}"
                )


def _drain(profile: Profile) -> Iterator[Problem]:
    """Reject a bound on a drain without a backlog, or longer than the run waits for it."""
    for path, slo in sections(profile):
        if "backlogDrain" not in slo:
            continue
        at = (*path, "backlogDrain")
        if not profile.consumer_backlog_size_gb:
            yield _wrong_key(
                at, "the profile builds no backlog", "write consumerBacklogSizeGB: 1, or remove it"
            )
            continue
        bounds = [one for one in slo.objectives if one.metric == "backlogDrain"]
        longest = max(
            (bound for one in bounds for bound in (one.minimum, one.maximum) if bound), default=0
        )
        if longest > profile.backlog_drain_timeout:
            timeout = format_duration(profile.backlog_drain_timeout)
            message = f"{format_duration(longest)} is more than backlogDrainTimeout, {timeout}"
            yield Problem(at, message, "raise backlogDrainTimeout").named()


CHECKS = (
    # each check with the keys whose default would mislead it
    (_objectives, ()),
    (_bucket_names, ("messageSizeDistribution.*",)),
    (_of_stages, ("checksum",)),
    (_order, ("driver.name", ORDER_KEYS, "consumerPerSubscription", "keyDistributor")),
    (_broadcasts, ("subscriptionsPerTopic", "consumerPerSubscription")),
    (_openings, ("driver.name",)),
    (_acknowledgements, ("driver.name", ACKNOWLEDGING_KEYS)),
    (_one_sided, ("producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription")),
    (_drain, ("consumerBacklogSizeGB", "backlogDrainTimeout")),
)


# Windows and drift against how long is measured.


def _long_enough(profile: Profile) -> Iterator[Problem]:
    """Reject windows longer than the time that is judged, and a drift whose tenths are shorter than a second.

    A backlog is measured until it is drained, so that time is unknown here.
    """
    if profile.consumer_only or profile.connects_only or profile.consumer_backlog_size_gb:
        return
    for path, slo in sections(profile):
        length, name, key = _judged_for(profile, path)
        window, at = slo.window if "window" in slo else None, (*path, "window")
        if window is not None and window > length:
            message = f"{format_duration(window)} is longer than {name}, {format_duration(length)}"
            yield Problem(at, message, f"write a shorter one, or a longer {key}").named()
        elif window is not None and length // window > MOST_WINDOWS:
            message = f"{name}, {format_duration(length)}, has more than {MOST_WINDOWS:,} of them"
            yield Problem(
                at, message, f"write {-(-length // MOST_WINDOWS // SECOND)}s or more"
            ).named()
        if "drift" in slo and length < 10 * SECOND:
            message = f"a tenth of {name}, {format_duration(length)}, is less than a second"
            yield _wrong_key(
                (*path, "drift"), message, f"remove it, or write a {key} of 10s or more"
            )


def _judged_for(profile: Profile, path: Path) -> tuple[int, str, str]:
    """Return the time, ns, over which a section is judged, with its name and the key that sets it."""
    if path[0] == "stages":
        stage = profile.stages[int(path[1])]
        return stage.duration, f"the stage {stage.name!r}", "duration"
    if profile.peak_search and profile.search is not None:
        return profile.search.hold, "a step of the search", "search.hold"
    return profile.test_duration, "the measured phase", "testDuration"


WINDOW_CHECKS = (
    (
        _long_enough,
        (
            "slo",
            "testDuration",
            "testDurationMinutes",
            "messages",
            "producerRate",
            "search.*",
            "stages.*",
            "consumerBacklogSizeGB",
        ),
    ),
)


# The section ``abort``.


def _abort_section(profile: Profile) -> Iterator[Problem]:
    if profile.abort is not None:
        yield from (problem.below("abort").named() for problem in profile.abort.problems)


def _possible(profile: Profile) -> Iterator[Problem]:
    """Reject a section that could never end the run."""
    if profile.abort is None:
        return
    latency = next(
        (("abort", key) for key in profile.abort.written if str(key).partition(".")[0] == LATENCY),
        None,
    )
    if profile.connects_only or profile.consumer_only:
        yield _wrong_key(
            ("abort",),
            "the run sends nothing, so no message can be late, failed or dropped",
            "remove it",
        )
    elif profile.peak_search:
        yield _wrong_key(
            ("abort",), "a search ends each lost step by its own objectives", "remove it"
        )
    elif profile.consumer_backlog_size_gb:
        yield _wrong_key(
            ("abort",), "with consumerBacklogSizeGB messages wait on purpose", "remove one of them"
        )
    elif latency and profile.producer_only:
        yield _wrong_key(latency, "nothing is received without consumers", "write failed: 1%")
    elif latency and profile.in_bytes:
        yield _wrong_key(
            latency,
            "needs a rate in messages; producerRate is in bytes",
            "write producerRate: 5000/s, or failed: 1%",
        )


_WHO = (
    "messages",
    "producerRate",
    "search.*",
    "producersPerTopic",
    "subscriptionsPerTopic",
    "consumerPerSubscription",
)
ABORT_CHECKS = (
    (_abort_section, ("abort",)),
    (_possible, ("abort", "consumerBacklogSizeGB", *_WHO)),
)
