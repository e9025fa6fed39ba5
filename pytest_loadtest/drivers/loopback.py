"""The driver of the loopback relay: columns to the socket, one frame a burst, no loop over messages.

A worker has one connection for its producers and one for its consumers. What arrives is stamped once per read of a socket, when the
read returns. The relay has one partition a topic and knows no keys, so that order is judged within the stream alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.brokers.faults import relay_settings
from pytest_loadtest.drivers._base import Acks, Burst, ConsumerSpec, DriverContext, DriverFacts, ProducerSpec, Received
from pytest_loadtest.drivers._loopback_link import CONNECT_TIMEOUT, Link, wait
from pytest_loadtest.envelope import HEAD, encode_heads
from pytest_loadtest.errors import TargetError
from pytest_loadtest.payloads import body_ok
from pytest_loadtest.samples import Flag, Status
from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import Address, Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.payloads import PayloadPool

_COPY_BELOW = 2048  # bytes: smaller messages are put together for the system, larger ones are handed over where they lie


class LoopbackDriver:
    """See :class:`~pytest_loadtest.drivers._base.Driver`; ``context.settings`` is a ``LoopbackSettings``."""

    def __init__(self, context: DriverContext) -> None:
        self._context = context
        self._links: list[Link] = []
        self._producers: dict[int, _Producer] = {}
        self._consumers: dict[int, _Consumer] = {}

    def facts(self) -> DriverFacts:
        settings = self._context.settings
        own = {"maxPendingMessages": str(settings.max_pending_messages), "blockIfQueueFull": str(settings.block_if_queue_full).lower()}
        return DriverFacts(client="loopback", version=f"protocol {frames.VERSION}", applied={**own, **relay_settings(settings)})

    def prepare(self) -> None:
        Link(self._context, "prepare").close()

    def open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[_Consumer]:
        if not specs:
            return []
        link = self._link(f"consumers {_numbers(spec.index for spec in specs)}")
        made = [_Consumer(self._context) for _ in specs]
        for spec, consumer in zip(specs, made, strict=True):
            self._consumers[spec.index] = consumer
            where = Address(run=self._context.nonce, topic=spec.topic.index, subscription=spec.subscription, consumer=spec.index)
            link.outbox.add(frames.subscribe(where))
        self._await_subscriptions(link, len(specs))
        return made

    def _await_subscriptions(self, link: Link, wanted: int) -> None:
        end = time.monotonic() + CONNECT_TIMEOUT
        while wanted:
            if time.monotonic() > end:
                raise TargetError(f"{link.name}: {wanted} subscriptions were not confirmed within {CONNECT_TIMEOUT:.0f} s")
            wait([link], 0.1)
            for came, now in link.pull():
                wanted -= came.kind is Kind.SUBSCRIBED
                self._dispatch(came, now)

    def open_producers(self, specs: Sequence[ProducerSpec]) -> list[_Producer]:
        if not specs:
            return []
        link = self._link(f"producers of streams {_numbers(spec.stream for spec in specs)}")
        packer = _Packer(self._context.pool)
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

    def disconnected(self) -> str | None:
        return "; ".join(f"{link.name}: {link.failure}" for link in self._links if link.failure) or None

    def close(self) -> None:
        for link in self._links:
            link.close()
        self._links.clear()

    def cleanup(self) -> None:
        """Nothing to do: the relay forgets a consumer with its connection and keeps no message without one."""


class _Producer:
    def __init__(self, context: DriverContext, spec: ProducerSpec, link: Link, packer: _Packer) -> None:
        self._context = context
        self._address = Address(run=context.nonce, topic=spec.topic.index, stream=spec.stream)
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
    def __init__(self, context: DriverContext) -> None:
        self._checksum = context.checksum
        self._arrived: list[tuple[Frame, int]] = []

    def arrived(self, frame: Frame, now: int) -> None:
        self._arrived.append((frame, now))

    def take(self) -> Received | None:
        if not self._arrived:
            return None
        came, times = zip(*self._arrived, strict=True)
        self._arrived.clear()
        counts = [len(frame.seq) for frame in came]
        flags = [_body_flags(frame) for frame in came] if self._checksum else [np.zeros(sum(counts), np.int8)]
        return Received(
            heads=np.concatenate([_heads(frame) for frame in came]),
            size=np.concatenate([frame.size for frame in came]),
            time=np.repeat(np.array(times, np.int64), counts),
            order=np.zeros(sum(counts), np.int64),
            flags=np.concatenate(flags),
        )


class _Packer:
    """Heads and payload numbers → the bytes of the messages, end to end."""

    def __init__(self, pool: PayloadPool) -> None:
        self.pool = pool
        self._copy = pool.mean_size < _COPY_BELOW
        self._bodies = [memoryview(body) for body in pool.bodies]
        self._table: NDArray[np.uint8] | None = None  # all bodies as rows, where they are small and of one size
        if self._copy and len(set(pool.sizes.tolist())) == 1:
            self._table = np.frombuffer(b"".join(pool.bodies), np.uint8).reshape(len(pool.bodies), -1)

    def pack(self, heads: NDArray[np.uint8], payload: NDArray[np.uint16]) -> list[memoryview]:
        if self._table is not None:
            head = int(self.pool.head_size[0])
            whole = np.empty((len(payload), head + self._table.shape[1]), np.uint8)
            whole[:, :head] = heads[:, :head]
            whole[:, head:] = self._table[payload] if len(self._table) > 1 else self._table
            return [whole.data.cast("B")]
        parts: list[Any] = [None] * (2 * len(payload))
        front = heads.data.cast("B")
        ends = (np.arange(len(payload)) * HEAD + self.pool.head_size[payload]).tolist()
        parts[0::2] = [front[start:end] for start, end in zip(range(0, len(front), HEAD), ends, strict=True)]
        parts[1::2] = map(self._bodies.__getitem__, payload.tolist())
        return [memoryview(b"".join(parts))] if self._copy else parts


def _heads(frame: Frame) -> NDArray[np.uint8]:
    """``(n, 32)``, the first bytes of each payload, zero padded."""
    n, size = len(frame.seq), frame.size
    heads = np.zeros((n, HEAD), np.uint8)
    if np.all(size == size[0]):
        width = min(int(size[0]), HEAD)
        heads[:, :width] = frame.payload.reshape(n, int(size[0]))[:, :width]
    elif len(frame.payload):
        starts = np.cumsum(size, dtype=np.int64) - size
        columns = np.arange(HEAD)
        read = frame.payload.take(starts[:, None] + columns, mode="clip")
        np.copyto(heads, read, where=columns < size[:, None])
    return heads


def _body_flags(frame: Frame) -> NDArray[np.int8]:
    ends = np.cumsum(frame.size, dtype=np.int64).tolist()
    payload = frame.payload.data
    whole = [body_ok(bytes(payload[start:end])) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    return np.where(whole, np.int8(0), np.int8(Flag.CORRUPT))


def _numbers(numbers: Any) -> str:
    """``0, 1, 2 …``, never long."""
    listed = list(map(str, numbers))
    return ", ".join(listed[:5]) + (f" and {len(listed) - 5} more" if len(listed) > 5 else "")
