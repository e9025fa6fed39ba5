"""One MQTT client of our own and its connection."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_loadtest.drivers.mqtt.base_connection import MqttConnectionBase
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket
from pytest_loadtest.drivers.mqtt.options import KEEP_ALIVE_TIMEOUT, MOST_INFLIGHT, NO_RETAINED, ClientOptions, lacking
from pytest_loadtest.values.quantities import SECOND
from pytest_loadtest.wire.mqtt import packets
from pytest_loadtest.wire.mqtt.codec import encode_packet
from pytest_loadtest.wire.mqtt.packets import reason_text

if TYPE_CHECKING:
    from pytest_loadtest.drivers.mqtt.loop import Loop
    from pytest_loadtest.drivers.mqtt.options import ClientOptions


class ReadsTaker(Protocol):
    """Where what connections read goes."""

    def add(self, connection: NativeConnection, data: bytes) -> int:
        """What one connection has just read. :returns: the instant."""

    def settle(self) -> None:
        """Look at what was read since the last time."""


class NativeConnection(MqttConnectionBase[BrokerSocket]):
    """Speaks MQTT itself. Further parameters: see :class:`~pytest_loadtest.drivers.mqtt.base_connection.MqttConnectionBase`.

    :param inbound: takes what is read. :param number: of this connection among the driver's.
    :param source: the address that it goes out from; None: the system chooses.
    :ivar rest: the beginning of a packet of which the end has not come yet. :ivar held: packet ids of QoS 2 messages that were taken
        and not yet released by the broker.
    """

    __slots__ = ("_inbound", "_last_in", "_last_out", "_pinged", "_session", "_source", "held", "number", "rest", "user")

    def __init__(
        self, inbound: ReadsTaker, loop: Loop, endpoint: BrokerEndpoint, options: ClientOptions, *, number: int, name: str, client_id: str,
        subscription: str | None, source: str | None,
    ) -> None:  # fmt: skip
        super().__init__(loop, endpoint, options, name, client_id, subscription)
        self.number, self._inbound, self._source = number, inbound, source
        self.user: ConnectionUser = NOBODY
        self.rest, self.held = b"", set[int]()
        self._session = False
        self._last_out = self._last_in = self._pinged = 0  # instants

    # --- its socket

    def _open(self) -> BrokerSocket:
        self.rest = b""
        return BrokerSocket(self.endpoint, self._source)

    def turn(self, sock: BrokerSocket, mask: int) -> None:
        """There is something to do on ``sock``, says epoll."""
        if sock is not self.socket:
            return  # closed meanwhile
        if mask == select.EPOLLIN and not self._paused and not self._dialling:  # nearly always
            self._read(sock)
            return
        if self._dialling:
            self._advance(sock)
            return
        if mask & (select.EPOLLERR | select.EPOLLHUP) or (mask & select.EPOLLIN and not self._hanging):
            self._read(sock)
        if mask & select.EPOLLOUT and self.socket is sock:
            self.flush()

    def _greet(self, sock: BrokerSocket) -> None:
        self._last_in = self._last_out = self._loop.clock()
        self._pinged = 0
        sock.put(connect_packet(self._options, self.client_id, again=self.ever_up))
        self.flush()

    def _read(self, sock: BrokerSocket) -> None:
        data = sock.read()
        if data:
            self._last_in = self._inbound.add(self, data)
        elif data is not None:
            self.over(sock.ending)

    def over(self, reason: str) -> None:
        """This attempt has come to its end."""
        if self.socket is not None:
            self._inbound.settle()  # what came before
        if self.socket is not None:
            self.socket.close()
            self._lost(reason)

    def put(self, data: bytes) -> None:
        """Gather for :meth:`flush`; what comes for a connection that is lost goes nowhere."""
        if self.socket is not None and not self._dialling:
            self.socket.put(data)

    def write(self, data: bytes, now: int) -> bool:
        """Write behind what was gathered, at once. :returns: whether the kernel took all of it; where not, :meth:`flush` is next."""
        sock = self.socket
        if sock is None or self._dialling or not sock.write_now(data):
            return False
        self._last_out = now
        return True

    def answer(self, data: bytes) -> None:
        """Write what answers to what was just read."""
        if not self.write(data, self._last_in):
            self.flush()

    def flush(self) -> None:
        """Write what the kernel takes of what was gathered; notice when the connection is over."""
        sock = self.socket
        if sock is None or self._dialling:
            return
        waited = sock.unsent
        sock.write()
        self._last_out = self._loop.clock()
        if waited:
            self.user.was_written()
        if sock.ended:
            self.over(sock.ending)
        else:
            self._watch((0 if self._hanging else select.EPOLLIN) | (select.EPOLLOUT if sock.unsent else 0))

    @property
    def written(self) -> int:
        """Bytes that the kernel took since this attempt began."""
        return 0 if self.socket is None else self.socket.written

    def keep_alive(self) -> None:
        """Ping the broker when nothing was sent or received for the keep-alive time; give up when it did not answer the last ping."""
        every, now = self._options.keep_alive * SECOND, self._loop.clock()
        if self._dialling or not every:
            return
        if self._hanging:
            self._pinged, self._last_in = 0, now  # while nothing is read no answer can come, though the broker sends it
        if now - min(self._last_in, self._last_out) < every:
            return
        if not self._pinged:
            self._pinged = now
            self.put(encode_packet(packets.Ping(packets.PINGREQ)))
            self.flush()
        elif now - self._pinged >= every:
            self.over("no answer to a ping within keepAlive")

    # --- its life

    def abandon(self, reason: str) -> None:
        """Give this attempt up; another one follows."""
        self._said, self._unanswered = self._said or reason, 0
        if self.socket is None:
            return
        if not self._dialling:
            self.socket.put(encode_packet(packets.Ending(packets.DISCONNECT), self._options.version))
        self.over(reason)

    def _lost(self, reason: str) -> None:
        super()._lost(reason)
        self.user.was_lost()

    def _established(self) -> None:
        super()._established()
        self.user.came_up(self._session)

    # --- what the broker says

    def packet(self, packet: packets.Packet) -> None:
        """A packet that is neither a message nor an answer to one."""
        if isinstance(packet, packets.Connack):
            self._greeted(packet)
        elif isinstance(packet, packets.SubscriptionAnswer):
            self._answered(packet)
        elif isinstance(packet, packets.Ping) and packet.kind == packets.PINGRESP:
            self._pinged = 0
        elif isinstance(packet, packets.Ending) and packet.kind == packets.DISCONNECT:
            self._dismissed(packet.reason, reason_text(packets.DISCONNECT, packet.reason, self._options.version))
        else:
            name = packet.name if isinstance(packet, packets.ClientPacket) else type(packet).__name__.upper()
            self.abandon(f"the broker sent what only clients send: {name}")

    def _greeted(self, packet: packets.Connack) -> None:
        why = connack_refusal(self._options, packet)
        if why is not None:
            self.abandon(why)
            return
        self._session = packet.session_present
        if not self._session:
            self.held.clear()
        said = packet.properties.get
        self._accepted(said("receive_maximum", MOST_INFLIGHT), said("topic_alias_maximum", 0), packet.session_present)

    def _send_subscribe(self, topic_filter: str) -> None:
        self.put(subscribe_packet(self._options, topic_filter))
        self.flush()

    def _send_unsubscribe(self, topic_filter: str) -> None:
        self.put(unsubscribe_packet(self._options, topic_filter))
        self.flush()

    def _answered(self, packet: packets.SubscriptionAnswer) -> None:
        if packet.kind == packets.UNSUBACK:
            self._unsubscribed()
            return
        assert self._subscription is not None, "only a consumer subscribes"
        granted = packet.reasons[0] if packet.reasons else packets.FAILURE
        self._granted(granted, reason_text(packets.SUBACK, granted, self._options.version))

    def _dismissed(self, reason: int, text: str) -> None:
        super()._dismissed(reason, text)
        if reason == KEEP_ALIVE_TIMEOUT:
            self._said = "the broker heard nothing of us within keepAlive"
        self.over("connection lost")


# What a connection knows of who uses it.


class ConnectionUser:
    """Who uses a connection; does nothing here."""

    __slots__ = ()

    def came_up(self, session: bool) -> None:
        """It is established. :param session: the broker still had ours."""

    def was_lost(self) -> None:
        """It is gone; another attempt follows unless it has ended."""

    def was_written(self) -> None:
        """The kernel took more of what waited."""

    def answered(self, _kind: int, _packet_id: int, _reason: int, _time: int) -> bool:
        """PUBACK, PUBREC or PUBCOMP came. :returns: whether PUBREL is the next step."""
        return False


NOBODY = ConnectionUser()
"""Of a connection that only receives."""


# What a client says before it is of use, and what the answers mean: CONNECT, SUBSCRIBE, UNSUBSCRIBE.

_SUBSCRIBE_ID: Final = 1  # of a consumer, which publishes nothing
_UNSUBSCRIBE_ID: Final = 2


def connect_packet(options: ClientOptions, client_id: str, *, again: bool) -> bytes:
    """:param again: it was connected before; with an expiry the session carries on then."""
    properties: dict[str, Any] = {}
    if options.v5 and options.session_expiry:
        properties["session_expiry_interval"] = options.session_expiry
    if options.v5 and options.receive_maximum is not None:
        properties["receive_maximum"] = options.receive_maximum
    if options.v5 and options.topic_alias_maximum:
        properties["topic_alias_maximum"] = options.topic_alias_maximum
    clean = options.clean_start and not (options.v5 and options.session_expiry and again)
    password = None if options.password is None else options.password.encode()
    return encode_packet(
        packets.Connect(client_id, options.version, clean, options.keep_alive, options.username, password, properties),
        options.version,
    )


def connack_refusal(options: ClientOptions, answer: packets.Connack) -> str | None:
    """Why this broker will not do; None where it will."""
    if answer.reason:
        return f"the broker refused the connection: {reason_text(packets.CONNACK, answer.reason, options.version)}"
    return lacking(options, answer.properties.get)


def subscribe_packet(options: ClientOptions, topic_filter: str) -> bytes:
    """Under MQTT 5 without the retained messages, which a second subscribe_packet after a reconnect would bring again."""
    wanted = packets.TopicFilter(topic_filter, options.qos, retain_handling=NO_RETAINED if options.v5 else 0)
    return encode_packet(packets.Subscribe(_SUBSCRIBE_ID, (wanted,)), options.version)


def unsubscribe_packet(options: ClientOptions, topic_filter: str) -> bytes:
    """The end of the subscription."""
    return encode_packet(packets.Unsubscribe(_UNSUBSCRIBE_ID, (topic_filter,)), options.version)
