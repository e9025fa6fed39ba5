"""A driver without a target: what the engine costs by itself, and runs whose every latency is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest import envelope
from pytest_loadtest.drivers._base import Acks, Burst, ConsumerSpec, DriverContext, DriverFacts, ProducerSpec, Received
from pytest_loadtest.samples import Status
from pytest_loadtest.testing.clock import FakeClock

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.drivers._base import Clock, Consumer

Latency = Callable[["NDArray[np.int64]"], "NDArray[np.int64]"]


@dataclass(slots=True)
class _Due:
    """Rows that become visible at a time of their own, in the order of those times."""

    steady: bool  # what is added is never due before what was there
    time: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    row: NDArray[np.uint8] = field(default_factory=lambda: np.empty((0, 0), np.uint8))

    def add(self, due: NDArray[np.int64], row: NDArray[np.uint8]) -> None:
        waiting = len(self.time)
        self.time = np.concatenate([self.time, due]) if waiting else due
        self.row = np.concatenate([self.row, row]) if waiting else row
        if not self.steady:
            order = np.argsort(self.time, kind="stable")
            self.time, self.row = self.time[order], self.row[order]

    def ripe(self, now: int) -> int:
        return int(np.searchsorted(self.time, now, side="right"))

    def take(self, now: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]] | None:
        n = self.ripe(now)
        if not n:
            return None
        taken = self.time[:n], self.row[:n]
        self.time, self.row = self.time[n:], self.row[n:]
        return taken


class NullDriver:
    """Takes everything that the window allows and answers after ``latency``, in memory; no target, no threads.

    :param deliver: hand every message to this driver's own consumers: each subscription of the topic, shared by stream modulo consumers.
    :param latency: sequence numbers → ns from sent to acked and to received, each stamped exactly then; None: 0.
    :param window: messages that one producer may have in flight; None: no bound.

    With a :class:`FakeClock`, ``poll`` lets exactly its time-out pass; with a real clock it sleeps.
    """

    def __init__(self, context: DriverContext, *, deliver: bool = True, latency: Latency | None = None, window: int | None = None) -> None:
        self._context = context
        self._deliver = deliver
        self._latency = latency
        self._window = window
        self._consumers: dict[int, dict[int, list[_NullConsumer]]] = {}
        self._attached: list[tuple[ConsumerSpec, Consumer]] = []

    def facts(self) -> DriverFacts:
        return DriverFacts(client="null", version="1")

    def prepare(self) -> None:
        pass

    def open_consumers(self, specs: Sequence[ConsumerSpec]) -> list[_NullConsumer]:
        made = [_NullConsumer(self._context.clock, steady=self._latency is None) for _ in specs]
        for spec, consumer in zip(specs, made, strict=True):
            self._consumers.setdefault(spec.topic.index, {}).setdefault(spec.subscription, []).append(consumer)
        return made

    def open_producers(self, specs: Sequence[ProducerSpec]) -> list[_NullProducer]:
        made = []
        for spec in specs:
            served = self._consumers.setdefault(spec.topic.index, {}) if self._deliver else {}
            made.append(_NullProducer(self._context, spec.stream, served, self._latency, self._window))
        return made

    def attach(self, specs: Sequence[ConsumerSpec]) -> None:
        self._attached += zip(specs, self.open_consumers(specs), strict=True)

    def attached(self) -> list[tuple[ConsumerSpec, Consumer]]:
        done, self._attached = self._attached, []
        return done

    def detach(self, consumers: Sequence[Consumer]) -> None:
        for shared in [shared for subscriptions in self._consumers.values() for shared in subscriptions.values()]:
            for consumer in [consumer for consumer in shared if consumer in consumers]:
                shared.remove(consumer)
                consumer.leave(shared)

    def poll(self, timeout_ns: int) -> None:
        if isinstance(self._context.clock, FakeClock):
            self._context.clock.sleep(timeout_ns)
        elif timeout_ns > 0:
            time.sleep(timeout_ns / 1e9)

    def disconnected(self) -> str | None:
        return None

    def close(self) -> None:
        self._consumers.clear()

    def cleanup(self) -> None:
        pass


class _NullConsumer:
    def __init__(self, clock: Clock, *, steady: bool) -> None:
        self._clock = clock
        self._due = _Due(steady)
        self._seen: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []  # before the pause
        self._paused = False

    def deliver(self, due: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
        """``rows`` are heads with the payload's size (int32) behind."""
        self._due.add(due, rows)

    def pause(self) -> None:
        self._look()
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._due.time = np.maximum(self._due.time, self._clock())

    def leave(self, others: list[_NullConsumer]) -> None:
        """What is not taken yet goes to another one, or stays where there is none."""
        self._look()
        if self._paused:
            self.resume()
        if others and len(self._due.time):
            others[0].deliver(self._due.time, self._due.row)
            self._due = _Due(steady=True)

    def _look(self) -> None:
        if not self._paused and (taken := self._due.take(self._clock())) is not None:
            self._seen.append(taken)

    def take(self) -> Received | None:
        self._look()
        if not self._seen:
            return None
        times, rows = self._seen[0] if len(self._seen) == 1 else map(np.concatenate, zip(*self._seen, strict=True))
        self._seen.clear()
        n = len(times)
        size = np.ascontiguousarray(rows[:, envelope.HEAD :]).view(np.int32).ravel()
        return Received(rows[:, : envelope.HEAD], size, times, np.zeros(n, np.int64), np.zeros(n, np.int8))


class _NullProducer:
    def __init__(
        self, context: DriverContext, stream: int, served: dict[int, list[_NullConsumer]], latency: Latency | None, window: int | None
    ) -> None:
        self._context = context
        self._stream = stream
        self._served = served
        self._latency = latency
        self._window = window
        self._due = _Due(latency is None)
        self._idle_since = 0

    def send(self, burst: Burst) -> int:
        n = len(burst) if self._window is None else min(len(burst), self._window - self.in_flight)
        if n <= 0:
            return 0
        now = burst.sent[:n] = self._context.clock()
        seq = burst.seq[:n].copy()
        answered = np.full(n, now) if self._latency is None else now + self._latency(seq)
        self._due.add(answered, seq.reshape(n, 1).view(np.uint8))
        self._idle_since = max(self._idle_since, now if self._latency is None else int(answered.max()))
        shared = [consumers for consumers in self._served.values() if consumers]
        if shared:
            rows = self._rows(burst, n)
            for consumers in shared:
                consumers[self._stream % len(consumers)].deliver(answered, rows)
        return n

    def _rows(self, burst: Burst, n: int) -> NDArray[np.uint8]:
        pool, payload = self._context.pool, burst.payload[:n]
        rows = np.empty((n, envelope.HEAD + 4), np.uint8)
        rows[:, : envelope.HEAD] = envelope.encode_heads(
            pool, nonce=self._context.nonce, stream=self._stream, seq=burst.seq[:n], intended=burst.intended[:n], payload=payload
        )
        rows[:, envelope.HEAD :] = pool.sizes[payload].astype(np.int32).reshape(n, 1).view(np.uint8)
        return rows

    def acks(self) -> Acks | None:
        if (taken := self._due.take(self._context.clock())) is None:
            return None
        times, rows = taken
        seq = np.ascontiguousarray(rows).view(np.int64).ravel()
        return Acks(seq, times, np.full(len(seq), Status.ACKED, np.int8))

    @property
    def in_flight(self) -> int:
        return len(self._due.time) - self._due.ripe(self._context.clock())

    @property
    def idle_since(self) -> int:
        return self._idle_since
