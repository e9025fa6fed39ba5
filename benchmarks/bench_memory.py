"""Resident memory of the load workers over a long run.

Run ``python benchmarks/bench_memory.py [minutes] [msg/s]``.

Runs pytest with two workers on the loopback relay (by default 10 minutes at 50 000 msg/s) and reads
the workers' resident size from /proc every 10 s while they measure. Memory is constant if the
second half's mean is within 5 % of the first half's.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROFILE = """\
name: memory
topics: 2
messageSize: 128
producersPerTopic: 2
producerRate: {rate}
testDuration: {minutes}min
driver: {{name: loopback, maxPendingMessages: 20000}}
slo: {{loss: 0}}
generator: {{sendDelayP99: 10s, cpu: 5, stalled: 0.9}}
"""

TEST = """\
import pytest

@pytest.mark.load(profile="memory")
def test_memory(load):
    load.assert_slo()
"""


def workers(pid: int) -> list[int]:
    """Return the xdist workers of a pytest process.

    They are its children that wait for execnet's first line.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        int(child)
        for child in children
        if b"exec(eval(" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def resident(pid: int) -> float:
    """Return the resident size in MiB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) / 1024


def main(minutes: float = 10, rate: int = 50_000) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profiles").mkdir()
        (folder / "profiles" / "memory.yaml").write_text(PROFILE.format(rate=rate, minutes=minutes))
        (folder / "test_memory.py").write_text(TEST)
        (folder / "pytest.ini").write_text("[pytest]\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--load-force",
            "-p",
            "no:cacheprovider",
            "-q",
        ]
        with (folder / "output").open("w") as output:
            run = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        rows = watch(run, folder)
        print((folder / "output").read_text())
    half = len(rows) // 2
    totals = [sum(row) for row in rows]
    first = statistics.mean(totals[:half])
    second = statistics.mean(totals[half:])
    print(
        f"resident memory of both workers: first half {first:.1f} MiB,"
        f" second half {second:.1f} MiB, {second / first - 1:+.1%}"
    )


def watch(run: subprocess.Popen[bytes], folder: Path) -> list[list[float]]:
    """Return the resident sizes every 10 s while samples are written."""
    rows: list[list[float]] = []
    while run.poll() is None:
        time.sleep(10)
        if not list(folder.glob(".loadtest/*/*/*/*/*/sent/*.parquet")) or list(
            folder.glob(".loadtest/*/*/*/*/*/*.manifest.json")
        ):
            continue
        rows.append([resident(pid) for pid in workers(run.pid)])
        print(
            f"{len(rows) * 10:>5} s  " + "  ".join(f"{size:.1f} MiB" for size in rows[-1]),
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
