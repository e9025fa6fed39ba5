"""One client of the paho driver and its connection."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.columns import ArrivedMessages
from pytest_loadtest.drivers.mqtt.base_connection import ClientSpec, MqttConnectionBase
from pytest_loadtest.drivers.mqtt.options import KEEP_ALIVE_TIMEOUT, MOST_INFLIGHT
from pytest_loadtest.drivers.mqtt.paho.client import (
    PacketSocket,
    carried_value,
    make_paho_client,
    missing_paho_feature,
    send_subscribe,
)
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode


# Number of packets read in one turn, so that a consumer with a backlog does not delay the others.
PACKETS: Final = 64
_NOWHERE: Final = -1  # place of a consumer that has none yet
_REDELIVERED: Final = int(Flag.REDELIVERED)


class PahoConnection(MqttConnectionBase[PacketSocket]):
    """A connection that leaves encoding and decoding to paho.

    :ivar on_written: called with the number of QoS 0 messages that were written.
    """

    def __init__(self, client: ClientSpec) -> None:
        super().__init__(client)
        self.on_written: Callable[[int], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        # A broker may send messages before the engine knows the consumer's
        # place. They wait here until assign_place().
        self._arrivals = ArrivedMessages()
        self._place = _NOWHERE
        self._outputs = _numbers_of(client.subscription or ())
        self.client = make_paho_client(client.endpoint, client.options, client.client_id)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_disconnect = self._on_disconnect
        self.client.on_unsubscribe = self._on_unsubscribe
        self.client.on_message = self._on_message

    def assign_place(self, place: int, arrivals: ArrivedMessages) -> None:
        """Assign the consumer's place; earlier and later messages go to ``arrivals``."""
        early = self._arrivals
        arrivals.place += [place] * len(early.time)
        arrivals.time += early.time
        arrivals.payload += early.payload
        arrivals.carried += early.carried
        arrivals.flags += early.flags
        arrivals.order += early.order
        self._arrivals = arrivals
        self._place = place

    def _open(self) -> PacketSocket:
        return PacketSocket(self.endpoint, self._loop.arrivals, self._source)

    def turn(self, sock: PacketSocket, mask: int) -> None:
        # The event may be of a socket that was closed in an earlier turn of this round.
        if sock is not self.socket:
            return
        if self._dialling:
            self._advance(sock)
        elif not self._hanging or mask & (select.EPOLLERR | select.EPOLLHUP):
            self._read(sock, mask)
        self.flush()

    def _greet(self, sock: PacketSocket) -> None:
        # reconnect() takes the prepared socket and queues CONNECT.
        self.client.prepared = sock
        self.client.reconnect()

    def _read(self, sock: PacketSocket, mask: int) -> None:
        if mask & ~select.EPOLLOUT and not sock.unread:
            sock.fill()
        client = self.client
        for _ in range(PACKETS):
            if not sock.unread:
                return
            client.loop_read()
        # After a failed write flush() gives the next turn.
        if sock.unread and not sock.broken:
            self._loop.again(self, sock, select.EPOLLIN)

    def flush(self) -> None:
        sock = self.socket
        if sock is None or self._dialling:
            return
        if self.client.want_write():
            self.client.loop_write()
        written = sock.flush()
        if written and self.on_written is not None:
            self.on_written(written)
        if sock.closed:
            self._lost(sock.ending)
        elif sock.broken:
            # What arrived before the failure still counts, perhaps with the broker's reason.
            self._loop.again(self, sock, select.EPOLLHUP)
        else:
            reading = 0 if self._hanging else select.EPOLLIN
            self._watch(reading | (select.EPOLLOUT if sock.unsent else 0))

    def keep_alive(self) -> None:
        if not self._dialling:
            if self._hanging:
                self.client.pardon_ping()
            self.client.loop_misc()
            self.flush()

    def resume(self) -> None:
        super().resume()
        # Bytes in the socket's buffer cause no further event of epoll.
        if self.socket is not None and self.socket.unread:
            self._loop.again(self, self.socket, select.EPOLLIN)

    def abandon(self, reason: str) -> None:
        self._unanswered = 0
        if self._dialling:
            assert self.socket is not None
            self.socket.close()
            self._lost(reason)
        else:
            self._disconnect(reason)
            self.flush()

    def _lost(self, reason: str) -> None:
        super()._lost(reason)
        if self.on_lost is not None:
            self.on_lost()

    # --- paho's callbacks. They never raise; packets that they queue are
    # written after paho has returned.

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self.arrived += 1
        arrivals = self._arrivals
        arrivals.place.append(self._place)
        arrivals.time.append(self._loop.clock())
        # paho's parser makes bytes only.
        arrivals.payload.append(message.payload)  # type: ignore[arg-type]
        arrivals.flags.append(_REDELIVERED if message.dup else 0)
        if self._options.received.outside:
            carrier = self._options.received.carrier
            arrivals.carried.append(carried_value(message.properties, carrier))
        if self._outputs:
            arrivals.order.append(self._outputs.get(message.topic, 0))

    def _on_connect(
        self,
        _client: Client,
        _data: object,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason.value >= FAILURE:
            self._reason = f"the broker rejected the connection: {reason}"
            return
        missing = missing_paho_feature(self._options, properties)
        if missing:
            self._disconnect(missing)
        else:
            aliases = getattr(properties, "TopicAliasMaximum", 0)
            self.client.begin(aliased=self._options.aliased(aliases), session=flags.session_present)
            keep_alive = getattr(properties, "ServerKeepAlive", None)
            self._accepted(
                getattr(properties, "ReceiveMaximum", MOST_INFLIGHT),
                aliases,
                keep_alive,
                flags.session_present,
            )

    def _send_subscribe(self, topic_filters: tuple[str, ...]) -> None:
        send_subscribe(self.client, topic_filters, self._options)

    def _on_subscribe(
        self,
        _client: Client,
        _data: object,
        _mid: int,
        reasons: list[ReasonCode],
        _properties: object,
    ) -> None:
        self._granted([(reason.value, str(reason)) for reason in reasons])

    def _disconnect(self, reason: str) -> None:
        self._reason = reason
        self.client.disconnect()

    def _send_unsubscribe(self, topic_filters: tuple[str, ...]) -> None:
        self.client.unsubscribe(list(topic_filters))

    def _on_unsubscribe(self, *_: object) -> None:
        self._unsubscribed()

    def _on_disconnect(
        self,
        _client: Client,
        _data: object,
        flags: DisconnectFlags,
        reason: ReasonCode,
        _properties: object,
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._dismissed(reason.value, str(reason))
        elif reason.value == KEEP_ALIVE_TIMEOUT and not self._over:
            self._reason = "no answer to a ping within keepAlive"


def _numbers_of(filters: tuple[str, ...]) -> dict[str, int]:
    """Return the number of each topic of a consumer, the group in which order is judged; empty for
    a single one.
    """
    if len(filters) < 2:
        return {}
    numbers = {}
    for number, topic_filter in enumerate(filters):
        # $share/group/topic
        topic = (
            topic_filter.split("/", 2)[2] if topic_filter.startswith("$share/") else topic_filter
        )
        numbers[topic] = number
    return numbers
