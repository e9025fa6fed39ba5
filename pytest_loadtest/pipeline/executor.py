"""The functions that Spark's workers run: sample files in, Arrow batches of small tables or of words out.

Workers read the files themselves. Spark could read them too, but hands rows to Python one by one, which costs five times as much as all
that is done with them here.

They travel to the workers as code (see :mod:`pytest_loadtest.pipeline.transforms`), so a cluster needs numpy and pyarrow and not this
package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pytest_loadtest.pipeline.kernel import (
    RECEIVED_COLUMNS,
    RECEIVED_WORD_COLUMNS,
    SENT_COLUMNS,
    SENT_WORD_COLUMNS,
    Words,
    received_tables,
    sent_tables,
)
from pytest_loadtest.pipeline.tables import merge

if TYPE_CHECKING:
    from pytest_loadtest.pipeline.kernel import Rows
    from pytest_loadtest.pipeline.tables import Table
    from pytest_loadtest.stats import Run

BLOCK = 1 << 18  # rows at once
CELLS = 1 << 20  # rows of tables that are kept before they are merged

TABLE_SCHEMA = "part int, name string, content binary"
WORD_KEYS = ("subscription", "stream", "word")
WORD_SUMS = ("offered_rows", "copies")
WORD_MASKS = ("offered", "acked", "got", "punctual", "in_time")


class TablesOfFiles:
    """The tables of a task's files, one row each.

    :param tasks: paths by the number of the task.
    :param parts: the runs, or stages, that rows are counted for; each is a part of its own.
    """

    def __init__(self, tasks: Sequence[Sequence[str]], parts: Sequence[Run]) -> None:
        self._tasks, self._parts = tasks, tuple(parts)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        found: dict[tuple[int, str], Gathered] = {}
        how = {"sent": (SENT_COLUMNS, sent_tables), "received": (RECEIVED_COLUMNS, received_tables)}
        for kind, rows in _blocks(self._tasks, batches, {kind: columns for kind, (columns, _) in how.items()}):
            for number, part in enumerate(self._parts):
                for name, table in how[kind][1](rows, part):
                    found.setdefault((number, name), Gathered(name)).add(table)
        yield _batch({key: gathered.merged() for key, gathered in found.items()})


def merge_tables(rows: pa.Table) -> pa.Table:
    """Merge the tables of one part and name."""
    part, name = rows["part"][0].as_py(), rows["name"][0].as_py()
    gathered = Gathered(name)
    for content in rows["content"]:
        gathered.add(unpack(content.as_buffer()))
    return pa.Table.from_batches([_batch({(part, name): gathered.merged()})])


class Gathered:
    """Tables of one name, merged now and then, so that they never take much memory."""

    def __init__(self, name: str) -> None:
        self._name, self._size = name, 0
        self._tables: list[Table] = []

    def add(self, table: Table) -> None:
        """One more."""
        self._tables.append(table)
        self._size += len(next(iter(table.values())))
        if self._size > CELLS:
            self._tables, self._size = [self.merged()], 0

    def merged(self) -> Table:
        """All of them as one."""
        return merge(self._name, self._tables)


class WordsOfFiles:
    """The words of a task's files; words of one key may come several times.

    :param tasks: and :param parts: as for :class:`TablesOfFiles`.
    :param begins: when a copy is in time, from each part's begin on for its duration.
    """

    def __init__(self, tasks: Sequence[Sequence[str]], parts: Sequence[Run], begins: Sequence[int]) -> None:
        self._tasks, self._parts, self._begins = tasks, tuple(parts), tuple(begins)
        self.columns = ("part", *WORD_KEYS, *WORD_SUMS, *WORD_MASKS, *planes(parts))
        self.schema = ", ".join(f"{name} bigint" for name in self.columns)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        words = [Words(part) for part in self._parts]
        for kind, rows in _blocks(self._tasks, batches, {"sent": SENT_WORD_COLUMNS, "received": RECEIVED_WORD_COLUMNS}):
            for number, (part, begin) in enumerate(zip(words, self._begins, strict=True)):
                table = part.sent(rows) if kind == "sent" else part.copies(rows, begin, begin + part.run.duration)
                n = len(table["word"])
                nothing, own = pa.array([0] * n, pa.int64()), pa.array([number] * n, pa.int64())
                columns = {name: pa.array(column) for name, column in table.items()} | {"part": own}
                yield pa.record_batch([columns.get(name, nothing) for name in self.columns], names=list(self.columns))


def planes(parts: Sequence[Run]) -> list[str]:
    """The columns that hold the bits of a message's size bucket."""
    return [f"plane_{i}" for i in range(max(Words(part).planes for part in parts))]


def _blocks(
    tasks: Sequence[Sequence[str]], batches: Iterator[pa.RecordBatch], columns: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Rows]]:
    """The rows of the tasks' files, with their kind, which is the folder they lie in."""
    for path in (path for batch in batches for task in batch.column(0).to_pylist() for path in tasks[task]):
        kind = path.rsplit("/", 2)[-2]
        try:
            with pq.ParquetFile(path) as file:
                for block in file.iter_batches(BLOCK, columns=list(columns[kind]), use_threads=False):
                    yield kind, {column: block[column].to_numpy() for column in columns[kind]}
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error


def pack(table: Table) -> bytes:
    """A table as a compressed Arrow stream."""
    batch = pa.record_batch([pa.array(column) for column in table.values()], names=list(table))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(content: bytes) -> Table:
    """What :func:`pack` made of it."""
    table = pa.ipc.open_stream(content).read_all()
    return {name: table[name].to_numpy() for name in table.column_names}


def _batch(found: dict[tuple[int, str], Table]) -> pa.RecordBatch:
    rows: list[Any] = [(part, name, pack(table)) for (part, name), table in found.items()]
    types = (pa.int32(), pa.string(), pa.binary())
    return pa.record_batch([pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)], names=["part", "name", "content"])
