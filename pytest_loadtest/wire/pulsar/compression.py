"""The compressions of Pulsar's clients.

LZ4 and Snappy have their raw block formats, without a frame.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from pytest_loadtest.wire.pulsar.framing import ProtocolError

if TYPE_CHECKING:
    from pyarrow import Codec

# Most bytes of a decompressed entry; an entry that states a larger size is damaged.
LARGEST: Final = 1 << 30
# Names, in the order of the numbers in an entry's metadata.
NAMES: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
_ZLIB: Final = 2
_SNAPPY: Final = 4
_CODECS: Final = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
_ready: dict[int, Codec] = {}


def compress(number: int, data: bytes | memoryview) -> bytes:
    """Compress the payload of an entry. :param number: index in :data:`NAMES`, not 0."""
    if number == _ZLIB:
        return zlib.compress(data)
    return bytes(_codec(number).compress(data, asbytes=True))


def decompress(number: int, data: memoryview, size: int) -> memoryview:
    """Decompress the payload of an entry.

    :param size: bytes of the result, at most :data:`LARGEST`.

    A result of LZ4 that is too short is not detected, and its end is undefined: the format has no
    size, and pyarrow does not return how much it wrote. The CRC covers the size in the metadata, so
    this needs a producer that writes a wrong size.

    :raises ProtocolError: it cannot be decompressed, has another size, or the compression is
        unknown.
    """
    if not 0 < number < len(NAMES):
        raise ProtocolError(
            f"compression number {number} is unknown: {', '.join(NAMES)} are 0 to {len(NAMES) - 1}"
        )
    if size > LARGEST:
        raise ProtocolError(
            f"{NAMES[number]}: the entry says {size} bytes, where {LARGEST} are possible"
        )
    # A shorter block would leave the rest of pyarrow's output uninitialized.
    if number == _SNAPPY and (stated := _snappy_size(data)) != size:
        raise ProtocolError(f"SNAPPY: {stated} bytes, where the entry says {size}")
    try:
        result = (
            _inflate(data, size)
            if number == _ZLIB
            else bytes(_codec(number).decompress(data, size, asbytes=True))
        )
    except ProtocolError:
        raise
    except (OSError, ValueError, MemoryError, zlib.error) as error:
        # pyarrow raises OSError and ValueError, zlib its own error.
        raise ProtocolError(f"{NAMES[number]}: {error}") from error
    return memoryview(result)


def _inflate(data: memoryview, size: int) -> bytes:
    # At most one byte beyond ``size`` is decompressed, so that damaged data cannot fill the memory.
    stream = zlib.decompressobj()
    result = stream.decompress(data, size + 1)
    if len(result) != size or not stream.eof:
        raise ProtocolError(f"ZLIB: {len(result)} bytes or more, where the entry says {size}")
    return result


def _snappy_size(data: memoryview) -> int:
    """Return the size at the begin of a block, a varint of 32 bits.

    See https://github.com/google/snappy/blob/main/format_description.txt.
    """
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
