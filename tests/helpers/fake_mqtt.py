"""An MQTT 5 broker as seen by a client, with faults on request: a real TCP server on loopback that keeps no sessions.

It answers each packet as a broker would and passes messages on, unless the test sets another action by the kind of packet: in
:attr:`FakeMqttBroker.rules`, or in :attr:`FakeMqttBroker.once` for the next packets only.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any

from fake_server import FakeServer
from mqtt_codec import PublishAnswer, decode, encode

from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.mqtt.reading import packet_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from mqtt_codec import Packet

    Rule = Callable[["MqttPeer", Any], None]


class MqttPeer:
    """One connection of a client. :ivar filters: its subscriptions. :ivar gone: the connection has ended."""

    def __init__(self, broker: FakeMqttBroker, connected: socket.socket) -> None:
        self.broker, self._socket, self._lock = broker, connected, threading.Lock()
        self.filters: list[p.TopicFilter] = []
        self.gone = threading.Event()

    def send(self, *packets: Packet | bytes) -> None:
        """Send packets, or bytes as they are."""
        try:
            with self._lock:
                self._socket.sendall(
                    b"".join(each if isinstance(each, bytes) else encode(each) for each in packets)
                )
        except OSError:
            self.gone.set()

    def drop(self) -> None:
        """Close the connection."""
        self.gone.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Handle packets until the connection ends."""
        data = b""
        with self._socket:
            while not self.gone.is_set():
                try:
                    read = self._socket.recv(65_536)
                except OSError:
                    read = b""
                data += read
                if not read:
                    self.gone.set()
                while (size := packet_size(data)) and len(data) >= size:
                    packet, data = data[:size], data[size:]
                    self._handle(packet)

    def _handle(self, packet: bytes) -> None:
        kind = packet[0] >> 4
        body = next(at for at in range(1, len(packet)) if packet[at] < 128) + 1
        waiting = self.broker.once[kind]
        rule = waiting.popleft() if waiting else self.broker.rules.get(kind, answer)
        rule(self, decode(packet[0], packet[body:]))


def answer(peer: MqttPeer, packet: Any) -> None:
    """Answer as a healthy broker."""
    if isinstance(packet, p.Connect):
        peer.send(p.Connack(False, 0))
    elif isinstance(packet, p.Subscribe):
        peer.filters += packet.filters
        peer.send(
            p.SubscriptionAnswer(
                p.SUBACK, packet.packet_id, tuple(each.qos for each in packet.filters)
            )
        )
    elif isinstance(packet, p.Unsubscribe):
        peer.send(p.SubscriptionAnswer(p.UNSUBACK, packet.packet_id, (0,) * len(packet.topics)))
    elif isinstance(packet, p.Publish):
        if packet.qos:
            peer.send(PublishAnswer(p.PUBACK if packet.qos == 1 else p.PUBREC, packet.packet_id))
        peer.broker.route(packet)
    elif isinstance(packet, PublishAnswer) and packet.kind in (p.PUBREC, p.PUBREL):
        peer.send(
            PublishAnswer(p.PUBREL if packet.kind == p.PUBREC else p.PUBCOMP, packet.packet_id)
        )
    elif packet == p.Ping(p.PINGREQ):
        peer.send(p.Ping(p.PINGRESP))


def nothing(_peer: MqttPeer, _packet: Any) -> None:
    """Do not answer."""


def with_bytes(data: bytes) -> Rule:
    """Return an action that sends these bytes instead of an answer."""
    return lambda peer, _: peer.send(data)


class FakeMqttBroker(FakeServer[MqttPeer]):
    """A broker that serves until it is closed; a context manager.

    :ivar rules: kind of packet → action instead of :func:`answer`. :ivar once: the same, for one packet per entry.
    :ivar peers: connections, oldest first; the drivers open one without a packet to check the address.
    """

    def __init__(self) -> None:
        self.rules: dict[int, Rule] = {}
        self.once: defaultdict[int, deque[Rule]] = defaultdict(deque)
        self._ids = 0
        super().__init__("mqtt", partial(MqttPeer, self))

    def route(self, message: p.Publish) -> None:
        """Pass a message on to all who subscribed to its topic, at QoS 0 or 1."""
        for peer in list(self.peers):
            for each in peer.filters:
                if each.topic in (message.topic, f"$share/sub-0/{message.topic}"):
                    self._ids = self._ids % 65_535 + 1
                    qos = min(message.qos, each.qos, 1)
                    peer.send(
                        message._replace(qos=qos, packet_id=self._ids if qos else 0, properties={})
                    )
