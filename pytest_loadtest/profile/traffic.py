"""Checks of the keys for load: numbers of clients, sizes, rates, stages, backlog, delays.

The rule: keys that contradict each other, or that have no effect together, are an error.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import able
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import CHECKSUM, MAX_PAYLOADS
from pytest_loadtest.message.sizing import representatives
from pytest_loadtest.metrics.catalogue import Need, needing
from pytest_loadtest.profile.fields import MOST_DURATION
from pytest_loadtest.profile.judging import bounding, sections
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
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_loadtest.errors import Path
    from pytest_loadtest.message.payloads import Bucket
    from pytest_loadtest.profile.model import Profile
    from pytest_loadtest.verdict.objectives import Slo


SHORTEST_HOLD: Final = 100 * MILLISECOND
GIB: Final = 1024**3


class SizeDistribution(NamedTuple):
    """A size distribution of the profile, or of a stage.

    :param path: its place. :param ranges: as written, each with its weight.
    """

    path: Path
    ranges: Mapping[str, int]
    buckets: tuple[Bucket, ...]


def distributions(profile: Profile) -> Iterator[SizeDistribution]:
    """Yield every size distribution, the profile's and the stages'."""
    key = "messageSizeDistribution"
    ranges = profile.message_size_distribution
    if ranges is not None:
        yield SizeDistribution((key,), ranges, profile.buckets or ())
    for index, stage in enumerate(profile.stages):
        ranges = stage.message_size_distribution
        if ranges is not None:
            yield SizeDistribution(("stages", index, key), ranges, stage.buckets or ())


def _counts(profile: Profile) -> Iterator[Problem]:
    if profile.connects_only:
        return
    if profile.consumer_only and profile.producer_only:
        key = "consumerPerSubscription"
        if profile.subscriptions_per_topic == 0:
            key = "subscriptionsPerTopic"
        message = f"{key}: 0 and producersPerTopic: 0: the run has no clients"
        yield Problem((key,), message, f"write {key}: 1")
    elif profile.consumer_only and profile.topic is None:
        message = "producersPerTopic: 0 receives messages of others, and topic is missing"
        yield Problem(("producersPerTopic",), message, "write topic: NAME")
    if profile.consumer_only and profile.messages is not None:
        message = "messages: the run has no producers (producersPerTopic: 0)"
        yield Problem(("messages",), message, "write testDuration: 30s instead", at_key=True)
    if profile.payloads_per_bucket > 1:
        yield from _payloads(profile)


def _payloads(profile: Profile) -> Iterator[Problem]:
    """Reject several payloads for each size range without ranges, and more than can be kept."""
    path = ("payloadsPerBucket",)
    ranges = {bucket.name for sizes in distributions(profile) for bucket in sizes.buckets}
    if not ranges:
        message = "payloadsPerBucket: without messageSizeDistribution there are no size buckets"
        remedy = "write randomizedPayloadPoolSize for several payloads of one size"
        yield Problem(path, message, remedy, at_key=True)
    if len(ranges) * profile.payloads_per_bucket > MAX_PAYLOADS:
        number = f"{profile.payloads_per_bucket} for {len(ranges)} size ranges"
        message = f"payloadsPerBucket: {number} are more than {MAX_PAYLOADS} payloads"
        yield Problem(path, message, f"write {MAX_PAYLOADS // len(ranges)} or less")


def _topic(profile: Profile) -> Iterator[Problem]:
    if profile.topic is None:
        return
    if "topics" in profile.scalable:
        message = "scalable: topics, but topic names a single one"
        yield Problem(("scalable",), message, "remove topics from scalable")
    if profile.topics != 1:
        message = f"topics: {profile.topics}, but topic names a single one"
        yield Problem(("topics",), message, "remove topics, or topic")


def _bytes(profile: Profile) -> Iterator[Problem]:
    """Reject numbers of messages, and sizes for the compact envelope.

    The intended time that it omits can be computed only for evenly spaced messages.
    """
    if not profile.in_bytes:
        return
    if profile.messages is not None:
        message = "messages: cannot be combined with a rate in bytes"
        yield Problem(("messages",), message, "write producerRate in messages, as in 5000/s")
    yield from small_sizes(profile, HEAD, "a rate in bytes needs", ", or producerRate in messages")


def small_sizes(
    profile: Profile, least: int, reason: str, otherwise: str = ""
) -> Iterator[Problem]:
    """Yield a problem for each payload below ``least`` bytes and a checksum, also in stages.

    :param reason: the clause ``… needs``. :param otherwise: another remedy.
    """
    if profile.message_size is not None and profile.message_size < least:
        message = f"messageSize: {profile.message_size} B is below the {least} B that {reason}"
        yield Problem(("messageSize",), message, f"write {least} or more{otherwise}")
    if profile.checksum:
        least += CHECKSUM
    for sizes in distributions(profile):
        for bucket in sizes.buckets:
            smallest = min(_sizes_of(bucket, profile))
            if smallest < least:
                payloads = f"payloads of {smallest} B, below the {least} B"
                message = f"size range {bucket.name!r} has {payloads} that {reason}"
                remedy = f"begin it at {least}{otherwise}"
                yield Problem((*sizes.path, bucket.name), message, remedy, at_key=True)


def _sizes_of(bucket: Bucket, profile: Profile) -> Sequence[int]:
    """Return the sizes of the payloads of a bucket."""
    return representatives(
        bucket.low, bucket.high, profile.representative, profile.payloads_per_bucket
    )


def _search(profile: Profile) -> Iterator[Problem]:
    search = profile.search
    written = "search" in profile.model_fields_set and search is not None
    if profile.stages:
        yield from _search_in_stages(profile, written)
        return
    if not profile.peak_search:
        if written and not profile.connects_only:
            rate = format_rate(profile.producer_rate)
            message = f"search: finds the rate, but producerRate is {rate}"
            remedy = "write producerRate: 0, or remove search"
            yield Problem(("search",), message, remedy, at_key=True)
        return
    if search is None:
        return
    if profile.messages is not None or profile.consumer_backlog_size_gb:
        key = "messages" if profile.messages is not None else "consumerBacklogSizeGB"
        message = f"{key}: cannot be combined with a search for the highest rate"
        yield Problem((key,), message, "write a producerRate above 0", at_key=True)
    if search.confirm < search.hold:
        confirm = format_duration(search.confirm)
        hold = format_duration(search.hold)
        message = f"search.confirm: {confirm} is shorter than search.hold, {hold}"
        remedy = f"write {hold.replace(' ', '')} or more, or remove it for twice the hold"
        yield Problem(("search", "confirm"), message, remedy)
    yield from _search_rates(profile, search)


def _search_in_stages(profile: Profile, written: bool) -> Iterator[Problem]:
    """Reject stages together with keys that ask for a search. :param written: ``search`` does."""
    has_rate = "producer_rate" in profile.model_fields_set
    zero = has_rate and not profile.producer_rate and not profile.consumer_only
    if zero or written:
        message = "stages: cannot be combined with a search for the highest rate"
        remedy = "write a producerRate above 0, or none if each stage has a rate; and no search"
        yield Problem(("stages",), message, remedy, at_key=True)


def _search_rates(profile: Profile, search: SearchSection) -> Iterator[Problem]:
    if search.hold < SHORTEST_HOLD:
        message = f"search.hold: {format_duration(search.hold)} is too short to judge a rate"
        remedy = f"write {format_duration(SHORTEST_HOLD)} or more"
        yield Problem(("search", "hold"), message, remedy)
    rates: dict[str, float] = {}
    if isinstance(profile.producer_rate, ByteRate):
        rates["producerRate"] = profile.producer_rate
    if search.max is not None:
        rates["search.max"] = search.max
    in_bytes = isinstance(search.start, ByteRate)
    others = [key for key, rate in rates.items() if isinstance(rate, ByteRate) != in_bytes]
    if others:
        unit = "bytes" if in_bytes else "messages"
        message = f"{others[0]}: search.start is in {unit} per second, this rate is not"
        remedy = "write start and max in the same unit, as in search: {start: 1MB/s, max: 1GB/s}"
        yield Problem(tuple(others[0].split(".")), message, remedy)
    elif search.max is not None and search.max < search.start:
        start = format_rate(search.start)
        message = f"search.max: {format_rate(search.max)} is below search.start, {start}"
        yield Problem(("search", "max"), message, "write a lower start, or a higher max")


def _backlog(profile: Profile) -> Iterator[Problem]:
    if not profile.consumer_backlog_size_gb:
        return
    path = ("consumerBacklogSizeGB",)
    if profile.producer_only or profile.consumer_only:
        message = "consumerBacklogSizeGB: a backlog needs producers and consumers"
        yield Problem(path, message, "write 0")
    if profile.messages:
        message = "messages: cannot be combined with consumerBacklogSizeGB"
        remedy = "write testDuration: 30s, the time after the drain"
        yield Problem(("messages",), message, remedy, at_key=True)
    if profile.stages:
        message = "consumerBacklogSizeGB: cannot be combined with stages"
        yield Problem(path, message, "write 0, and pause consumers in a test of its own")


def _drained(profile: Profile) -> Iterator[Problem]:
    """Reject a backlog that would count as drained at once, or would never be built."""
    size = profile.consumer_backlog_size_gb * GIB
    rate = float(profile.producer_rate)
    if not size or not rate or profile.producer_only:
        return
    path = ("consumerBacklogSizeGB",)
    mean = _mean_size(profile)
    unit = 1 if profile.in_bytes else mean
    under_way = rate * UNDER_WAY / SECOND * profile.subscriptions_per_topic * unit
    messages = f"{size / mean:,.0f} messages"
    ratio = profile.backlog_drain_ratio
    if size <= under_way:
        waiting = f"{under_way / mean:,.0f} are under way at any time"
        factors = f"producerRate × {format_duration(UNDER_WAY)} × subscriptionsPerTopic"
        message = f"{path[0]}: {messages} are not a backlog: {waiting} ({factors})"
        remedy = f"write {10 * under_way / GIB:.2g} or more, or a lower producerRate"
        yield Problem(path, message, remedy)
    elif size > rate * unit * (MOST_DURATION // SECOND):
        message = f"{path[0]}: {messages} take longer than ten years to build"
        yield Problem(path, message, "write less, or a higher producerRate")
    elif size / mean * ratio < 1:
        message = f"backlogDrainRatio: {ratio:g} of {messages} rounds to 0: nothing to drain"
        yield Problem(("backlogDrainRatio",), message, "write 1.0, or a larger share")


def _mean_size(profile: Profile) -> float:
    """Return the mean size of a message in bytes.

    Sizes are not yet moved to the limit of the envelope or the broker.
    """
    buckets = profile.buckets
    if not buckets:
        return profile.message_size or HEAD
    means = [fmean(_sizes_of(bucket, profile)) for bucket in buckets]
    return fmean(means, [bucket.weight for bucket in buckets])


def _stages(profile: Profile) -> Iterator[Problem]:
    paused = [
        stage.rate is not None and stage.pauses(profile.producer_rate) for stage in profile.stages
    ]
    if paused and all(paused) and not profile.consumer_only:
        message = "stages: every rate is 0: nothing would be sent"
        yield Problem(("stages",), message, "write a rate above 0 in one of them", at_key=True)
    names: set[str] = set()
    for index, stage in enumerate(profile.stages):
        label = f"stage {stage.name!r}:"
        if stage.name in names:
            path = ("stages", index, "name")
            message = f"{label} there are two stages of this name"
            yield Problem(path, message, "give each its own name")
        names.add(stage.name)
        yield from _stage(profile, stage, ("stages", index), label)


def _stage(profile: Profile, stage: Stage, path: Path, label: str) -> Iterator[Problem]:
    """Yield the problems of one stage. :param label: first words of a message about it."""
    most = profile.consumer_per_subscription
    consumers = stage.consumer_per_subscription
    if consumers is not None and consumers > most:
        limit = f"the profile's consumerPerSubscription is {most}"
        message = f"{label} {consumers} consumers, but {limit}"
        remedy = f"write {most} or less, or raise the profile's"
        yield Problem((*path, "consumerPerSubscription"), message, remedy)
    yield from _rates(profile, stage, path, label)
    if stage.pieces > MOST_PIECES:
        pieces = f"{stage.pieces} pieces of constant rate"
        message = f"{label} {pieces}, at most {MOST_PIECES} are possible"
        remedy = "write a longer every or period, or a shorter stage"
        yield Problem((*path, "rate"), message, remedy, at_key=True)


def _rates(profile: Profile, stage: Stage, path: Path, label: str) -> Iterator[Problem]:
    at_rate = (*path, "rate")
    # A rate of 0 is the same in both units.
    other_unit = [
        key
        for key, rate in stage.rates.items()
        if rate and isinstance(rate, ByteRate) != profile.in_bytes
    ]
    if profile.consumer_only and stage.rates:
        message = f"{label} has a rate, but the run has no producers"
        remedy = "remove rate, or write producersPerTopic: 1"
        yield Problem(at_rate, message, remedy, at_key=True)
    elif other_unit:
        unit, example = ("bytes", "10MB/s") if profile.in_bytes else ("messages", "5000/s")
        other = "producerRate" if profile.producer_rate else "another rate"
        message = f"{label} mixes messages and bytes: {other} is in {unit}"
        at = (*at_rate, *_steps(other_unit[0]))
        yield Problem(at, message, f"write {unit}, as in {example}")
    elif stage.slo and stage.pauses(profile.producer_rate) and not profile.consumer_only:
        pause = "its rate is 0, so no message is due in it"
        message = f"{label} {pause}, and there is nothing to judge"
        remedy = "remove slo, or write a rate above 0"
        yield Problem((*path, "slo"), message, remedy, at_key=True)
    yield from _shape(stage, at_rate, label)


class Pause(NamedTuple):
    """A time without messages: pieces of rate 0 in a row, of one stage or several.

    Times are ns from the start of what is judged.

    :param name: of the stage in which it begins.
    """

    name: str
    start: int
    end: int


def _pauses(stages: Sequence[Stage], default_rate: float) -> list[Pause]:
    pauses: list[Pause] = []
    start = 0
    for stage in stages:
        for length, rate in stage.steps(default_rate):
            end = start + length
            if not rate and pauses and pauses[-1].end == start:
                pauses[-1] = pauses[-1]._replace(end=end)
            elif not rate:
                pauses.append(Pause(stage.name, start, end))
            start = end
    return pauses


def _judged_in_pauses(profile: Profile) -> Iterator[Problem]:
    """Reject objectives that a pause leaves without data, or makes impossible."""
    # Too many pieces are a problem of their own, and would take minutes to compute.
    if profile.consumer_only or any(stage.pieces > MOST_PIECES for stage in profile.stages):
        return
    for path, slo in sections(profile):
        stages = profile.stages
        if path[0] == "stages":
            stages = (stages[int(path[1])],)
        for pause in _pauses(stages, profile.producer_rate) if slo else ():
            for key, message, remedy in _spoiled(slo, pause, stages, profile):
                yield Problem((*path, key), message, remedy, at_key=True).named()


def _spoiled(
    slo: Slo, pause: Pause, stages: Sequence[Stage], profile: Profile
) -> Iterator[tuple[str, str, str]]:
    """Yield the objectives on stages that a pause spoils: key, message, and remedy."""
    length = pause.end - pause.start
    duration = sum(stage.duration for stage in stages)
    if length == duration:
        return  # That nothing at all is due is a problem of its own.
    nothing = f"nothing is due in stage {pause.name!r} for {format_duration(length)}"
    if slo.window and _has_window(pause, slo.window) and "window" in slo:
        window = format_duration(slo.window)
        remedy = "write the objectives with a window under the other stages, or a longer window"
        yield "window", f"{nothing}, so a window of {window} in it has no data", remedy
    if "drift" in slo and _has_end(pause, duration):
        message = f"{nothing}, so the first or the last tenth has no data"
        yield "drift", message, "remove it, or the stage"
    after = profile.deliver_after
    if profile.deliver_at or (after and after.min < after.max):
        return  # Messages with different delays may come in the pause.
    for objective in slo.objectives:
        bound = objective.maximum
        if objective.metric == "deliveryGap" and bound is not None and bound < length:
            remedy = "write it under the other stages, or a longer bound"
            yield "deliveryGap", f"{nothing}, which is a gap longer than the bound", remedy
            return


def _has_window(pause: Pause, window: int) -> bool:
    """Return whether a whole window lies in the pause.

    The first one begins with what is judged.
    """
    first = -(-pause.start // window) * window
    return first + window <= pause.end


def _has_end(pause: Pause, duration: int) -> bool:
    """Return whether the first or the last tenth of what is judged lies in the pause."""
    tenth = duration // 10
    first = pause.start == 0 and pause.end >= tenth
    last = pause.end == duration and pause.start <= duration - tenth
    return first or last


def _shape(stage: Stage, path: Path, label: str) -> Iterator[Problem]:
    if isinstance(stage.rate, Sine):
        mean = stage.rate.sine.mean
        amplitude = stage.rate.sine.amplitude
        if amplitude > mean:
            lowest = format_rate(type(mean)(amplitude - mean))
            cause = f"amplitude {_bare(amplitude)} is above mean {_bare(mean)}"
            message = f"{label} the sine goes down to -{lowest}: {cause}"
            yield Problem((*path, "sine", "amplitude"), message, f"write {_bare(mean)} or less")
    if isinstance(stage.rate, Spike):
        end = stage.rate.spike.at + stage.rate.spike.for_
        if end > stage.duration:
            stage_end = f"the stage after {format_duration(stage.duration)}"
            message = f"{label} the spike ends after {format_duration(end)}, {stage_end}"
            remedy = "write a longer duration, or a shorter at or for"
            yield Problem((*path, "spike"), message, remedy)


def _bare(rate: float) -> str:
    return format_rate(rate) if isinstance(rate, ByteRate) else f"{rate:g}"


def _steps(dotted: str) -> Path:
    """Return the path of a key below ``rate``: ``replay.3`` → ``("replay", 3)``; empty for ''."""
    steps = filter(None, dotted.split("."))
    return tuple(int(step) if step.isdigit() else step for step in steps)


def _tuning(profile: Profile) -> Iterator[Problem]:
    if profile.driver.strict_tuning and profile.not_applied:
        keys = "; ".join(f"{key}: {reason}" for key, reason in profile.not_applied.items())
        message = f"driver: not applied under strictTuning: {keys}"
        yield Problem(("driver",), message, "remove these keys, or strictTuning")


# Delays: ``deliverAfter`` and ``deliverAt``.


def _delay_key(profile: Profile) -> str:
    return "deliverAt" if profile.deliver_after is None else "deliverAfter"


def _delayable(profile: Profile) -> Iterator[Problem]:
    """Reject delays with brokers that do not delay messages."""
    key = _delay_key(profile)
    kind = profile.driver.kind
    if profile.delays is not None and not kind.delays:
        remedy = f"remove it, or write driver: {{name: {able('delays')[0].name}}}"
        yield Problem((key,), f"{key}: {kind.label} has no delayed delivery", remedy, at_key=True)


def _undelayable(profile: Profile) -> Iterator[Problem]:
    """Reject delays together with keys that they cannot be combined with."""
    if profile.delays is None:
        if profile.allow_undelayed:
            message = "allowUndelayed: no message is delayed"
            yield Problem(("allowUndelayed",), message, DELAY_EXAMPLE, at_key=True)
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
            message = f"{key}: cannot be combined with {other}"
            yield Problem((key,), message, "remove one of them", at_key=True)


def _delay_objectives(profile: Profile) -> Iterator[Problem]:
    """Reject objectives on delays without delays."""
    if profile.delays is not None:
        return
    for path, slo in bounding(profile):
        for metric in needing(Need.DELAYS):
            if metric in slo:
                at = (*path, metric)
                yield Problem(at, "no message is delayed", DELAY_EXAMPLE, at_key=True).named()


CHECKS = (
    _counts,
    _topic,
    _bytes,
    _search,
    _backlog,
    _drained,
    _stages,
    _judged_in_pauses,
    _tuning,
    _delayable,
    _undelayable,
    _delay_objectives,
)
