"""What Pulsar's clients compress entries with; LZ4 and Snappy in their raw block formats, without a frame of their own."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from pyarrow import Codec

LARGEST: Final = 1 << 30
"""Bytes; what an entry claims to be longer than this when it is decompressed is taken for damaged."""
NAMES: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
"""By the number that an entry's metadata has."""
_ZLIB: Final = 2
_SNAPPY: Final = 4
_CODECS: Final = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
_ready: dict[int, Codec] = {}


def compress(number: int, data: bytes | memoryview) -> bytes:
    """:param number: index in :data:`NAMES`, not 0."""
    if number == _ZLIB:
        return zlib.compress(data)
    return bytes(_codec(number).compress(data, asbytes=True))


def decompress(number: int, data: memoryview, size: int) -> memoryview:
    """:param size: bytes that it must be afterwards, at most :data:`LARGEST`.

    What LZ4 finds too short is not noticed, its end is then anything: the format does not say its size, and pyarrow not how much it
    found. The CRC guards the size in the metadata, so only a producer that writes a wrong one can bring this about.

    :raises ProtocolError: it cannot be decompressed, has another size, or the compression is not known.
    """
    if not 0 < number < len(NAMES):
        raise ProtocolError(f"compression number {number} is not known: {', '.join(NAMES)} are 0 to {len(NAMES) - 1}")
    if size > LARGEST:
        raise ProtocolError(f"{NAMES[number]}: the entry says {size} bytes, where {LARGEST} are possible")
    if number == _SNAPPY and (told := _snappy_size(data)) != size:  # pyarrow would leave the rest as it found it
        raise ProtocolError(f"SNAPPY: {told} bytes, where the entry says {size}")
    try:
        found = _inflate(data, size) if number == _ZLIB else bytes(_codec(number).decompress(data, size, asbytes=True))
    except ProtocolError:
        raise
    except (OSError, ValueError, MemoryError, zlib.error) as error:  # of pyarrow the first two
        raise ProtocolError(f"{NAMES[number]}: {error}") from error
    return memoryview(found)


def _inflate(data: memoryview, size: int) -> bytes:
    """No more than one byte beyond ``size`` is made of it, whatever it is."""
    stream = zlib.decompressobj()
    found = stream.decompress(data, size + 1)
    if len(found) != size or not stream.eof:
        raise ProtocolError(f"ZLIB: {len(found)} bytes or more, where the entry says {size}")
    return found


def _snappy_size(data: memoryview) -> int:
    """What a block says itself at its begin: a varint of 32 bits (https://github.com/google/snappy/blob/main/format_description.txt)."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size
    raise ProtocolError("SNAPPY: a block without a size")


def _codec(number: int) -> Codec:
    if number not in _ready:
        from pyarrow import Codec

        _ready[number] = Codec(_CODECS[number])
    return _ready[number]
