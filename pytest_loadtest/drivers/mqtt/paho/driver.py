"""The MQTT driver on paho-mqtt, without its threads.

*received*: paho delivers the message, at QoS 2 after PUBREL. For topics, sessions and the other instants see
:mod:`~pytest_loadtest.drivers.mqtt.base`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from pytest_loadtest.drivers.columns import ArrivedMessages
from pytest_loadtest.drivers.mqtt.base import MqttDriverBase
from pytest_loadtest.drivers.mqtt.clients import FAREWELL
from pytest_loadtest.drivers.mqtt.options import topic_name
from pytest_loadtest.drivers.mqtt.paho.connection import PahoConnection
from pytest_loadtest.drivers.mqtt.paho.producers import PahoProducers
from pytest_loadtest.message.samples import Flag

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from paho.mqtt.client import Client, MQTTMessage

    from pytest_loadtest.drivers.base import Acks, Burst, Clock, DriverContext, Received


class PahoMqttDriver(MqttDriverBase[PahoConnection]):
    """Adapter to an MQTT broker by paho-mqtt.

    :raises UsageError: settings that contradict each other, or under ``strictTuning`` one that cannot be applied.
    """

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context, ("paho-mqtt", version("paho-mqtt")), PahoConnection)
        self._producers = PahoProducers(context)
        self._arrivals = ArrivedMessages(checksum=context.checksum)
        self._receivers: dict[PahoConnection, PahoConsumer] = {}

    def _clear_retained(self) -> None:
        clients, connection = self._clients, self._clients.make_passing("clean-up", "cleanup")
        unanswered: set[int] = set()
        connection.client.on_publish = lambda _client, _data, mid, _reason, _properties: unanswered.discard(mid)
        clients.establish([connection], FAREWELL)
        for topic in range(self._context.topology.topics):  # all of them the run's own: with an existing one there is no retain
            unanswered.add(connection.client.publish(topic_name(self._context, topic), b"", qos=1, retain=True).mid)
            connection.flush()
            clients.until(lambda: len(unanswered) // connection.receive_maximum, FAREWELL)
        clients.until(lambda: len(unanswered), FAREWELL)
        connection.end()

    def take(self) -> Received | None:
        """What all consumers got since the last call, or None; never of a consumer whose place was not told yet."""
        return self._arrivals.take()

    def _consuming(self, connection: PahoConnection) -> PahoConnection:
        self._receivers[connection] = PahoConsumer(connection, self._context.clock)
        return connection

    def _take_place(self, connection: PahoConnection, place: int) -> None:
        self._receivers.pop(connection).settle(place, self._arrivals)

    def _producing(self, stream: int, connection: PahoConnection) -> None:
        self._producers.add(stream, connection)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """Hand over to paho, and write, every message for which its stream's window has room; never block.

        Fills ``burst.sent`` and ``burst.idle`` of those. A stream whose connection is lost has no room.

        :returns: ascending positions of the others, of each stream all from some message on; None when there are none.
        """
        return self._producers.send(burst)

    def acks(self) -> Acks | None:
        """What was answered since the last call, or None. ``resends`` counts what paho sent again after a reconnect."""
        return self._producers.acks()


# The consumers of a worker: what paho delivers one message at a time becomes columns.

_NOWHERE: Final = -1  # instead of a place, as long as the consumer has none
_REDELIVERED: Final = int(Flag.REDELIVERED)


class PahoConsumer:
    """Receives over a client of its own. Acknowledgements go out as messages are read.

    A broker may send before the engine knows that this consumer is established: that waits in the consumer until it has its place.
    """

    def __init__(self, connection: PahoConnection, clock: Clock) -> None:
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
