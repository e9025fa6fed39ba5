"""What a ``tls`` section leaves to be agreed on."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.drivers.mqtt.settings import Tls


@pytest.mark.parametrize(
    ("given_settings", "versions", "of_tls12", "of_tls13"),
    [
        ({}, ("TLSv1.2", "TLSv1.3"), (), ()),
        ({"version": "TLSv1.2"}, ("TLSv1.2",), (), ()),
        ({"ciphers": "TLS_A:TLS_B"}, ("TLSv1.3",), (), ("TLS_A", "TLS_B")),
        ({"ciphers": "OLD"}, ("TLSv1.2",), ("OLD",), ()),
        ({"ciphers": "OLD:TLS_A"}, ("TLSv1.2", "TLSv1.3"), ("OLD",), ("TLS_A",)),
    ],
)
def test_ciphers_limit_the_tls_versions(
    given_settings: dict[str, Any], versions: tuple[str, ...], of_tls12: tuple[str, ...], of_tls13: tuple[str, ...]
) -> None:
    """A version in the profile is the only one; otherwise those of the ciphers."""
    tls = Tls(**given_settings)
    assert (tls.versions, tls.of_tls12, tls.of_tls13) == (versions, of_tls12, of_tls13)
