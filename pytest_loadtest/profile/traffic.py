"""What must hold between the keys that say how much is sent, when and by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.envelope import HEAD
from pytest_loadtest.objectives import ObjectiveErrors, explicit, parse
from pytest_loadtest.payloads import CHECKSUM, MAX_PAYLOADS
from pytest_loadtest.profile.presence import Finding
from pytest_loadtest.profile.settings import MqttSettings, PulsarSettings
from pytest_loadtest.profile.stages import Sine, Spike, Stage
from pytest_loadtest.quantities import ByteRate, format_duration, format_rate
from pytest_loadtest.sizing import representatives

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.payloads import Bucket
    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.profile.text import Path

_SENDING = ("sent", "publishLatency", "sendDelay", "failed", "dropped")


def distributions(profile: Profile) -> Iterator[tuple[Path, Mapping[str, int], tuple[Bucket, ...]]]:
    """Every size distribution with its place: the profile's and the stages'."""
    if profile.message_size_distribution is not None:
        yield ("messageSizeDistribution",), profile.message_size_distribution, profile.buckets or ()
    for i, stage in enumerate(profile.stages):
        if stage.message_size_distribution is not None:
            yield ("stages", i, "messageSizeDistribution"), stage.message_size_distribution, stage.buckets or ()


def _counts(profile: Profile) -> Iterator[Finding]:
    if profile.consumer_only and profile.producer_only:
        key = "subscriptionsPerTopic" if profile.subscriptions_per_topic == 0 else "consumerPerSubscription"
        yield Finding((key,), f"{key}: 0 and producersPerTopic: 0: nobody sends and nobody receives", f"write {key}: 1")
    elif profile.consumer_only and profile.topic is None:
        yield Finding(("producersPerTopic",), "producersPerTopic: 0 receives what others send, and no topic is named", "write topic:")
    if profile.payloads_per_bucket > 1 and profile.message_size_distribution is None and not any(one.buckets for one in profile.stages):
        message = "payloadsPerBucket: without messageSizeDistribution there are no buckets"
        yield Finding(("payloadsPerBucket",), message, "write randomizedPayloadPoolSize for several payloads of one size", at_key=True)
    names = {bucket.name for _, _, found in distributions(profile) for bucket in found}
    if len(names) * profile.payloads_per_bucket > MAX_PAYLOADS and profile.payloads_per_bucket > 1:
        message = f"payloadsPerBucket: {profile.payloads_per_bucket} for {len(names)} size ranges are more than {MAX_PAYLOADS} payloads"
        yield Finding(("payloadsPerBucket",), message, f"write {MAX_PAYLOADS // len(names)} or less")


def _one_sided(profile: Profile) -> Iterator[Finding]:
    """Objectives on what does not happen."""
    for metric, bound in profile.slo.items():
        if profile.consumer_only and (metric != "throughput" or "%" in str(bound)):
            message = f"slo.{metric}: without producers of its own a run knows only how much it received"
            yield Finding(("slo", metric), message, "write throughput: 1000/s, and nothing else", at_key=True)
        elif profile.producer_only and not profile.consumer_only and metric not in _SENDING:
            yield Finding(
                ("slo", metric), f"slo.{metric}: nothing is received without consumers", f"use {', '.join(_SENDING)}", at_key=True
            )


def _topic(profile: Profile) -> Iterator[Finding]:
    topic, driver = profile.topic, profile.driver
    if topic is None:
        return
    if profile.topics != 1:
        yield Finding(("topics",), f"topics: {profile.topics}, and topic names one", "remove topics, or topic")
    if isinstance(driver, PulsarSettings):
        scheme, _, rest = topic.partition("://")
        if scheme not in ("persistent", "non-persistent") or rest.count("/") != 2 or not all(rest.split("/")):
            yield Finding(("topic",), f"topic: {topic!r} is no topic of Pulsar's", "write persistent://tenant/namespace/name")
        elif scheme != driver.topic_type:
            yield Finding(
                ("topic",), f"topic: {topic!r} is {scheme}, driver.topicType says {driver.topic_type}", f"write topicType: {scheme}"
            )
    elif isinstance(driver, MqttSettings) and (set("+#\0") & set(topic) or topic.startswith("$share/")):
        yield Finding(("topic",), f"topic: {topic!r} has a wildcard", "write one topic, such as a/b/c, without + and #")


def _bytes(profile: Profile) -> Iterator[Finding]:
    """The compact envelope leaves out the intended time, which is arithmetic only where messages are evenly spaced."""
    if not profile.in_bytes:
        return
    if profile.messages is not None:
        message = "messages: a number of messages and a rate in bytes exclude each other"
        yield Finding(("messages",), message, "write producerRate in messages, as in 5000/s")
    if profile.message_size is not None and profile.message_size < HEAD:
        message = f"messageSize: {profile.message_size} B is below the {HEAD} B that a rate in bytes needs"
        yield Finding(("messageSize",), message, f"write {HEAD} or more, or producerRate in messages")
    least = HEAD + (CHECKSUM if profile.checksum else 0)
    for path, _, found in distributions(profile):
        for bucket in found:
            smallest = min(representatives(bucket.low, bucket.high, profile.representative, profile.payloads_per_bucket))
            if smallest < least:
                message = f"size range {bucket.name!r} has payloads of {smallest} B, below the {least} B that a rate in bytes needs"
                yield Finding((*path, bucket.name), message, f"begin it at {least}, or write producerRate in messages", at_key=True)


def _search(profile: Profile) -> Iterator[Finding]:
    asked = profile.search
    if "search" in profile.model_fields_set and asked is not None and not profile.peak_search:
        message = f"search: looks for the rate, and producerRate names one, {format_rate(profile.producer_rate)}"
        yield Finding(("search",), message, "write producerRate: 0, or remove search", at_key=True)
    if not profile.peak_search or asked is None:
        return
    where: Path = ("producerRate",) if "producer_rate" in profile.model_fields_set else ("search",)
    try:
        bounds = explicit(parse(profile.slo))
    except ObjectiveErrors:
        bounds = parse({})  # spoken of elsewhere
    if not bounds:
        message = f"{where[0]}: asks for the highest rate at which all objectives hold, and there are none"
        yield Finding(where, message, "write slo: {endToEndLatency: {p99: 100ms}}, or a rate", at_key=True)
    if profile.stages or profile.messages is not None or profile.consumer_backlog_size_gb:
        key = "stages" if profile.stages else "messages" if profile.messages is not None else "consumerBacklogSizeGB"
        yield Finding((key,), f"{key}: cannot be combined with a search for the highest rate", "name a producerRate above 0", at_key=True)
    yield from _search_rates(profile)


def _search_rates(profile: Profile) -> Iterator[Finding]:
    asked = profile.search
    assert asked is not None
    in_bytes = isinstance(asked.start, ByteRate)
    rates: dict[str, float] = {"producerRate": profile.producer_rate} if isinstance(profile.producer_rate, ByteRate) else {}
    rates |= {"search.max": asked.max} if asked.max is not None else {}
    if wrong := [key for key, rate in rates.items() if isinstance(rate, ByteRate) != in_bytes]:
        unit = "bytes" if in_bytes else "messages"
        remedy = "give start and max the same unit, as in search: {start: 1MB/s, max: 1GB/s}"
        yield Finding(tuple(wrong[0].split(".")), f"{wrong[0]}: search.start is in {unit} per second, this is not", remedy)
    elif asked.max is not None and asked.max < asked.start:
        message = f"search.max: {format_rate(asked.max)} is below search.start, {format_rate(asked.start)}"
        yield Finding(("search", "max"), message, "start at less, or end at more")


def _backlog(profile: Profile) -> Iterator[Finding]:
    if not profile.consumer_backlog_size_gb:
        return
    if profile.producer_only or profile.consumer_only:
        yield Finding(("consumerBacklogSizeGB",), "consumerBacklogSizeGB: a backlog wants producers and consumers", "write 0")
    if profile.stages:
        message = "consumerBacklogSizeGB: cannot be combined with stages"
        yield Finding(("consumerBacklogSizeGB",), message, "write 0, and pause consumers in a test of its own")


def _stages(profile: Profile) -> Iterator[Finding]:
    names: set[str] = set()
    for i, stage in enumerate(profile.stages):
        path: Path = ("stages", i)
        said = f"stage {stage.name!r}:"
        if stage.name in names:
            yield Finding((*path, "name"), f"{said} a second one of this name", "give each its own name")
        names.add(stage.name)
        most = profile.consumer_per_subscription
        if stage.consumer_per_subscription is not None and stage.consumer_per_subscription > most:
            message = f"{said} {stage.consumer_per_subscription} consumers, and consumerPerSubscription has {most}"
            yield Finding((*path, "consumerPerSubscription"), message, f"write {most} or less, or raise the profile's")
        yield from _rates(profile, stage, path, said)


def _rates(profile: Profile, stage: Stage, path: Path, said: str) -> Iterator[Finding]:
    path = (*path, "rate")
    rates = stage.rates
    units = {isinstance(rate, ByteRate) for rate in rates.values()}
    if profile.consumer_only and rates:
        yield Finding(path, f"{said} a rate, and nobody sends", "remove rate, or write producersPerTopic: 1", at_key=True)
    elif units - {profile.in_bytes}:
        wanted = "bytes, as in 10MB/s" if profile.in_bytes else "messages, as in 5000/s"
        at = next(key for key, rate in rates.items() if isinstance(rate, ByteRate) != profile.in_bytes)
        yield Finding(
            (*path, *_steps(at)), f"{said} mixes messages and bytes: producerRate is in {wanted[:8].strip(', a')}", f"write {wanted}"
        )
    elif rates and not any(rates.values()):
        yield Finding(path, f"{said} every rate is 0: nothing would be sent", "write a rate above 0, or remove it for producerRate")
    yield from _shape(stage, path, said)


def _shape(stage: Stage, path: Path, said: str) -> Iterator[Finding]:
    if isinstance(stage.rate, Sine) and stage.rate.sine.amplitude > stage.rate.sine.mean:
        mean, amplitude = stage.rate.sine.mean, stage.rate.sine.amplitude
        lowest = format_rate(type(mean)(amplitude - mean))
        message = f"{said} the sine goes down to -{lowest}: amplitude {_bare(amplitude)} is above mean {_bare(mean)}"
        yield Finding((*path, "sine", "amplitude"), message, f"write {_bare(mean)} or less")
    if isinstance(stage.rate, Spike) and stage.rate.spike.at + stage.rate.spike.for_ > stage.duration:
        ends = format_duration(stage.rate.spike.at + stage.rate.spike.for_)
        message = f"{said} the spike ends after {ends}, the stage after {format_duration(stage.duration)}"
        yield Finding((*path, "spike"), message, "make the stage longer, or at and for shorter")


def _bare(rate: float) -> str:
    return format_rate(rate) if isinstance(rate, ByteRate) else f"{rate:g}"


def _steps(dotted: str) -> Path:
    return tuple(int(step) if step.isdigit() else step for step in dotted.split(".") if step)


def _tuning(profile: Profile) -> Iterator[Finding]:
    if profile.driver.strict_tuning and profile.not_applied:
        keys = "; ".join(f"{key}: {reason}" for key, reason in profile.not_applied.items())
        yield Finding(("driver",), f"driver: not applied under strictTuning: {keys}", "remove these keys, or strictTuning")


_WHO = ("producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription")
_SIZES = ("representative", "payloadsPerBucket", "checksum", "messageSizeDistribution.*")
CHECKS = (
    # each check with the keys whose default would mislead it
    (_counts, (*_WHO, "topic", "messageSizeDistribution")),
    (_one_sided, _WHO),
    (_topic, ("topics", "driver.name", "driver.topicType")),
    (_bytes, ("producerRate", "search.*", *_SIZES)),
    (_search, ("producerRate", "producersPerTopic", "search.*", "slo")),
    (_backlog, _WHO),
    (_stages, ("producerRate", "producersPerTopic", "consumerPerSubscription")),
    (_tuning, ()),
)
