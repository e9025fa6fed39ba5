"""The producers of a worker: bursts become paho's single messages, and the broker's answers come back as columns."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
from paho.mqtt.enums import MQTTErrorCode

from pytest_loadtest.drivers.columns import AnswerColumns
from pytest_loadtest.drivers.mqtt.options import topic_name
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.samples import Status
from pytest_loadtest.wire.mqtt.packets import FAILURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from paho.mqtt.client import Client
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from pytest_loadtest.drivers.base import Acks, Burst, DriverContext
    from pytest_loadtest.drivers.mqtt.paho.connection import PahoConnection

CHUNK: Final = 64  # messages between two writes, so that the first of a large burst does not wait for the last
UNSENT: Final = 65_536  # bytes; a QoS 0 producer with more than this before the kernel has a full window
MOST_RESENDS: Final = 255  # as many as the column holds
_ACKED, _FAILED = int(Status.ACKED), int(Status.FAILED)  # comparing and storing an IntEnum costs more than the rest of an answer


class PahoProducers:
    """All producers of a worker, each with a client of its own.

    :param context: of the driver.
    """

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._producers: dict[int, PahoProducer] = {}  # by stream
        self._answers = AnswerColumns()

    def add(self, stream: int, connection: PahoConnection) -> None:
        """This stream is sent over this connection."""
        self._producers[stream] = PahoProducer(self._context, stream, connection, self._answers)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """See :meth:`~pytest_loadtest.drivers.mqtt.paho.driver.PahoMqttDriver.send`."""
        streams = burst.stream.tolist()
        going, refused = self._divide(streams)
        if going:
            refused += self._send(burst, going)
        for position in refused:
            self._producers[streams[position]].starved = True
        return np.array(sorted(refused), np.int64) if refused else None

    def acks(self) -> Acks | None:
        """See :meth:`~pytest_loadtest.drivers.mqtt.paho.driver.PahoMqttDriver.acks`."""
        return self._answers.take()

    def _divide(self, streams: Sequence[int]) -> tuple[list[int], list[int]]:
        """Positions of the messages that find room in the windows of their streams, and of those that do not."""
        room: dict[int, int] = {}
        going: list[int] = []
        refused: list[int] = []
        for position, stream in enumerate(streams):
            if stream not in room:
                producer = self._producers[stream]
                producer.starved, room[stream] = False, producer.room()
            (going if room[stream] > 0 else refused).append(position)
            room[stream] -= 1
        return going, refused

    def _send(self, burst: Burst, going: list[int]) -> list[int]:
        """Publish the messages at these positions; return those of them that could not go after all."""
        part = slice(None) if len(going) == len(burst) else np.array(going)
        pool, stream, payload = self._context.pool, burst.stream[part], burst.payload[part]
        heads = envelope.encode_heads(
            pool, nonce=self._context.nonce, stream=stream, seq=burst.seq[part], intended=burst.intended[part], payload=payload
        )
        messages = list(zip(stream.tolist(), burst.row[part].tolist(), payloads.whole_payloads(pool, heads, payload), strict=True))
        sent: list[int] = []
        idle: list[int] = []
        for start in range(0, len(messages), CHUNK):
            self._publish(messages[start : start + CHUNK], sent, idle)
        burst.sent[part], burst.idle[part] = sent, idle
        return [position for position, stamp in zip(going, sent, strict=True) if not stamp]

    def _publish(self, chunk: Sequence[tuple[int, int, bytes]], sent: list[int], idle: list[int]) -> None:
        """Publish each message (stream, row, payload) of a chunk, and write those of one stream together, right after its last.

        Appends to ``sent`` and ``idle``, 0 where a message cannot go.
        """
        last = {stream: position for position, (stream, _, _) in enumerate(chunk)}
        for position, (stream, row, message) in enumerate(chunk):
            producer = self._producers[stream]
            idle_since = producer.idle_since
            stamp = producer.publish(row, message)
            sent.append(stamp)
            idle.append(idle_since if stamp else 0)
            if last[stream] == position:
                producer.connection.flush()


class PahoProducer:
    """Sends one stream.

    QoS 1 and 2: the window is ``maxInflightMessages``, or the broker's Receive Maximum where that is less. QoS 0: the window is full
    while the kernel takes no more bytes.
    """

    def __init__(self, context: DriverContext, stream: int, connection: PahoConnection, answers: AnswerColumns) -> None:
        settings = context.settings
        self.connection = connection
        self.starved = False  # a message of the last burst was refused
        self.idle_since = 0  # when the window ran empty; 0 while anything is in flight
        self._topic = topic_name(context, context.topology.topic_of_stream(stream))
        self._qos, self._retain = settings.qos, settings.retain
        self._most: int = settings.max_inflight_messages
        self._clock, self._answers, self._hand_over = context.clock, answers, connection.client.publish
        self._pending: dict[int, int] = {}  # packet id → row
        self._resends: dict[int, int] = {}  # packet id → how often, where paho sent it again
        self._unwritten: deque[int] = deque()  # rows at QoS 0
        connection.on_lost = self._lost
        if self._qos:
            connection.client.on_publish = self._answered
            connection.client.on_resend = self._resent
        else:
            connection.on_written = self._written

    def room(self) -> int:
        """Messages that the window takes now, 0 while the connection is lost. At QoS 0 it cannot be told how many; some, or none."""
        if not self.connection.up:
            return 0
        if self._qos:
            return min(self._most, self.connection.receive_maximum) - len(self._pending)
        return sys.maxsize if self.connection.unsent < UNSENT else 0

    def publish(self, row: int, message: bytes) -> int:
        """Hand one message to paho; return the instant right before, or 0 when it cannot go. After that none can go in this burst."""
        if self.starved or not self._ready():
            self.starved = True
            return 0
        now = self._clock()
        info = self._hand_over(self._topic, message, self._qos, self._retain)
        if self._qos == 0:
            self._unwritten.append(row)
        elif info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:  # its packet id is still in use, 65 535 messages later
            self.starved = True
            return 0
        else:
            self._pending[info.mid] = row
        self.idle_since = 0
        return now

    def _ready(self) -> bool:
        """Whether the connection is still there and, at QoS 0, takes more bytes."""
        connection = self.connection
        if self._qos == 0 and connection.unsent >= UNSENT:
            connection.flush()
            return connection.up and connection.unsent < UNSENT
        return connection.up

    # What paho and the connection tell.

    def _answered(self, _client: Client, _data: object, mid: int, reason: ReasonCode, _properties: Properties | None) -> None:
        row = self._pending.pop(mid, None)
        if row is not None:
            resends = self._resends.pop(mid, 0) if self._resends else 0
            self._close((row,), _FAILED if reason.value >= FAILURE else _ACKED, resends)

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
