"""One client of the native MQTT driver and its connection."""

from __future__ import annotations

import select
from typing import Any, Final, Protocol

from pytest_loadtest.drivers.mqtt.base_connection import ClientSpec, MqttConnectionBase
from pytest_loadtest.drivers.mqtt.broker_socket import (
    ACKNOWLEDGEMENT,
    MESSAGE,
    BrokerSocket,
)
from pytest_loadtest.drivers.mqtt.loop import MOST_VIOLATIONS, VIOLATED
from pytest_loadtest.drivers.mqtt.options import (
    KEEP_ALIVE_TIMEOUT,
    MOST_INFLIGHT,
    NO_RETAINED,
    ClientOptions,
    missing_feature,
)
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.mqtt import packets
from pytest_loadtest.wire.mqtt.codec import encode_packet
from pytest_loadtest.wire.mqtt.packets import reason_text


class ReadSink(Protocol):
    """The methods of ``Inbound`` that a connection uses."""

    def add(self, connection: NativeConnection, data: bytes, arrived: int, lag: int) -> None: ...
    def settle(self) -> None: ...


class NativeConnection(MqttConnectionBase[BrokerSocket]):
    """A connection that encodes and decodes MQTT itself.

    :param inbound: takes the bytes read.
    :param number: number of this connection in the driver.
    :ivar user: is notified about the connection and gets its acknowledgements.
    :ivar rest: start of a packet whose end has not arrived.
    :ivar needed: its bytes in all; 0: not known yet.
    :ivar largest: most bytes of a packet.
    :ivar receives: the client has a subscription, so the broker may send messages.
    :ivar held: packet ids of QoS 2 messages that were received and that the broker has not released
        → first bytes of the payload.
    """

    __slots__ = (
        "_inbound",
        "_last_in",
        "_last_out",
        "_pinged",
        "_requested",
        "_session",
        "_welcomed",
        "held",
        "largest",
        "needed",
        "number",
        "receives",
        "rest",
        "user",
    )

    def __init__(self, client: ClientSpec, inbound: ReadSink, number: int) -> None:
        super().__init__(client)
        self.number = number
        self._inbound = inbound
        self.user: ConnectionUser = NO_USER
        self.rest = bytearray()
        self.needed = 0
        self.held = dict[int, bytes]()
        self.largest = client.options.largest_packet
        self.receives = client.subscription is not None
        self._session = self._welcomed = False
        self._requested = (
            0  # kind of the answer that the broker owes to SUBSCRIBE or UNSUBSCRIBE; 0: none
        )
        self._last_out = self._last_in = self._pinged = 0  # instants

    # --- socket

    def _open(self) -> BrokerSocket:
        self.rest = bytearray()
        self.needed = 0
        self._welcomed = False
        self._requested = 0
        # A consumer at QoS 2 also gets a PUBREL for each message, whose time is not needed.
        smallest = MESSAGE if self.receives else ACKNOWLEDGEMENT
        return BrokerSocket(self.endpoint, self._loop.arrivals, self._source, smallest=smallest)

    def turn(self, sock: BrokerSocket, mask: int) -> None:
        # The event may be of a socket that was closed in an earlier turn of this round.
        if sock is not self.socket:
            return
        # Fast path: nearly every event is "readable" on an established connection.
        if mask == select.EPOLLIN and not self._paused and not self._dialling:
            self._read(sock)
            return
        if self._dialling:
            self._advance(sock)
            return
        if mask & (select.EPOLLERR | select.EPOLLHUP) or (
            mask & select.EPOLLIN and not self._hanging
        ):
            self._read(sock)
        if mask & select.EPOLLOUT and self.socket is sock:
            self.flush()

    def _greet(self, sock: BrokerSocket) -> None:
        self._last_in = self._last_out = self._loop.clock()
        self._pinged = 0
        sock.put(connect_packet(self._options, self.client_id, again=self.ever_up))
        self.flush()

    def _read(self, sock: BrokerSocket) -> None:
        stream = sock.stream
        while data := sock.read():
            self._last_in = stream.taken
            self._inbound.add(self, data, stream.arrived, stream.lag)
            if not (stream.more or sock.broken):
                return
        if data is not None:
            self.end_attempt(sock.ending)

    def end_attempt(self, reason: str) -> None:
        """End this attempt to connect, or this connection.

        Another one follows unless the connection has ended.
        """
        # Messages and answers that arrived before the end still
        # count. Handling them may close the socket.
        if self.socket is not None:
            self._inbound.settle()
        if self.socket is not None:
            self.socket.close()
            self._lost(reason)

    def put(self, data: bytes) -> None:
        """Gather bytes for :meth:`flush`; without a connection they are dropped."""
        if self.socket is not None and not self._dialling:
            self.socket.put(data)

    def write(self, data: bytes, now: int) -> bool:
        """Write bytes at once, after the gathered ones.

        Return False if the kernel did not take all: then :meth:`flush` continues.
        """
        sock = self.socket
        if sock is None or self._dialling or not sock.write_now(data):
            return False
        self._last_out = now
        return True

    def answer(self, data: bytes) -> None:
        """Write acknowledgements of the last read."""
        if not self.write(data, self._last_in):
            self.flush()

    def flush(self) -> None:
        sock = self.socket
        if sock is None or self._dialling:
            return
        waited = sock.unsent
        sock.write()
        self._last_out = self._loop.clock()
        if waited:
            self.user.was_written()
        if sock.broken:
            self.user.was_lost()
            # What arrived before the failure still counts, perhaps with the broker's reason; this
            # may be called while it is decoded.
            self._loop.again(self, sock, select.EPOLLHUP)
        else:
            reading = 0 if self._hanging else select.EPOLLIN
            writing = select.EPOLLOUT if sock.unsent else 0
            self._watch(reading | writing)

    @property
    def written(self) -> int:
        """Number of bytes that the kernel took since this attempt began."""
        return 0 if self.socket is None else self.socket.written

    def keep_alive(self) -> None:
        every = self.keep_alive_time * SECOND
        now = self._loop.clock()
        if self._dialling or not every:
            return
        # A paused connection does not read, so it cannot see the answer to a ping.
        if self._hanging:
            self._pinged = 0
            self._last_in = now
        if now - min(self._last_in, self._last_out) < every:
            return
        if not self._pinged:
            self._pinged = now
            self.put(encode_packet(packets.Ping(packets.PINGREQ)))
            self.flush()
        elif now - self._pinged >= every:
            self.end_attempt("no answer to a ping within keepAlive")

    # --- life cycle

    def resume(self) -> None:
        # What waited in the socket counts as arrived now, because
        # the consumer could not see it earlier.
        if self.socket is not None:
            self.socket.stream.arrived = self._loop.clock()
        super().resume()

    def abandon(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._unanswered = 0
        self.put(encode_packet(packets.Ending(packets.DISCONNECT), self._options.version))
        self.end_attempt(reason)

    def _lost(self, reason: str) -> None:
        super()._lost(reason)
        self.user.was_lost()

    def _established(self) -> None:
        super()._established()
        self.user.came_up(self._session)
        # A consumer that was paused meanwhile stops reading.
        self.flush()

    # --- packets of the broker

    def handle_packet(self, packet: packets.Packet) -> None:
        """Handle a packet that is neither a message nor an acknowledgement."""
        if isinstance(packet, packets.Connack):
            self._greeted(packet)
        elif isinstance(packet, packets.SubscriptionAnswer):
            self._answered(packet)
        elif isinstance(packet, packets.Ping) and packet.kind == packets.PINGRESP:
            self._pinged = 0
        elif isinstance(packet, packets.Ending) and packet.kind == packets.DISCONNECT:
            self._dismissed(
                packet.reason, reason_text(packets.DISCONNECT, packet.reason, self._options.version)
            )
        elif isinstance(packet, packets.Ending):
            self.reject("AUTH, although the client names no authentication method")
        else:
            name = packet.name if isinstance(packet, packets.ClientPacket) else "PINGREQ"
            self.reject(f"a packet that only clients may send: {name}")

    def reject(self, packet: str) -> None:
        """Give this attempt up because the broker violates the protocol.

        :param packet: the packet that it must not send.
        """
        self._loop.violations += 1
        self.abandon(f"the broker sent {packet}")
        if self._loop.violations >= MOST_VIOLATIONS:
            self._loop.fatal = f"{self.name}: the broker sent {packet}: {VIOLATED}"

    def _greeted(self, packet: packets.Connack) -> None:
        if self._welcomed:
            self.reject("a second CONNACK")
            return
        self._welcomed = True
        rejection = connack_rejection(self._options, packet)
        if rejection is not None:
            self.abandon(rejection)
            return
        self._session = packet.session_present
        # Without the session the broker has forgotten which packet ids are in use.
        if not self._session:
            self.held.clear()
        properties = packet.properties
        self._accepted(
            properties.get("receive_maximum", MOST_INFLIGHT),
            properties.get("topic_alias_maximum", 0),
            properties.get("server_keep_alive"),
            packet.session_present,
        )

    def _send_subscribe(self, topic_filters: tuple[str, ...]) -> None:
        self._requested = packets.SUBACK
        self.put(subscribe_packet(self._options, topic_filters))
        self.flush()

    def _send_unsubscribe(self, topic_filters: tuple[str, ...]) -> None:
        self._requested = packets.UNSUBACK
        self.put(unsubscribe_packet(self._options, topic_filters))
        self.flush()

    def _answered(self, packet: packets.SubscriptionAnswer) -> None:
        name, expected_id = _ANSWERS[packet.kind]
        if packet.kind != self._requested or packet.packet_id != expected_id:
            self.reject(f"{name} {packet.packet_id}, which answers no request of the client")
            return
        self._requested = 0
        if packet.kind == packets.UNSUBACK:
            self._unsubscribed()
            return
        version = self._options.version
        reasons = packet.reasons or (packets.FAILURE,)
        self._granted([(code, reason_text(packets.SUBACK, code, version)) for code in reasons])

    def _dismissed(self, reason: int, text: str) -> None:
        super()._dismissed(reason, text)
        if reason == KEEP_ALIVE_TIMEOUT:
            self._reason = "the broker received nothing from the client within keepAlive"
        self.end_attempt("connection lost")


class ConnectionUser:
    """Base class of a connection's user; it ignores everything."""

    __slots__ = ()

    def came_up(self, session: bool) -> None:
        """Handle an established connection.

        :param session: the broker still has the client's session.
        """

    def was_lost(self) -> None:
        """Handle a lost connection; another attempt follows unless it has ended."""

    def was_written(self) -> None:
        """Handle progress of the kernel with bytes that waited."""

    def answered(self, _kind: int, _packet_id: int, _reason: int, _time: int) -> bool:
        """Handle PUBACK, PUBREC or PUBCOMP; return True if PUBREL must follow."""
        return False


NO_USER = ConnectionUser()
"""The user of a connection that only receives."""


# Fixed packet identifiers are enough: a consumer publishes nothing, and
# has one SUBSCRIBE or UNSUBSCRIBE under way.
_SUBSCRIBE_ID: Final = 1
_UNSUBSCRIBE_ID: Final = 2
_ANSWERS: Final = {
    packets.SUBACK: ("SUBACK", _SUBSCRIBE_ID),
    packets.UNSUBACK: ("UNSUBACK", _UNSUBSCRIBE_ID),
}


def connect_packet(options: ClientOptions, client_id: str, *, again: bool) -> bytes:
    """Encode CONNECT.

    :param again: the client was connected before; a session with
        an expiry interval is then continued.
    """
    properties: dict[str, Any] = {}
    if options.v5 and options.session_expiry:
        properties["session_expiry_interval"] = options.session_expiry
    if options.v5 and options.receive_maximum is not None:
        properties["receive_maximum"] = options.receive_maximum
    if options.v5 and options.topic_alias_maximum:
        properties["topic_alias_maximum"] = options.topic_alias_maximum
    if options.v5 and not options.foreign:
        properties["maximum_packet_size"] = options.largest_packet
    clean = options.clean_start and not (options.v5 and options.session_expiry and again)
    password = None if options.password is None else options.password.encode()
    return encode_packet(
        packets.Connect(
            client_id,
            options.version,
            clean,
            options.keep_alive,
            options.username,
            password,
            properties,
        ),
        options.version,
    )


def connack_rejection(options: ClientOptions, answer: packets.Connack) -> str | None:
    """Return why the client cannot use this broker, or None if it can."""
    if answer.reason:
        return (
            "the broker rejected the connection:"
            f" {reason_text(packets.CONNACK, answer.reason, options.version)}"
        )
    return missing_feature(options, answer.properties.get)


def subscribe_packet(options: ClientOptions, topic_filters: tuple[str, ...]) -> bytes:
    # In MQTT 5 without retained messages, which a subscribe after a reconnect would deliver again.
    handling = NO_RETAINED if options.v5 else 0
    subscriptions = []
    for topic_filter in topic_filters:
        entry = packets.TopicFilter(topic_filter, options.qos, retain_handling=handling)
        subscriptions.append(entry)
    return encode_packet(packets.Subscribe(_SUBSCRIBE_ID, tuple(subscriptions)), options.version)


def unsubscribe_packet(options: ClientOptions, topic_filters: tuple[str, ...]) -> bytes:
    return encode_packet(packets.Unsubscribe(_UNSUBSCRIBE_ID, topic_filters), options.version)
