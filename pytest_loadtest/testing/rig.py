"""A driver opened against a running target, with messages to send and a place for the answers."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest import envelope, payloads
from pytest_loadtest.drivers._base import Acks, Burst, ConsumerSpec, DriverContext, ProducerSpec, Received, TargetAddress, TopicSpec
from pytest_loadtest.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_loadtest.drivers._base import Consumer, Driver, Producer
    from pytest_loadtest.envelope import Heads
    from pytest_loadtest.payloads import PayloadPool


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A driver to be checked and a running target to check it against.

    :param driver: its class, or anything that makes it from a :class:`DriverContext`.
    :param settings: the profile's ``driver`` section, under which a sole consumer gets everything.
    :param shared: settings under which two consumers of one subscription share its messages; None: ``settings`` do that.
    :param window: messages that ``settings`` let one producer have in flight; None: no bound to check.
    :param ordered: one stream arrives in order at a sole consumer.
    :param existing: the name of a topic that exists at the target without any run; None: not to be checked.
    :param deadline: ns that one check waits for answers.
    """

    driver: Callable[[DriverContext], Driver]
    target: TargetAddress
    settings: Any
    shared: Any = None
    window: int | None = None
    partitions: int = 1
    ordered: bool = True
    existing: str | None = None
    deadline: int = 30 * SECOND


@dataclass
class Rig:
    """An open driver with its producers and consumers, and all they answered so far."""

    driver: Driver
    pool: PayloadPool
    nonce: int
    deadline: int
    topic: TopicSpec
    producers: list[Producer] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    acks: list[list[Acks]] = field(default_factory=list)
    received: list[list[Received]] = field(default_factory=list)

    def burst(self, count: int, first: int = 0) -> Burst:
        """``count`` messages from ``first`` on, payloads in turn; ``intended`` is a million and the sequence."""
        seq = np.arange(first, first + count, dtype=np.int64)
        payload = (seq % len(self.pool.sizes)).astype(np.uint16)
        return Burst(seq=seq, intended=seq + 1_000_000, payload=payload, sent=np.zeros(count, np.int64))

    def collect(self) -> None:
        """Take what producers and consumers have."""
        for producer, answers in zip(self.producers, self.acks, strict=True):
            if (acks := producer.acks()) is not None:
                answers.append(acks)
        for consumer, copies in zip(self.consumers, self.received, strict=True):
            if (received := consumer.take()) is not None:
                copies.append(received)

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Poll and collect until ``done``.

        :raises AssertionError: not within the deadline; says what came instead.
        """
        end = time.monotonic_ns() + self.deadline
        while not done():
            assert time.monotonic_ns() < end, f"not {what} in time: {self.acked} acks, {self.copies} copies, {self.driver.disconnected()}"
            self.driver.poll(MILLISECOND)
            self.collect()

    def attach(self, index: int, subscription: int = 0) -> None:
        """One more consumer; polls until it is there."""
        before = len(self.consumers)
        self.driver.attach([ConsumerSpec(index=index, topic=self.topic, subscription=subscription)])
        self.until(lambda: self.join() > before, f"attached consumer {index}")

    def join(self) -> int:
        """Take those that were attached meanwhile; return how many consumers there are now, those included that left."""
        for _, consumer in self.driver.attached():
            self.consumers.append(consumer)
            self.received.append([])
        return len(self.consumers)

    def send(self, count: int, first: int = 0) -> list[Burst]:
        """``count`` messages from ``first`` on, on every producer, in as many pieces as the window asks for."""
        bursts = [self.burst(count, first) for _ in self.producers]
        sent = [0] * len(bursts)

        def push() -> bool:
            for i, (producer, burst) in enumerate(zip(self.producers, bursts, strict=True)):
                if sent[i] < count:
                    rest = tail(burst, sent[i])
                    sent[i] += producer.send(rest)
            return sum(sent) == count * len(bursts)

        self.until(push, f"all {count * len(bursts)} messages taken by the client")
        return bursts

    @property
    def acked(self) -> int:
        return sum(len(acks.seq) for answers in self.acks for acks in answers)

    @property
    def copies(self) -> int:
        return sum(len(received.time) for copies in self.received for received in copies)

    def heads(self, consumer: int) -> Heads:
        """What one consumer got, decoded."""
        got = self.received[consumer]
        heads = np.concatenate([np.zeros((0, envelope.HEAD), np.uint8), *(part.heads for part in got)])
        size = np.concatenate([np.empty(0, np.int32), *(part.size for part in got)])
        return envelope.decode_heads(heads, size, self.nonce)


def tail(burst: Burst, start: int) -> Burst:
    return Burst(seq=burst.seq[start:], intended=burst.intended[start:], payload=burst.payload[start:], sent=burst.sent[start:])


def plain_pool() -> PayloadPool:
    return payloads.build_pool(
        buckets=None, message_size=128, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=False, max_size=None
    )


def mixed_pool() -> PayloadPool:
    edges = ((20, 32), (36, 40), (40, 300), (1024, 4096), (16 * 1024, 64 * 1024))
    buckets = [payloads.Bucket(name=f"{low}-{high}", low=low, high=high, weight=1) for low, high in edges]
    return payloads.build_pool(
        buckets=buckets, message_size=None, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=True, max_size=None
    )


def context_of(subject: Subject, pool: PayloadPool, run: str | None = None, name: str | None = None) -> DriverContext:
    return DriverContext(
        target=subject.target,
        settings=subject.settings,
        clock=time.monotonic_ns,
        run=run or f"kit-{secrets.token_hex(4)}",
        nonce=secrets.randbits(32),
        worker="gw0",
        topics=(TopicSpec(index=0, partitions=subject.partitions, name=name),),
        pool=pool,
        checksum=pool.checksum,
    )


@contextmanager
def rig(
    subject: Subject,
    pool: PayloadPool | None = None,
    *,
    streams: int = 1,
    subscriptions: int = 1,
    consumers: int = 1,
    run: str | None = None,
    name: str | None = None,
) -> Iterator[Rig]:
    """One topic with ``streams`` producers and ``consumers`` consumers for each of ``subscriptions``; closed and cleaned up at the end.

    :param name: of the topic, where it exists without the run.
    """
    context = replace(context_of(subject, pool or plain_pool(), run, name), subscriptions=subscriptions)
    topic = context.topics[0]
    driver = subject.driver(context)
    places = [(subscription, n) for subscription in range(subscriptions) for n in range(consumers)]
    try:
        driver.prepare()
        made = Rig(driver, context.pool, context.nonce, subject.deadline, topic)
        made.consumers = driver.open_consumers(
            [ConsumerSpec(index=i, topic=topic, subscription=subscription) for i, (subscription, _) in enumerate(places)]
        )
        made.producers = driver.open_producers([ProducerSpec(stream=stream, topic=topic) for stream in range(streams)])
        made.acks = [[] for _ in made.producers]
        made.received = [[] for _ in made.consumers]
        yield made
    finally:
        driver.close()
        driver.cleanup()
