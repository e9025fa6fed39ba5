"""One paho client and its connection: dialled, greeted, subscribed, dialled again when it is lost."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from pytest_loadtest.drivers._mqtt_socket import Endpoint, PacketSocket
from pytest_loadtest.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.drivers._mqtt_loop import Loop

PACKETS: Final = 64  # read in one turn, so that a consumer that is behind does not hold up the others
FIRST_DELAY, LONGEST_DELAY = 100 * MILLISECOND, 5 * SECOND
FAILURE: Final = 0x80  # reason codes from here on are failures
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

    def _handle_pubrec(self) -> MQTTErrorCode:
        """paho answers every PUBREC with PUBREL; one with a failure code ends the message (MQTT 5, 4.3.3)."""
        packet = self._in_packet["packet"]
        if self._protocol == MQTTProtocolVersion.MQTTv5 and len(packet) > 2 and packet[2] >= FAILURE:
            mid = int.from_bytes(packet[:2], "big")
            if mid in self._out_messages:
                return self._do_on_publish(mid, ReasonCode(PacketTypes.PUBREC, identifier=packet[2]), Properties(PacketTypes.PUBREC))
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return super()._handle_pubrec()


class Link:
    """Keeps one client connected until :meth:`end`.

    :param name: for messages: ``consumer 3``.
    :param subscription: the topic filter that is subscribed before the link counts as up.
    """

    def __init__(
        self, loop: Loop, endpoint: Endpoint, options: ClientOptions, *, name: str, client_id: str, subscription: str | None = None
    ) -> None:
        self.name, self.client_id = name, client_id
        self.up = False
        self.failure: str | None = None  # why it is not up
        self.receive_maximum = 65_535  # the broker's: how many QoS > 0 messages it takes unanswered
        self.socket: PacketSocket | None = None
        self.on_written: Callable[[int], None] | None = None  # that many QoS 0 messages were written
        self.on_lost: Callable[[], None] | None = None
        self._loop, self._endpoint, self._options, self._subscription = loop, endpoint, options, subscription
        self._fd, self._mask = -1, 0
        self._said: str | None = None  # the reason that this attempt was given
        self._dialling = self._paused = self._over = False
        self._delay = FIRST_DELAY
        self._ever_up = False
        self.client = self._make_client()

    def _make_client(self) -> PahoClient:
        options = self._options
        clean = None if options.v5 else options.clean_start
        client = PahoClient(
            CallbackAPIVersion.VERSION2, self.client_id, clean_session=clean, protocol=options.version, reconnect_on_failure=False
        )
        client.max_inflight_messages_set(0)  # the producer keeps the window; paho would scan it at every answer
        if options.username is not None:
            client.username_pw_set(options.username, options.password)
        client.on_connect, client.on_disconnect, client.on_subscribe = self._on_connect, self._on_disconnect, self._on_subscribe
        client.on_socket_register_write = lambda *_: None  # any function here keeps paho from writing by itself
        endpoint = self._endpoint
        if options.v5:
            # With an expiry the session carries on at a reconnect; without one nothing is left of it, and paho has to know.
            first = paho.MQTT_CLEAN_START_FIRST_ONLY if options.session_expiry else True
            clean_start = first if options.clean_start else False
            client.connect_async(
                endpoint.host, endpoint.port, options.keep_alive, clean_start=clean_start, properties=_connect_properties(options)
            )
        else:
            client.connect_async(endpoint.host, endpoint.port, options.keep_alive)
        return client

    def dial(self) -> None:
        """Begin to connect."""
        if self._over:
            self._loop.ended(self, -1)
            return
        self._said = None
        try:
            self.socket = PacketSocket(self._endpoint)
        except OSError as error:
            self._lost(_reason(error))
            return
        self._dialling, self._fd, self._mask = True, self.socket.fileno(), select.EPOLLOUT
        self._loop.watch(self, self._fd, self._mask)

    def turn(self, sock: PacketSocket, mask: int) -> None:
        """epoll says that there is something to do on ``sock``."""
        if sock is not self.socket:
            return  # closed meanwhile
        if self._dialling:
            self._advance(sock)
        elif not self._hanging or mask & (select.EPOLLERR | select.EPOLLHUP):
            self._read(sock, mask)
        self.flush()

    def _advance(self, sock: PacketSocket) -> None:
        try:
            mask = sock.advance()
        except OSError as error:
            sock.close()
            self._lost(_reason(error))
            return
        if mask:
            self._watch(mask)
            return
        self._dialling = False
        self.client.prepared = sock
        self.client.reconnect()  # takes the prepared socket and queues CONNECT

    def _read(self, sock: PacketSocket, mask: int) -> None:
        if mask & ~select.EPOLLOUT and not sock.unread:
            sock.fill()
        client = self.client
        for _ in range(PACKETS):
            if not sock.unread:
                return
            client.loop_read()
        if sock.unread:
            self._loop.again(self, sock, select.EPOLLIN)

    def flush(self) -> None:
        """Write what the client has queued; notice when the connection is over."""
        sock = self.socket
        if sock is None or self._dialling:
            return
        if self.client.want_write():
            self.client.loop_write()
        written = sock.flush()
        if written and self.on_written is not None:
            self.on_written(written)
        if sock.closed:
            self._lost("connection lost")
        else:
            reading = 0 if self._hanging else select.EPOLLIN
            self._watch(reading | (select.EPOLLOUT if sock.unsent else 0))

    def _watch(self, mask: int) -> None:
        if mask != self._mask:
            self._mask = mask
            self._loop.change(self._fd, mask)

    @property
    def _hanging(self) -> bool:
        return self._paused and self.up

    @property
    def unsent(self) -> int:
        """Bytes waiting for the kernel."""
        return 0 if self.socket is None else self.socket.unsent

    def misc(self) -> None:
        """About once a second: keep-alive."""
        if not self._dialling:
            self.client.loop_misc()
            self.flush()

    def pause(self) -> None:
        """Stop reading, as a subscriber that hangs would."""
        self._paused = True
        self.flush()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self.flush()
        if self.socket is not None and self.socket.unread:
            self._loop.again(self, self.socket, select.EPOLLIN)

    def abandon(self, reason: str) -> None:
        """Give this connection up; another attempt follows."""
        self._said = reason
        if self._dialling:
            assert self.socket is not None
            self.socket.close()
            self._lost(reason)
        else:
            self.client.disconnect()
            self.flush()

    def end(self) -> None:
        """Disconnect for good."""
        self._over = True
        self._loop.down.pop(self, None)
        if self.socket is not None:
            self.abandon("closed")

    def _lost(self, reason: str) -> None:
        self.up = self._dialling = False
        self.socket, self.failure = None, self._said or reason
        self._loop.ended(self, self._fd)
        self._fd = -1
        if self.on_lost is not None:
            self.on_lost()
        if self._over:
            return
        if not self._ever_up:
            self._loop.failed = self
        self._loop.start(self, self._delay)
        self._delay = min(2 * self._delay, LONGEST_DELAY)

    def _established(self) -> None:
        self.up = self._ever_up = True
        self.failure, self._delay = None, FIRST_DELAY
        self._loop.established(self)

    # paho's callbacks: they note what happened and never raise.

    def _on_connect(self, _client: object, _data: object, flags: paho.ConnectFlags, reason: ReasonCode, properties: Properties) -> None:
        if reason.value >= FAILURE:
            self._said = f"the broker refused the connection: {reason}"
            return
        self.receive_maximum = getattr(properties, "ReceiveMaximum", 65_535)
        lacking = _lacking(self._options, properties)
        if lacking:
            self._said = lacking
            self.client.disconnect()
        elif self._subscription is None or (self._ever_up and flags.session_present):
            self._established()
        elif self._options.v5:
            options = SubscribeOptions(qos=self._options.qos, retainHandling=_NO_RETAINED)
            self.client.subscribe(self._subscription, options=options)
        else:
            self.client.subscribe(self._subscription, self._options.qos)

    def _on_subscribe(self, _client: object, _data: object, _mid: int, reasons: list[ReasonCode], _properties: object) -> None:
        granted = reasons[0]
        if granted.value == self._options.qos:
            self._established()
            return
        refused = granted.value >= FAILURE
        self._said = f"the broker refused {self._subscription!r}: {granted}" if refused else f"asked for QoS {self._options.qos}: {granted}"
        self.client.disconnect()

    def _on_disconnect(self, _client: object, _data: object, flags: paho.DisconnectFlags, reason: ReasonCode, _properties: object) -> None:
        if flags.is_disconnect_packet_from_server:
            self._said = f"the broker closed the connection: {reason}"
            if reason.value == SESSION_TAKEN_OVER and not self._over:
                self._loop.gone = f"{self.name}: its client id {self.client_id!r} is in use by another client (session taken over)"
        elif reason.value == KEEP_ALIVE_TIMEOUT and not self._over:
            self._said = "no answer to a ping within keepAlive"


def _connect_properties(options: ClientOptions) -> Properties:
    properties = Properties(PacketTypes.CONNECT)
    if options.session_expiry:
        properties.SessionExpiryInterval = options.session_expiry
    if options.receive_maximum is not None:
        properties.ReceiveMaximum = options.receive_maximum
    return properties


def _lacking(options: ClientOptions, properties: Properties) -> str | None:
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


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
