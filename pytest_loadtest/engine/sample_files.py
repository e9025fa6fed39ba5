"""Sample files: Parquet with the columns of :mod:`pytest_loadtest.message.samples`, on disk whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.values.quantities import format_size

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from pytest_loadtest.message.samples import Column

    Columns = dict[str, NDArray[Any]]
    from collections.abc import Iterator


ROWS = 1_000_000  # of a row group
_REGULAR = {  # small steps from row to row
    "stream", "consumer", "topic", "seq", "intended", "sent", "acked", "blocked", "received", "base", "first", "last", "after",
}  # fmt: skip


def arrow_schema(kind: str) -> pa.Schema:
    """The schema of a kind's files."""
    import pyarrow as pa

    return pa.schema([(column.name, _type(column)) for column in KINDS[kind]])


def write_samples(path: Path, kind: str, columns: Columns) -> int:
    """Write one file aside and rename it; how many rows it has.

    :param columns: those of the kind. What is a list for each row lies there as all its numbers in a row; ``got`` says how many are whose.
    :raises OSError: it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays([_array(column, columns) for column in KINDS[kind]], schema=arrow_schema(kind))
    aside = path.with_name(f".{path.name}.tmp")  # Spark skips names that begin with a dot
    regular = [column.name if column.item is None else f"{column.name}.list.element" for column in KINDS[kind] if column.name in _REGULAR]
    with gone_unless_whole(aside):
        pq.write_table(
            table, aside, compression="zstd", compression_level=1, row_group_size=ROWS,
            use_dictionary=[column.name for column in KINDS[kind] if column.name not in _REGULAR],
            column_encoding=dict.fromkeys(regular, "DELTA_BINARY_PACKED"),
        )  # fmt: skip
    aside.replace(path)
    rows: int = table.num_rows
    return rows


def _type(column: Column) -> pa.DataType:
    import pyarrow as pa

    return pa.type_for_alias(column.type) if column.item is None else pa.list_(pa.field("element", pa.type_for_alias(column.item)))


def _array(column: Column, columns: Columns) -> pa.Array:
    """From buffers, because pa.array() imports pandas: most of a second of CPU while load runs."""
    import pyarrow as pa

    values = np.ascontiguousarray(columns[column.name], dtype=column.item or column.type)
    numbers = pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
    if column.item is None:
        return numbers
    ends = np.zeros(len(columns["got"]) + 1, np.int32)
    np.cumsum(np.bitwise_count(columns["got"].view(np.uint64)), out=ends[1:])
    return pa.Array.from_buffers(_type(column), len(ends) - 1, [None, pa.py_buffer(ends)], children=[numbers])


# Files that are there whole or not at all, and a disk that is full, told so that people know what to do.


def unwritten(who: str, what: str, folder: Path, error: BaseException, needed: int | None) -> NoData:
    """The error of somebody who could not write. :param needed: bytes that the plan needs for all samples; None where nobody planned."""
    said = f"{who} could not write {what} below {folder}"
    if not is_full(error):
        return NoData(f"{said}: {error}")
    need = "" if needed is None else f"the plan needs {format_size(needed)} there for the samples of all workers, "
    free = format_size(shutil.disk_usage(folder).free)
    return NoData(f"{said}: the disk is full\n  {need}{free} are free: make room, or set load_results in pytest.ini to another disk")


def is_full(error: BaseException) -> bool:
    """Whether it says that there is no room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def gone_unless_whole(aside: Path) -> Iterator[None]:
    """A disk that is full must not keep what can never be used."""
    try:
        yield
    except OSError:
        aside.unlink(missing_ok=True)
        raise


def replace(path: Path, content: bytes) -> None:
    """Write a file aside and rename it; after that it is on the disk."""
    aside = path.with_name(f".{path.name}.tmp")
    with gone_unless_whole(aside), aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
