"""The functions that Spark's workers run: they reduce sample files to Arrow batches of small tables or of words.

Workers read the files themselves. Spark could read them too, but passes rows to Python one by one,
which costs five times as much as all the work here.

The functions are sent to the workers as code (see :mod:`pytest_loadtest.pipeline.transforms`), so a
cluster needs numpy and pyarrow but not this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pytest_loadtest.engine.sample_store import SampleStore, is_uri
from pytest_loadtest.message.broadcast import (
    unpack_copies as received_rows,
)  # not the module: functions travel, modules do not
from pytest_loadtest.message.samples import BROADCAST, WIDTH
from pytest_loadtest.metrics.time_slices import SHARD
from pytest_loadtest.pipeline.bitmaps import RECEIVED_WORD_COLUMNS, SENT_WORD_COLUMNS
from pytest_loadtest.pipeline.broadcasts import words_of
from pytest_loadtest.pipeline.kernel import (
    RECEIVED_COLUMNS,
    SENT_COLUMNS,
    received_tables,
    sent_tables,
)
from pytest_loadtest.pipeline.tables import merge_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_loadtest.metrics.clocks import Correction
    from pytest_loadtest.metrics.expected import Expected
    from pytest_loadtest.pipeline.bitmaps import Words
    from pytest_loadtest.pipeline.kernel import Rows
    from pytest_loadtest.pipeline.read import SampleFile
    from pytest_loadtest.pipeline.tables import Table

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
        self._tasks, self._parts = tasks, tuple(parts)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        found = [GatheredTables() for _ in self._parts]
        how = {"sent": (SENT_COLUMNS, sent_tables), "received": (RECEIVED_COLUMNS, received_tables)}
        for kind, rows in blocks(
            self._tasks, batches, {kind: columns for kind, (columns, _) in how.items()}
        ):
            for part, gathered in zip(self._parts, found, strict=True):
                gathered.add(how[kind][1](rows, part))
            # Files are read in the order of time, so shards that
            # are sent early are nearly complete.
            if any(gathered.large for gathered in found):
                yield _tables_of_parts(gathered.take_shards() for gathered in found)
        yield _tables_of_parts(gathered.merged() for gathered in found)


def _tables_of_parts(parts: Iterable[Iterable[tuple[str, Table]]]) -> pa.RecordBatch:
    return table_batch(
        {(number, name): table for number, part in enumerate(parts) for name, table in part}
    )


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
        return (
            sum(self._tables[name].merged_rows for name in SHARDED if name in self._tables)
            > CELLS // 2
        )

    def merged(self) -> Iterator[tuple[str, Table]]:
        """Yield the merged tables, large ones in shards: ``spans 0``, ``spans 1`` …"""
        for name, gathered in self._tables.items():
            table = gathered.merged()
            if name not in SHARDED:
                yield name, table
            else:
                yield from ((f"{name} {shard}", part) for shard, part in split(name, table))

    def take_shards(self) -> Iterator[tuple[str, Table]]:
        """Yield the shards of tables, and forget them."""
        for name in SHARDED:
            if name in self._tables:
                yield from (
                    (f"{name} {shard}", part)
                    for shard, part in split(name, self._tables.pop(name).merged())
                )


def split(name: str, table: Table) -> Iterator[tuple[int, Table]]:
    """Split a table by the number of its shards."""
    key, width = SHARDED[name]
    if not len(table[key]):
        return
    table = narrow(table)
    first, last = int(table[key].min()) // width, int(table[key].max()) // width
    order = np.argsort(table[key], kind="stable")
    edges = np.searchsorted(table[key][order], np.arange(first, last + 2) * width)
    for shard, (low, high) in enumerate(
        zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True), start=first
    ):
        if low < high:
            yield shard, {column: values[order[low:high]] for column, values in table.items()}


def spans_by_kind(table: Table) -> Iterator[tuple[int, Table]]:
    """Yield the spans of each kind of latencies."""
    for kind in np.unique(table["what"]).tolist():
        own = table["what"] == kind
        yield kind, {name: column[own] for name, column in table.items() if name != "what"}


def narrow(table: Table) -> Table:
    """Store a table that is cut into shards in smaller integers."""
    columns: dict[str, Any] = {
        name: values.astype(np.int8 if name == "what" else np.int32)
        for name, values in table.items()
        if name != "n"
    }
    # Counts of one bucket fit into 32 bits in nearly every run; the others keep their 64.
    many = table["n"]
    return columns | {
        "n": many.astype(np.int32) if many.max(initial=0) <= np.iinfo(np.int32).max else many
    }


def merge_tables(rows: pa.Table) -> pa.Table:
    """Merge the tables of one part and name."""
    part, name = rows["part"][0].as_py(), rows["name"][0].as_py()
    return pa.Table.from_batches([table_batch({(part, name): _merged(rows)})])


def counted_tables(rows: pa.Table) -> pa.Table:
    """Merge the tables of one part and name; the spans of each kind become a table of their own."""
    part = rows["part"][0].as_py()
    name, _, shard = rows["name"][0].as_py().partition(" ")
    table = _merged(rows)
    number = int(shard) if shard else WHOLE_TABLE
    kinds = spans_by_kind(table) if name == "spans" else ((0, table),)
    counted = [(part, name, number, kind, pack(of_kind)) for kind, of_kind in kinds]
    return pa.Table.from_batches([record_batch(counted, COUNTED_SCHEMA)])


def _merged(rows: pa.Table) -> Table:
    name = rows["name"][0].as_py().partition(" ")[0]
    gathered = Gathered(name)
    for content in unpacked(rows):
        gathered.add(content)
    table = gathered.merged()
    return narrow(table) if name in SHARDED else table


def unpacked(rows: pa.Table) -> Iterator[Table]:
    """Yield the tables of rows that Spark has grouped."""
    return (unpack(content.as_buffer()) for content in rows["content"])


class Gathered:
    """Tables of one name, merged from time to time to limit their memory.

    :ivar merged_rows: of the last merge.
    """

    def __init__(self, name: str) -> None:
        self._name, self._size = name, 0
        self._tables: list[Table] = []
        self.merged_rows = 0

    def add(self, table: Table) -> None:
        """Add a table."""
        self._tables.append(table)
        self._size += len(next(iter(table.values())))
        if self._size > CELLS:
            merged = self.merged()
            self._tables, self._size = [merged], 0
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
    :param begins: the start of the time in which a copy is in time, by part.
    """

    def __init__(
        self,
        tasks: Sequence[Sequence[SampleFile]],
        parts: Sequence[Expected],
        begins: Sequence[int],
    ) -> None:
        self._tasks, self._parts, self._begins = tasks, tuple(parts), tuple(begins)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of tasks."""
        words = [words_of(part) for part in self._parts]
        found = [GatheredWords(part) for part in words]
        cut = any(part.slice_cut for part in self._parts)
        due = ("intended",) if cut or any(part.delays for part in self._parts) else ()
        columns = {
            "sent": (*SENT_WORD_COLUMNS, *(due if cut else ())),
            "received": (*RECEIVED_WORD_COLUMNS, *due),
        }
        for kind, rows in blocks(self._tasks, batches, columns):
            for part, begin, gathered in zip(words, self._begins, found, strict=True):
                gathered.add(
                    part.sent(rows)
                    if kind == "sent"
                    else part.copies(rows, begin, begin + part.run.duration)
                )
            # Words that arrive over a long time are sent early and merged after the shuffle, so
            # that memory stays bounded.
            if sum(gathered.size for gathered in found) > CELLS:
                yield _slots(words, found)
                found = [GatheredWords(part) for part in words]
        yield _slots(words, found)


class GatheredWords:
    """Tables of words, merged from time to time, so that they take little more memory than the result."""

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


def _slots(words: Sequence[Words], gathered_words: Sequence[GatheredWords]) -> pa.RecordBatch:
    """:param gathered_words: the tables of each part."""
    rows = [
        (number, slot, pack(content))
        for number, (part, gathered) in enumerate(zip(words, gathered_words, strict=True))
        if gathered.tables
        for slot, content in part.slots(part.compact(gathered.tables))
    ]
    return record_batch(rows, WORDS_SCHEMA)


def deliveries_of_words(parts: Sequence[Expected], ranges: int) -> Callable[[pa.Table], pa.Table]:
    """Return a function that counts the tables of all words of one slot, see :meth:`Words.tables`.

    :param parts: see :class:`TablesOfFiles`. :param ranges: of lost messages, at most.
    """

    # A plain function: Spark inspects the number of its arguments, and
    # would count ``self`` of a callable object.
    def tables_of_slot(rows: pa.Table) -> pa.Table:
        number = rows["part"][0].as_py()
        run = parts[number]
        words = words_of(run)
        gathered = GatheredWords(words)
        for content in unpacked(rows):
            gathered.add(content)
        tables = words.tables(words.merge(gathered.tables), ranges)
        return pa.Table.from_batches(
            [table_batch({(number, name): table for name, table in tables.items()})]
        )

    return tables_of_slot


def blocks(
    tasks: Sequence[Sequence[SampleFile]],
    batches: Iterator[pa.RecordBatch],
    columns: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of the tasks' files in blocks, with their kind, the name of the folder; broadcast rows become received rows."""
    stores: dict[str, SampleStore] = {}  # by location: one connection serves all files
    for path, worker, correction, host in (
        file for batch in batches for task in batch.column(0).to_pylist() for file in tasks[task]
    ):
        location, kind, name = path.rsplit("/", 2)
        try:
            stores[location] = stores.get(location) or SampleStore(location)
            with stores[location].open_parquet(f"{kind}/{name}") as file:
                # A broadcast row becomes up to 64 received rows, so fewer are read at once.
                if kind == "broadcast":
                    for block in file.iter_batches(BLOCK // WIDTH, use_threads=False):
                        rows: Rows = received_rows(
                            {
                                name: _numbers(block[name])
                                for name, *_ in BROADCAST
                                if name in block.schema.names
                            }
                        )
                        yield "received", _of_file(rows, worker, correction, host)
                    continue
                for block in file.iter_batches(
                    BLOCK, columns=list(columns[kind]), use_threads=False
                ):
                    rows = {column: _column_of(block, column) for column in columns[kind]}
                    yield kind, _of_file(rows, worker, correction, host)
        except (pa.ArrowException, OSError) as error:
            # An object store that cannot be reached, or credentials that this
            # worker lacks, are no damage to the file.
            raise ValueError(
                f"{path} {'cannot be read' if is_uri(path) else 'is damaged'}: {error}"
            ) from error


def _of_file(rows: Rows, worker: int, correction: Correction | None, host: int | None) -> Rows:
    """Return the rows with the numbers of their worker and, if there are several, their host, and with times that can be compared."""
    # One number for all rows of a file: the column is cheaper than a lookup of each row's consumer,
    # which sits on the same host.
    rows = rows if correction is None else correction.of_rows(rows)
    rows = {**rows, "worker": np.full(len(rows["stream"]), worker, np.int32)}
    return rows if host is None else {**rows, "host": np.full(len(rows["stream"]), host)}


def _column_of(block: pa.RecordBatch, name: str) -> NDArray[Any]:
    # The files of older releases have no lag, and reading leaves out what a file does not have.
    if name == "lag" and name not in block.schema.names:
        return np.full(len(block), -1, np.int32)
    return _numbers(block[name])


class RowsOfFiles:
    """Read the files of one kind whole, for users' own queries.

    :param names: paths below the location, by number.
    """

    def __init__(self, location: str, names: Sequence[str]) -> None:
        self._location, self._names = location, tuple(names)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """:param batches: numbers of files."""
        store = SampleStore(self._location)
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            with store.open_parquet(self._names[number]) as file:
                yield from file.iter_batches(BLOCK // WIDTH, use_threads=False)


def pack(table: Table) -> bytes:
    """Return a table as a compressed Arrow stream."""
    # zstd at its fastest level: tables are shuffled, on a cluster over the network.
    batch = pa.record_batch([_array(column) for column in table.values()], names=list(table))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1))
    ) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack(content: bytes) -> Table:
    """Return the table of :func:`pack`."""
    batch = pa.ipc.open_stream(content).read_next_batch()
    return {name: _numbers(batch[name]) for name in batch.schema.names}


def table_batch(tables: Mapping[tuple[int, str], Table]) -> pa.RecordBatch:
    """Return a batch with one row for each table, by part and name."""
    return record_batch([(*key, pack(table)) for key, table in tables.items()], TABLE_SCHEMA)


def record_batch(rows: Sequence[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    """:param schema: names and types in Spark's notation."""
    columns = [column.split() for column in schema.split(", ")]
    arrays = [_column([row[i] for row in rows], kind) for i, (_, kind) in enumerate(columns)]
    return pa.record_batch(arrays, names=[name for name, _ in columns])


# Arrow's own pa.array() and to_numpy() import pandas, which takes every Python worker of Spark
# longer than counting a small run. So arrays are made from buffers here.


def _column(values: list[Any], kind: str) -> pa.Array:
    """:param kind: Spark's name of the type."""
    if kind in ("int", "bigint"):
        return _array(np.array(values, np.int32 if kind == "int" else np.int64))
    parts = [value.encode() if isinstance(value, str) else value for value in values]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    if ends[-1] > LARGEST:
        raise ValueError(
            f"{ends[-1]:,} bytes of tables are more than an Arrow column holds, {LARGEST:,}: fewer topics or windows"
        )
    type_ = pa.string() if kind == "string" else pa.binary()
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(type_, len(parts), [None, offsets, pa.py_buffer(b"".join(parts))])


def _array(numbers: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(numbers.dtype),
        len(numbers),
        [None, pa.py_buffer(np.ascontiguousarray(numbers))],
    )


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return the numbers of an array without nulls, not copied; of lists, all their items."""
    if pa.types.is_list(array.type):
        array = array.flatten()
    # A slice of an array shares its buffer and has an offset, in elements.
    content, dtype = array.buffers()[1], np.dtype(str(array.type))
    return (
        np.frombuffer(content, dtype, len(array), array.offset * dtype.itemsize)
        if len(array)
        else np.empty(0, dtype)
    )
