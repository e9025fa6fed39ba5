"""Addresses as texts: masked credentials and loopback."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.addresses import (
    check_address,
    check_samples_location,
    is_loopback,
    masked,
    masked_text,
)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("mqtt://host:1883", "mqtt://host:1883"),
        ("mqtt://user:secret@host:1883", "mqtt://***@host:1883"),
        ("pulsar+ssl://user:a/b@c://d@host", "pulsar+ssl://***@host"),
        ("pulsar://u:p@a:6650,u:p@b:6650", "pulsar://***@b:6650"),
        ("user:secret@host", "***@host"),
        ("[::1]:6650", "[::1]:6650"),
        ("sc://host:15002/;token=secret;user_id=joe", "sc://host:15002/;token=***;user_id=***"),
        ("sc://host:15002/;use_ssl=true;;token=a=b", "sc://host:15002/;use_ssl=***;;token=***"),
        (
            "https://user:secret@host/metrics?sig=x&v=1#name",
            "https://***@host/metrics?sig=***&v=***#name",
        ),
        (
            "jdbc:postgresql://user:secret@host/db?password=x",
            "jdbc:postgresql://***@host/db?password=***",
        ),
        ('http://host/metrics#name{label="value"}', 'http://host/metrics#name{label="value"}'),
        ("a;b=c", "a;b=c"),
    ],
)
def test_a_masked_address_keeps_scheme_host_and_port(address: str, shown: str) -> None:
    assert masked(address) == shown


@given(st.text().filter(lambda text: not set(text) & set("@;?&")), st.text())
def test_no_password_is_shown(host: str, secret: str) -> None:
    """Also in an address that is not valid, or has several lines."""
    assert masked(f"mqtt://{secret}@{host}") == f"mqtt://***@{host}"


@pytest.mark.parametrize(
    "address",
    [
        "sc://host:15002/;token=hush%2Fhush;user_id=hush",
        "sc://host/;use_ssl=true;x-headers-token=hush",
        "mqtt://hush:hush hush@host:1883",
        "http://hush@host/metrics?key=hush",
    ],
)
def test_no_secret_of_an_address_is_in_the_text_of_an_error(address: str) -> None:
    """Whether the text has the whole address, another one, or only the secret as it was sent."""
    text = f"no answer of {address} (http://proxy:hush@proxy:3128/?sig=hush): token 'hush/hush' or hush%2Fhush of 'hush' is wrong, pushed"
    shown = masked_text(text, address)
    assert not re.search(r"\bhush\b", shown)
    assert shown.startswith("no answer of ")
    assert shown.endswith("is wrong, pushed")


@pytest.mark.parametrize(
    "address",
    [
        "mqtt://host?password=x",
        "pulsar://host/;authToken=x",
        "http://host/?a=1&sig=x",
        "http://:x@host",
    ],
)
def test_an_address_with_a_secret_parameter_is_an_error(address: str) -> None:
    with pytest.raises(
        UsageError, match=r"=\*\*\*: an address must|//\*\*\*@host: an address must"
    ):
        check_address(address, "--load-target")
    check_address("redis://host:6379/0?protocol=3", "--load-target")


def test_an_address_with_credentials_is_an_error() -> None:
    """The error has the masked address, its place, and the remedy."""
    check_address(None, "--load-target")
    check_address("mqtt://host", "--load-target")
    with pytest.raises(
        UsageError,
        match=r"^--load-target mqtt://\*\*\*@host: an address must not have a user or a password: write driver\.",
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
    "location",
    [
        "s3://b",
        "s3://b/p",
        "gs://b/p",
        "abfs://a.dfs.core.windows.net/c",
        "hdfs://h:8020/p",
        "file:///p",
        "p",
        "/p@q",
        "./a:b",
    ],
)
def test_a_location_of_samples_is_a_uri_without_credentials_or_a_path(location: str) -> None:
    check_samples_location(location, "--load-samples")


@given(
    st.sampled_from(["s3", "gs", "abfs", "hdfs"]),
    st.text("hush:/%@?#&=", min_size=1, max_size=9),
    st.sampled_from(
        ["{}hush@bucket", "bucket/x?secret_key=hush{}", "bucket/x#hush{}", "bucket/{}@hush"]
    ),
)
def test_no_credentials_of_a_location_are_shown(scheme: str, more: str, form: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_samples_location(f"{scheme}://{form.format(more)}", "--load-samples")
    assert str(caught.value).startswith(f"--load-samples {scheme}:")
    assert "hush" not in str(caught.value)
