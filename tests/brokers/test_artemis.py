"""Properties of a real Artemis: facts, limits, and deviations from MQTT; each driver test with both clients."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from cached_jars import skip_without_jars
from listening import listening
from running import running
from waiting_for import gone

from pytest_loadtest import brokers
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt import artemis
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings, Tls
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.profile.sections import SecuritySection
from pytest_loadtest.testing import Subject
from pytest_loadtest.testing.rig import mixed_pool, rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.artemis,
    skip_without_jars(artemis.JARS),
]

QUEUED, PACKET = 1000, 5000
SETTINGS = {
    "address-setting.max-size-messages": str(QUEUED),
    "address-setting.address-full-policy": "DROP",
    "acceptor.maximumPacketSize": str(PACKET),
}
both = pytest.mark.parametrize(
    "driver", [PahoMqttDriver, NativeMqttDriver], ids=["library", "native"]
)


@contextmanager
def started(folder: Path, **settings: str) -> Iterator[brokers.Broker]:
    with running(
        brokers.BrokerRequest(kind="artemis", mode="auto", folder=folder, settings=settings)
    ) as broker:
        yield broker
    assert gone(broker.facts.pid)
    assert not folder.exists()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """A broker with short queues that drops messages beyond them."""
    with started(tmp_path_factory.mktemp("artemis") / "broker", **SETTINGS) as running:
        yield running


def subject(broker: brokers.Broker, driver: Any, **given: Any) -> Subject:
    return Subject(
        driver=driver,
        target=TargetAddress(url=broker.facts.url),
        settings=MqttSettings.model_validate(given),
    )


def test_the_report_has_version_and_decisive_settings(broker: brokers.Broker) -> None:
    """Persistence, journal, limits and memory."""
    facts = broker.facts
    assert (facts.name, facts.version, facts.mode, facts.evidence) == (
        "Artemis",
        artemis.JARS.version,
        "process",
        True,
    )
    assert SETTINGS.items() <= facts.settings.items()
    assert (facts.settings["persistence-enabled"], facts.settings["journal-datasync"]) == (
        "false",
        "true",
    )
    assert broker.failure() is None


def test_only_this_machine_can_reach_it(broker: brokers.Broker) -> None:
    """Its acceptor is on loopback, and there is no console."""
    assert broker.facts.pid is not None
    assert listening(broker.facts.pid) == {"127.0.0.1"}


def test_an_unknown_element_ends_the_start_with_the_error_of_artemis(tmp_path: Path) -> None:
    """Its log and configuration are kept."""
    with (
        pytest.raises(
            TargetError,
            match=r"Artemis .* did not start: exited with status 1(?s:.*)starting with element .*no-such",
        ),
        started(tmp_path, **{"no-such": "1"}),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.log", "broker.xml"]


def test_clients_show_certificates_at_the_port_with_tls(tmp_path: Path) -> None:
    """Artemis requires them there, and uses the profile's cipher. The folder's name needs care in an address."""
    cipher = Tls(version="TLSv1.3", ciphers="TLS_AES_128_GCM_SHA256")
    security = SecuritySection(tls=True, auth="tls")
    request = brokers.BrokerRequest(
        kind="artemis",
        mode="auto",
        folder=tmp_path / "brok\u00e9r & co",
        security=security,
        tls=cipher,
    )
    with running(request) as broker:
        for driver in (PahoMqttDriver, NativeMqttDriver):
            target, keys = (
                TargetAddress(url=broker.facts.url),
                cipher.with_files(broker.facts.client["tls"]),
            )
            with rig(Subject(driver=driver, target=target, settings=MqttSettings(tls=keys))) as r:
                r.send(50)
                r.until(lambda r=r: r.acked >= 50 and r.copies >= 50, "acked and received")
                assert r.driver.facts().applied["tlsNegotiated"] == "TLSv1.3 TLS_AES_128_GCM_SHA256"
            nameless = MqttSettings(tls=Tls(ca_file=keys.ca_file))
            with (
                pytest.raises(TargetError, match="the broker requires a client certificate"),
                rig(Subject(driver=driver, target=target, settings=nameless)),
            ):
                pass
    assert not (tmp_path / "brok\u00e9r & co").exists()


@both
def test_a_message_above_the_limit_of_the_acceptor_is_rejected_before_load(
    broker: brokers.Broker, driver: Any
) -> None:
    with (
        pytest.raises(TargetError, match=f"{PACKET} bytes at most"),
        rig(subject(broker, driver), mixed_pool()),
    ):
        pass


@both
def test_a_full_address_drops_acknowledged_messages(broker: brokers.Broker, driver: Any) -> None:
    """Of 3 000 messages for a sleeping subscriber the first 1 000 arrive, including those in flight."""
    with rig(subject(broker, driver, receiveMaximum=20)) as r:
        r.driver.pause(r.places)
        r.send(3 * QUEUED)
        r.until(lambda: r.acked == 3 * QUEUED, "all acknowledged")
        assert all((acks.status == Status.ACKED).all() for acks in r.acks)
        r.driver.resume(r.places)
        r.until(lambda: r.copies >= QUEUED, "what the broker kept is delivered")
        r.send(1, first=3 * QUEUED)
        r.until(lambda: r.copies > QUEUED, "the message behind is delivered")
        assert r.heads(0).seq.tolist() == [*range(QUEUED), 3 * QUEUED]


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_of_a_leaving_consumer_come_again(
    broker: brokers.Broker, driver: Any, qos: int
) -> None:
    """At UNSUBSCRIBE Artemis gives them to the other consumer, also at QoS 2 (against MQTT 5, 3.10.4): duplicates, no loss."""
    with rig(subject(broker, driver, qos=qos, sharedSubscription=True), consumers=2) as r:
        r.driver.pause(r.places[:1])
        r.send(200)
        r.until(lambda: r.acked >= 200, "acked while one consumer is paused")
        r.driver.detach(r.places[:1])
        r.until(lambda: len(r.heads(1).seq) >= 200, "received by the one that stayed")
        assert sorted(r.heads(1).seq.tolist()) == list(range(200))
