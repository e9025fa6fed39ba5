"""OMB's driver files for Pulsar."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.profile.omb_driver import OmbDriver, read_driver


def pulsar(client: str = "", producer: str = "") -> OmbDriver:
    text = f"driverClass: x.PulsarBenchmarkDriver\nclient: {{{client}}}\nproducer: {{{producer}}}\n"
    return read_driver(text, "d.yaml")


@pytest.mark.parametrize(
    ("plugin", "data", "keys"),
    [
        ("AuthenticationToken", "token:abc", {"plugin": "token", "token": "abc"}),
        ("AuthenticationToken", "file:///etc/t", {"plugin": "token", "tokenFile": "/etc/t"}),
        (
            "AuthenticationBasic",
            '{"userId": "u", "password": "p"}',
            {"plugin": "basic", "userId": "u", "password": "p"},
        ),
        (
            "AuthenticationTls",
            "tlsCertFile:/c,tlsKeyFile:/k",
            {"plugin": "tls", "certFile": "/c", "keyFile": "/k"},
        ),
        (
            "oauth2.AuthenticationOAuth2",
            '{"type": "client_credentials", "issuerUrl": "https://i", "privateKey": "file:///k.json", "audience": "a"}',
            {
                "plugin": "oauth2",
                "issuerUrl": "https://i",
                "privateKey": "/k.json",
                "audience": "a",
            },
        ),
    ],
)
def test_plugins_and_their_parameters_have_pulsars_spelling(
    plugin: str, data: str, keys: dict[str, str]
) -> None:
    assert (
        pulsar(
            f"authentication: {{plugin: org.apache.pulsar.client.impl.auth.{plugin}, data: '{data}'}}"
        ).driver["authentication"]
        == keys
    )


def test_a_cluster_in_a_namespace_is_not_applied_and_a_queue_may_have_a_length() -> None:
    found = pulsar("namespacePrefix: benchmark/local/ns", "pendingQueueSize: 7")
    assert (found.driver["namespacePrefix"], found.driver["maxPendingMessages"]) == (
        "benchmark/ns",
        7,
    )
    assert list(found.not_applied) == ["client.namespacePrefix"]


@pytest.mark.parametrize("prefix", ["a/b/", "/a/b", "a//b", "a/b/c/d"])
def test_a_namespace_with_an_empty_part_is_an_error_that_shows_it(prefix: str) -> None:
    with pytest.raises(ProfileError) as caught:
        pulsar(f"namespacePrefix: {prefix}")
    assert f"driver.namespacePrefix: '{prefix}' does not match" in str(caught.value)


@pytest.mark.parametrize(
    "data", ["userId:u,pasword:sesame", '{"userId": "u", "pasword": "sesame"}']
)
def test_an_unknown_parameter_is_named_without_its_value(data: str) -> None:
    """The value may be the password."""
    with pytest.raises(ProfileError) as error:
        pulsar(f"authentication: {{plugin: a.AuthenticationBasic, data: '{data}'}}")
    assert "authentication.data: needs userId, password; pasword is not known" in str(error.value)
    assert "sesame" not in str(error.value)


def test_a_parameter_that_is_no_json_is_an_error() -> None:
    with pytest.raises(ProfileError, match="authentication.data: not valid JSON"):
        pulsar("authentication: {plugin: a.AuthenticationTls, data: '{certFile'}")


def test_what_pulsar_no_longer_has_is_listed_with_its_reason() -> None:
    found = pulsar("clusterName: local")
    assert "every cluster" in found.not_applied["client.clusterName"]


CLASS = "driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver\n"
STORED = {"ensembleSize": 3, "writeQuorum": 3, "ackQuorum": 2, "deduplicationEnabled": False}
ROWS: list[tuple[str, str, Any, Any]] = [
    # Section and key of OMB's Pulsar*Config at 8559989, our key, the initial value of the Java field, the value after null.
    # A text as the last value: the file is rejected with it, since OMB stops, or Pulsar's client 2.11 rejects the value.
    ("client.clientMemoryLimitMB", "clientMemoryLimitMB", 256, 0),
    ("client.ioThreads", "ioThreads", 8, "driver.ioThreads: 0 must be at least 1"),
    (
        "client.connectionsPerBroker",
        "connectionsPerBroker",
        8,
        "driver.connectionsPerBroker: 0 must be at least 1",
    ),
    (
        "client.maxConcurrentLookupRequests",
        "maxConcurrentLookupRequests",
        1000,
        "driver.maxConcurrentLookupRequests: 0 must be at least 1",
    ),
    (
        "client.topicType",
        "topicType",
        "persistent",
        "topicType has no value, and OMB stops at null",
    ),
    (
        "client.persistence",
        "persistence",
        STORED,
        "persistence has no value, and OMB stops at null",
    ),
    ("client.tlsAllowInsecureConnection", "tlsAllowInsecureConnection", False, False),
    ("client.tlsEnableHostnameVerification", "tlsEnableHostnameVerification", False, False),
    ("client.tlsTrustCertsFilePath", "tlsTrustCertsFilePath", None, None),
    (
        "client.authentication",
        "authentication",
        None,
        "authentication has no value, and OMB stops at null",
    ),
    ("producer.batchingEnabled", "batchingEnabled", True, False),
    (
        "producer.batchingMaxPublishDelayMs",
        "batchingMaxPublishDelayMs",
        1,
        "driver.batchingMaxPublishDelayMs: 0 must be at least 1",
    ),
    (
        "producer.batchingMaxBytes",
        "batchingMaxBytes",
        1024**2,
        "driver.batchingMaxBytes: 0 must be at least 1",
    ),
    ("producer.blockIfQueueFull", "blockIfQueueFull", True, False),
    ("producer.pendingQueueSize", "maxPendingMessages", 0, 0),
    (
        "consumer.receiverQueueSize",
        "receiverQueueSize",
        10_000,
        "driver.receiverQueueSize: 0 must be at least 1",
    ),
    (
        "consumer.subscriptionType",
        "subscriptionType",
        "Failover",
        "subscriptionType has no value, and OMB stops at null",
    ),
]
FIXED = {"batchingMaxMessages": 0, "maxPendingMessagesAcrossPartitions": 2**31 - 1}
"""Values that are fixed in the code of OMB's driver."""


def settings(text: str) -> dict[str, Any]:
    """Return all settings of the client with a driver file."""
    found = read_driver(CLASS + text, "d.yaml")
    return PulsarSettings.model_validate(found.driver, by_alias=True, by_name=False).model_dump(
        by_alias=True
    )


def with_key(section: str, key: str, value: str) -> str:
    return f"{section}:\n  {key}: {value}\n"


@pytest.mark.parametrize(
    "text",
    ["", "client: {}\nproducer: {}\nconsumer: {}\n", "client: {ioThreads: 8}\n", "consumer: {}\n"],
)
def test_missing_keys_have_the_values_with_which_omb_runs(text: str) -> None:
    """In a section that is missing, empty or there in part."""
    found = settings(text)
    assert {ours: found[ours] for _, ours, _, _ in ROWS} == {
        ours: initial for _, ours, initial, _ in ROWS
    }
    assert FIXED.items() <= found.items()


@pytest.mark.parametrize(
    ("place", "ours", "value"), [(place, ours, null) for place, ours, _, null in ROWS]
)
def test_null_has_the_effect_that_it_has_in_omb(place: str, ours: str, value: Any) -> None:
    """It makes a number 0 and a flag false; a default is for an absent key only."""
    text = with_key(*place.split("."), "")
    if isinstance(value, str):
        with pytest.raises(ProfileError, match=value):
            settings(text)
    else:
        assert settings(text)[ours] == value


@pytest.mark.parametrize("section", ["client", "producer", "consumer"])
def test_a_section_without_a_value_is_an_error(section: str) -> None:
    """OMB stops at it; with the key removed it would run."""
    with pytest.raises(
        ProfileError,
        match=f"d.yaml:2:1: {section} has no value, and OMB stops at null .remove the key for OMB's defaults",
    ):
        settings(f"{section}:\n")


@pytest.mark.parametrize("key", STORED)
def test_a_part_of_the_storage_policy_is_completed_with_the_defaults_of_omb(key: str) -> None:
    """Three copies in OMB, one in a profile."""
    given = {"deduplicationEnabled": True}.get(key, 1)
    written = str(given).lower()
    text = with_key("client", "persistence", f"{{{key}: {written}}}")
    assert read_driver(CLASS + text, "d.yaml").driver["persistence"] == STORED | {key: given}


def test_null_in_the_storage_policy_is_0() -> None:
    null = with_key("client", "persistence", "{deduplicationEnabled: }")
    assert settings(null)["persistence"] == STORED
    for key in STORED.keys() - {"deduplicationEnabled"}:
        with pytest.raises(ProfileError, match=f"driver.persistence.{key}: 0 must be at least 1"):
            settings(with_key("client", "persistence", f"{{{key}: }}"))


SPELLINGS = [
    ("client", "topicType", "non_persistent", "topicType", "non-persistent"),
    ("client", "topicType", "1", "topicType", "non-persistent"),
    ("consumer", "subscriptionType", "Key_Shared", "subscriptionType", "Key_Shared"),
    ("consumer", "subscriptionType", "0", "subscriptionType", "Exclusive"),
    ("producer", "batchingEnabled", "off", "batchingEnabled", False),
    ("producer", "blockIfQueueFull", "'true'", "blockIfQueueFull", True),
    ("client", "ioThreads", "'4'", "ioThreads", 4),
    ("client", "ioThreads", "4.0", "ioThreads", 4),
    ("client", "clientMemoryLimitMB", "0", "clientMemoryLimitMB", 0),
    ("client", "tlsTrustCertsFilePath", "2024", "tlsTrustCertsFilePath", "2024"),
]


@pytest.mark.parametrize(("section", "key", "written", "ours", "value"), SPELLINGS)
def test_a_spelling_that_omb_reads_is_read(
    section: str, key: str, written: str, ours: str, value: object
) -> None:
    assert settings(with_key(section, key, written))[ours] == value


HINTS = [
    ("client", "webServiceUrl", "did you mean httpUrl?"),
    ("client", "tlsEnabled", "serviceUrl pulsar+ssl://host:port"),
    ("producer", "maxPendingMessages", "did you mean pendingQueueSize?"),
    ("producer", "compressionType", "in a driver section with our own keys write compression: LZ4"),
    ("producer", "batchingMaxMessages", "write batchingMaxMessages: 1000"),
    (
        "producer",
        "maxPendingMessagesAcrossPartitions",
        "write maxPendingMessagesAcrossPartitions: 50000",
    ),
    (
        "consumer",
        "maxTotalReceiverQueueSizeAcrossPartitions",
        "write maxTotalReceiverQueueSizeAcrossPartitions: 50000",
    ),
]


@pytest.mark.parametrize(("section", "key", "words"), HINTS)
def test_a_key_that_omb_does_not_have_is_an_error_that_names_its_counterpart(
    section: str, key: str, words: str
) -> None:
    with pytest.raises(ProfileError) as error:
        settings(with_key(section, key, "1"))
    assert f"d.yaml:3:3: unknown key '{key}' (" in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "keys",
    [{"compression": "LZ4"}, {"maxTotalReceiverQueueSizeAcrossPartitions": 7}, {"sendTimeout": 1}],
)
def test_the_counterparts_exist(keys: dict[str, Any]) -> None:
    assert PulsarSettings.model_validate(keys, by_alias=True, by_name=False)


@pytest.mark.parametrize(
    "written", ["token:abcdef", "[a]", "{plugin: a.AuthenticationToken, params: 'token:abcdef'}"]
)
def test_credentials_that_omb_does_not_read_are_an_error(written: str) -> None:
    """They were left out without a word, and the run connected without credentials."""
    with pytest.raises(
        ProfileError,
        match="authentication is not a mapping|unknown key 'params'|unknown key '…'|unknown key",
    ) as error:
        settings(with_key("client", "authentication", written))
    assert "abcdef" not in str(error.value)


def test_memory_without_a_limit_is_not_limited() -> None:
    """OMB's 0, and null, are no limit; without the key it is 256 MB."""
    found = read_driver(CLASS + "client: {clientMemoryLimitMB: 0}\n", "d.yaml").driver
    assert PulsarSettings.model_validate(found, by_alias=True, by_name=False).memory_limit is None
    found = read_driver(CLASS, "d.yaml").driver
    assert (
        PulsarSettings.model_validate(found, by_alias=True, by_name=False).memory_limit
        == 256 * 1024**2
    )
