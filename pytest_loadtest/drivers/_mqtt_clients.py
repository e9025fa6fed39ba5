"""Producer and consumer over MQTT: bursts become paho's single messages and come back as columns."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
from paho.mqtt.enums import MQTTErrorCode

from pytest_loadtest import envelope, payloads
from pytest_loadtest.drivers._base import Acks, Received
from pytest_loadtest.drivers._mqtt_paho import FAILURE
from pytest_loadtest.drivers._mqtt_setup import topic_name
from pytest_loadtest.samples import Flag, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from pytest_loadtest.drivers._base import Burst, DriverContext, ProducerSpec
    from pytest_loadtest.drivers._mqtt_link import Link
    from pytest_loadtest.drivers._mqtt_loop import Loop

CHUNK: Final = 64  # messages between two writes, so that the first of a large burst does not wait for the last
UNSENT: Final = 65_536  # bytes; a QoS 0 producer with more than this before the kernel has a full window
_ACKED, _FAILED = int(Status.ACKED), int(Status.FAILED)  # comparing and storing an IntEnum costs more than the rest of an answer


class MqttProducer:
    """Sends one stream over a client of its own.

    QoS 1 and 2: the window is ``maxInflightMessages``, or the broker's Receive Maximum where that is less. QoS 0: the window is full
    while the kernel takes no more bytes.
    """

    def __init__(self, context: DriverContext, spec: ProducerSpec, link: Link, loop: Loop) -> None:
        settings = context.settings
        self._pool, self._nonce, self._clock, self._stream = context.pool, context.nonce, context.clock, spec.stream
        self._topic, self._qos, self._retain = topic_name(context, spec.topic), settings.qos, settings.retain
        self._most: int = settings.max_inflight_messages
        self._link, self._loop, self._publish = link, loop, link.client.publish
        self._pending: dict[int, int] = {}  # packet id → sequence
        self._unwritten: deque[int] = deque()  # sequences at QoS 0
        self._starved = False
        self._idle_since = 0
        self._seq: list[int] = []
        self._time: list[int] = []
        self._status: list[int] = []
        link.on_lost = self._lost
        if settings.qos:
            link.client.on_publish = self._answered
        else:
            link.on_written = self._written

    def send(self, burst: Burst) -> int:
        """See :meth:`~pytest_loadtest.drivers._base.Producer.send`; 0 while the connection is lost."""
        taken, count = 0, len(burst)
        while taken < count and (room := self._room()) > 0:
            wanted = min(count - taken, room, CHUNK)
            accepted = self._hand_over(burst, taken, taken + wanted)
            self._link.flush()
            taken += accepted
            if accepted < wanted:
                break
        self._starved = taken < count
        return taken

    def _room(self) -> int:
        if not self._link.up:
            return 0
        if self._qos:
            return min(self._most, self._link.receive_maximum) - len(self._pending)
        return CHUNK if self._link.unsent < UNSENT else 0

    def _hand_over(self, burst: Burst, start: int, stop: int) -> int:
        chunk = slice(start, stop)
        payload, seq = burst.payload[chunk], burst.seq[chunk]
        heads = envelope.encode_heads(
            self._pool, nonce=self._nonce, stream=self._stream, seq=seq, intended=burst.intended[chunk], payload=payload
        )
        publish, topic, qos, retain, clock = self._publish, self._topic, self._qos, self._retain, self._clock
        sent: list[int] = []
        for number, message in zip(seq.tolist(), payloads.messages(self._pool, heads, payload), strict=True):
            now = clock()
            info = publish(topic, message, qos, retain)
            if qos == 0:
                self._unwritten.append(number)
            elif info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:  # its packet id is still in use, 65 535 messages later
                break
            else:
                self._pending[info.mid] = number
            sent.append(now)
        burst.sent[start : start + len(sent)] = sent
        return len(sent)

    def _answered(self, _client: Client, _data: object, mid: int, reason: ReasonCode, _properties: Properties | None) -> None:
        seq = self._pending.pop(mid, None)
        if seq is None:
            return
        now = self._clock()
        self._seq.append(seq)
        self._time.append(now)
        self._status.append(_FAILED if reason.value >= FAILURE else _ACKED)
        if not self._pending:
            self._idle_since = now
        if self._starved:
            self._loop.wake()

    def _written(self, count: int) -> None:
        self._close([self._unwritten.popleft() for _ in range(count)], _ACKED)

    def _lost(self) -> None:
        if self._unwritten:
            lost = list(self._unwritten)
            self._unwritten.clear()
            self._close(lost, _FAILED)

    def _close(self, seqs: Sequence[int], status: int) -> None:
        now = self._clock()
        self._seq.extend(seqs)
        self._time.extend([now] * len(seqs))
        self._status.extend([status] * len(seqs))
        if not self._unwritten:
            self._idle_since = now
        if self._starved:
            self._loop.wake()

    def acks(self) -> Acks | None:
        """See :meth:`~pytest_loadtest.drivers._base.Producer.acks`."""
        if not self._seq:
            return None
        acks = Acks(np.array(self._seq, np.int64), np.array(self._time, np.int64), np.array(self._status, np.int8))
        self._seq, self._time, self._status = [], [], []
        return acks

    @property
    def in_flight(self) -> int:
        return len(self._pending) + len(self._unwritten)

    @property
    def idle_since(self) -> int:
        return self._idle_since


class MqttConsumer:
    """Receives over a client of its own. Acknowledgements go out as messages are read."""

    def __init__(self, context: DriverContext, link: Link) -> None:
        self._clock, self._checksum, self._link = context.clock, context.checksum, link
        self._payloads: list[bytes] = []
        self._times: list[int] = []
        self._redelivered: list[int] = []
        link.client.on_message = self._arrived

    def _arrived(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self._link.arrived += 1
        if message.dup:
            self._redelivered.append(len(self._times))
        self._times.append(self._clock())
        self._payloads.append(message.payload)  # type: ignore[arg-type]  # paho's parser makes bytes only

    def take(self) -> Received | None:
        """See :meth:`~pytest_loadtest.drivers._base.Consumer.take`."""
        if not self._times:
            return None
        payload, times, redelivered = self._payloads, self._times, self._redelivered
        self._payloads, self._times, self._redelivered = [], [], []
        count, head = len(times), envelope.HEAD
        heads = np.frombuffer(b"".join([data[:head].ljust(head, b"\0") for data in payload]), np.uint8).reshape(count, head)
        flags = np.zeros(count, np.int8)
        flags[redelivered] |= Flag.REDELIVERED
        if self._checksum:
            flags[[i for i, data in enumerate(payload) if not payloads.body_ok(data)]] |= Flag.CORRUPT
        size = np.fromiter(map(len, payload), np.int32, count)
        return Received(heads, size, np.array(times, np.int64), np.zeros(count, np.int64), flags)

    def pause(self) -> None:
        """Stop reading and acknowledging, as a subscriber that hangs would; pings go on, so that the connection stays."""
        self._link.pause()

    def resume(self) -> None:
        """Read again."""
        self._link.resume()

    @property
    def link(self) -> Link:
        return self._link
