"""Checks of the keys for load: numbers of clients, sizes, rates, stages, backlog, delays."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import able
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import CHECKSUM, MAX_PAYLOADS
from pytest_loadtest.message.sizing import representatives
from pytest_loadtest.metrics.catalogue import Need, needing
from pytest_loadtest.profile.fields import MOST_DURATION
from pytest_loadtest.profile.judging import bounding
from pytest_loadtest.profile.sections import DELAY_EXAMPLE, SearchSection
from pytest_loadtest.profile.stages import MOST_PIECES, Sine, Spike, Stage
from pytest_loadtest.schedule.changes import UNDER_WAY
from pytest_loadtest.values.quantities import (
    MILLISECOND,
    SECOND,
    ByteRate,
    format_duration,
    format_rate,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.errors import Path
    from pytest_loadtest.message.payloads import Bucket
    from pytest_loadtest.profile.model import Profile


SHORTEST_HOLD = 100 * MILLISECOND


def distributions(profile: Profile) -> Iterator[tuple[Path, Mapping[str, int], tuple[Bucket, ...]]]:
    """Yield every size distribution, the profile's and the stages', with its path."""
    if profile.message_size_distribution is not None:
        yield ("messageSizeDistribution",), profile.message_size_distribution, profile.buckets or ()
    for i, stage in enumerate(profile.stages):
        if stage.message_size_distribution is not None:
            yield (
                ("stages", i, "messageSizeDistribution"),
                stage.message_size_distribution,
                stage.buckets or (),
            )


def _counts(profile: Profile) -> Iterator[Problem]:
    if profile.connects_only:
        return
    if profile.consumer_only and profile.producer_only:
        key = (
            "subscriptionsPerTopic"
            if profile.subscriptions_per_topic == 0
            else "consumerPerSubscription"
        )
        yield Problem(
            (key,), f"{key}: 0 and producersPerTopic: 0: the run has no clients", f"write {key}: 1"
        )
    elif profile.consumer_only and profile.topic is None:
        yield Problem(
            ("producersPerTopic",),
            "producersPerTopic: 0 receives messages of others, and topic is missing",
            "write topic: NAME",
        )
    if profile.consumer_only and profile.messages is not None:
        yield Problem(
            ("messages",),
            "messages: the run has no producers (producersPerTopic: 0)",
            "write testDuration: 30s instead",
            at_key=True,
        )
    if (
        profile.payloads_per_bucket > 1
        and profile.message_size_distribution is None
        and not any(one.buckets for one in profile.stages)
    ):
        message = "payloadsPerBucket: without messageSizeDistribution there are no size buckets"
        yield Problem(
            ("payloadsPerBucket",),
            message,
            "write randomizedPayloadPoolSize for several payloads of one size",
            at_key=True,
        )
    names = {bucket.name for _, _, found in distributions(profile) for bucket in found}
    if len(names) * profile.payloads_per_bucket > MAX_PAYLOADS and profile.payloads_per_bucket > 1:
        message = f"payloadsPerBucket: {profile.payloads_per_bucket} for {len(names)} size ranges are more than {MAX_PAYLOADS} payloads"
        yield Problem(
            ("payloadsPerBucket",), message, f"write {MAX_PAYLOADS // len(names)} or less"
        )


def _topic(profile: Profile) -> Iterator[Problem]:
    if profile.topic is not None and profile.topics != 1:
        yield Problem(
            ("topics",),
            f"topics: {profile.topics}, but topic names a single one",
            "remove topics, or topic",
        )


def _bytes(profile: Profile) -> Iterator[Problem]:
    """Reject sizes for the compact envelope: it omits the intended time, which can be computed only for evenly spaced messages."""
    if not profile.in_bytes:
        return
    if profile.messages is not None:
        message = "messages: cannot be combined with a rate in bytes"
        yield Problem(("messages",), message, "write producerRate in messages, as in 5000/s")
    if profile.message_size is not None and profile.message_size < HEAD:
        message = f"messageSize: {profile.message_size} B is below the {HEAD} B that a rate in bytes needs"
        yield Problem(
            ("messageSize",), message, f"write {HEAD} or more, or producerRate in messages"
        )
    least = HEAD + (CHECKSUM if profile.checksum else 0)
    for path, _, buckets in distributions(profile):
        for bucket in buckets:
            smallest = min(
                representatives(
                    bucket.low, bucket.high, profile.representative, profile.payloads_per_bucket
                )
            )
            if smallest < least:
                message = f"size range {bucket.name!r} has payloads of {smallest} B, below the {least} B that a rate in bytes needs"
                yield Problem(
                    (*path, bucket.name),
                    message,
                    f"begin it at {least}, or write producerRate in messages",
                    at_key=True,
                )


def _search(profile: Profile) -> Iterator[Problem]:
    search = profile.search
    if profile.stages:
        yield from _search_in_stages(profile)
        return
    if (
        "search" in profile.model_fields_set
        and search is not None
        and not profile.peak_search
        and not profile.connects_only
    ):
        message = (
            f"search: finds the rate, but producerRate is {format_rate(profile.producer_rate)}"
        )
        yield Problem(("search",), message, "write producerRate: 0, or remove search", at_key=True)
    if not profile.peak_search or search is None:
        return
    if profile.messages is not None or profile.consumer_backlog_size_gb:
        key = "messages" if profile.messages is not None else "consumerBacklogSizeGB"
        yield Problem(
            (key,),
            f"{key}: cannot be combined with a search for the highest rate",
            "write a producerRate above 0",
            at_key=True,
        )
    if search.confirm < search.hold:
        confirm, hold = format_duration(search.confirm), format_duration(search.hold)
        message = f"search.confirm: {confirm} is shorter than search.hold, {hold}"
        yield Problem(
            ("search", "confirm"),
            message,
            f"write {hold.replace(' ', '')} or more, or remove it for twice the hold",
        )
    yield from _search_rates(profile, search)


def _search_in_stages(profile: Profile) -> Iterator[Problem]:
    """Reject stages together with keys that ask for a search."""
    zero = (
        "producer_rate" in profile.model_fields_set
        and not profile.producer_rate
        and not profile.consumer_only
    )
    if zero or ("search" in profile.model_fields_set and profile.search is not None):
        remedy = "write a producerRate above 0, or none if each stage has a rate; and no search"
        yield Problem(
            ("stages",),
            "stages: cannot be combined with a search for the highest rate",
            remedy,
            at_key=True,
        )


def _search_rates(profile: Profile, search: SearchSection) -> Iterator[Problem]:
    if search.hold < SHORTEST_HOLD:
        message = f"search.hold: {format_duration(search.hold)} is too short to judge a rate"
        yield Problem(
            ("search", "hold"), message, f"write {format_duration(SHORTEST_HOLD)} or more"
        )
    in_bytes = isinstance(search.start, ByteRate)
    rates: dict[str, float] = (
        {"producerRate": profile.producer_rate}
        if isinstance(profile.producer_rate, ByteRate)
        else {}
    )
    rates |= {"search.max": search.max} if search.max is not None else {}
    if wrong := [key for key, rate in rates.items() if isinstance(rate, ByteRate) != in_bytes]:
        unit = "bytes" if in_bytes else "messages"
        remedy = "write start and max in the same unit, as in search: {start: 1MB/s, max: 1GB/s}"
        yield Problem(
            tuple(wrong[0].split(".")),
            f"{wrong[0]}: search.start is in {unit} per second, this rate is not",
            remedy,
        )
    elif search.max is not None and search.max < search.start:
        message = f"search.max: {format_rate(search.max)} is below search.start, {format_rate(search.start)}"
        yield Problem(("search", "max"), message, "write a lower start, or a higher max")


def _backlog(profile: Profile) -> Iterator[Problem]:
    if not profile.consumer_backlog_size_gb:
        return
    if profile.producer_only or profile.consumer_only:
        yield Problem(
            ("consumerBacklogSizeGB",),
            "consumerBacklogSizeGB: a backlog needs producers and consumers",
            "write 0",
        )
    if profile.stages:
        message = "consumerBacklogSizeGB: cannot be combined with stages"
        yield Problem(
            ("consumerBacklogSizeGB",), message, "write 0, and pause consumers in a test of its own"
        )


def _drained(profile: Profile) -> Iterator[Problem]:
    """Reject a backlog so small that it would count as drained at once, or so large that it would never be built."""
    size, rate, ratio = (
        profile.consumer_backlog_size_gb * 1024**3,
        float(profile.producer_rate),
        profile.backlog_drain_ratio,
    )
    if not size or not rate or profile.producer_only:
        return
    mean = _mean_size(profile)
    under_way = (
        rate
        * UNDER_WAY
        / SECOND
        * profile.subscriptions_per_topic
        * (1 if profile.in_bytes else mean)
    )
    if size <= under_way:
        message = (
            f"consumerBacklogSizeGB: {size / mean:,.0f} messages are not a backlog: {under_way / mean:,.0f} are under way at any time"
            f" (producerRate × {format_duration(UNDER_WAY)} × subscriptionsPerTopic)"
        )
        yield Problem(
            ("consumerBacklogSizeGB",),
            message,
            f"write {10 * under_way / 1024**3:.2g} or more, or a lower producerRate",
        )
    elif size > rate * (1 if profile.in_bytes else mean) * (MOST_DURATION // SECOND):
        message = f"consumerBacklogSizeGB: {size / mean:,.0f} messages take longer than ten years to build"
        yield Problem(("consumerBacklogSizeGB",), message, "write less, or a higher producerRate")
    elif size / mean * ratio < 1:
        message = f"backlogDrainRatio: {ratio:g} of {size / mean:,.0f} messages rounds to 0: nothing to drain"
        yield Problem(("backlogDrainRatio",), message, "write 1.0, or a larger share")


def _mean_size(profile: Profile) -> float:
    """Return the mean size of a message in bytes, before sizes are moved to the envelope's or the broker's limit."""
    weighed = [
        (
            fmean(
                representatives(
                    bucket.low, bucket.high, profile.representative, profile.payloads_per_bucket
                )
            ),
            bucket.weight,
        )
        for bucket in profile.buckets or ()
    ]
    if not weighed:
        return profile.message_size or HEAD
    return sum(size * weight for size, weight in weighed) / sum(weight for _, weight in weighed)


def _stages(profile: Profile) -> Iterator[Problem]:
    pauses = [
        stage.rate is not None and stage.pauses(profile.producer_rate) for stage in profile.stages
    ]
    if pauses and all(pauses) and not profile.consumer_only:
        yield Problem(
            ("stages",),
            "stages: every rate is 0: nothing would be sent",
            "write a rate above 0 in one of them",
            at_key=True,
        )
    names: set[str] = set()
    for i, stage in enumerate(profile.stages):
        path: Path = ("stages", i)
        label = f"stage {stage.name!r}:"
        if stage.name in names:
            yield Problem(
                (*path, "name"),
                f"{label} there are two stages of this name",
                "give each its own name",
            )
        names.add(stage.name)
        most = profile.consumer_per_subscription
        if stage.consumer_per_subscription is not None and stage.consumer_per_subscription > most:
            message = f"{label} {stage.consumer_per_subscription} consumers, but the profile's consumerPerSubscription is {most}"
            yield Problem(
                (*path, "consumerPerSubscription"),
                message,
                f"write {most} or less, or raise the profile's",
            )
        yield from _rates(profile, stage, path, label)
        if stage.pieces > MOST_PIECES:
            message = f"{label} {stage.pieces} pieces of constant rate, at most {MOST_PIECES} are possible"
            yield Problem(
                (*path, "rate"),
                message,
                "write a longer every or period, or a shorter stage",
                at_key=True,
            )


def _rates(profile: Profile, stage: Stage, path: Path, label: str) -> Iterator[Problem]:
    path = (*path, "rate")
    rates = stage.rates
    # 0 is the same in both units.
    units = {isinstance(rate, ByteRate) for rate in rates.values() if rate}
    if profile.consumer_only and rates:
        yield Problem(
            path,
            f"{label} has a rate, but the run has no producers",
            "remove rate, or write producersPerTopic: 1",
            at_key=True,
        )
    elif units - {profile.in_bytes}:
        unit, example = ("bytes", "10MB/s") if profile.in_bytes else ("messages", "5000/s")
        key = next(
            key
            for key, rate in rates.items()
            if rate and isinstance(rate, ByteRate) != profile.in_bytes
        )
        other = "producerRate" if profile.producer_rate else "another rate"
        message = f"{label} mixes messages and bytes: {other} is in {unit}"
        yield Problem((*path, *_steps(key)), message, f"write {unit}, as in {example}")
    elif stage.slo and stage.pauses(profile.producer_rate) and not profile.consumer_only:
        message = (
            f"{label} its rate is 0, so no message is due in it, and there is nothing to judge"
        )
        yield Problem(
            (*path[:-1], "slo"), message, "remove slo, or write a rate above 0", at_key=True
        )
    yield from _shape(stage, path, label)


class Pause(NamedTuple):
    """A time without messages: one stage, or several in a row. Times are ns from the start of the measured phase."""

    name: str
    start: int
    end: int


def _pauses(profile: Profile) -> list[Pause]:
    pauses: list[Pause] = []
    start = 0
    for stage in profile.stages:
        end = start + stage.duration
        if stage.pauses(profile.producer_rate) and not profile.consumer_only:
            if pauses and pauses[-1].end == start:
                pauses[-1] = pauses[-1]._replace(end=end)
            else:
                pauses.append(Pause(stage.name, start, end))
        start = end
    return pauses


def _judged_in_pauses(profile: Profile) -> Iterator[Problem]:
    """Reject objectives on the whole run that a pause leaves without data, or makes impossible."""
    pauses = _pauses(profile)
    for path, slo in (("slo",), profile.slo), (("scaled", "slo"), profile.scaled.slo):
        for pause in pauses:
            nothing = f"nothing is due in stage {pause.name!r}"
            if "window" in slo and slo.window and _has_window(pause, slo.window):
                message = (
                    f"{nothing}, so a window of {format_duration(slo.window)} in it has no data"
                )
                remedy = (
                    "write the objectives with a window under the other stages, or a longer window"
                )
                yield Problem((*path, "window"), message, remedy, at_key=True).named()
            if "drift" in slo and _has_end(pause, profile.test_duration):
                message = f"{nothing}, which is the first or the last tenth of the run"
                yield Problem(
                    (*path, "drift"), message, "remove it, or the stage", at_key=True
                ).named()
            bounds = [
                one.maximum
                for one in slo.objectives
                if one.metric == "deliveryGap" and one.maximum is not None
            ]
            if bounds and min(bounds) < pause.end - pause.start:
                message = f"{nothing} for {format_duration(pause.end - pause.start)}, which is a gap longer than the bound"
                yield Problem(
                    (*path, "deliveryGap"),
                    message,
                    "write it under the other stages, or a longer bound",
                    at_key=True,
                ).named()


def _has_window(pause: Pause, window: int) -> bool:
    """Return whether a whole window lies in the pause; the first one begins with the measured phase."""
    first = -(-pause.start // window) * window
    return first + window <= pause.end


def _has_end(pause: Pause, duration: int) -> bool:
    """Return whether the first or the last tenth of the run lies in the pause."""
    tenth = duration // 10
    first = pause.start == 0 and pause.end >= tenth
    last = pause.end == duration and pause.start <= duration - tenth
    return first or last


def _shape(stage: Stage, path: Path, label: str) -> Iterator[Problem]:
    if isinstance(stage.rate, Sine) and stage.rate.sine.amplitude > stage.rate.sine.mean:
        mean, amplitude = stage.rate.sine.mean, stage.rate.sine.amplitude
        lowest = format_rate(type(mean)(amplitude - mean))
        message = f"{label} the sine goes down to -{lowest}: amplitude {_bare(amplitude)} is above mean {_bare(mean)}"
        yield Problem((*path, "sine", "amplitude"), message, f"write {_bare(mean)} or less")
    if (
        isinstance(stage.rate, Spike)
        and stage.rate.spike.at + stage.rate.spike.for_ > stage.duration
    ):
        ends = format_duration(stage.rate.spike.at + stage.rate.spike.for_)
        message = f"{label} the spike ends after {ends}, the stage after {format_duration(stage.duration)}"
        yield Problem((*path, "spike"), message, "write a longer duration, or a shorter at or for")


def _bare(rate: float) -> str:
    return format_rate(rate) if isinstance(rate, ByteRate) else f"{rate:g}"


def _steps(dotted: str) -> Path:
    return tuple(int(step) if step.isdigit() else step for step in dotted.split(".") if step)


def _tuning(profile: Profile) -> Iterator[Problem]:
    if profile.driver.strict_tuning and profile.not_applied:
        keys = "; ".join(f"{key}: {reason}" for key, reason in profile.not_applied.items())
        yield Problem(
            ("driver",),
            f"driver: not applied under strictTuning: {keys}",
            "remove these keys, or strictTuning",
        )


# Delays: ``deliverAfter`` and ``deliverAt``.


def _delay_key(profile: Profile) -> str:
    return "deliverAt" if profile.deliver_after is None else "deliverAfter"


def _delayable(profile: Profile) -> Iterator[Problem]:
    """Reject delays with brokers that do not delay messages."""
    key, kind = _delay_key(profile), profile.driver.kind
    if profile.delays is not None and not kind.delays:
        remedy = f"remove it, or write driver: {{name: {able('delays')[0].name}}}"
        yield Problem((key,), f"{key}: {kind.label} has no delayed delivery", remedy, at_key=True)


def _undelayable(profile: Profile) -> Iterator[Problem]:
    """Reject delays together with keys that they cannot be combined with."""
    if profile.delays is None:
        if profile.allow_undelayed:
            yield Problem(
                ("allowUndelayed",),
                "allowUndelayed: no message is delayed",
                DELAY_EXAMPLE,
                at_key=True,
            )
        return
    key = _delay_key(profile)
    others = {
        "producersPerTopic: 0": profile.consumer_only,
        "messages: 0": profile.connects_only,
        "a search for the highest rate": profile.peak_search,
        "consumerBacklogSizeGB": bool(profile.consumer_backlog_size_gb),
        "64 subscriptions of a topic or more": profile.broadcasts,
    }
    for other, applies in others.items():
        if applies:
            yield Problem(
                (key,), f"{key}: cannot be combined with {other}", "remove one of them", at_key=True
            )


def _delay_objectives(profile: Profile) -> Iterator[Problem]:
    """Reject objectives on delays without delays."""
    for path, slo in bounding(profile):
        for metric in needing(Need.DELAYS):
            if metric in slo and profile.delays is None:
                yield Problem(
                    (*path, metric), "no message is delayed", DELAY_EXAMPLE, at_key=True
                ).named()


_WHO = ("producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription")
_DELAYS = ("allowUndelayed", "deliverAfter.*", "deliverAt")
_SIZES = ("representative", "payloadsPerBucket", "checksum", "messageSizeDistribution.*")
CHECKS = (
    # each check with the keys whose default would mislead it
    (_counts, (*_WHO, "topic", "messageSizeDistribution")),
    (_topic, ("topics",)),
    (_bytes, ("producerRate", "search.*", *_SIZES)),
    (_search, ("producerRate", "producersPerTopic", "search.*")),
    (_backlog, _WHO),
    (_drained, (*_WHO, "producerRate", "messageSize", *_SIZES)),
    (_stages, ("producerRate", "producersPerTopic", "consumerPerSubscription")),
    (_judged_in_pauses, ("producerRate", "producersPerTopic", "stages.*", "slo", "scaled.*")),
    (_tuning, ()),
    (_delayable, ("driver.name", "deliverAfter.*", "deliverAt")),
    (
        _undelayable,
        (
            *_DELAYS,
            "producersPerTopic",
            "messages",
            "producerRate",
            "search.*",
            "subscriptionsPerTopic",
            *_WHO[2:],
        ),
    ),
    (_delay_objectives, ("deliverAfter.*", "deliverAt")),
)
