"""CPU per message of ours around pulsar-client: ``python benchmarks/bench_client_overhead.py``.

The driver's producer and consumer run on a null client that has pulsar-client's calls and does nothing; what the same calls cost in a
bare loop is taken off. Best of several repeats (the least disturbed one), at bursts of 100 and 1 000.
"""

from __future__ import annotations

import operator
import time
from typing import TYPE_CHECKING, Any

import _pulsar
import numpy as np

from pytest_loadtest import payloads
from pytest_loadtest.drivers._base import Burst, DriverContext, ProducerSpec, TargetAddress, TopicSpec
from pytest_loadtest.drivers._pulsar_messages import PulsarConsumer, PulsarProducer, key_of, partition_of
from pytest_loadtest.profile.settings import PulsarSettings

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 50_000
REPEATS = 7


class NullProducer:
    """Answers each message at once."""

    def send_async(self, message: Any, callback: Callable[[Any, Any], object]) -> None:
        callback(_pulsar.Result.Ok, None)


class NullConsumer:
    """Has one message ``count`` times, then is closed."""

    def __init__(self, message: Any, count: int) -> None:
        self._message, self._left = message, count

    def receive(self, timeout: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise EOFError
        return self._message

    def acknowledge(self, message: Any) -> None:
        pass


def context(checksum: bool = False) -> DriverContext:
    pool = payloads.build_pool(
        buckets=None, message_size=128, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=checksum, max_size=None
    )
    return DriverContext(
        target=TargetAddress(url="pulsar://nowhere"), settings=PulsarSettings(), clock=time.monotonic_ns, run="bench", nonce=1,
        worker="gw0", topics=(TopicSpec(index=0),), pool=pool, checksum=checksum,
    )  # fmt: skip


def best(work: Callable[[], object]) -> float:
    """CPU µs per message of ``work``, which handles MESSAGES of them."""
    costs = []
    for _ in range(REPEATS):
        begin = time.process_time_ns()
        work()
        costs.append((time.process_time_ns() - begin) / MESSAGES / 1000)
    return min(costs)


def produce(burst_size: int, keyed: bool) -> tuple[float, float]:
    """Whole and bare cost of sending."""
    seq = np.arange(burst_size, dtype=np.int64)
    burst = Burst(seq=seq, intended=seq, payload=(seq * 0).astype(np.uint16), sent=seq.copy(), key=seq.astype(np.int32) if keyed else None)
    client = NullProducer()
    producer = PulsarProducer(client, ProducerSpec(stream=0, topic=TopicSpec(index=0)), context(), burst_size)
    data, key, build, answer = bytes(128), "key-1", _pulsar.MessageBuilder, _pulsar.Result.Ok

    def ours() -> None:
        for _ in range(MESSAGES // burst_size):
            producer.send(burst)
            producer.acks()

    def bare() -> None:
        for _ in range(MESSAGES):
            message = build().content(data)
            if keyed:
                message.partition_key(key)
            client.send_async(message.build(), operator.is_)  # a callback that does nothing, in C
            _ = answer.value

    return best(ours), best(bare)


def consume(burst_size: int, order: Callable[[Any], int] | None, checksum: bool = False) -> tuple[float, float]:
    """Whole and bare cost of receiving."""
    made = context(checksum)
    data = payloads.messages(made.pool, np.zeros((1, 32), np.uint8), np.zeros(1, np.uint16))[0]
    message = _pulsar.MessageBuilder().content(data).partition_key("key-1").build()

    def ours() -> None:
        for _ in range(MESSAGES // burst_size):
            consumer = PulsarConsumer(NullConsumer(message, burst_size), "null", made, order, lambda why: None)
            consumer.run()
            consumer.take()

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
    print(f"{'':34}{'whole':>8}{'client':>8}{'ours':>8}   µs CPU per message")
    for size in (100, 1000):
        rows = {
            "send": produce(size, keyed=False),
            "send, keys": produce(size, keyed=True),
            "receive": consume(size, None),
            "receive, partitions": consume(size, partition_of),
            "receive, keys": consume(size, key_of),
            "receive, checksum": consume(size, None, checksum=True),
        }
        for name, (whole, bare) in rows.items():
            print(f"{name + f', bursts of {size}':34}{whole:8.2f}{bare:8.2f}{whole - bare:8.2f}")


if __name__ == "__main__":
    main()
