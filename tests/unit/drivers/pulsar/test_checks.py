"""Combinations of keys that a profile for Pulsar cannot have."""

from __future__ import annotations

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
        ("{name: pulsar, chunkingEnabled: true}", "p.yaml:5:41: driver.chunkingEnabled: no batch is cut into chunks (write batchingEnabled: false)"),
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
    with pytest.raises(ProfileError, match=r"p.yaml:3:\d+: driver.maxPendingChunkedMessage: no message is sent in chunks"):
        profile.loads(
            "name: X\nmessageSize: 20\ndriver: {name: pulsar, maxPendingChunkedMessage: 5}\nproducerRate: 1\ntestDuration: 1s\n",
            source="p.yaml",
        )


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ("orders", "topic: 'orders' is no topic of Pulsar's (write persistent://tenant/namespace/name)"),
        ("persistent://a//c", "write persistent://tenant/namespace/name"),
        ("non-persistent://a/b/c", "is non-persistent, driver.topicType says persistent (write topicType: non-persistent)"),
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
    assert f"driver.authentication: {missing}" in rejected(f"{{name: pulsar, authentication: {{{authentication}}}}}")


@pytest.mark.parametrize("tick", ["0", "-5", "a second"])
def test_a_tick_is_a_positive_number_of_milliseconds(tick: str) -> None:
    assert f"{TICKS}: '{tick}' is not a number of milliseconds above 0" in rejected(
        "{name: pulsar}", f"broker: {{settings: {{{TICKS}: {tick!r}}}}}\n"
    )
