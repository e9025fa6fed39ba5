"""A relay between MQTT clients and a broker that records every packet, for tests that compare a client's count with the wire."""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from fake_server import FakeServer
from mqtt_codec import PublishAnswer, decode

from pytest_loadtest.wire.mqtt import packets as p
from pytest_loadtest.wire.mqtt.reading import packet_size

if TYPE_CHECKING:
    from mqtt_codec import Packet


class Seen(NamedTuple):
    """A packet. :param connection: its number, from 0."""

    connection: int
    to_client: bool
    packet: Packet


class MqttTap(FakeServer["_Pair"]):
    """The relay; a context manager. :param port: of the broker. :ivar log: all packets passed on, each direction of a connection in order."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.log: list[Seen] = []
        self.count = 0
        super().__init__("mqtt", partial(_Pair, self))

    def client(self, client_id: str) -> list[Seen]:
        """Return the packets of all connections of a client, one connection after the other."""
        own = [
            seen.connection
            for seen in self.log
            if isinstance(seen.packet, p.Connect) and seen.packet.client_id == client_id
        ]
        return [seen for number in own for seen in self.log if seen.connection == number]


class _Pair:
    """A client's connection and the one to the broker."""

    def __init__(self, tap: MqttTap, client: socket.socket) -> None:
        self._tap, self._client, self._broker = tap, client, socket.socket()
        self._number, tap.count = tap.count, tap.count + 1

    def serve(self) -> None:
        with self._client, self._broker, contextlib.suppress(OSError):
            self._broker.connect(("127.0.0.1", self._tap.port))
            back = threading.Thread(target=self._pass, args=(self._broker, self._client, True))
            back.start()
            self._pass(self._client, self._broker, False)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, to_client: bool) -> None:
        data = b""
        try:
            while read := source.recv(65_536):
                # The client got only what could be passed on. What it sent is recorded before the broker can answer.
                if to_client:
                    sink.sendall(read)
                data += read
                while (size := packet_size(data)) and len(data) >= size:
                    body = next(at for at in range(1, size) if data[at] < 128) + 1
                    self._tap.log.append(
                        Seen(self._number, to_client, decode(data[0], data[body:size]))
                    )
                    data = data[size:]
                if not to_client:
                    sink.sendall(read)
        except OSError:
            pass
        finally:
            self.drop()

    def drop(self) -> None:
        for end in (self._client, self._broker):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def delivered(seen: list[Seen], *, at_release: bool) -> list[bytes]:
    """Return the payloads that a consumer at QoS 2 delivers to its application (MQTT 5, 4.3.3), by the packets that its broker sent.

    :param at_release: method B: at PUBREL, the last message with the identifier; else method A: at PUBLISH.
    """
    held: dict[int, bytes] = {}
    payloads = []
    for packet in (each.packet for each in seen if each.to_client):
        # paho keeps what it holds even if the broker has lost the session.
        if isinstance(packet, p.Connack) and not packet.session_present and not at_release:
            held.clear()
        elif isinstance(packet, p.Publish):
            if packet.packet_id not in held and not at_release:
                payloads.append(packet.payload)
            if packet.packet_id not in held or at_release:
                held[packet.packet_id] = packet.payload
        elif isinstance(packet, PublishAnswer) and packet.kind == p.PUBREL:
            released = held.pop(packet.packet_id, None)
            if released is not None and at_release:
                payloads.append(released)
    return payloads
