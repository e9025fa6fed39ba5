"""Sample files: Parquet with the columns of :mod:`pytest_loadtest.message.samples`.

A file is on disk complete or not at all.
"""

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
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from pytest_loadtest.message.samples import Column

    Columns = dict[str, NDArray[Any]]


ROWS = 1_000_000  # rows of a row group
# columns with small steps from row to row, which delta encoding suits
_REGULAR = frozenset(
    [
        "stream",
        "consumer",
        "topic",
        "seq",
        "intended",
        "sent",
        "acked",
        "blocked",
        "received",
        "base",
        "first",
        "last",
        "after",
    ]
)


def arrow_schema(kind: str) -> pa.Schema:
    """Return the schema of a kind's files."""
    import pyarrow as pa

    return pa.schema([(column.name, _type(column)) for column in KINDS[kind]])


NONCE = b"loadtest.nonce"
"""Key of the run's nonce in a file's metadata."""


def write_samples(path: Path, kind: str, columns: Columns, nonce: int | None = None) -> int:
    """Write one file to a temporary name, rename it, and return its number of rows.

    :param nonce: of the run; None: the file does not name its run.
    :param columns: the columns of the kind. A column of lists has the numbers of all rows end to
        end; the bits of ``got`` count each row's.
    :raises OSError: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(kind)
    if nonce is not None:
        schema = schema.with_metadata({NONCE: str(nonce)})
    arrays: list[pa.Array] = []
    encodings: dict[str, str] = {}
    in_dictionary: list[str] = []
    for column in KINDS[kind]:
        arrays.append(_array(column, columns))
        if column.name in _REGULAR:
            encodings[_path(column)] = "DELTA_BINARY_PACKED"
        else:
            in_dictionary.append(_path(column))
    table = pa.Table.from_arrays(arrays, schema=schema)
    temporary = _temporary(path)
    with removed_on_failure(temporary):
        pq.write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=1,
            row_group_size=ROWS,
            use_dictionary=in_dictionary,
            column_encoding=encodings,
        )
    temporary.replace(path)
    rows: int = table.num_rows
    return rows


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")  # Spark skips names that begin with a dot


def _path(column: Column) -> str:
    """Return the name of a column's numbers in the file."""
    return column.name if column.item is None else f"{column.name}.list.element"


def _type(column: Column) -> pa.DataType:
    import pyarrow as pa

    if column.item is None:
        return pa.type_for_alias(column.type)
    return pa.list_(pa.field("element", pa.type_for_alias(column.item)))


def _array(column: Column, columns: Columns) -> pa.Array:
    """Make an array from buffers: pa.array() would import pandas, most of a second of CPU while
    load runs.
    """
    import pyarrow as pa

    values = np.ascontiguousarray(columns[column.name], dtype=column.item or column.type)
    numbers = pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)]
    )
    if column.item is None:
        return numbers
    # the lists of all rows lie end to end: each has as many numbers as its mask has bits
    ends = np.zeros(len(columns["got"]) + 1, np.int32)
    np.cumsum(np.bitwise_count(columns["got"].view(np.uint64)), out=ends[1:])
    return pa.Array.from_buffers(
        _type(column), len(ends) - 1, [None, pa.py_buffer(ends)], children=[numbers]
    )


def unwritten(
    who: str, what: str, folder: Path, error: BaseException, needed: int | None
) -> NoData:
    """Return the error for a failed write, with the remedy if the disk is full.

    :param needed: bytes that the plan needs, if planned.
    """
    failure = f"{who} could not write {what} below {folder}"
    if not is_full(error):
        return NoData(f"{failure}: {error}")
    need = ""
    if needed is not None:
        need = f"the plan needs {format_size(needed)} there for the samples of all workers, "
    free = format_size(shutil.disk_usage(folder).free)
    return NoData(
        f"{failure}: the disk is full\n"
        f"  {need}{free} are free: make room, or set load_results in pytest.ini to another disk"
    )


def is_full(error: BaseException) -> bool:
    """True if a write failed because the disk, or the user's quota, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def removed_on_failure(temporary: Path) -> Iterator[None]:
    """Remove a partly written file when its write fails: it can never be used, and a full disk
    needs the room.
    """
    try:
        yield
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def replace(path: Path, content: bytes) -> None:
    """Write a file to a temporary name, sync it to the disk, and rename it."""
    temporary = _temporary(path)
    with removed_on_failure(temporary), temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
