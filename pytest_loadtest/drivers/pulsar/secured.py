"""A Pulsar broker that wants to know who connects, or speaks TLS alone: keys made for one run, and what broker and clients hear of them.

Everything lies in one folder that goes with the broker's data. There is one role, a superuser: the run's clients have it, and so has the
client inside the broker. Configuration keys: Pulsar's ``conf/standalone.conf``.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.brokers.base import ROLE
from pytest_loadtest.drivers.pulsar import passwords
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
    token = _write(folder / "token", passwords.token(key.read_bytes(), {"sub": ROLE}).encode())
    told = {"tokenSecretKey": key.as_uri()}
    return told | _plugin("Token", token.as_uri()), Authentication(plugin="token", token_file=str(token))


def _basic(folder: Path) -> tuple[dict[str, str], Authentication]:
    password = secrets.token_hex(16)
    file = _write(folder / "password", password.encode())
    known = _write(folder / "htpasswd", f"{ROLE}:{passwords.apr1(password, secrets.token_hex(4))}\n".encode())
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
