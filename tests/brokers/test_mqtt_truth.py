"""A broker that drops messages after acknowledging them: the driver must report exactly those losses."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from mosquitto_versions import kept_messages
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion

from pytest_loadtest import brokers
from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import DrainingRun, TargetAddress, Undelivered
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.mqtt.undelivered import mosquitto_undelivered
from pytest_loadtest.message.samples import Status
from pytest_loadtest.testing import Subject
from pytest_loadtest.testing.rig import rig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)

SENT = 5_000
IN_FLIGHT, QUEUED = 20, 1_000  # the subscriber's Receive Maximum; mosquitto's max_queued_messages


def test_a_sleeping_subscriber_loses_exactly_what_its_queue_cannot_hold(tmp_path: Path) -> None:
    """Of 5 000 acknowledged messages at QoS 1 the first 1 020 arrive (mosquitto 2.0.21: 1 040); it counts the rest as dropped, and the others as held until they arrive.

    What mosquitto 2.1 holds is not known, as its sources were not read.
    """
    request = brokers.BrokerRequest(kind="mqtt", mode="process", folder=tmp_path / "mosquitto")
    broker = brokers.start(request, lambda _: None)
    try:
        kept = kept_messages(broker.facts, QUEUED, IN_FLIGHT)
        held = Undelivered if str(broker.facts.version).startswith("2.0.") else lambda _: None
        settings = MqttSettings.model_validate({"receiveMaximum": IN_FLIGHT})
        with rig(
            Subject(
                driver=PahoMqttDriver, target=TargetAddress(url=broker.facts.url), settings=settings
            )
        ) as r:
            r.driver.pause(r.places)
            r.send(SENT)
            r.until(lambda: r.acked == SENT, "all acknowledged")
            assert all((acks.status == Status.ACKED).all() for acks in r.acks)
            assert r.copies == 0
            assert _dropped(broker.facts.url, SENT - kept) == SENT - kept
            run = DrainingRun(
                target=TargetAddress(url=broker.facts.url),
                settings=settings,
                run="any",
                topology=r.topology,
            )
            assert mosquitto_undelivered(run) == held(kept)
            r.driver.resume(r.places)
            r.until(lambda: r.copies >= kept, "what the broker kept is delivered")
            r.send(1, first=SENT)  # behind it nothing of the others can come
            r.until(lambda: r.copies > kept, "the message behind is delivered")
            assert r.heads(0).seq.tolist() == [*range(kept), SENT]
            assert mosquitto_undelivered(run) == held(0)
    finally:
        broker.stop()


@pytest.mark.parametrize("client", ["library", "native"])
def test_opening_times_have_every_client_of_the_run(tmp_path: Path, client: str) -> None:
    """One connect each, and one subscribe of each consumer; a probe of the broker does not count."""
    broker = brokers.start(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=tmp_path / "mosquitto"),
        lambda _: None,
    )
    try:
        began = time.monotonic_ns()
        settings = MqttSettings.model_validate({"client": client})
        driver = driver_class("mqtt", client)
        with rig(
            Subject(driver=driver, target=TargetAddress(url=broker.facts.url), settings=settings),
            streams=3,
        ) as r:
            found, passed = r.driver.opening_times(), time.monotonic_ns() - began
            assert {name: len(times) for name, times in found.items()} == {
                "connect": 3 + len(r.places),
                "subscribe": len(r.places),
            }
            assert all(((times > 0) & (times < passed)).all() for times in found.values())
    finally:
        broker.stop()


def _dropped(url: str, expected: int) -> int:
    """Return the broker's own count once it has reached the expected one; it is published every second."""
    seen: list[int] = []
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _client, _data, message: seen.append(int(message.payload))
    host, port = url.removeprefix("mqtt://").split(":")
    client.connect(host, int(port))
    client.on_connect = lambda *_: client.subscribe("$SYS/broker/publish/messages/dropped")
    end = time.monotonic() + 10
    while time.monotonic() < end and (not seen or seen[-1] < expected):
        client.loop(0.05)
    client.disconnect()
    client.loop(0.1)
    return seen[-1]
