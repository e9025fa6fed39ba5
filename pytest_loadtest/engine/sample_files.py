"""Sample files: Parquet with the columns of :mod:`pytest_loadtest.message.samples`, on disk whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_loadtest.engine.disk import gone_unless_whole
from pytest_loadtest.message.samples import KINDS

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from pytest_loadtest.message.samples import Column

    Columns = dict[str, NDArray[Any]]

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
