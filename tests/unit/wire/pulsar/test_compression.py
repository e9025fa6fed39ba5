"""Compression: what is compressed comes back, and what does not fit its size is an error instead of a payload."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.pulsar.compression import LARGEST, NAMES, compress, decompress
from pytest_loadtest.wire.pulsar.framing import ProtocolError

NUMBERS = range(1, len(NAMES))
every = pytest.mark.parametrize("number", NUMBERS, ids=NAMES[1:])
LZ4, ZLIB = NAMES.index("LZ4"), NAMES.index("ZLIB")


@every
@given(data=st.one_of(st.binary(max_size=500), st.builds(lambda text, times: text * times, st.binary(max_size=9), st.integers(0, 5000))))
def test_round_trip(number: int, data: bytes) -> None:
    """Of any bytes, none too; from a view as from bytes."""
    small = compress(number, data)
    assert small == compress(number, memoryview(data))
    assert bytes(decompress(number, memoryview(small), len(data))) == data


@every
@given(st.binary(min_size=1, max_size=500), st.integers(-500, 500))
def test_another_size(number: int, data: bytes, more: int) -> None:
    """Less than there is, or more than there is (of LZ4, which does not tell its size, only less), is an error."""
    size = max(0, len(data) + more)
    if size == len(data) or (number == LZ4 and size > len(data)):
        return
    with pytest.raises(ProtocolError, match=NAMES[number]):
        decompress(number, memoryview(compress(number, data)), size)


@every
@given(st.binary(max_size=100), st.integers(0, 1000))
def test_any_bytes(number: int, data: bytes, size: int) -> None:
    """So many bytes, or an error."""
    try:
        assert len(decompress(number, memoryview(data), size)) == size
    except ProtocolError as error:
        assert NAMES[number] in str(error)


@every
@given(st.binary(min_size=1, max_size=200), st.data())
def test_cut_off(number: int, data: bytes, draw: st.DataObject) -> None:
    """Half of it is an error."""
    small = compress(number, data)
    with pytest.raises(ProtocolError, match=NAMES[number]):
        decompress(number, memoryview(small)[: draw.draw(st.integers(0, len(small) - 1))], len(data))


@every
def test_a_size_that_nobody_has(number: int) -> None:
    """Memory is not taken for it."""
    with pytest.raises(ProtocolError, match=f"the entry says {LARGEST + 1} bytes"):
        decompress(number, memoryview(compress(number, b"small")), LARGEST + 1)


def test_more_than_was_said_is_not_made() -> None:
    """ZLIB makes a gigabyte of a megabyte: it ends one byte beyond what the entry says."""
    stream = zlib.compressobj()
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(64)) + stream.flush()
    with pytest.raises(ProtocolError, match="ZLIB: 11 bytes or more, where the entry says 10"):
        decompress(ZLIB, memoryview(bomb), 10)


@pytest.mark.parametrize("number", [-1, 0, 5, 1000])
def test_unknown(number: int) -> None:
    """The error names what is known."""
    with pytest.raises(ProtocolError, match=rf"{number} is unknown: NONE, LZ4, ZLIB, ZSTD, SNAPPY are 0 to 4"):
        decompress(number, memoryview(b"abc"), 3)
