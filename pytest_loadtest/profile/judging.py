"""What must hold between the objectives of a profile and the rest of it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.metrics.catalogue import OBJECTIVES, Need, needing
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.values.quantities import SECOND, format_duration
from pytest_loadtest.verdict.abort import LATENCY, read
from pytest_loadtest.verdict.grammar import CONNECT_RATE, REGRESSION, SILENT
from pytest_loadtest.verdict.objectives import ObjectiveErrors, parse
from pytest_loadtest.verdict.windowed import DRIFTING, KEYS, MOST_WINDOWS, read_held

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.profile.text import Path


_SENDING = tuple(name for name, metric in OBJECTIVES.items() if Need.CONSUMERS not in metric.needs)
CONNECTING = needing(Need.CONNECTIONS)


ORDER_KEYS: Final = "<order_keys>"
ACKNOWLEDGING_KEYS: Final = "<acknowledging_keys>"
"""Stand for the keys that the kind's settings model names in the class variable of that name."""


def _objectives(profile: Profile) -> Iterator[Misfit]:
    for path, slo, _ in sections(profile):
        yield from _section(slo, path, None, _beside(profile, path))
        if path[0] == "stages" and "custom" in slo:
            found = (*path, "custom")
            message = f"{'.'.join(map(str, found))}: custom metrics are of the whole run, not of a stage"
            yield Misfit(found, message, "write it in the profile's own slo", at_key=True)


def _of_stages(profile: Profile) -> Iterator[Misfit]:
    """What nobody knows of a stage: foreign messages and damaged heads are counted over the whole run, as users' own metrics are."""
    unknown = {
        "custom": "custom metrics are of the whole run, not of a stage",
        "foreign": "when foreign messages came is not known, so no stage has them",
        REGRESSION: "whole runs are compared, not stages",
    } | ({} if profile.checksum else {"corrupt": "without checksum, which stage damage belongs to is not known"})
    for path, slo, _ in sections(profile):
        for metric in slo if path[0] == "stages" else ():
            if metric in unknown:
                found, remedy = (*path, metric), ", or set checksum: true" if metric == "corrupt" else ""
                message = f"{'.'.join(map(str, found))}: {unknown[metric]}"
                yield Misfit(found, message, f"write it in the profile's own slo{remedy}", at_key=True)


def _bucket_names(profile: Profile) -> Iterator[Misfit]:
    for path, slo, buckets in sections(profile):
        beside = _beside(profile, path)
        spoken = set(_section(slo, path, None, beside))
        yield from (finding for finding in _section(slo, path, buckets, beside) if finding not in spoken)


def _beside(profile: Profile, path: Path) -> Mapping[str, object]:
    return profile.slo if path[0] == "scaled" else {}


def sections(profile: Profile) -> Iterator[tuple[Path, Mapping[str, object], Mapping[str, int]]]:
    """Every ``slo`` section with its place and the size ranges that it may name."""
    own = profile.message_size_distribution or {}
    yield ("slo",), profile.slo, own
    yield ("scaled", "slo"), profile.scaled.slo, own
    for i, stage in enumerate(profile.stages):
        yield ("stages", i, "slo"), stage.slo, stage.message_size_distribution or own


def bounding(profile: Profile) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Every ``slo`` section, and every part ``whole`` of one, with its place."""
    for path, slo, _ in sections(profile):
        yield path, slo
        if isinstance(whole := slo.get("whole"), dict):
            yield (*path, "whole"), whole


def _section(
    slo: Mapping[str, object], where: Path, buckets: Mapping[str, int] | None, beside: Mapping[str, object] = MappingProxyType({})
) -> Iterator[Misfit]:  # fmt: skip
    """:param beside: a section that this one takes the place of, key by key."""
    try:
        parse({**beside, **slo}, buckets=buckets)
    except ObjectiveErrors as errors:
        for path, message, suggestion in errors.problems:
            if path[:1] and path[0] not in slo:
                continue  # spoken of where it is written
            found = (*where, *path)
            yield Misfit(found, f"{'.'.join(map(str, found))}: {message}", suggestion, at_key=_names_key(path, message))


def _names_key(path: Path, message: str) -> bool:
    """The slo parser speaks of a key when it begins with the last step of the path: ``'los' is``, ``percentile 101 is``, ``p100 is``."""
    last = str(path[-1]) if path else ""
    return message.startswith((f"{last!r} is", f"percentile {last[1:]} is", f"{last} is"))


def _bounded(profile: Profile, metric: str) -> Iterator[Path]:
    """Where there is an objective on a metric, for all messages or one bucket's."""
    for path, slo in bounding(profile):
        if metric in slo:
            yield (*path, metric)
        drift = slo.get("drift")
        yield from ((*path, "drift", key) for key in (drift if isinstance(drift, dict) else ()) if str(key).partition(".")[0] == metric)
        by_bucket = slo.get("buckets")
        for name, section in by_bucket.items() if isinstance(by_bucket, dict) else ():
            if isinstance(section, dict) and metric in section:
                yield (*path, "buckets", name, metric)


def _order(profile: Profile) -> Iterator[Misfit]:
    if (reason := profile.unordered) is None:
        return
    why, remedy = reason
    for path in _bounded(profile, "outOfOrder"):
        yield Misfit(path, f"{'.'.join(map(str, path))}: order cannot be judged {why}", f"{remedy}, or remove it", at_key=True)


def _acknowledgements(profile: Profile) -> Iterator[Misfit]:
    if (reason := profile.driver.unacknowledged) is None:
        return
    why, remedy = reason
    for path in _bounded(profile, "publishLatency"):
        message = f"{'.'.join(map(str, path))}: nothing is acknowledged {why}"
        yield Misfit(path, message, f"{remedy}, or bound endToEndLatency", at_key=True)
    for path in _bounded(profile, SILENT) if profile.producer_only else ():
        message = f"{'.'.join(map(str, path))}: without consumers and acknowledgements nothing tells what arrived"
        yield Misfit(path, message, "add consumers, or remove it", at_key=True)


def _broadcasts(profile: Profile) -> Iterator[Misfit]:
    if profile.broadcasts:
        return
    for metric in needing(Need.BROADCAST):
        for path in _bounded(profile, metric):
            message = f"{'.'.join(map(str, path))}: no message goes to {WIDTH} subscriptions or more of one consumer each"
            yield Misfit(path, message, "bound endToEndLatency", at_key=True)


def _openings(profile: Profile) -> Iterator[Misfit]:
    for metric in CONNECTING:
        for path in _bounded(profile, metric):
            if not profile.driver.kind.opening_times:
                yield Misfit(path, f"{'.'.join(map(str, path))}: clients of {profile.driver.name} do not tell", "remove it", at_key=True)
            elif metric == CONNECT_RATE and profile.connect_rate is None:
                message = f"{'.'.join(map(str, path))}: no rate of connections is asked for"
                yield Misfit(path, message, "write driver: {connectRate: 100}, or remove it", at_key=True)
            elif path[0] == "stages":
                message = f"{'.'.join(map(str, path))}: connections come up before the first stage"
                yield Misfit(path, message, f"write it under slo: {metric}", at_key=True)


def _one_sided(profile: Profile) -> Iterator[Misfit]:
    """Objectives on what does not happen."""
    if profile.connects_only:
        return
    for path, slo in bounding(profile):
        for metric, bound in slo.items():
            at, name = (*path, metric), ".".join(map(str, (*path, metric)))
            if profile.consumer_only and path[0] == "stages":
                message = f"{name}: without producers of its own a run knows only how much it received in all"
                yield Misfit(at, message, "write slo: {throughput: 1000/s} for the whole run", at_key=True)
            elif profile.consumer_only and metric not in CONNECTING and (metric != "throughput" or "%" in str(bound)):
                message = f"{name}: without producers of its own a run knows only how much it received"
                yield Misfit(at, message, "write throughput: 1000/s, and nothing else", at_key=True)
            elif profile.producer_only and not profile.consumer_only and metric not in (*_SENDING, *KEYS):
                yield Misfit(at, f"{name}: nothing is received without consumers", f"use {', '.join(_SENDING)}", at_key=True)
    for metric in DRIFTING if profile.producer_only else ():
        for at in _bounded(profile, metric):
            if "drift" in at and metric not in _SENDING:
                name = ".".join(map(str, at))
                yield Misfit(at, f"{name}: nothing is received without consumers", f"use {', '.join(_SENDING)}", at_key=True)


def _drain(profile: Profile) -> Iterator[Misfit]:
    """A drain is judged where a backlog is built, and not longer than it is waited for."""
    for path, slo, _ in sections(profile):
        if "backlogDrain" not in slo:
            continue
        at, name = (*path, "backlogDrain"), ".".join(map(str, (*path, "backlogDrain")))
        if not profile.consumer_backlog_size_gb:
            yield Misfit(at, f"{name}: no backlog is built", "write consumerBacklogSizeGB: 1, or remove it", at_key=True)
            continue
        try:
            bounds = parse({"backlogDrain": slo["backlogDrain"]}, implicit=())
        except ObjectiveErrors:
            continue  # spoken of elsewhere
        most = max(bound for one in bounds for bound in (one.minimum, one.maximum) if bound)
        if most > profile.backlog_drain_timeout:
            timeout = format_duration(profile.backlog_drain_timeout)
            message = f"{name}: {format_duration(most)} is more than backlogDrainTimeout, {timeout}"
            yield Misfit(at, message, "raise backlogDrainTimeout")


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


# What must hold between the windows of objectives, their drift, and how long is measured.


def _long_enough(profile: Profile) -> Iterator[Misfit]:
    """A window is no longer than what is judged in it, and a tenth has a second. A backlog is measured for as long as it takes."""
    if profile.consumer_only or profile.connects_only or profile.consumer_backlog_size_gb:
        return
    for path, slo, _ in sections(profile):
        length, name, key = _judged_for(profile, path)
        window = read_held({**profile.slo, **slo} if path[0] == "scaled" else slo, []).window
        at = ".".join(map(str, (*path, "window")))
        if window is not None and "window" in slo and window > length:
            message = f"{at}: {format_duration(window)} is longer than {name}, {format_duration(length)}"
            yield Misfit((*path, "window"), message, f"write a shorter one, or a longer {key}")
        elif window is not None and "window" in slo and length // window > MOST_WINDOWS:
            message = f"{at}: {name}, {format_duration(length)}, has more than {MOST_WINDOWS:,} of them"
            least = -(-length // MOST_WINDOWS // SECOND)
            yield Misfit((*path, "window"), message, f"write {least}s or more")
        if "drift" in slo and length < 10 * SECOND:
            message = f"{'.'.join(map(str, (*path, 'drift')))}: a tenth of {name}, {format_duration(length)}, is less than a second"
            yield Misfit((*path, "drift"), message, f"remove it, or write a {key} of 10s or more", at_key=True)


def _judged_for(profile: Profile, path: Path) -> tuple[int, str, str]:
    """How long objectives of this section are judged, ns; what that is, and the key that says it."""
    if path[0] == "stages":
        stage = profile.stages[int(path[1])]
        return stage.duration, f"the stage {stage.name!r}", "duration"
    if profile.peak_search and profile.search is not None:
        return profile.search.hold, "a step of the search", "search.hold"
    return profile.test_duration, "the measured phase", "testDuration"


WINDOW_CHECKS = (
    # each check with the keys whose default would mislead it
    (
        _long_enough,
        ("slo", "testDuration", "testDurationMinutes", "messages", "producerRate", "search.*", "stages.*", "consumerBacklogSizeGB"),
    ),
)


# What must hold between ``abort`` and the rest of a profile.


def _abort_section(profile: Profile) -> Iterator[Misfit]:
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
ABORT_CHECKS = (
    # each check with the keys whose default would mislead it
    (_abort_section, ("abort",)),
    (_possible, ("abort", "consumerBacklogSizeGB", *_WHO)),
)
