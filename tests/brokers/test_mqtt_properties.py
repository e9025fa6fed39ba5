"""User properties and topic aliases of MQTT 5 on a real broker: packets of both clients, and what another subscriber receives."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
import pytest
from mqtt_codec import decode
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from pytest_loadtest import brokers
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerSocket
from pytest_loadtest.drivers.mqtt.kind import KIND
from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.errors import TargetError
from pytest_loadtest.message.envelope import CORRUPT, FOREIGN, OURS
from pytest_loadtest.message.route import PROPERTY, Route, parse_place
from pytest_loadtest.testing import Rig, Subject
from pytest_loadtest.testing.rig import expect_received, placed_pool, rig
from pytest_loadtest.wire.mqtt import packets
from pytest_loadtest.wire.mqtt.fields import FieldReader, encode_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)

PAIRS = [("property-name-00", "property-value-00"), ("property-name-01", "property-value-01")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    folder = tmp_path_factory.mktemp("broker") / "mosquitto"
    running = brokers.start(
        brokers.BrokerRequest(kind="mqtt", mode="process", folder=folder, settings={}),
        lambda _: None,
    )
    yield running
    running.stop()


@pytest.fixture(params=[PahoMqttDriver, NativeMqttDriver], ids=["library", "native"])
def subject(request: pytest.FixtureRequest, broker: brokers.Broker) -> Callable[..., Subject]:
    """Make a subject with either client from its settings."""
    target = TargetAddress(url=broker.facts.url)
    return lambda **given: Subject(
        driver=request.param, target=target, settings=MqttSettings.model_validate(given)
    )


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[BrokerSocket, packets.Publish]]:
    """Record every PUBLISH with the connection that sends it."""
    found: list[tuple[BrokerSocket, packets.Publish]] = []

    def note(sock: BrokerSocket, data: bytes) -> None:
        reader = FieldReader(data)
        while reader.left:
            first, body = reader.number(1), reader.take(reader.variable())
            if first >> 4 == packets.PUBLISH:
                packet = decode(first, body)
                assert isinstance(packet, packets.Publish)
                found.append((sock, packet))

    for name in ("put", "write_now"):
        written = getattr(BrokerSocket, name)

        def noted(self: BrokerSocket, data: bytes | bytearray, written: Any = written) -> Any:
            note(self, bytes(data))
            return written(self, data)

        monkeypatch.setattr(BrokerSocket, name, noted)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_user_properties_arrive(
    subject: Callable[..., Subject], broker: brokers.Broker, qos: int
) -> None:
    """Another client receives the message with two user properties under its topic, and so do the run's consumers."""
    arrived: list[tuple[str, Any]] = []
    visitor = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    visitor.on_message = lambda _client, _data, message: arrived.append(
        (message.topic, vars(message.properties)["UserProperty"])
    )
    host, port = broker.facts.url.split("://")[1].split(":")
    granted: list[object] = []
    visitor.on_connect = lambda client, *_: client.subscribe("loadtest/props/#", qos)
    visitor.on_subscribe = lambda *answer: granted.append(answer)
    visitor.connect(host, int(port))
    _listen(visitor, lambda: bool(granted))
    with rig(subject(qos=qos, userProperties=2, topicAliasMaximum=5), run="props") as r:
        r.send(3)
        r.until(lambda: r.copies >= 3, "received")
        assert r.column(0, "size").tolist() == [128] * 3
        _listen(visitor, lambda: len(arrived) >= 3)
        facts = r.driver.facts().applied
    visitor.disconnect()
    assert arrived == [("loadtest/props/0", PAIRS)] * 3
    assert facts["userProperties"] == "2, 80 bytes in each message"


OUTSIDE = pytest.mark.parametrize("place", ["properties", "correlationData"])


@OUTSIDE
def test_an_envelope_is_a_property_besides_others(
    subject: Callable[..., Subject],
    published: list[tuple[BrokerSocket, packets.Publish]],
    place: str,
) -> None:
    """It comes with the run's user properties and alias, and adds the bytes that the plan names."""
    with placed_rig(subject(userProperties=2, topicAliasMaximum=5), place) as r:
        burst = r.send(20)
        r.until(lambda: r.copies >= 20, "received")
        expect_received(r, r.places[0], burst, ordered=True)
        assert r.driver.facts().applied["userProperties"].startswith("2, ")
    added = set()
    for _, packet in published:
        others = {"user_property": PAIRS}
        if "topic_alias" in packet.properties:
            others["topic_alias"] = packet.properties["topic_alias"]
        assert packet.properties["user_property"][:2] == PAIRS
        added.add(len(encode_properties(packet.properties)) - len(encode_properties(others)))
    # The length of the properties may take a byte more.
    assert added <= {KIND.clients["native"].envelopes[place] + more for more in (0, 1)}


def placed_rig(subject: Subject, place: str) -> AbstractContextManager[Rig]:
    """Open a run that receives what it sends, with envelopes in this place."""
    found = parse_place(place)
    route = Route(input="placed", output=("placed",), sent=found, received=found)
    return rig(subject, placed_pool(found), route=route)


@OUTSIDE
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_is_sent_again_keeps_its_envelope(
    subject: Callable[..., Subject], broker: brokers.Broker, qos: int, place: str
) -> None:
    assert broker.facts.pid is not None
    with placed_rig(subject(qos=qos, sessionExpiry="60s"), place) as r:
        r.send(1)
        r.until(lambda: r.acked >= 1, "acked")
        os.kill(broker.facts.pid, signal.SIGSTOP)
        try:
            r.send(5, first=1)
            r.driver._clients._kept[-1].abandon("broken by the test")  # type: ignore[attr-defined]
        finally:
            os.kill(broker.facts.pid, signal.SIGCONT)
        r.until(
            lambda: r.acked >= 6 and set(r.heads(0).seq.tolist()) == set(range(6)),
            "acked and received",
        )
        assert set(r.heads(0).kind.tolist()) == {OURS}
        assert sum(int(part.resends.sum()) for part in r.acks if part.resends is not None) >= 5


@OUTSIDE
def test_messages_of_others_are_foreign_and_damaged_envelopes_corrupt(
    subject: Callable[..., Subject],
    broker: brokers.Broker,
    published: list[tuple[BrokerSocket, packets.Publish]],
    place: str,
) -> None:
    """Whatever the body has, and however long it is."""
    host, _, port = broker.facts.url.removeprefix("mqtt://").partition(":")
    visitor = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    visitor.connect(host, int(port))
    visitor.loop_start()
    with placed_rig(subject(), place) as r:
        r.send(1)
        r.until(lambda: r.copies >= 1, "received")
        ((_, own),) = published
        if place == "properties":
            ((_, token),) = own.properties["user_property"]
            other = "B" if token[20] == "A" else "A"
            values = [None, "theirs", token[:20] + other + token[21:], token[:30]]
        else:
            head = own.properties["correlation_data"]
            values = [None, b"theirs", head[:20] + b"!" + head[21:], head[:20]]
        for body in (b"", own.payload, str(values[2]).encode()):
            for value in values:
                properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
                if value is not None and place == "properties":
                    properties.UserProperty = [("other", "property"), (PROPERTY, value)]
                elif value is not None:
                    properties.CorrelationData = value
                visitor.publish("placed", body, qos=1, properties=properties).wait_for_publish(30)
        visitor.disconnect()
        visitor.loop_stop()
        r.until(lambda: r.copies >= 13, "received")
        assert r.heads(0).kind.tolist() == [OURS, *[FOREIGN, FOREIGN, CORRUPT, CORRUPT] * 3]


def _listen(client: paho.Client, done: Callable[[], bool]) -> None:
    for _ in range(3000):
        if done():
            return
        client.loop(0.01)
    raise AssertionError("the visitor waited in vain")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_topic_is_named_once_in_a_connection(
    subject: Callable[..., Subject], published: list[tuple[BrokerSocket, packets.Publish]], qos: int
) -> None:
    """The first message of each stream has topic and alias, later ones the alias alone; all arrive."""
    with rig(subject(qos=qos, topicAliasMaximum=5), streams=2, topics=2, run="once") as r:
        r.send(30)
        r.until(lambda: r.copies >= 60, "received")
        assert r.driver.facts().applied["topicAliasMaximum"] == "5; each producer uses one"
    for number, connection in enumerate(dict.fromkeys(where for where, _ in published)):
        mine = [packet for where, packet in published if where is connection]
        assert [packet.topic for packet in mine] == [f"loadtest/once/{number}", *[""] * 29]
        assert {packet.properties["topic_alias"] for packet in mine} == {1}


@pytest.mark.parametrize("qos", [1, 2])
def test_after_a_reconnect_the_first_message_names_the_topic(
    subject: Callable[..., Subject],
    broker: brokers.Broker,
    published: list[tuple[BrokerSocket, packets.Publish]],
    qos: int,
) -> None:
    """Five messages are sent again after a connection to a stopped broker broke."""
    assert broker.facts.pid is not None
    with rig(
        subject(qos=qos, topicAliasMaximum=1, userProperties=1, sessionExpiry="60s"), run="anew"
    ) as r:
        r.send(1)
        r.until(lambda: r.acked >= 1, "acked")
        os.kill(broker.facts.pid, signal.SIGSTOP)
        try:
            r.send(5, first=1)
            r.driver._clients._kept[-1].abandon("broken by the test")  # type: ignore[attr-defined]
        finally:
            os.kill(broker.facts.pid, signal.SIGCONT)
        r.until(
            lambda: r.acked >= 6 and set(r.heads(0).seq.tolist()) == set(range(6)),
            "acked and received",
        )
        r.send(1, first=6)
        r.until(lambda: r.acked >= 7, "acked")
    first, second = dict.fromkeys(where for where, _ in published)
    assert [packet.topic for where, packet in published if where is first] == [
        "loadtest/anew/0",
        *[""] * 5,
    ]
    again = [packet for where, packet in published if where is second]
    assert again[0].topic == "loadtest/anew/0"
    assert {packet.topic for packet in again[1:]} <= {""}
    assert again[-1].properties == {"topic_alias": 1, "user_property": PAIRS[:1]}


def test_a_broker_that_allows_no_alias_gets_the_topic(
    subject: Callable[..., Subject], tmp_path: Path
) -> None:
    """The facts report that the setting is not applied, and everything arrives."""
    request = brokers.BrokerRequest(
        kind="mqtt",
        mode="process",
        folder=tmp_path / "mosquitto",
        settings={"max_topic_alias": "0"},
    )
    none = brokers.start(request, lambda _: None)
    try:
        asked = subject(topicAliasMaximum=3)
        with rig(
            Subject(
                driver=asked.driver,
                target=TargetAddress(url=none.facts.url),
                settings=asked.settings,
            )
        ) as r:
            r.send(5)
            r.until(lambda: r.copies >= 5, "received")
            facts = r.driver.facts()
        assert facts.not_applied["topicAliasMaximum"] == "the broker accepts no topic alias"
        assert "topicAliasMaximum" not in facts.applied
    finally:
        none.stop()


def test_user_properties_count_for_the_largest_packet(
    subject: Callable[..., Subject], tmp_path: Path
) -> None:
    """A message that fits only without them is an error before load."""
    request = brokers.BrokerRequest(
        kind="mqtt",
        mode="process",
        folder=tmp_path / "mosquitto",
        settings={"max_packet_size": "300"},
    )
    small = brokers.start(request, lambda _: None)
    try:
        asked = subject(userProperties=10)
        with (
            pytest.raises(TargetError, match="accepts packets of 300 bytes at most"),
            rig(
                Subject(
                    driver=asked.driver,
                    target=TargetAddress(url=small.facts.url),
                    settings=asked.settings,
                )
            ),
        ):
            pass
    finally:
        small.stop()
