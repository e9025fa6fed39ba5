"""QoS 2 when a connection breaks in the middle of a handshake, at a broker that follows a script; both MQTT clients (MQTT 5, 4.3.3 and 4.4)."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from fake_mqtt import FakeMqttBroker, MqttPeer, answer
from mqtt_codec import PublishAnswer
from mqtt_rig import burst, context
from waiting_for import wait_until

from pytest_loadtest.drivers.mqtt.native.driver import NativeMqttDriver
from pytest_loadtest.drivers.mqtt.native.inbound import IDENTIFIER_IN_USE
from pytest_loadtest.drivers.mqtt.options import IDENTIFIER_NOT_FOUND
from pytest_loadtest.drivers.mqtt.paho.driver import PahoMqttDriver
from pytest_loadtest.message.samples import Status
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MILLISECOND
from pytest_loadtest.wire.mqtt import packets as p

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

both = pytest.mark.parametrize(
    "driver", [PahoMqttDriver, NativeMqttDriver], ids=["library", "native"]
)
NATIVE = NativeMqttDriver
STREAM, ID = 3, 7
NAMES = {
    p.PUBLISH: "PUBLISH",
    p.PUBREC: "PUBREC",
    p.PUBREL: "PUBREL",
    p.PUBCOMP: "PUBCOMP",
    p.SUBSCRIBE: "SUBSCRIBE",
}


class ScriptedBroker(FakeMqttBroker):
    """Drops the first connection when it gets a packet of a kind, and may have the client's session when it comes back.

    :param cut: kind of packet. :param session: the session is there. :param unknown: reason for a PUBREL with an unknown identifier.
    :ivar log: (number of the connection, name of the packet, with ``dup`` if it is flagged) of each packet of the handshakes.
    """

    def __init__(self, cut: int = 0, *, session: bool = True, unknown: int = 0) -> None:
        super().__init__()
        self._cut, self._session, self._unknown = cut, session, unknown
        self._connects: list[MqttPeer] = []
        self._published = set[tuple[int, int]]()
        self.log: list[tuple[int, str]] = []
        self.rules |= {p.CONNECT: self._welcome, **dict.fromkeys(NAMES, self._handle)}

    def _welcome(self, peer: MqttPeer, packet: Any) -> None:
        # The driver discards the sessions of an earlier run, on connections that send nothing else.
        if packet.clean_start:
            answer(peer, packet)
            return
        self._connects.append(peer)
        peer.send(p.Connack(len(self._connects) > 1 and self._session, 0))

    @property
    def current(self) -> MqttPeer:
        """The connection on which the client sent the last CONNECT."""
        return self._connects[-1]

    def sent(self, number: int) -> list[str]:
        """Return the packets that a connection got."""
        return [name for connection, name in self.log if connection == number]

    def _handle(self, peer: MqttPeer, packet: Any) -> None:
        number, kind = self._connects.index(peer) + 1, getattr(packet, "kind", p.PUBLISH)
        if isinstance(packet, p.Subscribe):
            kind = p.SUBSCRIBE
        self.log.append((number, NAMES[kind] + " dup" * getattr(packet, "dup", False)))
        if number == 1 and kind == self._cut:
            peer.drop()
        elif kind == p.PUBREL and (number, packet.packet_id) not in self._published:
            peer.send(PublishAnswer(p.PUBCOMP, packet.packet_id, self._unknown))
        elif kind == p.PUBLISH:
            self._published.add((number, packet.packet_id))
            peer.send(PublishAnswer(p.PUBREC, packet.packet_id))
        elif kind in (p.PUBREL, p.SUBSCRIBE):
            answer(peer, packet)


@contextmanager
def connected(broker: ScriptedBroker, driver: Any) -> Iterator[Any]:
    topology = Topology(topics=1, partitions=1, producers=4, subscriptions=1, consumers=1)
    made = driver(
        context(
            broker.url,
            time.monotonic_ns,
            topology=topology,
            qos=2,
            cleanStart=False,
            sessionExpiry="1h",
        )
    )
    with broker:
        try:
            yield made
        finally:
            made.close()


def until(driver: Any, done: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end, driver.disconnected()
        driver.poll(MILLISECOND)


# --- producers

FORGOTTEN, KEPT = False, True
DONE = IDENTIFIER_NOT_FOUND


@both
@pytest.mark.parametrize(
    ("cut", "session", "unknown", "native", "library"),
    [
        # PUBREC never came: the message again.
        (p.PUBLISH, KEPT, 0, ["PUBLISH dup", "PUBREL"], ["PUBLISH dup", "PUBREL"]),
        (p.PUBLISH, FORGOTTEN, 0, ["PUBLISH", "PUBREL"], ["PUBLISH dup", "PUBREL"]),
        # PUBREC came: never the message again, whether the broker has completed it (DONE) or not.
        (p.PUBREL, KEPT, 0, ["PUBREL"], ["PUBREL"]),
        (p.PUBREL, KEPT, DONE, ["PUBREL"], ["PUBREL"]),
        # A broker without the session never got PUBREC's message: ours sends it as a new one; paho goes on as if the session were there.
        (p.PUBREL, FORGOTTEN, 0, ["PUBLISH", "PUBREL"], ["PUBREL"]),
        (p.PUBREL, FORGOTTEN, DONE, ["PUBLISH", "PUBREL"], ["PUBREL"]),
    ],
)
def test_a_message_is_sent_again_only_as_long_as_its_pubrec_is_missing(
    driver: Any, cut: int, session: bool, unknown: int, native: list[str], library: list[str]
) -> None:
    """The answer of a broker that does not know the identifier any more is no failure, unless it lost the session with it."""
    with connected(broker := ScriptedBroker(cut, session=session, unknown=unknown), driver) as made:
        made.open_producers([STREAM])
        assert made.send(burst(1)) is None
        acks: list[Any] = []
        until(made, lambda: acks.append(made.acks()) or acks[-1])
        again = native if driver is NATIVE else library
        assert broker.sent(2) == again
        (status,), resends, facts = acks[-1].status, acks[-1].resends, made.facts()
        lost = (session, unknown, again) == (FORGOTTEN, DONE, ["PUBREL"])
        assert status == (Status.FAILED if lost else Status.ACKED)
        assert (0 if resends is None else resends[0]) == sum(
            name.startswith("PUBLISH") for name in again
        )
        assert (facts.losses, facts.forgotten) == (1, int(not session))
        rejections = [text for text in facts.incidents if "rejected" in text]
        assert rejections == ["message rejected by the broker: Packet identifier not found"] * lost
        # Its window is empty again: the next message has no trace of this one.
        assert made.send(burst(1, 1)) is None
        until(made, lambda: acks.append(made.acks()) or acks[-1])
        assert acks[-1].status.tolist() == [Status.ACKED] and acks[-1].resends is None


@both
def test_an_unknown_identifier_without_a_reconnect_is_a_failure(driver: Any) -> None:
    """The broker has lost the message that it promised to deliver."""
    with connected(broker := ScriptedBroker(), driver) as made:
        made.open_producers([STREAM])
        broker.rules[p.PUBREL] = lambda peer, packet: peer.send(
            PublishAnswer(p.PUBCOMP, packet.packet_id, IDENTIFIER_NOT_FOUND)
        )
        made.send(burst(1))
        acks: list[Any] = []
        until(made, lambda: acks.append(made.acks()) or acks[-1])
        assert acks[-1].status.tolist() == [Status.FAILED]


# --- consumers


@both
@pytest.mark.parametrize(
    ("before", "session", "after", "native", "library"),
    [
        # The broker did not get PUBREC, or PUBCOMP.
        ("message", KEPT, ("copy", "release"), [40], [40]),
        ("message, release", KEPT, ("release",), [40], [40]),
        # It has completed the message, and uses its identifier for another one.
        ("message, release", KEPT, ("other", "release"), [40, 50], [40, 50]),
        # It violates the protocol: the identifier is in use, or the message was released.
        ("message", KEPT, ("other", "release"), [40], [50]),
        ("message, release", KEPT, ("copy", "release"), [40, 40], [40, 40]),
        # It has lost the session, and has the message from elsewhere. paho delivers a message when it is released.
        ("message", FORGOTTEN, ("copy", "release"), [40, 40], [40]),
    ],
)
def test_a_consumer_counts_each_message_that_its_broker_sends_as_a_new_one(
    driver: Any,
    before: str,
    session: bool,
    after: tuple[str, ...],
    native: list[int],
    library: list[int],
) -> None:
    """An identifier means a second copy until the broker has released it, and another message from then on."""
    sent = {
        "message": p.Publish("t", b"m" * 40, 2, packet_id=ID),
        "copy": p.Publish("t", b"m" * 40, 2, packet_id=ID, dup=True),
        "other": p.Publish("t", b"n" * 50, 2, packet_id=ID),
        "release": PublishAnswer(p.PUBREL, ID),
    }
    with connected(broker := ScriptedBroker(session=session), driver) as made:
        made.open_consumers([0])
        broker.rules[p.PUBREC] = broker._handle
        for number, names in ((1, before.split(", ")), (2, after)):
            for index, name in enumerate(names):
                broker.current.send(sent[name])
                answers = "PUBCOMP" if name == "release" else "PUBREC"
                until(
                    made,
                    lambda n=number, i=index + 1, a=answers: (
                        len([one for one in broker.sent(n) if one != "SUBSCRIBE"]) == i and a
                    ),
                )
            if number == 1:
                broker.current.drop()
                until(made, lambda: made.facts().losses == 1 and made.disconnected() is None)
        sizes: list[int] = []
        expected = native if driver is NATIVE else library
        until(
            made,
            lambda: (
                sizes.extend(() if (taken := made.take()) is None else taken.size.tolist())
                or len(sizes) >= len(expected)
            ),
        )
        assert sizes == expected
        assert made.facts().incidents.get(IDENTIFIER_IN_USE, 0) == int(
            driver is NATIVE and (before, after[0]) == ("message", "other")
        )


# --- a write that fails


@both
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_that_arrived_before_a_failed_write_count(driver: Any, qos: int) -> None:
    """They are in the consumer's socket when the broker resets the connection, and the consumer finds out by writing."""
    with connected(broker := ScriptedBroker(), driver) as made:
        place = int(made.open_consumers([0])[0])
        made.pause([place])
        for number in range(1, 4):
            broker.current.send(p.Publish("t", b"m" * 40, qos, packet_id=number if qos else 0))
            if qos == 2 and driver is not NATIVE:
                broker.current.send(PublishAnswer(p.PUBREL, number))
        connection: Any = made._consumers[place][1]
        # A reset would drop what is still on its way.
        wait_until(lambda: waiting(connection.socket) >= 3 * 40, "the messages", 30)
        reset(broker.current)
        wait_until(lambda: is_reset(connection.socket), "the reset", 30)
        # No poll in between: a ping, or the acknowledgement of an earlier message, is what fails.
        connection.socket.put(b"\xc0\x00")
        connection.flush()
        made.resume([place])
        sizes: list[int] = []
        until(
            made,
            lambda: (
                sizes.extend(() if (taken := made.take()) is None else taken.size.tolist())
                or made.facts().losses
            ),
        )
        assert sizes == [40] * 3


def reset(peer: MqttPeer) -> None:
    """Close a connection with RST instead of FIN."""
    peer._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.gone.set()
    peer._socket.shutdown(socket.SHUT_RD)


def waiting(sock: Any) -> int:
    """Return the number of bytes that a socket has for its reader."""
    with socket.socket(fileno=os.dup(sock.fileno())) as own, contextlib.suppress(BlockingIOError):
        return len(own.recv(1 << 16, socket.MSG_PEEK))
    return 0


def is_reset(sock: Any) -> bool:
    """Return True if the connection of a socket is closed (linux/tcp.h: the first byte of tcp_info is its state, 7 is closed)."""
    with socket.socket(fileno=os.dup(sock.fileno())) as own:
        return bool(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 7)


@both
@pytest.mark.parametrize("stale", [0, 5])
def test_a_producer_does_not_continue_the_session_of_an_earlier_run(
    driver: Any, stale: int
) -> None:
    """A killed run left exchanges open, and the broker drops whatever comes under their packet identifiers (4.3.3)."""
    held = set(range(1, stale + 1))
    connects: list[bool] = []
    passed_on: list[int] = []

    def welcome(peer: MqttPeer, packet: Any) -> None:
        connects.append(packet.clean_start)
        if packet.clean_start:
            held.clear()
        peer.send(p.Connack(len(connects) > 2 or bool(held), 0))

    def publish(peer: MqttPeer, packet: Any) -> None:
        if packet.packet_id not in held:
            held.add(packet.packet_id)
            passed_on.append(packet.packet_id)
        peer.send(PublishAnswer(p.PUBREC, packet.packet_id))

    with FakeMqttBroker() as broker:
        broker.rules |= {p.CONNECT: welcome, p.PUBLISH: publish}
        one = driver(
            context(broker.url, time.monotonic_ns, qos=2, cleanStart=False, sessionExpiry="1h")
        )
        one.open_producers([STREAM])
        one.send(burst(10))
        answered = 0
        end = time.monotonic() + 20
        while answered < 10 or len(connects) < 3:
            assert time.monotonic() < end, one.disconnected()
            one.poll(MILLISECOND)
            if (acks := one.acks()) is not None:
                answered += len(acks.row)
            if answered == 10 and len(connects) == 2:
                broker.peers[-1].drop()
        assert len(passed_on) == 10
        assert connects == [True, False, False]
        one.close()
