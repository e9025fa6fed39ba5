"""One client's connection, from the first dial to the end: what is the same whoever speaks MQTT over it."""

from __future__ import annotations

import select
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pytest_loadtest.drivers.mqtt.broker_socket import BrokerSocket
from pytest_loadtest.drivers.mqtt.loop import SUBSCRIBES
from pytest_loadtest.drivers.mqtt.options import MOST_INFLIGHT, SESSION_TAKEN_OVER, ClientOptions
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint
    from pytest_loadtest.drivers.mqtt.loop import Loop

FIRST_DELAY, LONGEST_DELAY = 100 * MILLISECOND, 5 * SECOND
_QUIET: Final = 2  # UNSUBACKs in a row with nothing new before them

S = TypeVar("S", bound=BrokerSocket)


class MqttConnectionBase(ABC, Generic[S]):
    """Keeps one client connected until :meth:`end`.

    :param name: for messages: ``consumer 3``.
    :param subscription: the topic filter that is subscribed before the connection counts as up.
    :ivar endpoint: where it connects to.
    :ivar receive_maximum: the broker's: how many QoS > 0 messages it takes unanswered. :ivar topic_aliases: that it allows.
    :ivar due: when it is to be dialled the first time, where that is paced; None afterwards.
    :ivar times: where it is noted how long each step took that the broker confirmed, ns.
    :ivar arrived: messages so far, counted by who takes them, at least while this connection is leaving.
    """

    __slots__ = (  # there are many thousands
        "_asked", "_delay", "_dialling", "_fd", "_loop", "_mask", "_options", "_over", "_paced", "_paused", "_quiet", "_said", "_seen",
        "_subscription", "_unanswered", "arrived", "client_id", "due", "endpoint", "ever_up", "failure", "leaving", "name",
        "receive_maximum", "socket", "times", "topic_aliases", "up",
    )  # fmt: skip

    def __init__(
        self, loop: Loop, endpoint: BrokerEndpoint, options: ClientOptions, name: str, client_id: str, subscription: str | None
    ) -> None:
        self.name, self.client_id = name, client_id
        self.up = self.ever_up = self.leaving = False
        self.failure: str | None = None  # why it is not up
        self.receive_maximum, self.topic_aliases = MOST_INFLIGHT, 0
        self.socket: S | None = None
        self.arrived = 0
        self.times: dict[str, list[int]] | None = None
        self.due: int | None = None
        self._paced = False
        self._asked = 0  # when the step began that the broker is to confirm
        self._unanswered = 0  # subscriptions asked for, on which the broker hung up
        self._loop, self.endpoint, self._options, self._subscription = loop, endpoint, options, subscription
        self._fd, self._mask, self._delay = -1, 0, FIRST_DELAY
        self._said: str | None = None  # why this attempt ended, where somebody told
        self._dialling = self._paused = self._over = False
        self._quiet, self._seen = 0, 0  # while leaving: UNSUBACKs in a row with nothing new before them; arrivals at the last one

    # --- its socket

    def dial(self) -> None:
        """Begin to connect."""
        if self._over:
            self._loop.ended(self, -1)
            return
        self._said, self._asked = None, self._begin(self._loop.clock())
        try:
            self.socket = self._open()
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        self._dialling, self._fd, self._mask = True, self.socket.fileno(), select.EPOLLOUT
        self._loop.watch(self, self.socket, self._mask)

    def _begin(self, now: int) -> int:
        """From when on this attempt counts."""
        due, self.due = self.due, None
        if due is None:
            return now
        self._paced = True
        if self.times is not None:
            self.times.setdefault("dial", []).append(max(now - max(due, self._loop.freed), 0))
        return due

    @abstractmethod
    def _open(self) -> S:
        """:raises OSError: the connection is refused at once."""

    @abstractmethod
    def turn(self, sock: S, mask: int) -> None:
        """There is something to do on ``sock``, says epoll."""

    def _advance(self, sock: S) -> None:
        try:
            mask = sock.advance()
        except OSError as error:
            sock.close()
            self._lost(error.strerror or str(error))
            return
        if mask:
            self._watch(mask)
            return
        self._dialling = False
        self._greet(sock)

    @abstractmethod
    def _greet(self, sock: S) -> None:
        """CONNECT."""

    @abstractmethod
    def flush(self) -> None:
        """Write what the kernel takes of what was gathered; notice when the connection is over."""

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

    def wake(self) -> None:
        """Let the driver's wait end: a stream that was refused may find room."""
        self._loop.wake()

    @abstractmethod
    def keep_alive(self) -> None:
        """Ping the broker when nothing was sent or received for the keep-alive time; give up when it did not answer the last ping."""

    # --- its life

    def pause(self) -> None:
        """Stop reading, as a subscriber that hangs would."""
        self._paused = True
        self.flush()

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        self.flush()

    @abstractmethod
    def abandon(self, reason: str) -> None:
        """Give this attempt up; another one follows."""

    def leave(self) -> None:
        """Unsubscribe, take what the broker has for this client, and only then disconnect: brokers give it to nobody else.

        A broker answers in order (MQTT 5, 4.6), and what waits behind Receive Maximum goes out as soon as an acknowledgement makes room.
        So whatever the broker sent before an UNSUBACK has come when that comes. Unsubscribing is repeated until twice in a row nothing
        new has come: twice because a client that hands a QoS 2 message over at its PUBREL does so one round after its first packet.
        """
        if not self.up:
            self.end()
            return
        self.leaving = True
        self._unsubscribe()
        self.resume()

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
        if self._over or self.leaving:
            self._over = True
            return
        if not self.ever_up and 0 < self._unanswered < SUBSCRIBES:
            self._loop.repeated += 1
            self.failure = None
        elif not self.ever_up:
            self._loop.failed = self
        self._loop.start(self, self._delay)
        self._delay = min(2 * self._delay, LONGEST_DELAY)

    def _confirmed(self, step: str) -> None:
        now = self._loop.clock()
        if self.times is not None and not (self._paced and self._unanswered):  # its first welcome counted, before the broker hung up
            self.times[step].append(now - self._asked)
            if self._paced and step == "connect":
                self.times.setdefault("up", []).append(now)
        self._asked = now

    def _established(self) -> None:
        self.up = self.ever_up = True
        self.failure, self._delay = None, FIRST_DELAY
        if self._paced:
            self.times = None  # one that comes again counts from its first packet, and quick ones would hide that it was slow when due
        self._loop.established(self)

    # --- what the broker says

    def _accepted(self, receive_maximum: int, topic_aliases: int, session: bool) -> None:
        """CONNACK, of a broker that will do. :param session: it still had ours."""
        self.receive_maximum, self.topic_aliases = receive_maximum, topic_aliases
        self._confirmed("connect")
        self._loop.forgotten += self._subscription is None and self.ever_up and not session
        if self._subscription is None or (self.ever_up and session):
            self._established()
        else:
            self._unanswered += 1
            self._send_subscribe(self._subscription)

    @abstractmethod
    def _send_subscribe(self, topic_filter: str) -> None:
        """SUBSCRIBE."""

    def _granted(self, reason: int, text: str) -> None:
        """SUBACK. :param reason: the QoS, or a failure. :param text: the same in words."""
        self._unanswered = 0
        if reason == self._options.qos:
            self._confirmed("subscribe")
            self._established()
            return
        refused = reason >= FAILURE
        self._refuse(f"the broker refused {self._subscription!r}: {text}" if refused else f"asked for QoS {self._options.qos}: {text}")

    def _refuse(self, reason: str) -> None:
        """Disconnect, after what a packet said."""
        self.abandon(reason)

    def _unsubscribe(self) -> None:
        assert self._subscription is not None, "only a consumer leaves"
        self._seen = self.arrived
        self._send_unsubscribe(self._subscription)

    @abstractmethod
    def _send_unsubscribe(self, topic_filter: str) -> None:
        """UNSUBSCRIBE."""

    def _unsubscribed(self) -> None:
        """UNSUBACK."""
        self._quiet = self._quiet + 1 if self.arrived == self._seen else 0
        if self._quiet == _QUIET:
            self._over = True
            self._refuse("closed")
        else:
            self._unsubscribe()

    def _dismissed(self, reason: int, text: str) -> None:
        """DISCONNECT. :param text: its reason in words."""
        self._said = f"the broker closed the connection: {text}"
        if reason == SESSION_TAKEN_OVER and not self._over:
            self._loop.gone = f"{self.name}: its client id {self.client_id!r} is in use by another client (session taken over)"
