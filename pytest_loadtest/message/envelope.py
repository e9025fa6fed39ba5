"""The envelope at the head of every payload, written and read as columns.

Full form, 32 bytes little-endian: magic u16, version u8, bucket u8, nonce u32, stream u32, check
u32, sequence u64, intended i64. Compact form, 16 bytes, for payloads of 16 to 31: magic u8, version
u8, nonce u16 (the low half), stream u24, bucket u8, sequence u32, check u32; it leaves out
``intended``, which the plan's arithmetic gives. The form follows from the payload's size.

``check`` is a multilinear hash (strongly universal over random constants: Lemire and Kaser,
"Strongly universal string hashing is fast", 2014): every other 32-bit word times an odd 64-bit
constant of its own; the upper half of their sum is the check. With these constants no damage to one
byte or two bits passes as whole (a test tries all of it); other damage passes once in 2**32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from pytest_loadtest.values.records import immutable

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
BEGIN: Final = b"PL" + bytes([_VERSION])
"""The first bytes of the full form."""
_MARK: Final = int.from_bytes(BEGIN, "little")
_COMPACT_MARK: Final = 0x63 | _VERSION << 8  # "c", which begins no full form
_CHECK: Final = 3  # index of the check among the 32-bit words, in both forms
# The check's own factor is -(2**32), so that the upper half of the sum over all words is 0 if the
# check fits.
_FACTORS: Final = (
    0x9FB21C651E98DF25,
    0xC2B2AE3D27D4EB4F,
    0xD6E8FEB86659FD93,
    2**64 - 2**32,
    0xA0761D6478BD642F,
    0xE7037ED1A0B428DB,
    0x8EBC6AF09C88C6E3,
    0x589965CC75374CC3,
)
_SUM: Final = np.array(_FACTORS, np.uint64)
_LOW: Final = np.uint64(2**32 - 1)
_32: Final = np.uint64(32)
_U32: Final = np.dtype("<u4")
_U64: Final = np.dtype("<u8")
_I32: Final = np.dtype("<i4")
_I64: Final = np.dtype("<i8")
_ALL_BUT_BUCKET: Final = np.uint64(0xFFFF_FFFF_00FF_FFFF)


class Enveloped(Protocol):
    """The columns of a pool of payloads that envelopes are made from; one row per payload."""

    @property
    def marks(self) -> NDArray[np.uint32]: ...
    @property
    def head_size(self) -> NDArray[np.uint8]: ...
    @property
    def compact(self) -> bool: ...


def marks(buckets: NDArray[np.int16]) -> NDArray[np.uint32]:
    """Return the first word of the full form for each bucket number: magic, version, bucket."""
    return buckets.astype(np.uint32) << np.uint32(24) | np.uint32(_MARK)


def encode_heads(
    pool: Enveloped,
    *,
    nonce: int,
    stream: NDArray[np.int32],
    seq: NDArray[np.int64],
    intended: NDArray[np.int64],
    payload: NDArray[np.uint16],
) -> NDArray[np.uint8]:
    """Write the envelopes of messages: ``(n, 32)`` uint8; a compact one takes the first 16 bytes,
    and the others are zero.

    :param nonce: 32 bits.
    :raises OverflowError: the pool has compact payloads, and a stream is 2**24 or more or a
        sequence 2**32 or more.
    """
    # (n, 8) words of 32 bits, which are also (n, 4) of 64: seq is words 4 and 5, intended 6 and 7
    heads = np.empty((len(payload), 8), _U32)
    heads[:, 0] = pool.marks.take(payload)
    heads[:, 1] = nonce
    heads[:, 2] = stream
    heads[:, _CHECK] = 0
    wide = heads.view(_I64)
    wide[:, 2] = seq
    wide[:, 3] = intended
    if pool.compact:
        _shrink(heads, np.flatnonzero(pool.head_size.take(payload) == COMPACT_HEAD), nonce)
    heads[:, _CHECK] = _sum(heads.astype(np.uint64)) >> _32
    return heads.view(np.uint8)


def _shrink(heads: NDArray[np.uint32], rows: NDArray[np.intp], nonce: int) -> None:
    """Replace full forms by compact ones, still without check."""
    full = heads[rows]
    if (full[:, 2] >> np.uint32(24)).any() or full[:, 5].any():  # the upper half of the sequence
        raise OverflowError(
            f"payloads below {HEAD} bytes carry streams below 2**24 and sequences below 2**32:"
            f" stream {int(full[:, 2].max())} goes beyond"
        )
    small = np.zeros((len(rows), 8), _U32)
    small[:, 0] = _COMPACT_MARK | (nonce & 0xFFFF) << 16
    small[:, 1] = full[:, 0] & np.uint32(0xFF00_0000) | full[:, 2]
    small[:, 2] = full[:, 4]
    heads[rows] = small


def _sum(words: Words) -> Words:
    """Return the hash of each head, ``(n, 8)`` words.

    Its upper half is the check if the check word is still 0, and 0 if the check fits.
    """
    # for a few rows of integers ``dot`` takes a tenth of the time of ``@``
    total: Words = words.dot(_SUM)
    return total


def _fits(words: Words) -> Mask:
    return _sum(words) <= _LOW


@immutable
class Heads:
    """The columns of envelopes that were read; all but ``kind`` are valid only where it is OURS.

    :param stream: int32.
    :param seq: int64.
    :param intended: int64 ns, -1 in the compact form.
    :param bucket: int16.
    :param kind: uint8: OURS; FOREIGN, of another run or no envelope; CORRUPT, damaged, and of this
        run as far as can be seen.
    """

    stream: NDArray[np.int32]
    seq: NDArray[np.int64]
    intended: NDArray[np.int64]
    bucket: NDArray[np.int16]
    kind: NDArray[np.uint8]


def decode_heads(heads: NDArray[np.uint8], size: NDArray[np.int32] | None, nonce: int) -> Heads:
    """Read envelopes.

    The result shares no memory with ``heads``, because a driver may use its buffer again.

    :param heads: ``(n, 32)`` uint8, the first 32 bytes of each payload, zero padded.
    :param size: bytes of each whole payload; None: all envelopes have the full form, because they
        are not in the payload.
    """
    if size is None:
        size = np.full(len(heads), HEAD, np.int32)
    heads = np.ascontiguousarray(heads)
    wide = heads.view(_I64)
    words = heads.view(_U32).astype(np.uint64)
    # fast path: whole full forms of this run, of which everything is checked in three comparisons
    good = _fits(words)
    good &= (heads.view(_U64)[:, 0] & _ALL_BUT_BUCKET) == np.uint64(_MARK | nonce << 32)
    good &= size >= HEAD
    columns = Heads(
        stream=heads.view(_I32)[:, 2].astype(np.int32),
        seq=wide[:, 2].astype(np.int64),
        intended=wide[:, 3].astype(np.int64),
        bucket=heads[:, 3].astype(np.int16),
        kind=np.zeros(len(size), np.uint8),
    )
    if np.count_nonzero(good) < len(size):
        full = size >= HEAD
        bad = np.flatnonzero(full & ~good)
        if len(bad):
            columns.kind[bad] = _kinds(words[bad], nonce)
        small = np.flatnonzero(~full)
        if len(small):
            _read_compact(columns, small, words[small], size[small], nonce)
    return columns


def _kinds(words: Words, nonce: int) -> NDArray[np.uint8]:
    """Return the kinds of full forms; their marks and nonces are overwritten."""
    marked = words[:, 0] & 0xFF_FFFF == _MARK
    own = words[:, 1] == nonce
    whole = _fits(words)
    words[:, 0] &= 0xFF00_0000
    words[:, 0] |= _MARK
    words[:, 1] = nonce
    return _kind(marked, own, whole, _fits(words))


def _read_compact(
    heads: Heads, rows: NDArray[np.intp], words: Words, size: NDArray[np.int32], nonce: int
) -> None:
    """Read the compact forms of some rows into the columns."""
    words[:, 4:] = 0  # after a compact head comes the body
    second = words[:, 1]
    heads.stream[rows] = second & 0xFF_FFFF
    heads.bucket[rows] = second >> 24
    heads.seq[rows] = words[:, 2]
    heads.intended[rows] = -1

    good = _fits(words)
    good &= words[:, 0] == _COMPACT_MARK | (nonce & 0xFFFF) << 16
    good &= size >= COMPACT_HEAD
    if np.count_nonzero(good) < len(rows):
        kind = np.where(good, np.uint8(OURS), _compact_kinds(words, nonce))
        kind[size < COMPACT_HEAD] = FOREIGN
        heads.kind[rows] = kind


def _compact_kinds(words: Words, nonce: int) -> NDArray[np.uint8]:
    """Return the kinds of compact forms, and of full forms cut short."""
    low = nonce & 0xFFFF
    start = words[:, 0].copy()
    marked = start & 0xFFFF == _COMPACT_MARK
    own = start >> 16 == low
    whole = _fits(words)
    cut = (start & 0xFF_FFFF == _MARK) & (words[:, 1] == nonce)
    words[:, 0] = _COMPACT_MARK | low << 16
    return _kind(marked, own, whole, _fits(words) | cut)


def _kind(marked: Mask, own: Mask, whole: Mask, once: Mask) -> NDArray[np.uint8]:
    """Return the kinds that follow from magic, nonce and check.

    :param marked: magic and version are right.
    :param own: the nonce is this run's.
    :param whole: the check fits the words as they are.
    :param once: the check fits the words with this run's magic, version and nonce in place of
        theirs.
    """
    kind = np.where(own | once | (marked & ~whole), np.uint8(CORRUPT), np.uint8(FOREIGN))
    kind[marked & own & whole] = OURS
    return kind
