"""The producers of the native driver.

Bursts become packets, grouped by connection, and answers are assigned to their rows.
"""

from __future__ import annotations

from itertools import accumulate, takewhile
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_loadtest.drivers.columns import AnswerColumns
from pytest_loadtest.drivers.mqtt.native.connection import ConnectionUser, NativeConnection
from pytest_loadtest.drivers.mqtt.options import IDENTIFIER_NOT_FOUND, ClientOptions, topic_name
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.carried import carried_values
from pytest_loadtest.message.samples import Status
from pytest_loadtest.wire.mqtt.fields import text, variable
from pytest_loadtest.wire.mqtt.packets import FAILURE, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from pytest_loadtest.wire.mqtt.reading import encode_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Burst, DriverContext

# Number of messages between two writes: the first message of a
# large burst does not wait for the last.
CHUNK: Final = 64
# Bytes. The window of a QoS 0 producer is full while more than this waits for the kernel.
UNSENT: Final = 65_536
_DUP: Final = 8
_MOST_RESENDS: Final = 255  # limit of the column
_IDS: Final = 65_535  # packet identifiers are 1 to this (MQTT 5, 2.2.1)
_ENDLESS: Final = 1 << 40
_ALIASED: Final = text("")  # the topic in a PUBLISH with an alias (MQTT 5, 3.3.2.1)
_ACKED = int(Status.ACKED)
_FAILED = int(Status.FAILED)


class NativeMqttProducers:
    """All producers of a driver, each with its own connection.

    QoS 1 and 2: the window is ``maxInflightMessages``, or the broker's Receive Maximum if that is
    lower. QoS 0: the window is full while the kernel takes no more bytes.
    """

    def __init__(self, context: DriverContext, options: ClientOptions) -> None:
        self._context = context
        self._options = options
        self._clock = context.clock
        self._qos: int = context.settings.qos
        self._first = PUBLISH << 4 | self._qos << 1 | bool(context.settings.retain)
        self._topics: dict[int, bytes] = {}
        self._fronts: dict[bytes, _Fronts] = {}
        self._properties = {False: b"", True: b""}  # by whether the topic has an alias
        if options.v5:
            for aliased in (False, True):
                self._properties[aliased] = options.before_envelope(aliased=aliased)
        self._producers: dict[int, _Producer] = {}  # by stream
        self.answers = AnswerColumns()
        self.acks = self.answers.take

    def add(self, stream: int, connection: NativeConnection) -> None:
        topic = self._context.topology.topic_of_stream(stream)
        name = self._topics.setdefault(topic, text(topic_name(self._context, topic)))
        self._producers[stream] = _Producer(
            self, connection, name, self._qos, self._context.settings.max_inflight_messages
        )

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        pool = self._context.pool
        count = len(burst)
        heads = envelope.encode_heads(
            pool,
            nonce=self._context.nonce,
            stream=burst.stream,
            seq=burst.seq,
            intended=burst.intended,
            payload=burst.payload,
        )
        messages = payloads.whole_payloads(pool, heads, burst.payload, burst.key)
        # The value of the last property comes right before the body.
        if pool.place.outside:
            messages = list(map(add, carried_values(pool.place.carrier, heads), messages))
        # Plain lists from here on: each message becomes a packet of its own, and single elements of
        # lists are cheaper than of columns.
        outgoing = _Outgoing(
            burst.row.tolist(),
            messages,
            [0] * count,
            [0] * count,
        )
        by_stream: dict[int, list[int]] = {}
        for position, stream in enumerate(burst.stream.tolist()):
            by_stream.setdefault(stream, []).append(position)
        rejected = []
        for stream, positions in by_stream.items():
            producer = self._producers[stream]
            taken = producer.send(positions, outgoing)
            producer.starved = taken < len(positions)
            rejected += positions[taken:]
        burst.sent[:] = outgoing.sent
        burst.idle[:] = outgoing.idle
        return np.array(sorted(rejected), np.int64) if rejected else None

    def fronts(self, topic: bytes) -> _Fronts:
        """Return the packet starts for a topic."""
        return self._fronts.setdefault(topic, _Fronts(self._first, topic, 2 if self._qos else 0))

    def properties(self, allowed: int) -> tuple[bytes, bool]:
        """Return the encoded properties of each message on a connection.

        The second value is True if the topic has an alias.

        :param allowed: number of aliases that the broker allows.
        """
        aliased = self._options.aliased(allowed)
        return self._properties[aliased], aliased

    def now(self) -> int:
        return self._clock()


class _Fronts(dict[int, bytes]):
    """The starts of PUBLISH packets up to the topic.

    There is one for each size of properties and payload together.
    """

    # Packets of one size have the same start, so each start is encoded once.

    def __init__(self, first: int, topic: bytes, id_size: int) -> None:
        self._first = bytes([first])
        self._topic = topic
        self._more = len(topic) + id_size

    def __missing__(self, rest: int) -> bytes:
        front = self[rest] = self._first + variable(self._more + rest) + self._topic
        return front


class _Outgoing(NamedTuple):
    """A burst as lists, by position; producers fill in ``sent`` and ``idle``.

    ``messages``: bodies, each after its envelope if that is the value of a property.
    """

    rows: list[int]
    messages: list[bytes]
    sent: list[int]
    idle: list[int]


class _Producer(ConnectionUser):
    """The producer of one stream. :ivar starved: the last burst had messages that found no room."""

    __slots__ = (
        "_all",
        "_connection",
        "_fronts",
        "_idle_since",
        "_later",
        "_messages",
        "_most",
        "_name",
        "_next",
        "_properties",
        "_qos",
        "_released",
        "_resends",
        "_room",
        "_rows",
        "_unwritten",
        "starved",
    )

    def __init__(
        self,
        producers: NativeMqttProducers,
        connection: NativeConnection,
        topic: bytes,
        qos: int,
        most: int,
    ) -> None:
        self.starved = False
        self._all = producers
        self._connection = connection
        self._name = topic
        self._qos = qos
        self._most = most
        self._fronts = self._later = producers.fronts(
            topic
        )  # packet starts of the next message, and of the messages after it
        self._properties = b""
        self._room = 0  # number of messages that the window takes
        self._idle_since = (
            0  # instant at which the window became empty; 0 while anything is in flight
        )
        # Messages that are not completely acknowledged, by packet id, in
        # the order in which they were first sent.
        self._rows: dict[int, int] = {}
        self._messages: dict[int, bytes] = {}
        # Packet ids whose PUBREC was received (QoS 2) → PUBREL was sent again after a reconnect.
        self._released: dict[int, bool] = {}
        self._resends: dict[int, int] = {}  # packet id → number of resends, where not 0
        self._unwritten: list[
            tuple[int, int]
        ] = []  # at QoS 0: end of each message in the stream of bytes, its row
        self._next = 1
        connection.user = self

    def send(self, positions: list[int], outgoing: _Outgoing) -> int:
        """Send the messages at these positions, as far as there is room; return their number."""
        sent = 0
        while sent < len(positions) and self._room > 0:
            chunk = positions[sent : sent + min(CHUNK, self._room)]
            self._send(chunk, outgoing)
            sent += len(chunk)
        return sent

    def _send(self, positions: list[int], outgoing: _Outgoing) -> None:
        messages = [outgoing.messages[position] for position in positions]
        rows = [outgoing.rows[position] for position in positions]
        if self._qos:
            ids = self._free_ids(len(positions))
            self._rows.update(zip(ids, rows, strict=True))
            self._messages.update(zip(ids, messages, strict=True))
            self._room -= len(ids)
            packets = list(map(self._identified, ids, messages))
        else:
            packets = list(map(self._bare, messages))
        if self._idle_since:
            outgoing.idle[positions[0]] = self._idle_since
            self._idle_since = 0
        # One timestamp for a chunk, right before the system call that writes it.
        now = self._all.now()
        for position in positions:
            outgoing.sent[position] = now
        self._write(packets, rows, now)

    def _write(self, packets: list[bytes], rows: list[int], now: int) -> None:
        connection = self._connection
        data = b"".join(packets)
        end = connection.written + connection.unsent
        # At QoS 0 a message counts as acknowledged when the kernel has taken its last byte.
        if connection.write(data, now):
            if not self._qos:
                self._answer(rows, self._all.now(), _ACKED)
            return
        if not self._qos:
            ends = list(accumulate(map(len, packets), initial=end))[1:]
            self._unwritten.extend(zip(ends, rows, strict=True))
        connection.flush()

    def _identified(self, packet_id: int, message: bytes) -> bytes:
        fronts = self._fronts
        properties = self._properties
        self._fronts = self._later
        return b"".join(
            (
                fronts[len(properties) + len(message)],
                packet_id.to_bytes(2, "big"),
                properties,
                message,
            )
        )

    def _bare(self, message: bytes) -> bytes:
        fronts = self._fronts
        properties = self._properties
        self._fronts = self._later
        return b"".join((fronts[len(properties) + len(message)], properties, message))

    def _free_ids(self, count: int) -> list[int]:
        # An id may still be in use 65 535 messages later. Others are free, because a window has at
        # most as many messages as there are ids.
        ids: list[int] = []
        while len(ids) < count:
            if self._next not in self._rows:
                ids.append(self._next)
            self._next = self._next % _IDS + 1
        return ids

    # --- notifications of the connection

    def answered(self, kind: int, packet_id: int, reason: int, time: int) -> bool:
        if not self._is_due(kind, packet_id):
            self._connection.reject(
                f"packet {kind} for packet identifier {packet_id}, not the answer that a message"
                f" at QoS {self._qos} needs"
            )
            return False
        # The broker has completed a message whose PUBREL it gets a second time, and forgotten its
        # identifier (MQTT 5, 3.7.2.1).
        if reason == IDENTIFIER_NOT_FOUND and kind == PUBCOMP and self._released.get(packet_id):
            reason = 0
        if reason and packet_id in self._rows:
            self._connection.note_reason(reason)
        # PUBREC is followed by PUBREL even for an unknown message, so that the broker completes the
        # exchange (MQTT 5, 4.3.3).
        if kind == PUBREC and reason < FAILURE:
            if packet_id in self._rows:
                self._released.setdefault(packet_id, False)
            return True
        row = self._rows.pop(packet_id, None)
        if row is not None:
            del self._messages[packet_id]
            self._released.pop(packet_id, None)
            self._room += 1
            self._all.answers.add_one(
                row, time, _FAILED if reason >= FAILURE else _ACKED, self._resends.pop(packet_id, 0)
            )
            self._note_progress(time)
        return False

    def _is_due(self, kind: int, packet_id: int) -> bool:
        """Return whether this is an answer that a message in flight waits for.

        For others any answer may be late.
        """
        # PUBACK ends a message at QoS 1; PUBREC with a failure, or PUBCOMP after PUBREC, ends one
        # at QoS 2 (MQTT 5, 4.3.2 and 4.3.3).
        if packet_id not in self._rows:
            return True
        if self._qos == 1:
            return kind == PUBACK
        return kind == PUBREC or (kind == PUBCOMP and packet_id in self._released)

    def was_written(self) -> None:
        if self._qos:
            return
        connection = self._connection
        rows = [
            row
            for _, row in takewhile(
                lambda unwritten: unwritten[0] <= connection.written, self._unwritten
            )
        ]
        del self._unwritten[: len(rows)]
        self._room = _ENDLESS if connection.up and connection.unsent < UNSENT else 0
        if rows:
            self._answer(rows, self._all.now(), _ACKED)

    def was_lost(self) -> None:
        """Fail the messages at QoS 0 that were not written.

        Others are sent again as soon as the connection is back.
        """
        self._room = 0
        if self._unwritten:
            rows = [row for _, row in self._unwritten]
            self._unwritten.clear()
            self._answer(rows, self._all.now(), _FAILED)

    def came_up(self, session: bool) -> None:
        """Send unacknowledged messages again, in their first order (MQTT 5, 4.4)."""
        connection = self._connection
        self._properties, aliased = self._all.properties(connection.topic_aliases)
        # Aliases are valid for one connection (MQTT 5, 3.3.2.3.4),
        # so its first message names the topic.
        self._fronts = self._all.fronts(self._name)
        self._later = self._all.fronts(_ALIASED) if aliased else self._fronts
        for packet_id, message in self._messages.items():
            if packet_id in self._released and session:
                connection.put(encode_answer(PUBREL, packet_id))
                self._released[packet_id] = True
                continue
            packet = self._identified(packet_id, message)
            self._released.pop(packet_id, None)
            connection.put(bytes([packet[0] | _DUP]) + packet[1:] if session else packet)
            self._resends[packet_id] = min(self._resends.get(packet_id, 0) + 1, _MOST_RESENDS)
        window = (
            min(self._most, connection.receive_maximum) - len(self._rows) if self._qos else _ENDLESS
        )
        self._room = max(window, 0)

    def _answer(self, rows: Sequence[int], time: int, status: int) -> None:
        self._all.answers.add(rows, time, status)
        self._note_progress(time)

    def _note_progress(self, time: int) -> None:
        if not self._rows and not self._unwritten:
            self._idle_since = time
        if self.starved:
            self._connection.wake()
