"""The functions that Spark's workers run: sample files in, Arrow batches of small tables or of words out.

Workers read the files themselves. Spark could read them too, but hands rows to Python one by one, which costs five times as much as all
that is done with them here.

They travel to the workers as code (see :mod:`pytest_loadtest.pipeline.transforms`), so a cluster needs numpy and pyarrow and not this
package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pytest_loadtest.pipeline.tables import bucket_totals, delivery_totals, lost_edges, merge

if TYPE_CHECKING:
    from pytest_loadtest.pipeline.kernel import Rows
    from pytest_loadtest.pipeline.tables import Table
    from pytest_loadtest.stats import Run

BLOCK = 1 << 18  # rows at once
CELLS = 1 << 20  # rows of tables that are kept before they are merged

TABLE_SCHEMA = "part int, name string, content binary"
WORDS_SCHEMA = "part int, slot bigint, content binary"


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
    """The words of a task's files by part and slot; those of a slot may come several times.

    :param tasks: and :param parts: as for :class:`TablesOfFiles`.
    :param begins: when a copy is in time, from each part's begin on for its duration.
    """

    def __init__(self, tasks: Sequence[Sequence[str]], parts: Sequence[Run], begins: Sequence[int]) -> None:
        self._tasks, self._parts, self._begins = tasks, tuple(parts), tuple(begins)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        words, size = [Words(part) for part in self._parts], 0
        found: list[list[Table]] = [[] for _ in words]
        for kind, rows in _blocks(self._tasks, batches, {"sent": SENT_WORD_COLUMNS, "received": RECEIVED_WORD_COLUMNS}):
            for part, begin, tables in zip(words, self._begins, found, strict=True):
                tables.append(part.sent(rows) if kind == "sent" else part.copies(rows, begin, begin + part.run.duration))
                size += len(tables[-1]["word"])
            if size > CELLS:
                yield _slots(words, found)
                found, size = [[] for _ in words], 0
        yield _slots(words, found)


def _slots(words: Sequence[Words], found: Sequence[Sequence[Table]]) -> pa.RecordBatch:
    """:param found: the tables of each part."""
    merged = [part.merge(tables) if tables else None for part, tables in zip(words, found, strict=True)]
    rows = [
        (number, slot, pack(content))
        for number, table in enumerate(merged)
        if table is not None
        for slot, content in words[number].slots(table)
    ]
    return _record_batch(rows, WORDS_SCHEMA)


def deliveries_of_words(parts: Sequence[Run], ranges: int) -> Callable[[pa.Table], pa.Table]:
    """What all words of one slot of a part tell: tables ``deliveries``, ``buckets`` and ``edges``.

    A function within one, because of anything else Spark misreads how many arguments it takes.

    :param parts: as for :class:`TablesOfFiles`. :param ranges: how many ranges of lost messages are wanted.
    """

    def tell(rows: pa.Table) -> pa.Table:
        number = rows["part"][0].as_py()
        run = parts[number]
        words = Words(run)
        named = words.named(words.merge([unpack(content.as_buffer()) for content in rows["content"]]))
        tables = {
            "deliveries": delivery_totals(named),
            "buckets": bucket_totals(named, len(run.buckets)),
            "edges": lost_edges(named, run.stream_topics, ranges),
        }
        return pa.Table.from_batches([_batch({(number, name): table for name, table in tables.items()})])

    return tell


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


def _batch(found: Mapping[tuple[int, str], Table]) -> pa.RecordBatch:
    return _record_batch([(*key, pack(table)) for key, table in found.items()], TABLE_SCHEMA)


def _record_batch(rows: Sequence[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    """:param schema: as Spark has it."""
    types = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    columns = [column.split() for column in schema.split(", ")]
    arrays = [pa.array([row[i] for row in rows], types[kind]) for i, (_, kind) in enumerate(columns)]
    return pa.record_batch(arrays, names=[name for name, _ in columns])
