"""The consumers of a worker: what paho delivers one message at a time becomes columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.columns import ArrivedMessages
from pytest_loadtest.message.samples import Flag

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

    from pytest_loadtest.drivers.base import Clock
    from pytest_loadtest.drivers.mqtt.paho.connection import MqttConnection

_NOWHERE: Final = -1  # instead of a place, as long as the consumer has none
_REDELIVERED: Final = int(Flag.REDELIVERED)


class MqttConsumer:
    """Receives over a client of its own. Acknowledgements go out as messages are read.

    A broker may send before the engine knows that this consumer is established: that waits in the consumer until it has its place.
    """

    def __init__(self, connection: MqttConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock, self._arrivals, self._place = clock, ArrivedMessages(), _NOWHERE
        connection.client.on_message = self._arrived

    def settle(self, place: int, arrivals: ArrivedMessages) -> None:
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
