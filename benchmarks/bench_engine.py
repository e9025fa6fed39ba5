"""CPU time of the engine per message, each way, recording included: ``python benchmarks/bench_engine.py``.

Out: the engine's loop over a driver that takes and answers everything and does no more, on a clock that stands still. In: what a consumer
hands over, decoded, checked for order and recorded. Process CPU time, the recorder's writer thread included; three runs, the median.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pytest_loadtest import envelope
from pytest_loadtest.drivers._base import Acks, Burst, Received
from pytest_loadtest.engine.consume import Inbox
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import TICK, Engine, drive
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.pacing import Pacer
from pytest_loadtest.payloads import PayloadPool, build_pool
from pytest_loadtest.phases import Phase
from pytest_loadtest.quantities import SECOND
from pytest_loadtest.samples import Status
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.topology import ConsumerSpec, TopicSpec, Topology

MESSAGES = 1_000_000


class Swallowing:
    """A driver and its producer that take everything and answer it at the next look: what is left is the engine."""

    in_flight = idle_since = 0

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._taken = clock, list[np.ndarray]()

    def send(self, burst: Burst) -> int:
        burst.sent[:] = self._clock()
        self._taken.append(burst.seq)
        return len(burst.seq)

    def acks(self) -> Acks | None:
        if not self._taken:
            return None
        seq, self._taken = np.concatenate(self._taken), []
        return Acks(seq, np.full(len(seq), self._clock()), np.full(len(seq), Status.ACKED, np.int8))

    def poll(self, timeout_ns: int) -> None:
        self._clock.advance(timeout_ns)

    def attached(self) -> tuple[()]:
        return ()


class UntilOver:
    """Ends the phase by the real rule."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self._drain, self._over = clock, Drain("measure", 1, 0, SECOND), False

    def ended(self) -> bool:
        return self._over

    def changes(self) -> tuple[()]:
        return ()

    def report(self, progress: object) -> None:
        self._over = self._drain.over({"main": progress}, self._clock())  # type: ignore[dict-item]


def pool_of(size: int = 128) -> PayloadPool:
    return build_pool(
        buckets=None, message_size=size, representative="midpoint", randomized=False, random_ratio=0.0, pool_size=1, file_content=None,
        seed=0, checksum=False, max_size=None,
    )  # fmt: skip


def out(burst: int, folder: Path) -> float:
    """ns per message sent, answered and recorded."""
    clock, pool = FakeClock(), pool_of()
    topology = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1)
    driver = Swallowing(clock)
    recorder = Recorder(folder, "main", pool)
    engine = Engine(
        driver, [(topology.producer_specs()[0], driver)], [], pool=pool, clock=clock,  # type: ignore[arg-type, list-item]
        nonce=1, seed=0, key_distributor="NO_KEY", max_send_delay=10 * SECOND, ordered=True,
    )  # fmt: skip
    rate = burst * SECOND // TICK
    pacer, duration = Pacer.of(rate, 1), MESSAGES * SECOND // rate
    phase = Phase(name="measure", duration=duration, pacer=pacer, first=(0,), recorded=True)
    begun = time.process_time_ns()
    engine.begin(phase, clock() + SECOND, UntilOver(clock), recorder)
    drive([engine], clock)
    recorder.close({})
    return (time.process_time_ns() - begun) / MESSAGES


class Handed:
    """A consumer that hands over what it was given."""

    def __init__(self, received: list[Received]) -> None:
        self._received = received

    def take(self) -> Received | None:
        return self._received.pop() if self._received else None


def into(burst: int, folder: Path) -> float:
    """ns per message taken, checked and recorded."""
    pool, recorder = pool_of(), Recorder(folder, "main", pool_of())
    payload = np.zeros(burst, np.uint16)
    received = []
    for first in range(MESSAGES - burst, -1, -burst):
        seq = np.arange(first, first + burst)
        heads = envelope.encode_heads(pool, nonce=1, stream=0, seq=seq, intended=seq * 1000, payload=payload)
        zeros = np.zeros(burst, np.int64)
        received.append(Received(heads, np.full(burst, 128, np.int32), seq * 1000 + 500, zeros, zeros.astype(np.int8)))
    spec = ConsumerSpec(index=0, topic=TopicSpec(index=0), subscription=0)
    inbox = Inbox(nonce=1, ordered=True)
    inbox.add(spec, Handed(received))  # type: ignore[arg-type]
    inbox.begin(Phase(name="measure", duration=SECOND, pacer=Pacer.of(MESSAGES, 1), first=(0,), recorded=True), 0)
    begun = time.process_time_ns()
    for now in range(0, MESSAGES, burst):
        for rows in inbox.collect():
            recorder.received(rows)
        recorder.flush_if_due(now)
    recorder.close({})
    return (time.process_time_ns() - begun) / MESSAGES


def median(measure: Callable[[int, Path], float], burst: int) -> float:
    """Of three runs in folders of their own."""
    runs = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure(burst, Path(folder)))
    return statistics.median(runs)


def main() -> None:
    print(f"{'':14}{'out':>12}{'in':>12}   CPU per message")
    for burst in (100, 1000):
        print(f"bursts of {burst:<4}{median(out, burst) / 1000:>9.3f} µs{median(into, burst) / 1000:>9.3f} µs")


if __name__ == "__main__":
    main()
