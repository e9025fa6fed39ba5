"""A run folder, checked before it is believed: its plan, its manifests, its files.

Spark skips nothing here on its own: every sample file must be named in a manifest and hold the rows that the manifest says, by its own
footer; so a file that is short, cut off, missing or left over is an error that names it.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_loadtest.errors import NoData
from pytest_loadtest.measurements import WorkerEvidence
from pytest_loadtest.pipeline.schema import arrow_schema
from pytest_loadtest.samples import KINDS, MANIFEST_SUFFIX, MANIFEST_VERSION
from pytest_loadtest.stats import Recorded, Run

RUN_FILE = "run.json"
RUN_VERSION = 1
TASK_ROWS = 2_000_000
TASKS = 512


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run folder whose files agree with each other.

    :param stages: by name, what each stage is measured as. :param files: rows by sample file, as ``kind/name``.
    :param senders: which workers' manifests name a stream.
    """

    path: Path
    run: Run
    stages: Mapping[str, Run]
    recorded: Recorded
    files: Mapping[str, int]
    senders: Mapping[int, tuple[str, ...]]

    def check_offered(self, run: Run, offered: Mapping[int, tuple[int, int]]) -> None:
        """Compare the measured sent rows with the plan.

        :param run: the run, or a stage. :param offered: by stream, the sent rows and the distinct sequences among them.
        :raises NoData: a stream has too few, or one twice; names its workers.
        """
        for stream, planned in enumerate((run.end - run.first).tolist()):
            rows, distinct = offered.get(stream, (0, 0))
            if rows == distinct == planned:
                continue
            workers = ", ".join(self.senders.get(stream, ())) or "no worker's manifest names it"
            raise NoData(f"{self.path}: stream {stream} ({workers}) has {rows} sent rows of {distinct} messages, the plan has {planned}")


def load(path: Path) -> RunFolder:
    """Read the plan, reconcile every worker's manifest with its files.

    :raises NoData: something is missing, unclean, or disagrees; names the worker or the file.
    """
    document = _json(path / RUN_FILE, "the run was never planned here, or its controller died")
    try:
        run, workers, nonce = _run(document), [str(worker) for worker in document["workers"]], int(document["nonce"])
        stages = _stages(document.get("stages") or [], run)
    except (KeyError, TypeError, ValueError) as error:
        raise NoData(f"{path / RUN_FILE}: {_what(error)}") from error
    manifests = {worker: _manifest(path, worker, nonce) for worker in workers}
    strangers = {file.name for file in path.glob(f"*{MANIFEST_SUFFIX}")} - {worker + MANIFEST_SUFFIX for worker in workers}
    if strangers:
        raise NoData(f"{path / min(strangers)}: its worker is not one of the run's ({', '.join(workers)})")
    files = {f"{kind}/{name}": rows for kind in KINDS for name, rows in _reconcile(path, kind, manifests).items()}
    return RunFolder(path=path, run=run, stages=stages, recorded=_recorded(path, manifests), files=files, senders=_senders(manifests))


def tasks(folder: RunFolder) -> tuple[tuple[str, ...], ...]:
    """The sample files, sent and received, in groups of about as many rows: what one worker reads at a time.

    Few rows are one group, so that nothing is shuffled: planning stages would take longer than the work.
    """
    many = min(-(-sum(folder.files.values()) // TASK_ROWS), TASKS)
    groups: list[list[str]] = [[] for _ in range(max(many, 1))]
    loads = [(0, i) for i in range(len(groups))]
    for file, rows in sorted(folder.files.items(), key=lambda item: -item[1]):
        load, i = heapq.heappop(loads)  # the largest file to whoever has least
        groups[i].append(str(folder.path.resolve() / file))
        heapq.heappush(loads, (load + rows, i))
    return tuple(map(tuple, groups))


def _json(path: Path, absent: str) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError as error:
        raise NoData(f"{path} is missing: {absent}") from error
    except ValueError as error:
        raise NoData(f"{path} is not whole: {error}") from error


def _what(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _run(document: Any) -> Run:
    streams = document["streams"]
    topics, first, end = (np.array(streams[name], np.int64) for name in ("topics", "first", "end"))
    if document["version"] != RUN_VERSION:
        raise ValueError(f"version {document['version']} is not {RUN_VERSION}, the one this release reads")
    if not len(topics) == len(first) == len(end) == streams["count"]:
        raise ValueError("streams: topics, first and end must have as many entries as count says")
    if document["subscriptions"] < 0:
        raise ValueError(f"subscriptions must be at least 0, not {document['subscriptions']}")
    return Run(
        start=int(document["start"]),
        duration=int(document["duration"]),
        rate=float(document["rate"]),
        topics=int(document["topics"]),
        subscriptions=int(document["subscriptions"]),
        ordered=bool(document["ordered"]),
        publish_acks=bool(document["publish_acks"]),
        buckets=tuple(document["buckets"]),
        stream_topics=topics,
        first=first,
        end=end,
    )


def _stages(stages: Any, run: Run) -> dict[str, Run]:
    """Each stage as a run of its own, of some of the messages."""
    found: dict[str, Run] = {}
    for stage in stages:
        name, first, end = str(stage["name"]), np.array(stage["first"], np.int64), np.array(stage["end"], np.int64)
        if not len(first) == len(end) == len(run.first):
            raise ValueError(f"stage {name!r}: first and end must have one entry per stream, {len(run.first)}")
        if name in found:
            raise ValueError(f"stage {name!r} is there twice")
        if ((first < end) & ((first < run.first) | (end > run.end))).any():
            raise ValueError(f"stage {name!r} has messages that are not the run's")
        start, duration, rate = int(stage["start"]), int(stage["duration"]), float(stage["rate"])
        found[name] = replace(run, start=start, duration=duration, rate=rate, first=first, end=np.maximum(first, end))
    return found


def _manifest(path: Path, worker: str, nonce: int) -> Any:
    file = path / f"{worker}{MANIFEST_SUFFIX}"
    manifest = _json(file, f"worker {worker} died or was killed before it had closed its samples")
    try:
        if manifest["version"] != MANIFEST_VERSION:
            raise ValueError(f"version {manifest['version']} is not {MANIFEST_VERSION}, the one this release reads")
        if manifest["clean"] is not True:
            raise ValueError(f"worker {worker} did not end cleanly")
        if manifest["worker"] != worker or manifest["nonce"] != nonce:
            raise ValueError(f"it belongs to worker {manifest['worker']} of run {manifest['nonce']}, not to {worker} of {nonce}")
        listed = sum(rows for _first, _last, rows in manifest["sent"]["streams"].values())
        if listed != manifest["sent"]["rows"]:
            raise ValueError(f"its streams have {listed} sent rows, it says {manifest['sent']['rows']}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoData(f"{file}: {_what(error)}") from error
    return manifest


def _reconcile(path: Path, kind: str, manifests: Mapping[str, Any]) -> dict[str, int]:
    """Files against manifests, and rows in files against both; returns the rows of each file."""
    listed: dict[str, int] = {}
    for worker, manifest in manifests.items():
        try:
            files = {str(file["name"]): int(file["rows"]) for file in manifest[kind]["files"]}
            total = int(manifest[kind]["rows"])
        except (KeyError, TypeError, ValueError) as error:
            raise NoData(f"{path / (worker + MANIFEST_SUFFIX)}: {kind}: {_what(error)}") from error
        if total != sum(files.values()):
            raise NoData(f"{path / (worker + MANIFEST_SUFFIX)}: {kind} has {total} rows, its files have {sum(files.values())}")
        for name, expected in files.items():
            _check_file(path / kind / name, kind, expected, worker)
        listed |= files
    strays = {file.name for file in (path / kind).glob("*.parquet")} - listed.keys()
    if strays:
        raise NoData(f"{path / kind / min(strays)} is in no worker's manifest")
    return listed


def _check_file(file: Path, kind: str, expected: int, worker: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as parquet:
            found, schema = parquet.metadata.num_rows, parquet.schema_arrow
    except FileNotFoundError as error:
        raise NoData(f"{file} is missing; the manifest of worker {worker} names it") from error
    except (pa.ArrowException, OSError) as error:
        raise NoData(f"{file} (worker {worker}) is cut off or damaged: {error}") from error
    if not schema.equals(arrow_schema(kind)):
        raise NoData(f"{file} (worker {worker}) does not have the columns of {kind} samples")
    if found != expected:
        raise NoData(f"{file} (worker {worker}) has {found} rows, its manifest says {expected}")


def _recorded(path: Path, manifests: Mapping[str, Any]) -> Recorded:
    parts = []
    for worker, manifest in manifests.items():
        try:
            evidence = _evidence(worker, manifest["evidence"])
            parts.append((int(manifest["foreign"]), int(manifest["corrupt"]), evidence))
        except (KeyError, TypeError, ValueError) as error:
            raise NoData(f"{path / (worker + MANIFEST_SUFFIX)}: {_what(error)}") from error
    return Recorded(
        foreign=sum(foreign for foreign, _, _ in parts),
        corrupt=sum(corrupt for _, corrupt, _ in parts),
        workers=tuple(evidence for _, _, evidence in parts),
    )


def _evidence(worker: str, facts: Any) -> WorkerEvidence:
    return WorkerEvidence(
        worker=worker, cpu=float(facts["cpu"]), stalled=int(facts["stalled"]), longest_stall=int(facts["longest_stall"]),
        gc=int(facts["gc"]),
    )  # fmt: skip


def _senders(manifests: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    senders: dict[int, tuple[str, ...]] = {}
    for worker, manifest in manifests.items():
        for stream in map(int, manifest["sent"]["streams"]):
            senders[stream] = (*senders.get(stream, ()), worker)
    return senders
