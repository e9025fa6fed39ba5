"""The MQTT driver on paho-mqtt, without its threads.

*received* is taken when paho delivers the message, at QoS 2 after PUBREL. For topics, sessions and
the other timestamps see
:mod:`~pytest_loadtest.drivers.mqtt.base`.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from pytest_loadtest.drivers.columns import ArrivedMessages
from pytest_loadtest.drivers.mqtt.base import MqttDriverBase
from pytest_loadtest.drivers.mqtt.clients import FAREWELL
from pytest_loadtest.drivers.mqtt.options import topic_name
from pytest_loadtest.drivers.mqtt.paho.connection import PahoConnection
from pytest_loadtest.drivers.mqtt.paho.producers import PahoProducers

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import DriverContext


class PahoMqttDriver(MqttDriverBase[PahoConnection]):
    """Adapter to an MQTT broker by paho-mqtt; see :class:`MqttDriverBase`."""

    _arrivals: ArrivedMessages

    def __init__(self, context: DriverContext) -> None:
        super().__init__(context, ("paho-mqtt", version("paho-mqtt")), PahoConnection)
        self._producers = PahoProducers(context)
        self._arrivals = ArrivedMessages(
            checksum=context.checksum, envelope_place=context.received_place
        )

    def _clear_retained(self) -> None:
        clients = self._clients
        connection = self._clients.make_passing("clean-up", "cleanup")
        unanswered: set[int] = set()
        connection.client.on_publish = lambda _client, _data, mid, _reason, _properties: (
            unanswered.discard(mid)
        )
        clients.establish([connection], FAREWELL)
        # All topics are the run's own, because retain is rejected on an existing topic.
        for topic in range(self._context.topology.topics):
            unanswered.add(
                connection.client.publish(
                    topic_name(self._context, topic), b"", qos=1, retain=True
                ).mid
            )
            connection.flush()
            clients.until(lambda: len(unanswered) // connection.receive_maximum, FAREWELL)
        clients.until(lambda: len(unanswered), FAREWELL)
        connection.end()

    def _take_place(self, connection: PahoConnection, place: int) -> None:
        connection.assign_place(place, self._arrivals)
