"""MQTT over TLS on a real mosquitto, for all clients and for subscribers only: what passes, and the errors of what does not."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from running import running

from pytest_loadtest import brokers
from pytest_loadtest.brokers import certificates
from pytest_loadtest.brokers.certificates import KeyPair
from pytest_loadtest.brokers.starting import free_ports
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt import broker_socket, mosquitto
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings, Tls
from pytest_loadtest.errors import LoadtestError, TargetError, UsageError
from pytest_loadtest.profile.sections import SecuritySection
from pytest_loadtest.testing.rig import Subject, context_of, plain_pool, rig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest.brokers.base import Broker

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)

MESSAGES = 50
CIPHER = "TLS_AES_256_GCM_SHA384"
OLD_CIPHER = "ECDHE-RSA-AES256-GCM-SHA384"
NEITHER = "127.1"  # 127.0.0.1 to the system, and no name that the broker's certificate has
DRIVERS: list[Any] = []


@pytest.fixture(autouse=True, params=[PahoMqttDriver, NativeMqttDriver], ids=["library", "native"])
def under_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Choose the driver that connects."""
    DRIVERS.append(request.param)
    yield
    DRIVERS.pop()


@contextmanager
def secured(
    folder: Path, wanted: Tls | None = None, lines: dict[str, str] | None = None, **security: Any
) -> Iterator[Broker]:
    """Run a broker. :param wanted: version and ciphers. :param lines: lines of its configuration."""
    asked = brokers.BrokerRequest(
        kind="mqtt",
        mode="auto",
        folder=folder / "brokér",
        security=SecuritySection(**security),
        tls=wanted,
        settings=lines or {},
    )
    with running(asked) as broker:
        yield broker


@pytest.fixture(scope="module")
def for_subscribers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker as in TPUT.BROADCAST: plain publishers, and subscribers with TLS 1.3."""
    with secured(
        tmp_path_factory.mktemp("subscribers"),
        Tls(version="TLSv1.3", ciphers=CIPHER),
        tls="subscribers",
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def by_certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with secured(tmp_path_factory.mktemp("certificate"), tls=True, auth="tls") as broker:
        yield broker


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with secured(
        tmp_path_factory.mktemp("old"),
        Tls(version="TLSv1.2", ciphers=OLD_CIPHER),
        tls=True,
        auth="tls",
    ) as broker:
        yield broker


def settings_of(broker: Broker, *, qos: int = 1, **tls: Any) -> MqttSettings:
    """Return the settings that the run gives its clients, with those of the user."""
    return MqttSettings(tls=Tls(**tls).with_files(broker.facts.client["tls"]), qos=qos)


def target_of(broker: Broker) -> TargetAddress:
    return TargetAddress(
        url=broker.facts.url, subscriber_url=broker.facts.subscriber_url, started=True
    )


def subject(broker: Broker, settings: MqttSettings, target: TargetAddress | None = None) -> Subject:
    return Subject(driver=DRIVERS[-1], target=target or target_of(broker), settings=settings)


def carries(subject: Subject) -> str:
    """Send messages through; return the negotiated version and cipher."""
    with rig(subject) as r:
        r.send(MESSAGES)
        r.until(lambda: r.acked == r.copies == MESSAGES, "all acknowledged and received")
        return str(r.driver.facts().applied["tlsNegotiated"])


def rejected(subject: Subject, kind: type[LoadtestError] = TargetError) -> str:
    """Return the error that a user gets before any load."""
    with pytest.raises(kind) as raised, rig(subject):
        pass
    return str(raised.value)


def answers_plain(url: str | None) -> bool:
    """Return True if the address answers to MQTT without TLS."""
    assert url is not None
    host, _, port = url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01x")
        try:
            return connection.recv(4).startswith(b"\x20\x02")
        except ConnectionResetError:
            return False


# subscribers alone


def test_there_is_a_plain_port_for_publishers_and_a_tls_port_for_subscribers(
    for_subscribers: Broker,
) -> None:
    """The report has version and ciphers, and no key."""
    facts = for_subscribers.facts
    assert (answers_plain(facts.url), answers_plain(facts.subscriber_url)) == (True, False)
    security = {key: facts.settings[key] for key in ("security", "tls_version", "ciphers_tls1.3")}
    assert security == {
        "security": "TLS for subscribers",
        "tls_version": "tlsv1.3",
        "ciphers_tls1.3": CIPHER,
    }
    assert facts.describe().endswith(
        f"(process, {facts.url}, {facts.subscriber_url} for subscribers)"
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_plain_publishers_reach_subscribers_over_tls(for_subscribers: Broker, qos: int) -> None:
    """At every QoS; the negotiated version and cipher are reported."""
    assert (
        carries(subject(for_subscribers, settings_of(for_subscribers, qos=qos)))
        == f"TLSv1.3 {CIPHER}"
    )


def test_sessions_are_ended_at_the_address_of_their_clients(
    for_subscribers: Broker, tmp_path: Path
) -> None:
    """The publishers' address does not answer to TLS."""
    durable = settings_of(for_subscribers).model_copy(
        update={"clean_start": False, "session_expiry": 3600 * 10**9}
    )
    carries(
        subject(
            for_subscribers, durable.model_copy(update={"client_id_prefix": f"own-{tmp_path.name}"})
        )
    )


@pytest.mark.parametrize("lost", ["url", "subscriber_url"])
def test_an_unreachable_one_of_two_addresses_is_named(for_subscribers: Broker, lost: str) -> None:
    target, (port,) = target_of(for_subscribers), free_ports(1)
    dead = {"url": f"mqtt://127.0.0.1:{port}", "subscriber_url": f"mqtts://127.0.0.1:{port}"}[lost]
    key = {"url": "target.url", "subscriber_url": "target.subscriberUrl"}[lost]
    given = {"url": target.url, "subscriber_url": target.subscriber_url, lost: dead}
    message = rejected(
        subject(for_subscribers, settings_of(for_subscribers), TargetAddress(**given))
    )
    assert message == f"{key} {dead}: Connection refused"
    if lost == "subscriber_url":
        asked = brokers.BrokerRequest(
            kind="mqtt", mode="url", folder=Path("unused"), url=target.url, subscriber_url=dead
        )
        with pytest.raises(
            TargetError, match=rf"cannot reach target.subscriberUrl {dead} .*refused"
        ):
            brokers.start(asked, lambda _: None)


def test_both_addresses_of_an_external_broker_are_checked(for_subscribers: Broker) -> None:
    """And passed to the drivers."""
    facts = for_subscribers.facts
    asked = brokers.BrokerRequest(
        kind="mqtt",
        mode="url",
        folder=Path("unused"),
        url=facts.url,
        subscriber_url=facts.subscriber_url,
    )
    external = brokers.start(asked, lambda _: None).facts
    assert (external.url, external.subscriber_url, external.local) == (
        facts.url,
        facts.subscriber_url,
        True,
    )


def test_a_broker_of_another_authority_is_not_trusted(
    for_subscribers: Broker, stranger: Path
) -> None:
    """The error names the file that should contain the authority, and the address."""
    message = rejected(
        subject(for_subscribers, settings_of(for_subscribers, ca_file=f"{stranger}/ca.pem"))
    )
    assert message.startswith(
        f"{for_subscribers.facts.subscriber_url}: probe for subscribers: the broker's certificate is not trusted"
    )
    assert message.endswith(
        f"driver.tls.caFile ({stranger}/ca.pem) must contain the authority that signed it"
    )


def test_an_expired_certificate_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authority is not blamed."""
    monkeypatch.setattr(certificates, "LASTS", timedelta(hours=-1))
    with secured(tmp_path, tls=True) as broker:
        assert (
            "the broker's certificate is not valid now (certificate has expired): renew it"
            in rejected(subject(broker, settings_of(broker)))
        )


def test_a_host_name_that_is_not_in_the_certificate_is_rejected(for_subscribers: Broker) -> None:
    """It is accepted if the profile says so."""
    facts = for_subscribers.facts
    target = TargetAddress(
        url=facts.url, subscriber_url=str(facts.subscriber_url).replace("127.0.0.1", NEITHER)
    )
    message = rejected(subject(for_subscribers, settings_of(for_subscribers), target))
    assert message.endswith(
        f"'{NEITHER}': connect by a name in the certificate, or write driver.tls.insecure: true"
    )
    carries(subject(for_subscribers, settings_of(for_subscribers, insecure=True), target))


def test_tls_to_the_plain_port_is_an_error_with_the_scheme_to_write(
    for_subscribers: Broker,
) -> None:
    target = TargetAddress(url=for_subscribers.facts.url.replace("mqtt:", "mqtts:"))
    message = rejected(subject(for_subscribers, settings_of(for_subscribers), target))
    assert message.endswith(
        "without an answer: does its port speak TLS? If not, write mqtt:// in place of mqtts://"
    )


def test_tls_connections_have_many_source_addresses(
    for_subscribers: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like plain ones, so that ports suffice."""
    monkeypatch.setattr(broker_socket, "EACH_SOURCE", 1)
    with rig(subject(for_subscribers, settings_of(for_subscribers))) as r:
        found = [
            connection.socket._socket.getsockname()[0] for connection in r.driver._clients._kept
        ]  # type: ignore[attr-defined]
    assert len(set(found)) == len(found) > 1


# everybody, by certificates


def test_the_right_client_certificate_is_accepted(by_certificate: Broker) -> None:
    """Only its owner can read the key, which is deleted with the broker."""
    facts = by_certificate.facts
    assert (facts.url.partition(":")[0], facts.subscriber_url) == ("mqtts", None)
    assert facts.settings["security"] == "TLS, tls authentication"
    assert carries(subject(by_certificate, settings_of(by_certificate))).startswith("TLSv1.3 ")
    key = Path(facts.client["tls"].key_file)
    assert [path.stat().st_mode & 0o077 for path in (key, key.parent)] == [0, 0]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_missing_client_certificate_is_explained(by_certificate: Broker, version: str) -> None:
    """In TLS 1.3 a broker reports it after the client considers itself connected."""
    without = MqttSettings(
        tls=Tls(ca_file=by_certificate.facts.client["tls"].ca_file, version=version)
    )  # type: ignore[arg-type]
    message = rejected(subject(by_certificate, without))
    assert "the broker requires a client certificate" in message
    assert message.endswith("write driver.tls: {certFile: …, keyFile: …}")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_certificate_of_another_authority_is_rejected(
    by_certificate: Broker, stranger: Path, version: str
) -> None:
    """It has the right name."""
    files = KeyPair.below(stranger, "client")
    theirs = settings_of(
        by_certificate, cert_file=str(files.certificate), key_file=str(files.key), version=version
    )
    message = rejected(subject(by_certificate, theirs))
    assert f"the broker rejects the client certificate {files.certificate} (" in message


def test_a_plain_client_at_a_tls_port_is_explained(by_certificate: Broker) -> None:
    """With mqtt:// in the address."""
    target = TargetAddress(url=by_certificate.facts.url.replace("mqtts:", "mqtt:"))
    message = rejected(subject(by_certificate, MqttSettings(), target))
    assert message.startswith(f"{target.url}: probe: ")
    assert "does it speak TLS (then write mqtts://)" in message
    remedy = (
        r"write mqtts://, or target: \{security: \{tls: true\}\} for a broker that the run starts"
    )
    with (
        pytest.raises(UsageError, match=remedy),
        rig(subject(by_certificate, settings_of(by_certificate), target)),
    ):
        pass


# versions and ciphers


def test_tls_1_2_uses_the_cipher_of_both_sides(old: Broker) -> None:
    assert old.facts.settings["ciphers"] == OLD_CIPHER
    assert (
        carries(subject(old, settings_of(old, version="TLSv1.2", ciphers=OLD_CIPHER)))
        == f"TLSv1.2 {OLD_CIPHER}"
    )
    assert carries(subject(old, settings_of(old, ciphers=OLD_CIPHER))) == f"TLSv1.2 {OLD_CIPHER}", (
        "the cipher says which version"
    )


def test_a_version_that_the_broker_does_not_have_is_named(for_subscribers: Broker) -> None:
    message = rejected(subject(for_subscribers, settings_of(for_subscribers, version="TLSv1.2")))
    assert "the broker has none of the TLS versions that the client offers" in message
    assert message.endswith("driver.tls allows TLSv1.2")


def test_a_cipher_that_the_broker_does_not_have_is_named(
    old: Broker, for_subscribers: Broker
) -> None:
    """TLS 1.2 fails in the handshake; in TLS 1.3 the broker's choice is compared with the profile, and both are named."""
    other = "ECDHE-RSA-AES128-GCM-SHA256"
    message = rejected(subject(old, settings_of(old, ciphers=other)))
    assert "the broker has none of the ciphers that the client offers" in message
    assert message.endswith(f"driver.tls.ciphers is {other}")
    other = "TLS_AES_128_GCM_SHA256"
    message = rejected(subject(for_subscribers, settings_of(for_subscribers, ciphers=other)))
    assert f"the broker chose the cipher {CIPHER}, driver.tls.ciphers is {other}" in message
    assert message.endswith("set them at the broker")


# files


def test_a_file_that_cannot_be_used_is_named(
    by_certificate: Broker, stranger: Path, tmp_path: Path
) -> None:
    """Before any client connects."""
    client, empty = str(stranger / "client.pem"), tmp_path / "empty.pem"
    empty.touch()
    for files, wanted in (
        (
            {"ca_file": "/nowhere/ca.pem"},
            "driver.tls.caFile /nowhere/ca.pem: No such file or directory",
        ),
        ({"ca_file": str(empty)}, f"driver.tls.caFile {empty}: cannot read a certificate from it"),
        ({"ca_file": str(tmp_path)}, f"driver.tls.caFile {tmp_path}: Is a directory"),
        (
            {"cert_file": client, "key_file": "/nowhere"},
            "driver.tls.keyFile /nowhere: No such file or directory",
        ),
        (
            {"cert_file": client},
            f"driver.tls: certFile {client}, keyFile not set: cannot read a certificate and its unencrypted key",
        ),
        (
            {"cert_file": client, "key_file": by_certificate.facts.client["tls"].key_file},
            "(KEY_VALUES_MISMATCH)",
        ),
        ({"ciphers": "ECDHE-NOTHING"}, "driver.tls.ciphers: OpenSSL has none of ECDHE-NOTHING"),
    ):
        made = DRIVERS[-1](
            context_of(subject(by_certificate, settings_of(by_certificate, **files)), plain_pool())
        )
        with pytest.raises(UsageError) as raised:
            made.prepare()
        made.close()
        assert wanted in str(raised.value)


def test_certificates_of_the_profile_are_rejected_with_keys_of_the_run(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="certfile of mosquitto is chosen per run"),
        secured(tmp_path, lines={"certfile": "x"}, tls=True),
    ):
        pass


# a restart


def test_a_restart_keeps_keys_and_ports(tmp_path: Path) -> None:
    """Clients reconnect and lose nothing; at QoS 1 a message may come twice."""
    with secured(tmp_path, lines={"persistence": "true"}, tls="subscribers", auth="tls") as broker:
        before = broker.facts
        files = {
            path: path.read_bytes() for path in Path(before.client["tls"].ca_file).parent.iterdir()
        }
        assert len(files) == 5
        settings = settings_of(broker).model_copy(
            update={"clean_start": False, "session_expiry": 3600 * 10**9, "keep_alive": 10**9}
        )
        with rig(subject(broker, settings)) as r:
            r.send(MESSAGES)
            r.until(lambda: r.acked == r.copies == MESSAGES, "all acknowledged and received")
            broker.restart()
            after = broker.facts
            assert (after.url, after.subscriber_url, after.client) == (
                before.url,
                before.subscriber_url,
                before.client,
            )
            assert {path: path.read_bytes() for path in files} == files
            r.until(lambda: r.driver.disconnected() is not None, "noticed")
            r.until(lambda: r.driver.disconnected() is None, "connected again")
            r.send(MESSAGES, first=MESSAGES)
            # The broker sends again what it had no acknowledgement of before the restart.
            r.until(
                lambda: r.acked == len(set(r.heads(0).seq.tolist())) == 2 * MESSAGES,
                "all acknowledged and received",
            )
    assert not any(path.exists() for path in files)
