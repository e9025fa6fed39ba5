"""Checks between the keys of a profile.

The rule: they are pure and independent, and run only if every key is valid, so none of them meets a
default in place of an invalid value.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import Problem
from pytest_loadtest.kinds.registry import able, kinds, labels, load_reference
from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.message.payloads import CHECKSUM, MAX_BUCKETS, parse_range
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.profile import judging, route, skew, traffic
from pytest_loadtest.profile.fields import MOST_DURATION, spelling
from pytest_loadtest.profile.judging import CONNECTING, sections
from pytest_loadtest.profile.model import LARGEST, Profile
from pytest_loadtest.schedule.topology import MOST
from pytest_loadtest.values.quantities import format_rate
from pytest_loadtest.verdict.grammar import CONNECT_RATE, LATENCIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_loadtest.kinds import DriverKind
    from pytest_loadtest.profile.sections import SecuritySection


_ADDRESSES: Final = ("url", "subscriber_url", "admin_url", "image")


def _duration(profile: Profile) -> Iterator[Problem]:
    if profile.messages and profile.test_duration > MOST_DURATION:
        messages = f"{profile.messages} messages at {format_rate(profile.producer_rate)}"
        message = f"messages: {messages} take longer than ten years"
        yield Problem(("messages",), message, "write fewer, or a higher producerRate")
    if profile.test_duration == 0:
        for name in ("test_duration", "test_duration_minutes"):
            if name in profile.model_fields_set:
                key = spelling(name)
                message = f"{key}: is less than a nanosecond"
                yield Problem((key,), message, "write testDuration: 30s")


def _overlaps(profile: Profile) -> Iterator[Problem]:
    remedy = "write ranges that meet but do not overlap: the high end is excluded"
    for sizes in traffic.distributions(profile):
        reach = 0
        widest = ""
        for low, high, text in sorted((*parse_range(text), text) for text in sizes.ranges):
            if low < reach:
                message = f"size range {text!r} overlaps {widest!r}"
                yield Problem((*sizes.path, text), message, remedy, at_key=True)
            reach, widest = max((reach, widest), (high, text))


def _smallest(profile: Profile) -> Iterator[Problem]:
    size = profile.message_size
    if size is None:
        return
    head = COMPACT_HEAD if size < HEAD else HEAD
    if profile.sent_place.outside:
        if size == 0:
            yield Problem(("messageSize",), "messageSize: 0 B is no message", "write 1 or more")
    elif size < COMPACT_HEAD:
        message = f"messageSize: {size} B is below the {COMPACT_HEAD} B of the smallest envelope"
        yield Problem(("messageSize",), message, f"write {COMPACT_HEAD} or more")
    elif profile.checksum and size < head + CHECKSUM:
        envelope = f"an envelope of {head} B"
        message = f"messageSize: {size} B leaves no room for the checksum behind {envelope}"
        remedy = f"write {head + CHECKSUM} or more, or checksum: false"
        yield Problem(("messageSize",), message, remedy)


def _sendable(profile: Profile) -> Iterator[Problem]:
    """Reject ranges without a size that can be sent.

    A drawn size is moved to the nearest possible one, but not out of its range.
    """
    least = COMPACT_HEAD + (CHECKSUM if profile.checksum else 0)
    if profile.sent_place.outside:
        least = 1
    limit = _limit(profile)
    for sizes in traffic.distributions(profile):
        for bucket in sizes.buckets:
            path = (*sizes.path, bucket.name)
            if bucket.high <= least:
                need = f"{least} B or more, which the envelope needs"
                message = f"size range {bucket.name!r} has no size of {need}"
                yield Problem(path, message, f"end it above {least}", at_key=True)
            elif limit is not None and bucket.low > limit:
                taken = f"what the {profile.driver.kind.target} takes, {limit} B"
                message = f"size range {bucket.name!r} starts above {taken}"
                yield Problem(path, message, "remove it", at_key=True)


def _numbered(profile: Profile) -> Iterator[Problem]:
    """Reject more ranges than the envelope can number; ``messageSize`` is one next to stages'."""
    distributions = list(traffic.distributions(profile))
    names = {text for sizes in distributions for text in sizes.ranges}
    if profile.message_size is not None:
        names.add(str(profile.message_size))
    if len(names) <= MAX_BUCKETS:
        return
    first = distributions[0]
    path = first.path if len(first.ranges) > MAX_BUCKETS else distributions[-1].path
    remedy = "merge some"
    if len(distributions) > 1:
        remedy += ", or use the same ranges in all stages"
    message = f"messageSizeDistribution: more than {MAX_BUCKETS} ranges"
    yield Problem(path, message, remedy, at_key=True)


def _largest(profile: Profile) -> Iterator[Problem]:
    size = profile.message_size
    kind = profile.driver.kind
    limit = _limit(profile)
    key = kind.message_limit.key if kind.message_limit else None
    if limit is None and kind.message_limit is not None and key is not None:
        written = f"{profile.broker.settings[key]!r} is not a number of bytes"
        message = f"broker.settings.{key}: {written}"
        path = ("broker", "settings", key)
        yield Problem(path, message, f"write {kind.message_limit.default}")
    elif limit is not None and size is not None and size > limit:
        remedy = f"write {limit} or less"
        if key and limit < LARGEST // 2:
            remedy += f", or raise broker.settings.{key}"
        message = f"messageSize: {size} B is above what the {kind.target} takes, {limit} B"
        yield Problem(("messageSize",), message, remedy)


def _limit(profile: Profile) -> int | None:
    try:
        return profile.max_message_size
    except ValueError:
        return None


def _target(profile: Profile) -> Iterator[Problem]:
    if profile.target is None:
        return
    kind = profile.driver.kind
    target = profile.target
    example = f"{kind.target_schemes[0]}://host:port"
    if target.url is None and target.image is None and target.security is None:
        remedy = f"write url: {example}, or image: IMAGE"
        yield Problem(("target",), "target.url is missing", remedy)
    if target.image is not None and (target.url or target.subscriber_url or target.admin_url):
        message = "target.image: an image has no address before it runs"
        yield Problem(("target", "image"), message, "remove image, or url and adminUrl")
    if target.subscriber_url is not None and not kind.subscriber_url:
        able_to = f"only {labels('subscriber_url')} has a second address for consumers"
        message = f"target.subscriberUrl: {able_to}, not the driver {kind.name}"
        yield Problem(("target", "subscriberUrl"), message, "remove it", at_key=True)
    if target.url is not None and target.url.partition("://")[0] not in kind.target_schemes:
        message = f"target.url: {target.url!r} is not for the driver {profile.driver.name}"
        remedy = f"write {example}, or another driver.name"
        yield Problem(("target", "url"), message, remedy)


def _cluster(profile: Profile) -> Iterator[Problem]:
    kind = profile.driver.kind
    keys = [key for key in ("brokers", "bookies") if getattr(profile.broker, key) is not None]
    if not keys:
        return
    start = kind.start_of(profile.driver.broker_name)
    if not start.nodes:
        able_to = f"only {' and '.join(_clustered())} can be started as a cluster"
        message = f"broker.{keys[0]}: {able_to}, not the driver {kind.name}"
        yield Problem(("broker", keys[0]), message, f"remove {' and '.join(keys)}", at_key=True)
        return
    roles = {f"{role}s" for role in start.nodes}
    for key in keys:
        if key not in roles:
            message = f"broker.{key}: {start.label or kind.label} has no {key}"
            yield Problem(("broker", key), message, f"remove {key}", at_key=True)
            return


def _clustered() -> Iterator[str]:
    """Yield the names of the brokers that can be started as a cluster."""
    for kind in kinds().values():
        for start in kind.brokers.values():
            if start.nodes:
                yield start.label or kind.label


def _security(profile: Profile) -> Iterator[Problem]:
    target = profile.target
    if target is None or target.security is None:
        return
    security = target.security
    path = ("target", "security")
    kind = profile.driver.kind
    if not kind.security:
        able_to = f"only {labels('security')} brokers can be started with it"
        message = f"target.security: {able_to}, not the {kind.name} {kind.target}"
        remedy = f"remove it, or write driver: {{name: {able('security')[0].name}}}"
        yield Problem(path, message, remedy, at_key=True)
    else:
        yield from _possible_security(security, kind)
    others = [spelling(name) for name in _ADDRESSES if getattr(target, name) is not None]
    if others:
        started = "only a broker that the run starts as a process gets keys"
        message = f"target.security: {started}, but {others[0]} names another one"
        yield Problem(path, message, f"remove security, or {', '.join(others)}", at_key=True)
    if not security.tls and security.auth is None:
        message = "target.security: requires nothing of clients"
        yield Problem(path, message, "write tls: true, or auth: token", at_key=True)
    if security.auth == "tls" and not security.tls:
        message = "target.security.auth: tls needs a TLS port"
        yield Problem((*path, "auth"), message, "write tls: true next to it")


def _possible_security(security: SecuritySection, kind: DriverKind) -> Iterator[Problem]:
    """Reject security that brokers of this kind cannot be started with."""
    path = ("target", "security")
    if security.tls == "subscribers" and not kind.subscriber_url:
        able_to = f"only {labels('subscriber_url')} has a second port for subscribers"
        yield Problem((*path, "tls"), f"target.security.tls: {able_to}", "write tls: true")
    if security.auth is not None and security.auth not in kind.security:
        able_kinds = [other.label for other in able("security") if security.auth in other.security]
        message = f"target.security.auth: {security.auth} is for {' and '.join(able_kinds)}"
        remedy = f"write auth: {kind.security[0]}"
        if kind.security[0] == "tls":
            remedy += f", so that clients of {kind.label} use certificates"
        yield Problem((*path, "auth"), message, remedy)


_PRODUCTS: Final = {
    "streams": ("topics", "producersPerTopic"),
    "partitions": ("topics", "partitionsPerTopic"),
    "consumers": ("topics", "subscriptionsPerTopic", "consumerPerSubscription"),
}
"""Limited number → the keys whose product it is."""


def _most(profile: Profile) -> Iterator[Problem]:
    counts = {
        "topics": profile.topics,
        "partitionsPerTopic": profile.partitions_per_topic,
        "producersPerTopic": profile.producers_per_topic,
        "subscriptionsPerTopic": profile.subscriptions_per_topic,
        "consumerPerSubscription": profile.consumer_per_subscription,
    }
    for noun, keys in _PRODUCTS.items():
        total = math.prod(counts[key] for key in keys)
        if total > MOST:
            largest = max(keys, key=counts.__getitem__)
            product = f"{total:,} {noun} ({' × '.join(keys)})"
            message = f"{largest}: {counts[largest]} gives {product}, at most {MOST:,} are possible"
            others = total // counts[largest]
            yield Problem((largest,), message, f"write {max(MOST // others, 1)} or less")


def _paired(profile: Profile) -> Iterator[Problem]:
    """Reject a pairing that would pair nothing, and one of broadcasts.

    The rows of their subscriptions are spread over all workers.
    """
    if profile.pair_consumers is None:
        return
    path = ("pairConsumers",)
    if profile.subscriptions_per_topic >= WIDTH:
        wide = f"{WIDTH} subscriptions of a topic or more, which all hosts share"
        message = f"pairConsumers: cannot be combined with {wide}"
        yield Problem(path, message, "remove it", at_key=True)
    if profile.producer_only or profile.consumer_only or profile.connects_only:
        cause = "no message goes from a producer of this run to a consumer of it"
        message = f"pairConsumers: has no effect, because {cause}"
        yield Problem(path, message, "remove it", at_key=True)


def _native(profile: Profile) -> Iterator[Problem]:
    client = profile.driver.client
    clients = profile.driver.kind.clients
    if client is not None and client not in clients:
        message = f"driver.client: {profile.driver.name} has no {client} client"
        yield Problem(("driver", "client"), message, f"write {' or '.join(clients)}")


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
        remedy = "remove producerRate, or messages; driver.connectRate paces connections"
        yield Problem(("producerRate",), message, remedy)
    if "search" in profile.model_fields_set and profile.search is not None:
        message = "search: finds the highest rate of messages, but messages: 0 sends none"
        remedy = "remove search, and write a matrix of driver.connectRate"
        yield Problem(("search",), message, remedy, at_key=True)
    if profile.consumer_backlog_size_gb:
        message = "consumerBacklogSizeGB: messages: 0 builds no backlog"
        yield Problem(("consumerBacklogSizeGB",), message, "write 0")


def _connected(profile: Profile) -> Iterator[Problem]:
    """Reject a run without clients, or with clients that do not report how connecting went."""
    if not profile.connects_only:
        return
    if not profile.driver.kind.opening_times:
        clients = f"clients of {profile.driver.name}"
        message = f"messages: 0 only connects, but {clients} do not report how long that took"
        driver = able("opening_times")[0].name
        yield Problem(
            ("messages",), message, f"write driver: {{name: {driver}}}, or 1 or more messages"
        )
    if profile.consumer_only and profile.producer_only:
        message = "messages: 0 only connects, but the run has no clients"
        yield Problem(("messages",), message, "write producersPerTopic: 1")


def _judged(profile: Profile) -> Iterator[Problem]:
    """Reject a run without an objective on connecting, and objectives on messages."""
    if not profile.connects_only or not profile.driver.kind.opening_times:
        return
    for path, slo in sections(profile):
        for metric in slo:
            at = (*path, metric)
            if metric not in CONNECTING:
                message = "the run has no messages (messages: 0)"
                yield Problem(at, message, f"bound {' or '.join(_OPENED)}", at_key=True).named()
            elif metric == "subscribeLatency" and profile.producer_only:
                message = "the run has no consumers"
                yield Problem(at, message, "bound connectLatency", at_key=True).named()
    if profile.slo.keys() <= {CONNECT_RATE}:
        message = "messages: 0 only connects, but slo bounds no latency of connecting"
        yield Problem(("messages",), message, _EXAMPLE)


CHECKS: tuple[Callable[[Profile], Iterator[Problem]], ...] = (
    _duration,
    _overlaps,
    _smallest,
    _largest,
    _numbered,
    _sendable,
    _target,
    _security,
    _cluster,
    _native,
    _most,
    _paired,
    *judging.CHECKS,
    *traffic.CHECKS,
    _sent,
    _connected,
    _judged,
    *skew.CHECKS,
    *route.CHECKS,
)


def check_profile(profile: Profile) -> Iterator[Problem]:
    """Run all checks of a profile whose keys are valid, and those of its kind of broker."""
    kind = profile.driver.kind
    own_checks = load_reference(kind, kind.checks) if kind.checks else ()
    for check in (*CHECKS, *own_checks):
        yield from check(profile)
