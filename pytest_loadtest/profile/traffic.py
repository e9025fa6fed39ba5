"""What must hold between the keys that say how much is sent, when and by whom."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from pytest_loadtest.errors import Problem
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import CHECKSUM, MAX_PAYLOADS
from pytest_loadtest.message.sizing import representatives
from pytest_loadtest.profile.fields import MOST_DURATION
from pytest_loadtest.profile.stages import MOST_PIECES, Sine, Spike, Stage
from pytest_loadtest.schedule.changes import UNDER_WAY
from pytest_loadtest.values.quantities import MILLISECOND, SECOND, ByteRate, format_duration, format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.errors import Path
    from pytest_loadtest.message.payloads import Bucket
    from pytest_loadtest.profile.model import Profile


SHORTEST_HOLD = 100 * MILLISECOND


def distributions(profile: Profile) -> Iterator[tuple[Path, Mapping[str, int], tuple[Bucket, ...]]]:
    """Every size distribution with its place: the profile's and the stages'."""
    if profile.message_size_distribution is not None:
        yield ("messageSizeDistribution",), profile.message_size_distribution, profile.buckets or ()
    for i, stage in enumerate(profile.stages):
        if stage.message_size_distribution is not None:
            yield ("stages", i, "messageSizeDistribution"), stage.message_size_distribution, stage.buckets or ()


def _counts(profile: Profile) -> Iterator[Problem]:
    if profile.connects_only:
        return
    if profile.consumer_only and profile.producer_only:
        key = "subscriptionsPerTopic" if profile.subscriptions_per_topic == 0 else "consumerPerSubscription"
        yield Problem((key,), f"{key}: 0 and producersPerTopic: 0: nobody sends and nobody receives", f"write {key}: 1")
    elif profile.consumer_only and profile.topic is None:
        yield Problem(("producersPerTopic",), "producersPerTopic: 0 receives what others send, and no topic is named", "write topic:")
    if profile.consumer_only and profile.messages is not None:
        yield Problem(("messages",), "messages: nobody sends (producersPerTopic: 0)", "write testDuration: 30s instead", at_key=True)
    if profile.payloads_per_bucket > 1 and profile.message_size_distribution is None and not any(one.buckets for one in profile.stages):
        message = "payloadsPerBucket: without messageSizeDistribution there are no buckets"
        yield Problem(("payloadsPerBucket",), message, "write randomizedPayloadPoolSize for several payloads of one size", at_key=True)
    names = {bucket.name for _, _, found in distributions(profile) for bucket in found}
    if len(names) * profile.payloads_per_bucket > MAX_PAYLOADS and profile.payloads_per_bucket > 1:
        message = f"payloadsPerBucket: {profile.payloads_per_bucket} for {len(names)} size ranges are more than {MAX_PAYLOADS} payloads"
        yield Problem(("payloadsPerBucket",), message, f"write {MAX_PAYLOADS // len(names)} or less")


def _topic(profile: Profile) -> Iterator[Problem]:
    if profile.topic is not None and profile.topics != 1:
        yield Problem(("topics",), f"topics: {profile.topics}, and topic names one", "remove topics, or topic")


def _bytes(profile: Profile) -> Iterator[Problem]:
    """The compact envelope leaves out the intended time, which is arithmetic only where messages are evenly spaced."""
    if not profile.in_bytes:
        return
    if profile.messages is not None:
        message = "messages: a number of messages and a rate in bytes exclude each other"
        yield Problem(("messages",), message, "write producerRate in messages, as in 5000/s")
    if profile.message_size is not None and profile.message_size < HEAD:
        message = f"messageSize: {profile.message_size} B is below the {HEAD} B that a rate in bytes needs"
        yield Problem(("messageSize",), message, f"write {HEAD} or more, or producerRate in messages")
    least = HEAD + (CHECKSUM if profile.checksum else 0)
    for path, _, found in distributions(profile):
        for bucket in found:
            smallest = min(representatives(bucket.low, bucket.high, profile.representative, profile.payloads_per_bucket))
            if smallest < least:
                message = f"size range {bucket.name!r} has payloads of {smallest} B, below the {least} B that a rate in bytes needs"
                yield Problem((*path, bucket.name), message, f"begin it at {least}, or write producerRate in messages", at_key=True)


def _search(profile: Profile) -> Iterator[Problem]:
    asked = profile.search
    if "search" in profile.model_fields_set and asked is not None and not profile.peak_search and not profile.connects_only:
        message = f"search: looks for the rate, and producerRate names one, {format_rate(profile.producer_rate)}"
        yield Problem(("search",), message, "write producerRate: 0, or remove search", at_key=True)
    if not profile.peak_search or asked is None:
        return
    if profile.stages or profile.messages is not None or profile.consumer_backlog_size_gb:
        key = "stages" if profile.stages else "messages" if profile.messages is not None else "consumerBacklogSizeGB"
        yield Problem((key,), f"{key}: cannot be combined with a search for the highest rate", "name a producerRate above 0", at_key=True)
    if asked.confirm < asked.hold:
        confirm, hold = format_duration(asked.confirm), format_duration(asked.hold)
        message = f"search.confirm: {confirm} is shorter than search.hold, {hold}"
        yield Problem(("search", "confirm"), message, f"write {hold.replace(' ', '')} or more, or remove it for twice the hold")
    yield from _search_rates(profile)


def _search_rates(profile: Profile) -> Iterator[Problem]:
    asked = profile.search
    assert asked is not None
    if asked.hold < SHORTEST_HOLD:
        message = f"search.hold: {format_duration(asked.hold)} is too short for a rate to be judged"
        yield Problem(("search", "hold"), message, f"write {format_duration(SHORTEST_HOLD)} or more")
    in_bytes = isinstance(asked.start, ByteRate)
    rates: dict[str, float] = {"producerRate": profile.producer_rate} if isinstance(profile.producer_rate, ByteRate) else {}
    rates |= {"search.max": asked.max} if asked.max is not None else {}
    if wrong := [key for key, rate in rates.items() if isinstance(rate, ByteRate) != in_bytes]:
        unit = "bytes" if in_bytes else "messages"
        remedy = "give start and max the same unit, as in search: {start: 1MB/s, max: 1GB/s}"
        yield Problem(tuple(wrong[0].split(".")), f"{wrong[0]}: search.start is in {unit} per second, this is not", remedy)
    elif asked.max is not None and asked.max < asked.start:
        message = f"search.max: {format_rate(asked.max)} is below search.start, {format_rate(asked.start)}"
        yield Problem(("search", "max"), message, "start at less, or end at more")


def _backlog(profile: Profile) -> Iterator[Problem]:
    if not profile.consumer_backlog_size_gb:
        return
    if profile.producer_only or profile.consumer_only:
        yield Problem(("consumerBacklogSizeGB",), "consumerBacklogSizeGB: a backlog wants producers and consumers", "write 0")
    if profile.stages:
        message = "consumerBacklogSizeGB: cannot be combined with stages"
        yield Problem(("consumerBacklogSizeGB",), message, "write 0, and pause consumers in a test of its own")


def _drained(profile: Profile) -> Iterator[Problem]:
    """A backlog of no more than counts as drained says nothing."""
    size, rate, ratio = profile.consumer_backlog_size_gb * 1024**3, float(profile.producer_rate), profile.backlog_drain_ratio
    if not size or not rate or profile.producer_only:
        return
    mean = _mean_size(profile)
    under_way = rate * UNDER_WAY / SECOND * profile.subscriptions_per_topic * (1 if profile.in_bytes else mean)
    if size <= under_way:
        message = (
            f"consumerBacklogSizeGB: {size / mean:,.0f} messages are no backlog: {under_way / mean:,.0f} are under way at any time"
            f" (producerRate × {format_duration(UNDER_WAY)} × subscriptionsPerTopic)"
        )
        yield Problem(("consumerBacklogSizeGB",), message, f"write {10 * under_way / 1024**3:.2g} or more, or a lower producerRate")
    elif size > rate * (1 if profile.in_bytes else mean) * (MOST_DURATION // SECOND):
        message = f"consumerBacklogSizeGB: {size / mean:,.0f} messages take longer than ten years to build"
        yield Problem(("consumerBacklogSizeGB",), message, "write less, or a higher producerRate")
    elif size / mean * ratio < 1:
        message = f"backlogDrainRatio: {ratio:g} of {size / mean:,.0f} messages is none: nothing would have to be drained"
        yield Problem(("backlogDrainRatio",), message, "write 1.0, or a larger share")


def _mean_size(profile: Profile) -> float:
    """Bytes of a message, before any is moved to the envelope's or the broker's limit."""
    weighed = [
        (fmean(representatives(bucket.low, bucket.high, profile.representative, profile.payloads_per_bucket)), bucket.weight)
        for bucket in profile.buckets or ()
    ]
    if not weighed:
        return profile.message_size or HEAD
    return sum(size * weight for size, weight in weighed) / sum(weight for _, weight in weighed)


def _stages(profile: Profile) -> Iterator[Problem]:
    names: set[str] = set()
    for i, stage in enumerate(profile.stages):
        path: Path = ("stages", i)
        said = f"stage {stage.name!r}:"
        if stage.name in names:
            yield Problem((*path, "name"), f"{said} a second one of this name", "give each its own name")
        names.add(stage.name)
        most = profile.consumer_per_subscription
        if stage.consumer_per_subscription is not None and stage.consumer_per_subscription > most:
            message = f"{said} {stage.consumer_per_subscription} consumers, and consumerPerSubscription has {most}"
            yield Problem((*path, "consumerPerSubscription"), message, f"write {most} or less, or raise the profile's")
        yield from _rates(profile, stage, path, said)
        if stage.pieces > MOST_PIECES:
            message = f"{said} {stage.pieces} pieces of constant rate, at most {MOST_PIECES} are possible"
            yield Problem((*path, "rate"), message, "write a longer every or period, or a shorter stage", at_key=True)


def _rates(profile: Profile, stage: Stage, path: Path, said: str) -> Iterator[Problem]:
    path = (*path, "rate")
    rates = stage.rates
    units = {isinstance(rate, ByteRate) for rate in rates.values()}
    if profile.consumer_only and rates:
        yield Problem(path, f"{said} a rate, and nobody sends", "remove rate, or write producersPerTopic: 1", at_key=True)
    elif units - {profile.in_bytes}:
        wanted = "bytes, as in 10MB/s" if profile.in_bytes else "messages, as in 5000/s"
        at = next(key for key, rate in rates.items() if isinstance(rate, ByteRate) != profile.in_bytes)
        yield Problem(
            (*path, *_steps(at)), f"{said} mixes messages and bytes: producerRate is in {wanted[:8].strip(', a')}", f"write {wanted}"
        )
    elif rates and not any(rates.values()):
        yield Problem(path, f"{said} every rate is 0: nothing would be sent", "write a rate above 0, or remove it for producerRate")
    yield from _shape(stage, path, said)


def _shape(stage: Stage, path: Path, said: str) -> Iterator[Problem]:
    if isinstance(stage.rate, Sine) and stage.rate.sine.amplitude > stage.rate.sine.mean:
        mean, amplitude = stage.rate.sine.mean, stage.rate.sine.amplitude
        lowest = format_rate(type(mean)(amplitude - mean))
        message = f"{said} the sine goes down to -{lowest}: amplitude {_bare(amplitude)} is above mean {_bare(mean)}"
        yield Problem((*path, "sine", "amplitude"), message, f"write {_bare(mean)} or less")
    if isinstance(stage.rate, Spike) and stage.rate.spike.at + stage.rate.spike.for_ > stage.duration:
        ends = format_duration(stage.rate.spike.at + stage.rate.spike.for_)
        message = f"{said} the spike ends after {ends}, the stage after {format_duration(stage.duration)}"
        yield Problem((*path, "spike"), message, "make the stage longer, or at and for shorter")


def _bare(rate: float) -> str:
    return format_rate(rate) if isinstance(rate, ByteRate) else f"{rate:g}"


def _steps(dotted: str) -> Path:
    return tuple(int(step) if step.isdigit() else step for step in dotted.split(".") if step)


def _tuning(profile: Profile) -> Iterator[Problem]:
    if profile.driver.strict_tuning and profile.not_applied:
        keys = "; ".join(f"{key}: {reason}" for key, reason in profile.not_applied.items())
        yield Problem(("driver",), f"driver: not applied under strictTuning: {keys}", "remove these keys, or strictTuning")


_WHO = ("producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription")
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
    (_tuning, ()),
)
