"""The MQTT drivers against a real mosquitto and, where it makes sense, a real Artemis: each test for both clients.

Where Artemis differs, it is said here. What it does with messages that a leaving consumer has not acknowledged is in test_artemis.py.
"""

from __future__ import annotations

import getpass
import os
import resource
import secrets
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cached_jars import require_jars
from mosquitto_versions import names_takeovers
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from running import running
from waiting_for import wait_until

from pytest_loadtest import brokers
from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.mqtt import artemis, mosquitto
from pytest_loadtest.drivers.mqtt.base import MqttDriverBase
from pytest_loadtest.drivers.mqtt.kind import KIND
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.options import topic_name
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.samples import Flag, Status
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import DRIVER_CHECKS, Subject
from pytest_loadtest.testing.conformance import (
    check_attach_and_detach,
    check_cleanup,
    check_detach_while_paused,
    check_detached_still_delivers,
    check_existing_topic,
)
from pytest_loadtest.testing.rig import plain_pool, rig
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)

VERSIONS = ("5", "3.1.1")
LEAVING = (check_attach_and_detach, check_detached_still_delivers, check_detach_while_paused)
FIRST = (("5", 0), ("5", 1), ("5", 2), ("3.1.1", 1))
"""Each protocol version and each QoS; the other pairs of them are slow tests."""
DEADLINE = 30 * SECOND
DRIVERS = {"library": PahoMqttDriver, "native": NativeMqttDriver}
Driver = MqttDriverBase[Any]


@pytest.fixture(autouse=True, params=DRIVERS)
def client(request: pytest.FixtureRequest) -> None:
    """Choose the client that connects in this test; see :func:`make_driver`."""
    global _chosen  # noqa: PLW0603  # nearly every line here would carry it along
    _chosen = request.param


_chosen = "library"


def make_driver(context: DriverContext) -> Driver:
    """Make a driver with the client of the current test."""
    return DRIVERS[_chosen](context)


def settings(**given: Any) -> MqttSettings:
    return MqttSettings.model_validate(given)


def durable(version: str, prefix: str) -> MqttSettings:
    """Return settings whose sessions outlive their connections."""
    return settings(
        protocolVersion=version, cleanStart=False, clientIdPrefix=prefix, sessionExpiry="1h"
    )


@contextmanager
def started(folder: Path, kind: str = "mqtt", **lines: str) -> Iterator[brokers.Broker]:
    """Run mosquitto, or another broker, with these lines in its configuration."""
    with running(
        brokers.BrokerRequest(kind=kind, mode="process", folder=folder / "broker", settings=lines)
    ) as broker:
        yield broker


ARTEMIS = pytest.param("artemis", marks=pytest.mark.artemis)


@pytest.fixture(scope="module", params=["mosquitto", ARTEMIS])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[brokers.Broker]:
    if request.param == "artemis":
        require_jars(artemis.JARS)
    with started(
        tmp_path_factory.mktemp("broker"), "mqtt" if request.param == "mosquitto" else request.param
    ) as running:
        yield running


ENVELOPES = {"5": tuple(KIND.clients["native"].envelopes), "3.1.1": ("body", "json")}
on_mosquitto = pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
"""For what only mosquitto does."""


def subject(broker: brokers.Broker, chosen: MqttSettings, **more: Any) -> Subject:
    return Subject(
        driver=DRIVERS[_chosen], target=TargetAddress(url=broker.facts.url), settings=chosen, **more
    )


def context(url: str, chosen: MqttSettings, run: str = "now", topics: int = 1) -> DriverContext:
    return DriverContext(
        target=TargetAddress(url=url), settings=chosen, clock=time.monotonic_ns, run=run, nonce=secrets.randbits(32), worker="gw0",
        topology=Topology(topics=topics, partitions=1, producers=1, subscriptions=1, consumers=1), pool=plain_pool(),
    )  # fmt: skip


class Sent:
    """The messages that a driver took, and their answers."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._taken, self._acks = driver, 0, list[Acks]()

    def send(self, burst: Burst) -> int:
        """Send messages; return the number of those taken."""
        rejected = self._driver.send(burst)
        taken = len(burst) - (0 if rejected is None else len(rejected))
        self._taken += taken
        return taken

    @property
    def in_flight(self) -> int:
        if (acks := self._driver.acks()) is not None:
            self._acks.append(acks)
        return self._taken - sum(len(acks.row) for acks in self._acks)

    def answer(self, name: str) -> list[int]:
        """Return one column of all answers, ordered by row; ``resends`` are 0 if there are none."""
        columns = [
            np.zeros(len(acks.row), np.uint8)
            if getattr(acks, name) is None
            else getattr(acks, name)
            for acks in self._acks
        ]
        order = np.argsort(np.concatenate([acks.row for acks in self._acks]))
        found: list[int] = np.concatenate(columns)[order].tolist()
        return found


def opened(driver: Driver) -> Sent:
    """Open one consumer and one stream."""
    assert driver.open_consumers([0]).tolist() == [0]
    driver.open_producers([0])
    return Sent(driver)


def until(driver: Driver, done: Callable[[], bool]) -> None:
    end = time.monotonic_ns() + DEADLINE
    while not done():
        assert time.monotonic_ns() < end, f"not in time; disconnected: {driver.disconnected()}"
        driver.poll(MILLISECOND)


@contextmanager
def visitor(
    url: str, client_id: str, version: str = "5", clean: bool = False, expiry: int = 3600
) -> Iterator[paho.Client]:
    """Connect another client, independent of the run."""
    answers: list[bool] = []
    v5 = version == "5"
    client = paho.Client(
        CallbackAPIVersion.VERSION2, client_id, clean_session=None if v5 else clean,
        protocol=MQTTProtocolVersion.MQTTv5 if v5 else MQTTProtocolVersion.MQTTv311,
    )  # fmt: skip
    client.on_connect = lambda _client, _data, flags, _reason, _properties: answers.append(
        flags.session_present
    )
    host, port = url.split("://")[1].split(":")
    if v5:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = expiry
        client.connect(host, int(port), clean_start=clean, properties=properties)
    else:
        client.connect(host, int(port))
    listen(client, lambda: bool(answers))
    client.user_data_set(answers[0])
    try:
        yield client
    finally:
        client.disconnect()
        client.loop(0.1)


def listen(client: paho.Client, done: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end, "the visitor waited in vain"
        client.loop(0.01)


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("broker", "version", "qos"),
    [
        *(("mosquitto", version, qos) for version, qos in FIRST),
        *(pytest.param("artemis", *both, marks=ARTEMIS.marks) for both in FIRST[2:]),
        *(pytest.param("mosquitto", "3.1.1", qos, marks=pytest.mark.slow) for qos in (0, 2)),
        pytest.param("artemis", "5", 0, marks=(*ARTEMIS.marks, pytest.mark.slow)),
    ],
    indirect=["broker"],
    scope="module",  # or pytest gives the broker the scope of what stands beside it, and starts one for each test
)
def test_keeps_the_promises_of_a_driver(
    broker: brokers.Broker, version: str, qos: int, check: Callable[[Subject], None]
) -> None:
    """Every check of the kit, on mosquitto in each protocol version and at each QoS; on Artemis each check at least once."""
    if broker.facts.name == "Artemis" and check in LEAVING:
        pytest.skip(
            "consumers do not leave a shared subscription of Artemis without a trace: test_artemis.py"
        )
    if broker.facts.name == "Artemis" and check is check_cleanup and qos == 0:
        pytest.skip(
            "Artemis reads connections side by side: what one wrote at QoS 0 before it was closed may come after the next subscribed"
        )
    sole = settings(protocolVersion=version, qos=qos)
    shared = settings(protocolVersion=version, qos=qos, sharedSubscription=True)
    check(
        subject(
            broker,
            sole,
            shared=shared,
            window=20 if qos else None,
            existing=f"plant/{version}/{qos}",
            envelopes=ENVELOPES[version],
        )
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_run_does_not_share_messages_with_another_run(broker: brokers.Broker, qos: int) -> None:
    """On one existing topic with shared subscriptions, each run receives everything: its groups contain its name."""
    check_existing_topic(
        subject(broker, settings(qos=qos, sharedSubscription=True), existing=f"plant/shared/{qos}")
    )


def test_a_retained_message_of_an_existing_topic_survives_a_run(broker: brokers.Broker) -> None:
    with visitor(broker.facts.url, "keeper", clean=True, expiry=0) as client:
        kept = client.publish("plant/kept", b"state", qos=1, retain=True)
        listen(client, kept.is_published)
    with rig(subject(broker, settings()), name="plant/kept") as r:
        r.send(10)
        r.until(lambda: r.acked >= 10 and r.copies >= 10, "acked and received")
    wait_until(lambda: _retained(broker, "plant/kept") == ["plant/kept"], "what was retained", 30)


@on_mosquitto
@pytest.mark.parametrize("qos", [1, 2])
def test_a_leaving_consumer_first_receives_everything_held_for_it(
    broker: brokers.Broker, qos: int
) -> None:
    """mosquitto gives it to no other client: 100 messages wait behind a Receive Maximum of 5."""
    chosen = settings(qos=qos, sharedSubscription=True, receiveMaximum=5)
    with rig(subject(broker, chosen), consumers=2) as r:
        r.driver.pause([0])
        r.send(200)
        r.until(lambda: r.acked >= 200 and r.copies >= 100, "acked, and received by the other")
        r.driver.detach([0])
        r.until(lambda: r.copies >= 200, "received")
        assert sorted(seq for i in (0, 1) for seq in r.heads(i).seq.tolist()) == list(range(200))


def test_a_pause_may_be_longer_than_keep_alive(broker: brokers.Broker) -> None:
    """Six seconds of pause with keepAlive 2s cost no connection and no message. A busy machine may stop this process for one of them."""
    with rig(subject(broker, settings(keepAlive="2s", qos=0))) as r:
        r.driver.pause([0])
        r.send(10)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            r.driver.poll(50 * MILLISECOND)
        r.driver.resume([0])
        r.until(lambda: r.copies >= 10, "received")
        assert r.driver.facts().incidents == {}


def test_a_consumer_that_cannot_be_attached_is_named(tmp_path: Path) -> None:
    """attach() returns though the broker has ended; attached() raises with name and reason."""
    with started(tmp_path) as broker:
        driver = make_driver(context(broker.facts.url, settings(), topics=8))
        opened(driver)
        broker.stop()
        driver.attach([7])
        with pytest.raises(TargetError, match="consumer 7: Connection refused"):
            until(driver, lambda: bool(driver.attached()))
        driver.close()


def test_400_subscribers_in_one_process_each_get_every_message(broker: brokers.Broker) -> None:
    """paho's own loop ends at about 340."""
    with rig(subject(broker, settings()), subscriptions=400) as r:
        r.send(5)
        r.until(lambda: r.copies >= 2000, "received 400 times")
        assert all(len(r.column(place, "time")) == 5 for place in range(400))


def test_the_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    """For driver and broker: 300 subscribers with a soft limit of 200 files."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        with started(tmp_path) as broker, rig(subject(broker, settings()), subscriptions=300) as r:
            r.send(1)
            r.until(lambda: r.copies >= 300, "received 300 times")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_an_earlier_run_in_a_durable_session_are_foreign(
    broker: brokers.Broker, version: str
) -> None:
    """With cleanStart off, they arrive for the same client and are recognized by their nonce."""
    prefix = f"kept{version.replace('.', '')}"
    chosen = durable(version, prefix)
    earlier = context(broker.facts.url, chosen, run="earlier")
    old_topic = topic_name(earlier, 0)
    with visitor(broker.facts.url, f"{prefix}-c0", version) as client:
        subscribed: list[int] = []
        client.on_subscribe = lambda *_: subscribed.append(1)
        client.subscribe(old_topic, 1)
        listen(client, lambda: bool(subscribed))
    driver = make_driver(earlier)
    driver.open_producers([0])
    sent = Sent(driver)
    assert sent.send(_burst(3)) == 3
    until(driver, lambda: sent.in_flight == 0)
    driver.close()

    now = context(broker.facts.url, chosen, run="now")
    driver = make_driver(now)
    assert opened(driver).send(_burst(2)) == 2
    kinds: list[int] = []

    def arrived() -> bool:
        received = driver.take()
        if received is not None:
            kinds.extend(
                envelope.decode_heads(received.heads, received.size, now.nonce).kind.tolist()
            )
        return len(kinds) == 5

    until(driver, arrived)
    assert sorted(kinds) == [envelope.OURS] * 2 + [envelope.FOREIGN] * 3
    driver.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_close_ends_durable_sessions(broker: brokers.Broker, version: str) -> None:
    """The broker then has no session with a client id of the run."""
    prefix = f"gone{version.replace('.', '')}"
    chosen = durable(version, prefix)
    ctx = context(broker.facts.url, chosen)
    driver = make_driver(ctx)
    opened(driver)
    driver.close()
    for client_id in (f"{prefix}-c0", f"{prefix}-p0"):
        with visitor(broker.facts.url, client_id, version, expiry=0) as client:
            assert client.user_data_get() is False, f"{client_id} still has a session"


def test_cleanup_deletes_retained_messages(broker: brokers.Broker) -> None:
    """A later subscriber receives none of them."""
    ctx = context(broker.facts.url, settings(retain=True), run="retained", topics=30)
    driver = make_driver(ctx)
    driver.open_producers(range(30))
    sent = Sent(driver)
    assert sent.send(_burst(1, streams=30)) == 30
    until(driver, lambda: sent.in_flight == 0)
    driver.close()
    wait_until(lambda: len(_retained(broker, "loadtest/retained/#")) == 30, "what was retained", 30)
    driver.cleanup()
    wait_until(lambda: _retained(broker, "loadtest/retained/#") == [], "nothing retained", 30)


def _retained(broker: brokers.Broker, topic_filter: str) -> list[str]:
    """Return the retained messages; the visitor's own message shows that all have come, if the broker keeps the order."""
    found: list[str] = []
    with visitor(broker.facts.url, f"look-{secrets.token_hex(4)}", clean=True, expiry=0) as client:
        mark = f"mark/{secrets.token_hex(4)}"
        client.on_message = lambda _client, _data, message: found.append(message.topic)
        client.subscribe([(topic_filter, 0), (mark, 0)])
        client.publish(mark, b"")
        listen(client, lambda: mark in found)
    found.remove(mark)
    return found


def _burst(count: int, first: int = 0, streams: int = 1) -> Burst:
    """Build ``count`` messages of each stream, in turn."""
    seq = np.repeat(np.arange(first, first + count, dtype=np.int64), streams)
    row = first * streams + np.arange(len(seq), dtype=np.int64)
    stream = np.tile(np.arange(streams, dtype=np.int32), count)
    sent, idle = np.zeros((2, len(seq)), np.int64)
    return Burst(
        row=row,
        stream=stream,
        seq=seq,
        intended=seq.copy(),
        payload=np.zeros(len(seq), np.uint16),
        sent=sent,
        idle=idle,
    )


def test_a_redelivered_message_is_flagged(broker: brokers.Broker) -> None:
    """Messages that a hanging subscriber had not acknowledged when its connection broke; not by Artemis."""
    ctx = context(broker.facts.url, settings(sessionExpiry="60s", receiveMaximum=5), run="again")
    driver = make_driver(ctx)
    sent = opened(driver)
    driver.pause([0])
    assert sent.send(_burst(8)) == 8
    until(driver, lambda: sent.in_flight == 0)
    driver._consumers[0][1].abandon("broken by the test")
    assert driver.disconnected() == "consumer 0 (broken by the test)"
    driver.resume([0])
    flags: list[int] = []

    def arrived() -> bool:
        received = driver.take()
        if received is not None:
            flags.extend(received.flags.tolist())
        return len(flags) == 8

    until(driver, arrived)
    assert flags == [0 if broker.facts.name == "Artemis" else int(Flag.REDELIVERED)] * 5 + [0] * 3
    driver.close()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_after_a_restart_of_the_broker_every_message_is_answered(
    tmp_path: Path, version: str, qos: int
) -> None:
    """Killed during the run: the loss is reported while it lasts, and later messages arrive."""
    with started(tmp_path / "first") as broker:
        ctx = context(broker.facts.url, settings(protocolVersion=version, qos=qos))
        driver = make_driver(ctx)
        sent = opened(driver)
        assert sent.send(_burst(20)) == 20
        assert broker.facts.pid is not None
        os.kill(broker.facts.pid, signal.SIGKILL)
        until(driver, lambda: driver.disconnected() is not None)
    until(
        driver,
        lambda: (
            "2 more" not in (driver.disconnected() or "")
            and "and 1 more" in (driver.disconnected() or "")
        ),
    )
    assert sent.send(_burst(1, first=20)) == 0, "nothing is taken while the connection is lost"
    port = int(broker.facts.url.rsplit(":", 1)[1])
    with _on_port(tmp_path, port):
        until(driver, lambda: driver.disconnected() is None and sent.in_flight == 0)
        assert sent.send(_burst(1, first=20)) == 1
        until(driver, lambda: sent.in_flight == 0)
        assert sent.answer("row") == list(range(21))
        until(driver, lambda: 20 in _sequences(driver, ctx))
        driver.close()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_resends_are_reported(tmp_path: Path, version: str, qos: int) -> None:
    """mosquitto stops and dies with 20 messages that it never read: each has one resend, a later message has none."""
    with started(tmp_path / "first") as broker:
        ctx = context(broker.facts.url, settings(protocolVersion=version, qos=qos))
        driver = make_driver(ctx)
        sent = opened(driver)
        assert broker.facts.pid is not None
        os.kill(broker.facts.pid, signal.SIGSTOP)
        assert sent.send(_burst(20)) == 20
        os.kill(broker.facts.pid, signal.SIGKILL)
        until(driver, lambda: driver.disconnected() is not None)
    with _on_port(tmp_path, int(broker.facts.url.rsplit(":", 1)[1])):
        until(driver, lambda: driver.disconnected() is None and sent.in_flight == 0)
        assert sent.send(_burst(1, first=20)) == 1
        until(driver, lambda: sent.in_flight == 0)
        assert sent.answer("resends") == [1] * 20 + [0]
        driver.close()


@contextmanager
def _on_port(folder: Path, port: int) -> Iterator[None]:
    """Run another mosquitto on a port that was used before."""
    binary = mosquitto.find_mosquitto()
    assert binary is not None
    conf = folder / "second.conf"
    conf.write_text(
        mosquitto.mosquitto_conf(port=port, settings={}, user=getpass.getuser(), data=str(folder))
    )
    process = subprocess.Popen([binary, "-c", str(conf)], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def _sequences(driver: Driver, ctx: DriverContext) -> list[int]:
    received = driver.take()
    return (
        []
        if received is None
        else envelope.decode_heads(received.heads, received.size, ctx.nonce).seq.tolist()
    )


def test_a_stopped_broker_does_not_block_poll(tmp_path: Path) -> None:
    """While mosquitto is stopped (SIGSTOP) the window fills and poll returns in time; then everything is answered."""
    with started(tmp_path) as broker:
        ctx = context(broker.facts.url, settings())
        driver = make_driver(ctx)
        sent = opened(driver)
        assert broker.facts.pid is not None
        os.kill(broker.facts.pid, signal.SIGSTOP)
        try:
            assert sent.send(_burst(50)) == 20
            for _ in range(50):
                driver.poll(MILLISECOND)
            assert sent.send(_burst(1, first=20)) == 0
            assert sent.in_flight == 20 and driver.disconnected() is None
        finally:
            os.kill(broker.facts.pid, signal.SIGCONT)
        until(driver, lambda: sent.in_flight == 0)
        later = _burst(1, first=20)
        assert sent.send(later) == 1
        assert later.idle.tolist() == [max(sent.answer("time"))]
        driver.close()


def test_a_connection_without_an_answer_to_a_ping_is_lost(tmp_path: Path) -> None:
    """mosquitto is stopped: connections are given up after keepAlive, and come back afterwards."""
    with started(tmp_path) as broker:
        driver = make_driver(context(broker.facts.url, settings(keepAlive="1s")))
        opened(driver)
        assert broker.facts.pid is not None
        os.kill(broker.facts.pid, signal.SIGSTOP)
        try:
            until(driver, lambda: "and 1 more" in (driver.disconnected() or ""))
            assert "(no answer to a ping within keepAlive)" in (driver.disconnected() or "")
        finally:
            os.kill(broker.facts.pid, signal.SIGCONT)
        until(driver, lambda: driver.disconnected() is None)
        driver.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_rejected_publish_has_failed(tmp_path: Path, qos: int) -> None:
    """The broker's access rules reject it by PUBACK or PUBREC; it is FAILED and frees its window."""
    rules = tmp_path / "acl"
    rules.write_text("topic read #\n")
    with started(tmp_path, acl_file=str(rules)) as broker:
        ctx = context(broker.facts.url, settings(qos=qos))
        driver = make_driver(ctx)
        driver.open_producers([0])
        sent = Sent(driver)
        assert sent.send(_burst(20)) == 20
        until(driver, lambda: sent.in_flight == 0)
        assert set(sent.answer("status")) == {Status.FAILED}
        driver.close()


@pytest.mark.parametrize(
    ("lines", "asked", "named"),
    [
        ({"max_qos": "1"}, {"qos": 2}, "QoS 1 at most"),
        ({"max_packet_size": "100"}, {}, "100 bytes at most"),
        ({"retain_available": "false"}, {"retain": True}, "does not retain"),
        ({"allow_anonymous": "false"}, {}, "rejected the connection: Not authorized"),
    ],
    ids=lambda value: next(iter(value), "nothing") if isinstance(value, dict) else None,
)
def test_a_missing_feature_of_the_broker_is_reported_before_load(
    tmp_path: Path, lines: dict[str, str], asked: dict[str, Any], named: str
) -> None:
    """prepare() raises an error that names the broker and the feature."""
    with started(tmp_path, **lines) as broker:
        driver = make_driver(context(broker.facts.url, settings(**asked)))
        with pytest.raises(TargetError, match=named) as raised:
            driver.prepare()
        assert broker.facts.url in str(raised.value)
        driver.close()


def test_a_lower_receive_maximum_of_the_broker_is_the_window(tmp_path: Path) -> None:
    """The facts report it."""
    with started(tmp_path, max_inflight_messages="7") as broker:
        ctx = context(broker.facts.url, settings())
        driver = make_driver(ctx)
        driver.open_producers([0])
        assert Sent(driver).send(_burst(20)) == 7
        assert (
            driver.facts().applied["maxInflightMessages"]
            == "7 (the broker's Receive Maximum; requested 20)"
        )
        driver.close()


def test_a_lost_connection_is_told(broker: brokers.Broker) -> None:
    """A client thrown out by another one with its id is dialled again, and the facts say so, also after close.

    Artemis and mosquitto 2.0.21 tell a client of MQTT 5 why it is thrown out, as the standard wants it, and then it is not dialled again.
    """
    ctx = context(
        broker.facts.url,
        settings(protocolVersion="3.1.1" if names_takeovers(broker.facts) else "5"),
        run="twice",
    )
    driver = make_driver(ctx)
    driver.open_producers([0])
    with visitor(broker.facts.url, "lt-twice-p0"):
        until(driver, lambda: driver.disconnected() is not None)
        until(driver, lambda: driver.disconnected() is None)
    assert Sent(driver).send(_burst(1)) == 1
    driver.close()
    assert driver.facts().incidents == {"connection lost": 1}


@pytest.mark.parametrize("broker", [ARTEMIS], indirect=True)
def test_a_client_id_in_use_ends_the_run(broker: brokers.Broker) -> None:
    """If the broker reports it: both clients would disconnect each other at every reconnect."""
    driver = make_driver(context(broker.facts.url, settings(), run="taken"))
    driver.open_producers([0])
    with (
        visitor(broker.facts.url, "lt-taken-p0"),
        pytest.raises(TargetError, match="'lt-taken-p0' is in use by another client"),
    ):
        until(driver, lambda: False)
    driver.close()


def test_an_unreachable_target_is_an_error_with_its_address() -> None:
    """It has the system's reason, and close still works."""
    driver = make_driver(context("mqtt://127.0.0.1:1", settings()))
    with pytest.raises(TargetError, match=r"mqtt://127\.0\.0\.1:1: Connection refused"):
        driver.prepare()
    driver.close()
    driver.close()


def test_the_password_is_required_and_not_reported(tmp_path: Path) -> None:
    """The right password connects, a wrong one is rejected, and no fact contains it."""
    file = tmp_path / "users"
    try:
        subprocess.run(
            ["mosquitto_passwd", "-c", "-b", str(file), "anna", "right"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("no mosquitto_passwd here")
    with started(tmp_path, allow_anonymous="false", password_file=str(file)) as broker:
        driver = make_driver(context(broker.facts.url, settings(username="anna", password="right")))
        driver.prepare()
        assert "right" not in str(driver.facts())
        driver.close()
        wrong = make_driver(context(broker.facts.url, settings(username="anna", password="wrong")))
        with pytest.raises(TargetError, match="rejected the connection"):
            wrong.prepare()
        wrong.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for localhost, and another one."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("server", "other"):
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ]
        names = [
            "-subj",
            f"/CN={name}",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "keyUsage=digitalSignature,keyCertSign",
        ]
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
        try:
            subprocess.run([*command, *names, *files], check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("no openssl here")
    return folder


@pytest.mark.parametrize("qos", [0, 1])
def test_messages_larger_than_a_tls_record_arrive_complete(
    tmp_path: Path, certificates: Path, qos: int
) -> None:
    """With a client certificate; a broker that is not trusted is rejected."""
    server = {
        "certfile": str(certificates / "server.crt"),
        "keyfile": str(certificates / "server.key"),
    }
    with started(
        tmp_path, **server, cafile=str(certificates / "other.crt"), require_certificate="true"
    ) as broker:
        url = broker.facts.url.replace("mqtt://", "mqtts://")
        mine = {
            "certFile": str(certificates / "other.crt"),
            "keyFile": str(certificates / "other.key"),
        }
        trusting = settings(qos=qos, tls={"caFile": server["certfile"], **mine})
        big = payloads.build_pool(
            buckets=None,
            message_size=100_000,
            randomized=True,
            random_ratio=1.0,
            file_content=None,
            seed=1,
            checksum=True,
            max_size=None,
        )
        with rig(replace(subject(broker, trusting), target=TargetAddress(url=url)), big) as r:
            r.send(30)
            r.until(lambda: r.copies >= 30 and r.acked >= 30, "received and acked")
            assert not any(part.flags.any() for part in r.received)
        distrusting = make_driver(
            context(url, settings(tls={"caFile": str(certificates / "other.crt"), **mine}))
        )
        with pytest.raises(TargetError, match="the broker's certificate is not trusted"):
            distrusting.prepare()
        distrusting.close()
