"""What must hold between the keys of a profile for MQTT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.profile.fields import spelling
from pytest_loadtest.profile.presence import Misfit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.profile.model import Profile


def _settings(profile: Profile) -> MqttSettings:
    assert isinstance(profile.driver, MqttSettings)
    return profile.driver


def _topic(profile: Profile) -> Iterator[Misfit]:
    topic = profile.topic or ""
    if set("+#\0") & set(topic) or topic.startswith("$share/"):
        yield Misfit(("topic",), f"topic: {topic!r} has a wildcard", "write one topic, such as a/b/c, without + and #")


def _broker(profile: Profile) -> Iterator[Misfit]:
    named, target = _settings(profile).broker, profile.target
    if named is None or target is None:
        return
    others = [name for name in ("url", "image") if getattr(target, name) is not None]
    if "url" in others or (others and named == "artemis"):
        message = f"driver.broker: {named} is started by the run, and target.{others[0]} names another"
        yield Misfit(("driver", "broker"), message, f"leave out broker, or target.{others[0]}")


def _subscription(profile: Profile) -> Iterator[Misfit]:
    consumers = profile.consumer_per_subscription
    if consumers > 1 and _settings(profile).shared_subscription is False:
        message = f"driver.sharedSubscription: without it each of {consumers} consumers gets every message"
        yield Misfit(("driver", "sharedSubscription"), message, "write true, or subscriptionsPerTopic for more copies")


def _version(profile: Profile) -> Iterator[Misfit]:
    driver = _settings(profile)
    if driver.protocol_version == "5":
        return
    for name in ("session_expiry", "receive_maximum", "user_properties", "topic_alias_maximum"):
        if name in driver.model_fields_set:
            key = spelling(name)
            message = f"driver.{key}: MQTT 3.1.1 has no such thing"
            yield Misfit(("driver", key), message, 'remove it, or write protocolVersion: "5"', at_key=True)


def _tls(profile: Profile) -> Iterator[Misfit]:
    if (tls := _settings(profile).tls) is None:
        return
    if tls.key_file is not None and tls.cert_file is None:
        yield Misfit(("driver", "tls", "keyFile"), "driver.tls.keyFile: a key without its certificate", "write certFile beside it")
    strangers = {"TLSv1.2": tls.of_tls13, "TLSv1.3": tls.of_tls12}.get(tls.version or "", ())
    if strangers:
        message = f"driver.tls.ciphers: {strangers[0]} is none of {tls.version}"
        example = {"TLSv1.2": "ECDHE-RSA-AES256-GCM-SHA384", "TLSv1.3": "TLS_AES_256_GCM_SHA384"}[str(tls.version)]
        yield Misfit(("driver", "tls", "ciphers"), message, f"write such as {example}, or another version")


CHECKS: Final = (
    # each check with the keys whose default would mislead it
    (_topic, ("topics",)),
    (_broker, ("target.*", "driver.broker")),
    (_subscription, ("driver.sharedSubscription", "consumerPerSubscription")),
    (_version, ("driver.protocolVersion",)),
    (_tls, ("driver.tls.*",)),
)
