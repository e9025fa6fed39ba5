"""The MQTT driver without a client library.

*received* is the time at which the kernel got the PUBLISH, or, without its stamps, at which it was
read; also at QoS 2: there a second copy is recognized by its packet identifier until the broker
releases it (MQTT 5, 4.3.3, method A). For topics, sessions and the other timestamps see
:mod:`~pytest_loadtest.drivers.mqtt.base`.
"""

from __future__ import annotations

from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING

from pytest_loadtest.drivers.mqtt.base import MqttDriverBase
from pytest_loadtest.drivers.mqtt.clients import FAREWELL
from pytest_loadtest.drivers.mqtt.native.connection import ConnectionUser, NativeConnection
from pytest_loadtest.drivers.mqtt.native.inbound import ArrivalColumns, Inbound
from pytest_loadtest.drivers.mqtt.native.producers import NativeMqttProducers
from pytest_loadtest.drivers.mqtt.options import output_numbers, topic_name
from pytest_loadtest.wire.mqtt.codec import encode_packet
from pytest_loadtest.wire.mqtt.packets import Publish

if TYPE_CHECKING:
    from pytest_loadtest.drivers.base import DriverContext
    from pytest_loadtest.drivers.mqtt.base_connection import ClientSpec


class NativeMqttDriver(MqttDriverBase[NativeConnection]):
    """Adapter to an MQTT broker by its wire protocol; see :class:`MqttDriverBase`."""

    _arrivals: ArrivalColumns

    def __init__(self, context: DriverContext) -> None:
        self._numbers = count()
        super().__init__(
            context, ("native", version("pytest-loadtest")), self._connect, kernel=None
        )
        self._producers = NativeMqttProducers(context, self._options)
        self._arrivals = ArrivalColumns(
            self._options.version,
            checksum=context.checksum,
            place=context.received_place,
            outputs=output_numbers(context),
        )
        self._inbound = Inbound(self._options.version, self._arrivals)

    def _connect(self, client: ClientSpec) -> NativeConnection:
        client.loop.settle = self._inbound.settle
        return NativeConnection(client, self._inbound, next(self._numbers))

    def _clear_retained(self) -> None:
        clients = self._clients
        connection = self._clients.make_passing("clean-up", "cleanup")
        connection.user = clearing = _Clearing()
        clients.establish([connection], FAREWELL)
        # All topics are the run's own, because retain is rejected on an existing topic.
        for topic in range(self._context.topology.topics):
            packet_id = topic % 65_535 + 1
            clearing.unanswered.add(packet_id)
            empty = Publish(
                topic_name(self._context, topic), b"", 1, retain=True, packet_id=packet_id
            )
            connection.put(encode_packet(empty, self._options.version))
            connection.flush()
            clients.until(lambda: len(clearing.unanswered) // connection.receive_maximum, FAREWELL)
        clients.until(lambda: len(clearing.unanswered), FAREWELL)
        connection.end()

    def _take_place(self, connection: NativeConnection, place: int) -> None:
        self._arrivals.assign_place(connection.number, place)


class _Clearing(ConnectionUser):
    """The user of the connection that deletes retained messages; waits for its acknowledgements."""

    def __init__(self) -> None:
        self.unanswered: set[int] = set()

    def answered(self, _kind: int, packet_id: int, _reason: int, _time: int) -> bool:
        self.unanswered.discard(packet_id)
        return False
