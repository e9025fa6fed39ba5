"""Keys and listeners of brokers with TLS, without starting any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.brokers import BrokerRequest
from pytest_loadtest.brokers.base import BrokerFacts
from pytest_loadtest.drivers.mqtt.secured import artemis_listener, mosquitto_listener, with_listener
from pytest_loadtest.drivers.mqtt.settings import Tls
from pytest_loadtest.profile.sections import SecuritySection

if TYPE_CHECKING:
    from pathlib import Path


def request(folder: Path, limits: Tls | None = None, **security: Any) -> BrokerRequest:
    return BrokerRequest(
        kind="mqtt", mode="process", folder=folder, security=SecuritySection(**security), tls=limits
    )


@pytest.mark.parametrize(
    ("limits", "lines"),
    [
        (None, {"tls_version": "tlsv1.2"}),
        (Tls(version="TLSv1.3"), {"tls_version": "tlsv1.3"}),
        (Tls(ciphers="TLS_A:TLS_B"), {"tls_version": "tlsv1.3", "ciphers_tls1.3": "TLS_A:TLS_B"}),
        (
            Tls(ciphers="TLS_A:OLD"),
            {"tls_version": "tlsv1.2", "ciphers": "OLD", "ciphers_tls1.3": "TLS_A"},
        ),
    ],
)
def test_a_listener_of_mosquitto_has_the_profiles_versions_and_ciphers(
    limits: Tls | None, lines: dict[str, str], tmp_path: Path
) -> None:
    """Ciphers of TLS 1.3 have their own line; the report has these lines, and none that names a file."""
    listener = mosquitto_listener(tmp_path / "security", request(tmp_path, limits, tls=True))
    assert listener is not None
    assert listener.decisive == lines
    assert lines.items() <= listener.lines.items()
    assert listener.client == Tls(ca_file=str(tmp_path / "security" / "ca.pem"))
    assert "require_certificate" not in listener.lines


@pytest.mark.parametrize(
    ("limits", "lines"),
    [
        (None, {"enabledProtocols": "TLSv1.2,TLSv1.3"}),
        (Tls(version="TLSv1.2"), {"enabledProtocols": "TLSv1.2"}),
        (
            Tls(ciphers="TLS_A:TLS_B"),
            {"enabledProtocols": "TLSv1.3", "enabledCipherSuites": "TLS_A,TLS_B"},
        ),
    ],
)
def test_an_acceptor_of_artemis_has_the_profiles_versions_and_ciphers(
    limits: Tls | None, lines: dict[str, str], tmp_path: Path
) -> None:
    """The report has them as the profile would name them; only their owner can read the keys."""
    listener = artemis_listener(
        tmp_path / "security", request(tmp_path, limits, tls=True), tmp_path / "broker-2"
    )
    assert listener is not None
    assert listener.decisive == {f"acceptor.{key}": value for key, value in lines.items()}
    assert lines.items() <= listener.lines.items()
    assert listener.lines["keyStorePath"] == "../security/server-both.pem"
    assert "needClientAuth" not in listener.lines
    assert [
        path.name
        for path in (tmp_path / "security").iterdir()
        if b"PRIVATE" in path.read_bytes() and path.stat().st_mode & 0o077
    ] == []


def test_authentication_by_certificates_gives_clients_one(tmp_path: Path) -> None:
    asked = request(tmp_path, tls=True, auth="tls")
    made = {
        "require_certificate": mosquitto_listener(tmp_path / "a", asked),
        "needClientAuth": artemis_listener(tmp_path / "b", asked, tmp_path),
    }
    for folder, (required, listener) in zip("ab", made.items(), strict=True):
        assert listener is not None
        assert listener.lines[required] == "true"
        assert (listener.client.cert_file, listener.client.key_file) == tuple(
            f"{tmp_path}/{folder}/client{end}.pem" for end in ("", "-key")
        )


@pytest.mark.parametrize(
    ("tls", "urls"),
    [
        (True, ("mqtts://127.0.0.1:3,127.0.0.1:4", None)),
        ("subscribers", ("mqtt://127.0.0.1:1,127.0.0.1:2", "mqtts://127.0.0.1:3,127.0.0.1:4")),
    ],
)
def test_clients_get_the_addresses_with_tls(
    tls: Any, urls: tuple[str, str | None], tmp_path: Path
) -> None:
    """All of them, or the subscribers alone."""
    asked = request(tmp_path, tls=tls)
    plain = BrokerFacts(
        name="Artemis", version="1", mode="process", url="mqtt://127.0.0.1:1,127.0.0.1:2"
    )
    facts = with_listener(
        plain, asked, artemis_listener(tmp_path / "security", asked, tmp_path), [3, 4]
    )
    assert (facts.url, facts.subscriber_url) == urls
    assert facts.client["tls"].ca_file == f"{tmp_path}/security/ca.pem"


def test_a_broker_without_security_has_no_keys(tmp_path: Path) -> None:
    asked = BrokerRequest(kind="mqtt", mode="process", folder=tmp_path)
    plain = BrokerFacts(name="mosquitto", version="1", mode="process", url="mqtt://127.0.0.1:1")
    assert (
        mosquitto_listener(tmp_path / "x", asked),
        artemis_listener(tmp_path / "x", asked, tmp_path),
    ) == (None, None)
    assert with_listener(plain, asked, None, [1]) == plain
