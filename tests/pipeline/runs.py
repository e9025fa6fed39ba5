"""Run folders for tests: generated messages with known faults, written as workers write them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from builders.run_file import made_run_file

from pytest_loadtest.engine.sample_files import write_samples
from pytest_loadtest.message import broadcast
from pytest_loadtest.message.samples import (
    EVIDENCE,
    KINDS,
    MANIFEST_VERSION,
    NEVER_SENT,
    Flag,
    Status,
)
from pytest_loadtest.message.size_mix import SizeMix
from pytest_loadtest.metrics.expected import Expected, Recorded, WorkerEvidence
from pytest_loadtest.metrics.offering import PlannedLoad, PlannedSizes, PlannedStage, PlannedStep
from pytest_loadtest.metrics.pauses import COLUMNS, Pauses
from pytest_loadtest.pipeline.run_file import (
    STREAMS_FILE,
    RunFile,
    RunStage,
    RunStreams,
    write_columns,
)
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

START = 7_000 * SECOND
MIX = SizeMix(mean=200.5, variance=1e4, smallest=32, largest=4096)
PLANNED = PlannedLoad(
    in_bytes=True,
    steps=(PlannedStep(length=3 * SECOND + 5, rate=1000.5), PlannedStep(length=0, rate=0.0)),
    stages=(
        PlannedStage(name="up", start=0),
        PlannedStage(name="down", start=SECOND // 3),
        PlannedStage(name="more", start=11 * SECOND + 3),
    ),
    sizes=(PlannedSizes(at=0, mix=MIX), PlannedSizes(at=SECOND // 2, mix=MIX)),
)
NONCE = 0xC0FFEE
Rows = dict[str, Any]


def make_run(
    *,
    streams: int = 4,
    topics: int = 2,
    subscriptions: int = 1,
    messages: int = 100,
    first: int = 0,
    **changes: Any,
) -> Expected:
    """A plan in which stream ``s`` sends ``messages`` (+ 1 for odd streams) of the shared topics, two seconds long."""
    starts = np.full(streams, first, np.int64) + np.arange(streams) % 3 * (first > 0)
    run = Expected(
        start=START, duration=2 * SECOND, rate=streams * messages / 2, topics=topics, subscriptions=subscriptions, ordered=True,
        publish_acks=True, buckets=("0-256", "256-1024", "1KB-4KB"), stream_topics=np.arange(streams) % topics, first=starts,
        end=starts + messages + np.arange(streams) % 2,
    )  # fmt: skip
    return dataclasses.replace(run, **changes)


def make_stages(run: Expected, seed: int) -> dict[str, Expected]:
    """Two stages with a gap between them, which every stream passes at messages of its own, and one without messages."""
    cuts = run.first + np.sort(
        np.random.default_rng(seed).integers(0, run.end - run.first + 1, (3, len(run.first))),
        axis=0,
    )

    def stage(first: Any, end: Any, begin: int) -> Expected:
        changes = {
            "start": run.start + begin * SECOND // 2,
            "duration": SECOND // 2,
            "rate": run.rate / (begin + 1),
            "planned": None,
        }
        return dataclasses.replace(run, first=first, end=end, **changes)

    return {
        "up": stage(run.first, cuts[0], 0),
        "down": stage(cuts[1], cuts[2], 1),
        "none": stage(cuts[2], cuts[2], 3),
    }


def generate(run: Expected, seed: int, again: float = 0.1) -> tuple[Rows, Rows]:
    """Sent and received rows of the run with every fault there is, and some rows that are not measured.

    :param again: the share of deliveries that come more than once; their copies are in any order, file and worker.
    """
    rng = np.random.default_rng(seed)
    lengths = run.end - run.first
    stream = np.repeat(np.arange(len(lengths)), lengths)
    seq = (
        np.concatenate(
            [np.arange(first, end) for first, end in zip(run.first, run.end, strict=True)]
        )
        if len(lengths)
        else stream
    )
    n = len(seq)
    intended = run.start + rng.integers(0, run.duration, n)
    outcomes = [Status.ACKED, Status.FAILED, Status.DROPPED, Status.UNKNOWN, Status.BLOCKED]
    status = rng.choice(outcomes, n, p=[0.87, 0.03, 0.03, 0.04, 0.03]).astype(np.int8)
    blocked = np.where(rng.random(n) < 0.2, rng.integers(0, 40 * MILLISECOND, n), 0)
    out = intended + rng.integers(-2, 30 * MILLISECOND, n) + blocked // 2
    acked = out + rng.lognormal(15, 2, n).astype(np.int64)
    sent = {
        "stream": stream, "topic": run.stream_topics[stream], "bucket": rng.integers(0, len(run.buckets), n),
        "size": rng.integers(16, 4096, n), "status": status, "seq": seq, "intended": intended,
        "sent": np.where(np.isin(status, NEVER_SENT), 0, out), "acked": np.where(status == Status.ACKED, acked, 0), "blocked": blocked,
        "resends": _resends(n, seed),
    }  # fmt: skip
    received = _copies(run, sent, rng, again)
    return _with_others(sent, rng), _with_others(received, rng)


def tapped(run: Expected, sent: Rows, seed: int, *, compact: bool = False) -> Rows:
    """Rows of a tap: most messages once, in any order, some twice or not at all, and some before they were due.

    :param compact: the envelopes have no intended times.
    """
    rng = np.random.default_rng(seed)
    times = rng.choice([0, 1, 1, 1, 1, 2], len(sent["seq"]))
    rows = {name: np.repeat(sent[name], times) for name in ("stream", "seq", "intended")}
    n = len(rows["seq"])
    late = rng.lognormal(16, 3, n).astype(np.int64) - 2 * MILLISECOND
    rows["received"] = rows["intended"] + late
    if compact:
        rows["intended"] = np.full(n, -1)
    order = rng.permutation(n)
    return {name: column[order] for name, column in rows.items()}


def far_rows(run: Expected, last: int) -> tuple[Rows, Rows]:
    """The last messages of the first stream, each acked, and received once by each subscription after a millisecond."""
    seq = np.arange(run.end[0] - last, run.end[0])
    intended = run.start + np.arange(last) * (run.duration // last)
    none = np.zeros(last, np.int64)
    sent = {
        "stream": none, "topic": none, "bucket": none, "size": none + 100, "status": none + int(Status.ACKED), "seq": seq,
        "intended": intended, "sent": intended, "acked": intended + MILLISECOND, "blocked": none, "resends": none,
    }  # fmt: skip
    copy = {
        name: np.tile(sent[name], run.subscriptions)
        for name in ("stream", "topic", "bucket", "size", "seq", "intended")
    }
    subscription = np.repeat(np.arange(run.subscriptions), last)
    received = copy | {
        "subscription": subscription, "consumer": subscription, "flags": subscription * 0, "received": copy["intended"] + MILLISECOND,
        "lag": subscription * 0,
    }  # fmt: skip
    return sent, received


def _resends(n: int, seed: int) -> NDArray[np.int64]:
    """Numbers of resends of single messages, and of consecutive ones in flight when a connection was lost; none in every fourth run."""
    rng = np.random.default_rng([seed, n])
    times = np.where(rng.random(n) < 0.1, rng.choice([1, 2, 255], n), 0)
    low = rng.integers(0, n + 1)
    times[low : low + n // 4] += 1
    return np.minimum(times, 255) * (seed % 4 != 3)


def _copies(run: Expected, sent: Rows, rng: np.random.Generator, again: float) -> Rows:
    parts: list[Rows] = [empty("received")]
    for subscription in range(run.subscriptions):
        reached = np.isin(sent["status"], [Status.ACKED, Status.UNKNOWN]) & (
            rng.random(len(sent["seq"])) > 0.1
        )
        reached[: len(reached) // 5] &= rng.random() < 0.5  # sometimes a long range is lost
        copies = np.where(
            reached, rng.choice([1, 2, 3], len(reached), p=[1 - again, again / 2, again / 2]), 0
        )
        rows = {
            name: np.repeat(sent[name], copies)
            for name in ("stream", "topic", "bucket", "size", "seq", "intended")
        }
        n = len(rows["seq"])
        rows["subscription"] = np.where(rng.random(n) < 0.01, run.subscriptions + 3, subscription)
        rows["topic"] = np.where(rng.random(n) < 0.02, rows["topic"] + 1, rows["topic"])
        rows["consumer"] = rng.integers(0, 4, n)
        flags = rng.choice([0, Flag.LATE], n, p=[0.8, 0.2]) | rng.choice(
            [0, Flag.CORRUPT, Flag.REDELIVERED], n, p=[0.9, 0.05, 0.05]
        )
        rows["flags"] = flags
        rows["received"] = rows["intended"] + (
            rng.lognormal(17, 2.5, n).astype(np.int64) - 5 * MILLISECOND
        )
        if run.delays is not None:  # as many early as late
            rows["flags"] = flags | rng.choice([0, Flag.UNDUE], n)
            rows["received"] += (
                run.delays.due(rows["stream"], rows["seq"], rows["intended"]) - rows["intended"]
            )
            rows["received"] -= rng.integers(0, 50 * MILLISECOND, n)
        rows["lag"] = rng.choice([-1, 0, 1, 40, 5_000_000], n) + (
            rng.random(n) < 0.5
        ) * rng.integers(1, 1000, n)
        at_once = rng.random(n) < 0.3  # some copies of a message come at the same instant
        rows["received"] = np.where(at_once, rows["received"] // SECOND * SECOND, rows["received"])
        parts.append(rows)
    mixed = {
        column.name: np.concatenate([part[column.name] for part in parts])
        for column in KINDS["received"]
    }
    order = rng.permutation(len(mixed["seq"]))
    return {name: column[order] for name, column in mixed.items()}


def _with_others(rows: Rows, rng: np.random.Generator) -> Rows:
    """Add copies of some rows as the warm-up's: sequences far outside the measured ones."""
    picked = rng.random(len(rows["seq"])) < 0.05
    others = {name: column[picked] for name, column in rows.items()} | {
        "seq": rows["seq"][picked] + 1_000_000
    }
    return {name: np.concatenate([column, others[name]]) for name, column in rows.items()}


def empty(kind: str) -> Rows:
    """No rows."""
    return {column.name: np.zeros(0, column.type) for column in KINDS[kind]}


def make_recorded(workers: int) -> Recorded:
    """Return the counts of the workers of :func:`write_run`: foreign 2 and corrupt 1 for each."""
    seconds = [np.arange(8).reshape(2, 4) * (i + 1) * MILLISECOND for i in range(workers)]
    evidence = tuple(
        WorkerEvidence(
            worker=f"gw{i}",
            cpu=0.25 + i,
            stalled=i,
            longest_stall=2 * i,
            gc=3 * i,
            seconds=seconds[i],
        )
        for i in range(workers)
    )
    return Recorded(foreign=2 * workers, corrupt=workers, workers=evidence)


def make_pauses(number: int) -> Pauses:
    """Return pauses of a worker: short ones, stalls that reach into one another, and one in which the client went on; none of a third.

    Another third has no late sends.
    """
    rng = np.random.default_rng(number)
    lengths = np.array([3, 20, 120, 30, 400, 60, 9, 700]) * MILLISECOND * (number % 3 != 2)
    begin = START + np.sort(rng.integers(0, 3 * SECOND, len(lengths)))
    end = np.minimum(begin + lengths, np.append(begin[1:], begin[-1] + SECOND))
    kept = end - begin > 2 * MILLISECOND
    begin, end = begin[kept], end[kept]
    since = np.where(np.arange(len(begin)) % 4 == 3, begin + (end - begin) // 3, begin)
    # Sends catch up after each pause, and at other times.
    due = START + np.sort(rng.integers(0, 3 * SECOND, 40 * (number % 3 != 1)))
    sent = due + rng.integers(-MILLISECOND, 400 * MILLISECOND, len(due))
    return Pauses(
        begin=begin, end=end, since=since, until=end, exact=number % 2 == 0, due=due, sent=sent
    )


def write_run(
    folder: Path,
    run: Expected,
    sent: Rows,
    received: Rows,
    *,
    workers: int = 2,
    chunk: int = 150,
    stages: dict[str, Expected] | None = None,
    taps: Rows | None = None,
) -> Path:
    """Write a whole run folder: sent rows to workers by stream, received rows and taps by turns, ``chunk`` rows a file."""
    taps = empty("tap") if taps is None else taps
    recorded = make_recorded(workers)
    folder.mkdir(parents=True)
    _described(run, workers, stages or {}).write(folder)
    write_columns(folder, _columns(run, stages or {}))
    for i, evidence in enumerate(recorded.workers):
        pauses = make_pauses(i)
        mine = {
            "sent": np.flatnonzero(sent["stream"] % workers == i),
            "received": np.arange(i, len(received["seq"]), workers),
            "tap": np.arange(i, len(taps["seq"]), workers),
        }
        manifest: dict[str, Any] = {
            "version": MANIFEST_VERSION, "worker": f"gw{i}", "nonce": NONCE, "clean": True, "foreign": 2, "corrupt": 1, "stragglers": 0, "opening": {},
            "evidence": {
                "cpu": evidence.cpu, "stalled": evidence.stalled, "longest_stall": evidence.longest_stall, "gc": evidence.gc,
                "seconds": dict(zip(EVIDENCE, evidence.seconds.T.tolist(), strict=True)),
                "pauses": {
                    **{name: getattr(pauses, name).tolist() for name in COLUMNS},
                    "exact": pauses.exact,
                    "late": {name: getattr(pauses, name).tolist() for name in ("due", "sent")},
                },
            },
        }  # fmt: skip
        for kind, rows in (("sent", sent), ("received", received), ("tap", taps)):
            own = {name: column[mine[kind]] for name, column in rows.items()}
            if kind == "received" and run.broadcasts:
                manifest["broadcast"], own = (
                    _write_broadcasts(folder, own, f"gw{i}", chunk),
                    empty(kind),
                )
            (folder / kind).mkdir(exist_ok=True)
            manifest[kind] = _write_kind(folder, kind, own, f"gw{i}", chunk)
        manifest.setdefault("broadcast", {"rows": 0, "files": []})
        manifest["sent"]["streams"] = [i, len(run.first), workers]
        (folder / f"gw{i}.manifest.json").write_text(json.dumps(manifest))
    return folder


def _described(run: Expected, workers: int, stages: dict[str, Expected]) -> RunFile:
    names = (
        "start", "duration", "rate", "topics", "subscriptions", "outputs", "selective", "tapped", "broadcasts", "ordered", "publish_acks", "buckets", "window", "drift",
        "planned",
    )  # fmt: skip
    return made_run_file(
        **{name: getattr(run, name) for name in names}, nonce=NONCE, workers=tuple(f"gw{i}" for i in range(workers)),
        streams=RunStreams(count=len(run.first), file=STREAMS_FILE), delays=run.delays and run.delays.document(),
        profile={"name": "p", "slo": dict(_bounds(run))},
        stages=tuple(
            RunStage(
                name=name, start=stage.start, duration=stage.duration, rate=stage.rate, slo=None, window=stage.window, drift=stage.drift
            )
            for name, stage in stages.items()
        ),
    )  # fmt: skip


def _bounds(run: Expected) -> Iterator[tuple[str, Any]]:
    if run.bounds_gaps:
        yield "deliveryGap", {"max": "1s"}
    if run.bounds_throughput:
        yield "throughput", "99%"


def _columns(run: Expected, stages: dict[str, Expected]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    for suffix, part in (("", run), *((f"_{i}", stage) for i, stage in enumerate(stages.values()))):
        yield f"first{suffix}", part.first
        yield f"end{suffix}", part.end


def _write_kind(folder: Path, kind: str, rows: Rows, worker: str, chunk: int) -> dict[str, Any]:
    files = []
    for number, low in enumerate(range(0, len(rows["seq"]), chunk), start=1):
        name = f"{worker}-{number:06d}.parquet"
        part = {
            column.name: rows[column.name][low : low + chunk].astype(column.type)
            for column in KINDS[kind]
        }
        pq.write_table(
            pa.table(part), folder / kind / name, compression="zstd", use_dictionary=False
        )
        files.append({"name": name, "rows": len(part["seq"])})
    return {"rows": len(rows["seq"]), "files": files}


def _write_broadcasts(folder: Path, rows: Rows, worker: str, chunk: int) -> dict[str, Any]:
    """:param chunk: so many copies a file."""
    (folder / "broadcast").mkdir(exist_ok=True)
    files = []
    for number, low in enumerate(range(0, len(rows["seq"]), chunk), start=1):
        name = f"{worker}-{number:06d}.parquet"
        part = broadcast.pack_copies(
            {name: column[low : low + chunk] for name, column in rows.items()}
        )
        files.append(
            {"name": name, "rows": write_samples(folder / "broadcast" / name, "broadcast", part)}
        )
    return {"rows": sum(file["rows"] for file in files), "files": files}


def by_worker(
    run: Expected, sent: Rows, received: Rows, workers: int = 2
) -> tuple[Rows, Rows, Expected]:
    """Return the rows with the worker that :func:`write_run` gives them to, and the run with the workers' names and pauses."""
    sent = sent | {"worker": sent["stream"] % workers}
    received = received | {"worker": np.arange(len(received["seq"])) % workers}
    changes: dict[str, Any] = {"workers": tuple(f"gw{i}" for i in range(workers))}
    if len(run.first):
        changes["pauses"] = tuple(make_pauses(i) for i in range(workers))
        changes["stream_workers"] = np.arange(len(run.first)) % workers
    return sent, received, dataclasses.replace(run, **changes)


def differences(one: Any, other: Any, path: str = "measurements") -> list[str]:
    """Return the differences of two measurements, with arrays compared by type and value; empty if they are equal to the bit."""
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        names = [field.name for field in dataclasses.fields(one)]
        return [
            found
            for name in names
            for found in differences(getattr(one, name), getattr(other, name), f"{path}.{name}")
        ]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [
            found for name in one for found in differences(one[name], other[name], f"{path}.{name}")
        ]
    sequences = (
        isinstance(one, Sequence)
        and isinstance(other, Sequence)
        and not isinstance(one, str | bytes)
    )
    if sequences and len(one) == len(other):  # some are read from a file, item by item
        return [
            found
            for i, pair in enumerate(zip(one, other, strict=True))
            for found in differences(*pair, f"{path}[{i}]")
        ]
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        same = (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    else:
        same = type(one) is type(other) and one == other
    return [] if same else [f"{path}: {one!r} is not {other!r}"]


STREAMS, MESSAGES = 100, 640
"""Of :func:`slow_streams`, and of each of them."""


def slow_streams(tmp_path: Path) -> Path:
    """A run of slow streams in the order of time, two messages of each stream to a file."""
    seq, stream = np.divmod(np.arange(STREAMS * MESSAGES), STREAMS)
    rows: Rows = {
        column.name: np.zeros(len(seq), np.int64) for kind in KINDS.values() for column in kind
    }
    rows |= {
        "stream": stream,
        "topic": stream % 2,
        "seq": seq,
        "sent": seq + 1,
        "acked": seq + 1,
        "received": seq + 1,
    }
    run = make_run(streams=STREAMS, messages=MESSAGES, end=np.full(STREAMS, MESSAGES))
    return write_run(tmp_path / "run", run, rows, rows, chunk=STREAMS)
