"""paho-mqtt as this driver uses it: how a client is made, which of its inner steps are replaced, and what a broker's CONNACK rules out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

if TYPE_CHECKING:
    from pytest_loadtest.drivers._mqtt_socket import Endpoint, PacketSocket

FAILURE: Final = 0x80  # reason codes from here on are failures (MQTT 5, 2.4)
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
_NO_RETAINED: Final = 2  # MQTT 5, 3.8.3.1: do not send retained messages at the time of the subscribe


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What all clients of a driver have in common. Times in seconds; ``packet`` is the largest PUBLISH to be sent, in bytes."""

    version: MQTTProtocolVersion
    qos: int
    clean_start: bool
    session_expiry: int
    receive_maximum: int | None
    keep_alive: int
    username: str | None
    password: str | None
    shared: bool
    retain: bool
    packet: int

    @property
    def v5(self) -> bool:
        return self.version is MQTTProtocolVersion.MQTTv5

    @property
    def durable(self) -> bool:
        """Sessions outlive their connections."""
        return not self.clean_start or self.session_expiry > 0


class PahoClient(paho.Client):
    """paho with two of its inner steps replaced: where the socket comes from, and what a refusing PUBREC means."""

    prepared: PacketSocket

    def _create_socket(self) -> Any:
        return self.prepared

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


def make_client(endpoint: Endpoint, options: ClientOptions, client_id: str) -> PahoClient:
    """A client that is ready for ``reconnect`` once it has a prepared socket."""
    clean = None if options.v5 else options.clean_start
    client = PahoClient(
        CallbackAPIVersion.VERSION2, client_id, clean_session=clean, protocol=options.version, reconnect_on_failure=False
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
        client.connect_async(endpoint.host, endpoint.port, options.keep_alive, clean_start=clean_start, properties=properties)
    else:
        client.connect_async(endpoint.host, endpoint.port, options.keep_alive)
    return client


def subscribe(client: PahoClient, topic_filter: str, options: ClientOptions) -> None:
    """Subscribe; under MQTT 5 without the retained messages, which a second subscribe after a reconnect would bring again."""
    if options.v5:
        client.subscribe(topic_filter, options=SubscribeOptions(qos=options.qos, retainHandling=_NO_RETAINED))
    else:
        client.subscribe(topic_filter, options.qos)


def _connect_properties(options: ClientOptions) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    if options.session_expiry:
        properties.SessionExpiryInterval = options.session_expiry
    if options.receive_maximum is not None:
        properties.ReceiveMaximum = options.receive_maximum
    return properties


def lacking(options: ClientOptions, properties: Properties | None) -> str | None:
    """What the broker cannot do of what the options ask for, by its CONNACK (MQTT 5, 3.2.2.3)."""
    most = getattr(properties, "MaximumQoS", 2)
    if options.qos > most:
        return f"the broker allows QoS {most} at most, the profile asks for {options.qos}"
    size = getattr(properties, "MaximumPacketSize", None)
    if size is not None and options.packet > size:
        return f"the broker takes packets of {size} bytes at most, the profile's largest message makes one of {options.packet}"
    if options.shared and not getattr(properties, "SharedSubscriptionAvailable", 1):
        return "the broker has no shared subscriptions"
    if options.retain and not getattr(properties, "RetainAvailable", 1):
        return "the broker does not retain messages"
    return None
