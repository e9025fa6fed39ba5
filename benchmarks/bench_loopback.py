"""CPU per message of the loopback driver and of its relay, flat out and at a rate.

``python benchmarks/bench_loopback.py [--seconds 2]``. CPU time, not wall time: driver and relay may share a core with whatever else runs.
The driver's figure is everything on its side: envelope, framing, both directions of the socket, acks, heads of what was received.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest import payloads
from pytest_loadtest.drivers._base import Burst, ConsumerSpec, DriverContext, ProducerSpec, TargetAddress, TopicSpec
from pytest_loadtest.drivers.loopback import LoopbackDriver
from pytest_loadtest.profile.settings import LoopbackSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def relay() -> Iterator[tuple[int, int]]:
    """Its process id and port."""
    command = [sys.executable, "-m", "pytest_loadtest.brokers.relay"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        yield process.pid, json.loads(process.stdout.readline())["port"]
        process.stdin.close()


def cpu_of(pid: int) -> float:
    """Seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(port: int, pid: int, *, size: int, burst: int, rate: float | None, seconds: float) -> str:
    pool = payloads.build_pool(
        buckets=None, message_size=size, randomized=True, random_ratio=0.5, file_content=None, seed=1, checksum=False, max_size=None
    )
    topic = TopicSpec(index=0)
    driver = LoopbackDriver(
        DriverContext(
            target=TargetAddress(url=f"loopback://127.0.0.1:{port}"),
            settings=LoopbackSettings(max_pending_messages=4 * burst),
            clock=time.monotonic_ns,
            run="bench",
            nonce=int(time.monotonic_ns() & 0xFFFF_FFFF),
            worker="gw0",
            topics=(topic,),
            pool=pool,
        )
    )
    (consumer,) = driver.open_consumers([ConsumerSpec(index=0, topic=topic, subscription=0)])
    (producer,) = driver.open_producers([ProducerSpec(stream=0, topic=topic)])
    sent = got = 0
    payload = np.zeros(burst, np.uint16)
    start, cpu, relay_cpu = time.monotonic_ns(), time.process_time(), cpu_of(pid)
    end = start + int(seconds * 1e9)
    while (now := time.monotonic_ns()) < end or got < sent:
        wait = 10_000_000
        if now < end and (rate is None or sent < (now - start) * rate / 1e9):
            seq = np.arange(sent, sent + burst)
            taken = producer.send(Burst(seq=seq, intended=seq, payload=payload, sent=np.empty(burst, np.int64)))
            sent += taken
            wait = 0 if taken else wait
        elif rate is not None and now < end:
            wait = max(0, int(start + sent * 1e9 / rate) - now)
        driver.poll(wait)
        producer.acks()
        received = consumer.take()
        got += len(received.time) if received else 0
    wall, cpu, relay_cpu = (time.monotonic_ns() - start) / 1e9, time.process_time() - cpu, cpu_of(pid) - relay_cpu
    driver.close()
    return (
        f"{size:6d} B  bursts of {burst:5d}  {sent / wall / 1e3:8.1f} k msg/s   driver {cpu / sent * 1e6:6.3f} µs/msg   "
        f"relay {relay_cpu / sent * 1e6:6.3f} µs/msg ({relay_cpu / wall:6.1%} of a core)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    with relay() as (pid, port):
        for size, burst, rate in (
            (128, 1000, None),
            (128, 100, None),
            (128, 10, None),
            (25_614, 20, None),
            (128, 50, 50_000.0),
            (128, 1000, 1e6),
        ):
            print(run(port, pid, size=size, burst=burst, rate=rate, seconds=seconds), flush=True)


if __name__ == "__main__":
    main()
