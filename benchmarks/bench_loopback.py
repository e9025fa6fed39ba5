"""CPU per message of the loopback driver and of its relay.

It is measured at full speed and at a rate, for one stream and for many.

``python benchmarks/bench_loopback.py [--seconds 2]``. It is CPU time, not wall time, as driver and
relay may share a core with other programs. The driver's figure is everything on its side: envelope,
framing, both directions of the socket, acks, heads of arrivals; without making the bursts.

Each stream has its own topic and consumer; a burst takes the streams in turn and continues after
the last one of the burst before. Full speed is limited by a window of four bursts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.drivers.base import Burst, DriverContext, TargetAddress
from pytest_loadtest.drivers.loopback.driver import LoopbackDriver
from pytest_loadtest.drivers.loopback.settings import LoopbackSettings
from pytest_loadtest.message import payloads
from pytest_loadtest.schedule.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

TICKS = os.sysconf("SC_CLK_TCK")
IN_FLIGHT = 4  # bursts
# ns between two polls at a rate, as in the engine; at full speed there is one after every burst
COLLECT = 25_000_000


@dataclass(frozen=True, kw_only=True)
class Case:
    """Bytes of a message, messages of a burst, streams, and bursts a second.

    None: full speed, one stream.
    """

    size: int = 128
    burst: int
    streams: int = 1
    rate: int | None = None


CASES = (
    Case(burst=1000),
    Case(burst=100),
    Case(burst=10),
    Case(burst=1),
    Case(size=25_614, burst=20),
    *(
        Case(burst=burst, streams=streams, rate=1000)
        for streams in (1, 200, 1000, 20_000)
        for burst in (1000, 100, 10, 1)
    ),
)


@contextmanager
def relay() -> Iterator[tuple[int, int]]:
    """Start the relay. :returns: its process id and port."""
    command = [sys.executable, "-m", "pytest_loadtest.drivers.loopback.relay"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        yield process.pid, json.loads(process.stdout.readline())["port"]
        process.stdin.close()


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def opened(port: int, case: Case) -> LoopbackDriver:
    """Return a driver with all its streams and consumers open."""
    pool = payloads.build_pool(
        buckets=None,
        message_size=case.size,
        randomized=True,
        random_ratio=0.5,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
    )
    driver = LoopbackDriver(
        DriverContext(
            target=TargetAddress(url=f"loopback://127.0.0.1:{port}"),
            settings=LoopbackSettings(max_pending_messages=IN_FLIGHT * case.burst),
            clock=time.monotonic_ns,
            run="bench",
            nonce=int(time.monotonic_ns() & 0xFFFF_FFFF),
            worker="gw0",
            topology=Topology(
                topics=case.streams, partitions=1, producers=1, subscriptions=1, consumers=1
            ),
            pool=pool,
        )
    )
    driver.open_consumers(range(case.streams))
    driver.open_producers(range(case.streams))
    return driver


def burst_from(first: int, case: Case) -> Burst:
    """Return the next burst after ``first`` messages."""
    row = np.arange(first, first + case.burst)
    sent, idle = np.zeros((2, case.burst), np.int64)
    payload = np.zeros(case.burst, np.uint16)
    stream = (row % case.streams).astype(np.int32)
    return Burst(
        row=row,
        stream=stream,
        seq=row // case.streams,
        intended=row,
        payload=payload,
        sent=sent,
        idle=idle,
    )


def rest_of(burst: Burst, refused: NDArray[np.int64]) -> Burst:
    """Return the messages to offer again."""
    columns = ("row", "stream", "seq", "intended", "payload", "sent", "idle")
    return Burst(**{name: getattr(burst, name)[refused] for name in columns})


def run(port: int, pid: int, case: Case, seconds: float) -> str:
    """Measure one row of the table."""
    driver = opened(port, case)
    sent = got = bursts = collect_at = 0
    making = 0.0
    left: Burst | None = None
    start = time.monotonic_ns()
    cpu = time.process_time()
    relay_cpu = cpu_of(pid)
    due = start
    end = start + int(seconds * 1e9)
    while (now := time.monotonic_ns()) < end or got < sent:
        if left is None and due <= now < end:
            before = time.thread_time()
            left = burst_from(bursts * case.burst, case)
            bursts += 1
            due = start + bursts * 10**9 // case.rate if case.rate else due
            making += time.thread_time() - before
        if left is not None:
            refused = driver.send(left)
            sent += len(left) - (0 if refused is None else len(refused))
            before = time.thread_time()
            left = None if refused is None else rest_of(left, refused)
            making += time.thread_time() - before
        if case.rate:
            wait = max(1_000_000, due - now)
        else:
            wait = 10_000_000 if left else 0
        driver.poll(wait)
        if case.rate is None or now >= collect_at:
            driver.acks()
            received = driver.take()
            got += len(received.time) if received else 0
            collect_at = now + COLLECT
    wall = (time.monotonic_ns() - start) / 1e9
    cpu = time.process_time() - cpu - making
    relay_cpu = cpu_of(pid) - relay_cpu
    driver.close()
    return (
        f"{case.streams:6d} streams  {case.size:6d} B  bursts of {case.burst:5d} "
        f" {sent / wall / 1e3:8.1f} k msg/s   driver {cpu / sent * 1e6:7.3f} µs/msg   relay"
        f" {relay_cpu / sent * 1e6:7.3f} µs/msg ({relay_cpu / wall:6.1%} of a core)"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    with relay() as (pid, port):
        for case in CASES:
            print(run(port, pid, case, seconds), flush=True)


if __name__ == "__main__":
    main()
