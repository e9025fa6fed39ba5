"""The producers of the paho driver.

Bursts become single messages for paho, and answers become columns.
"""

from __future__ import annotations

import sys
from collections import deque
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from paho.mqtt.enums import MQTTErrorCode

from pytest_loadtest.drivers.columns import AnswerColumns
from pytest_loadtest.drivers.mqtt.options import IDENTIFIER_NOT_FOUND, topic_name
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.carried import carried_values
from pytest_loadtest.message.samples import Status
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from paho.mqtt.client import Client
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from pytest_loadtest.drivers.base import Burst, DriverContext
    from pytest_loadtest.drivers.mqtt.paho.connection import PahoConnection

    _Outgoing = tuple[int, int, bytes, bytes | None]
    """Stream, row, body, and the value of the property that has the envelope; None without one."""

# Number of messages between two writes: the first message of a
# large burst does not wait for the last.
CHUNK: Final = 64
# Bytes. The window of a QoS 0 producer is full while more than this waits for the kernel.
UNSENT: Final = 65_536
MOST_RESENDS: Final = 255  # limit of the column
# Plain ints: comparing and storing an IntEnum costs more than the rest of an answer.
_ACKED = int(Status.ACKED)
_FAILED = int(Status.FAILED)


class PahoProducers:
    """All producers of a worker, each with its own client."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._producers: dict[int, PahoProducer] = {}  # by stream
        self._answers = AnswerColumns()
        self.acks = self._answers.take

    def add(self, stream: int, connection: PahoConnection) -> None:
        self._producers[stream] = PahoProducer(self._context, stream, connection, self._answers)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        streams = burst.stream.tolist()
        fitting, rejected = self._divide(streams)
        if fitting:
            rejected += self._send(burst, fitting)
        for position in rejected:
            self._producers[streams[position]].starved = True
        return np.array(sorted(rejected), np.int64) if rejected else None

    def _divide(self, streams: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the positions of messages that fit into the windows of their streams.

        The second value are those of the others.
        """
        room = {}
        fitting: list[int] = []
        rejected: list[int] = []
        for position, stream in enumerate(streams):
            if stream not in room:
                producer = self._producers[stream]
                producer.starved = False
                room[stream] = producer.room()
            (fitting if room[stream] > 0 else rejected).append(position)
            room[stream] -= 1
        return fitting, rejected

    def _send(self, burst: Burst, positions: list[int]) -> list[int]:
        """Publish the messages at these positions.

        Return the positions of those that could not be sent after all.
        """
        part = slice(None) if len(positions) == len(burst) else np.array(positions)
        pool = self._context.pool
        stream = burst.stream[part]
        payload = burst.payload[part]
        key = None if burst.key is None else burst.key[part]
        heads = envelope.encode_heads(
            pool,
            nonce=self._context.nonce,
            stream=stream,
            seq=burst.seq[part],
            intended=burst.intended[part],
            payload=payload,
        )
        outside = pool.place.outside
        messages = list(
            zip(
                stream.tolist(),
                burst.row[part].tolist(),
                payloads.whole_payloads(pool, heads, payload, key),
                carried_values(pool.place.carrier, heads) if outside else repeat(None),
                strict=False,
            )
        )
        sent: list[int] = []
        idle: list[int] = []
        for start in range(0, len(messages), CHUNK):
            self._publish(messages[start : start + CHUNK], sent, idle)
        burst.sent[part] = sent
        burst.idle[part] = idle
        return [position for position, stamp in zip(positions, sent, strict=True) if not stamp]

    def _publish(self, chunk: Sequence[_Outgoing], sent: list[int], idle: list[int]) -> None:
        """Publish each message of a chunk.

        Its times are appended to ``sent`` and ``idle``: 0 if it cannot be sent.
        """
        # All messages of one stream are written together, right after the last one in the chunk.
        last = {stream: position for position, (stream, *_) in enumerate(chunk)}
        for position, (stream, row, message, value) in enumerate(chunk):
            producer = self._producers[stream]
            idle_since = producer.idle_since
            stamp = producer.publish(row, message, value)
            sent.append(stamp)
            idle.append(idle_since if stamp else 0)
            if last[stream] == position:
                producer.connection.flush()


class PahoProducer:
    """The producer of one stream.

    QoS 1 and 2: the window is ``maxInflightMessages``, or the broker's Receive Maximum if that is
    lower. QoS 0: the window is full while the kernel takes no more bytes.

    :ivar starved: a message of the last burst was rejected.
    :ivar idle_since: instant at which the window became empty; 0 while anything is in flight.
    """

    def __init__(
        self,
        context: DriverContext,
        stream: int,
        connection: PahoConnection,
        answers: AnswerColumns,
    ) -> None:
        settings = context.settings
        self.connection = connection
        self.starved = False
        self.idle_since = 0
        self._topic = topic_name(context, context.topology.topic_of_stream(stream))
        self._qos = settings.qos
        self._retain = settings.retain
        self._most: int = settings.max_inflight_messages
        self._clock = context.clock
        self._answers = answers
        self._hand_over: Any = connection.client.publish
        self._pending: dict[int, int] = {}  # packet id → row
        self._resends: dict[int, int] = {}  # packet id → number of resends, where not 0
        self._unwritten: deque[int] = deque()  # rows at QoS 0
        connection.on_lost = self._lost
        if self._qos:
            connection.client.on_publish = self._answered
            connection.client.on_resend = self._resent
        else:
            connection.on_written = self._written

    def room(self) -> int:
        """Return the number of messages that the window takes now, 0 without a connection.

        At QoS 0 the number is unknown: any, or 0.
        """
        if not self.connection.up:
            return 0
        if self._qos:
            return min(self._most, self.connection.receive_maximum) - len(self._pending)
        return sys.maxsize if self.connection.unsent < UNSENT else 0

    def publish(self, row: int, message: bytes, value: bytes | None) -> int:
        """Pass one message to paho; return the instant before, or 0 if it cannot be sent.

        :param value: of the property that has its envelope; None: the body has it.

        After that, the rest of the burst is rejected.
        """
        if self.starved or not self._ready():
            self.starved = True
            return 0
        now = self._clock()
        info = self._hand_over(self._topic, message, self._qos, self._retain, value)
        if self._qos == 0:
            self._unwritten.append(row)
        # The next packet id is still in use, 65 535 messages later.
        elif info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            self.starved = True
            return 0
        else:
            self._pending[info.mid] = row
        self.idle_since = 0
        return now

    def _ready(self) -> bool:
        """Return True if the connection is up and, at QoS 0, takes more bytes."""
        connection = self.connection
        if self._qos == 0 and connection.unsent >= UNSENT:
            connection.flush()
            return connection.up and connection.unsent < UNSENT
        return connection.up

    # --- callbacks of paho and of the connection

    def _answered(
        self,
        _client: Client,
        _data: object,
        mid: int,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        row = self._pending.pop(mid, None)
        if row is not None:
            code = reason.value
            # The broker has completed a message whose PUBREL it gets a second time, and forgotten
            # its identifier (MQTT 5, 3.7.2.1).
            if code == IDENTIFIER_NOT_FOUND and mid in self.connection.client.released_again:
                code = 0
            if code:
                self.connection.note_reason(code)
            resends = self._resends.pop(mid, 0) if self._resends else 0
            self._close((row,), _FAILED if code >= FAILURE else _ACKED, resends)

    def _resent(self, mid: int) -> None:
        self._resends[mid] = min(self._resends.get(mid, 0) + 1, MOST_RESENDS)

    def _written(self, count: int) -> None:
        self._close([self._unwritten.popleft() for _ in range(count)], _ACKED)

    def _lost(self) -> None:
        if self._unwritten:
            lost = list(self._unwritten)
            self._unwritten.clear()
            self._close(lost, _FAILED)

    def _close(self, rows: Sequence[int], status: int, resends: int = 0) -> None:
        now = self._clock()
        self._answers.add(rows, now, status, resends)
        if not self._pending and not self._unwritten:
            self.idle_since = now
        if self.starved:
            self.connection.wake()
