"""Samples on their way to disk: columns gathered in memory, written as Parquet aside and renamed, closed by a manifest.

A chunk is what was gathered in ``CHUNK_NS`` or ``CHUNK_ROWS`` rows, whichever comes first; it is encoded and written by one background
thread (Arrow releases the interpreter lock), so memory stays bounded and the loop is not held up.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.engine.consume import Rows
from pytest_loadtest.errors import NoData
from pytest_loadtest.samples import KINDS, MANIFEST_SUFFIX, MANIFEST_VERSION, Column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.engine.blocks import Block
    from pytest_loadtest.payloads import PayloadPool
    from pytest_loadtest.topology import ProducerSpec

CHUNK_ROWS = 1_000_000
CHUNK_NS = 10_000_000_000


class Recorder:
    """Writes one worker's samples of one run folder.

    :param folder: the run folder; ``sent/`` and ``received/`` are made in it.
    :param clock: ns, for the age of a chunk.
    """

    def __init__(self, folder: Path, worker: str, pool: PayloadPool) -> None:
        self._folder, self._worker, self.pool = folder, worker, pool
        self._rows: dict[str, list[Rows]] = {kind: [] for kind in KINDS}
        self._gathered = dict.fromkeys(KINDS, 0)
        self._files: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        self._streams: dict[int, list[int]] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="loadtest-recorder")
        self._writing: list[Future[None]] = []
        self._flushed_at: int | None = None  # unknown until the first look: the first chunk gathers as long as any
        for kind in KINDS:
            (folder / kind).mkdir(parents=True, exist_ok=True)

    def sent(self, spec: ProducerSpec, block: Block) -> None:
        """A block whose messages are all answered, dropped or given up."""
        self._gather("sent", Rows({"stream": spec.stream, "topic": spec.topic.index}, {
            "bucket": self.pool.buckets[block.payload], "size": self.pool.sizes[block.payload], "status": block.status, "seq": block.seq,
            "intended": block.intended, "sent": block.sent, "acked": block.acked, "blocked": block.blocked,
        }, block.size))  # fmt: skip
        first, last = int(block.seq[0]), int(block.seq[-1])
        entry = self._streams.setdefault(spec.stream, [first, last, 0])
        entry[0], entry[1], entry[2] = min(entry[0], first), max(entry[1], last), entry[2] + block.size

    def received(self, rows: Rows) -> None:
        """Rows of one consumer."""
        self._gather("received", rows)

    def _gather(self, kind: str, rows: Rows) -> None:
        if rows.n:
            self._rows[kind].append(rows)
            self._gathered[kind] += rows.n

    def flush_if_due(self, now: int) -> None:
        """Hand a chunk to the writer when it is old or large enough.

        :raises NoData: an earlier chunk could not be written.
        """
        self._check()
        if self._flushed_at is None:
            self._flushed_at = now
        if now - self._flushed_at < CHUNK_NS and max(self._gathered.values()) < CHUNK_ROWS:
            return
        self._flushed_at = now
        for kind in KINDS:
            self._flush(kind)

    def _flush(self, kind: str) -> None:
        rows, n = self._rows[kind], self._gathered[kind]
        if n == 0:
            return
        self._rows[kind], self._gathered[kind] = [], 0
        name = f"{self._worker}-{len(self._files[kind]) + 1:06d}.parquet"
        self._files[kind].append({"name": name, "rows": n})
        self._writing.append(self._writer.submit(_write, self._folder / kind / name, kind, rows))

    def _check(self, *, wait: bool = False) -> None:
        for future in self._writing:
            if (wait or future.done()) and (error := future.exception()) is not None:
                raise NoData(f"worker {self._worker} could not write samples below {self._folder}: {error}") from error
        self._writing = [future for future in self._writing if not future.done()]

    def close(self, facts: dict[str, Any]) -> None:
        """Write what is left and the manifest, which says that this worker's samples are complete.

        :param facts: what the manifest says besides (nonce, foreign, corrupt, stragglers, evidence).
        :raises NoData: a chunk or the manifest could not be written.
        """
        for kind in KINDS:
            self._flush(kind)
        self._check(wait=True)
        self._writer.shutdown()
        manifest: dict[str, Any] = {"version": MANIFEST_VERSION, "worker": self._worker, "clean": True, **facts}
        for kind, files in self._files.items():
            manifest[kind] = {"rows": sum(file["rows"] for file in files), "files": files}
        manifest["sent"]["streams"] = {str(stream): entry for stream, entry in sorted(self._streams.items())}
        try:
            _replace(self._folder / f"{self._worker}{MANIFEST_SUFFIX}", json.dumps(manifest, indent=1).encode())
        except OSError as error:
            raise NoData(f"worker {self._worker} could not write its manifest below {self._folder}: {error}") from error

    def abandon(self) -> None:
        """Keep the samples gathered so far; without a manifest nobody takes them for a complete run."""
        for kind in KINDS:
            self._flush(kind)
        self._writer.shutdown()


def _write(path: Path, kind: str, rows: list[Rows]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = KINDS[kind]
    table = pa.Table.from_arrays([pa.array(_column(column, rows)) for column in columns], names=[column.name for column in columns])
    aside = path.with_name(f".{path.name}.tmp")  # Spark skips names that begin with a dot
    wide = [column.name for column in columns if column.type == "int64"]
    pq.write_table(
        table, aside, compression="zstd", compression_level=1, use_dictionary=[c.name for c in columns if c.type != "int64"],
        column_encoding=dict.fromkeys(wide, "DELTA_BINARY_PACKED"), row_group_size=CHUNK_ROWS,
    )  # fmt: skip
    aside.replace(path)


def _column(column: Column, rows: list[Rows]) -> NDArray[Any]:
    if column.name in rows[0].constant:
        return np.repeat(np.array([chunk.constant[column.name] for chunk in rows], column.type), [chunk.n for chunk in rows])
    return np.concatenate([chunk.columns[column.name] for chunk in rows]).astype(column.type, copy=False)


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.tmp")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
