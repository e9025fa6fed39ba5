"""CPU time of the engine per message in each direction, with recording.

Run ``python benchmarks/bench_engine.py [--rounds 3]``.

Out: the engine's loop over a driver that accepts and answers everything, on a fake clock. In: the
consumers' arrivals, decoded, checked for order and recorded. The figure is process CPU time with
the recorder's writer thread, the median of the rounds. Start: from the description of a phase until
its first tick.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Acks, Burst, Joined, Received
from pytest_loadtest.engine.receive import Inbox
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import COLLECT, Engine, drive
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.message import envelope
from pytest_loadtest.message.payloads import Bucket, PayloadPool, build_pool, parse_range
from pytest_loadtest.message.samples import Status
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRODUCTION = {  # as in profiles/prod-2m.yaml
    "0-256": 234,
    "256-1024": 456,
    "1024-4096": 678,
    "4096-16384": 312,
    "16384-65536": 98,
    "65536-262144": 45,
    "262144-1048576": 18,
    "1048576-5242880": 6,
}
KEYS = 10_000


@dataclass(frozen=True)
class Shape:
    """One row of the table; by default as many consumers as streams."""

    streams: int
    rate: int
    consumers: int = 0
    keys: bool = False

    @property
    def topology(self) -> Topology:
        consumers = self.consumers or self.streams
        return Topology(
            topics=1, partitions=1, producers=self.streams, subscriptions=1, consumers=consumers
        )

    @property
    def messages(self) -> int:
        return max(self.rate, 1_000_000 if self.rate >= 100_000 else 3 * self.rate)

    @property
    def name(self) -> str:
        return f"{self.streams:>6} {self.rate:>9,}/s" + (" 8 sizes, keys" if self.keys else "")


SHAPES = (
    Shape(1, 1_000),
    Shape(1, 10_000),
    Shape(1, 100_000),
    Shape(1, 1_000_000),
    Shape(100, 10_000),
    Shape(200, 100_000),
    Shape(1_000, 10_000),
    Shape(10_000, 10_000),
    Shape(1_000, 100_000),
    Shape(20_000, 100_000),
    Shape(200, 100_000, consumers=100, keys=True),
)


class Swallowing:
    """A driver that accepts everything and answers it at the next call.

    So the cost is the engine's.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._taken = list[np.ndarray]()

    def send(self, burst: Burst) -> None:
        burst.sent[:] = self._clock()
        self._taken.append(burst.row)

    def acks(self) -> Acks | None:
        if not self._taken:
            return None
        row = np.concatenate(self._taken)
        self._taken = []
        return Acks(row, np.full(len(row), self._clock()), np.full(len(row), Status.ACKED, np.int8))

    def take(self) -> None:
        return None

    def poll(self, timeout_ns: int) -> None:
        self._clock.advance(timeout_ns)

    def attached(self) -> None:
        return None

    def disconnected(self) -> None:
        return None


class UntilOver:
    """Ends the phase by the real rule."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._drain = Drain("measure", 1, 0, SECOND)
        self._over = False

    def ended(self) -> bool:
        return self._over

    def changes(self) -> tuple[()]:
        return ()

    def report(self, progress: object) -> None:
        self._over = self._drain.has_ended({"main": progress}, self._clock())  # type: ignore[dict-item]


def pool_of(shape: Shape) -> PayloadPool:
    sizes = [
        Bucket(name=name, low=parse_range(name)[0], high=parse_range(name)[1], weight=weight)
        for name, weight in PRODUCTION.items()
    ]
    message_size = None if shape.keys else 128
    return build_pool(
        buckets=sizes if shape.keys else None,
        message_size=message_size,
        representative="midpoint",
        randomized=False,
        random_ratio=0.0,
        pool_size=1,
        file_content=None,
        seed=0,
        checksum=False,
        max_size=None,
    )


def phase_of(shape: Shape) -> Phase:
    return Phase(
        name="measure",
        duration=shape.messages * SECOND // shape.rate,
        pacer=Pacer.of(shape.rate, shape.streams),
        before=StreamCounts(streams=shape.streams),
        recorded=True,
    )


def engine_of(shape: Shape, clock: FakeClock, driver: Swallowing, pool: PayloadPool) -> Engine:
    nobody = np.empty(0, np.int32)
    return Engine(
        Setup(
            driver=driver,
            clock=clock,
            pool=pool,
            topology=shape.topology,
            streams=range(shape.streams),  # type: ignore[arg-type]
            opened=Joined(nobody, nobody),
            nonce=1,
            seed=0,
            key_distributor="KEY_ROUND_ROBIN" if shape.keys else "NO_KEY",
            max_send_delay=10 * SECOND,
            ordered=True,
        )
    )


def out(shape: Shape, folder: Path) -> float:
    """Return the µs per message sent, answered and recorded."""
    clock = FakeClock()
    pool = pool_of(shape)
    engine = engine_of(shape, clock, Swallowing(clock), pool)
    recorder = Recorder(folder, "main", pool, shape.topology, range(shape.streams))
    begun = time.process_time_ns()
    engine.begin(phase_of(shape), clock() + SECOND, UntilOver(clock), recorder)
    drive([engine], clock)
    recorder.close({})
    assert engine.sender.counts.acked == shape.messages
    return (time.process_time_ns() - begun) / shape.messages / 1000


def start(shape: Shape, folder: Path) -> float:
    """Return the µs from the description of a phase until its first messages are sent."""
    clock = FakeClock()
    pool = pool_of(shape)
    engine = engine_of(shape, clock, Swallowing(clock), pool)
    begun = time.process_time_ns()
    engine.begin(phase_of(shape), clock(), UntilOver(clock), None)
    engine.step(clock(), clock())
    return (time.process_time_ns() - begun) / 1000


class Handed:
    """A driver that returns prepared arrivals."""

    def __init__(self, received: Iterator[Received]) -> None:
        self._received = list(received)[::-1]

    def take(self) -> Received | None:
        return self._received.pop() if self._received else None


def handed(shape: Shape, pool: PayloadPool) -> Iterator[Received]:
    """Return the arrivals of each call.

    The streams, or their keys, are divided among the consumers.
    """
    each = max(shape.rate * COLLECT // SECOND, 1)
    consumers = shape.consumers or shape.streams
    for first in range(0, shape.messages, each):
        number = np.arange(first, min(first + each, shape.messages))
        seq, stream = np.divmod(number, shape.streams)
        order = seq % KEYS if shape.keys else np.zeros(len(number), np.int64)
        times = number * SECOND // shape.rate
        payload = (number % len(pool.sizes)).astype(np.uint16)
        heads = envelope.encode_heads(
            pool, nonce=1, stream=stream.astype(np.int32), seq=seq, intended=times, payload=payload
        )
        place = ((order if shape.keys else stream) % consumers).astype(np.int32)
        yield Received(
            place, heads, pool.sizes[payload], times + 500, order, np.zeros(len(number), np.int8)
        )


def into(shape: Shape, folder: Path) -> float:
    """Return the µs per message taken, checked and recorded."""
    pool = pool_of(shape)
    inbox = Inbox(Handed(handed(shape, pool)), pool, nonce=1, ordered=True)  # type: ignore[arg-type]
    everybody = np.arange(shape.topology.all_consumers, dtype=np.int32)
    inbox.add(Joined(everybody, everybody))
    inbox.begin(phase_of(shape), 0)
    recorder = Recorder(folder, "main", pool, shape.topology, range(shape.streams))
    begun = time.process_time_ns()
    for now in range(0, shape.messages * SECOND // shape.rate, COLLECT):
        columns = inbox.collect()
        if columns is not None:
            recorder.received(columns)
        recorder.flush_if_due(now)
    recorder.close({})
    assert (inbox.counts.received, inbox.repeats) == (shape.messages, 0)
    return (time.process_time_ns() - begun) / shape.messages / 1000


def median(measure: Callable[[Shape, Path], float], shape: Shape, rounds: int) -> float:
    """Return the median of several rounds in separate folders."""
    runs = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure(shape, Path(folder)))
    return statistics.median(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    median(out, Shape(1, 1_000), 1)  # imports on use
    print(f"streams     rate{'':16}{'out':>12}{'in':>12}   CPU a message{'start':>14}")
    for shape in SHAPES:
        figures = (
            median(out, shape, rounds),
            median(into, shape, rounds),
            median(start, shape, rounds) / 1000,
        )
        print(
            f"{shape.name:<32}{figures[0]:>9.3f} µs{figures[1]:>9.3f} µs{figures[2]:>26.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
