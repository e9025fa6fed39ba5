"""The functions that Spark's workers run: they reduce sample files to batches of small tables.

The rule: no message becomes a row of Spark. Workers read the files themselves, because Spark passes
rows to Python one by one, which costs five times as much as all the work here; what leaves them is
tables of counts or words of 64 messages, packed in Arrow batches.

The functions are sent to the workers' processes as code by
:mod:`pytest_loadtest.pipeline.transforms`, so a cluster needs numpy and pyarrow but not this
package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pytest_loadtest.engine.sample_store import SampleStore, is_uri

# The function, not its module: functions travel to the workers, modules do not.
from pytest_loadtest.message.broadcast import unpack_copies as received_rows
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.metrics.time_slices import SHARD
from pytest_loadtest.pipeline.bitmaps import RECEIVED_WORD_COLUMNS, SENT_WORD_COLUMNS, Words
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.kernel import (
    RECEIVED_COLUMNS,
    SENT_COLUMNS,
    received_tables,
    sent_tables,
)
from pytest_loadtest.pipeline.tables import Table, cut_by, merge_rows, rows_at, take

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.metrics.in_time import Begins
    from pytest_loadtest.pipeline.kernel import Rows
    from pytest_loadtest.pipeline.read import SampleFile

# Rows that are counted at once.
BLOCK = 1 << 18
# Rows of tables that are collected before they are merged.
CELLS = 1 << 20
# Bytes of an Arrow column of texts or tables, whose offsets have 32 bits.
LARGEST = (1 << 31) - 1
# Seconds whose latencies are merged at once.
SECONDS_SHARD = 1024
# Tables that grow with the length of a run, by the column that cuts them into shards: no worker
# holds all of them, and the controller collects some shards at a time.
SHARDED: Final = {"spans": ("piece", SHARD), "due": ("second", SECONDS_SHARD)}
# The shard of tables that are not cut.
WHOLE_TABLE: Final = -1

TABLE_SCHEMA = "part int, name string, content binary"
COUNTED_SCHEMA = "part int, name string, shard int, kind int, content binary"
WORDS_SCHEMA = "part int, slot bigint, content binary"


class TablesOfFiles:
    """Count the tables of a task's files; each table is one row of the result.

    :param tasks: paths by the number of the task.
    :param parts: the run and its stages; rows are counted for each of them.
    """

    def __init__(self, tasks: Sequence[Sequence[SampleFile]], parts: Sequence[Expected]) -> None:
        self._tasks = tasks
        self._parts = tuple(parts)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        gathered = [GatheredTables() for _ in self._parts]
        columns = {"sent": SENT_COLUMNS, "received": RECEIVED_COLUMNS}
        counters = {"sent": sent_tables, "received": received_tables}
        for kind, rows in blocks(self._tasks, batches, columns):
            for part, tables in zip(self._parts, gathered, strict=True):
                tables.add(counters[kind](rows, part))
            # Files are read in the order of time, so shards that are sent early are nearly
            # complete.
            if any(tables.large for tables in gathered):
                yield _tables_of_parts(tables.take_shards() for tables in gathered)
        yield _tables_of_parts(tables.merged() for tables in gathered)


def _tables_of_parts(parts: Iterable[Iterable[tuple[str, Table]]]) -> pa.RecordBatch:
    rows = []
    for number, tables in enumerate(parts):
        rows += table_rows(number, tables)
    return record_batch(rows, TABLE_SCHEMA)


class GatheredTables:
    """Tables of one part by name."""

    def __init__(self) -> None:
        self._tables: dict[str, Gathered] = {}

    def add(self, tables: Iterable[tuple[str, Table]]) -> None:
        """Add tables by name."""
        for name, table in tables:
            self._tables.setdefault(name, Gathered(name)).add(table)

    @property
    def large(self) -> bool:
        """True if the tables that are cut into shards have grown large."""
        rows = 0
        for name in SHARDED:
            if name in self._tables:
                rows += self._tables[name].merged_rows
        return rows > CELLS // 2

    def merged(self) -> Iterator[tuple[str, Table]]:
        """Yield the merged tables, large ones in shards: ``spans 0``, ``spans 1`` …"""
        for name, gathered in self._tables.items():
            if name in SHARDED:
                yield from _named_shards(name, gathered.merged())
            else:
                yield name, gathered.merged()

    def take_shards(self) -> Iterator[tuple[str, Table]]:
        """Yield the shards of tables, and forget them."""
        for name in SHARDED:
            if name in self._tables:
                yield from _named_shards(name, self._tables.pop(name).merged())


def _named_shards(name: str, table: Table) -> Iterator[tuple[str, Table]]:
    for shard, part in split(name, table):
        yield f"{name} {shard}", part


def split(name: str, table: Table) -> Iterator[tuple[int, Table]]:
    """Split a table by the number of its shards."""
    key, width = SHARDED[name]
    ordered = rows_at(narrow(table), np.argsort(table[key], kind="stable"))
    return cut_by(ordered, ordered[key] // width)


def spans_by_kind(table: Table) -> Iterator[tuple[int, Table]]:
    """Yield the spans of each kind of latencies."""
    for kind in np.unique(table["what"]).tolist():
        spans = take(table, table["what"] == kind)
        del spans["what"]
        yield kind, spans


def narrow(table: Table) -> Table:
    """Store a table that is cut into shards in smaller integers."""
    narrowed: dict[str, Any] = {name: values.astype(np.int32) for name, values in table.items()}
    if "what" in table:
        narrowed["what"] = table["what"].astype(np.int8)
    # Counts of one bucket fit into 32 bits in nearly every run; the others keep their 64.
    if table["n"].max(initial=0) > np.iinfo(np.int32).max:
        narrowed["n"] = table["n"]
    return narrowed


def merge_tables(rows: pa.Table) -> pa.Table:
    """Merge the tables of one part and name."""
    name = common(rows, "name")
    return tables_of_part(common(rows, "part"), [(name, _merged(rows))])


def counted_tables(rows: pa.Table) -> pa.Table:
    """Merge the tables of one part and name; the spans of each kind become a table of their own."""
    part = common(rows, "part")
    name, _, shard = common(rows, "name").partition(" ")
    number = int(shard) if shard else WHOLE_TABLE
    table = _merged(rows)
    tables: Iterable[tuple[int, Table]] = [(0, table)]
    if name == "spans":
        tables = spans_by_kind(table)
    counted = [(part, name, number, kind, pack(of_kind)) for kind, of_kind in tables]
    return pa.Table.from_batches([record_batch(counted, COUNTED_SCHEMA)])


def _merged(rows: pa.Table) -> Table:
    name = common(rows, "name").partition(" ")[0]
    gathered = Gathered(name)
    for content in unpacked(rows):
        gathered.add(content)
    table = gathered.merged()
    return narrow(table) if name in SHARDED else table


def common(rows: pa.Table, column: str) -> Any:
    """Return the value of a column by which Spark has grouped rows."""
    return rows[column][0].as_py()


def unpacked(rows: pa.Table) -> Iterator[Table]:
    """Yield the tables of rows that Spark has grouped."""
    return (unpack(content.as_buffer()) for content in rows["content"])


class Gathered:
    """Tables of one name, merged from time to time to limit their memory.

    :ivar merged_rows: of the last merge.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._size = 0
        self._tables: list[Table] = []
        self.merged_rows = 0

    def add(self, table: Table) -> None:
        """Add a table."""
        self._tables.append(table)
        self._size += len(next(iter(table.values())))
        if self._size > CELLS:
            merged = self.merged()
            self._tables = [merged]
            self._size = 0
            self.merged_rows = len(next(iter(merged.values())))

    def merged(self) -> Table:
        """Return all tables as one."""
        return merge_rows(self._name, self._tables)


class WordsOfFiles:
    """Count the words of a task's files by part and slot; a slot can have several rows.

    Words are merged while they are gathered, and are sent before the end only if there are too
    many: files are read in the order of time, so most words are complete.

    :param tasks: and
    :param parts: see :class:`TablesOfFiles`.
    :param begins: by part.
    """

    def __init__(
        self,
        tasks: Sequence[Sequence[SampleFile]],
        parts: Sequence[Expected],
        begins: Sequence[Begins],
    ) -> None:
        self._tasks = tasks
        self._parts = tuple(parts)
        self._begins = tuple(begins)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        words = list(map(words_of, self._parts))
        gathered = list(map(GatheredWords, words))
        columns: dict[str, tuple[str, ...]] = {
            "sent": SENT_WORD_COLUMNS,
            "received": RECEIVED_WORD_COLUMNS,
        }
        sliced = any(part.slice_cut for part in self._parts)
        if sliced:
            columns["sent"] += ("intended",)
        if sliced or any(part.delays for part in self._parts):
            columns["received"] += ("intended",)
        if any(begins.without_own is not None for begins in self._begins):
            columns["received"] = RECEIVED_COLUMNS

        for kind, rows in blocks(self._tasks, batches, columns):
            for of_part, begins, tables in zip(words, self._begins, gathered, strict=True):
                if kind == "sent":
                    tables.add(of_part.sent(rows))
                else:
                    tables.add(of_part.copies(rows, begins))
            # Words that arrive over a long time are sent early and merged
            # after the shuffle, so that memory stays bounded.
            if sum(tables.size for tables in gathered) > CELLS:
                yield _slots(gathered)
                gathered = list(map(GatheredWords, words))
        yield _slots(gathered)


class GatheredWords:
    """Tables of words, merged from time to time: they take little more memory than the result."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self.tables: list[Table] = []
        self._limit = CELLS // 4
        self.size = 0

    def add(self, table: Table) -> None:
        """Add a table."""
        self.tables.append(table)
        self.size += len(table["word"])
        if self.size > self._limit:
            self.tables = [self._words.compact(self.tables)]
            self.size = len(self.tables[0]["word"])
            # If merging does not reduce them, doubling the limit avoids a merge after every table.
            self._limit = max(self._limit, 2 * self.size)

    def slots(self) -> Iterator[tuple[int, Table]]:
        """Yield number and words of each slot."""
        if self.tables:
            yield from self._words.slots(self._words.compact(self.tables))


def _slots(parts: Sequence[GatheredWords]) -> pa.RecordBatch:
    rows = []
    for number, gathered in enumerate(parts):
        for slot, content in gathered.slots():
            rows.append((number, slot, pack(content)))
    return record_batch(rows, WORDS_SCHEMA)


def deliveries_of_words(parts: Sequence[Expected], ranges: int) -> Callable[[pa.Table], pa.Table]:
    """Return a function that counts the tables of all words of one slot, see :meth:`Words.tables`.

    :param parts: see :class:`TablesOfFiles`.
    :param ranges: of lost messages, at most.
    """

    # A plain function: Spark inspects the number of its arguments,
    # and would count ``self`` of a callable object.
    def tables_of_slot(rows: pa.Table) -> pa.Table:
        number = common(rows, "part")
        words = words_of(parts[number])
        gathered = GatheredWords(words)
        for content in unpacked(rows):
            gathered.add(content)
        tables = words.tables(words.merge(gathered.tables), ranges)
        return tables_of_part(number, tables.items())

    return tables_of_slot


def blocks(
    tasks: Sequence[Sequence[SampleFile]],
    batches: Iterator[pa.RecordBatch],
    columns: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of the tasks' files in blocks, each with its kind.

    The kind is the name of the folder; broadcast rows become received rows.
    """
    stores = {}  # by location: one connection serves all files
    for number in _task_numbers(batches):
        for file in tasks[number]:
            location, folder, name = file.path.rsplit("/", 2)
            try:
                if location not in stores:
                    stores[location] = SampleStore(location)
                with stores[location].open_parquet(f"{folder}/{name}") as opened:
                    for kind, rows in _rows_of(opened, folder, columns):
                        yield kind, _of_file(rows, file)
            except (pa.ArrowException, OSError) as error:
                # An object store that cannot be reached, or credentials that
                # this worker lacks, are no damage to the file.
                problem = "cannot be read" if is_uri(file.path) else "is damaged"
                raise ValueError(f"{file.path} {problem}: {error}") from error


def _task_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _rows_of(
    opened: pq.ParquetFile, kind: str, columns: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Rows]]:
    if kind == "broadcast":
        # A broadcast row becomes up to 64 received rows, so fewer are read at once.
        for block in opened.iter_batches(BLOCK // WIDTH, use_threads=False):
            yield "received", received_rows(_columns_of(block, block.schema.names))
        return
    for block in opened.iter_batches(BLOCK, columns=list(columns[kind]), use_threads=False):
        yield kind, _columns_of(block, columns[kind])


def _of_file(rows: Rows, file: SampleFile) -> Rows:
    """Return the rows with times that can be compared, and with the numbers of worker and host.

    The host is missing if there is only one.
    """
    if file.correction is not None:
        rows = file.correction.of_rows(rows)
    # One number for all rows of a file: the column is cheaper than a
    # lookup of each row's consumer, which sits on the same host.
    many = len(rows["stream"])
    numbered = {**rows, "worker": np.full(many, file.worker, np.int32)}
    if file.host is not None:
        numbered["host"] = np.full(many, file.host)
    return numbered


def _columns_of(block: pa.RecordBatch, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    columns = {}
    for name in names:
        # The files of older releases have no lag, and reading leaves out what a file does not have.
        if name == "lag" and name not in block.schema.names:
            columns[name] = np.full(len(block), -1, np.int32)
        else:
            columns[name] = _numbers(block[name])
    return columns


class RowsOfFiles:
    """Read the files of one kind whole, for users' own queries.

    :param names: paths below the location, by number.
    """

    def __init__(self, location: str, names: Sequence[str]) -> None:
        self._location = location
        self._names = tuple(names)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of files."""
        store = SampleStore(self._location)
        for number in _task_numbers(batches):
            with store.open_parquet(self._names[number]) as file:
                yield from file.iter_batches(BLOCK // WIDTH, use_threads=False)


def pack(table: Table) -> bytes:
    """Return a table as a compressed Arrow stream."""
    batch = pa.record_batch(list(map(_array, table.values())), names=list(table))
    sink = pa.BufferOutputStream()
    # zstd at its fastest level: tables are shuffled, on a cluster over the network.
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(content: bytes) -> Table:
    """Return the table of :func:`pack`."""
    batch = pa.ipc.open_stream(content).read_next_batch()
    return _columns_of(batch, batch.schema.names)


def table_rows(part: int, tables: Iterable[tuple[str, Table]]) -> list[tuple[int, str, bytes]]:
    """Return a row of ``TABLE_SCHEMA`` for each table of a part. :param tables: by name."""
    return [(part, name, pack(table)) for name, table in tables]


def tables_of_part(part: int, tables: Iterable[tuple[str, Table]]) -> pa.Table:
    """Return the tables of a part as Spark's rows. :param tables: by name."""
    return pa.Table.from_batches([record_batch(table_rows(part, tables), TABLE_SCHEMA)])


def record_batch(rows: Sequence[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    """:param schema: names and types in Spark's notation."""
    names = []
    arrays = []
    for place, column in enumerate(schema.split(", ")):
        name, kind = column.split()
        names.append(name)
        arrays.append(_column([row[place] for row in rows], kind))
    return pa.record_batch(arrays, names=names)


# Arrow's own pa.array() and to_numpy() import pandas, which takes every Python worker of Spark
# longer than counting a small run. So arrays are made from buffers here.


def _column(values: list[Any], kind: str) -> pa.Array:
    """:param kind: Spark's name of the type."""
    if kind == "int":
        return _array(np.array(values, np.int32))
    if kind == "bigint":
        return _array(np.array(values, np.int64))
    type_ = pa.binary()
    if kind == "string":
        type_ = pa.string()
        values = list(map(str.encode, values))
    ends = np.cumsum([0, *map(len, values)], dtype=np.int64)
    if ends[-1] > LARGEST:
        raise ValueError(
            f"{ends[-1]:,} bytes of tables are more than an Arrow column holds, {LARGEST:,}:"
            " fewer topics or windows"
        )
    offsets = pa.py_buffer(ends.astype(np.int32))
    content = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(type_, len(values), [None, offsets, content])


def _array(numbers: NDArray[Any]) -> pa.Array:
    content = pa.py_buffer(np.ascontiguousarray(numbers))
    type_ = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(type_, len(numbers), [None, content])


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return the numbers of an array without nulls, not copied; of lists, all their items."""
    if pa.types.is_list(array.type):
        array = array.flatten()
    dtype = np.dtype(str(array.type))
    if not len(array):
        return np.empty(0, dtype)
    # A slice of an array shares its buffer and has an offset, in elements.
    content = array.buffers()[1]
    return np.frombuffer(content, dtype, len(array), array.offset * dtype.itemsize)
