"""What mosquitto has yet to deliver, by its ``$SYS`` topics."""

from __future__ import annotations

from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from pytest_loadtest.drivers.base import DrainingRun, TargetAddress
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.drivers.mqtt.undelivered import Update, held_by, mosquitto_undelivered
from pytest_loadtest.schedule.topology import Topology

VERSION, UPTIME = "$SYS/broker/version", "$SYS/broker/uptime"
STORED, RETAINED = "$SYS/broker/store/messages/count", "$SYS/broker/retained messages/count"


def update(
    *messages: tuple[str, str],
    retained: tuple[tuple[str, str], ...] = ((VERSION, "mosquitto version 2.0.11"),),
) -> Update:
    taken = Update()
    for retain, (topic, text) in [
        *((True, pair) for pair in retained),
        *((False, pair) for pair in messages),
    ]:
        message: Any = MQTTMessage(topic=topic.encode())
        message.payload, message.retain = text.encode(), retain
        taken.take(message)
    return taken


def test_an_update_is_known_when_the_next_one_begins() -> None:
    """A value that did not change is not published again, so the end of an update cannot be seen."""
    values = [(UPTIME, "2 seconds"), (STORED, "60"), (RETAINED, "50")]
    assert held_by(update(*values)) is None
    assert held_by(update(*values, (UPTIME, "4 seconds"))) == 10


def test_unchanged_values_are_those_from_before() -> None:
    """They came as retained messages, or in an earlier update."""
    before = (
        (VERSION, "mosquitto version 2.0.11"),
        (UPTIME, "0 seconds"),
        (STORED, "60"),
        (RETAINED, "50"),
    )
    assert held_by(update((UPTIME, "2 seconds"), (UPTIME, "4 seconds"), retained=before)) == 10
    assert (
        held_by(
            update((UPTIME, "2 seconds"), (STORED, "50"), (UPTIME, "4 seconds"), retained=before)
        )
        == 0
    )


def test_values_of_the_next_update_are_not_mixed_with_those_of_this_one() -> None:
    values = [
        (UPTIME, "2 seconds"),
        (STORED, "60"),
        (RETAINED, "50"),
        (UPTIME, "4 seconds"),
        (STORED, "50"),
    ]
    assert held_by(update(*values)) == 10


@pytest.mark.parametrize(
    "version", ["mosquitto version 2.1.0", "mosquitto version 1.6.9", "HiveMQ", None]
)
def test_other_brokers_prove_nothing(version: str | None) -> None:
    values = [(UPTIME, "2 seconds"), (STORED, "50"), (RETAINED, "50"), (UPTIME, "4 seconds")]
    assert held_by(update(*values, retained=((VERSION, version),) if version else ())) is None


def test_fewer_stored_than_retained_messages_are_not_understood() -> None:
    assert (
        held_by(
            update((UPTIME, "2 seconds"), (STORED, "49"), (RETAINED, "50"), (UPTIME, "4 seconds"))
        )
        is None
    )


@pytest.mark.parametrize("settings", [{"qos": 0}, {"qos": 1, "retain": True}])
def test_the_broker_is_not_asked_where_its_answer_proves_nothing(settings: dict[str, Any]) -> None:
    """The address would refuse a connection."""
    topology = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1)
    target = TargetAddress(url="mqtt://127.0.0.1:1")
    assert (
        mosquitto_undelivered(
            DrainingRun(
                target=target, settings=MqttSettings(**settings), run="r", topology=topology
            )
        )
        is None
    )
