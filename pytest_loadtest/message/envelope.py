"""The envelope at the head of every payload: written and read as columns, never one message at a time.

Full form, 32 bytes little-endian: magic u16, version u8, bucket u8, nonce u32, stream u32, check u32, sequence u64, intended i64.
Compact form, 16 bytes, for payloads of 16 to 31: magic u8, version u8, nonce u16 (the low half), stream u24, bucket u8, sequence
u32, check u32; it leaves out ``intended``, which the plan's arithmetic gives. Which of the two follows from the payload's size.

``check`` is a multilinear hash (strongly universal over random constants: Lemire and Kaser, "Strongly universal string hashing
is fast", 2014): every other 32-bit word times an odd 64-bit constant of its own; the upper half of their sum is the check. With
these constants no damage of one byte or of two bits passes as whole (a test goes through them all); other damage passes once in 2**32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Mask = NDArray[np.bool_]

HEAD: Final = 32
COMPACT_HEAD: Final = 16
OURS: Final = 0
FOREIGN: Final = 1
CORRUPT: Final = 2

_VERSION: Final = 1
_MARK: Final = 0x4C50 | _VERSION << 16  # "PL" and the version: the first three bytes
_COMPACT_MARK: Final = 0x63 | _VERSION << 8  # "c", which begins no full form
_CHECK: Final = 3  # the check's place among the 32-bit words, in both forms
# The check's own factor is -(2**32), so that the upper half of the sum over all words is 0 where the check fits.
_FACTORS: Final = (
    0x9FB21C651E98DF25, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 2**64 - 2**32,
    0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3,
)  # fmt: skip
_SUM: Final = np.array(_FACTORS, np.uint64)
_LOW: Final = np.uint64(2**32 - 1)
_32: Final = np.uint64(32)
_U32, _U64, _I32, _I64 = np.dtype("<u4"), np.dtype("<u8"), np.dtype("<i4"), np.dtype("<i8")
_ALL_BUT_BUCKET: Final = np.uint64(0xFFFF_FFFF_00FF_FFFF)


class Enveloped(Protocol):
    """What the envelope needs to know of a pool of payloads; one row per payload in each column."""

    @property
    def marks(self) -> NDArray[np.uint32]: ...
    @property
    def head_size(self) -> NDArray[np.uint8]: ...
    @property
    def compact(self) -> bool: ...


def marks(buckets: NDArray[np.int16]) -> NDArray[np.uint32]:
    """The first word of the full form for each bucket number: magic, version, bucket."""
    words: NDArray[np.uint32] = buckets.astype(np.uint32) << np.uint32(24) | np.uint32(_MARK)
    return words


def encode_heads(
    pool: Enveloped, *, nonce: int, stream: NDArray[np.int32], seq: NDArray[np.int64], intended: NDArray[np.int64],
    payload: NDArray[np.uint16],
) -> NDArray[np.uint8]:  # fmt: skip
    """Envelopes of messages: ``(n, 32)`` uint8; compact ones take the first 16 bytes, the others are zero.

    :param nonce: 32 bits.
    :raises OverflowError: the pool has compact payloads, and a stream is 2**24 or more or a sequence 2**32 or more.
    """
    heads = np.empty((len(payload), 8), _U32)
    wide = heads.view(_I64)
    heads[:, 0] = pool.marks.take(payload)
    heads[:, 1], heads[:, 2], heads[:, _CHECK] = nonce, stream, 0
    wide[:, 2], wide[:, 3] = seq, intended
    if pool.compact:
        _shrink(heads, np.flatnonzero(pool.head_size.take(payload) == COMPACT_HEAD), nonce)
    heads[:, _CHECK] = _sum(heads.astype(np.uint64)) >> _32
    return heads.view(np.uint8)


def _shrink(heads: NDArray[np.uint32], rows: NDArray[np.intp], nonce: int) -> None:
    """Full forms to compact ones, still without check."""
    full = heads[rows]
    if (full[:, 2] >> np.uint32(24)).any() or full[:, 5].any():  # the upper half of the sequence
        raise OverflowError(
            f"payloads below {HEAD} bytes carry streams below 2**24 and sequences below 2**32: stream {int(full[:, 2].max())} goes beyond"
        )
    small = np.zeros((len(rows), 8), _U32)
    small[:, 0] = _COMPACT_MARK | (nonce & 0xFFFF) << 16
    small[:, 1] = full[:, 0] & np.uint32(0xFF00_0000) | full[:, 2]
    small[:, 2] = full[:, 4]
    heads[rows] = small


def _sum(words: Words) -> Words:
    """Of the words of each head, ``(n, 8)``: its upper half is the check where the check is still 0, and 0 where it fits."""
    total: Words = words.dot(_SUM)  # of a few rows a tenth of what ``@`` costs for integers
    return total


def _fits(words: Words) -> Mask:
    fits: Mask = _sum(words) <= _LOW
    return fits


@dataclass(frozen=True, slots=True)
class Heads:
    """Envelopes read back, as columns; all but ``kind`` mean something only where it is OURS.

    :param stream: int32. :param seq: int64. :param intended: int64 ns, -1 where the compact form leaves it out. :param bucket: int16.
    :param kind: uint8: OURS; FOREIGN, another run's or no envelope at all; CORRUPT, this run's once and damaged since.
    """

    stream: NDArray[np.int32]
    seq: NDArray[np.int64]
    intended: NDArray[np.int64]
    bucket: NDArray[np.int16]
    kind: NDArray[np.uint8]


def decode_heads(heads: NDArray[np.uint8], size: NDArray[np.int32], nonce: int) -> Heads:
    """Read envelopes. The answer shares no memory with ``heads``.

    :param heads: ``(n, 32)`` uint8, the first 32 bytes of each payload, zero padded. :param size: bytes of each whole payload.
    """
    heads = np.ascontiguousarray(heads)
    wide = heads.view(_I64)
    words = heads.view(_U32).astype(np.uint64)
    good = _fits(words)
    good &= (heads.view(_U64)[:, 0] & _ALL_BUT_BUCKET) == np.uint64(_MARK | nonce << 32)
    good &= size >= HEAD
    found = Heads(
        stream=heads.view(_I32)[:, 2].astype(np.int32),
        seq=wide[:, 2].astype(np.int64),
        intended=wide[:, 3].astype(np.int64),
        bucket=heads[:, 3].astype(np.int16),
        kind=np.zeros(len(size), np.uint8),
    )
    if np.count_nonzero(good) < len(size):
        full = size >= HEAD
        bad, small = np.flatnonzero(full & ~good), np.flatnonzero(~full)
        if len(bad):
            found.kind[bad] = _kinds(words[bad], nonce)
        if len(small):
            _read_compact(found, small, words[small], size[small], nonce)
    return found


def _kinds(words: Words, nonce: int) -> NDArray[np.uint8]:
    """The kinds of full forms."""
    start = words[:, 0].copy()
    marked, own, whole = start & 0xFF_FFFF == _MARK, words[:, 1] == nonce, _fits(words)
    words[:, 0], words[:, 1] = start & 0xFF00_0000 | _MARK, nonce
    return _kind(marked, own, whole, _fits(words))


def _read_compact(found: Heads, rows: NDArray[np.intp], words: Words, size: NDArray[np.int32], nonce: int) -> None:
    """Read the compact forms among what was found."""
    words[:, 4:] = 0  # what follows a compact head is body
    second, seq = words[:, 1], words[:, 2]
    found.seq[rows], found.intended[rows] = seq, -1
    found.stream[rows], found.bucket[rows] = second & 0xFF_FFFF, second >> 24
    good = _fits(words)
    good &= words[:, 0] == _COMPACT_MARK | (nonce & 0xFFFF) << 16
    good &= size >= COMPACT_HEAD
    if np.count_nonzero(good) < len(rows):
        kind = np.where(good, np.uint8(OURS), _compact_kinds(words, nonce))
        kind[size < COMPACT_HEAD] = FOREIGN
        found.kind[rows] = kind


def _compact_kinds(words: Words, nonce: int) -> NDArray[np.uint8]:
    """The kinds of compact forms, and of full ones cut short."""
    start, low = words[:, 0].copy(), nonce & 0xFFFF
    marked, own, whole = start & 0xFFFF == _COMPACT_MARK, start >> 16 == low, _fits(words)
    cut = (start & 0xFF_FFFF == _MARK) & (words[:, 1] == nonce)
    words[:, 0] = _COMPACT_MARK | low << 16
    return _kind(marked, own, whole, _fits(words) | cut)


def _kind(marked: Mask, own: Mask, whole: Mask, once: Mask) -> NDArray[np.uint8]:
    """What magic, nonce and check say together.

    :param marked: magic and version are right. :param own: the nonce is this run's. :param whole: the check fits what stands there.
    :param once: the check fits this run's magic, version and nonce, whatever stands in their place now.
    """
    kind = np.where(own | once | (marked & ~whole), np.uint8(CORRUPT), np.uint8(FOREIGN))
    kind[marked & own & whole] = OURS
    return kind
