"""The consumers of a worker: what paho delivers one message at a time becomes columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.drivers.base import Received
from pytest_loadtest.message import envelope, payloads
from pytest_loadtest.message.samples import Flag

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

    from pytest_loadtest.drivers.base import Clock
    from pytest_loadtest.drivers.mqtt.connection import MqttConnection

_NOWHERE: Final = -1  # instead of a place, as long as the consumer has none
_REDELIVERED: Final = int(Flag.REDELIVERED)


class MqttArrivals:
    """Messages that came, as lists of one length: the consumer's place, ns, the whole payload, flags.

    :param checksum: bodies end in one to be verified.
    """

    def __init__(self, *, checksum: bool = False) -> None:
        self._checksum = checksum
        self.place: list[int] = []
        self.time: list[int] = []
        self.payload: list[bytes] = []
        self.flags: list[int] = []

    def take(self) -> Received | None:
        """All of them as columns, or None; afterwards there are none."""
        if not self.time:
            return None
        place, time, payload, flag = self.place, self.time, self.payload, self.flags
        self.place, self.time, self.payload, self.flags = [], [], [], []
        count, head = len(time), envelope.HEAD
        heads = np.frombuffer(b"".join([data[:head].ljust(head, b"\0") for data in payload]), np.uint8).reshape(count, head)
        flags = np.array(flag, np.int8)
        if self._checksum:
            flags[[i for i, data in enumerate(payload) if not payloads.body_ok(data)]] |= Flag.CORRUPT
        return Received(
            consumer=np.array(place, np.int32),
            heads=heads,
            size=np.fromiter(map(len, payload), np.int32, count),
            time=np.array(time, np.int64),
            order=np.zeros(count, np.int64),
            flags=flags,
        )


class MqttConsumer:
    """Receives over a client of its own. Acknowledgements go out as messages are read.

    A broker may send before the engine knows that this consumer is established: that waits in the consumer until it has its place.
    """

    def __init__(self, connection: MqttConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock, self._arrivals, self._place = clock, MqttArrivals(), _NOWHERE
        connection.client.on_message = self._arrived

    def settle(self, place: int, arrivals: MqttArrivals) -> None:
        """It has its place now; what came and what comes goes to ``arrivals``."""
        early = self._arrivals
        arrivals.place += [place] * len(early.time)
        arrivals.time += early.time
        arrivals.payload += early.payload
        arrivals.flags += early.flags
        self._arrivals, self._place = arrivals, place

    def _arrived(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        self._connection.arrived += 1
        arrivals = self._arrivals
        arrivals.place.append(self._place)
        arrivals.time.append(self._clock())
        arrivals.payload.append(message.payload)  # type: ignore[arg-type]  # paho's parser makes bytes only
        arrivals.flags.append(_REDELIVERED if message.dup else 0)
