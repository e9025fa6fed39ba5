"""Combinations of keys that a profile for Pulsar cannot have."""

from __future__ import annotations

import re

import pytest

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError

HEAD = "name: X\nmessageSize: 20MB\nproducerRate: 1\ntestDuration: 1s\n"
TICKS = "delayedDeliveryTickTimeMillis"


def rejected(driver: str, more: str = "") -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(f"{HEAD}driver: {driver}\n{more}", source="p.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("driver", "problem"),
    [
        ("{name: pulsar, chunkingEnabled: true}", "p.yaml:5:41: driver.chunkingEnabled: batches are not cut into chunks (write batchingEnabled: false)"),
        (
            "{name: pulsar, chunkingEnabled: true, batchingEnabled: false, topicType: non-persistent}",
            "driver.chunkingEnabled: messages to non-persistent topics are not cut into chunks (write topicType: persistent)",
        ),
        ("{name: pulsar, chunkingEnabled: true, batchingEnabled: false, subscriptionType: Key_Shared}", "does not keep chunks together on a Key_Shared"),
        (
            "{name: pulsar, chunkingEnabled: true, batchingEnabled: false, client: library, unackedMessagesTimeout: 9s}",
            "driver.unackedMessagesTimeout: pulsar-client takes 10s or more, not 9s (write 10s, or client: native)",
        ),
    ],
)  # fmt: skip
def test_chunks_exclude_batches_other_topics_and_keys(driver: str, problem: str) -> None:
    assert problem in rejected(driver)


def test_a_key_for_chunks_is_rejected_without_chunks() -> None:
    with pytest.raises(
        ProfileError,
        match=r"p.yaml:3:\d+: driver.maxPendingChunkedMessage: no message is sent in chunks",
    ):
        profile.loads(
            "name: X\nmessageSize: 20\ndriver: {name: pulsar, maxPendingChunkedMessage: 5}\nproducerRate: 1\ntestDuration: 1s\n",
            source="p.yaml",
        )


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        (
            "orders",
            "topic: 'orders' is not a topic of Pulsar (write persistent://tenant/namespace/name)",
        ),
        ("persistent://a//c", "write persistent://tenant/namespace/name"),
        ("topic://a/b/c", "is a scalable topic of Pulsar 5, which no client of this package"),
        (
            "non-persistent://a/b/c",
            "is non-persistent, driver.topicType says persistent (write topicType: non-persistent)",
        ),
    ],
)
def test_an_existing_topic_has_a_full_name_of_the_topic_type(topic: str, problem: str) -> None:
    assert problem in rejected("{name: pulsar}", f"topic: {topic}\n")


@pytest.mark.parametrize(
    ("authentication", "missing"),
    [
        ("plugin: basic, password: p", "basic needs userId and either password or passwordFile"),
        ("plugin: token, token: a, tokenFile: b", "token needs either token or tokenFile"),
        ("plugin: oauth2, issuerUrl: https://i", "oauth2 needs issuerUrl and privateKey"),
        ("plugin: tls, certFile: c", "tls needs certFile and keyFile"),
    ],
)
def test_each_plugin_needs_its_credentials_exactly_once(authentication: str, missing: str) -> None:
    assert f"driver.authentication: {missing}" in rejected(
        f"{{name: pulsar, authentication: {{{authentication}}}}}"
    )


@pytest.mark.parametrize("tick", ["0", "-5", "a second"])
def test_a_tick_is_a_positive_number_of_milliseconds(tick: str) -> None:
    assert f"{TICKS}: '{tick}' is not a number of milliseconds above 0" in rejected(
        "{name: pulsar}", f"broker: {{settings: {{{TICKS}: {tick!r}}}}}\n"
    )


@pytest.mark.parametrize(
    ("driver", "setting", "problem"),
    [
        (
            "persistence: {ensembleSize: 3, writeQuorum: 3, ackQuorum: 2}",
            "managedLedgerDefaultWriteQuorum: 2",
            "managedLedgerDefaultWriteQuorum is 2, but driver.persistence.writeQuorum, 3, replaces it for the run's topics",
        ),
        ("persistence: {deduplicationEnabled: false}", "brokerDeduplicationEnabled: true", "driver.persistence.deduplicationEnabled, false, replaces"),
        ("namespaceBundles: 8", "defaultNumberOfNamespaceBundles: 4", "driver.namespaceBundles, 8, replaces it"),
    ],
)  # fmt: skip
def test_a_setting_of_the_broker_that_a_policy_would_replace_is_rejected(
    driver: str, setting: str, problem: str
) -> None:
    """The broker would show it, and the run's topics would have another."""
    text = rejected(f"{{name: pulsar, {driver}}}", f"broker: {{settings: {{{setting}}}}}\n")
    assert re.search(rf"p.yaml:6:\d+: broker.settings: {setting.partition(':')[0]} is ", text)
    assert problem in text
    assert "write the same in both, or leave one out" in text


def test_a_policy_and_a_setting_of_the_same_value_agree() -> None:
    driver = "{name: pulsar, persistence: {ensembleSize: 2}, chunkingEnabled: true, batchingEnabled: false}"
    loaded = profile.loads(
        f"{HEAD}driver: {driver}\nbroker: {{settings: {{managedLedgerDefaultEnsembleSize: 2}}}}\n",
        source="p.yaml",
    )
    assert loaded.broker.settings == {"managedLedgerDefaultEnsembleSize": "2"}


SMALL = "name: X\nmessageSize: 1KB\nproducerRate: 1\ntestDuration: 1s\ntopics: 2\nconsumerBacklogSizeGB: 1\nbacklogDrainTimeout: 30s\n"


@pytest.mark.parametrize(
    "setting", ["backlogQuotaDefaultLimitBytes: 100000000", "backlogQuotaDefaultLimitGB: '0.4'"]
)
def test_a_backlog_above_the_quota_of_its_topic_is_rejected(setting: str) -> None:
    """The broker would stop the producers, and the backlog would never be built. A quota that discards messages stops none."""
    quota = f"{SMALL}driver: {{name: pulsar}}\nbroker: {{settings: {{{setting}}}}}\n"
    with pytest.raises(
        ProfileError,
        match=r"consumerBacklogSizeGB: 536870912 B in each topic, and broker.settings.backlogQuotaDefaultLimit",
    ):
        profile.loads(quota, source="p.yaml")
    profile.loads(
        quota.replace("}}", ", backlogQuotaDefaultRetentionPolicy: consumer_backlog_eviction}}"),
        source="p.yaml",
    )
    profile.loads(quota.replace(setting, "backlogQuotaDefaultLimitGB: '0.6'"), source="p.yaml")


@pytest.mark.parametrize("name", ["a/b", "persistent://a/b", "topic://a/b/c", "persistent://a//c"])
def test_a_route_has_short_or_full_names(name: str) -> None:
    problem = rejected("{name: pulsar}", f"route: {{input: orders, output: '{name}'}}\n")
    assert f"route.output: topic '{name}'" in problem


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("[done, 'persistent://public/default/done']", "default/done' is there twice"),
        ("[done, 'persistent://public/default/orders']", "route.output: is the input"),
        ("[done, done]", "'done' is there twice"),
    ],
)
def test_a_short_and_a_full_name_of_a_topic_are_one(outputs: str, message: str) -> None:
    problem = rejected("{name: pulsar}", f"route: {{input: orders, output: {outputs}}}\n")
    assert problem.count(message) == 1
