"""Shared parts of the unit tests of the MQTT drivers: contexts, bursts, sockets and a fake connection."""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from paho.mqtt.enums import MQTTErrorCode

from pytest_loadtest.drivers.arrival_clock import ArrivalClock
from pytest_loadtest.drivers.base import Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.mqtt.broker_socket import BrokerEndpoint
from pytest_loadtest.drivers.mqtt.paho.client import PacketSocket
from pytest_loadtest.drivers.mqtt.settings import MqttSettings
from pytest_loadtest.message.payloads import PayloadPool, build_pool
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable


ONE = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1)


FIRST_ROW = 2**33


def pool(size: int = 64, checksum: bool = False) -> PayloadPool:
    return build_pool(
        buckets=None,
        message_size=size,
        randomized=True,
        random_ratio=1.0,
        file_content=None,
        seed=1,
        checksum=checksum,
        max_size=None,
    )


def context(
    url: str = "mqtt://127.0.0.1:1", clock: Callable[[], int] | None = None, **given: Any
) -> DriverContext:
    ordered, topology = given.pop("ordered", True), given.pop("topology", ONE)
    payloads = pool(checksum=given.pop("checksum", False))
    return DriverContext(
        target=TargetAddress(url=url), settings=MqttSettings.model_validate(given), clock=clock or FakeClock(1000), run="r1", nonce=7,
        worker="gw0", topology=topology, pool=payloads, checksum=payloads.checksum, ordered=ordered,
    )  # fmt: skip


def burst(streams: int | list[int], first: int = 0) -> Burst:
    """Build messages of these streams in this order, or that many of stream 3; rows are numbered from 2**33."""
    stream = np.array([3] * streams if isinstance(streams, int) else streams, np.int32)
    count = len(stream)
    seq = np.array(
        [first + np.count_nonzero(stream[:i] == stream[i]) for i in range(count)], np.int64
    )
    row = FIRST_ROW + first + np.arange(count, dtype=np.int64)
    sent, idle = np.zeros((2, count), np.int64)
    return Burst(
        row=row,
        stream=stream,
        seq=seq,
        intended=seq + 5,
        payload=np.zeros(count, np.uint16),
        sent=sent,
        idle=idle,
    )


def connected(server: socket.socket) -> tuple[PacketSocket, socket.socket]:
    host, port = server.getsockname()
    sock = PacketSocket(
        BrokerEndpoint(host=host, port=port, family=socket.AF_INET, address=(host, port), tls=None),
        ArrivalClock(time.monotonic_ns, kernel=False),
    )
    peer, _ = server.accept()
    peer.settimeout(10)
    ready(sock, select.EPOLLOUT)
    assert sock.advance() == 0
    return sock, peer


def ready(sock: PacketSocket, mask: int) -> None:
    with select.epoll() as epoll:
        epoll.register(sock.fileno(), mask)
        assert epoll.poll(10)


@dataclass
class FakeConnection:
    """The connection of a producer without a socket. A flush after ``lost_at`` messages finds it lost."""

    up: bool = True
    receive_maximum: int = 65_535
    unsent: int = 0
    grows: int = 0
    refuse: int | None = None
    lost_at: int | None = None
    woken: int = 0
    reasons: list[int] = field(default_factory=list)
    published: list[bytes] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)
    client: Any = None
    on_written: Any = None
    on_lost: Any = None

    def __post_init__(self) -> None:
        self.client = SimpleNamespace(publish=self._publish, released_again=frozenset())

    def _publish(
        self, topic: str, message: bytes, qos: int, retain: bool, value: bytes | None
    ) -> SimpleNamespace:
        full = len(self.published) == self.refuse
        self.published.append(message)
        self.unsent += self.grows
        return SimpleNamespace(
            mid=len(self.published),
            rc=MQTTErrorCode.MQTT_ERR_QUEUE_SIZE if full else MQTTErrorCode.MQTT_ERR_SUCCESS,
        )

    def flush(self) -> None:
        self.flushes.append(len(self.published))
        if self.lost_at is not None and len(self.published) >= self.lost_at:
            self.up = False

    def wake(self) -> None:
        self.woken += 1

    def note_reason(self, reason: int) -> None:
        self.reasons.append(reason)


both = pytest.mark.parametrize("client", ["library", "native"])


CONNACK = b"\x20\x03\x00\x00\x00"
