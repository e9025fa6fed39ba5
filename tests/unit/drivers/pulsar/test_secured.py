"""Tokens and htpasswd lines, compared with those of other tools."""

from __future__ import annotations

import base64
import hmac
import json

import pytest

from pytest_loadtest.drivers.pulsar.secured import apr1, signed_token


@pytest.mark.parametrize(
    ("password", "line"),
    [
        (
            "admin",
            "$apr1$GBIYZYFZ$MzLcPrvoUky16mLcK6UtX/",
        ),  # in Pulsar's documentation of basic authentication
        (
            "a longer password than sixteen bytes é",
            "$apr1$GBIYZYFZ$Qq8R7uTUUTUNU14hJ0jgr0",
        ),  # by openssl passwd -apr1
        ("", "$apr1$x$tMwYqBfQwi3FYAr0aJc8M/"),  # the same
    ],
)
def test_a_password_has_the_hash_of_htpasswd_and_openssl(password: str, line: str) -> None:
    """The same salt gives the same line as ``htpasswd -m`` and ``openssl passwd -apr1``."""
    assert apr1(password, line.split("$")[2]) == line


def test_a_token_has_three_parts_signed_with_hmac() -> None:
    """Header, claims, and the HMAC of both with a dot between them; without padding."""
    parts = signed_token(b"k" * 32, {"sub": "me", "exp": 7}).encode().split(b".")
    header, claims, signature = (
        base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)) for part in parts
    )
    assert (json.loads(header), json.loads(claims)) == (
        {"alg": "HS256", "typ": "JWT"},
        {"sub": "me", "exp": 7},
    )
    assert signature == hmac.digest(b"k" * 32, parts[0] + b"." + parts[1], "sha256")
    assert b"=" not in b"".join(parts)
