"""The index of delayed messages: model, a real Roaring library and two real brokers side by side.

``python benchmarks/bench_delayed_index.py [messages] [version …]``: starts each version of Pulsar (4.0.0 has the heap, 4.2.4 time buckets),
sends so many delayed messages (100 000 unless told otherwise) to one Shared subscription, twice: due one after the other, a message a
millisecond, and due at random within ten minutes. It reads the size of the index from the topic's stats, the broker's CPU, and what Java's
heap (after a garbage collection) and direct memory lose when the subscription is deleted, and its index with it. The Roaring column is
CRoaring (pyroaring) on the very entries and due times of the messages sent. ``jcmd`` of the JDK collects the garbage; without it that
column is left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pulsar
from prometheus_client.parser import text_string_to_metric_families
from pyroaring import BitMap64

from pytest_loadtest import brokers
from pytest_loadtest.models.delayed import HEAP_ENTRY, approximation, bits_of, in_order, scattered

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSIONS = ("4.0.0", "4.2.4")
TICK = 1000
BITS = bits_of(TICK)
RANGE = 600_000  # ms
LATER = 3_600_000  # ms: nothing becomes due while the bench runs
WAIT = 120.0  # s
# of equal or ascending delays the broker stops reading ahead here, and its index stays small
SETTINGS = {"delayedDeliveryFixedDelayDetectionLookahead": "0", "delayedDeliveryTickTimeMillis": str(TICK)}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scenario on one broker; bytes of a message unless said otherwise."""

    version: str
    due: str
    messages: int
    indexed: int
    model: float
    thumb: float
    roaring: float
    broker: float
    heap: float | None
    direct: float
    cpu: float
    rate: float


class Watched:
    """A broker and what can be asked of it."""

    def __init__(self, broker: brokers.Broker) -> None:
        self._admin, self._pid = str(broker.facts.admin_url), int(broker.facts.pid or 0)
        self.url = broker.facts.url

    def stats(self, topic: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self._admin}/admin/v2/persistent/public/default/{topic}/stats", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def memory(self) -> tuple[float | None, float]:
        """Heap after a collection (None without ``jcmd``), and direct memory, in bytes."""
        collected = shutil.which("jcmd") is not None
        if collected:
            subprocess.run(["jcmd", str(self._pid), "GC.run"], check=True, capture_output=True, timeout=120)
        with urllib.request.urlopen(f"{self._admin}/metrics/", timeout=60) as answer:
            samples = [s for family in text_string_to_metric_families(answer.read().decode()) for s in family.samples]
        heap = sum(s.value for s in samples if s.name == "jvm_memory_bytes_used" and s.labels.get("area") == "heap")
        direct = sum(s.value for s in samples if s.name == "jvm_memory_direct_bytes_used")
        return heap if collected else None, direct

    def cpu(self) -> float:
        """Seconds so far."""
        times = psutil.Process(self._pid).cpu_times()
        return float(times.user + times.system)


def due_times(kind: str, count: int) -> NDArray[np.int64]:
    """ms since the epoch."""
    base = int(time.time() * 1000) + LATER
    if kind == "in order":
        return base + np.arange(count)
    return base + np.random.default_rng(1).integers(0, RANGE, count)


def send(client: Any, topic: str, due: NDArray[np.int64]) -> NDArray[np.int64]:
    """:returns: ``(n, 2)``, ledger and entry of each message."""
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=5000)
    places, left, done = np.full((len(due), 2), -1, np.int64), [len(due)], threading.Event()

    def stored(number: int, result: Any, place: Any) -> None:
        if result == pulsar.Result.Ok:
            places[number] = place.ledger_id(), place.entry_id()
        left[0] -= 1
        if not left[0]:
            done.set()

    for number, moment in enumerate(due.tolist()):
        producer.send_async(bytes(64), partial(stored, number), deliver_at=moment)
    if not done.wait(WAIT) or (places < 0).any():
        raise SystemExit(f"{int((places < 0).any(axis=1).sum())} of {len(due)} messages were not acknowledged")
    producer.close()
    return places


def settle(broker: Watched, topic: str, count: int) -> tuple[int, int]:
    """Messages in the index and its bytes, once all are there or no more come."""
    end, before = time.monotonic() + WAIT, -1
    while time.monotonic() < end:
        stats = broker.stats(topic)
        indexed = int(stats["subscriptions"]["s"]["msgDelayed"])
        if indexed >= count or (indexed == before and indexed):
            break
        before = indexed
        time.sleep(3)
    return indexed, int(stats["delayedMessageIndexSizeInBytes"])


def roaring(due: NDArray[np.int64], places: NDArray[np.int64]) -> int:
    """Bytes of the bitmaps of these entries."""
    pieces: dict[tuple[int, int], list[int]] = defaultdict(list)
    for bucket, ledger, entry in np.column_stack([due >> BITS, places]).tolist():
        pieces[bucket, ledger].append(entry)
    return sum(len(BitMap64(entries, optimize=False).serialize()) for entries in pieces.values())


def measure(broker: Watched, version: str, kind: str, count: int) -> Row:
    """One scenario on a topic of its own."""
    topic = f"index-{kind.replace(' ', '-')}-{count}"
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        due, cpu, began = due_times(kind, count), broker.cpu(), time.monotonic()
        places = send(client, topic, due)
        took = time.monotonic() - began
        indexed, size = settle(broker, topic, count)
        cpu = broker.cpu() - cpu
        heap, direct = broker.memory()
        consumer.unsubscribe()  # its index goes with it, and nothing else that the messages take
        heap_without, direct_without = broker.memory()
    finally:
        client.close()
    ledgers = len(np.unique(places[:, 0]))
    each = -(-count // ledgers)
    made = in_order(count, 1, BITS, each) if kind == "in order" else scattered(count, RANGE, BITS, each)
    old = version.startswith("4.0.0")
    return Row(
        version=version, due=kind, messages=count, indexed=indexed, model=HEAP_ENTRY if old else made.bitmaps / count,
        thumb=HEAP_ENTRY if old else approximation(1 if kind == "in order" else count / RANGE, BITS, each),
        roaring=roaring(due, places) / count, broker=size / max(indexed, 1),
        heap=None if heap is None or heap_without is None else (heap - heap_without) / count, direct=(direct - direct_without) / count,
        cpu=cpu / count * 1e6, rate=count / took,
    )  # fmt: skip


def show(rows: list[Row]) -> None:
    """As a table."""
    print("\nbytes a message              |        model  rule of    real   broker's |   freed by deletion |  broker CPU     sent")
    print("Pulsar  due        in index  |   of tracker    thumb  Roaring    metric | Java heap    direct |  µs/message    msg/s")
    for row in rows:
        heap = "       –" if row.heap is None else f"{row.heap:8.1f}"
        print(
            f"{row.version:<7} {row.due:<9} {row.indexed:>9,}  | {row.model:12.2f} {row.thumb:8.2f} {row.roaring:8.2f} {row.broker:9.2f} "
            f"| {heap}   {row.direct:8.1f} | {row.cpu:11.0f} {row.rate:8,.0f}"
        )


def main(count: int = 100_000, versions: tuple[str, ...] = VERSIONS) -> None:
    rows = []
    for version in versions:
        with tempfile.TemporaryDirectory() as name:
            asked = brokers.BrokerRequest(kind="pulsar", mode="process", folder=Path(name) / "broker", version=version, settings=SETTINGS)
            broker = brokers.start(asked, print)
            try:
                rows += [measure(Watched(broker), version, kind, count) for kind in ("in order", "at random")]
            finally:
                broker.stop()
    show(rows)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *([tuple(sys.argv[2:])] if sys.argv[2:] else []))
