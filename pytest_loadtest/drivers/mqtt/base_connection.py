"""The life cycle of one client's connection, for both MQTT clients.

It goes from the first dial to the end.
"""

from __future__ import annotations

import select
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint, BrokerSocket
from pytest_loadtest.drivers.mqtt.loop import SUBSCRIBES, Loop
from pytest_loadtest.drivers.mqtt.options import (
    MOST_INFLIGHT,
    NO_SUBSCRIBERS,
    SESSION_TAKEN_OVER,
    ClientOptions,
)
from pytest_loadtest.drivers.mqtt.tls import LOST, RESET, UNANSWERED
from pytest_loadtest.metrics.catalogue import with_own, without_own
from pytest_loadtest.metrics.pauses import SHORTEST
from pytest_loadtest.values.quantities import MILLISECOND, SECOND
from pytest_loadtest.wire.mqtt.packets import FAILURE, PUBACK, reason_text

if TYPE_CHECKING:
    from collections.abc import Sequence


FIRST_DELAY = 100 * MILLISECOND
LONGEST_DELAY = 5 * SECOND
# A broker may end a connection for another client with the same id without stating so: mosquitto
# 2.0, and every broker in MQTT 3.1.1. Both clients then end each other's connection again and
# again. This number of connections in a row that last less than this time ends the run.
MOST_BRIEF = 10
BRIEF = 3 * SECOND
SILENT: Final = frozenset({LOST, RESET})
# Number of consecutive UNSUBACKs without a new message before them after
# which a consumer has everything: see leave().
_QUIET: Final = 2

S = TypeVar("S", bound=BrokerSocket)


class ClientSpec(NamedTuple):
    """A client before it connects.

    :param endpoint: address of the first attempt; after a failed
        one the next of its others follows.
    :param name: name in messages.
    :param subscription: topic filters to subscribe before the
        connection counts as up; None for a producer.
    :param source: source address; None: the system chooses.
    """

    loop: Loop
    endpoint: BrokerEndpoint
    options: ClientOptions
    name: str
    client_id: str
    subscription: tuple[str, ...] | None
    source: str | None = None


class MqttConnectionBase(ABC, Generic[S]):
    """Keeps one client connected until :meth:`end`.

    :ivar receive_maximum: number of messages with QoS > 0 that the broker accepts unacknowledged.
    :ivar topic_aliases: number of aliases that the broker allows.
    :ivar keep_alive_time: s of silence after which the client pings; 0: never. The broker may
        change the requested one.
    :ivar due: instant of the first dial of a paced connection; None afterwards.
    :ivar times: collects the duration of each step that the broker confirmed, ns, by the step's
        name; None: not collected.
    :ivar failure: the reason why it is not up.
    :ivar arrived: number of messages received, counted at least while this connection is leaving.
    """

    # A worker may have many thousands of connections.
    __slots__ = (
        "_begun_late",
        "_brief",
        "_delay",
        "_dialling",
        "_down_since",
        "_failures",
        "_fd",
        "_first",
        "_loop",
        "_mask",
        "_options",
        "_over",
        "_paced",
        "_paused",
        "_quiet",
        "_reason",
        "_rejected",
        "_seen",
        "_source",
        "_started",
        "_stepped",
        "_subscription",
        "_unanswered",
        "_up_since",
        "arrived",
        "client_id",
        "due",
        "endpoint",
        "ever_up",
        "failure",
        "keep_alive_time",
        "leaving",
        "name",
        "receive_maximum",
        "socket",
        "times",
        "topic_aliases",
        "up",
    )

    def __init__(self, client: ClientSpec) -> None:
        self.name = client.name
        self.client_id = client.client_id
        self._source = client.source
        self.up = self.ever_up = self.leaving = False
        self.failure: str | None = None
        self.receive_maximum = MOST_INFLIGHT
        self.topic_aliases = 0
        self.keep_alive_time = client.options.keep_alive
        self.socket: S | None = None
        self.arrived = 0
        self.times: dict[str, list[int]] | None = None
        self.due: int | None = None
        self._paced = False
        self._started = 0  # instant at which the step began that the broker will confirm
        self._stepped = 0  # the same, without the time for which a paced connection was begun late
        self._begun_late = 0  # ns, of the generator's own doing
        self._up_since = self._down_since = (
            0  # instants; 0: it was never up, or never lost since it was up
        )
        self._brief = 0  # connections in a row that the broker ended soon and without a reason
        self._rejected = False  # the broker rejected a message on this connection
        self._unanswered = 0  # SUBSCRIBEs to which the broker answered by closing the connection
        self._loop = client.loop
        self.endpoint = client.endpoint
        self._options = client.options
        self._subscription = client.subscription
        self._first = client.endpoint
        self._failures = 0  # number of failed attempts
        self._fd = -1
        self._mask = 0
        self._delay = FIRST_DELAY
        self._reason: str | None = None  # reason of the end of this attempt, if it was stated
        self._dialling = self._paused = self._over = False
        # While leaving: consecutive UNSUBACKs without a new
        # message, and ``arrived`` at the last one.
        self._quiet = 0
        self._seen = 0

    # --- socket

    def dial(self) -> None:
        """Start to connect."""
        # end() was called while the connection waited for its turn to dial.
        if self._over:
            self._loop.ended(self, -1)
            return
        self._reason = None
        self._rejected = False
        self._stepped = self._loop.clock()
        self._started = self._begin(self._stepped)
        self.endpoint = (self._first, *self._first.others)[self._failures % self._addresses]
        try:
            self.socket = self._open()
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        self._dialling = True
        self._fd = self.socket.fileno()
        self._mask = select.EPOLLOUT
        self._loop.watch(self, self.socket, self._mask)

    @property
    def _addresses(self) -> int:
        return 1 + len(self._first.others)

    @property
    def has_failed(self) -> bool:
        """True if no address of the target has let it connect for the first time."""
        return not self.ever_up and self._failures >= self._addresses

    def _begin(self, now: int) -> int:
        """Return the instant from which this attempt counts."""
        due = self.due
        self.due = None
        self._begun_late = 0
        if due is None:
            return now
        self._paced = True
        # The generator is not late while the target has no room for another handshake: ``freed`` is
        # when there was room again.
        self._begun_late = max(now - max(due, self._loop.freed), 0)
        if self.times is not None:
            self.times.setdefault("dial", []).append(self._begun_late)
        return due

    @abstractmethod
    def _open(self) -> S:
        """Make the socket. :raises OSError: the connection is rejected at once."""

    @abstractmethod
    def turn(self, sock: S, mask: int) -> None:
        """Handle events that epoll reported for ``sock``."""

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
        """Send CONNECT."""

    @abstractmethod
    def flush(self) -> None:
        """Write as much of the gathered bytes as the kernel takes.

        Detect the end of the connection.
        """

    def _watch(self, mask: int) -> None:
        # Most calls change nothing, and epoll_ctl is a system call.
        if mask != self._mask:
            self._mask = mask
            self._loop.change(self._fd, mask)

    @property
    def _hanging(self) -> bool:
        # A paused connection that is being established reads until its subscription is confirmed.
        return self._paused and self.up

    @property
    def unsent(self) -> int:
        """Number of bytes that the kernel has not taken."""
        return 0 if self.socket is None else self.socket.unsent

    def wake(self) -> None:
        """End the driver's wait: a stream with rejected messages may have room."""
        self._loop.wake()

    @abstractmethod
    def keep_alive(self) -> None:
        """Ping the broker if nothing was sent or received for the keep-alive time.

        Give the connection up if a ping has no answer.
        """

    # --- life cycle

    def pause(self) -> None:
        """Stop reading, like a subscriber that hangs."""
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
        """Unsubscribe, receive all messages that the broker holds for this client, and disconnect.

        No other client would get them.
        """
        # A broker answers in order (MQTT 5, 4.6), and messages that wait behind Receive Maximum are
        # sent as soon as an acknowledgement makes room. So everything sent before an UNSUBACK has
        # arrived when the UNSUBACK arrives. UNSUBSCRIBE is repeated until two UNSUBACKs in a row
        # bring no new message: two, because a client that hands over a QoS 2 message at its PUBREL
        # does so one round trip after the first packet of the message.
        if self.up:
            self.leaving = True
            self._unsubscribe()
            self.resume()
        elif self._comes_back:
            # The broker goes on to give messages to the session: the client unsubscribes when it is
            # connected again. Until then it counts as disconnected, and end() ends it.
            self.leaving = True
            self._paused = False
        else:
            self.end()

    @property
    def _comes_back(self) -> bool:
        """True if a client that leaves must connect again first."""
        return self.ever_up and self._options.durable

    def end(self) -> None:
        """Disconnect for good."""
        self._over = True
        self._loop.down.pop(self, None)
        if self.socket is not None:
            self.abandon("closed")

    def _lost(self, reason: str) -> None:
        if self.ever_up and not self._over:
            self._count_loss(self._reason or reason)
        was_up = self.up
        self.up = False
        self._dialling = False
        self.socket = None
        self.failure = self._reason or reason
        self._loop.ended(self, self._fd)
        self._fd = -1
        if self._over or (self.leaving and not self._comes_back):
            self._over = True
            return
        # Artemis may answer a SUBSCRIBE by closing the connection (docs/decisions/017): the client
        # asks again before it fails.
        if not self.ever_up and 0 < self._unanswered < SUBSCRIBES:
            self.note_incident(
                "subscription repeated: the broker had closed the connection instead of answering"
            )
            self.failure = None
        elif not was_up:
            self._failures += 1
            if self.has_failed:
                self._loop.failed = self
        # The delay doubles up to a limit, once for all addresses: thousands of clients must not
        # dial a broken broker all the time.
        self._loop.start(self, self._delay)
        if self._failures % self._addresses == 0:
            self._delay = min(2 * self._delay, LONGEST_DELAY)

    def _count_loss(self, reason: str) -> None:
        if not self.up:
            # The rest of that text is a question about the first connection.
            self.note_incident(
                f"reconnect failed: {UNANSWERED if reason.startswith(UNANSWERED) else reason}"
            )
            return
        self._loop.counts.losses += 1
        self.note_incident(reason if reason in SILENT else f"{LOST}: {reason}")
        self._down_since = self._loop.clock()
        silent = reason in SILENT and not self._rejected
        self._brief = self._brief + 1 if silent and self._down_since - self._up_since < BRIEF else 0
        if self._brief >= MOST_BRIEF:
            again = (
                f"the broker ended {MOST_BRIEF} connections in a row within {BRIEF // SECOND} s"
                " each, without a reason"
            )
            cause = (
                f"is its client id {self.client_id!r} in use by another client, or does the broker"
                " reject what it sends?"
            )
            self._loop.fatal = f"{self.name}: {again}: {cause}"

    def note_incident(self, text: str) -> None:
        """Count an incident; see :class:`~pytest_loadtest.drivers.base.DriverFacts`."""
        self._loop.counts.incidents[text] += 1

    def note_reason(self, reason: int) -> None:
        """Count an acknowledgement that rejects its message.

        One that says that no client gets it counts too (MQTT 5, 3.4.2.1).
        """
        if reason >= FAILURE:
            self._rejected = True
            self.note_incident(
                "message rejected by the broker:"
                f" {reason_text(PUBACK, reason, self._options.version)}"
            )
        elif reason == NO_SUBSCRIBERS and self._options.consumed:
            self.note_incident("message acknowledged by a broker without a subscription for it")

    def _confirmed(self, step: str) -> None:
        now = self._loop.clock()
        # The first welcome of a paced connection counted already if the broker then closed the
        # connection instead of a SUBACK.
        if self.times is not None and not (self._paced and self._unanswered):
            self._note_time(self.times, step, now)
            if self._paced and step == "connect":
                self.times.setdefault("up", []).append(now)
        self._started = self._stepped = now
        self._begun_late = 0

    def _note_time(self, times: dict[str, list[int]], step: str, now: int) -> None:
        took = now - self._started
        times[step].append(took)
        own = min(self._begun_late + self._loop.stalled(self._stepped), took)
        if own > SHORTEST:
            times.setdefault(with_own(step), []).append(took)
            times.setdefault(without_own(step), []).append(took - own)

    def _established(self) -> None:
        self.up = self.ever_up = True
        self.failure = None
        self._delay = FIRST_DELAY
        self._up_since = self._started
        if self._down_since:
            self._note_reconnect(self._started - self._down_since)
            self._down_since = 0
        # A reconnect is not paced. Its short time would hide how
        # late the connection was when it was due.
        if self._paced:
            self.times = None
        self._loop.established(self)
        # It left while it was not connected, or lost its connection before the last UNSUBACK.
        if self.leaving:
            self._quiet = 0
            self._unsubscribe()

    def _note_reconnect(self, took: int) -> None:
        counts = self._loop.counts
        counts.reconnects.append(took)
        own = min(self._loop.stalled(self._down_since), took)
        if own:
            counts.reconnects_with_own.append(took)
            counts.reconnects_without_own.append(took - own)

    # --- packets of the broker

    def _accepted(
        self, receive_maximum: int, topic_aliases: int, keep_alive: int | None, session: bool
    ) -> None:
        """Handle CONNACK of a broker that has the features needed.

        :param keep_alive: s, the broker's Server Keep Alive; None: it sent none.
        :param session: it still has the client's session.
        """
        self.receive_maximum = receive_maximum
        self.topic_aliases = topic_aliases
        # The broker's value replaces the client's own (MQTT 5, 3.2.2.3.14).
        self.keep_alive_time = self._options.keep_alive if keep_alive is None else keep_alive
        self._loop.check_within(self.keep_alive_time * SECOND)
        self._confirmed("connect")
        if self.ever_up and not session:
            self._note_forgotten()
        # A client that leaves needs no new subscription.
        if self._subscription is None or (self.ever_up and (session or self.leaving)):
            self._established()
        else:
            self._unanswered += 1
            self._send_subscribe(self._subscription)

    def _note_forgotten(self) -> None:
        """Note that the broker no longer has the client's session."""
        if self._subscription is None:
            self._loop.counts.forgotten += 1
        elif self._options.durable:
            self.note_incident(
                "the broker had forgotten the session of a consumer, and what it held for it"
            )

    @abstractmethod
    def _send_subscribe(self, topic_filters: tuple[str, ...]) -> None:
        """Send SUBSCRIBE."""

    def _granted(self, answers: Sequence[tuple[int, str]]) -> None:
        """Handle SUBACK.

        :param answers: for each topic filter the granted QoS, or a failure, and its text.
        """
        self._unanswered = 0
        filters = self._subscription or ()
        for topic_filter, (reason, text) in zip(filters, answers, strict=False):
            if reason >= FAILURE:
                self._disconnect(f"the broker rejected {topic_filter!r}: {text}")
                return
            if reason != self._options.qos:
                self._disconnect(f"requested QoS {self._options.qos}: {text}")
                return
        if len(answers) < len(filters):
            self._disconnect(f"the broker confirmed {len(answers)} of {', '.join(filters)}")
            return
        self._confirmed("subscribe")
        self._established()

    def _disconnect(self, reason: str) -> None:
        """Disconnect from within the handling of a packet."""
        self.abandon(reason)

    def _unsubscribe(self) -> None:
        assert self._subscription is not None, "only a consumer leaves"
        self._seen = self.arrived
        self._send_unsubscribe(self._subscription)

    @abstractmethod
    def _send_unsubscribe(self, topic_filters: tuple[str, ...]) -> None:
        """Send UNSUBSCRIBE."""

    def _unsubscribed(self) -> None:
        """Handle UNSUBACK."""
        self._quiet = self._quiet + 1 if self.arrived == self._seen else 0
        if self._quiet == _QUIET:
            self._over = True
            self._disconnect("closed")
        else:
            self._unsubscribe()

    def _dismissed(self, reason: int, text: str) -> None:
        """Handle DISCONNECT. :param text: text of the reason."""
        self._reason = f"the broker closed the connection: {text}"
        # Both clients would throw each other out at every
        # reconnect, so the run ends (MQTT 5, 3.1.4).
        if reason == SESSION_TAKEN_OVER and not self._over:
            self._loop.fatal = (
                f"{self.name}: its client id {self.client_id!r} is in use by another client"
                " (session taken over)"
            )
