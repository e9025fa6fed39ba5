"""What must hold between the keys of a profile, each check with the keys it reads.

Pure and independent of each other: a check is left out when one of its keys is already known to be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.envelope import COMPACT_HEAD, HEAD
from pytest_loadtest.objectives import ObjectiveErrors, parse
from pytest_loadtest.payloads import CHECKSUM, parse_range
from pytest_loadtest.profile import traffic
from pytest_loadtest.profile.model import MESSAGE_LIMITS, Profile
from pytest_loadtest.profile.presence import Finding
from pytest_loadtest.profile.settings import MqttSettings, PulsarSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Set

    from pytest_loadtest.profile.text import Path

_SCHEMES = {"pulsar": ("pulsar", "pulsar+ssl"), "mqtt": ("mqtt", "mqtts"), "loopback": ("loopback",)}
BUCKETS = 256  # the envelope numbers a bucket in one byte
_CREDENTIALS = {"token": ("token", "token_file"), "oauth2": ("issuer_url", "private_key"), "tls": ("cert_file", "key_file")}


def _path(dotted: str) -> Path:
    return tuple(dotted.split("."))


def _duration(profile: Profile) -> Iterator[Finding]:
    if profile.test_duration == 0:
        for name, key in (("test_duration", "testDuration"), ("test_duration_minutes", "testDurationMinutes")):
            if name in profile.model_fields_set:
                yield Finding((key,), f"{key}: less than a nanosecond", "write testDuration: 30s")


def _overlaps(profile: Profile) -> Iterator[Finding]:
    for path, distribution, _ in traffic.distributions(profile):
        reach, widest = 0, ""
        for low, high, text in sorted((*parse_range(text), text) for text in distribution):
            if low < reach:
                message = f"size range {text!r} overlaps {widest!r}"
                yield Finding((*path, text), message, "ranges may meet, not overlap: the high end is outside", at_key=True)
            reach, widest = max((reach, widest), (high, text))


def _smallest(profile: Profile) -> Iterator[Finding]:
    size = profile.message_size
    if size is None:
        return
    head = COMPACT_HEAD if size < HEAD else HEAD
    if size < COMPACT_HEAD:
        message = f"messageSize: {size} B is below the {COMPACT_HEAD} B that number and check a message"
        yield Finding(("messageSize",), message, f"write {COMPACT_HEAD} or more")
    elif profile.checksum and size < head + CHECKSUM:
        message = f"messageSize: {size} B leaves no room for the checksum behind an envelope of {head} B"
        yield Finding(("messageSize",), message, f"write {head + CHECKSUM} or more, or checksum: false")


def _sendable(profile: Profile) -> Iterator[Finding]:
    """Draws are moved to the nearest size that can be sent, but not out of their range."""
    tail = CHECKSUM if profile.checksum else 0
    limit = _limit(profile)
    found = list(traffic.distributions(profile))
    names = {text for _, distribution, _ in found for text in distribution}
    if len(names) > BUCKETS:
        where = found[-1][0] if len(found[0][1]) <= BUCKETS else found[0][0]
        remedy = "merge some" if len(found) == 1 else "merge some, or use the same in all stages"
        yield Finding(where, f"messageSizeDistribution: more than {BUCKETS} ranges", remedy, at_key=True)
    for path, _, buckets in found:
        for bucket in buckets:
            where = (*path, bucket.name)
            if bucket.high <= COMPACT_HEAD + tail:
                message = f"size range {bucket.name!r} holds no size of {COMPACT_HEAD + tail} B or more, which the envelope takes"
                yield Finding(where, message, f"end it above {COMPACT_HEAD + tail}", at_key=True)
            elif limit is not None and bucket.low > limit:
                message = f"size range {bucket.name!r} starts above what the broker takes, {limit} B"
                yield Finding(where, message, "remove it", at_key=True)


def _largest(profile: Profile) -> Iterator[Finding]:
    size, driver = profile.message_size, profile.driver.name
    if driver not in MESSAGE_LIMITS:
        return
    key, default, _ = MESSAGE_LIMITS[driver]
    limit = _limit(profile)
    if limit is None:
        path = ("broker", "settings", key)
        yield Finding(path, f"{'.'.join(path)}: {profile.broker.settings[key]!r} is not a number of bytes", f"write {default}")
        return
    if size is not None and size > limit:
        message = f"messageSize: {size} B is above what the broker takes, {limit} B"
        yield Finding(("messageSize",), message, f"write {limit} or less, or raise broker.settings.{key}")


def _limit(profile: Profile) -> int | None:
    try:
        return profile.max_message_size
    except ValueError:
        return None


def _target(profile: Profile) -> Iterator[Finding]:
    if profile.target is None:
        return
    schemes = _SCHEMES[profile.driver.name]
    if profile.target.url.partition("://")[0] not in schemes:
        message = f"target.url: {profile.target.url!r} is not for the driver {profile.driver.name}"
        yield Finding(("target", "url"), message, f"write {schemes[0]}://host:port, or another driver.name")


def _subscription(profile: Profile) -> Iterator[Finding]:
    consumers, driver = profile.consumer_per_subscription, profile.driver
    if consumers <= 1:
        return
    if isinstance(driver, PulsarSettings) and driver.subscription_type == "Exclusive":
        message = f"driver.subscriptionType: Exclusive admits one consumer, consumerPerSubscription says {consumers}"
        yield Finding(("driver", "subscriptionType"), message, "write Failover, Shared or Key_Shared")
    if isinstance(driver, MqttSettings) and driver.shared_subscription is False:
        message = f"driver.sharedSubscription: without it each of {consumers} consumers gets every message"
        yield Finding(("driver", "sharedSubscription"), message, "write true, or subscriptionsPerTopic for more copies")


def _objectives(profile: Profile) -> Iterator[Finding]:
    for path, slo, _ in _sections(profile):
        yield from _section(slo, path, None)


def _bucket_names(profile: Profile) -> Iterator[Finding]:
    for path, slo, buckets in _sections(profile):
        spoken = set(_section(slo, path, None))
        yield from (finding for finding in _section(slo, path, buckets) if finding not in spoken)


def _sections(profile: Profile) -> Iterator[tuple[Path, Mapping[str, object], Mapping[str, int]]]:
    """Every ``slo`` section with its place and the size ranges that it may name."""
    own = profile.message_size_distribution or {}
    yield ("slo",), profile.slo, own
    for i, stage in enumerate(profile.stages):
        yield ("stages", i, "slo"), stage.slo, stage.message_size_distribution or own


def _section(slo: Mapping[str, object], where: Path, buckets: Mapping[str, int] | None) -> Iterator[Finding]:
    try:
        parse(slo, buckets=buckets)
    except ObjectiveErrors as errors:
        for path, message, suggestion in errors.problems:
            found = (*where, *path)
            yield Finding(found, f"{'.'.join(map(str, found))}: {message}", suggestion, at_key=_names_key(path, message))


def _names_key(path: Path, message: str) -> bool:
    """The slo parser speaks of a key when it begins with the last step of the path: ``'los' is``, ``percentile 101 is``, ``p100 is``."""
    last = str(path[-1]) if path else ""
    return message.startswith((f"{last!r} is", f"percentile {last[1:]} is", f"{last} is"))


def _bounded(profile: Profile, metric: str) -> Iterator[Path]:
    """Where there is an objective on a metric, for all messages or one bucket's."""
    for path, slo, _ in _sections(profile):
        if metric in slo:
            yield (*path, metric)
        by_bucket = slo.get("buckets")
        for name, section in by_bucket.items() if isinstance(by_bucket, dict) else ():
            if isinstance(section, dict) and metric in section:
                yield (*path, "buckets", name, metric)


def _order(profile: Profile) -> Iterator[Finding]:
    if profile.ordered:
        return
    for path in _bounded(profile, "outOfOrder"):
        why, remedy = _unordered(profile)
        yield Finding(path, f"{'.'.join(map(str, path))}: order cannot be judged {why}", f"{remedy}, or remove it", at_key=True)


def _acknowledgements(profile: Profile) -> Iterator[Finding]:
    if profile.publish_acks:
        return
    for path in _bounded(profile, "publishLatency"):
        qos = isinstance(profile.driver, MqttSettings)
        why, remedy = ("at QoS 0", "use qos: 1") if qos else ("on non-persistent topics", "use topicType: persistent")
        message = f"{'.'.join(map(str, path))}: nothing is acknowledged {why}"
        yield Finding(path, message, f"{remedy}, or bound endToEndLatency", at_key=True)


def _unordered(profile: Profile) -> tuple[str, str]:
    if isinstance(profile.driver, MqttSettings):
        return "on a shared subscription", "use one consumer per subscription"
    if isinstance(profile.driver, PulsarSettings) and profile.driver.subscription_type == "Key_Shared":
        return "on Key_Shared without keys", "use keyDistributor: KEY_ROUND_ROBIN"
    return "on a Shared subscription", "use Failover"


def _pulsar(profile: Profile) -> Iterator[Finding]:
    driver = profile.driver
    if not isinstance(driver, PulsarSettings):
        return
    if (stored := driver.persistence) and not stored.ack_quorum <= stored.write_quorum <= stored.ensemble_size:
        yield Finding(("driver", "persistence"), "driver.persistence: wants ackQuorum ≤ writeQuorum ≤ ensembleSize", "", at_key=True)
    if (who := driver.authentication) is None:
        return
    wanted = _CREDENTIALS[who.plugin]
    given = [name for name in wanted if getattr(who, name) is not None]
    if who.plugin == "token" and len(given) != 1:
        yield Finding(("driver", "authentication"), "driver.authentication: wants either token or tokenFile", "", at_key=True)
    elif who.plugin != "token" and len(given) < len(wanted):
        names = " and ".join(name.split("_")[0] + name.split("_")[1].capitalize() for name in wanted)
        yield Finding(("driver", "authentication"), f"driver.authentication: {who.plugin} wants {names}", "", at_key=True)


def _mqtt(profile: Profile) -> Iterator[Finding]:
    driver = profile.driver
    if not isinstance(driver, MqttSettings) or driver.protocol_version == "5":
        return
    for name, key in (("session_expiry", "sessionExpiry"), ("receive_maximum", "receiveMaximum")):
        if name in driver.model_fields_set:
            message = f"driver.{key}: MQTT 3.1.1 has no such thing"
            yield Finding(("driver", key), message, 'remove it, or write protocolVersion: "5"', at_key=True)


def _native(profile: Profile) -> Iterator[Finding]:
    if profile.driver.client == "native":
        yield Finding(("driver", "client"), "driver.client: native is not available yet", "write library")


_WHO_GETS_WHAT = ("driver.name", "driver.subscriptionType", "driver.sharedSubscription", "consumerPerSubscription")
_LIMIT = ("driver.name", *(f"broker.settings.{key}" for key, _, _ in MESSAGE_LIMITS.values()))

# each check with the keys whose default would mislead it
CHECKS: tuple[tuple[Callable[[Profile], Iterator[Finding]], tuple[str, ...]], ...] = (
    (_duration, ()),
    (_overlaps, ()),
    (_smallest, ("checksum",)),
    (_largest, _LIMIT),
    (_sendable, ("checksum", *_LIMIT)),
    (_target, ("target.url", "driver.name")),
    (_subscription, _WHO_GETS_WHAT),
    (_objectives, ()),
    (_bucket_names, ("messageSizeDistribution.*",)),
    (_order, (*_WHO_GETS_WHAT, "keyDistributor")),
    (_acknowledgements, ("driver.name", "driver.qos", "driver.topicType")),
    (_pulsar, ("driver.name", "driver.persistence.*", "driver.authentication.*")),
    (_mqtt, ("driver.name", "driver.protocolVersion")),
    (_native, ()),
    *traffic.CHECKS,
)


def check(profile: Profile, broken: Set[Path]) -> Iterator[Finding]:
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
