"""The fields that MQTT packets are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.mqtt.fields import LONGEST, FieldReader, variable


@given(number=st.integers(0, LONGEST))
def test_variable_byte_integers(number: int) -> None:
    """They come back, and are as short as can be."""
    data = variable(number)
    assert FieldReader(data).variable() == number
    assert len(data) == max((number.bit_length() + 6) // 7, 1)


@pytest.mark.parametrize("number", [-1, LONGEST + 1])
def test_numbers_that_no_packet_holds(number: int) -> None:
    with pytest.raises(ValueError, match="no variable byte integer"):
        variable(number)
