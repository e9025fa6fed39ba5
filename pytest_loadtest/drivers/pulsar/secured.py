"""A Pulsar broker that wants to know who connects, or speaks TLS alone: keys made for one run, and what broker and clients hear of them.

Everything lies in one folder that goes with the broker's data. There is one role, a superuser: the run's clients have it, and so has the
client inside the broker. Configuration keys: Pulsar's ``conf/standalone.conf``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.brokers.base import ROLE
from pytest_loadtest.drivers.pulsar.settings import Authentication

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_loadtest.profile.sections import SecuritySection


TOKEN_KEY: Final = "token.key"
_PROVIDERS: Final = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_PLUGINS: Final = "org.apache.pulsar.client.impl.auth.Authentication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """What a broker and its clients are told.

    :param tls: it has TLS ports and no others. :param lines: of the broker's configuration, less the ports.
    :param client: fields of :class:`~pytest_loadtest.profile.client.PulsarSettings`; secrets are in files that these name.
    """

    tls: bool = False
    lines: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)


def secure(folder: Path, asked: SecuritySection | None) -> Secured:
    """Make the keys. :param folder: does not exist yet, and is made where something is asked."""
    if asked is None:
        return Secured()
    folder.mkdir(mode=0o700)
    lines: dict[str, str] = {}
    client: dict[str, Any] = {}
    if asked.tls:
        lines, client = _tls(folder, clients=asked.auth == "tls")
    if asked.auth is not None:
        told, client["authentication"] = {"token": _token, "basic": _basic, "tls": _certificate}[asked.auth](folder)
        lines |= {"authenticationEnabled": "true", "authorizationEnabled": "true", "superUserRoles": ROLE, **told}
    return Secured(tls=bool(asked.tls), lines=lines, client=client)


def _tls(folder: Path, *, clients: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """:param clients: they need a certificate too."""
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
    told = {"tokenSecretKey": key.as_uri()}
    return told | _plugin("Token", token.as_uri()), Authentication(plugin="token", token_file=str(token))


def _basic(folder: Path) -> tuple[dict[str, str], Authentication]:
    password = secrets.token_hex(16)
    file = _write(folder / "password", password.encode())
    known = _write(folder / "htpasswd", f"{ROLE}:{apr1(password, secrets.token_hex(4))}\n".encode())
    told = {"basicAuthConf": known.as_uri()}
    own = json.dumps({"userId": ROLE, "password": password})
    return told | _plugin("Basic", own), Authentication(plugin="basic", user_id=ROLE, password_file=str(file))


def _certificate(folder: Path) -> tuple[dict[str, str], Authentication]:
    """The client's certificate is there already."""
    from pytest_loadtest.brokers.certificates import KeyPair

    client = KeyPair.below(folder, "client")
    own = {"tlsCertFile": str(client.certificate), "tlsKeyFile": str(client.key)}
    auth = Authentication(plugin="tls", cert_file=own["tlsCertFile"], key_file=own["tlsKeyFile"])
    return _plugin("Tls", json.dumps(own)), auth


def _plugin(name: str, own: str) -> dict[str, str]:
    """:param own: parameters of the broker's own client."""
    return {
        "authenticationProviders": _PROVIDERS + name,
        "brokerClientAuthenticationPlugin": _PLUGINS + name,
        "brokerClientAuthenticationParameters": own,
    }


def _write(path: Path, data: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


# The two forms in which a Pulsar broker knows somebody without certificates: a signed signed_token, and a line of an htpasswd file.

ROUNDS: Final = 1000
_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ORDER: Final = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))  # of the digest's bytes; the one left over is 11


def signed_token(key: bytes, claims: Mapping[str, Any]) -> str:
    """A JSON Web Token signed by HS256 (RFC 7519; RFC 7515, A.1). :param key: 32 bytes or more. :param claims: ``sub`` is the role."""
    signed = b".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, dict(claims)))
    return (signed + b"." + _base64url(hmac.digest(key, signed, "sha256"))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def apr1(password: str, salt: str) -> str:
    """``$apr1$SALT$…``, Apache's MD5 form (``apr_md5_encode``): beside DES the only form that Pulsar's own provider knows.

    :param salt: up to 8 characters of ``./0-9A-Za-z``.
    """
    word, grain = password.encode(), salt.encode()
    digest = hashlib.md5(word + grain + word, usedforsecurity=False).digest()
    start = word + b"$apr1$" + grain + (digest * (len(word) // 16 + 1))[: len(word)]
    length = len(word)
    while length:
        start += b"\0" if length & 1 else word[:1]
        length >>= 1
    digest = hashlib.md5(start, usedforsecurity=False).digest()
    for i in range(ROUNDS):
        parts = (word if i & 1 else digest, grain if i % 3 else b"", word if i % 7 else b"", digest if i & 1 else word)
        digest = hashlib.md5(b"".join(parts), usedforsecurity=False).digest()
    numbers = [(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER] + [(digest[11], 2)]
    return f"$apr1${salt}$" + "".join(_ALPHABET[number >> 6 * i & 63] for number, count in numbers for i in range(count))
