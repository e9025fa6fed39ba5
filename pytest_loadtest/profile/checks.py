"""Checks between the keys of a profile, each with the keys that it reads.

They are pure and independent: a check is skipped if one of its keys is already known to be invalid.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import able, kinds, labels, load_reference
from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.message.payloads import CHECKSUM, parse_range
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.profile import judging, skew, traffic
from pytest_loadtest.profile.fields import MOST_DURATION, spelling
from pytest_loadtest.profile.judging import CONNECTING, sections
from pytest_loadtest.profile.model import LARGEST, Profile
from pytest_loadtest.schedule.topology import MOST
from pytest_loadtest.values.quantities import format_rate
from pytest_loadtest.verdict.grammar import CONNECT_RATE, LATENCIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

    from pytest_loadtest.errors import Path
    from pytest_loadtest.profile.client import ClientSettings
    from pytest_loadtest.profile.model import Profile


_ADDRESSES: Final = ("url", "subscriber_url", "admin_url", "image")
BUCKETS = 256  # the envelope numbers a bucket in one byte


def _duration(profile: Profile) -> Iterator[Problem]:
    if profile.messages and profile.test_duration > MOST_DURATION:
        message = f"messages: {profile.messages} messages at {format_rate(profile.producer_rate)} take longer than ten years"
        yield Problem(("messages",), message, "write fewer, or a higher producerRate")
    if profile.test_duration == 0:
        for name, key in (
            ("test_duration", "testDuration"),
            ("test_duration_minutes", "testDurationMinutes"),
        ):
            if name in profile.model_fields_set:
                yield Problem(
                    (key,), f"{key}: is less than a nanosecond", "write testDuration: 30s"
                )


def _overlaps(profile: Profile) -> Iterator[Problem]:
    for path, distribution, _ in traffic.distributions(profile):
        reach, widest = 0, ""
        for low, high, text in sorted((*parse_range(text), text) for text in distribution):
            if low < reach:
                message = f"size range {text!r} overlaps {widest!r}"
                yield Problem(
                    (*path, text),
                    message,
                    "write ranges that meet but do not overlap: the high end is excluded",
                    at_key=True,
                )
            reach, widest = max((reach, widest), (high, text))


def _smallest(profile: Profile) -> Iterator[Problem]:
    size = profile.message_size
    if size is None:
        return
    head = COMPACT_HEAD if size < HEAD else HEAD
    if size < COMPACT_HEAD:
        message = f"messageSize: {size} B is below the {COMPACT_HEAD} B of the smallest envelope"
        yield Problem(("messageSize",), message, f"write {COMPACT_HEAD} or more")
    elif profile.checksum and size < head + CHECKSUM:
        message = (
            f"messageSize: {size} B leaves no room for the checksum behind an envelope of {head} B"
        )
        yield Problem(
            ("messageSize",), message, f"write {head + CHECKSUM} or more, or checksum: false"
        )


def _sendable(profile: Profile) -> Iterator[Problem]:
    """Reject ranges without a size that can be sent: a drawn size is moved to the nearest possible one, but not out of its range."""
    tail = CHECKSUM if profile.checksum else 0
    limit = _limit(profile)
    distributions = list(traffic.distributions(profile))
    names = {text for _, distribution, _ in distributions for text in distribution}
    if len(names) > BUCKETS:
        where = distributions[-1][0] if len(distributions[0][1]) <= BUCKETS else distributions[0][0]
        remedy = (
            "merge some"
            if len(distributions) == 1
            else "merge some, or use the same ranges in all stages"
        )
        yield Problem(
            where, f"messageSizeDistribution: more than {BUCKETS} ranges", remedy, at_key=True
        )
    for path, _, buckets in distributions:
        for bucket in buckets:
            where = (*path, bucket.name)
            if bucket.high <= COMPACT_HEAD + tail:
                message = f"size range {bucket.name!r} has no size of {COMPACT_HEAD + tail} B or more, which the envelope needs"
                yield Problem(where, message, f"end it above {COMPACT_HEAD + tail}", at_key=True)
            elif limit is not None and bucket.low > limit:
                message = f"size range {bucket.name!r} starts above what the {profile.driver.kind.target} takes, {limit} B"
                yield Problem(where, message, "remove it", at_key=True)


def _largest(profile: Profile) -> Iterator[Problem]:
    size, limit, whose = profile.message_size, _limit(profile), profile.driver.kind.message_limit
    key = "" if whose is None else whose.key or ""
    if limit is None and whose is not None:
        path = ("broker", "settings", key)
        yield Problem(
            path,
            f"{'.'.join(path)}: {profile.broker.settings[key]!r} is not a number of bytes",
            f"write {whose.default}",
        )
    elif limit is not None and size is not None and size > limit:
        raised = f", or raise broker.settings.{key}" if key and limit < LARGEST // 2 else ""
        message = (
            f"messageSize: {size} B is above what the {profile.driver.kind.target} takes, {limit} B"
        )
        yield Problem(("messageSize",), message, f"write {limit} or less{raised}")


def _limit(profile: Profile) -> int | None:
    try:
        return profile.max_message_size
    except ValueError:
        return None


def _target(profile: Profile) -> Iterator[Problem]:
    if profile.target is None:
        return
    kind, url = profile.driver.kind, profile.target.url
    schemes = kind.target_schemes
    if url is None and profile.target.image is None and profile.target.security is None:
        yield Problem(
            ("target",),
            "target.url is missing",
            f"write url: {schemes[0]}://host:port, or image: IMAGE",
        )
    if profile.target.image is not None and (
        url or profile.target.subscriber_url or profile.target.admin_url
    ):
        yield Problem(
            ("target", "image"),
            "target.image: an image has no address before it runs",
            "remove image, or url and adminUrl",
        )
    if profile.target.subscriber_url is not None and not kind.subscriber_url:
        message = f"target.subscriberUrl: only {labels('subscriber_url')} has a second address for consumers, not the driver {kind.name}"
        yield Problem(("target", "subscriberUrl"), message, "remove it", at_key=True)
    if url is not None and url.partition("://")[0] not in schemes:
        message = f"target.url: {url!r} is not for the driver {profile.driver.name}"
        yield Problem(
            ("target", "url"), message, f"write {schemes[0]}://host:port, or another driver.name"
        )


def _cluster(profile: Profile) -> Iterator[Problem]:
    kind, driver = profile.driver.kind, profile.driver
    keys = [key for key in ("brokers", "bookies") if getattr(profile.broker, key) is not None]
    if not keys:
        return
    path, start = ("broker", keys[0]), kind.start_of(driver.broker_name)
    if not start.nodes:
        able_to = " and ".join(
            one.label or each.label
            for each in kinds().values()
            for one in each.brokers.values()
            if one.nodes
        )
        message = f"broker.{keys[0]}: only {able_to} can be started as a cluster, not the driver {kind.name}"
        yield Problem(path, message, f"remove {' and '.join(keys)}", at_key=True)
    elif others := [key for key in keys if key not in {f"{role}s" for role in start.nodes}]:
        message = f"broker.{others[0]}: a cluster of {start.label or kind.label} has none"
        yield Problem(("broker", others[0]), message, f"remove {others[0]}", at_key=True)


def _security(profile: Profile) -> Iterator[Problem]:
    target = profile.target
    if target is None or (security := target.security) is None:
        return
    path, kind = ("target", "security"), profile.driver.kind
    if not kind.security:
        message = f"target.security: only {labels('security')} brokers can be started with it, not the {kind.name} {kind.target}"
        yield Problem(
            path,
            message,
            f"remove it, or write driver: {{name: {able('security')[0].name}}}",
            at_key=True,
        )
    elif security.tls == "subscribers" and not kind.subscriber_url:
        message = f"target.security.tls: only {labels('subscriber_url')} has a second port for subscribers"
        yield Problem((*path, "tls"), message, "write tls: true")
    if kind.security and security.auth is not None and security.auth not in kind.security:
        whose = " and ".join(one.label for one in able("security") if security.auth in one.security)
        message = f"target.security.auth: {security.auth} is for {whose}"
        shown = (
            f", so that clients of {kind.label} use certificates"
            if kind.security[0] == "tls"
            else ""
        )
        yield Problem((*path, "auth"), message, f"write auth: {kind.security[0]}{shown}")
    if others := [spelling(name) for name in _ADDRESSES if getattr(target, name) is not None]:
        message = f"target.security: only a broker that the run starts as a process gets keys, but {others[0]} names another one"
        yield Problem(path, message, f"remove security, or {', '.join(others)}", at_key=True)
    if not security.tls and security.auth is None:
        yield Problem(
            path,
            "target.security: requires nothing of clients",
            "write tls: true, or auth: token",
            at_key=True,
        )
    if security.auth == "tls" and not security.tls:
        yield Problem(
            (*path, "auth"),
            "target.security.auth: tls needs a TLS port",
            "write tls: true next to it",
        )


_COUNTED: Final = {
    # limited number → the keys whose product it is
    "streams": ("topics", "producersPerTopic"),
    "partitions": ("topics", "partitionsPerTopic"),
    "consumers": ("topics", "subscriptionsPerTopic", "consumerPerSubscription"),
}


def _most(profile: Profile) -> Iterator[Problem]:
    counts = {
        "topics": profile.topics, "partitionsPerTopic": profile.partitions_per_topic,
        "producersPerTopic": profile.producers_per_topic,
        "subscriptionsPerTopic": profile.subscriptions_per_topic, "consumerPerSubscription": profile.consumer_per_subscription,
    }  # fmt: skip
    for what, keys in _COUNTED.items():
        total = math.prod(counts[key] for key in keys)
        if total > MOST:
            largest = max(keys, key=counts.__getitem__)
            others = total // counts[largest]
            message = f"{largest}: {counts[largest]} gives {total:,} {what} ({' × '.join(keys)}), at most {MOST:,} are possible"
            yield Problem((largest,), message, f"write {max(MOST // others, 1)} or less")


def _paired(profile: Profile) -> Iterator[Problem]:
    """Reject a pairing that would pair nothing, and that of broadcasts, whose rows of subscriptions are spread over all workers."""
    if profile.pair_consumers is None:
        return
    if profile.subscriptions_per_topic >= WIDTH:
        message = f"pairConsumers: cannot be combined with {WIDTH} subscriptions of a topic or more, which all hosts share"
        yield Problem(("pairConsumers",), message, "remove it", at_key=True)
    if profile.producer_only or profile.consumer_only or profile.connects_only:
        message = "pairConsumers: has no effect, because no message goes from a producer of this run to a consumer of it"
        yield Problem(("pairConsumers",), message, "remove it", at_key=True)


def _native(profile: Profile) -> Iterator[Problem]:
    client, clients = profile.driver.client, profile.driver.kind.clients
    if client is not None and client not in clients:
        yield Problem(
            ("driver", "client"),
            f"driver.client: {profile.driver.name} has no {client} client",
            f"write {' or '.join(clients)}",
        )


_LIMIT = ("driver.name", "broker.settings.*")


# A workload that only connects (``messages: 0``).

_EXAMPLE: Final = "write slo: {connectLatency: {mean: 500ms}}"


_OPENED: Final = tuple(name for name in CONNECTING if name in LATENCIES)
"""Objectives on the latencies of connecting."""


def _sent(profile: Profile) -> Iterator[Problem]:
    """Reject keys for sending."""
    if not profile.connects_only:
        return
    if profile.producer_rate:
        message = f"producerRate: {format_rate(profile.producer_rate)}, but messages: 0 sends none"
        yield Problem(
            ("producerRate",),
            message,
            "remove producerRate, or messages; driver.connectRate paces connections",
        )
    if "search" in profile.model_fields_set and profile.search is not None:
        message = "search: finds the highest rate of messages, but messages: 0 sends none"
        yield Problem(
            ("search",),
            message,
            "remove search, and write a matrix of driver.connectRate",
            at_key=True,
        )
    if profile.consumer_backlog_size_gb:
        yield Problem(
            ("consumerBacklogSizeGB",),
            "consumerBacklogSizeGB: messages: 0 builds no backlog",
            "write 0",
        )


def _connected(profile: Profile) -> Iterator[Problem]:
    """Reject a run without clients, or with clients that do not report how connecting went."""
    if not profile.connects_only:
        return
    if not profile.driver.kind.opening_times:
        message = f"messages: 0 only connects, but clients of {profile.driver.name} do not report how long that took"
        yield Problem(
            ("messages",),
            message,
            f"write driver: {{name: {able('opening_times')[0].name}}}, or 1 or more messages",
        )
    if profile.consumer_only and profile.producer_only:
        yield Problem(
            ("messages",),
            "messages: 0 only connects, but the run has no clients",
            "write producersPerTopic: 1",
        )


def _judged(profile: Profile) -> Iterator[Problem]:
    """Reject a run without an objective on connecting, and objectives on messages."""
    if not profile.connects_only or not profile.driver.kind.opening_times:
        return
    for path, slo in sections(profile):
        for metric in slo:
            if metric not in CONNECTING:
                remedy = f"bound {' or '.join(_OPENED)}"
                yield Problem(
                    (*path, metric), "the run has no messages (messages: 0)", remedy, at_key=True
                ).named()
            elif metric == "subscribeLatency" and profile.producer_only:
                yield Problem(
                    (*path, metric), "the run has no consumers", "bound connectLatency", at_key=True
                ).named()
    if profile.slo.keys() <= {CONNECT_RATE}:
        yield Problem(
            ("messages",),
            "messages: 0 only connects, but slo bounds no latency of connecting",
            _EXAMPLE,
        )


CONNECT_CHECKS = (
    # each check with the keys whose default would mislead it
    (_sent, ("messages", "producerRate", "search.*")),
    (
        _connected,
        (
            "messages",
            "driver.name",
            "producersPerTopic",
            "subscriptionsPerTopic",
            "consumerPerSubscription",
        ),
    ),
    (
        _judged,
        (
            "messages",
            "driver.name",
            "slo",
            "producersPerTopic",
            "subscriptionsPerTopic",
            "consumerPerSubscription",
        ),
    ),
)


# Each check with the keys whose default would mislead it: it does not run if one of these keys is invalid.
CHECKS: tuple[tuple[Callable[[Profile], Iterator[Problem]], tuple[str, ...]], ...] = (
    (_duration, ()),
    (_overlaps, ()),
    (_smallest, ("checksum",)),
    (_largest, _LIMIT),
    (_sendable, ("checksum", *_LIMIT)),
    (_target, ("target.*", "driver.name")),
    (_security, ("target.*", "driver.name")),
    (_cluster, ("driver.name", "broker.*")),
    (_native, ("driver.name",)),
    (_most, ()),
    (
        _paired,
        ("messages", "producersPerTopic", "subscriptionsPerTopic", "consumerPerSubscription"),
    ),
    *judging.CHECKS,
    *traffic.CHECKS,
    *CONNECT_CHECKS,
    *skew.CHECKS,
    *judging.ABORT_CHECKS,
    *judging.WINDOW_CHECKS,
)


def check_profile(profile: Profile, broken: Set[Path]) -> Iterator[Problem]:
    """Run all checks that need none of the broken keys.

    :param broken: paths of invalid values, which ``profile`` does not have.
    """
    kind = profile.driver.kind
    own = load_reference(kind, kind.checks) if kind.checks else ()
    for run, needs in (*CHECKS, *((run, ("driver.name", *needs)) for run, needs in own)):
        if not any(
            _blocks(path, need) for path in broken for need in _spelled(needs, profile.driver)
        ):
            yield from run(profile)


def _spelled(needs: tuple[str, ...], driver: ClientSettings) -> Iterator[str]:
    """Yield the keys with the driver's own ones instead of their placeholders."""
    whose = {
        judging.ORDER_KEYS: driver.order_keys,
        judging.ACKNOWLEDGING_KEYS: driver.acknowledging_keys,
    }
    for need in needs:
        yield from (f"driver.{key}" for key in whose[need]) if need in whose else (need,)


def _blocks(path: Path, need: str) -> bool:
    """Return whether an invalid value at ``path`` affects a key: it is the key, or contains it; with ``.*`` also anything in the key."""
    key = tuple(need.removesuffix(".*").split("."))
    return key[: len(path)] == path or (need.endswith(".*") and path[: len(key)] == key)
