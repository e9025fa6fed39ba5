"""Checks that concern several keys of a profile for Pulsar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.pulsar.admin import BACKLOG_QUOTA, REPLACED_BY_PERSISTENCE
from pytest_loadtest.drivers.pulsar.names import SCALABLE, full_name
from pytest_loadtest.drivers.pulsar.settings import STRICT, TICK, PulsarSettings, strict
from pytest_loadtest.errors import Problem, UsageError
from pytest_loadtest.profile.fields import exact_duration, spelling
from pytest_loadtest.profile.judging import sections
from pytest_loadtest.profile.model import Profile, choose_client
from pytest_loadtest.profile.route import named_topics, repeated_topics
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_GB: Final = 1 << 30
# The keys that each plugin needs; exactly one of the names in one tuple.
_CREDENTIALS: Final = {
    "token": (("token", "token_file"),),
    "basic": (("user_id",), ("password", "password_file")),
    "oauth2": (("issuer_url",), ("private_key",)),
    "tls": (("cert_file",), ("key_file",)),
}


def _settings(profile: Profile) -> PulsarSettings:
    assert isinstance(profile.driver, PulsarSettings)
    return profile.driver


def _topic(profile: Profile) -> Iterator[Problem]:
    topic = profile.topic
    driver = _settings(profile)
    if topic is None:
        return
    scheme, _, rest = topic.partition("://")
    if scheme in SCALABLE:
        yield Problem(
            ("topic",),
            f"topic: {topic!r} is a scalable topic of Pulsar 5, which no client of this package"
            " can use",
            "write persistent://tenant/namespace/name",
        )
    elif (
        scheme not in ("persistent", "non-persistent")
        or rest.count("/") != 2
        or not all(rest.split("/"))
    ):
        yield Problem(
            ("topic",),
            f"topic: {topic!r} is not a topic of Pulsar",
            "write persistent://tenant/namespace/name",
        )
    elif scheme != driver.topic_type:
        yield Problem(
            ("topic",),
            f"topic: {topic!r} is {scheme}, driver.topicType says {driver.topic_type}",
            f"write topicType: {scheme}",
        )


def _route(profile: Profile) -> Iterator[Problem]:
    """Reject names of a route that are neither short nor full names of topics."""
    if profile.route is None:
        return
    valid = True
    for path, name in named_topics(profile.route):
        try:
            full_name(name)
        except UsageError as error:
            valid = False
            yield Problem(path, f"route.{path[1]}: {error}")
    # The profile's own check compares names as they are written.
    if valid and not any(repeated_topics(profile.route, profile.topics, str)):
        yield from repeated_topics(profile.route, profile.topics, full_name)


def _subscription(profile: Profile) -> Iterator[Problem]:
    consumers = profile.consumer_per_subscription
    if consumers > 1 and _settings(profile).subscription_type == "Exclusive":
        message = (
            "driver.subscriptionType: Exclusive admits one consumer, consumerPerSubscription says"
            f" {consumers}"
        )
        yield Problem(
            ("driver", "subscriptionType"), message, "write Failover, Shared or Key_Shared"
        )


def _stored(profile: Profile) -> Iterator[Problem]:
    stored = _settings(profile).persistence
    if stored is None:
        return
    quorums = [
        count
        for count in (stored.ack_quorum, stored.write_quorum, stored.ensemble_size)
        if count is not None
    ]
    if quorums != sorted(quorums):
        yield Problem(
            ("driver", "persistence"),
            "driver.persistence: needs ackQuorum ≤ writeQuorum ≤ ensembleSize",
            "",
            at_key=True,
        )


def _replaced(profile: Profile) -> Iterator[Problem]:
    """Reject a setting of the broker that a policy would replace by another value.

    The policies are those of the run's namespace.
    """
    driver = _settings(profile)
    policies = {"defaultNumberOfNamespaceBundles": ("namespaceBundles", driver.namespace_bundles)}
    for field, key in REPLACED_BY_PERSISTENCE.items():
        value = None if driver.persistence is None else getattr(driver.persistence, field)
        policies[key] = (f"persistence.{spelling(field)}", value)
    for key, (policy, value) in policies.items():
        setting = profile.broker.settings.get(key)
        if setting is not None and value is not None and setting != str(value).lower():
            message = (
                f"broker.settings: {key} is {setting}, but driver.{policy}, {str(value).lower()},"
                " replaces it for the run's topics"
            )
            yield Problem(
                ("broker", "settings", key), message, "write the same in both, or leave one out"
            )


def _quota(profile: Profile) -> Iterator[Problem]:
    """Reject a backlog at which the broker's own quota stops the producers."""
    settings = profile.broker.settings
    limit = _quota_limit(settings)
    if (
        limit is None
        or settings.get("backlogQuotaDefaultRetentionPolicy") == "consumer_backlog_eviction"
    ):
        return
    # The quota applies to the largest backlog of a topic, and each partition is one.
    backlog = profile.consumer_backlog_size_gb * _GB
    largest = backlog / (
        profile.topics * profile.partitions_per_topic * max(profile.subscriptions_per_topic, 1)
    )
    if largest > limit:
        key = next(key for key in BACKLOG_QUOTA if key in settings)
        message = (
            f"consumerBacklogSizeGB: {round(largest)} B in each topic, "
            f"and broker.settings.{key} stops producers above {round(limit)} B"
        )
        yield Problem(("consumerBacklogSizeGB",), message, f"write less, or another {key}")


def _quota_limit(settings: Mapping[str, str]) -> float | None:
    """Return the bytes at which the broker stops producers.

    None if the profile sets no limit, or no number.
    """
    limit = settings.get("backlogQuotaDefaultLimitBytes")
    unit = 1
    if limit is None:
        limit = settings.get("backlogQuotaDefaultLimitGB")
        unit = _GB
    try:
        number = float(limit or "-1")
    except ValueError:
        return None
    return number * unit if number > 0 else None


def _credentials(profile: Profile) -> Iterator[Problem]:
    if (authentication := _settings(profile).authentication) is None:
        return
    groups = _CREDENTIALS[authentication.plugin]
    if any(
        sum(getattr(authentication, name) is not None for name in names) != 1 for names in groups
    ):
        keys = " and ".join(map(_alternatives, groups))
        yield Problem(
            ("driver", "authentication"),
            f"driver.authentication: {authentication.plugin} needs {keys}",
            "",
            at_key=True,
        )


def _alternatives(names: Sequence[str]) -> str:
    either = "either " if len(names) > 1 else ""
    return either + " or ".join(map(spelling, names))


def _delayed(profile: Profile) -> Iterator[Problem]:
    """Reject topics and subscriptions to which Pulsar delivers at once."""
    if profile.delays is None or profile.allow_undelayed:
        return
    key = "deliverAt" if profile.deliver_after is None else "deliverAfter"
    driver = _settings(profile)
    anyway = "or allowUndelayed: true, to see how early they come"
    if driver.topic_type == "non-persistent":
        message = f"{key}: Pulsar delivers at once on non-persistent topics"
        yield Problem((key,), message, f"write topicType: persistent, {anyway}", at_key=True)
    elif driver.subscription_type in ("Exclusive", "Failover") and not profile.producer_only:
        message = f"{key}: Pulsar delivers at once to {driver.subscription_type} subscriptions"
        yield Problem(
            (key,), message, f"write driver: {{subscriptionType: Shared}}, {anyway}", at_key=True
        )


def _tick(profile: Profile) -> Iterator[Problem]:
    tick = profile.broker.settings.get(TICK)
    if tick is not None and not (tick.isdecimal() and int(tick)):
        yield Problem(
            ("broker", "settings", TICK),
            f"{TICK}: {tick!r} is not a number of milliseconds above 0",
            "write 1000",
        )


def _early(profile: Profile) -> Iterator[Problem]:
    """Reject an objective that nothing is early, unless the broker is in strict mode."""
    started = profile.target is None or profile.target.url is None
    if not started or strict(profile.broker.settings):
        return
    for path, slo in sections(profile):
        # a bound that cannot be read is reported with the objectives
        if (
            any(
                one.metric == "earliness" and one.statistic == "max" and one.maximum == 0
                for one in slo.objectives
            )
            and "earliness" in slo
        ):
            at = (*path, "earliness")
            message = (
                f"{'.'.join(map(str, at))}: 0 can be met in strict mode only; otherwise Pulsar"
                " delivers up to a tick early"
            )
            yield Problem(
                at,
                message,
                f'write broker: {{settings: {{{STRICT}: "true"}}}}, or {{max: 1s}}',
                at_key=True,
            )


# Messages in chunks (``driver.chunkingEnabled``).

# The shortest ``unackedMessagesTimeout`` that pulsar-client takes, ns.
LIBRARY_LEAST: Final = 10 * SECOND
_OF_CHUNKS: Final = (
    "max_pending_chunked_message",
    "auto_ack_oldest_chunked_message_on_queue_full",
    "expire_time_of_incomplete_chunked_message",
)


def _sent(profile: Profile) -> Iterator[Problem]:
    """Reject batches, topics and subscriptions that do not go together with chunks."""
    driver = profile.driver
    path = ("driver", "chunkingEnabled")
    assert isinstance(driver, PulsarSettings)
    if not driver.chunking_enabled:
        return
    if driver.batching_enabled:
        yield Problem(
            path,
            "driver.chunkingEnabled: batches are not cut into chunks",
            "write batchingEnabled: false",
        )
    if driver.topic_type == "non-persistent":
        message = (
            "driver.chunkingEnabled: messages to non-persistent topics are not cut into chunks"
        )
        yield Problem(path, message, "write topicType: persistent")
    if driver.subscription_type == "Key_Shared":
        message = (
            "driver.chunkingEnabled: Pulsar does not keep chunks together on a Key_Shared"
            " subscription"
        )
        yield Problem(path, message, "write subscriptionType: Failover, Exclusive or Shared")


def _unused(profile: Profile) -> Iterator[Problem]:
    driver = profile.driver
    assert isinstance(driver, PulsarSettings)
    if driver.chunking_enabled:
        return
    for key in [spelling(name) for name in _OF_CHUNKS if name in driver.model_fields_set]:
        yield Problem(
            ("driver", key),
            f"driver.{key}: no message is sent in chunks",
            "write chunkingEnabled: true as well",
            at_key=True,
        )


def _again(profile: Profile) -> Iterator[Problem]:
    """Reject a time that pulsar-client does not take."""
    driver = profile.driver
    assert isinstance(driver, PulsarSettings)
    if choose_client(profile).client != "library":
        return
    if 0 < driver.unacked_messages_timeout < LIBRARY_LEAST:
        timeout = exact_duration(driver.unacked_messages_timeout)
        least = exact_duration(LIBRARY_LEAST)
        message = (
            f"driver.unackedMessagesTimeout: pulsar-client takes {least} or more, not {timeout}"
        )
        yield Problem(
            ("driver", "unackedMessagesTimeout"), message, f"write {least}, or client: native"
        )


CHECKS: Final = (
    _topic,
    _route,
    _subscription,
    _stored,
    _replaced,
    _quota,
    _credentials,
    _delayed,
    _tick,
    _early,
    _sent,
    _unused,
    _again,
)
