"""Addresses as texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.addresses import check_address, is_loopback, masked


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
def test_masked(address: str, shown: str) -> None:
    """Host and port stay, the scheme too."""
    assert masked(address) == shown


@given(st.text().filter(lambda text: "@" not in text), st.text())
def test_whatever_the_password_it_is_not_shown(host: str, secret: str) -> None:
    """Also one that is no part of a proper address, or goes over several lines."""
    assert masked(f"mqtt://{secret}@{host}") == f"mqtt://***@{host}"


def test_an_address_that_says_who_somebody_is() -> None:
    """It is refused, masked, with where it was given and what to write; any other, and none, is let by."""
    check_address(None, "--load-target")
    check_address("mqtt://host", "--load-target")
    with pytest.raises(UsageError, match=r"^--load-target mqtt://\*\*\*@host: an address has no user and no password: write driver\."):
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
    """A name of another host may begin like such an address."""
    assert is_loopback(host) is ours
