"""paho-mqtt as this driver uses it.

It has clients with some internal steps replaced, and their sockets.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageState, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket
from pytest_loadtest.drivers.mqtt.options import NO_RETAINED, ClientOptions, missing_feature
from pytest_loadtest.message.route import PROPERTY, Carrier
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_loadtest.drivers.arrival_clock import ArrivalClock


# paho's spelling of CONNACK properties.
_SPELLED: Final = {
    "maximum_qos": "MaximumQoS",
    "maximum_packet_size": "MaximumPacketSize",
    "shared_subscription_available": "SharedSubscriptionAvailable",
    "retain_available": "RetainAvailable",
}


class _EncodedProperties(bytes):
    """Encoded properties in place of paho's object, which takes longer to encode than to send."""

    def pack(self) -> bytes:
        return self


class PahoClient(paho.Client):
    """paho's client with four internal steps replaced.

    The socket, the notice of resends, the properties of a message (also when it is sent again), and
    the meaning of a PUBREC with a failure.
    """

    prepared: PacketSocket
    """The socket of the next connection."""
    requested_keep_alive: int
    """Seconds."""
    on_resend: Callable[[int], None] | None = None
    """Called with the packet id of each message that is sent again after a reconnect.

    Not for a PUBREL, which carries no message."""
    before_envelope: Mapping[bool, bytes] | None = None
    """The encoded properties of a message up to the value of its envelope, by whether the topic has
    an alias; None in MQTT 3.1.1. A client has one topic."""
    released_again: frozenset[int] = frozenset()
    """Packet ids whose PUBREL is sent again on this connection.

    The broker still has the session."""
    _aliased = _named = False

    def begin(self, *, aliased: bool, session: bool) -> None:
        """Start a connection.

        :param aliased: the topic gets an alias.
        :param session: the broker still has the client's session.
        """
        # Aliases are valid for one connection (MQTT 5, 3.3.2.3.4),
        # so its first message names the topic.
        self._aliased = aliased
        self._named = False
        resumed = (
            mid
            for mid, message in self._out_messages.items()
            if message.state == MessageState.MQTT_MS_RESEND_PUBREL
        )
        self.released_again = frozenset(resumed) if session else frozenset()

    def _create_socket(self) -> Any:
        # paho would otherwise request the Server Keep Alive of the last connection.
        self._keepalive = self.requested_keep_alive
        return self.prepared

    def _send_publish(
        self,
        mid: int,
        topic: bytes,
        payload: bytes | bytearray = b"",
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        info: paho.MQTTMessageInfo | None = None,
        properties: Any = None,
    ) -> MQTTErrorCode:
        # ``properties`` is the value of the envelope, which paho keeps with the message; None: it
        # is in the body.
        if dup and self.on_resend is not None:
            self.on_resend(mid)
        if self.before_envelope is not None:
            before = self.before_envelope[self._aliased]
            properties = _EncodedProperties(before + (properties or b""))
        topic = b"" if self._named else topic
        self._named = self._aliased
        return super()._send_publish(mid, topic, payload, qos, retain, dup, info, properties)

    def pardon_ping(self) -> None:
        """Stop waiting for an answer to a ping: a paused connection does not read it."""
        self._ping_t = 0

    def _handle_pubrec(self) -> MQTTErrorCode:
        # paho answers every PUBREC with PUBREL, but one with a failure
        # code ends the message (MQTT 5, 4.3.3).
        packet = self._in_packet["packet"]
        if (
            self._protocol == MQTTProtocolVersion.MQTTv5
            and len(packet) > 2
            and packet[2] >= FAILURE
        ):
            mid = int.from_bytes(packet[:2], "big")
            if mid in self._out_messages:
                rejected = _rejection(packet[2])
                properties = Properties(PacketTypes.PUBREC)  # type: ignore[no-untyped-call]
                return self._do_on_publish(mid, rejected, properties)
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return super()._handle_pubrec()


def _rejection(code: int) -> ReasonCode:
    try:
        return ReasonCode(PacketTypes.PUBREC, identifier=code)
    except (KeyError, ValueError):  # paho knows only the specification's codes of each packet
        return ReasonCode(PacketTypes.PUBREC, "Unspecified error")


def make_paho_client(
    endpoint: BrokerEndpoint, options: ClientOptions, client_id: str
) -> PahoClient:
    """Make a client that is ready for ``reconnect`` once it has a prepared socket."""
    clean = None if options.v5 else options.clean_start
    protocol = MQTTProtocolVersion(options.version)
    client = PahoClient(
        CallbackAPIVersion.VERSION2,
        client_id,
        clean_session=clean,
        protocol=protocol,
        reconnect_on_failure=False,
    )
    client.requested_keep_alive = options.keep_alive
    # 0 means no limit: the producer keeps the window. With a limit, paho
    # scans all messages in flight at every answer.
    client.max_inflight_messages_set(0)
    client.username_pw_set(options.username, options.password)
    # Any callback here stops paho from writing on its own.
    client.on_socket_register_write = lambda _client, _data, _socket: None
    if options.v5:
        # A session with an expiry interval continues at a reconnect. Without one it is gone, and
        # paho must start a clean one.
        first = paho.MQTT_CLEAN_START_FIRST_ONLY if options.session_expiry else True
        clean_start = first if options.clean_start else False
        properties = _connect_properties(options)
        client.before_envelope = {
            aliased: options.before_envelope(aliased=aliased) for aliased in (False, True)
        }
        client.connect_async(
            endpoint.host,
            endpoint.port,
            options.keep_alive,
            clean_start=clean_start,
            properties=properties,
        )
    else:
        client.connect_async(endpoint.host, endpoint.port, options.keep_alive)
    return client


def send_subscribe(
    client: PahoClient, topic_filters: tuple[str, ...], options: ClientOptions
) -> None:
    """Subscribe to topic filters."""
    # In MQTT 5 without retained messages, which a subscribe after a reconnect would deliver again.
    if options.v5:
        entry = SubscribeOptions(qos=options.qos, retainHandling=NO_RETAINED)
        client.subscribe([(topic_filter, entry) for topic_filter in topic_filters])
    else:
        client.subscribe([(topic_filter, options.qos) for topic_filter in topic_filters])


def _connect_properties(options: ClientOptions) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    if options.session_expiry:
        properties.SessionExpiryInterval = options.session_expiry
    if options.receive_maximum is not None:
        properties.ReceiveMaximum = options.receive_maximum
    if options.topic_alias_maximum:
        properties.TopicAliasMaximum = options.topic_alias_maximum
    return properties


def carried_value(properties: Properties | None, carrier: Carrier) -> bytes:
    """Return the value of the property that has the envelope, empty without one.

    :param properties: of a received message.
    """
    if carrier is Carrier.CORRELATION_DATA:
        return getattr(properties, "CorrelationData", b"")
    for name, text in getattr(properties, "UserProperty", ()):
        if name == PROPERTY:
            encoded: bytes = text.encode()
            return encoded
    return b""


def missing_paho_feature(options: ClientOptions, properties: Properties | None) -> str | None:
    """Return the feature that a CONNACK's properties rule out, as ``missing_feature`` does.

    paho has its own spelling of the properties.
    """
    return missing_feature(
        options, lambda name, default: getattr(properties, _SPELLED[name], default)
    )


_PUBLISH_QOS_0: Final = 0x30
_TYPE_AND_QOS: Final = (
    0xF6  # mask of a packet's first byte: packet type and QoS, without DUP and RETAIN
)


class PacketSocket(BrokerSocket):
    """The socket that paho uses. :raises OSError: the connection is rejected at once."""

    # One system call for many packets: paho reads every packet with at least three recv() calls,
    # and writes each with its own send(). Here recv() reads from a buffer that fill() fills, and
    # send() gathers packets until flush().

    def __init__(
        self, endpoint: BrokerEndpoint, arrivals: ArrivalClock, source: str | None = None
    ) -> None:
        super().__init__(endpoint, arrivals, source)
        self._in = b""
        self._read = 0
        self._accepted = 0
        self._marks: deque[int] = deque()  # end of each QoS 0 PUBLISH in the stream of bytes

    def fill(self) -> None:
        """Read once from the kernel into the buffer."""
        data = self.read()
        if data is not None:
            self._in = self._in[self._read :] + data
            self._read = 0

    @property
    def unread(self) -> bool:
        """True if :meth:`recv` can return bytes or the end of the connection."""
        return self._read < len(self._in) or (self.ended and not self.closed)

    def flush(self) -> int:
        """Write as much as the kernel takes.

        Return the number of QoS 0 PUBLISH packets of which the last byte is now written.
        """
        if self._out:
            self.write()
        done = 0
        marks = self._marks
        while marks and marks[0] <= self.written:
            marks.popleft()
            done += 1
        return done

    # --- methods that paho calls

    def recv(self, size: int) -> bytes:
        data = self._in[self._read : self._read + size]
        if not data and size and not self.ended:
            raise BlockingIOError
        self._read += len(data)
        return data

    def send(self, packet: bytes | bytearray) -> int:
        # Always takes the whole packet: the windows of the producers limit how much is gathered.
        self.put(packet)
        self._accepted += len(packet)
        if packet[0] & _TYPE_AND_QOS == _PUBLISH_QOS_0:
            self._marks.append(self._accepted)
        return len(packet)

    def close(self) -> None:
        super().close()
        self._in = b""
        self._read = 0

    def setblocking(self, flag: bool) -> None:
        """Ignore the call: the socket stays non-blocking."""

    def pending(self) -> int:
        return 0
