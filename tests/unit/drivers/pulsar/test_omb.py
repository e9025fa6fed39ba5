"""OMB's driver files for Pulsar."""

from __future__ import annotations

import pytest

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
        ("AuthenticationBasic", '{"userId": "u", "password": "p"}', {"plugin": "basic", "userId": "u", "password": "p"}),
        ("AuthenticationTls", "tlsCertFile:/c,tlsKeyFile:/k", {"plugin": "tls", "certFile": "/c", "keyFile": "/k"}),
        (
            "oauth2.AuthenticationOAuth2",
            '{"type": "client_credentials", "issuerUrl": "https://i", "privateKey": "file:///k.json", "audience": "a"}',
            {"plugin": "oauth2", "issuerUrl": "https://i", "privateKey": "/k.json", "audience": "a"},
        ),
    ],
)
def test_plugins_and_their_parameters_have_pulsars_spelling(plugin: str, data: str, keys: dict[str, str]) -> None:
    assert (
        pulsar(f"authentication: {{plugin: org.apache.pulsar.client.impl.auth.{plugin}, data: '{data}'}}").driver["authentication"] == keys
    )


def test_a_cluster_in_a_namespace_is_not_applied_and_a_queue_may_have_a_length() -> None:
    found = pulsar("namespacePrefix: benchmark/local/ns", "pendingQueueSize: 7")
    assert (found.driver["namespacePrefix"], found.driver["maxPendingMessages"]) == ("benchmark/ns", 7)
    assert list(found.not_applied) == ["client.namespacePrefix"]


@pytest.mark.parametrize("data", ["userId:u,pasword:sesame", '{"userId": "u", "pasword": "sesame"}'])
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
