"""The types of fields are checked when a document is read, although their module knows no
documents.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest
from pydantic import TypeAdapter, ValidationError

from pytest_loadtest.values.fields import Count, Number, Positive  # noqa: TC001 - they are looked up


@dataclass(frozen=True)
class Facts:
    """A dataclass that has one field of each type."""

    count: Count
    positive: Positive
    number: Number


READER = TypeAdapter(Facts)


def test_a_number_stays_what_it_was_written_as() -> None:
    whole = READER.validate_json('{"count": 0, "positive": 1, "number": 2}')
    parted = READER.validate_json('{"count": 0, "positive": 1, "number": 2.0}')
    assert (type(whole.number), type(parted.number)) == (int, float)


@pytest.mark.parametrize("key", ["count", "positive"])
def test_a_value_below_the_least_is_an_error(key: str) -> None:
    text = '{"count": 0, "positive": 1, "number": 2}'
    least = {"count": 0, "positive": 1}[key]
    with pytest.raises(ValidationError, match=key):
        READER.validate_json(text.replace(f'"{key}": {least}', f'"{key}": {least - 1}'))


def test_the_types_load_no_pydantic() -> None:
    code = "import sys, pytest_loadtest.values.fields; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
