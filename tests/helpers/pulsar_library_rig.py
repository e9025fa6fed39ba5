"""The parts of the driver on pulsar-client without a broker, and stand-ins for the client."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import _pulsar
import numpy as np
import pulsar

from pytest_loadtest.drivers.base import Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.pulsar.library.producers import PulsarProducers
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.message import payloads
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing.rig import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

OK, FULL = _pulsar.Result.Ok, _pulsar.Result.ProducerQueueIsFull
ROW = 1000
"""Row of a burst's message 0: a row is no sequence."""


def pool_of(size: int, checksum: bool = False) -> payloads.PayloadPool:
    return payloads.build_pool(
        buckets=None,
        message_size=size,
        randomized=True,
        random_ratio=0.5,
        file_content=None,
        seed=1,
        checksum=checksum,
        max_size=None,
    )


def context(
    settings: PulsarSettings | None = None,
    *,
    admin: str | None = None,
    partitions: int = 1,
    name: str | None = None,
    **more: Any,
) -> DriverContext:
    given: dict[str, Any] = {"clock": FakeClock(5), "pool": pool_of(64)} | more
    given["topology"] = Topology(
        topics=1, partitions=partitions, producers=4, subscriptions=2, consumers=1, name=name
    )
    target = TargetAddress(url="pulsar://127.0.0.1:1", admin_url=admin)
    return DriverContext(
        target=target,
        settings=settings or PulsarSettings(),
        run="r",
        nonce=7,
        worker="gw0",
        **given,
    )


def burst(
    count: int,
    first: int = 0,
    key: int | None = None,
    streams: tuple[int, ...] = (3,),
    payload: int = 0,
) -> Burst:
    """So many messages of these streams, which take turns."""
    seq = np.arange(first, first + count, dtype=np.int64)
    stream = np.resize(np.array(streams, np.int32), count)
    sent, idle = np.zeros((2, count), np.int64)
    keys = None if key is None else np.full(count, key, np.int32)
    payloads = np.full(count, payload, np.uint16)
    return Burst(
        row=seq + ROW,
        stream=stream,
        seq=seq,
        intended=seq + 100,
        payload=payloads,
        sent=sent,
        idle=idle,
        key=keys,
    )


def taken(producers: PulsarProducers, burst: Burst) -> int:
    """Send, and overwrite the burst, which belongs to the engine; return how many of one stream were taken."""
    refused = producers.send(burst)
    sent = burst.sent.copy()
    for column in (burst.row, burst.stream, burst.seq, burst.intended, burst.payload, burst.sent):
        column[:] = 0
    if refused is None:
        return len(burst)
    assert refused.dtype == np.int64 and refused.tolist() == list(range(refused[0], len(burst)))
    assert sent[: refused[0]].all() and not sent[refused[0] :].any()
    return int(refused[0])


class NullProducer:
    """pulsar-client's producer without a broker: keeps what it is given until told to answer."""

    def __init__(self) -> None:
        self.pending: deque[tuple[Any, Callable[[Any, Any], None]]] = deque()

    def send_async(self, message: Any, callback: Callable[[Any, Any], None]) -> None:
        self.pending.append((message, callback))

    def answer(self, count: int, result: Any = OK, newest_first: bool = False) -> None:
        for _ in range(min(count, len(self.pending))):
            (self.pending.pop if newest_first else self.pending.popleft)()[1](result, None)


class NullConsumer:
    """pulsar-client's consumer without a broker: has these messages, then is closed."""

    def __init__(self, *messages: Any) -> None:
        self.messages, self.acknowledged = deque(messages), []

    def receive(self, timeout: int) -> Any:
        if not self.messages:
            raise pulsar.AlreadyClosed("closed")
        message = self.messages.popleft()
        if message is None:
            raise pulsar.Timeout("nothing")
        return message

    def acknowledge(self, message: Any) -> None:
        self.acknowledged.append(message)


def message_of(data: bytes, key: str = "") -> Any:
    return _pulsar.MessageBuilder().content(data).partition_key(key).build()


def producer_on(
    client: NullProducer, window: int | None, memory: int | None = None, **more: Any
) -> PulsarProducers:
    """One stream, which has the number 3."""
    return PulsarProducers([client], [3], context(**more), window=window, memory=memory)
