"""``learn`` with real traffic on a mosquitto."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from pytest_loadtest import brokers, profile
from pytest_loadtest.commands import cli
from pytest_loadtest.commands.learn import learn
from pytest_loadtest.drivers.mqtt import mosquitto, observer
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)

SIZES = {"s/a": 50, "s/b": 3000, "other": 9}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker on which a client publishes one message of each size in turn until the tests are over."""
    folder = tmp_path_factory.mktemp("broker") / "mosquitto"
    broker = brokers.start(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder), lambda _: None
    )
    stop = threading.Event()

    def publish() -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, "somebody")
        host, port = broker.facts.url.split("://")[1].split(":")
        client.connect(host, int(port))
        client.publish("s/old", bytes(777), retain=True)
        while not stop.is_set():
            for topic, size in SIZES.items():
                client.publish(topic, bytes(size))
                client.loop(0.001)
        client.disconnect()

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield broker.facts.url
    finally:
        stop.set()
        thread.join()
        broker.stop()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_the_profile_of_real_traffic_has_exact_sizes(
    url: str, version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Topics come by wildcard; a retained message from before does not count."""
    output, like = tmp_path / "learned.yaml", tmp_path / "like.yaml"
    like.write_text(
        f'name: x\nmessageSize: 100\nproducerRate: 1\ntestDuration: 1s\ndriver: {{name: mqtt, protocolVersion: "{version}"}}\n'
    )
    command = [
        "learn",
        url,
        "--topic",
        "s/#",
        "--messages",
        "200",
        "--like",
        str(like),
        "-o",
        str(output),
    ]
    assert cli.main(command) == cli.OK
    found = profile.load(output)
    assert found.message_size_distribution
    assert set(found.message_size_distribution) == {"50-51", "3000-3001"}
    assert min(found.message_size_distribution.values()) >= 99
    assert (found.topics, found.driver.name) == (2, "mqtt")
    assert found.producer_rate > 0
    assert "200 messages in" in capsys.readouterr().err


def test_a_silent_topic_is_no_data(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No profile is written."""
    output = tmp_path / "learned.yaml"
    assert (
        cli.main(["learn", url, "--topic", "nobody/here", "--for", "300ms", "-o", str(output)])
        == cli.NO_DATA
    )
    assert "no message on nobody/here" in capsys.readouterr().err
    assert not output.exists()


def test_a_lost_broker_ends_the_sampling_with_an_error(tmp_path: Path) -> None:
    """This holds before and during the sampling."""
    broker = brokers.start(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=tmp_path / "mosquitto"),
        lambda _: None,
    )
    try:
        tap = observer.MqttObserver(broker.facts.url, ["a"], MqttSettings())
    finally:
        broker.stop()
    with pytest.raises(TargetError, match="connection lost"):
        while True:
            tap.read(0.1)
    tap.close()
    with pytest.raises(TargetError, match="Connection refused"):
        learn(broker.facts.url, ["a"], announce=lambda _: None)


def test_an_observer_that_has_ended_has_no_open_sockets(url: str) -> None:
    """paho closes a pair of sockets of its own when its client is freed, which must not wait for a collection of garbage."""
    gc.disable()
    try:
        observed = observer.MqttObserver(url, ["s/a"], MqttSettings())
        assert observed.read(10)
        client = weakref.ref(observed._client)
        observed.close()
        del observed
        assert client() is None
    finally:
        gc.enable()
