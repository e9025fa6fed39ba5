"""The MQTT driver without a client library.

*received*: the message was read, also at QoS 2, where a second copy is known by its packet identifier until the broker has released it
(MQTT 5, 4.3.3, method A). For topics, sessions and the other instants see :mod:`~pytest_loadtest.drivers.mqtt.base`.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING

from pytest_loadtest.drivers.mqtt.base import MqttDriverBase
from pytest_loadtest.drivers.mqtt.clients import FAREWELL
from pytest_loadtest.drivers.mqtt.native.connection import ConnectionUser, NativeConnection
from pytest_loadtest.drivers.mqtt.native.inbound import ArrivalColumns, Inbound
from pytest_loadtest.drivers.mqtt.native.producers import NativeMqttProducers
from pytest_loadtest.drivers.mqtt.options import topic_name
from pytest_loadtest.wire.mqtt.codec import encode_packet
from pytest_loadtest.wire.mqtt.packets import Publish

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, Received
    from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint
    from pytest_loadtest.drivers.mqtt.loop import Loop
    from pytest_loadtest.drivers.mqtt.options import ClientOptions


class NativeMqttDriver(MqttDriverBase[NativeConnection]):
    """Adapter to an MQTT broker by its wire protocol.

    :raises UsageError: settings that contradict each other, or under ``strictTuning`` one that cannot be applied.
    """

    def __init__(self, context: DriverContext) -> None:
        self._numbers = count()
        number = re.search(r"\d{1,4}$", context.worker)  # gw7 is xdist's eighth
        self._worker = int(number[0]) if number else 0
        super().__init__(context, ("native", version("pytest-loadtest")), self._connect)
        self._producers = NativeMqttProducers(context, self._options)
        self._arrivals = ArrivalColumns(checksum=context.checksum)
        self._inbound = Inbound(context.clock, self._options.version, self._arrivals)

    def _connect(
        self, loop: Loop, endpoint: BrokerEndpoint, options: ClientOptions, name: str, client_id: str, subscription: str | None
    ) -> NativeConnection:
        loop.settle = self._inbound.settle
        number = next(self._numbers)
        return NativeConnection(
            self._inbound, loop, endpoint, options, number=number, source=endpoint.source(number, self._worker), name=name,
            client_id=client_id, subscription=subscription,
        )  # fmt: skip

    def _clear_retained(self) -> None:
        clients, connection = self._clients, self._clients.make_passing("clean-up", "cleanup")
        connection.user = clearing = _Clearing()
        clients.establish([connection], FAREWELL)
        for topic in range(self._context.topology.topics):  # all of them the run's own: with an existing one there is no retain
            packet_id = topic % 65_535 + 1
            clearing.unanswered.add(packet_id)
            connection.put(
                encode_packet(Publish(topic_name(self._context, topic), b"", 1, retain=True, packet_id=packet_id), self._options.version)
            )
            connection.flush()
            clients.until(lambda: len(clearing.unanswered) // connection.receive_maximum, FAREWELL)
        clients.until(lambda: len(clearing.unanswered), FAREWELL)
        connection.end()

    def take(self) -> Received | None:
        """What all consumers got since the last call, or None; never of a consumer whose place was not told yet."""
        return self._arrivals.take()

    def _take_place(self, connection: NativeConnection, place: int) -> None:
        self._arrivals.settle(connection.number, place)

    def _producing(self, stream: int, connection: NativeConnection) -> None:
        self._producers.add(stream, connection)

    def send(self, burst: Burst) -> NDArray[np.int64] | None:
        """See :meth:`~pytest_loadtest.drivers.mqtt.base.MqttDriverBase.send`."""
        return self._producers.send(burst)

    def acks(self) -> Acks | None:
        """What was answered since the last call, or None. ``resends`` counts what was sent again after a reconnect."""
        return self._producers.acks()


class _Clearing(ConnectionUser):
    """Publishes nothing in the place of what topics keep."""

    def __init__(self) -> None:
        self.unanswered: set[int] = set()

    def answered(self, _kind: int, packet_id: int, _reason: int, _time: int) -> bool:
        self.unanswered.discard(packet_id)
        return False
