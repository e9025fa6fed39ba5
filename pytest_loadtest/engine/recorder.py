"""The recorder of samples: columns are gathered in memory, written as Parquet to a temporary name
and renamed; a manifest completes them.

A chunk is written after ``CHUNK_NS`` or ``CHUNK_ROWS`` rows, whichever comes first. One background
thread encodes and writes it (Arrow releases the interpreter lock), so the loop does not wait. The
bytes that wait for this thread are limited to ``MOST_WAITING``: a disk that does not keep up ends
the run as *no data*, before the worker is killed for its memory.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.engine.sample_files import replace, unwritten, write_samples
from pytest_loadtest.errors import NoData
from pytest_loadtest.message import broadcast
from pytest_loadtest.message.samples import KINDS, MANIFEST_SUFFIX, MANIFEST_VERSION
from pytest_loadtest.message.streams import streams_document
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.engine.blocks import Block
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.message.streams import Streams
    from pytest_loadtest.schedule.topology import Topology

CHUNK_ROWS = 1_000_000
CHUNK_NS = 10_000_000_000
MOST_WAITING = 512 * 1024**2
"""Bytes in memory that may wait for the disk.

At 2 M msg/s over 16 workers each makes 13 MB/s, so the disk may stall for 40 s.
"""

Columns = dict[str, "NDArray[Any]"]


class Recorder:
    """Writes one worker's samples to one run folder.

    :param folder: the run folder; a folder for each kind of sample is made in it.
    :param streams: the worker's streams.
    :param needed: bytes that the plan needs for the samples of all workers; None without a plan.
    :param nonce: of the run.
    """

    def __init__(
        self,
        folder: Path,
        worker: str,
        pool: PayloadPool,
        topology: Topology,
        streams: Streams,
        needed: int | None = None,
        nonce: int | None = None,
    ) -> None:
        self._folder = folder
        self._worker = worker
        self._pool = pool
        self._topology = topology
        self._streams = streams
        self._needed = needed
        self._nonce = nonce
        self._columns: dict[str, list[Columns]] = {kind: [] for kind in KINDS}
        self._gathered = dict.fromkeys(KINDS, 0)
        self._files: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="loadtest-recorder")
        self._writing: list[tuple[Future[None], int]] = []
        self._handed_over = 0  # bytes, since the first chunk
        self._begun: float | None = None  # the time of the first chunk
        # None until the first flush_if_due(), so that the first chunk gathers as long as any other,
        # whatever the clock says
        self._flushed_at: int | None = None
        self._inbound = "broadcast" if topology.broadcasts else "received"
        kinds = ["sent", self._inbound]
        if topology.tapped:
            kinds.append("tap")
        for kind in kinds:
            (folder / kind).mkdir(parents=True, exist_ok=True)

    def sent(self, block: Block) -> None:
        """Record a block whose messages are all answered, dropped or given up."""
        columns: Columns = {
            "stream": block.stream,
            "payload": block.payload,
            "status": block.status,
            "seq": block.seq,
            "intended": block.intended,
            "sent": block.sent,
            "acked": block.acked,
            "blocked": block.blocked,
            "resends": block.resends,
        }
        self._gather("sent", columns, block.size)

    def received(self, columns: Columns) -> None:
        """Record received copies: all columns of the sample except those that follow from the
        consumer.
        """
        self._gather(self._inbound, columns, len(columns["seq"]))

    def tapped(self, columns: Columns) -> None:
        """Record inputs of a service: all columns of the sample."""
        self._gather("tap", columns, len(columns["seq"]))

    def _gather(self, kind: str, columns: Columns, n: int) -> None:
        if n:
            self._columns[kind].append(columns)
            self._gathered[kind] += n

    def flush_if_due(self, now: int) -> None:
        """Hand a chunk to the writer if it is old or large enough.

        :raises NoData: an earlier chunk could not be written, or too many bytes wait for the disk.
        """
        self._check()
        self._check_waiting()
        if self._flushed_at is None:
            self._flushed_at = now
        if now - self._flushed_at < CHUNK_NS and max(self._gathered.values()) < CHUNK_ROWS:
            return
        self._flushed_at = now
        self._flush()

    def _flush(self) -> None:
        for kind in KINDS:
            columns = self._columns[kind]
            if not columns:
                continue
            self._columns[kind] = []
            self._gathered[kind] = 0
            name = f"{self._worker}-{len(self._files[kind]) + 1:06d}.parquet"
            # The entry is listed before its file exists, because the next name follows from the
            # number of entries. close() waits for all files.
            entry: dict[str, Any] = {"name": name, "rows": 0}
            self._files[kind].append(entry)
            size = sum(column.nbytes for part in columns for column in part.values())
            # the mean rate of the disk since the first chunk is part of the error when it does not
            # keep up
            self._begun = self._begun or time.monotonic()
            self._handed_over += size
            self._writing.append((self._writer.submit(self._write, kind, columns, entry), size))

    def _check(self, *, wait: bool = False) -> None:
        """Raise the error of a failed write, and forget the writes that are done."""
        unfinished = []
        for future, size in self._writing:
            if not wait and not future.done():
                unfinished.append((future, size))
                continue
            error = future.exception()
            if error is not None:
                raise self._unwritten("samples", error) from error
        self._writing = unfinished

    def _check_waiting(self) -> None:
        waiting = sum(size for _, size in self._writing)
        if waiting <= MOST_WAITING or self._begun is None:
            return
        rate = (self._handed_over - waiting) / max(time.monotonic() - self._begun, 1e-3)
        raise NoData(
            f"worker {self._worker}: the disk does not keep up with the samples:"
            f" {format_size(waiting)} wait to be written to {self._folder},"
            f" which took {format_size(rate)}/s so far: name a folder on a faster disk"
            " (load_results in the ini file), or send less"
        )

    def _unwritten(self, what: str, error: BaseException) -> NoData:
        return unwritten(f"worker {self._worker}", what, self._folder, error, self._needed)

    def close(self, facts: dict[str, Any]) -> None:
        """Write the rest, and the manifest, which certifies that this worker's samples are
        complete.

        :param facts: further entries of the manifest (nonce, foreign, corrupt, stragglers,
            evidence).
        :raises NoData: a chunk or the manifest could not be written.
        """
        self._flush()
        try:
            self._check(wait=True)  # a manifest must not certify a file that was not written
        finally:
            self._writer.shutdown()
        manifest: dict[str, Any] = {
            "version": MANIFEST_VERSION,
            "worker": self._worker,
            "clean": True,
            **facts,
        }
        for kind, files in self._files.items():
            manifest[kind] = {"rows": sum(file["rows"] for file in files), "files": files}
        manifest["sent"]["streams"] = streams_document(self._streams)
        path = self._folder / f"{self._worker}{MANIFEST_SUFFIX}"
        try:
            replace(path, json.dumps(manifest, indent=1).encode())
        except OSError as error:
            raise self._unwritten("its manifest", error) from error

    def abandon(self) -> None:
        """Write the samples gathered so far, without a manifest, so that they are never taken for a
        complete run.
        """
        self._flush()
        self._writer.shutdown()

    def _write(self, kind: str, gathered: list[Columns], entry: dict[str, Any]) -> None:
        """Write a chunk, in the background thread.

        :param entry: the file's entry in the manifest, which gets the number of rows.
        """
        columns: Columns = {}
        for name in gathered[0]:
            columns[name] = np.concatenate([part[name] for part in gathered])
        columns |= self._derived(kind, columns)
        if kind == "broadcast":
            columns = broadcast.pack_copies(columns)
        path = self._folder / kind / entry["name"]
        entry["rows"] = write_samples(path, kind, columns, self._nonce)

    def _derived(self, kind: str, columns: Columns) -> Columns:
        """Return the columns that follow from the numbers of streams, consumers and payloads:
        derived here, not in the loop.
        """
        if kind == "sent":
            payload = columns["payload"]
            return {
                "topic": self._topology.topic_of_stream(columns["stream"]),
                "bucket": self._pool.buckets[payload],
                "size": self._pool.sizes[payload],
            }
        if kind == "tap":
            return {}
        consumer = columns["consumer"]
        return {
            "topic": self._topology.topic_of_consumer(consumer),
            "subscription": self._topology.subscription_of_consumer(consumer),
        }
