"""HdrHistogram's compressed V2 encoding, as the Java, C and Python libraries write and read it.

The Python library needs a C compiler on machines for which it has no wheel (aarch64), so it only
checks this module in the tests. The format: base64 of a header and zlib-compressed data, which are
a second header and the counts from bucket 0 on. A count is a ZigZag LEB128 number; a negative
number stands for that many empty buckets.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_loadtest.metrics.histogram import bucket_bounds
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_OUTER = struct.Struct(">II")  # cookie, length of the compressed data
# Cookie, length of the counts in bytes, offset of the first bucket, significant digits,
# lowest and highest trackable value, ratio of the unit.
_INNER = struct.Struct(">IIIIQQd")
_OUTER_COOKIE = 0x1C849314
_INNER_COOKIE = 0x1C849313

_LONGEST = 56
"""Bits before the last byte of the longest number; that byte has eight bits, the others seven."""
MAX_DIGITS = 5


@immutable
class HdrCounts:
    """The content of an encoded histogram.

    :param counts: values by bucket, ascending; none is 0.
    :param bits: significant bits of a bucket.
    :param unit_bits: binary logarithm of the width of the smallest bucket.
    """

    counts: Mapping[int, int]
    bits: int
    unit_bits: int

    def bounds(self, index: int) -> tuple[int, int]:
        """Return the lowest value and the width of a bucket."""
        low, width = bucket_bounds(index, self.bits)
        return low << self.unit_bits, width << self.unit_bits


def encode_hdr(counts: Mapping[int, int], digits: int, maximum: int) -> str:
    """Return a histogram whose smallest bucket has the width 1, in base64.

    :param counts: above 0, by bucket.
    :param digits: significant decimal digits.
    :param maximum: of the values.
    """
    numbers = bytearray()
    end = 0  # the bucket after the last one that was written
    for index in sorted(counts):
        if index > end:
            # The libraries write a single empty bucket as -1 too, not as 0.
            numbers += _number(end - index)
        numbers += _number(counts[index])
        end = index + 1
    highest = max(2 * maximum, 2)  # the least that readers accept is 2
    header = _INNER.pack(_INNER_COOKIE, len(numbers), 0, digits, 1, highest, 1.0)
    compressed = zlib.compress(header + numbers)
    outer = _OUTER.pack(_OUTER_COOKIE, len(compressed))
    return base64.b64encode(outer + compressed).decode("ascii")


def decode_hdr(text: str) -> HdrCounts:
    """Return the content of an encoded histogram.

    :raises ValueError: the text is not a histogram in this encoding.
    """
    try:
        data = base64.b64decode(text)
        cookie, _ = _OUTER.unpack_from(data)
        content = zlib.decompress(data[_OUTER.size :])
        inner, length, offset, digits, lowest, *_ = _INNER.unpack_from(content)
    except (struct.error, zlib.error) as error:
        raise ValueError(str(error)) from error
    if (cookie, inner, offset) != (_OUTER_COOKIE, _INNER_COOKIE, 0):
        raise ValueError(f"cookies {cookie:x} and {inner:x}, offset {offset}")
    if not lowest or not 1 <= digits <= MAX_DIGITS:
        raise ValueError(f"lowest value {lowest}, {digits} digits")
    bits = significant_bits(digits)
    numbers = content[_INNER.size : _INNER.size + length]
    return HdrCounts(dict(_counts(numbers)), bits, lowest.bit_length() - 1)


def significant_bits(digits: int) -> int:
    """Return the bits of a bucket's index within a power of two: 10 for three digits."""
    return math.ceil(math.log2(10**digits))


# A histogram has mostly small counts and short gaps, and a report has thousands of histograms.
@lru_cache(maxsize=4096)
def _number(value: int) -> bytes:
    """Return the bytes of a signed 64-bit integer; the sign is in its lowest bit."""
    word = (value << 1) ^ (value >> 63)
    encoded: list[int] = []
    while word >= 0x80 and 7 * len(encoded) < _LONGEST:
        encoded.append(word & 0x7F | 0x80)
        word >>= 7
    return bytes([*encoded, word])


def _counts(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the buckets that have values, and their counts."""
    index = 0
    word = 0
    shift = 0
    for byte in data:
        if byte & 0x80 and shift < _LONGEST:
            word |= (byte & 0x7F) << shift
            shift += 7
            continue
        word |= byte << shift
        number = (word >> 1) ^ -(word & 1)
        if number > 0:
            yield index, number
        # 0 is one empty bucket, -3 are three.
        index += 1 if number >= 0 else -number
        word = 0
        shift = 0
    if shift:
        raise ValueError("it ends within a number")
