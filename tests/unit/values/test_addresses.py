"""Addresses as texts: masked credentials and loopback."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.addresses import check_address, check_samples_location, is_loopback, masked


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("mqtt://host:1883", "mqtt://host:1883"),
        ("mqtt://user:secret@host:1883", "mqtt://***@host:1883"),
        ("pulsar+ssl://user:a/b@c://d@host", "pulsar+ssl://***@host"),
        ("pulsar://u:p@a:6650,u:p@b:6650", "pulsar://***@b:6650"),
        ("user:secret@host", "***@host"),
        ("[::1]:6650", "[::1]:6650"),
    ],
)
def test_a_masked_address_keeps_scheme_host_and_port(address: str, shown: str) -> None:
    assert masked(address) == shown


@given(st.text().filter(lambda text: "@" not in text), st.text())
def test_no_password_is_shown(host: str, secret: str) -> None:
    """Also in an address that is not valid, or has several lines."""
    assert masked(f"mqtt://{secret}@{host}") == f"mqtt://***@{host}"


def test_an_address_with_credentials_is_an_error() -> None:
    """The error has the masked address, its place, and the remedy."""
    check_address(None, "--load-target")
    check_address("mqtt://host", "--load-target")
    with pytest.raises(
        UsageError, match=r"^--load-target mqtt://\*\*\*@host: an address must not have a user or a password: write driver\."
    ):
        check_address("mqtt://user:secret@host", "--load-target")


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.0.0.2", True),
        ("::1", True),
        ("192.0.2.7", False),
        ("127.example", False),
        ("", False),
    ],
)
def test_loopback_is_localhost_and_every_address_of_its_network(host: str, ours: bool) -> None:
    """A host's name may begin like such an address."""
    assert is_loopback(host) is ours


@pytest.mark.parametrize(
    "location", ["s3://b", "s3://b/p", "gs://b/p", "abfs://a.dfs.core.windows.net/c", "hdfs://h:8020/p", "file:///p", "p", "/p@q", "./a:b"]
)
def test_a_location_of_samples_is_a_uri_without_credentials_or_a_path(location: str) -> None:
    check_samples_location(location, "--load-samples")


@given(
    st.sampled_from(["s3", "gs", "abfs", "hdfs"]),
    st.text("hush:/%@?#&=", min_size=1, max_size=9),
    st.sampled_from(["{}hush@bucket", "bucket/x?secret_key=hush{}", "bucket/x#hush{}", "bucket/{}@hush"]),
)
def test_no_credentials_of_a_location_are_shown(scheme: str, more: str, form: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_samples_location(f"{scheme}://{form.format(more)}", "--load-samples")
    assert str(caught.value).startswith(f"--load-samples {scheme}:")
    assert "hush" not in str(caught.value)
