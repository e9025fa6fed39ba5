"""Two processes against a real broker, one that sends and one that receives.

They are the common part of the clients' benchmarks.

Each has the engine, a driver and the recorder of one worker, as in a run, with all samples written.
Sending and receiving therefore have separate figures.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyarrow import parquet

from pytest_loadtest.drivers.base import Joined
from pytest_loadtest.engine.recorder import Recorder
from pytest_loadtest.engine.run import Engine, drive
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.drivers.base import Driver, DriverContext
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.schedule.changes import Change

GRACE = 30 * SECOND  # for a drain


class Conducted:
    """Ends a phase when everything was answered or received, or at its time limit."""

    def __init__(self, end: int, expected: int | None) -> None:
        self._end = end
        self._expected = expected
        self._over = False
        self.last: Progress

    def ended(self) -> bool:
        return self._over or time.monotonic_ns() > self._end + GRACE

    def changes(self) -> Sequence[Change]:
        return ()

    def report(self, progress: Progress) -> None:
        self.last = progress
        if self._expected is not None:
            self._over = progress.received >= self._expected
        else:
            self._over = not progress.sending and progress.in_flight == 0


def resident() -> float:
    """Return the KiB of this process."""
    return float(
        next(
            line.split()[1]
            for line in Path("/proc/self/status").read_text().splitlines()
            if line.startswith("VmRSS")
        )
    )


def send_delay(folder: Path) -> float:
    """Return p99 of the send delay, ns; 0 if nothing was sent."""
    found = [
        parquet.read_table(file, columns=["sent", "intended"]).to_pandas()
        for file in (folder / "sent").glob("*.parquet")
    ]
    delays = np.concatenate([np.zeros(0), *(one["sent"] - one["intended"] for one in found)])
    return float(np.percentile(delays, 99)) if len(delays) else 0.0


def run_role(
    role: str, driver: Driver, context: DriverContext, *, rate: float, seconds: float, folder: Path
) -> None:
    """Run one process: print when it is connected, read its start, and print its cost.

    :param role: ``out`` or ``in``. :param rate: msg/s of all producers. :param folder: for samples.
    """
    topology = context.topology
    pool = context.pool
    assert pool.bodies
    streams = range(topology.streams) if role == "out" else range(0)
    opened = Joined(np.empty(0, np.int32), np.empty(0, np.int32))
    before = resident()
    cpu = time.process_time()
    began = time.monotonic()
    if role == "in":
        every = list(range(topology.all_consumers))
        opened = Joined(np.array(every, np.int32), driver.open_consumers(every))
    else:
        driver.open_producers(streams)
    connections = max(len(streams), len(opened.place))
    connected = {
        "connected": time.monotonic() - began,
        "cpu_connect": (time.process_time() - cpu) / connections,
        "each": (resident() - before) / connections,
    }
    recorder = Recorder(folder / role, role, pool, topology, streams)
    engine = Engine(
        Setup(
            driver=driver,
            clock=time.monotonic_ns,
            pool=pool,
            topology=topology,
            streams=streams,
            opened=opened,
            nonce=context.nonce,
            seed=1,
            key_distributor="NO_KEY",
            max_send_delay=10 * SECOND,
            ordered=context.ordered,
        )
    )
    print(json.dumps(connected), flush=True)
    start = int(sys.stdin.readline())
    duration = int(seconds * SECOND)
    pacer = Pacer.of(rate, topology.streams)
    counts = StreamCounts(streams=topology.streams)
    phase = Phase(name="measure", duration=duration, pacer=pacer, before=counts, recorded=True)
    expected = phase.total * (1 if role == "out" else topology.subscriptions)
    control = Conducted(start + duration, None if role == "out" else expected)
    while time.monotonic_ns() < start - 50_000_000:
        driver.poll(10_000_000)
    cpu = time.process_time()
    engine.begin(phase, start, control, recorder)
    drive([engine], time.monotonic_ns)
    cpu = time.process_time() - cpu
    late = (time.monotonic_ns() - start - duration) / SECOND
    last = control.last
    recorder.close({"nonce": context.nonce})
    facts = driver.facts()
    driver.close()
    evidence = engine.watch.evidence(role)
    print(
        json.dumps(
            {
                "cpu": cpu,
                "messages": last.sent if role == "out" else last.received,
                "expected": expected,
                "dropped": last.dropped,
                "failed": last.failed,
                "late": late,
                "core": evidence.cpu,
                "stall": evidence.longest_stall / 1e6,
                "applied": dict(facts.applied),
                "delay_p99": send_delay(folder / role),
                "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        ),
        flush=True,
    )


def run_both(
    script: str,
    job: Sequence[Any],
    broker_cpu: Callable[[], float] = lambda: 0.0,
    look: Callable[[Path], Any] = lambda folder: None,
) -> dict[str, Any]:
    """Run both roles of a case.

    :returns: the output of each by role, under ``broker`` its cost from start to end, and under
        ``looked`` what ``look`` returned.

    :param script: run as ``script --job [role, *job, folder]``, in JSON; it calls :func:`run_role`.
    :param broker_cpu: returns the CPU time of the broker so far, s.
    :param look: reads the samples, in a folder that is deleted then.
    """
    results: dict[str, Any] = {}
    processes = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        try:
            for role in ("in", "out"):
                command = [sys.executable, script, "--job", json.dumps([role, *job, folder])]
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                processes.append((role, process))
                assert process.stdout
                results[role] = json.loads(process.stdout.readline())
            spent = broker_cpu()
            start = time.monotonic_ns() + SECOND
            for _, process in processes:
                assert process.stdin
                process.stdin.write(f"{start}\n")
                process.stdin.flush()
            for role, process in processes:
                assert process.stdout
                results[role] |= json.loads(process.stdout.readline())
            results["broker"] = broker_cpu() - spent
            results["looked"] = look(Path(folder))
        finally:
            for _, process in processes:
                process.kill()
                process.wait()
    return results
