"""What must hold between the keys of a profile, each check with the keys it reads.

Pure and independent of each other: a check is left out when one of its keys is already known to be wrong.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_loadtest.message.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.message.payloads import CHECKSUM, parse_range
from pytest_loadtest.profile import aborting, chunking, connecting, delaying, judging, skewing, traffic, windowing
from pytest_loadtest.profile.choice import NATIVE
from pytest_loadtest.profile.fields import MOST_DURATION, spelling
from pytest_loadtest.profile.model import LARGEST, MESSAGE_LIMITS, Profile
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.profile.settings import MqttSettings, PulsarSettings
from pytest_loadtest.schedule.topology import MOST
from pytest_loadtest.values.quantities import format_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Set

    from pytest_loadtest.profile.text import Path

_SCHEMES = {"pulsar": ("pulsar", "pulsar+ssl"), "mqtt": ("mqtt", "mqtts"), "loopback": ("loopback",)}
_ADDRESSES: Final = ("url", "subscriber_url", "admin_url", "image")
BUCKETS = 256  # the envelope numbers a bucket in one byte
# what each plugin wants; of names that stand together, exactly one
_CREDENTIALS: Final = {
    "token": (("token", "token_file"),),
    "basic": (("user_id",), ("password", "password_file")),
    "oauth2": (("issuer_url",), ("private_key",)),
    "tls": (("cert_file",), ("key_file",)),
}


def _path(dotted: str) -> Path:
    return tuple(dotted.split("."))


def _duration(profile: Profile) -> Iterator[Misfit]:
    if profile.messages and profile.test_duration > MOST_DURATION:
        message = f"messages: {profile.messages} at {format_rate(profile.producer_rate)} take longer than ten years"
        yield Misfit(("messages",), message, "write fewer, or a higher producerRate")
    if profile.test_duration == 0:
        for name, key in (("test_duration", "testDuration"), ("test_duration_minutes", "testDurationMinutes")):
            if name in profile.model_fields_set:
                yield Misfit((key,), f"{key}: less than a nanosecond", "write testDuration: 30s")


def _overlaps(profile: Profile) -> Iterator[Misfit]:
    for path, distribution, _ in traffic.distributions(profile):
        reach, widest = 0, ""
        for low, high, text in sorted((*parse_range(text), text) for text in distribution):
            if low < reach:
                message = f"size range {text!r} overlaps {widest!r}"
                yield Misfit((*path, text), message, "ranges may meet, not overlap: the high end is outside", at_key=True)
            reach, widest = max((reach, widest), (high, text))


def _smallest(profile: Profile) -> Iterator[Misfit]:
    size = profile.message_size
    if size is None:
        return
    head = COMPACT_HEAD if size < HEAD else HEAD
    if size < COMPACT_HEAD:
        message = f"messageSize: {size} B is below the {COMPACT_HEAD} B that number and check a message"
        yield Misfit(("messageSize",), message, f"write {COMPACT_HEAD} or more")
    elif profile.checksum and size < head + CHECKSUM:
        message = f"messageSize: {size} B leaves no room for the checksum behind an envelope of {head} B"
        yield Misfit(("messageSize",), message, f"write {head + CHECKSUM} or more, or checksum: false")


def _sendable(profile: Profile) -> Iterator[Misfit]:
    """Draws are moved to the nearest size that can be sent, but not out of their range."""
    tail = CHECKSUM if profile.checksum else 0
    limit = _limit(profile)
    found = list(traffic.distributions(profile))
    names = {text for _, distribution, _ in found for text in distribution}
    if len(names) > BUCKETS:
        where = found[-1][0] if len(found[0][1]) <= BUCKETS else found[0][0]
        remedy = "merge some" if len(found) == 1 else "merge some, or use the same in all stages"
        yield Misfit(where, f"messageSizeDistribution: more than {BUCKETS} ranges", remedy, at_key=True)
    for path, _, buckets in found:
        for bucket in buckets:
            where = (*path, bucket.name)
            if bucket.high <= COMPACT_HEAD + tail:
                message = f"size range {bucket.name!r} holds no size of {COMPACT_HEAD + tail} B or more, which the envelope takes"
                yield Misfit(where, message, f"end it above {COMPACT_HEAD + tail}", at_key=True)
            elif limit is not None and bucket.low > limit:
                message = f"size range {bucket.name!r} starts above what the {_taker(profile)} takes, {limit} B"
                yield Misfit(where, message, "remove it", at_key=True)


def _largest(profile: Profile) -> Iterator[Misfit]:
    size, limit = profile.message_size, _limit(profile)
    key, default, _ = MESSAGE_LIMITS.get(profile.driver.name, ("", 0, 0))
    if limit is None:
        path = ("broker", "settings", key)
        yield Misfit(path, f"{'.'.join(path)}: {profile.broker.settings[key]!r} is not a number of bytes", f"write {default}")
    elif size is not None and size > limit:
        raised = f", or raise broker.settings.{key}" if key and limit < LARGEST // 2 else ""
        message = f"messageSize: {size} B is above what the {_taker(profile)} takes, {limit} B"
        yield Misfit(("messageSize",), message, f"write {limit} or less{raised}")


def _taker(profile: Profile) -> str:
    return "broker" if profile.driver.name in MESSAGE_LIMITS else "relay"


def _limit(profile: Profile) -> int | None:
    try:
        return profile.max_message_size
    except ValueError:
        return None


def _target(profile: Profile) -> Iterator[Misfit]:
    if profile.target is None:
        return
    schemes, url = _SCHEMES[profile.driver.name], profile.target.url
    if url is None and profile.target.image is None and profile.target.security is None:
        yield Misfit(("target",), "target.url is missing", f"write url: {schemes[0]}://host:port, or image: IMAGE")
    if profile.target.image is not None and (url or profile.target.subscriber_url or profile.target.admin_url):
        yield Misfit(("target", "image"), "target.image: an image has no address before it runs", "leave out image, or url and adminUrl")
    if profile.target.subscriber_url is not None and profile.driver.name != "mqtt":
        message = f"target.subscriberUrl: only MQTT has a second address for consumers, not the driver {profile.driver.name}"
        yield Misfit(("target", "subscriberUrl"), message, "leave it out", at_key=True)
    if url is not None and url.partition("://")[0] not in schemes:
        message = f"target.url: {url!r} is not for the driver {profile.driver.name}"
        yield Misfit(("target", "url"), message, f"write {schemes[0]}://host:port, or another driver.name")


def _security(profile: Profile) -> Iterator[Misfit]:
    target = profile.target
    if target is None or (security := target.security) is None:
        return
    path = ("target", "security")
    if profile.driver.name == "loopback":
        message = "target.security: only Pulsar and MQTT brokers are started so, not the loopback relay"
        yield Misfit(path, message, "remove it, or write driver: {name: pulsar}", at_key=True)
    if security.tls == "subscribers" and profile.driver.name == "pulsar":
        message = "target.security.tls: subscribers have a port of their own with MQTT alone"
        yield Misfit((*path, "tls"), message, "write tls: true")
    if security.auth in ("token", "basic") and profile.driver.name == "mqtt":
        message = f"target.security.auth: {security.auth} is for Pulsar"
        yield Misfit((*path, "auth"), message, "write auth: tls, by which clients of MQTT show certificates")
    if others := [spelling(name) for name in _ADDRESSES if getattr(target, name) is not None]:
        message = f"target.security: only a broker that the run starts as a process gets keys, and {others[0]} names another"
        yield Misfit(path, message, f"leave out security, or {', '.join(others)}", at_key=True)
    if not security.tls and security.auth is None:
        yield Misfit(path, "target.security: asks for nothing", "write tls: true, or auth: token", at_key=True)
    if security.auth == "tls" and not security.tls:
        yield Misfit((*path, "auth"), "target.security.auth: tls needs a TLS port", "write tls: true beside it")


def _broker(profile: Profile) -> Iterator[Misfit]:
    driver, target = profile.driver, profile.target
    if not isinstance(driver, MqttSettings) or driver.broker is None or target is None:
        return
    others = [name for name in ("url", "image") if getattr(target, name) is not None]
    if "url" in others or (others and driver.broker == "artemis"):
        message = f"driver.broker: {driver.broker} is started by the run, and target.{others[0]} names another"
        yield Misfit(("driver", "broker"), message, f"leave out broker, or target.{others[0]}")


def _subscription(profile: Profile) -> Iterator[Misfit]:
    consumers, driver = profile.consumer_per_subscription, profile.driver
    if consumers <= 1:
        return
    if isinstance(driver, PulsarSettings) and driver.subscription_type == "Exclusive":
        message = f"driver.subscriptionType: Exclusive admits one consumer, consumerPerSubscription says {consumers}"
        yield Misfit(("driver", "subscriptionType"), message, "write Failover, Shared or Key_Shared")
    if isinstance(driver, MqttSettings) and driver.shared_subscription is False:
        message = f"driver.sharedSubscription: without it each of {consumers} consumers gets every message"
        yield Misfit(("driver", "sharedSubscription"), message, "write true, or subscriptionsPerTopic for more copies")


def _pulsar(profile: Profile) -> Iterator[Misfit]:
    driver = profile.driver
    if not isinstance(driver, PulsarSettings):
        return
    if (stored := driver.persistence) and not stored.ack_quorum <= stored.write_quorum <= stored.ensemble_size:
        yield Misfit(("driver", "persistence"), "driver.persistence: wants ackQuorum ≤ writeQuorum ≤ ensembleSize", "", at_key=True)
    if (who := driver.authentication) is None:
        return
    wanted = _CREDENTIALS[who.plugin]
    if any(sum(getattr(who, name) is not None for name in names) != 1 for names in wanted):
        said = " and ".join(("either " if len(names) > 1 else "") + " or ".join(map(spelling, names)) for names in wanted)
        yield Misfit(("driver", "authentication"), f"driver.authentication: {who.plugin} wants {said}", "", at_key=True)


def _mqtt(profile: Profile) -> Iterator[Misfit]:
    driver = profile.driver
    if not isinstance(driver, MqttSettings) or driver.protocol_version == "5":
        return
    for name in ("session_expiry", "receive_maximum", "user_properties", "topic_alias_maximum"):
        if name in driver.model_fields_set:
            key = spelling(name)
            message = f"driver.{key}: MQTT 3.1.1 has no such thing"
            yield Misfit(("driver", key), message, 'remove it, or write protocolVersion: "5"', at_key=True)


def _tls(profile: Profile) -> Iterator[Misfit]:
    driver = profile.driver
    if not isinstance(driver, MqttSettings) or (tls := driver.tls) is None:
        return
    if tls.key_file is not None and tls.cert_file is None:
        yield Misfit(("driver", "tls", "keyFile"), "driver.tls.keyFile: a key without its certificate", "write certFile beside it")
    strangers = {"TLSv1.2": tls.of_tls13, "TLSv1.3": tls.of_tls12}.get(tls.version or "", ())
    if strangers:
        message = f"driver.tls.ciphers: {strangers[0]} is none of {tls.version}"
        example = {"TLSv1.2": "ECDHE-RSA-AES256-GCM-SHA384", "TLSv1.3": "TLS_AES_256_GCM_SHA384"}[str(tls.version)]
        yield Misfit(("driver", "tls", "ciphers"), message, f"write such as {example}, or another version")


_COUNTED: Final = {
    # what there are MOST of: the keys that multiply
    "streams": ("topics", "producersPerTopic"),
    "partitions": ("topics", "partitionsPerTopic"),
    "consumers": ("topics", "subscriptionsPerTopic", "consumerPerSubscription"),
}


def _most(profile: Profile) -> Iterator[Misfit]:
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
            message = f"{largest}: {counts[largest]} makes {total:,} {what} ({' × '.join(keys)}), at most {MOST:,} are possible"
            yield Misfit((largest,), message, f"write {max(MOST // others, 1)} or less")


def _native(profile: Profile) -> Iterator[Misfit]:
    if profile.driver.client == "native" and profile.driver.name not in NATIVE:
        yield Misfit(("driver", "client"), "driver.client: native is not available yet", "write library")


_LIMIT = ("driver.name", *(f"broker.settings.{key}" for key, _, _ in MESSAGE_LIMITS.values()))

# each check with the keys whose default would mislead it
CHECKS: tuple[tuple[Callable[[Profile], Iterator[Misfit]], tuple[str, ...]], ...] = (
    (_duration, ()),
    (_overlaps, ()),
    (_smallest, ("checksum",)),
    (_largest, _LIMIT),
    (_sendable, ("checksum", *_LIMIT)),
    (_target, ("target.*", "driver.name")),
    (_security, ("target.*", "driver.name")),
    (_broker, ("target.*", "driver.name", "driver.broker")),
    (_subscription, judging.WHO_GETS_WHAT),
    (_pulsar, ("driver.name", "driver.persistence.*", "driver.authentication.*")),
    (_mqtt, ("driver.name", "driver.protocolVersion")),
    (_tls, ("driver.name", "driver.tls.*")),
    (_native, ("driver.name",)),
    (_most, ()),
    *judging.CHECKS,
    *traffic.CHECKS,
    *connecting.CHECKS,
    *chunking.CHECKS,
    *delaying.CHECKS,
    *skewing.CHECKS,
    *aborting.CHECKS,
    *windowing.CHECKS,
)


def check(profile: Profile, broken: Set[Path]) -> Iterator[Misfit]:
    """What is wrong between the keys.

    :param broken: paths whose values were wrong and are left out of ``profile``.
    """
    for run, needs in CHECKS:
        if not any(_blocks(path, need) for path in broken for need in needs):
            yield from run(profile)


def _blocks(path: Path, need: str) -> bool:
    """A wrong value hides what is in it; with ``.*`` anything wrong inside counts too."""
    wanted = _path(need.removesuffix(".*"))
    return wanted[: len(path)] == path or (need.endswith(".*") and path[: len(wanted)] == wanted)
