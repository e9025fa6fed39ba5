"""Compression: compressed bytes come back, and a wrong size is an error."""

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
@given(
    data=st.one_of(
        st.binary(max_size=500),
        st.builds(lambda text, times: text * times, st.binary(max_size=9), st.integers(0, 5000)),
    )
)
def test_compressed_bytes_come_back(number: int, data: bytes) -> None:
    """From bytes and from views, also empty ones."""
    small = compress(number, data)
    assert small == compress(number, memoryview(data))
    assert bytes(decompress(number, memoryview(small), len(data))) == data


@every
@given(st.binary(min_size=1, max_size=500), st.integers(-500, 500))
def test_another_size_is_an_error(number: int, data: bytes, more: int) -> None:
    """Except for a larger one with LZ4, which has no size."""
    size = max(0, len(data) + more)
    if size == len(data) or (number == LZ4 and size > len(data)):
        return
    with pytest.raises(ProtocolError, match=NAMES[number]):
        decompress(number, memoryview(compress(number, data)), size)


@every
@given(st.binary(max_size=100), st.integers(0, 1000))
def test_any_bytes_have_the_size_or_are_an_error(number: int, data: bytes, size: int) -> None:
    try:
        assert len(decompress(number, memoryview(data), size)) == size
    except ProtocolError as error:
        assert NAMES[number] in str(error)


@every
@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_truncated_block_is_an_error(number: int, data: bytes, draw: st.DataObject) -> None:
    small = compress(number, data)
    with pytest.raises(ProtocolError, match=NAMES[number]):
        decompress(
            number, memoryview(small)[: draw.draw(st.integers(0, len(small) - 1))], len(data)
        )


@every
def test_an_impossible_size_allocates_no_memory(number: int) -> None:
    with pytest.raises(ProtocolError, match=f"the entry says {LARGEST + 1} bytes"):
        decompress(number, memoryview(compress(number, b"small")), LARGEST + 1)


def test_zlib_stops_one_byte_after_the_size() -> None:
    """A megabyte could become a gigabyte."""
    stream = zlib.compressobj()
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(64)) + stream.flush()
    with pytest.raises(ProtocolError, match="ZLIB: 11 bytes or more, where the entry says 10"):
        decompress(ZLIB, memoryview(bomb), 10)


@pytest.mark.parametrize("number", [-1, 0, 5, 1000])
def test_an_unknown_compression_is_an_error_with_the_known_ones(number: int) -> None:
    with pytest.raises(
        ProtocolError, match=rf"{number} is unknown: NONE, LZ4, ZLIB, ZSTD, SNAPPY are 0 to 4"
    ):
        decompress(number, memoryview(b"abc"), 3)
