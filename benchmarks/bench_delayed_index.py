"""The index of delayed messages on two real brokers, with a growing number of pending messages.

``python benchmarks/bench_delayed_index.py [--rounds 2] [--looks 20000,50000] [--versions
4.0.0,4.2.4]`` starts each version of Pulsar in turn (4.0.0 has the heap, 4.2.4 time buckets), round
after round. It sends each number of delayed messages to one Shared subscription of its own topic,
with due times of three kinds (``KINDS``). It reads the size of the index from the topic's stats,
the broker's CPU, and the memory that Java's heap (after a garbage collection) and the pool of
direct memory free when the subscription and its index are deleted. The Roaring column is CRoaring
(pyroaring) with the same entries and due times. ``jcmd`` of the JDK lists the heap; without it
there is no figure for it. More rounds, and a run with ``--more``, which adds to the stored data,
show the noise.

The data is in ``docs/howto/delayed-index.json``; ``python benchmarks/delayed_index.py`` makes table
and plot from it, without a broker.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pulsar
from delayed_index import BITS, DATA, KINDS, TICK, Kind, Row, draw, load, show
from pyroaring import BitMap64

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSIONS = ("4.0.0", "4.2.4")
LOOKS = (20_000, 50_000, 100_000, 200_000)
WARM = 300_000  # messages for the compiler of a new broker, which do not count
# measurements of memory after a subscription was deleted; the least counts, as timers and reads
# hold its index for some seconds
READS = 5
LATER = 3_600_000  # ms: no message becomes due during the benchmark
WAIT = 180.0  # s
HISTOGRAM = re.compile(r"\s*\d+:\s+\d+\s+(?P<bytes>\d+)\s+(?P<name>\S+)")
INDEX = re.compile(
    r"\[?L?(org\.roaringbitmap|it\.unimi\.dsi\.fastutil\.longs)\.|\[[CJ]$"
)  # and the classes of its containers
SETTINGS = {
    # with equal delays the broker stops reading ahead here, and its index stays small
    "delayedDeliveryFixedDelayDetectionLookahead": "0",
    "delayedDeliveryTickTimeMillis": str(TICK),
    # ledgers of 50 000 entries, as at a broker that has run for longer
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


class Watched:
    """A broker and its observable values."""

    def __init__(self, broker: brokers.Broker) -> None:
        self._rest = str(broker.facts.admin_url)
        self._pid = int(broker.facts.pid or 0)
        self.url = broker.facts.url

    def stats(self, topic: str) -> dict[str, Any]:
        return self._ask(f"persistent/public/default/{topic}/stats")

    def memory(self) -> tuple[float | None, float]:
        """Return the bytes on Java's heap after a collection, and of the pool of direct memory.

        The former is None without ``jcmd``.

        Heap: only the classes of an index count, as everything else changes by megabytes. Pool: the
        memory in use counts, as the JVM's figure for direct memory is in chunks of 8 MiB, which the
        pool keeps.
        """
        pool = self._ask("broker-stats/allocator-stats/default")
        chunks = [
            chunk
            for arena in pool["directArenas"]
            for chunk_list in arena["chunkLists"]
            for chunk in chunk_list["chunks"]
        ]
        return self._objects(), pool["usedDirectMemory"] - sum(
            chunk["freeBytes"] for chunk in chunks
        )

    def _objects(self) -> float | None:
        if shutil.which("jcmd") is None:
            return None
        command = ["jcmd", str(self._pid), "GC.class_histogram"]
        lines = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=120
        ).stdout.splitlines()
        found = [match for line in lines if (match := HISTOGRAM.match(line))]
        return float(sum(int(match["bytes"]) for match in found if INDEX.match(match["name"])))

    def _ask(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self._rest}/admin/v2/{path}", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        times = psutil.Process(self._pid).cpu_times()
        return float(times.user + times.system)


def due_times(kind: Kind, count: int) -> NDArray[np.int64]:
    """Return ms since the epoch, from the start of a bucket, as in the model."""
    base = (int(time.time() * 1000) + LATER) >> BITS << BITS
    if kind.within:
        return base + np.random.default_rng(1).integers(0, kind.within, count)
    return base + np.arange(count) // kind.per_ms


def send(client: Any, topic: str, due: NDArray[np.int64]) -> NDArray[np.int64]:
    """Send the messages. :returns: ``(n, 2)``, ledger and entry of each."""
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=5000)
    places = np.full((len(due), 2), -1, np.int64)
    left = [len(due)]
    done = threading.Event()

    def stored(number: int, result: Any, place: Any) -> None:
        if result == pulsar.Result.Ok:
            places[number] = place.ledger_id(), place.entry_id()
        left[0] -= 1
        if not left[0]:
            done.set()

    for number, moment in enumerate(due.tolist()):
        producer.send_async(bytes(64), partial(stored, number), deliver_at=moment)
    if not done.wait(WAIT) or (places < 0).any():
        raise SystemExit(
            f"{int((places < 0).any(axis=1).sum())} of {len(due)} messages were not acknowledged"
        )
    producer.close()
    return places


def settle(broker: Watched, topic: str, count: int) -> tuple[int, int]:
    """Return the number of messages in the index and its bytes, once all are in it."""
    end = time.monotonic() + WAIT
    while True:
        stats = broker.stats(topic)
        indexed = int(stats["subscriptions"]["s"]["msgDelayed"])
        if indexed >= count:
            return indexed, int(stats["delayedMessageIndexSizeInBytes"])
        if time.monotonic() > end:
            raise SystemExit(f"{topic}: {indexed:,} of {count:,} messages are in the index")
        time.sleep(0.5)


def roaring(due: NDArray[np.int64], places: NDArray[np.int64]) -> int:
    """Return the bytes of the bitmaps of these entries."""
    pieces: dict[tuple[int, int], list[int]] = defaultdict(list)
    for bucket, ledger, entry in np.column_stack([due >> BITS, places]).tolist():
        pieces[bucket, ledger].append(entry)
    return sum(len(BitMap64(entries, optimize=False).serialize()) for entries in pieces.values())


def least(broker: Watched) -> tuple[float | None, float]:
    """Return the least use of both memories."""
    heaps = list[float]()
    directs = list[float]()
    for _ in range(READS):
        heap, direct = broker.memory()
        heaps += [] if heap is None else [heap]
        directs.append(direct)
        time.sleep(1)
    return min(heaps, default=None), min(directs)


def measure(broker: Watched, version: str, kind: Kind, count: int, turn: int) -> Row:
    """Measure once, on a new topic."""
    topic = f"index-{KINDS.index(kind)}-{count}-{turn}"
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        due = due_times(kind, count)
        cpu = broker.cpu()
        began = time.monotonic()
        places = send(client, topic, due)
        took = time.monotonic() - began
        indexed, size = settle(broker, topic, count)
        cpu = broker.cpu() - cpu
        heap, direct = broker.memory()
        consumer.unsubscribe()  # this deletes its index, and no other memory of the messages
        heap_without, direct_without = least(broker)
    finally:
        client.close()
    return Row(
        turn=turn,
        version=version,
        due=kind.name,
        messages=indexed,
        roaring=roaring(due, places) / count,
        broker=size / indexed,
        heap=None if heap is None or heap_without is None else (heap - heap_without) / count,
        direct=(direct - direct_without) / count,
        cpu=cpu / count * 1e6,
        rate=count / took,
    )


def on(version: str, looks: tuple[int, ...], turn: int) -> list[Row]:
    """Start a broker and measure all kinds and numbers on it."""
    with tempfile.TemporaryDirectory() as name:
        asked = brokers.BrokerRequest(
            kind="pulsar",
            mode="process",
            folder=Path(name) / "broker",
            version=version,
            settings=SETTINGS,
        )
        broker = brokers.start(asked, print)
        try:
            watched = Watched(broker)
            rows = list[Row]()
            measure(watched, version, KINDS[-1], WARM, -1)
            for kind in KINDS:
                for count in looks:
                    rows.append(measure(watched, version, kind, count, turn))
                    print(rows[-1], flush=True)
            return rows
        finally:
            broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--versions", type=lambda text: tuple(text.split(",")), default=VERSIONS)
    parser.add_argument("--looks", type=numbers, default=LOOKS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--more", action="store_true")
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    runtime = java.require("Pulsar")
    machine = {
        "cores": os.cpu_count(),
        "GiB": round(psutil.virtual_memory().total / (1 << 30)),
        "java": runtime.major,
    }
    rows = load(given.data) if given.more else []
    first = max((row.turn + 1 for row in rows), default=0)
    for turn in range(first, first + given.rounds):
        for version in given.versions[
            :: -1 if turn % 2 else 1
        ]:  # alternating, so that changes of the machine affect both
            rows += on(version, given.looks, turn)
            text = ",\n  ".join(json.dumps(rounded(row)) for row in rows)
            given.data.write_text(
                f'{{"machine": {json.dumps(machine)},\n "settings": {json.dumps(SETTINGS)},\n'
                f' "rows": [\n  {text}\n]}}\n'
            )
    show(rows)
    draw(given.data)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def rounded(row: Row) -> dict[str, Any]:
    values = asdict(row)
    for key, value in values.items():
        if isinstance(value, float):
            values[key] = round(value, 3)
    return values


if __name__ == "__main__":
    main()
