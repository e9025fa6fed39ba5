"""What must hold between the keys of a profile for Pulsar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.pulsar import chunking_checks
from pytest_loadtest.drivers.pulsar.settings import STRICT, TICK, PulsarSettings, strict
from pytest_loadtest.profile.fields import spelling
from pytest_loadtest.profile.judging import bounding
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.verdict.objectives import ObjectiveErrors, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.profile.model import Profile

# what each plugin needs; of names that stand together, exactly one
_CREDENTIALS: Final = {
    "token": (("token", "token_file"),),
    "basic": (("user_id",), ("password", "password_file")),
    "oauth2": (("issuer_url",), ("private_key",)),
    "tls": (("cert_file",), ("key_file",)),
}


def _settings(profile: Profile) -> PulsarSettings:
    assert isinstance(profile.driver, PulsarSettings)
    return profile.driver


def _topic(profile: Profile) -> Iterator[Misfit]:
    topic, driver = profile.topic, _settings(profile)
    if topic is None:
        return
    scheme, _, rest = topic.partition("://")
    if scheme not in ("persistent", "non-persistent") or rest.count("/") != 2 or not all(rest.split("/")):
        yield Misfit(("topic",), f"topic: {topic!r} is no topic of Pulsar's", "write persistent://tenant/namespace/name")
    elif scheme != driver.topic_type:
        yield Misfit(("topic",), f"topic: {topic!r} is {scheme}, driver.topicType says {driver.topic_type}", f"write topicType: {scheme}")


def _subscription(profile: Profile) -> Iterator[Misfit]:
    consumers = profile.consumer_per_subscription
    if consumers > 1 and _settings(profile).subscription_type == "Exclusive":
        message = f"driver.subscriptionType: Exclusive admits one consumer, consumerPerSubscription says {consumers}"
        yield Misfit(("driver", "subscriptionType"), message, "write Failover, Shared or Key_Shared")


def _stored(profile: Profile) -> Iterator[Misfit]:
    if (stored := _settings(profile).persistence) and not stored.ack_quorum <= stored.write_quorum <= stored.ensemble_size:
        yield Misfit(("driver", "persistence"), "driver.persistence: wants ackQuorum ≤ writeQuorum ≤ ensembleSize", "", at_key=True)


def _credentials(profile: Profile) -> Iterator[Misfit]:
    if (who := _settings(profile).authentication) is None:
        return
    wanted = _CREDENTIALS[who.plugin]
    if any(sum(getattr(who, name) is not None for name in names) != 1 for names in wanted):
        said = " and ".join(("either " if len(names) > 1 else "") + " or ".join(map(spelling, names)) for names in wanted)
        yield Misfit(("driver", "authentication"), f"driver.authentication: {who.plugin} wants {said}", "", at_key=True)


def _delayed(profile: Profile) -> Iterator[Misfit]:
    """Topics and subscriptions to which Pulsar delivers at once."""
    if profile.delays is None or profile.allow_undelayed:
        return
    key, driver = "deliverAt" if profile.deliver_after is None else "deliverAfter", _settings(profile)
    anyway = "or allowUndelayed: true, to see how early they come"
    if driver.topic_type == "non-persistent":
        message = f"{key}: Pulsar delivers at once on non-persistent topics"
        yield Misfit((key,), message, f"write topicType: persistent, {anyway}", at_key=True)
    elif driver.subscription_type in ("Exclusive", "Failover") and not profile.producer_only:
        message = f"{key}: Pulsar delivers at once to {driver.subscription_type} subscriptions"
        yield Misfit((key,), message, f"write driver: {{subscriptionType: Shared}}, {anyway}", at_key=True)


def _tick(profile: Profile) -> Iterator[Misfit]:
    given = profile.broker.settings
    if TICK in given and not (given[TICK].isdecimal() and int(given[TICK])):
        yield Misfit(("broker", "settings", TICK), f"{TICK}: {given[TICK]!r} is not a number of milliseconds above 0", "write 1000")


def _early(profile: Profile) -> Iterator[Misfit]:
    """Messages may come early unless the broker is in strict mode."""
    started = profile.target is None or profile.target.url is None
    if not started or strict(profile.broker.settings):
        return
    for path, slo in bounding(profile):
        if _none_early(slo):
            at = (*path, "earliness")
            message = f"{'.'.join(map(str, at))}: 0 can hold in strict mode alone; otherwise Pulsar delivers up to a tick early"
            yield Misfit(at, message, f'write broker: {{settings: {{{STRICT}: "true"}}}}, or {{max: 1s}}', at_key=True)


def _none_early(slo: Mapping[str, object]) -> bool:
    """The section bounds earliness by 0. A bound that cannot be read is reported with the objectives."""
    try:
        found = parse({"earliness": slo["earliness"]}, implicit=()) if "earliness" in slo else ()
    except ObjectiveErrors:
        return False
    return any(objective.statistic == "max" and objective.maximum == 0 for objective in found)


CHECKS: Final = (
    # each check with the keys whose default would mislead it
    (_topic, ("topics", "driver.topicType")),
    (_subscription, ("driver.subscriptionType", "consumerPerSubscription")),
    (_stored, ("driver.persistence.*",)),
    (_credentials, ("driver.authentication.*",)),
    (
        _delayed,
        (
            "driver.subscriptionType", "driver.topicType", "allowUndelayed", "deliverAfter.*", "deliverAt", "subscriptionsPerTopic",
            "consumerPerSubscription",
        ),
    ),
    (_tick, ()),
    (_early, ("deliverAfter.*", "deliverAt", "broker.settings", "target.*")),
    *chunking_checks.CHECKS,
)  # fmt: skip
