"""Keys and configuration for a Pulsar broker with authentication or TLS, generated for one run.

All files are in one folder, which is deleted with the broker's data. There is one role, a
superuser, for the run's clients and for the client inside the broker. The configuration keys are
those of Pulsar's ``conf/standalone.conf``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.brokers.base import ROLE
from pytest_loadtest.drivers.pulsar.settings import Authentication
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_loadtest.profile.sections import SecuritySection


TOKEN_KEY: Final = "token.key"
_PROVIDERS: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_PLUGINS: Final = "org.apache.pulsar.client.impl.auth.Authentication"


@record
class Secured:
    """The security settings of a broker and its clients.

    :param tls: all ports are TLS ports.
    :param lines: lines of the broker's configuration, without the ports.
    :param client: fields of :class:`~pytest_loadtest.drivers.pulsar.settings.PulsarSettings`; they
        name the files that hold secrets.
    """

    tls: bool = False
    lines: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)


def secure(folder: Path, asked: SecuritySection | None) -> Secured:
    """Generate the keys. :param folder: does not exist yet; it is created if ``asked`` is given."""
    if asked is None:
        return Secured()
    folder.mkdir(mode=0o700)
    lines: dict[str, str] = {}
    client: dict[str, Any] = {}
    if asked.tls:
        lines, client = _tls(folder, clients=asked.auth == "tls")
    if asked.auth is not None:
        provider, client["authentication"] = {
            "token": _token,
            "basic": _basic,
            "tls": _certificate,
        }[asked.auth](folder)
        lines |= {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "superUserRoles": ROLE,
            **provider,
        }
    return Secured(tls=bool(asked.tls), lines=lines, client=client)


def _tls(folder: Path, *, clients: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """:param clients: clients need a certificate too."""
    from pytest_loadtest.brokers.certificates import keys_of_run

    keys = keys_of_run(folder, client=ROLE if clients else None)
    trusted = str(keys.authority)
    lines = {
        "tlsCertificateFilePath": str(keys.server.certificate),
        "tlsKeyFilePath": str(keys.server.key),
        "tlsTrustCertsFilePath": trusted,
        "tlsRequireTrustedClientCertOnConnect": "true" if clients else "false",
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": trusted,
    }
    return lines, {"tls_trust_certs_file_path": trusted}


def _token(folder: Path) -> tuple[dict[str, str], Authentication]:
    key = _write(folder / TOKEN_KEY, secrets.token_bytes(32))
    token = _write(folder / "token", signed_token(key.read_bytes(), {"sub": ROLE}).encode())
    lines = {"tokenSecretKey": key.as_uri()} | _plugin("Token", token.as_uri())
    return lines, Authentication(plugin="token", token_file=str(token))


def _basic(folder: Path) -> tuple[dict[str, str], Authentication]:
    password = secrets.token_hex(16)
    file = _write(folder / "password", password.encode())
    htpasswd = _write(
        folder / "htpasswd", f"{ROLE}:{apr1(password, secrets.token_hex(4))}\n".encode()
    )
    lines = {"basicAuthConf": htpasswd.as_uri()} | _plugin(
        "Basic", json.dumps({"userId": ROLE, "password": password})
    )
    return lines, Authentication(plugin="basic", user_id=ROLE, password_file=str(file))


def _certificate(folder: Path) -> tuple[dict[str, str], Authentication]:
    """Use the client's certificate, which :func:`_tls` has made."""
    from pytest_loadtest.brokers.certificates import KeyPair

    # The broker takes the role from the common name of the client's certificate
    # (AuthenticationProviderTls).
    client = KeyPair.below(folder, "client")
    own = {"tlsCertFile": str(client.certificate), "tlsKeyFile": str(client.key)}
    auth = Authentication(plugin="tls", cert_file=own["tlsCertFile"], key_file=own["tlsKeyFile"])
    return _plugin("Tls", json.dumps(own)), auth


def _plugin(name: str, own: str) -> dict[str, str]:
    """:param own: the parameters for the broker's own client."""
    return {
        "authenticationProviders": _PROVIDERS + name,
        "brokerClientAuthenticationPlugin": _PLUGINS + name,
        "brokerClientAuthenticationParameters": own,
    }


def _write(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


# The two credentials without certificates: a signed token, and a line of an htpasswd file.

ROUNDS: Final = 1000
_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# The order in which apr_md5_encode writes the digest's bytes,
# three at a time; byte 11 comes last, alone.
_ORDER: Final = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))


def signed_token(key: bytes, claims: Mapping[str, Any]) -> str:
    """Return a JSON Web Token signed by HS256 (RFC 7519; RFC 7515, A.1).

    :param key: 32 bytes or more.
    :param claims: ``sub``: the role.
    """
    signed = b".".join(
        _base64url(json.dumps(part).encode())
        for part in ({"alg": "HS256", "typ": "JWT"}, dict(claims))
    )
    return (signed + b"." + _base64url(hmac.digest(key, signed, "sha256"))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def apr1(password: str, salt: str) -> str:
    """Return a password's hash ``$apr1$SALT$…`` by Apache's MD5 form (``apr_md5_encode``).

    Pulsar's own provider takes no other form but DES.

    :param salt: up to 8 characters of ``./0-9A-Za-z``.
    """
    word = password.encode()
    grain = salt.encode()
    digest = hashlib.md5(word + grain + word, usedforsecurity=False).digest()
    start = word + b"$apr1$" + grain + (digest * (len(word) // 16 + 1))[: len(word)]
    length = len(word)
    while length:
        start += b"\0" if length & 1 else word[:1]
        length >>= 1
    digest = hashlib.md5(start, usedforsecurity=False).digest()
    for i in range(ROUNDS):
        text = word if i & 1 else digest
        if i % 3:
            text += grain
        if i % 7:
            text += word
        text += digest if i & 1 else word
        digest = hashlib.md5(text, usedforsecurity=False).digest()
    numbers = [(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER] + [
        (digest[11], 2)
    ]
    return f"$apr1${salt}$" + "".join(
        _ALPHABET[number >> 6 * i & 63] for number, count in numbers for i in range(count)
    )
