"""Our CPU per message around pulsar-client: ``python benchmarks/bench_client_overhead.py``.

The driver's producers and consumers use a null client that has pulsar-client's calls and does
nothing; the cost of the same calls in a bare loop is subtracted. The result is the best of several
repeats (the least disturbed one), for bursts of one stream and for bursts of many streams: one
message of each of 200, and of 20 of them.
"""

from __future__ import annotations

import operator
import time
from typing import TYPE_CHECKING, Any

import _pulsar
import numpy as np

from pytest_loadtest.drivers.base import Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.pulsar.library.consumers import (
    PulsarConsumer,
    PulsarConsumers,
    key_of,
    partition_of,
)
from pytest_loadtest.drivers.pulsar.library.producers import PulsarProducers
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.message import payloads
from pytest_loadtest.schedule.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 50_000
REPEATS = 7
WINDOW = 1000
BURSTS = ((1, 100), (1, 1000), (200, 20), (200, 200))  # streams (or consumers), messages of a burst


class NullProducer:
    """Answers each message at once."""

    def send_async(self, message: Any, callback: Callable[[Any, Any], object]) -> None:
        callback(_pulsar.Result.Ok, None)


class NullConsumer:
    """Returns one message ``count`` times, then is closed."""

    def __init__(self, message: Any, count: int) -> None:
        self._message = message
        self._left = count

    def receive(self, timeout: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise EOFError
        return self._message

    def acknowledge(self, message: Any) -> None:
        pass


def context(checksum: bool = False) -> DriverContext:
    pool = payloads.build_pool(
        buckets=None,
        message_size=128,
        randomized=True,
        random_ratio=0.5,
        file_content=None,
        seed=1,
        checksum=checksum,
        max_size=None,
    )
    return DriverContext(
        target=TargetAddress(url="pulsar://nowhere"),
        settings=PulsarSettings(),
        clock=time.monotonic_ns,
        run="bench",
        nonce=1,
        worker="gw0",
        topology=Topology(topics=1, partitions=1, producers=200, subscriptions=1, consumers=200),
        pool=pool,
        checksum=checksum,
    )


def best(work: Callable[[], object]) -> float:
    """Return the CPU µs per message of ``work``, which handles MESSAGES of them."""
    costs = []
    for _ in range(REPEATS):
        begin = time.process_time_ns()
        work()
        costs.append((time.process_time_ns() - begin) / MESSAGES / 1000)
    return min(costs)


def produce(streams: int, size: int, keyed: bool) -> tuple[float, float]:
    """Return the total and bare cost of sending bursts of this size.

    They come from as many streams as possible.
    """
    seq = np.arange(size, dtype=np.int64)
    stream = np.resize(np.arange(streams, dtype=np.int32), size)
    payload = np.zeros(size, np.uint16)
    key = seq.astype(np.int32) if keyed else None
    burst = Burst(
        row=seq,
        stream=stream,
        seq=seq,
        intended=seq,
        payload=payload,
        sent=seq.copy(),
        idle=seq.copy(),
        key=key,
    )
    clients = [NullProducer() for _ in range(streams)]
    producers = PulsarProducers(clients, range(streams), context(), window=WINDOW, memory=None)
    data = bytes(128)
    text = "key-1"
    build = _pulsar.MessageBuilder
    answer = _pulsar.Result.Ok

    def ours() -> None:
        for _ in range(MESSAGES // size):
            producers.send(burst)
            producers.acks()

    def bare() -> None:
        for _ in range(MESSAGES):
            message = build().content(data)
            if keyed:
                message.partition_key(text)
            clients[0].send_async(
                message.build(), operator.is_
            )  # a callback that does nothing, in C
            _ = answer.value

    return best(ours), best(bare)


def consume(
    consumers: int, size: int, order: Callable[[Any], int] | None, checksum: bool = False
) -> tuple[float, float]:
    """Return the total and bare cost of receiving.

    It has the consumer's thread for all messages, and taking them in bursts of this size.
    """
    made = context(checksum)
    data = payloads.whole_payloads(made.pool, np.zeros((1, 32), np.uint8), np.zeros(1, np.uint16))[
        0
    ]
    message = _pulsar.MessageBuilder().content(data).partition_key("key-1").build()
    taking = PulsarConsumers(lambda _: [])
    copies = taking._copies

    def ours() -> None:
        PulsarConsumer(NullConsumer(message, MESSAGES), "null", made, order, lambda why: None).run(
            0, copies
        )
        came = [(place % consumers, *copies[place][1:]) for place in range(size)]
        copies.clear()
        for _ in range(MESSAGES // size):
            copies.extend(came)
            taking.take()

    def bare() -> None:
        client = NullConsumer(message, MESSAGES)
        for _ in range(MESSAGES):
            got = client.receive(500)
            got.data()
            got.redelivery_count()
            if order is partition_of:
                got.message_id().partition()
            elif order is key_of:
                got.partition_key()
            client.acknowledge(got)

    return best(ours), best(bare)


def main() -> None:
    print(f"{'':52}{'whole':>8}{'client':>8}{'ours':>8}   µs CPU per message")
    for streams, size in BURSTS:
        rows = {
            "send": produce(streams, size, keyed=False),
            "send, keys": produce(streams, size, keyed=True),
            "receive": consume(streams, size, None),
            "receive, partitions": consume(streams, size, partition_of),
            "receive, keys": consume(streams, size, key_of),
            "receive, checksum": consume(streams, size, None, checksum=True),
        }
        for name, (whole, bare) in rows.items():
            where = f"{name}, bursts of {size}" + (f" on {streams} streams" if streams > 1 else "")
            print(f"{where:52}{whole:8.2f}{bare:8.2f}{whole - bare:8.2f}")


if __name__ == "__main__":
    main()
