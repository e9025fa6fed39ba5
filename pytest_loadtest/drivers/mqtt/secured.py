"""TLS of the brokers that a run starts.

It is for all clients or for subscribers only, with keys made for one run. The keys are in a folder
below the broker's data, which a restart keeps and the end of the run deletes.
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.base import ROLE, BrokerFacts, BrokerRequest, described
from pytest_loadtest.drivers.mqtt.settings import Tls
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.brokers.certificates import KeysOfRun
    from pytest_loadtest.profile.sections import SecuritySection


# mosquitto's tls_version is a minimum: it accepts newer versions too.
_LEAST: Final = {"TLSv1.2": "tlsv1.2", "TLSv1.3": "tlsv1.3"}


@record
class TlsListener:
    """The settings of a TLS listener and of its clients.

    :param lines: configuration of the listener. :param client: ``driver.tls`` of the clients.
    :param decisive: those of the lines that affect results.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    client: Tls
    decisive: Mapping[str, str] = field(default_factory=dict)


def ports_of(security: SecuritySection | None) -> int:
    """Return the number of ports of a broker: a plain one, one with TLS, or both."""
    return 2 if security is not None and security.tls == "subscribers" else 1


def mosquitto_listener(folder: Path, request: BrokerRequest) -> TlsListener | None:
    """Make the keys of a mosquitto and of its clients; None for a broker without TLS.

    Settings of a listener: mosquitto.conf(5), "Certificate based SSL/TLS Support".

    :param folder: a folder that does not exist yet.
    """
    if request.security is None:
        return None
    keys = _make_keys(folder, request.security)
    limits = request.tls or Tls()
    ciphers = {"ciphers": ":".join(limits.of_tls12), "ciphers_tls1.3": ":".join(limits.of_tls13)}
    decisive = {"tls_version": _LEAST[limits.versions[0]]} | {
        key: names for key, names in ciphers.items() if names
    }
    lines = {"certfile": str(keys.server.certificate), "keyfile": str(keys.server.key), **decisive}
    if keys.client is not None:
        lines |= {"cafile": str(keys.authority), "require_certificate": "true"}
    return TlsListener(lines=lines, client=_client_tls(keys), decisive=decisive)


def artemis_listener(folder: Path, request: BrokerRequest, working: Path) -> TlsListener | None:
    """Make the keys of Artemis and of its clients; None for a broker without TLS.

    The lines are parameters of an acceptor: Artemis's manual, "Configuring the Transport".

    :param folder: a folder that does not exist yet. :param working: Artemis's working directory.
    """
    if request.security is None:
        return None
    keys = _make_keys(folder, request.security)
    limits = request.tls or Tls()
    # Java has a store of keys for PEM (pem-keystore, one of the jars),
    # which reads certificate and key from one file.
    both = keys.server.key.with_name("server-both.pem")
    both.touch(mode=0o600)
    both.write_bytes(keys.server.key.read_bytes() + keys.server.certificate.read_bytes())
    chosen = {"enabledProtocols": ",".join(limits.versions)}
    # Java has OpenSSL's names of ciphers for TLS 1.3 only; a check of the profile rejects others.
    if limits.of_tls13:
        chosen["enabledCipherSuites"] = ",".join(limits.of_tls13)
    # Paths are relative, because parameters cannot hold every
    # character that a path can have, quoted or not.
    near = Path(os.path.relpath(folder, working))
    lines = {
        "sslEnabled": "true",
        "keyStorePath": str(near / both.name),
        "keyStoreType": "PEM",
        **chosen,
    }
    if keys.client is not None:
        lines |= {
            "trustStorePath": str(near / keys.authority.name),
            "trustStoreType": "PEMCA",
            "needClientAuth": "true",
        }
    return TlsListener(
        lines=lines,
        client=_client_tls(keys),
        decisive={f"acceptor.{key}": value for key, value in chosen.items()},
    )


def _make_keys(folder: Path, security: SecuritySection) -> KeysOfRun:
    from pytest_loadtest.brokers.certificates import keys_of_run

    folder.mkdir(mode=0o700)
    return keys_of_run(folder, client=ROLE if security.auth else None)


def _client_tls(keys: KeysOfRun) -> Tls:
    if keys.client is None:
        return Tls(ca_file=str(keys.authority))
    return Tls(
        ca_file=str(keys.authority),
        cert_file=str(keys.client.certificate),
        key_file=str(keys.client.key),
    )


def with_listener(
    facts: BrokerFacts, request: BrokerRequest, listener: TlsListener | None, ports: Sequence[int]
) -> BrokerFacts:
    """Return the facts of a broker with its TLS addresses and settings.

    Without a listener they are unchanged.

    :param ports: those of the listener, one for each broker.
    """
    if listener is None or request.security is None:
        return facts
    url = "mqtts://" + ",".join(f"127.0.0.1:{port}" for port in ports)
    settings = {**facts.settings, "security": described(request.security), **listener.decisive}
    secured = replace(facts, settings=settings, client={"tls": listener.client})
    if request.security.tls == "subscribers":
        return replace(secured, subscriber_url=url)
    return replace(secured, url=url, subscriber_url=None)
