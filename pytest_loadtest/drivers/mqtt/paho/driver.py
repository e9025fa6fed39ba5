"""The MQTT driver on paho-mqtt, without its threads.

*received* is taken when paho delivers the message, at QoS 2 after PUBREL. For topics, sessions and the other timestamps see
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
    from paho.mqtt.client import Client, MQTTMessage

    from pytest_loadtest.drivers.base import Clock, DriverContext


class PahoMqttDriver(MqttDriverBase[PahoConnection]):
    """Adapter to an MQTT broker by paho-mqtt; see :class:`MqttDriverBase`."""

    _arrivals: ArrivedMessages

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
        # All topics are the run's own, because retain is rejected on an existing topic.
        for topic in range(self._context.topology.topics):
            unanswered.add(connection.client.publish(topic_name(self._context, topic), b"", qos=1, retain=True).mid)
            connection.flush()
            clients.until(lambda: len(unanswered) // connection.receive_maximum, FAREWELL)
        clients.until(lambda: len(unanswered), FAREWELL)
        connection.end()

    def _consuming(self, connection: PahoConnection) -> PahoConnection:
        self._receivers[connection] = PahoConsumer(connection, self._context.clock)
        return connection

    def _take_place(self, connection: PahoConnection, place: int) -> None:
        self._receivers.pop(connection).assign_place(place, self._arrivals)


_NOWHERE: Final = -1  # place of a consumer that has none yet
_REDELIVERED: Final = int(Flag.REDELIVERED)


class PahoConsumer:
    """A consumer with its own client. Messages are acknowledged as they are read.

    A broker may send messages before the engine knows the consumer's place. They wait in the consumer until it has one.
    """

    def __init__(self, connection: PahoConnection, clock: Clock) -> None:
        self._connection = connection
        self._clock, self._arrivals, self._place = clock, ArrivedMessages(), _NOWHERE
        connection.client.on_message = self._arrived

    def assign_place(self, place: int, arrivals: ArrivedMessages) -> None:
        """Assign the consumer's place; earlier and later messages go to ``arrivals``."""
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
