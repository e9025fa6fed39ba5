"""Brokers of ours stopped and started again: same ports, data kept, never two of them and never none that is left behind."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pulsar
import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from running import running
from waiting_for import gone, wait_until

from pytest_loadtest import brokers
from pytest_loadtest.brokers import Broker, BrokerFacts, BrokerRequest, java
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import StartedBroker, free_ports, listens
from pytest_loadtest.drivers.mqtt import artemis, mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SECONDS = 60.0  # the longest that anything here may take on a slow machine
FOREVER = 600.0  # s between SIGTERM and SIGKILL: longer than a test may take

until = partial(wait_until, seconds=SECONDS)
needs_mosquitto = pytest.mark.skipif(mosquitto.find_binary() is None, reason="mosquitto is not installed")


@contextmanager
def started(folder: Path, kind: str = "mqtt", mode: str = "process", **settings: str) -> Iterator[Broker]:
    """A broker with these lines in its configuration; nothing of it is left at the end."""
    with running(BrokerRequest(kind=kind, mode=mode, folder=folder / "broker", settings=settings)) as broker:
        yield broker
    assert gone(broker.facts.pid)


@contextmanager
def program(folder: Path, text: str, ports: Sequence[int] = ()) -> Iterator[Child]:
    """A Python program where a broker would be."""
    child = Child([sys.executable, "-c", text], folder=folder, ports=ports)
    try:
        yield child
    finally:
        child.stop()


SLEEPER = "import time\nprint('here', flush=True)\ntime.sleep(600)"
# In short pieces: Python sees a signal that comes just before a sleep only after it.
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('asked to end', flush=True))\n" + SLEEPER.replace(
    "time.sleep(600)", "while True: time.sleep(0.05)"
)


# --- the process


def test_the_same_command_again(tmp_path: Path) -> None:
    """Another process, the old one gone, the log goes on."""
    with program(tmp_path, SLEEPER) as child:
        old = child.pid
        until(lambda: child.tail() == "here", "first line")
        child.restart(FOREVER)
        assert gone(old)
        assert child.pid != old and not gone(child.pid)
        until(lambda: child.tail() == "here\nhere", "second line")
        assert child.failure() is None
    assert gone(child.pid)
    assert not tmp_path.exists()


@pytest.mark.parametrize(("grace", "asked"), [(0.5, True), (0.0, False)])
def test_one_that_does_not_end_is_killed(tmp_path: Path, grace: float, asked: bool) -> None:
    """SIGTERM, then SIGKILL when its time is over; without any time SIGKILL at once."""
    with program(tmp_path, STUBBORN) as child:
        old = child.pid
        until(lambda: "here" in child.tail(), "its readiness")
        child.restart(grace)
        assert gone(old) and not gone(child.pid)
        assert ("asked to end" in child.tail()) is asked


def test_a_restart_waits_for_the_port(tmp_path: Path) -> None:
    """A port that somebody holds for a moment is waited for, instead of letting the broker fail on it."""
    with socket.create_server(("127.0.0.1", 0)) as holder, program(tmp_path, SLEEPER, [holder.getsockname()[1]]) as child:
        old = child.pid
        restart = threading.Thread(target=child.restart, args=(FOREVER,))
        restart.start()
        until(lambda: gone(old), "end of the old one")
        assert restart.is_alive()
        assert child.pid == old
        holder.close()
        restart.join(SECONDS)
        assert child.pid != old and not gone(child.pid)


def test_connections_that_wind_up_do_not_hold_the_port(tmp_path: Path) -> None:
    """A broker that closes its connections first leaves the port in TIME_WAIT; it can be bound again all the same."""
    (port,) = free_ports(1)
    server = f"import socket\ns = socket.create_server(('127.0.0.1', {port}))\nprint('here', flush=True)\nwhile True: s.accept()[0].close()"
    with program(tmp_path, server, [port]) as child:
        until(lambda: child.tail() == "here", "its readiness")
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert client.recv(1) == b""
        child.restart(FOREVER)
        until(lambda: child.tail() == "here\nhere", "its readiness")
        assert listens("127.0.0.1", port)


def test_stopped_while_it_restarts(tmp_path: Path) -> None:
    """Whoever ends the session does not wait for a broker that does not end, and nobody starts it after that."""
    said: list[BaseException] = []

    def restart() -> None:
        try:
            child.restart(FOREVER)
        except TargetError as error:
            said.append(error)

    with program(tmp_path, STUBBORN) as child:
        until(lambda: "here" in child.tail(), "its readiness")
        restarting = threading.Thread(target=restart)
        restarting.start()
        until(lambda: "asked to end" in child.tail(), "SIGTERM")
        child.stop()
        restarting.join(SECONDS)
    assert [str(error) for error in said] == ["it was stopped during the restart"]
    assert gone(child.pid)


def test_one_that_has_ended_is_not_restarted(tmp_path: Path) -> None:
    """The cause of its death is told; a restart would hide it."""
    with program(tmp_path, "raise SystemExit(3)") as child:
        until(child.failure, "failure")
        with pytest.raises(TargetError, match="exited with status 3"):
            child.restart(FOREVER)
        assert child.failure() is not None


CONTROLLER = """
import sys
from pathlib import Path
from pytest_loadtest.brokers.process import Child
child = Child([sys.executable, "-c", sys.argv[2]], folder=Path(sys.argv[1]))
print(child.pid, flush=True)
while "here" not in child.tail(): pass
child.restart(float(sys.argv[3]))
print(child.pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def controller(folder: Path, text: str, grace: float) -> Iterator[subprocess.Popen[str]]:
    """Another controller with a program of its own, which it restarts once. It says both process ids."""
    (folder / "data").mkdir(parents=True)
    command = [sys.executable, "-c", CONTROLLER, str(folder), text, str(grace)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_controller_dies_after_a_restart(tmp_path: Path) -> None:
    """The watchdog ends the process that runs now."""
    with controller(tmp_path / "broker", SLEEPER, FOREVER) as process:
        assert process.stdout
        old, new = (int(process.stdout.readline()) for _ in range(2))
        assert old != new and not gone(new)
        process.kill()
        until(lambda: gone(new), "end of the broker")
        until(lambda: not (tmp_path / "broker" / "data").exists(), "end of the data folder")


def test_the_controller_dies_during_a_restart(tmp_path: Path) -> None:
    """What would be waited for with patience is ended at once, and nothing is started after it."""
    with controller(tmp_path / "broker", STUBBORN, FOREVER) as process:
        assert process.stdout
        old = int(process.stdout.readline())
        log = tmp_path / "broker" / "broker.log"
        until(lambda: "asked to end" in log.read_text(), "SIGTERM")
        process.kill()
        until(lambda: gone(old), "end of the broker")
        until(lambda: not (tmp_path / "broker" / "data").exists(), "end of the data folder")
        assert log.read_text().count("here") == 1


# --- the broker

FACTS = BrokerFacts(name="sleeper", version="1", mode="process", url="mqtt://127.0.0.1:1")


def test_the_check_is_suspended_until_it_is_ready(tmp_path: Path) -> None:
    """Nothing that happens before the end of a restart is taken for the death of the target; what comes of it is."""
    seen: list[str | None] = []

    def wait() -> None:
        os.kill(child.pid, signal.SIGKILL)
        until(child.failure, "failure of the process")
        seen.append(broker.failure())
        raise TargetError("it died on the way")

    with program(tmp_path, SLEEPER) as child:
        broker = StartedBroker(FACTS, child, wait)
        old = child.pid
        with pytest.raises(TargetError, match="it died on the way"):
            broker.restart()
        assert seen == [None]
        assert broker.failure() == "after a restart: it died on the way"
        assert broker.facts.pid == child.pid != old


SMALL = {"mosquitto": ("mqtt", "process"), "pulsar-lite": ("pulsar", "embedded")}


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("name", [pytest.param("mosquitto", marks=needs_mosquitto), "pulsar-lite"])
def test_at_the_same_address(tmp_path: Path, name: str, kill: bool) -> None:
    """Clients can work when the call returns; it is another process, well, and gone without a trace at the end."""
    if name == "pulsar-lite":
        pytest.importorskip("pulsar_lite")
    with started(tmp_path, *SMALL[name]) as broker:
        before = broker.facts
        for _ in range(2):
            broker.restart(kill=kill)
        host, _, port = broker.facts.url.partition("://")[2].rpartition(":")
        assert listens(host, int(port))
        assert broker.failure() is None
        assert gone(before.pid) and broker.facts.pid not in (None, before.pid)
        assert broker.facts.url == before.url
    assert not (tmp_path / "broker").exists()


@needs_mosquitto
def test_one_that_does_not_come_up_again(tmp_path: Path) -> None:
    """Its own words, its log is kept, and from then on it counts as gone."""
    with started(tmp_path) as broker:
        with (tmp_path / "broker" / "mosquitto.conf").open("a") as conf:
            conf.write("no_such_option 1\n")
        with pytest.raises(TargetError, match=r"did not start: exited with status \d+(?s:.*)no_such_option"):
            broker.restart()
        assert "no_such_option" in (broker.failure() or "")
        assert gone(broker.facts.pid)
    assert (tmp_path / "broker" / "broker.log").exists()


def test_what_is_not_restarted(tmp_path: Path) -> None:
    """Neither somebody else's broker nor a relay that keeps nothing: it is said so, and nothing happens to them."""
    with started(tmp_path, "loopback") as relay:
        with pytest.raises(UsageError, match="loopback cannot be restarted: it keeps no data"):
            relay.restart()
        theirs = brokers.start(BrokerRequest(kind="loopback", mode="url", url=relay.facts.url, folder=tmp_path), lambda _: None)
        with pytest.raises(UsageError, match="which the run did not start"):
            theirs.restart()
        assert relay.failure() is None
        assert not gone(relay.facts.pid)


# --- what it keeps: mosquitto

TOPIC = "restart/test"


@contextmanager
def mqtt_client(url: str, client_id: str) -> Iterator[tuple[paho.Client, list[bytes]]]:
    """A client with a session that outlives its connection, subscribed at QoS 1, and what it gets."""
    got: list[bytes] = []
    ready = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_message = lambda _client, _data, message: got.append(message.payload)
    client.on_subscribe = lambda *_: ready.set()
    session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    session.SessionExpiryInterval = 3600
    host, port = url.partition("://")[2].split(":")
    client.on_connect = lambda _client, _data, flags, *_: ready.set() if flags.session_present else client.subscribe(TOPIC, qos=1)
    client.connect(host, int(port), clean_start=False, properties=session)
    client.loop_start()
    try:
        assert ready.wait(SECONDS)
        yield client, got
    finally:
        client.disconnect()
        client.loop_stop()


@needs_mosquitto
@pytest.mark.parametrize(
    ("settings", "kill", "kept"),
    [
        ({"persistence": "true", "max_queued_messages": "0"}, False, 1500),
        ({"persistence": "true", "max_queued_messages": "0"}, True, 0),
        ({"max_queued_messages": "0"}, False, 0),
    ],
    ids=["persistent", "persistent, killed before it saved", "not persistent"],
)
def test_what_mosquitto_keeps(tmp_path: Path, settings: dict[str, str], kill: bool, kept: int) -> None:
    """Session and queued messages of a client that was away, when that was asked for and it could write them."""
    with started(tmp_path, **settings) as broker:
        assert waiting_for_one_away(broker, 1500, kept, kill=kill) == [b"%d" % i for i in range(kept)]


def waiting_for_one_away(broker: Broker, count: int, kept: int, *, kill: bool) -> list[bytes]:
    """What a client gets that was away while so many messages came and the broker was restarted; one more message shows the end.

    At QoS 1: some may come twice, where the broker had not yet noted that they were taken.

    :param kept: so many of them are waited for.
    """
    with mqtt_client(broker.facts.url, "away"):
        pass
    with mqtt_client(broker.facts.url, "sender") as (sender, _):
        sent = [sender.publish(TOPIC, b"%d" % i, qos=1) for i in range(count)]
        for message in sent:
            message.wait_for_publish(SECONDS)
    broker.restart(kill=kill)
    with mqtt_client(broker.facts.url, "away") as (client, got):
        client.publish(TOPIC, b"last", qos=1)
        until(lambda: b"last" in got, "the last message")
        until(lambda: len(set(got)) > kept, f"{kept} messages")  # Artemis once gave the last of them first
    return [message for message in got if message != b"last"]


# --- what it keeps: Artemis


@pytest.mark.artemis
@pytest.mark.slow
@pytest.mark.parametrize(("settings", "kept"), [({"persistence-enabled": "true"}, 500), ({}, 0)], ids=["persistent", "not persistent"])
def test_what_artemis_keeps(tmp_path: Path, settings: dict[str, str], kept: int) -> None:
    """Session and queued messages of a client that was away, where it has a journal: what it acknowledged outlives SIGKILL too."""
    if java.find() is None or artemis.JARS.version not in artemis.JARS.cached_versions():
        pytest.skip("no Java, or Artemis's jars are not cached: python -m pytest_loadtest doctor --fix")
    with started(tmp_path, "artemis", **settings) as broker:
        before = broker.facts
        assert {*map(int, waiting_for_one_away(broker, 500, kept, kill=bool(kept)))} == {*range(kept)}
        assert broker.failure() is None
        assert gone(before.pid) and broker.facts.url == before.url
    assert not (tmp_path / "broker").exists()


# --- what it keeps: Pulsar


@contextmanager
def pulsar_client(broker: Broker) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.facts.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


def send(producer: pulsar.Producer, numbers: range) -> None:
    for i in numbers:
        producer.send(b"%d" % i)


def receive(consumer: Any, last: int) -> list[int]:
    """Messages up to the one with this number, acknowledged."""
    found = [-1]
    while found[-1] != last:
        message = consumer.receive(int(SECONDS * 1000))
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found[1:]


def recovered(
    broker: Broker, name: str, *, kill: bool = False, note: Callable[[], object], receive: Callable[[Any, int], list[int]] = receive
) -> None:
    """What was acknowledged to the producer comes once the broker is back, and what the consumer had acknowledged does not come again.

    :param note: makes the broker write down the positions of its subscriptions, which it otherwise does once a second.
    """
    with pulsar_client(broker) as client:
        for subscription in ("kept", "read"):
            client.subscribe(name, subscription).close()
        producer = client.create_producer(name, send_timeout_millis=0)
        send(producer, range(100))
        first = client.subscribe(name, "read")
        assert receive(first, 39) == list(range(40))
        first.close()
        note()
        broker.restart(kill=kill)
        send(producer, range(100, 120))  # the same producer: its client connects again by itself
        assert receive(client.subscribe(name, "read"), 119) == list(range(40, 120))
        assert receive(client.subscribe(name, "kept"), 119) == list(range(120))


def test_what_pulsar_lite_keeps(tmp_path: Path) -> None:
    """All of it: for smoke runs it can stand in here too. To an Exclusive consumer it delivers some messages twice, at any time; that is not asked here."""
    pytest.importorskip("pulsar_lite")

    def receive_once(consumer: Any, last: int) -> list[int]:
        return list(dict.fromkeys(receive(consumer, last)))

    with started(tmp_path, "pulsar", "embedded") as broker:
        recovered(broker, "persistent://public/default/restart", note=lambda: None, receive=receive_once)


@pytest.mark.pulsar
@pytest.mark.slow
def test_what_pulsar_keeps(tmp_path: Path) -> None:
    """Topics, messages, subscriptions and their positions, when it is killed; ``tests/plugin`` restarts one that ends in order."""
    if java.find() is None or pulsar_jars.PULSAR.version not in pulsar_jars.PULSAR.cached_versions():
        pytest.skip("no Java, or Pulsar's jars are not cached: python -m pytest_loadtest doctor --fix")
    name = "public/default/restart"
    with started(tmp_path, "pulsar") as broker:

        def unload() -> None:
            parts = urlsplit(broker.facts.admin_url or "")
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
            connection.request("PUT", f"/admin/v2/persistent/{name}/unload")
            assert connection.getresponse().status == 204
            connection.close()

        recovered(broker, f"persistent://{name}", kill=True, note=unload)
        assert broker.failure() is None
