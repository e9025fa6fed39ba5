"""The functions that Spark's workers run: sample files in, Arrow batches of small tables or of words out.

Workers read the files themselves. Spark could read them too, but hands rows to Python one by one, which costs five times as much as all
that is done with them here.

They travel to the workers as code (see :mod:`pytest_loadtest.pipeline.transforms`), so a cluster needs numpy and pyarrow and not this
package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pytest_loadtest.message.broadcast import unpack_copies as received_rows  # not the module: functions travel, modules do not
from pytest_loadtest.message.samples import BROADCAST, WIDTH
from pytest_loadtest.pipeline.bitmaps import RECEIVED_WORD_COLUMNS, SENT_WORD_COLUMNS
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.kernel import RECEIVED_COLUMNS, SENT_COLUMNS, received_tables, sent_tables
from pytest_loadtest.pipeline.tables import merged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.bitmaps import Words
    from pytest_loadtest.pipeline.kernel import Rows
    from pytest_loadtest.pipeline.read import SampleFile
    from pytest_loadtest.pipeline.tables import Table

BLOCK = 1 << 18  # rows at once
CELLS = 1 << 20  # rows of tables that are kept before they are merged
LARGEST = (1 << 31) - 1  # bytes of a column of texts or tables, whose offsets have 32 bits
SHARD = 128  # pieces of the measured phase whose histograms are merged at once

TABLE_SCHEMA = "part int, name string, content binary"
WORDS_SCHEMA = "part int, slot bigint, content binary"


class TablesOfFiles:
    """The tables of a task's files, one row each.

    :param tasks: paths by the number of the task.
    :param parts: the runs, or stages, that rows are counted for; each is a part of its own.
    """

    def __init__(self, tasks: Sequence[Sequence[SampleFile]], parts: Sequence[Expected]) -> None:
        self._tasks, self._parts = tasks, tuple(parts)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        found: dict[tuple[int, str], Gathered] = {}
        how = {"sent": (SENT_COLUMNS, sent_tables), "received": (RECEIVED_COLUMNS, received_tables)}
        for kind, rows in blocks(self._tasks, batches, {kind: columns for kind, (columns, _) in how.items()}):
            for number, part in enumerate(self._parts):
                for name, table in how[kind][1](rows, part):
                    found.setdefault((number, name), Gathered(name)).add(table)
        yield table_batch({(part, name): table for (part, of), gathered in found.items() for name, table in shards(of, gathered.merged())})


def shards(name: str, table: Table) -> Iterator[tuple[str, Table]]:
    """Tables that may be large in parts of their own, ``spans 0``, ``spans 1`` …, so that nobody has to hold all at once."""
    if name != "spans" or not len(table["piece"]):
        yield name, table
        return
    table = narrow(table)
    last = int(table["piece"].max()) // SHARD
    order = np.argsort(table["piece"], kind="stable")
    edges = np.searchsorted(table["piece"][order], np.arange(last + 2) * SHARD)
    for shard in range(last + 1):
        rows = order[edges[shard] : edges[shard + 1]]
        if len(rows):
            yield f"{name} {shard}", {column: values[rows] for column, values in table.items()}


def narrow(table: Table) -> Table:
    """The same in less room: of a day there are some ten million rows."""
    found: dict[str, Any] = {name: column.astype(np.int8 if name == "what" else np.int32) for name, column in table.items() if name != "n"}
    many = table["n"]
    return found | {"n": many.astype(np.int32) if many.max(initial=0) <= np.iinfo(np.int32).max else many}


def merge_tables(rows: pa.Table) -> pa.Table:
    """Merge the tables of one part and name."""
    part, name = rows["part"][0].as_py(), rows["name"][0].as_py()
    gathered = Gathered(name.partition(" ")[0])
    for content in unpacked(rows):
        gathered.add(content)
    table = gathered.merged()
    return pa.Table.from_batches([table_batch({(part, name): narrow(table) if name.startswith("spans") else table})])


def unpacked(rows: pa.Table) -> Iterator[Table]:
    """The tables of rows that Spark brought together."""
    return (unpack(content.as_buffer()) for content in rows["content"])


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
        return merged(self._name, self._tables)


class WordsOfFiles:
    """The words of a task's files by part and slot; those of a slot may come several times.

    They are merged as they are gathered, and leave only where they are too many: files come in the order of time, so most words are whole.

    :param tasks: and :param parts: as for :class:`TablesOfFiles`.
    :param begins: when a copy is in time, from each part's begin on for its duration.
    """

    def __init__(self, tasks: Sequence[Sequence[SampleFile]], parts: Sequence[Expected], begins: Sequence[int]) -> None:
        self._tasks, self._parts, self._begins = tasks, tuple(parts), tuple(begins)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        words = [words_of(part) for part in self._parts]
        found = [GatheredWords(part) for part in words]
        cut = any(part.slice_cut for part in self._parts)
        due = ("intended",) if cut or any(part.delays for part in self._parts) else ()
        columns = {"sent": (*SENT_WORD_COLUMNS, *(due if cut else ())), "received": (*RECEIVED_WORD_COLUMNS, *due)}
        for kind, rows in blocks(self._tasks, batches, columns):
            for part, begin, gathered in zip(words, self._begins, found, strict=True):
                gathered.add(part.sent(rows) if kind == "sent" else part.copies(rows, begin, begin + part.run.duration))
            if sum(gathered.size for gathered in found) > CELLS:
                yield _slots(words, found)
                found = [GatheredWords(part) for part in words]
        yield _slots(words, found)


class GatheredWords:
    """Tables of words, merged now and then, so that they take little more memory than what they come to."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.tables: list[Table] = []
        self._limit = CELLS // 4
        self.size = 0

    def add(self, table: Table) -> None:
        """One more."""
        self.tables.append(table)
        self.size += len(table["word"])
        if self.size > self._limit:
            self.tables = [self._words.compact(self.tables)]
            self.size = len(self.tables[0]["word"])
            self._limit = max(self._limit, 2 * self.size)  # where they do not become fewer, not after every table


def _slots(words: Sequence[Words], found: Sequence[GatheredWords]) -> pa.RecordBatch:
    """:param found: the tables of each part."""
    rows = [
        (number, slot, pack(content))
        for number, (part, gathered) in enumerate(zip(words, found, strict=True))
        if gathered.tables
        for slot, content in part.slots(part.compact(gathered.tables))
    ]
    return record_batch(rows, WORDS_SCHEMA)


def deliveries_of_words(parts: Sequence[Expected], ranges: int) -> Callable[[pa.Table], pa.Table]:
    """What all words of one slot of a part tell, as :meth:`Words.tables` has it.

    Returns a plain function: Spark looks at how many arguments it takes, and of an object that can be called would count ``self`` too.

    :param parts: as for :class:`TablesOfFiles`. :param ranges: how many ranges of lost messages are wanted.
    """

    def tell(rows: pa.Table) -> pa.Table:
        number = rows["part"][0].as_py()
        run = parts[number]
        words = words_of(run)
        gathered = GatheredWords(words)
        for content in unpacked(rows):
            gathered.add(content)
        tables = words.tables(words.merge(gathered.tables), ranges)
        return pa.Table.from_batches([table_batch({(number, name): table for name, table in tables.items()})])

    return tell


def blocks(
    tasks: Sequence[Sequence[SampleFile]], batches: Iterator[pa.RecordBatch], columns: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Rows]]:
    """The rows of the tasks' files, with their kind, which is the folder they lie in; those of broadcasts as received rows."""
    for path, correction in (file for batch in batches for task in batch.column(0).to_pylist() for file in tasks[task]):
        kind = path.rsplit("/", 2)[-2]
        try:
            with pq.ParquetFile(path) as file:
                if kind == "broadcast":
                    for block in file.iter_batches(BLOCK // WIDTH, use_threads=False):
                        rows: Rows = received_rows({name: _numbers(block[name]) for name, *_ in BROADCAST})
                        yield "received", rows if correction is None else correction.of_rows(rows)
                    continue
                for block in file.iter_batches(BLOCK, columns=list(columns[kind]), use_threads=False):
                    rows = {column: _numbers(block[column]) for column in columns[kind]}
                    # Samples have the times of the host that recorded them; everything below this line compares them with others.
                    yield kind, rows if correction is None else correction.of_rows(rows)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error


def pack(table: Table) -> bytes:
    """A table as a compressed Arrow stream."""
    batch = pa.record_batch([_array(column) for column in table.values()], names=list(table))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(content: bytes) -> Table:
    """What :func:`pack` made of it."""
    batch = pa.ipc.open_stream(content).read_next_batch()
    return {name: _numbers(batch[name]) for name in batch.schema.names}


def table_batch(found: Mapping[tuple[int, str], Table]) -> pa.RecordBatch:
    """Tables by part and name, one row each."""
    return record_batch([(*key, pack(table)) for key, table in found.items()], TABLE_SCHEMA)


def record_batch(rows: Sequence[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    """:param schema: as Spark has it."""
    columns = [column.split() for column in schema.split(", ")]
    arrays = [_column([row[i] for row in rows], kind) for i, (_, kind) in enumerate(columns)]
    return pa.record_batch(arrays, names=[name for name, _ in columns])


# Arrow's own pa.array() and to_numpy() import pandas, which takes every Python worker of Spark longer than to count a small run.


def _column(values: list[Any], kind: str) -> pa.Array:
    """:param kind: Spark's name of a type."""
    if kind in ("int", "bigint"):
        return _array(np.array(values, np.int32 if kind == "int" else np.int64))
    parts = [value.encode() if isinstance(value, str) else value for value in values]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    if ends[-1] > LARGEST:
        raise ValueError(f"{ends[-1]:,} bytes of tables are more than an Arrow column holds, {LARGEST:,}: fewer topics or windows")
    type_ = pa.string() if kind == "string" else pa.binary()
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(type_, len(parts), [None, offsets, pa.py_buffer(b"".join(parts))])


def _array(numbers: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _numbers(array: pa.Array) -> NDArray[Any]:
    """The numbers of an array without nulls, where they lie; of lists, all their items."""
    if pa.types.is_list(array.type):
        array = array.flatten()
    content, dtype = array.buffers()[1], np.dtype(str(array.type))
    return np.frombuffer(content, dtype, len(array), array.offset * dtype.itemsize) if len(array) else np.empty(0, dtype)
