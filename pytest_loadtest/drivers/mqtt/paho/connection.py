"""One paho client and its connection."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.mqtt.base_connection import MqttConnectionBase
from pytest_loadtest.drivers.mqtt.options import KEEP_ALIVE_TIMEOUT, MOST_INFLIGHT, ClientOptions
from pytest_loadtest.drivers.mqtt.paho.client import PacketSocket, lacking_of, make_paho_client, subscribe
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint
    from pytest_loadtest.drivers.mqtt.loop import Loop

PACKETS: Final = 64  # read in one turn, so that a consumer that is behind does not hold up the others


class PahoConnection(MqttConnectionBase[PacketSocket]):
    """Leaves the packets to paho. Parameters: see :class:`~pytest_loadtest.drivers.mqtt.base_connection.MqttConnectionBase`."""

    def __init__(
        self, loop: Loop, endpoint: BrokerEndpoint, options: ClientOptions, name: str, client_id: str, subscription: str | None
    ) -> None:
        super().__init__(loop, endpoint, options, name, client_id, subscription)
        self.on_written: Callable[[int], None] | None = None  # that many QoS 0 messages were written
        self.on_lost: Callable[[], None] | None = None
        self.client = make_paho_client(endpoint, options, client_id)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_disconnect = self._on_disconnect
        self.client.on_unsubscribe = self._on_unsubscribe

    def _open(self) -> PacketSocket:
        return PacketSocket(self.endpoint)

    def turn(self, sock: PacketSocket, mask: int) -> None:
        """There is something to do on ``sock``, says epoll."""
        if sock is not self.socket:
            return  # closed meanwhile
        if self._dialling:
            self._advance(sock)
        elif not self._hanging or mask & (select.EPOLLERR | select.EPOLLHUP):
            self._read(sock, mask)
        self.flush()

    def _greet(self, sock: PacketSocket) -> None:
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
            self._lost(sock.ending)
        else:
            reading = 0 if self._hanging else select.EPOLLIN
            self._watch(reading | (select.EPOLLOUT if sock.unsent else 0))

    def keep_alive(self) -> None:
        """Ping the broker when nothing was sent or received for the keep-alive time; give up when it did not answer the last ping."""
        if not self._dialling:
            if self._hanging:
                self.client.pardon_ping()
            self.client.loop_misc()
            self.flush()

    def resume(self) -> None:
        """Read again."""
        super().resume()
        if self.socket is not None and self.socket.unread:
            self._loop.again(self, self.socket, select.EPOLLIN)

    def abandon(self, reason: str) -> None:
        """Give this attempt up; another one follows."""
        self._unanswered = 0
        if self._dialling:
            assert self.socket is not None
            self.socket.close()
            self._lost(reason)
        else:
            self._refuse(reason)
            self.flush()

    def _lost(self, reason: str) -> None:
        super()._lost(reason)
        if self.on_lost is not None:
            self.on_lost()

    # paho's callbacks: they note what happened and never raise. What is to be written goes out when paho has returned.

    def _on_connect(self, _client: Client, _data: object, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None) -> None:
        if reason.value >= FAILURE:
            self._said = f"the broker refused the connection: {reason}"
            return
        missing = lacking_of(self._options, properties)
        if missing:
            self._refuse(missing)
        else:
            aliases = getattr(properties, "TopicAliasMaximum", 0)
            self.client.begin(aliased=self._options.aliased(aliases))
            self._accepted(getattr(properties, "ReceiveMaximum", MOST_INFLIGHT), aliases, flags.session_present)

    def _send_subscribe(self, topic_filter: str) -> None:
        subscribe(self.client, topic_filter, self._options)

    def _on_subscribe(self, _client: Client, _data: object, _mid: int, reasons: list[ReasonCode], _properties: object) -> None:
        self._granted(reasons[0].value, str(reasons[0]))

    def _refuse(self, reason: str) -> None:
        self._said = reason
        self.client.disconnect()

    def _send_unsubscribe(self, topic_filter: str) -> None:
        self.client.unsubscribe(topic_filter)

    def _on_unsubscribe(self, *_: object) -> None:
        self._unsubscribed()

    def _on_disconnect(self, _client: Client, _data: object, flags: DisconnectFlags, reason: ReasonCode, _properties: object) -> None:
        if flags.is_disconnect_packet_from_server:
            self._dismissed(reason.value, str(reason))
        elif reason.value == KEEP_ALIVE_TIMEOUT and not self._over:
            self._said = "no answer to a ping within keepAlive"
