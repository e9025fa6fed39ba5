"""The columns of a sample as Arrow knows them, from the one table in :mod:`pytest_loadtest.samples`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.samples import KINDS

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(kind: str) -> pa.Schema:
    """The schema a sample file must have."""
    import pyarrow as pa

    return pa.schema([(column.name, pa.type_for_alias(column.type)) for column in KINDS[kind]])
