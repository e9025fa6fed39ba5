"""What must hold between delays (``deliverAfter``, ``deliverAt``) and the rest of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.metrics.catalogue import Need, needing
from pytest_loadtest.profile.delay import EXAMPLE, STRICT, TICK, strict
from pytest_loadtest.profile.judging import bounding
from pytest_loadtest.profile.presence import Misfit
from pytest_loadtest.profile.settings import MqttSettings, PulsarSettings
from pytest_loadtest.verdict.objectives import ObjectiveErrors, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_loadtest.profile.model import Profile


def _key(profile: Profile) -> str:
    return "deliverAt" if profile.deliver_after is None else "deliverAfter"


def _heeded(profile: Profile) -> Iterator[Misfit]:
    """Who delays anything."""
    if profile.delays is None:
        return
    key, driver = _key(profile), profile.driver
    at = (key,)
    if isinstance(driver, MqttSettings):
        yield Misfit(at, f"{key}: MQTT has no delayed delivery", "remove it, or write driver: {name: pulsar}", at_key=True)
    if not isinstance(driver, PulsarSettings) or profile.allow_undelayed:
        return
    anyway = "or allowUndelayed: true, to see how early they come"
    if driver.topic_type == "non-persistent":
        yield Misfit(at, f"{key}: Pulsar delivers at once on non-persistent topics", f"write topicType: persistent, {anyway}", at_key=True)
    elif driver.subscription_type in ("Exclusive", "Failover") and not profile.producer_only:
        message = f"{key}: Pulsar delivers at once to {driver.subscription_type} subscriptions"
        yield Misfit(at, message, f"write driver: {{subscriptionType: Shared}}, {anyway}", at_key=True)


def _apart(profile: Profile) -> Iterator[Misfit]:
    """What no delay goes with."""
    if profile.delays is None:
        if profile.allow_undelayed:
            yield Misfit(("allowUndelayed",), "allowUndelayed: no message is delayed", EXAMPLE, at_key=True)
        return
    key = _key(profile)
    others = {
        "producersPerTopic: 0": profile.consumer_only,
        "messages: 0": profile.connects_only,
        "a search for the highest rate": profile.peak_search,
        "consumerBacklogSizeGB": bool(profile.consumer_backlog_size_gb),
        "64 subscriptions of a topic or more": profile.broadcasts,
    }
    for other, there in others.items():
        if there:
            yield Misfit((key,), f"{key}: cannot be combined with {other}", "remove one of them", at_key=True)


def _broker(profile: Profile) -> Iterator[Misfit]:
    """What the broker is told."""
    given = profile.broker.settings
    if TICK in given and not (given[TICK].isdecimal() and int(given[TICK])):
        yield Misfit(("broker", "settings", TICK), f"{TICK}: {given[TICK]!r} is not a number of milliseconds above 0", "write 1000")


def _judged(profile: Profile) -> Iterator[Misfit]:
    """Objectives on delays want delays; and none early can be asked of a broker that may be."""
    for path, slo in bounding(profile):
        for metric in needing(Need.DELAYS):
            if metric in slo and profile.delays is None:
                yield Misfit((*path, metric), f"{'.'.join(map(str, (*path, metric)))}: no message is delayed", EXAMPLE, at_key=True)
        started = profile.target is None or profile.target.url is None
        if isinstance(profile.driver, PulsarSettings) and started and not strict(profile.broker.settings) and _none_early(slo):
            at = (*path, "earliness")
            message = f"{'.'.join(map(str, at))}: 0 can hold in strict mode alone; otherwise Pulsar delivers up to a tick early"
            yield Misfit(at, message, f'write broker: {{settings: {{{STRICT}: "true"}}}}, or {{max: 1s}}', at_key=True)


def _none_early(slo: Mapping[str, object]) -> bool:
    """It is asked that nothing comes early. What cannot be read is told where objectives are."""
    try:
        found = parse({"earliness": slo["earliness"]}, implicit=()) if "earliness" in slo else ()
    except ObjectiveErrors:
        return False
    return any(objective.statistic == "max" and objective.maximum == 0 for objective in found)


_HEEDED = ("driver.name", "driver.subscriptionType", "driver.topicType", "allowUndelayed", "deliverAfter.*", "deliverAt")
CHECKS = (
    # each check with the keys whose default would mislead it
    (_heeded, (*_HEEDED, "subscriptionsPerTopic", "consumerPerSubscription")),
    (_apart, (*_HEEDED, "producersPerTopic", "messages", "producerRate", "search.*", "subscriptionsPerTopic", "consumerPerSubscription")),
    (_broker, ()),
    (_judged, ("deliverAfter.*", "deliverAt", "broker.settings", "driver.name", "target.*")),
)
