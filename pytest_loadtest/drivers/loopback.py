"""The driver of the loopback relay: columns to the socket, one frame a burst, no loop over messages.

A worker has one connection for its producers and one for its consumers. What arrives is stamped once per read of a socket, when the
read returns. The relay has one partition a topic and knows no keys, so that order is judged within the stream alone.

A paused consumer's messages wait in the relay, but for those already on their way. An existing topic is one that other runs on the same
relay can name too; the relay has no other.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.brokers.faults import relay_settings
from pytest_loadtest.drivers._base import Acks, Burst, ConsumerSpec, DriverContext, DriverFacts, ProducerSpec, Received, TopicSpec
from pytest_loadtest.drivers._loopback_link import CONNECT_TIMEOUT, Link, wait
from pytest_loadtest.drivers._loopback_messages import Packer, body_flags, heads_of
from pytest_loadtest.envelope import encode_heads
from pytest_loadtest.errors import TargetError
from pytest_loadtest.quantities import MILLISECOND
from pytest_loadtest.samples import Status
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Address, Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers._base import Consumer


class LoopbackDriver:
    """See :class:`~pytest_loadtest.drivers._base.Driver`; ``context.settings`` is a ``LoopbackSettings``."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._links: list[Link] = []
        self._producers: dict[int, _Producer] = {}
        self._consumers: dict[int, _Consumer] = {}
        self._receiving: Link | None = None
        self._pending: list[tuple[ConsumerSpec, _Consumer]] = []

    def facts(self) -> DriverFacts:
        settings = self._context.settings
        own = {"maxPendingMessages": str(settings.max_pending_messages), "blockIfQueueFull": str(settings.block_if_queue_full).lower()}
        return DriverFacts(client="loopback", version=f"protocol {frames.VERSION}", applied={**own, **relay_settings(settings)})

    def prepare(self) -> None:
        Link(self._context, "prepare").close()

    def open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[_Consumer]:
        if not specs:
            return []
        made = self._subscribe(specs)
        end = time.monotonic() + CONNECT_TIMEOUT
        while wanted := sum(not consumer.subscribed for consumer in made):
            if time.monotonic() > end:
                raise TargetError(f"{made[0].link.name}: {wanted} subscriptions were not confirmed within {CONNECT_TIMEOUT:.0f} s")
            self.poll(100 * MILLISECOND)
        return made

    def attach(self, specs: Sequence[ConsumerSpec]) -> None:
        self._pending += zip(specs, self._subscribe(specs), strict=True)

    def attached(self) -> list[tuple[ConsumerSpec, Consumer]]:
        done: list[tuple[ConsumerSpec, Consumer]] = [(spec, consumer) for spec, consumer in self._pending if consumer.subscribed]
        self._pending = [(spec, consumer) for spec, consumer in self._pending if not consumer.subscribed]
        return done

    def detach(self, consumers: Sequence[Consumer]) -> None:
        for consumer in consumers:
            assert isinstance(consumer, _Consumer)
            consumer.leave()

    def _subscribe(self, specs: Sequence[ConsumerSpec]) -> list[_Consumer]:
        if self._receiving is None:
            self._receiving = self._link(f"consumers {_numbers(spec.index for spec in specs)}")
        link = self._receiving
        made = [_Consumer(self._context, spec, link) for spec in specs]
        for spec, consumer in zip(specs, made, strict=True):
            self._consumers[spec.index] = consumer
            consumer.tell(Kind.SUBSCRIBE)
        return made

    def open_producers(self, specs: Sequence[ProducerSpec]) -> list[_Producer]:
        if not specs:
            return []
        link = self._link(f"producers of streams {_numbers(spec.stream for spec in specs)}")
        packer = Packer(self._context.pool)
        made = [_Producer(self._context, spec, link, packer) for spec in specs]
        self._producers.update((spec.stream, producer) for spec, producer in zip(specs, made, strict=True))
        return made

    def _link(self, what: str) -> Link:
        link = Link(self._context, what)
        self._links.append(link)
        return link

    def poll(self, timeout_ns: int) -> None:
        if not self._links:
            time.sleep(timeout_ns / 1e9)
            return
        for link in wait(self._links, timeout_ns / 1e9):
            for came, now in link.pull():
                self._dispatch(came, now)
        if (gone := self.disconnected()) is not None:
            raise TargetError(f"lost {gone}")

    def _dispatch(self, frame: Frame, now: int) -> None:
        if frame.kind is Kind.DELIVER:
            self._consumers[frame.address.consumer].arrived(frame, now)
        elif frame.kind is Kind.ACK:
            self._producers[frame.address.stream].answered(frame.seq, now)
        else:
            self._consumers[frame.address.consumer].subscribed = True

    def disconnected(self) -> str | None:
        return "; ".join(f"{link.name}: {link.failure}" for link in self._links if link.failure) or None

    def close(self) -> None:
        for link in self._links:
            link.close()
        self._links.clear()
        self._receiving = None

    def cleanup(self) -> None:
        """Nothing to do: the relay forgets a consumer with its connection and keeps no message without one."""


class _Producer:
    def __init__(self, context: DriverContext, spec: ProducerSpec, link: Link, packer: Packer) -> None:
        self._context = context
        self._address = _place(context, spec.topic)._replace(stream=spec.stream)
        self._link = link
        self._packer = packer
        self._window: int = context.settings.max_pending_messages
        self._block: bool = context.settings.block_if_queue_full
        self._answers: list[tuple[NDArray[np.int64], int, Status]] = []
        self._in_flight = 0
        self._idle_since = 0

    def send(self, burst: Burst) -> int:
        self._link.check()
        n = min(len(burst), self._window - self._in_flight)
        if n > 0:
            self._hand_over(burst, n)
        if n == len(burst) or self._block:
            return n
        now = burst.sent[n:] = self._context.clock()
        self._answers.append((burst.seq[n:].copy(), now, Status.FAILED))
        return len(burst)

    def _hand_over(self, burst: Burst, n: int) -> None:
        seq, payload = burst.seq[:n], burst.payload[:n]
        heads = encode_heads(
            self._packer.pool, nonce=self._context.nonce, stream=self._address.stream, seq=seq, intended=burst.intended[:n], payload=payload
        )
        frame = frames.produce(self._address, seq.copy(), self._packer.pool.sizes[payload], self._packer.pack(heads, payload))
        burst.sent[:n] = self._context.clock()
        self._in_flight += n
        self._link.outbox.add(frame)
        self._link.push()
        self._link.check()

    def answered(self, seq: NDArray[np.int64], now: int) -> None:
        self._answers.append((seq, now, Status.ACKED))
        self._in_flight -= len(seq)
        if not self._in_flight:
            self._idle_since = now

    def acks(self) -> Acks | None:
        if not self._answers:
            return None
        columns, times, statuses = zip(*self._answers, strict=True)
        counts = [len(column) for column in columns]
        self._answers.clear()
        return Acks(np.concatenate(columns), np.repeat(np.array(times, np.int64), counts), np.repeat(np.array(statuses, np.int8), counts))

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def idle_since(self) -> int:
        return self._idle_since


class _Consumer:
    def __init__(self, context: DriverContext, spec: ConsumerSpec, link: Link) -> None:
        self.link, self.subscribed = link, False
        self._address = _place(context, spec.topic, spec.subscription)._replace(consumer=spec.index)
        self._clock, self._checksum = context.clock, context.checksum
        self._arrived: list[tuple[Frame, int]] = []
        self._early: list[Frame] = []  # on their way when the consumer paused
        self._paused = False

    def tell(self, kind: Kind) -> None:
        self.link.outbox.add(frames.wish(kind, self._address))
        self.link.push()

    def arrived(self, frame: Frame, now: int) -> None:
        if self._paused:
            self._early.append(frame)
        else:
            self._arrived.append((frame, now))

    def pause(self) -> None:
        self._paused = True
        self.tell(Kind.PAUSE)

    def resume(self) -> None:
        self._take_up(Kind.RESUME)

    def leave(self) -> None:
        """What is still on its way is taken; what waits in the relay goes to the others."""
        self._take_up(Kind.UNSUBSCRIBE)

    def _take_up(self, kind: Kind) -> None:
        now = self._clock()
        self._arrived += [(frame, now) for frame in self._early]
        self._early, self._paused = [], False
        self.tell(kind)

    def take(self) -> Received | None:
        if not self._arrived:
            return None
        came, times = zip(*self._arrived, strict=True)
        self._arrived.clear()
        counts = [len(frame.seq) for frame in came]
        flags = [body_flags(frame) for frame in came] if self._checksum else [np.zeros(sum(counts), np.int8)]
        return Received(
            heads=np.concatenate([heads_of(frame) for frame in came]),
            size=np.concatenate([frame.size for frame in came]),
            time=np.repeat(np.array(times, np.int64), counts),
            order=np.zeros(sum(counts), np.int64),
            flags=np.concatenate(flags),
        )


def _place(context: DriverContext, topic: TopicSpec, subscription: int = 0) -> Address:
    """Runs do not meet, for each has a number of its own, except in topics that they name: those are of the run 0, and in them each run
    has subscriptions of its own."""
    if topic.name is None:
        return Address(run=context.nonce, topic=topic.index, subscription=subscription)
    own = zlib.crc32(f"{context.nonce}-{subscription}".encode())
    return Address(run=0, topic=zlib.crc32(topic.name.encode()), subscription=own)


def _numbers(numbers: Any) -> str:
    """``0, 1, 2 …``, never long."""
    listed = list(map(str, numbers))
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
