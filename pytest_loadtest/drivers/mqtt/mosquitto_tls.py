"""A mosquitto that speaks TLS, to everybody or to subscribers alone: keys made for one run, and what broker and clients hear of them.

Everything lies in one folder that goes with the broker's data, and that a restart keeps. Lines of a listener:
`mosquitto.conf(5) <https://mosquitto.org/man/mosquitto-conf-5.html>`_, "Certificate based SSL/TLS Support".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.base import ROLE
from pytest_loadtest.drivers.mqtt.settings import Tls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_loadtest.profile.sections import SecuritySection

MANAGED: Final = frozenset(
    {"cafile", "capath", "certfile", "keyfile", "require_certificate", "tls_version", "ciphers", "ciphers_tls1.3"},
)
_LEAST: Final = {"TLSv1.2": "tlsv1.2", "TLSv1.3": "tlsv1.3"}  # as mosquitto spells it; newer ones are taken too


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsListener:
    """What a listener and its clients are told.

    :param lines: that stand below ``listener``. :param client: for ``driver.tls``. :param told: what of the lines decides results.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    client: Tls
    told: Mapping[str, str] = field(default_factory=dict)


def tls_listener(folder: Path, asked: SecuritySection, wanted: Tls | None) -> TlsListener:
    """Make the keys.

    :param folder: does not exist yet. :param wanted: has version and ciphers; None: what the broker takes by itself.
    """
    from pytest_loadtest.brokers.certificates import keys_of_run

    folder.mkdir(mode=0o700)
    keys = keys_of_run(folder, client=ROLE if asked.auth else None)
    told = _limits(wanted or Tls())
    lines = {"certfile": str(keys.server.certificate), "keyfile": str(keys.server.key), **told}
    client = Tls(ca_file=str(keys.authority))
    if keys.client is not None:
        lines |= {"cafile": str(keys.authority), "require_certificate": "true"}
        client = Tls(ca_file=client.ca_file, cert_file=str(keys.client.certificate), key_file=str(keys.client.key))
    return TlsListener(lines=lines, client=client, told=told)


def _limits(wanted: Tls) -> dict[str, str]:
    ciphers = {"ciphers": ":".join(wanted.of_tls12), "ciphers_tls1.3": ":".join(wanted.of_tls13)}
    return {"tls_version": _LEAST[wanted.versions[0]]} | {key: names for key, names in ciphers.items() if names}
