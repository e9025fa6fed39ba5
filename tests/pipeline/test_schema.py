"""The columns of a sample, as Spark and as Arrow know them."""

from __future__ import annotations

import pytest

from pytest_loadtest.pipeline.schema import arrow_schema, spark_schema
from pytest_loadtest.samples import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_both_schemas_have_the_columns_of_the_table(kind: str) -> None:
    """Same names, same widths, same order."""
    widths = {"tinyint": "int8", "smallint": "int16", "int": "int32", "bigint": "int64"}
    columns = [(column.name, column.type) for column in KINDS[kind]]
    assert [(field.name, widths[field.dataType.simpleString()]) for field in spark_schema(kind)] == columns
    assert [(field.name, str(field.type)) for field in arrow_schema(kind)] == columns
