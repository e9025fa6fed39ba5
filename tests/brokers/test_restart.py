"""Brokers restarted by the run: same ports, data kept, never two of them, none left behind."""

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
from cached_jars import require_jars
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from running import running
from waiting_for import gone, wait_until

from pytest_loadtest import brokers
from pytest_loadtest.brokers import Broker, BrokerFacts, BrokerRequest
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import StartedBroker, free_ports, listens
from pytest_loadtest.drivers.mqtt import artemis, mosquitto
from pytest_loadtest.drivers.pulsar import broker as pulsar_jars
from pytest_loadtest.errors import TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SECONDS = 60.0  # s: limit of each wait, also on a slow machine
FOREVER = 600.0  # s between SIGTERM and SIGKILL: longer than a test may take

until = partial(wait_until, seconds=SECONDS)
needs_mosquitto = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="mosquitto is not installed"
)


@contextmanager
def started(
    folder: Path, kind: str = "mqtt", mode: str = "process", **settings: str
) -> Iterator[Broker]:
    """Start a broker with these lines in its configuration; asserts at the end that nothing of it is left."""
    with running(
        BrokerRequest(kind=kind, mode=mode, folder=folder / "broker", settings=settings)
    ) as broker:
        yield broker
    assert gone(broker.facts.pid)


@contextmanager
def program(folder: Path, text: str, ports: Sequence[int] = ()) -> Iterator[Child]:
    """Run a Python program in place of a broker."""
    child = Child([sys.executable, "-c", text], folder=folder, ports=ports)
    try:
        yield child
    finally:
        child.stop()


SLEEPER = "import time\nprint('here', flush=True)\ntime.sleep(600)"
# Short sleeps: Python handles a signal that arrives just before a sleep only after it.
# A handler that prints while the first line is being flushed would end the program: RuntimeError, reentrant call.
STUBBORN = (
    "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os.write(1, b'asked to end\\n'))\n"
    + SLEEPER.replace("time.sleep(600)", "while True: time.sleep(0.05)")
)


# --- the process


def test_a_restart_runs_the_same_command_again(tmp_path: Path) -> None:
    """It is another process, the old one is gone, and the log continues."""
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
def test_a_broker_that_does_not_end_is_killed(tmp_path: Path, grace: float, asked: bool) -> None:
    """SIGKILL follows SIGTERM after the grace period; without one it comes at once."""
    with program(tmp_path, STUBBORN) as child:
        old = child.pid
        until(lambda: "here" in child.tail(), "its readiness")
        child.restart(grace)
        assert gone(old) and not gone(child.pid)
        assert ("asked to end" in child.tail()) is asked


def test_a_restart_waits_for_the_port(tmp_path: Path) -> None:
    """A port in use is waited for; the broker does not fail on it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as holder,
        program(tmp_path, SLEEPER, [holder.getsockname()[1]]) as child,
    ):
        old = child.pid
        restart = threading.Thread(target=child.restart, args=(FOREVER,))
        restart.start()
        until(lambda: gone(old), "end of the old one")
        assert restart.is_alive()
        assert child.pid == old
        holder.close()
        restart.join(SECONDS)
        assert child.pid != old and not gone(child.pid)


def test_connections_in_time_wait_do_not_block_the_port(tmp_path: Path) -> None:
    """A broker that closes its connections first leaves the port in TIME_WAIT, in which it can be bound again."""
    (port,) = free_ports(1)
    server = f"import socket\ns = socket.create_server(('127.0.0.1', {port}))\nprint('here', flush=True)\nwhile True: s.accept()[0].close()"
    with program(tmp_path, server, [port]) as child:
        until(lambda: child.tail() == "here", "its readiness")
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert client.recv(1) == b""
        child.restart(FOREVER)
        until(lambda: child.tail() == "here\nhere", "its readiness")
        assert listens("127.0.0.1", port)


def test_stop_interrupts_a_restart(tmp_path: Path) -> None:
    """The end of the session does not wait for a broker that does not end, and no broker starts after it."""
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


def test_a_broker_that_has_ended_is_not_restarted(tmp_path: Path) -> None:
    """The error has the cause of its end, which a restart would hide."""
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
    """Start another controller with a program that it restarts once. It prints both process ids."""
    (folder / "data").mkdir(parents=True)
    command = [sys.executable, "-c", CONTROLLER, str(folder), text, str(grace)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_restarted_broker_ends_with_its_controller(tmp_path: Path) -> None:
    """The watchdog ends the current process."""
    with controller(tmp_path / "broker", SLEEPER, FOREVER) as process:
        assert process.stdout
        old, new = (int(process.stdout.readline()) for _ in range(2))
        assert old != new and not gone(new)
        process.kill()
        until(lambda: gone(new), "end of the broker")
        until(lambda: not (tmp_path / "broker" / "data").exists(), "end of the data folder")


def test_a_controller_that_dies_ends_a_restart(tmp_path: Path) -> None:
    """The old broker is killed at once, without its grace period, and no new one starts."""
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


def test_failure_is_unknown_during_a_restart(tmp_path: Path) -> None:
    """Events during a restart are no failure of the target; a failed restart is one."""
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
def test_a_restarted_broker_has_the_same_address(tmp_path: Path, name: str, kill: bool) -> None:
    """Clients can work when the call returns; it is another process, and leaves nothing behind at its end."""
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
def test_a_broker_that_does_not_start_again_has_failed(tmp_path: Path) -> None:
    """The error has its log lines; the log is kept."""
    with started(tmp_path) as broker:
        with (tmp_path / "broker" / "mosquitto.conf").open("a") as conf:
            conf.write("no_such_option 1\n")
        with pytest.raises(
            TargetError, match=r"did not start: exited with status \d+(?s:.*)no_such_option"
        ):
            broker.restart()
        assert "no_such_option" in (broker.failure() or "")
        assert gone(broker.facts.pid)
    assert (tmp_path / "broker" / "broker.log").exists()


def test_a_shared_broker_and_a_relay_are_not_restarted(tmp_path: Path) -> None:
    """Both errors have the reason, and both targets keep running."""
    with started(tmp_path, "loopback") as relay:
        with pytest.raises(UsageError, match="loopback cannot be restarted: it keeps no data"):
            relay.restart()
        theirs = brokers.start(
            BrokerRequest(kind="loopback", mode="url", url=relay.facts.url, folder=tmp_path),
            lambda _: None,
        )
        with pytest.raises(UsageError, match="which the run did not start"):
            theirs.restart()
        assert relay.failure() is None
        assert not gone(relay.facts.pid)


# --- data kept by mosquitto

TOPIC = "restart/test"


@contextmanager
def mqtt_client(url: str, client_id: str) -> Iterator[tuple[paho.Client, list[bytes]]]:
    """Connect with a persistent session, subscribed at QoS 1. Returns the client and the list of its messages."""
    got: list[bytes] = []
    ready = threading.Event()
    client = paho.Client(
        CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5
    )
    client.on_message = lambda _client, _data, message: got.append(message.payload)
    client.on_subscribe = lambda *_: ready.set()
    session = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    session.SessionExpiryInterval = 3600
    host, port = url.partition("://")[2].split(":")
    client.on_connect = lambda _client, _data, flags, *_: (
        ready.set() if flags.session_present else client.subscribe(TOPIC, qos=1)
    )
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
def test_mosquitto_keeps_the_session_and_queue_of_an_absent_client(
    tmp_path: Path, settings: dict[str, str], kill: bool, kept: int
) -> None:
    """It needs the setting for it, and must have had time to write them."""
    with started(tmp_path, **settings) as broker:
        assert waiting_for_one_away(broker, 1500, kept, kill=kill) == [
            b"%d" % i for i in range(kept)
        ]


def waiting_for_one_away(broker: Broker, count: int, kept: int, *, kill: bool) -> list[bytes]:
    """Send messages to an absent client, restart the broker, and return what the client gets; one more message marks the end.

    At QoS 1 some may come twice, if the broker had not yet stored that they were delivered.

    :param kept: wait for this number of messages.
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
        until(
            lambda: len(set(got)) > kept, f"{kept} messages"
        )  # Artemis once delivered the last of them first
    return [message for message in got if message != b"last"]


# --- data kept by Artemis


@pytest.mark.artemis
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        pytest.param({"persistence-enabled": "true"}, 500, id="persistent"),
        pytest.param({}, 0, id="not persistent", marks=pytest.mark.slow),
    ],
)
def test_artemis_keeps_acknowledged_messages_of_an_absent_client(
    tmp_path: Path, settings: dict[str, str], kept: int
) -> None:
    """Its journal keeps them after SIGKILL too."""
    require_jars(artemis.JARS)
    with started(tmp_path, "artemis", **settings) as broker:
        before = broker.facts
        assert {*map(int, waiting_for_one_away(broker, 500, kept, kill=bool(kept)))} == {
            *range(kept)
        }
        assert broker.failure() is None
        assert gone(before.pid) and broker.facts.url == before.url
    assert not (tmp_path / "broker").exists()


# --- data kept by Pulsar


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
    """Receive and acknowledge messages up to the one with this number."""
    found = [-1]
    while found[-1] != last:
        message = consumer.receive(int(SECONDS * 1000))
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return found[1:]


def recovered(
    broker: Broker,
    name: str,
    *,
    kill: bool = False,
    note: Callable[[], object],
    receive: Callable[[Any, int], list[int]] = receive,
) -> None:
    """Assert that acknowledged messages arrive after the restart, and that those acknowledged by the consumer do not arrive again.

    :param note: makes the broker store the positions of its subscriptions, which it otherwise does once a second.
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
        send(producer, range(100, 120))  # the same producer: its client reconnects by itself
        assert receive(client.subscribe(name, "read"), 119) == list(range(40, 120))
        assert receive(client.subscribe(name, "kept"), 119) == list(range(120))


def test_pulsar_lite_keeps_everything(tmp_path: Path) -> None:
    """It can stand in for smoke runs. It may deliver some messages of an Exclusive consumer twice at any time, which this test ignores."""
    pytest.importorskip("pulsar_lite")

    def receive_once(consumer: Any, last: int) -> list[int]:
        return list(dict.fromkeys(receive(consumer, last)))

    with started(tmp_path, "pulsar", "embedded") as broker:
        recovered(
            broker, "persistent://public/default/restart", note=lambda: None, receive=receive_once
        )


@pytest.mark.slow
@pytest.mark.pulsar
def test_a_killed_pulsar_keeps_messages_and_positions(tmp_path: Path) -> None:
    """It keeps topics and subscriptions too; ``tests/plugin`` restarts one with SIGTERM."""
    require_jars(pulsar_jars.PULSAR)
    name = "public/default/restart"
    with started(tmp_path, "pulsar") as broker:

        def unload() -> None:
            parts = urlsplit(broker.facts.admin_url or "")
            connection = http.client.HTTPConnection(
                parts.hostname or "", parts.port, timeout=SECONDS
            )
            connection.request("PUT", f"/admin/v2/persistent/{name}/unload")
            assert connection.getresponse().status == 204
            connection.close()

        recovered(broker, f"persistent://{name}", kill=True, note=unload)
        assert broker.failure() is None
