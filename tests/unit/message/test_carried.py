"""Envelopes as values of properties and of correlation data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.carried import carried_heads, carried_values
from pytest_loadtest.message.envelope import CORRUPT, FOREIGN, OURS, decode_heads, encode_heads
from pytest_loadtest.message.payloads import build_pool
from pytest_loadtest.message.route import Carrier, parse_place
from pytest_loadtest.message.token import PREFIX

NONCE = 77
OUTSIDE = pytest.mark.parametrize("carrier", [Carrier.PROPERTIES, Carrier.CORRELATION_DATA])


def heads_of(count: int) -> np.ndarray:
    """Return the envelopes of messages of one byte, which have the full form."""
    pool = build_pool(
        buckets=None,
        message_size=1,
        randomized=False,
        random_ratio=0,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
        place=parse_place("properties"),
    )
    seq = np.arange(count)
    return encode_heads(
        pool,
        nonce=NONCE,
        stream=np.zeros(count, np.int32),
        seq=seq,
        intended=seq + 0x0123_4567_89AB_CDEF,
        payload=np.zeros(count, np.uint16),
    )


def kinds(carrier: Carrier, values: list[bytes]) -> list[int]:
    return decode_heads(carried_heads(carrier, values), None, NONCE).kind.tolist()


@OUTSIDE
@given(count=st.integers(1, 20))
def test_an_envelope_survives_its_value(carrier: Carrier, count: int) -> None:
    heads = heads_of(count)
    values = carried_values(carrier, heads)
    assert np.array_equal(carried_heads(carrier, values), heads)
    assert kinds(carrier, values) == [OURS] * count


@OUTSIDE
def test_a_message_without_a_value_is_foreign(carrier: Carrier) -> None:
    assert kinds(carrier, [b"", b"other", b"x" * 48]) == [FOREIGN] * 3


@OUTSIDE
def test_a_damaged_value_is_corrupt(carrier: Carrier) -> None:
    (value,) = carried_values(carrier, heads_of(1))
    last = len(value) - 12
    damaged = value[:last] + (b"x" if value[last : last + 1] != b"x" else b"y") + value[last + 1 :]
    assert kinds(carrier, [damaged, value[:-20], value + b"more"]) == [CORRUPT, CORRUPT, OURS]


def test_a_property_has_a_token() -> None:
    assert carried_values(Carrier.PROPERTIES, heads_of(1))[0].startswith(PREFIX)
