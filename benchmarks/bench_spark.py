"""Spark's side of a run.

It has rows per second when warm, CPU seconds, memory of the driver and of its Python workers.

Generates a run folder (sent and received rows as workers write them, lognormal latency with a
stall, some lost and late) and aggregates it several times in one session::

    python benchmarks/bench_spark.py --messages 10_000_000 --repeat 3
    # and each window of ten seconds
    python benchmarks/bench_spark.py --messages 2_000_000 --rate 20_000 --window 10
    # 10 min of many slow streams
    python benchmarks/bench_spark.py --messages 12_000_000 --rate 20_000 --streams 20_000 \\
        --topics 1000
    # some deliveries come twice: latencies are counted once more
    python benchmarks/bench_spark.py --messages 10_000_000 --twice 1e-4

Read the CPU seconds first: the wall clock belongs to whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from pytest_loadtest.message.samples import EVIDENCE, KINDS, MANIFEST_VERSION, Flag
from pytest_loadtest.pipeline.aggregate import aggregate
from pytest_loadtest.pipeline.run_file import (
    STREAMS_FILE,
    RunCircumstances,
    RunFile,
    RunStreams,
    write_columns,
)
from pytest_loadtest.pipeline.session import SparkHost
from pytest_loadtest.values.quantities import SECOND

WORKERS = 10
BUCKETS = 8
# Of all workers' files of one time: slower runs have longer files, otherwise a day of few messages
# would be a million files.
LEAST_ROWS = 200_000


class Shape(NamedTuple):
    """The shape of the run: all streams share the rate, msg/s.

    ``twice`` is the share of duplicated deliveries.
    """

    streams: int
    topics: int
    rate: int
    twice: float


def generate(folder: Path, messages: int, shape: Shape) -> None:
    """Write every worker's part of the run, ten seconds a file; more for few messages a second."""
    per_stream = messages // shape.streams
    duration = messages * SECOND // shape.rate
    own = np.arange(shape.streams)
    for worker in range(WORKERS):
        rng = np.random.default_rng(worker)
        streams = own[own % WORKERS == worker]
        files: dict[str, list[dict[str, object]]] = {"sent": [], "received": []}
        step = max(max(10 * shape.rate, LEAST_ROWS) // shape.streams, 1)
        for number, low in enumerate(range(0, per_stream, step), start=1):
            seq = np.repeat(np.arange(low, min(low + step, per_stream)), len(streams))
            stream = np.tile(streams, len(seq) // len(streams))
            for kind, rows in zip(files, _chunk(rng, stream, seq, shape), strict=True):
                name = f"gw{worker}-{number:06d}.parquet"
                _write(folder / kind / name, kind, rows)
                files[kind].append({"name": name, "rows": len(rows["seq"])})
        manifest = {
            "version": MANIFEST_VERSION, "worker": f"gw{worker}", "nonce": 1, "clean": True, "foreign": 0, "corrupt": 0, "stragglers": 0,
            "opening": {}, "broadcast": {"rows": 0, "files": []},
            "evidence": {"cpu": 0.5, "stalled": 0, "longest_stall": 0, "gc": 0, "seconds": dict.fromkeys(EVIDENCE, ())},
            **{kind: {"rows": sum(int(str(f["rows"])) for f in parts), "files": parts} for kind, parts in files.items()},
        }  # fmt: skip
        manifest["sent"]["streams"] = [worker, shape.streams, WORKERS]  # type: ignore[index]
        (folder / f"gw{worker}.manifest.json").write_text(json.dumps(manifest))
    facts = RunCircumstances(plan={}, scaling={}, broker={}, driver={}, versions={}, machine={})
    RunFile(
        run="bench",
        nonce=1,
        workers=tuple(f"gw{i}" for i in range(WORKERS)),
        start=SECOND,
        duration=duration,
        rate=shape.rate,
        topics=shape.topics,
        subscriptions=1,
        ordered=True,
        publish_acks=True,
        broadcasts=False,
        buckets=tuple(f"bucket {i}" for i in range(BUCKETS)),
        streams=RunStreams(count=shape.streams, file=STREAMS_FILE),
        started=0.0,
        seed=0,
        scale=None,
        test="",
        profile={},
        facts=facts,
    ).write(folder)
    write_columns(
        folder,
        [("first", np.zeros(shape.streams, np.int64)), ("end", np.full(shape.streams, per_stream))],
    )


def _chunk(
    rng: np.random.Generator, stream: np.ndarray, seq: np.ndarray, shape: Shape
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    n = len(seq)
    shared = {
        "stream": stream,
        "topic": stream % shape.topics,
        "bucket": rng.integers(0, BUCKETS, n),
        "size": rng.integers(32, 4096, n),
        "seq": seq,
    }
    shared["intended"] = SECOND + (seq * shape.streams + stream) * SECOND // shape.rate
    out = shared["intended"] + rng.lognormal(11, 0.7, n).astype(np.int64)
    latency = rng.lognormal(15, 0.6, n).astype(np.int64)
    stalled = (shared["intended"] // (SECOND // 5)) % 50 == 7
    latency[stalled] += rng.integers(0, SECOND // 5, int(stalled.sum()))
    sent = shared | {
        "status": np.zeros(n),
        "sent": out,
        "acked": out + latency // 2,
        "blocked": np.zeros(n),
        "resends": np.zeros(n),
    }
    keep = np.repeat(
        np.arange(n),
        rng.choice([0, 1], n, p=[2e-4, 1 - 2e-4]) * np.where(rng.random(n) < shape.twice, 2, 1),
    )
    received = {name: column[keep] for name, column in shared.items()}
    m = len(keep)
    flags = np.where(rng.random(m) < 1e-5, int(Flag.LATE), 0)
    received |= {
        "consumer": received["stream"] % 40,
        "subscription": np.zeros(m),
        "flags": flags,
        "received": (out + latency)[keep],
    }
    received["lag"] = rng.lognormal(4, 1, m)  # µs
    return sent, received


def _write(file: Path, kind: str, rows: dict[str, np.ndarray]) -> None:
    file.parent.mkdir(exist_ok=True)
    table = pa.table({column.name: rows[column.name].astype(column.type) for column in KINDS[kind]})
    wide = {column.name: "DELTA_BINARY_PACKED" for column in KINDS[kind] if column.type == "int64"}
    narrow = [column.name for column in KINDS[kind] if column.type != "int64"]
    pq.write_table(
        table,
        file,
        compression="zstd",
        compression_level=1,
        use_dictionary=narrow,
        column_encoding=wide,
    )


def _driver(parent: psutil.Process) -> psutil.Process:
    return next(child for child in parent.children() if "java" in child.name())


def _cpu(java: psutil.Process) -> float:
    """Return the CPU seconds so far of this process, of the driver and of its Python workers.

    Ended workers are included.
    """
    times = [
        process.cpu_times() for process in (psutil.Process(), java, *java.children(recursive=True))
    ]
    ended = sum(each.children_user + each.children_system for each in times[2:])
    return ended + sum(each.user + each.system for each in times)


def _peak_rss(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        int((status.partition("VmHWM:")[2].split() or ["0"])[0]) / 1024**2
    )  # an ended process has none


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--messages", type=int, default=5_000_000, help="sent messages; about as many are received"
    )
    parser.add_argument("--rate", type=int, default=500_000, help="msg/s, all streams together")
    parser.add_argument("--streams", type=int, default=160)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument(
        "--window", type=int, default=0, help="seconds: count each window of so many too"
    )
    parser.add_argument(
        "--twice", type=float, default=0.0, help="share of deliveries that come twice"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="Spark setting"
    )
    parser.add_argument(
        "--run-dir", type=Path, help="keep the generated run here, and use it when it is there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.run_dir or Path(scratch) / "run"
        if not (folder / "run.json").exists():
            folder.mkdir(parents=True)
            generate(
                folder,
                options.messages,
                Shape(options.streams, options.topics, options.rate, options.twice),
            )
        replace(RunFile.read(folder), window=options.window * SECOND or None).write(folder)
        host = SparkHost(Path(scratch), dict(setting.split("=", 1) for setting in options.conf))
        try:
            started = time.perf_counter()
            host.warm()
            print(
                f"session started and warm: {time.perf_counter() - started:.1f} s;"
                f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
            )
            _measure(host, folder, options.repeat)
        finally:
            host.stop()


def _measure(host: SparkHost, folder: Path, repeat: int) -> None:
    java = _driver(psutil.Process())
    for i in range(repeat):
        before = _cpu(java)
        started = time.perf_counter()
        counts = aggregate(host.session(), folder).counts
        wall = time.perf_counter() - started
        cpu = _cpu(java) - before
        rows = counts.offered + counts.received + counts.duplicates
        state = "cold" if i == 0 else "warm"
        workers = sum(_peak_rss(worker.pid) for worker in java.children(recursive=True))
        print(
            f"{state}: {rows:,} rows in {wall:.1f} s = {rows / wall / 1e6:.2f} M rows/s; "
            f"{cpu:.1f} CPU s = {cpu / rows * 1e6:.2f} s per M rows; "
            f"driver peak {_peak_rss(java.pid):.2f} GiB, workers {workers:.2f} GiB, "
            f"this process {_peak_rss(os.getpid()):.2f} GiB"
        )


if __name__ == "__main__":
    main()
