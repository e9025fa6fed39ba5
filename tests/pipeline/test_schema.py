"""The columns of a sample, as Arrow knows them."""

from __future__ import annotations

import pytest

from pytest_loadtest.pipeline.schema import arrow_schema
from pytest_loadtest.samples import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_has_the_columns_of_the_table(kind: str) -> None:
    """Same names, same widths, same order."""
    columns = [(column.name, column.type) for column in KINDS[kind]]
    assert [(field.name, str(field.type)) for field in arrow_schema(kind)] == columns
