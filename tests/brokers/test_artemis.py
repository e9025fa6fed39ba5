"""What is particular to a real Artemis: its facts, its limits, and where it departs from MQTT; each driver test for both clients."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from listening import listening
from running import running
from waiting_for import gone

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt import artemis
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing import Subject
from pytest_loadtest.testing.rig import mixed_pool, rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.artemis,
    pytest.mark.slow,
    pytest.mark.skipif(
        java.find() is None or artemis.JARS.version not in artemis.JARS.cached_versions(),
        reason="no Java, or Artemis's jars are not cached: python -m pytest_loadtest doctor --fix",
    ),
]

QUEUED, PACKET = 1000, 5000
SETTINGS = {
    "address-setting.max-size-messages": str(QUEUED),
    "address-setting.address-full-policy": "DROP",
    "acceptor.maximumPacketSize": str(PACKET),
}
both = pytest.mark.parametrize("driver", [PahoMqttDriver, NativeMqttDriver], ids=["library", "native"])


@contextmanager
def started(folder: Path, **settings: str) -> Iterator[brokers.Broker]:
    with running(brokers.BrokerRequest(kind="artemis", mode="auto", folder=folder, settings=settings)) as broker:
        yield broker
    assert gone(broker.facts.pid)
    assert not folder.exists()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """One whose queues are short, and which drops what is beyond."""
    with started(tmp_path_factory.mktemp("artemis") / "broker", **SETTINGS) as running:
        yield running


def subject(broker: brokers.Broker, driver: Any, **given: Any) -> Subject:
    return Subject(driver=driver, target=TargetAddress(url=broker.facts.url), settings=MqttSettings.model_validate(given))


def test_facts(broker: brokers.Broker) -> None:
    """The report gets the version that runs and what decides results: persistence, journal, limits, memory."""
    facts = broker.facts
    assert (facts.name, facts.version, facts.mode, facts.evidence) == ("Artemis", artemis.JARS.version, "process", True)
    assert SETTINGS.items() <= facts.settings.items()
    assert (facts.settings["persistence-enabled"], facts.settings["journal-datasync"]) == ("false", "true")
    assert broker.failure() is None


def test_only_this_machine_reaches_it(broker: brokers.Broker) -> None:
    """Its acceptor is on loopback, and it opens no console."""
    assert broker.facts.pid is not None
    assert listening(broker.facts.pid) == {"127.0.0.1"}


def test_a_setting_that_artemis_does_not_know(tmp_path: Path) -> None:
    """Its own words, at once, and its log and configuration are kept."""
    with (
        pytest.raises(TargetError, match=r"Artemis .* did not start: exited with status 1(?s:.*)starting with element .*no-such"),
        started(tmp_path, **{"no-such": "1"}),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.log", "broker.xml"]


@both
def test_a_limit_of_its_acceptor_is_known_before_load(broker: brokers.Broker, driver: Any) -> None:
    """Messages that it would not take end the run before it begins."""
    with pytest.raises(TargetError, match=f"{PACKET} bytes at most"), rig(subject(broker, driver), mixed_pool()):
        pass


@both
def test_what_a_full_address_drops(broker: brokers.Broker, driver: Any) -> None:
    """3 000 messages past a sleeping subscriber: all acknowledged, the first 1 000 delivered, in flight ones among them."""
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
def test_what_one_that_leaves_had_not_acknowledged_comes_again(broker: brokers.Broker, driver: Any, qos: int) -> None:
    """At UNSUBSCRIBE Artemis gives it to the other one, at QoS 2 too, though it was on its way (MQTT 5, 3.10.4): duplicates, no loss."""
    with rig(subject(broker, driver, qos=qos, sharedSubscription=True), consumers=2) as r:
        r.driver.pause(r.places[:1])
        r.send(200)
        r.until(lambda: r.acked >= 200, "acked while one consumer is paused")
        r.driver.detach(r.places[:1])
        r.until(lambda: len(r.heads(1).seq) >= 200, "received by the one that stayed")
        assert sorted(r.heads(1).seq.tolist()) == list(range(200))
