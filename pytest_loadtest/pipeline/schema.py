"""The columns of a sample as Spark and as Arrow know them, from the one table in :mod:`pytest_loadtest.samples`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.samples import KINDS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def spark_schema(kind: str) -> StructType:
    """The schema Spark reads ``sent`` or ``received`` rows by."""
    from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StructField, StructType

    types = {"int8": ByteType(), "int16": ShortType(), "int32": IntegerType(), "int64": LongType()}
    return StructType([StructField(column.name, types[column.type]) for column in KINDS[kind]])


def arrow_schema(kind: str) -> pa.Schema:
    """The schema a sample file must have."""
    import pyarrow as pa

    return pa.schema([(column.name, pa.type_for_alias(column.type)) for column in KINDS[kind]])
