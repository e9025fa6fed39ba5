"""One paho client and its connection: dialled, greeted, subscribed, dialled again when it is lost."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers._mqtt_paho import (
    FAILURE,
    KEEP_ALIVE_TIMEOUT,
    SESSION_TAKEN_OVER,
    ClientOptions,
    lacking,
    make_client,
    subscribe,
)
from pytest_loadtest.drivers._mqtt_socket import Endpoint, PacketSocket
from pytest_loadtest.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from pytest_loadtest.drivers._mqtt_loop import Loop

PACKETS: Final = 64  # read in one turn, so that a consumer that is behind does not hold up the others
_QUIET: Final = 2
FIRST_DELAY, LONGEST_DELAY = 100 * MILLISECOND, 5 * SECOND


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
        self.arrived = 0  # messages so far, counted by who takes them
        self._loop, self._endpoint, self._options, self._subscription = loop, endpoint, options, subscription
        self._fd, self._mask = -1, 0
        self._said: str | None = None  # the reason that this attempt was given
        self._dialling = self._paused = self._over = self._leaving = False
        self._quiet, self._seen = 0, 0  # rounds of leaving without an arrival; arrivals at the last one
        self._delay = FIRST_DELAY
        self.ever_up = False
        self.client = make_client(endpoint, options, client_id)
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_disconnect = self._on_disconnect
        self.client.on_unsubscribe = self._on_unsubscribe

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
        """There is something to do on ``sock``, says epoll."""
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
        """Once a second or more often: keep-alive."""
        if not self._dialling:
            if self._hanging:
                self.client.pardon_ping()
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

    def leave(self) -> None:
        """Unsubscribe, take what the broker has for this client, and only then disconnect: brokers give it to nobody else.

        A broker answers in order (MQTT 5, 4.6), and what waits behind Receive Maximum goes out as soon as an acknowledgement makes room.
        So each UNSUBACK says what was sent before it: the link asks again until two in a row found nothing new, two because a QoS 2
        message arrives one round after its first packet.
        """
        if not self.up:
            self.end()
            return
        self._leaving, self._seen = True, self.arrived
        self._unsubscribe()
        self.resume()

    def _unsubscribe(self) -> None:
        assert self._subscription is not None, "only a consumer leaves"
        self.client.unsubscribe(self._subscription)

    def end(self) -> None:
        """Disconnect for good."""
        self._over = True
        self._loop.down.pop(self, None)
        if self.socket is not None:
            self.abandon("closed")

    def _lost(self, reason: str) -> None:
        self._loop.losses += self.up and not self._over
        self.up = self._dialling = False
        self.socket, self.failure = None, self._said or reason
        self._loop.ended(self, self._fd)
        self._fd = -1
        if self.on_lost is not None:
            self.on_lost()
        if self._over or self._leaving:
            self._over = True
            return
        if not self.ever_up:
            self._loop.failed = self
        self._loop.start(self, self._delay)
        self._delay = min(2 * self._delay, LONGEST_DELAY)

    def _established(self) -> None:
        self.up = self.ever_up = True
        self.failure, self._delay = None, FIRST_DELAY
        self._loop.established(self)

    # paho's callbacks: they note what happened and never raise.

    def _on_connect(self, _client: Client, _data: object, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None) -> None:
        if reason.value >= FAILURE:
            self._said = f"the broker refused the connection: {reason}"
            return
        self.receive_maximum = getattr(properties, "ReceiveMaximum", 65_535)
        missing = lacking(self._options, properties)
        if missing:
            self._said = missing
            self.client.disconnect()
        elif self._subscription is None or (self.ever_up and flags.session_present):
            self._established()
        else:
            subscribe(self.client, self._subscription, self._options)

    def _on_subscribe(self, _client: Client, _data: object, _mid: int, reasons: list[ReasonCode], _properties: object) -> None:
        granted = reasons[0]
        if granted.value == self._options.qos:
            self._established()
            return
        refused = granted.value >= FAILURE
        self._said = f"the broker refused {self._subscription!r}: {granted}" if refused else f"asked for QoS {self._options.qos}: {granted}"
        self.client.disconnect()

    def _on_unsubscribe(self, *_: object) -> None:
        self._quiet = self._quiet + 1 if self.arrived == self._seen else 0
        self._seen = self.arrived
        if self._quiet == _QUIET:
            self._over = True
            self.client.disconnect()
        else:
            self._unsubscribe()

    def _on_disconnect(self, _client: Client, _data: object, flags: DisconnectFlags, reason: ReasonCode, _properties: object) -> None:
        if flags.is_disconnect_packet_from_server:
            self._said = f"the broker closed the connection: {reason}"
            if reason.value == SESSION_TAKEN_OVER and not self._over:
                self._loop.gone = f"{self.name}: its client id {self.client_id!r} is in use by another client (session taken over)"
        elif reason.value == KEEP_ALIVE_TIMEOUT and not self._over:
            self._said = "no answer to a ping within keepAlive"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
