"""Variable byte integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.mqtt.fields import LONGEST, FieldReader, variable


@given(number=st.integers(0, LONGEST))
def test_a_variable_byte_integer_has_the_shortest_encoding(number: int) -> None:
    """Decoding returns the number."""
    data = variable(number)
    assert FieldReader(data).variable() == number
    assert len(data) == max((number.bit_length() + 6) // 7, 1)


@pytest.mark.parametrize("number", [-1, LONGEST + 1])
def test_a_number_out_of_range_is_an_error(number: int) -> None:
    with pytest.raises(ValueError, match="is not a variable byte integer: 0 to 268435455"):
        variable(number)
