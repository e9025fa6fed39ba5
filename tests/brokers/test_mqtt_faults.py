"""Faults of a real mosquitto and of other clients, each with a known truth; both MQTT clients."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from mosquitto_versions import names_takeovers
from mqtt_rig import context
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from running import running
from waiting_for import wait_until

from pytest_loadtest import brokers
from pytest_loadtest.drivers.base import TargetAddress, TelemetryContext
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.observer import SysTopics
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message import envelope
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import Subject, rig
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
both = pytest.mark.parametrize(
    "driver", [PahoMqttDriver, NativeMqttDriver], ids=["library", "native"]
)

IN_FLIGHT = 20  # messages that mosquitto sends ahead of their acknowledgements
SAVED, UNSAVED = 300, 200
KEPT = {"persistence": "true", "max_queued_messages": "0"}
DURABLE = {"cleanStart": False, "sessionExpiry": "1h", "receiveMaximum": IN_FLIGHT}
FORGOTTEN = "the broker had forgotten the session of a consumer, and what it held for it"


@contextmanager
def started(folder: Path, **lines: str) -> Iterator[brokers.Broker]:
    with running(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder / "broker", settings=lines)
    ) as broker:
        yield broker


def subject(broker: brokers.Broker, driver: Any, **given: Any) -> Subject:
    settings = MqttSettings.model_validate(given)
    return Subject(
        driver=driver,
        target=TargetAddress(url=broker.facts.url),
        settings=settings,
        deadline=60 * SECOND,
    )


# --- what mosquitto had not saved is lost


@both
@pytest.mark.parametrize(
    ("saved", "kill", "kept"),
    [(True, False, SAVED + UNSAVED), (True, True, SAVED), (False, True, IN_FLIGHT)],
    ids=["ended in order", "killed after a save", "killed before a save"],
)
def test_exactly_what_a_killed_mosquitto_had_not_saved_is_lost(
    tmp_path: Path, driver: Any, saved: bool, kill: bool, kept: int
) -> None:
    """Of 500 acknowledged messages, none of which a hanging consumer has taken, those in flight are in its socket already."""
    with started(tmp_path, **KEPT) as broker, rig(subject(broker, driver, **DURABLE)) as r:
        r.driver.pause(r.places)
        r.send(SAVED)
        r.until(lambda: r.acked >= SAVED, "acked")
        if saved:
            save(broker, tmp_path)
        r.send(UNSAVED, SAVED)
        r.until(lambda: r.acked >= SAVED + UNSAVED, "acked")
        broker.restart(kill=kill)
        r.driver.resume(r.places)
        r.until(
            lambda: r.driver.facts().losses == 2 and r.driver.disconnected() is None,
            "connected again",
        )
        r.send(1, SAVED + UNSAVED)
        r.until(
            lambda: r.acked > SAVED + UNSAVED and SAVED + UNSAVED in received(r),
            "the last message received",
        )
        assert received(r) == {*range(kept), SAVED + UNSAVED}
        assert (
            FORGOTTEN not in r.driver.facts().incidents
            if saved
            else r.driver.facts().incidents[FORGOTTEN] == 1
        )


def save(broker: brokers.Broker, folder: Path) -> None:
    """Let mosquitto save its state now, which it otherwise does every ``autosave_interval`` (mosquitto(8), SIGUSR1)."""
    assert broker.facts.pid is not None
    os.kill(broker.facts.pid, signal.SIGUSR1)
    # It writes another file first, and then renames it.
    wait_until((folder / "broker" / "data" / "mosquitto.db").exists, "the saved state", 30)


def received(r: Any) -> set[int]:
    return set(r.heads(0).seq.tolist())


@both
def test_messages_without_a_subscription_are_counted(tmp_path: Path, driver: Any) -> None:
    """mosquitto acknowledges them with a reason of its own, and delivers them to nobody. At QoS 2 it answers before it knows."""
    with started(tmp_path) as broker, rig(subject(broker, driver)) as r:
        r.send(1)
        r.until(lambda: r.copies == 1, "received")
        r.driver.detach(r.places)
        # Some of the first ones may come before the broker has ended the subscription.
        sent = 1
        while not r.driver.facts().incidents:
            r.send(1, sent)
            sent += 1
            r.until(lambda sent=sent: r.acked >= sent, "acked")  # type: ignore[misc]
        r.send(10, sent)
        r.until(lambda: r.acked >= sent + 10, "acked")
        assert r.driver.facts().incidents == {
            "message acknowledged by a broker without a subscription for it": 11
        }
        assert r.failed == 0


# --- other clients


@both
def test_two_runs_with_the_same_client_ids_end_with_the_cause(tmp_path: Path, driver: Any) -> None:
    """mosquitto 2.0.11 ends the earlier connection without a reason; the first run to count ten of them names the client id."""
    with started(tmp_path) as broker:
        said = r"stream 0: the broker ended 10 connections in a row .*client id 'lt-p0' in use"
        if names_takeovers(broker.facts):
            said = r"stream 0: its client id 'lt-p0' is in use by another client \(session taken"
        drivers = [
            driver(
                context(broker.facts.url, time.monotonic_ns, cleanStart=False, sessionExpiry="1h")
            )
            for _ in range(2)
        ]
        for one in drivers:
            one.open_producers([0])
        with pytest.raises(TargetError, match=said):
            until(drivers, lambda: False)
        for one in drivers:
            one.close()


def until(drivers: list[Any], done: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, [one.disconnected() for one in drivers]
        for one in drivers:
            one.poll(MILLISECOND)


@both
def test_the_will_of_another_client_is_a_foreign_message(tmp_path: Path, driver: Any) -> None:
    """It has no envelope of the run; a client of the run that dies has no will, so nobody gets anything of it."""
    with (
        started(tmp_path) as broker,
        rig(subject(broker, driver, topicPrefix="plant"), run="will") as r,
    ):
        wills: list[bytes] = []
        other = paho.Client(CallbackAPIVersion.VERSION2, "other")
        other.will_set("plant/will/0", b"the other one is gone", qos=1)
        watching = paho.Client(CallbackAPIVersion.VERSION2, "watching")
        watching.on_message = lambda _client, _data, message: wills.append(message.payload)
        host, _, port = broker.facts.url.removeprefix("mqtt://").partition(":")
        ready: list[object] = []
        watching.on_subscribe = lambda *_: ready.append(None)
        other.on_connect = lambda *_: ready.append(None)
        watching.on_connect = lambda client, *_: client.subscribe("#", 1)
        with ExitStack() as stack:
            for client in (watching, other):
                client.connect(host, int(port))
                client.loop_start()
                stack.callback(client.loop_stop)
            wait_until(lambda: len(ready) == 2, "both clients", 30)
            other.socket().shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
            r.until(lambda: r.copies == 1, "received")
            cut(r.driver._consumers[0][1])
            r.until(
                lambda: r.driver.facts().losses == 1 and r.driver.disconnected() is None,
                "connected again",
            )
            r.send(1)
            r.until(lambda: r.copies == 2 and len(wills) >= 2, "received")
            other.disconnect()
            watching.disconnect()
        assert r.heads(0).kind.tolist() == [envelope.FOREIGN, envelope.OURS]
        assert wills[0] == b"the other one is gone" and len(wills) == 2


# --- a consumer that leaves without a connection


SHARED = {"qos": 1, "sessionExpiry": "1h", "sharedSubscription": True}


def cut(connection: Any) -> None:
    """Shut the socket of a client's connection down."""
    with socket.socket(fileno=os.dup(connection.socket.fileno())) as own:
        own.shutdown(socket.SHUT_RDWR)


@both
@pytest.mark.parametrize("unsubscribing", [False, True], ids=["while down", "before its UNSUBACK"])
def test_a_durable_consumer_that_leaves_without_a_connection_takes_no_share(
    tmp_path: Path, driver: Any, unsubscribing: bool
) -> None:
    """It comes back to unsubscribe: the broker would go on to give it messages, which nobody reads."""
    with (
        started(tmp_path, max_queued_messages="0") as broker,
        rig(subject(broker, driver, **SHARED), consumers=2) as r,
    ):
        _, connection = r.driver._consumers[r.places[1]]
        if unsubscribing:
            r.driver.detach(r.places[1:])
            cut(connection)
        else:
            cut(connection)
            r.until(lambda: not connection.up, "disconnected")
            r.driver.detach(r.places[1:])
            assert connection in r.driver._clients._loop.down
        for first in range(0, 200, 20):
            r.send(20, first)
        r.until(lambda: r.acked == 200 and r.copies >= 200, "received")
        r.until(lambda: connection._over and connection.socket is None, "left")
        assert r.copies == 200
        assert r.driver.disconnected() is None
        assert r.driver.facts().losses == 1


@both
def test_a_consumer_that_leaves_and_cannot_come_back_does_not_keep_the_driver(
    tmp_path: Path, driver: Any
) -> None:
    with started(tmp_path) as broker:
        one = driver(context(broker.facts.url, time.monotonic_ns, **SHARED))
        one.open_consumers([0])
        _, connection = one._consumers[0]
        broker.stop()
        until([one], lambda: not connection.up)
        one.detach([0])
        assert "consumer 0" in one.disconnected()
        began = time.monotonic()
        one.close()
        assert time.monotonic() - began < 10
        assert connection._over


# --- all clients at once


@both
def test_a_storm_of_reconnects_is_timed_to_its_last_client(tmp_path: Path, driver: Any) -> None:
    """300 clients lose their connections when the broker is killed."""
    topology = Topology(topics=1, partitions=1, producers=200, subscriptions=100, consumers=1)
    with started(tmp_path) as broker:
        one = driver(context(broker.facts.url, time.monotonic_ns, topology=topology))
        one.open_consumers(range(100))
        one.open_producers(range(200))
        killed = time.monotonic_ns()
        broker.restart(kill=True)
        until([one], lambda: len(one.opening_times().get("reconnect", ())) == 300)
        took, facts = one.opening_times()["reconnect"], one.facts()
        assert one.disconnected() is None
        assert 0 < np.min(took) <= np.max(took) <= time.monotonic_ns() - killed
        assert (
            facts.losses
            == sum(
                count
                for text, count in facts.incidents.items()
                if not text.startswith("reconnect failed")
            )
            == 300
        )
        one.close()


# --- the broker's own counters


def test_the_counters_of_mosquitto_are_read_again_after_a_restart(tmp_path: Path) -> None:
    """By a second connection. A broker that does not come back is a failure at the end, so that the samples do not look complete."""
    with started(tmp_path) as broker:
        ports = set[int]()
        target = TargetAddress(url=broker.facts.url)
        counters = SysTopics(TelemetryContext(
            target=target, broker={}, settings=MqttSettings(), run="r", topology=Topology(
                topics=1, partitions=1, producers=1, subscriptions=1, consumers=1
            ), fresh=True, kept={}, ports=ports,
        ))  # fmt: skip
        wait_until(lambda: "sys.clients" in counters.read(0), "the counters", 30)
        broker.restart(kill=True)
        wait_until(lambda: len(ports) == 2, "the second connection", 30)
        wait_until(lambda: "sys.clients" in counters.read(0), "the counters of the new process", 30)
        broker.stop()
        wait_until(lambda: not counters.read(0), "the end of the connection", 30)
        with pytest.raises(TargetError):
            counters.close()
