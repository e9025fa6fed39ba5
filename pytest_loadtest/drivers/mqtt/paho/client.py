"""paho-mqtt as this driver uses it: how a client is made, and which of its inner steps are replaced."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket
from pytest_loadtest.drivers.mqtt.options import NO_RETAINED, lacking
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint
    from pytest_loadtest.drivers.mqtt.options import ClientOptions


_SPELLED: Final = {
    "maximum_qos": "MaximumQoS",
    "maximum_packet_size": "MaximumPacketSize",
    "shared_subscription_available": "SharedSubscriptionAvailable",
    "retain_available": "RetainAvailable",
}


class PahoClient(paho.Client):
    """paho with four of its inner steps changed: where the socket comes from, who hears of resends, what properties a message has, resent
    or not, and what a refusing PUBREC means."""

    prepared: PacketSocket
    on_resend: Callable[[int], None] | None = None
    """Called with the packet id of each message that is sent again after a reconnect. (A PUBREL sent again carries no message.)"""
    plain: Properties | None = None
    """Of a message whose topic has no alias; it is the client's one topic."""
    with_alias: Properties | None = None
    """Of a message whose topic has one."""
    _aliased = _named = False

    def begin(self, *, aliased: bool) -> None:
        """The broker has answered CONNECT; it knows no alias yet (MQTT 5, 3.3.2.3.4). :param aliased: the topic gets one."""
        self._aliased, self._named = aliased, False

    def _create_socket(self) -> Any:
        return self.prepared

    def _send_publish(
        self, mid: int, topic: bytes, payload: bytes | bytearray = b"", qos: int = 0, retain: bool = False, dup: bool = False,
        info: paho.MQTTMessageInfo | None = None, properties: Properties | None = None,
    ) -> MQTTErrorCode:  # fmt: skip
        if dup and self.on_resend is not None:
            self.on_resend(mid)
        properties = self.with_alias if self._aliased else self.plain
        topic, self._named = b"" if self._named else topic, self._aliased
        return super()._send_publish(mid, topic, payload, qos, retain, dup, info, properties)

    def pardon_ping(self) -> None:
        """Expect no answer to a ping any more: while nothing is read, none can come, though the broker sends it."""
        self._ping_t = 0

    def _handle_pubrec(self) -> MQTTErrorCode:
        """Take the broker's PUBREC. paho answers each with PUBREL, but one with a failure code ends the message (MQTT 5, 4.3.3)."""
        packet = self._in_packet["packet"]
        if self._protocol == MQTTProtocolVersion.MQTTv5 and len(packet) > 2 and packet[2] >= FAILURE:
            mid = int.from_bytes(packet[:2], "big")
            if mid in self._out_messages:
                refused = ReasonCode(
                    PacketTypes.PUBREC, "Unspecified error"
                )  # any code from 0x80 on; paho would raise at one it does not know
                return self._do_on_publish(mid, refused, Properties(PacketTypes.PUBREC))  # type: ignore[no-untyped-call]
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return super()._handle_pubrec()


def make_paho_client(endpoint: BrokerEndpoint, options: ClientOptions, client_id: str) -> PahoClient:
    """A client that is ready for ``reconnect`` once it has a prepared socket."""
    clean, protocol = None if options.v5 else options.clean_start, MQTTProtocolVersion(options.version)
    client = PahoClient(
        CallbackAPIVersion.VERSION2, client_id, clean_session=clean, protocol=protocol, reconnect_on_failure=False
    )  # fmt: skip
    client.max_inflight_messages_set(0)  # the producer keeps the window; paho would scan it at every answer
    if options.username is not None:
        client.username_pw_set(options.username, options.password)
    client.on_socket_register_write = lambda _client, _data, _socket: None  # any function here keeps paho from writing by itself
    if options.v5:
        # With an expiry the session carries on at a reconnect; without one nothing is left of it, and paho has to know.
        first = paho.MQTT_CLEAN_START_FIRST_ONLY if options.session_expiry else True
        clean_start = first if options.clean_start else False
        properties = _connect_properties(options)
        client.plain, client.with_alias = (_publish_properties(options, aliased=aliased) for aliased in (False, True))
        client.connect_async(endpoint.host, endpoint.port, options.keep_alive, clean_start=clean_start, properties=properties)
    else:
        client.connect_async(endpoint.host, endpoint.port, options.keep_alive)
    return client


def subscribe(client: PahoClient, topic_filter: str, options: ClientOptions) -> None:
    """Subscribe; under MQTT 5 without the retained messages, which a second subscribe after a reconnect would bring again."""
    if options.v5:
        client.subscribe(topic_filter, options=SubscribeOptions(qos=options.qos, retainHandling=NO_RETAINED))
    else:
        client.subscribe(topic_filter, options.qos)


def _connect_properties(options: ClientOptions) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    if options.session_expiry:
        properties.SessionExpiryInterval = options.session_expiry
    if options.receive_maximum is not None:
        properties.ReceiveMaximum = options.receive_maximum
    if options.topic_alias_maximum:
        properties.TopicAliasMaximum = options.topic_alias_maximum
    return properties


def _publish_properties(options: ClientOptions, *, aliased: bool) -> Properties:
    properties, found = Properties(PacketTypes.PUBLISH), options.publish_properties(aliased=aliased)  # type: ignore[no-untyped-call]
    if "topic_alias" in found:
        properties.TopicAlias = found["topic_alias"]
    if "user_property" in found:
        properties.UserProperty = found["user_property"]
    return properties


def lacking_of(options: ClientOptions, properties: Properties | None) -> str | None:
    """See :func:`~pytest_loadtest.drivers.mqtt.options.lacking`; paho spells the names of properties in its own way."""
    return lacking(options, lambda name, default: getattr(properties, _SPELLED[name], default))


# What paho takes for its socket: one system call for many packets.
#
# paho reads every packet with three or more ``recv`` calls, and writes each with a ``send`` of its own. Behind this class reads come from
# a buffer that :meth:`PacketSocket.fill` fills, and writes gather until :meth:`PacketSocket.flush`.

_PUBLISH_QOS_0: Final = 0x30
_TYPE_AND_QOS: Final = 0xF6  # of a packet's first byte: packet type and QoS, without DUP and RETAIN


class PacketSocket(BrokerSocket):
    """A connection as paho uses it.

    :raises OSError: the connection is refused at once.
    """

    def __init__(self, endpoint: BrokerEndpoint) -> None:
        super().__init__(endpoint)
        self._in, self._read = b"", 0
        self._accepted = 0
        self._marks: deque[int] = deque()  # where each QoS 0 PUBLISH ends in the stream of bytes

    def fill(self) -> None:
        """Read once what the kernel has."""
        data = self.read()
        if data is not None:
            self._in, self._read = self._in[self._read :] + data, 0

    @property
    def unread(self) -> bool:
        """Whether :meth:`recv` has something to say: bytes, or the end of the connection."""
        return self._read < len(self._in) or (self.ended and not self.closed)

    def flush(self) -> int:
        """Write what the kernel takes; return how many QoS 0 PUBLISH packets are now written to their end."""
        if self._out:
            self.write()
        done, marks = 0, self._marks
        while marks and marks[0] <= self.written:
            marks.popleft()
            done += 1
        return done

    # What paho calls.

    def recv(self, size: int) -> bytes:
        data = self._in[self._read : self._read + size]
        if not data and size and not self.ended:
            raise BlockingIOError
        self._read += len(data)
        return data

    def send(self, packet: bytes | bytearray) -> int:
        """Gather one packet; windows above this bound how much comes."""
        self.put(packet)
        self._accepted += len(packet)
        if packet[0] & _TYPE_AND_QOS == _PUBLISH_QOS_0:
            self._marks.append(self._accepted)
        return len(packet)

    def close(self) -> None:
        """Write the last packet (DISCONNECT) if the kernel takes it, and close."""
        super().close()
        self._in, self._read = b"", 0

    def setblocking(self, flag: bool) -> None:
        """Stays as it is: non-blocking."""

    def pending(self) -> int:
        return 0
