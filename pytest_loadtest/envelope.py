"""The envelope at the head of every payload: written and read as columns, never one message at a time.

Full form, 32 bytes little-endian: magic u16, version u8, bucket u8, nonce u32, stream u32, check u32, sequence u64, intended i64.
Compact form, 16 bytes, for payloads of 16 to 31: magic u8, version u8, nonce u16 (the low half), stream u24, bucket u8, sequence
u32, check u32; it leaves out ``intended``, which the plan's arithmetic gives. Which of the two follows from the payload's size.

``check`` is a multilinear hash (strongly universal over random constants: Lemire and Kaser, "Strongly universal string hashing
is fast", 2014) over the other words, 64 bits at a time: each word, with its upper half folded into the lower one, times an odd
constant of its own; the check is the upper half of the sum. With these constants no damage of one byte or of two bits passes as
whole (a test goes through them all); any other damage passes once in 2**32.
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
_WORD: Final = np.dtype("<u8")
_ODD: Final = (0x9FB21C651E98DF25, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xE7037ED1A0B428DB)
_FACTORS: Final = np.array(_ODD, np.uint64).reshape(4, 1)
_24, _32, _56 = np.uint64(24), np.uint64(32), np.uint64(56)
_LOW: Final = np.uint64(0xFFFF_FFFF)
_HIGH: Final = np.uint64(0xFFFF_FFFF_0000_0000)
_ALL_BUT_BUCKET: Final = np.uint64(0xFFFF_FFFF_00FF_FFFF)


class Enveloped(Protocol):
    """What the envelope needs to know of a pool of payloads; one row per payload in each column."""

    @property
    def marks(self) -> NDArray[np.uint64]: ...
    @property
    def head_size(self) -> NDArray[np.uint8]: ...
    @property
    def compact(self) -> bool: ...


def marks(buckets: NDArray[np.int16]) -> Words:
    """The first four bytes of the full form for each bucket number, as one number."""
    words: Words = buckets.astype(np.uint64) << _24 | np.uint64(_MARK)
    return words


def encode_heads(
    pool: Enveloped, *, nonce: int, stream: int, seq: NDArray[np.int64], intended: NDArray[np.int64], payload: NDArray[np.uint16]
) -> NDArray[np.uint8]:
    """Envelopes of messages of one stream: ``(n, 32)`` uint8; compact ones take the first 16 bytes, the others are zero.

    :param nonce: 32 bits. :param stream: below 2**31, and below 2**24 where the pool has compact payloads.
    :raises OverflowError: the compact form cannot hold the stream or a sequence of 2**32 and more.
    """
    words = np.empty((4, len(payload)), np.uint64)
    words[0] = pool.marks.take(payload)
    words[0] |= np.uint64(nonce << 32)
    words[1], words[2], words[3] = stream, seq, intended
    words[1] |= _check(words) & _HIGH
    if pool.compact:
        rows = np.flatnonzero(pool.head_size[payload] == COMPACT_HEAD)
        words[:, rows] = _compact(words[:, rows], nonce, stream)
    return words.T.astype(_WORD, "C").view(np.uint8)


def _compact(words: Words, nonce: int, stream: int) -> Words:
    """The compact forms of messages whose full forms are given."""
    start, _, seq, _ = words
    if stream >> 24 or (len(seq) and int(seq.max()) >> 32):
        raise OverflowError(f"payloads below {HEAD} bytes carry streams below 2**24 and sequences below 2**32: stream {stream} goes beyond")
    compact = np.zeros_like(words)
    compact[0] = (start >> _24) << _56 | np.uint64(_COMPACT_MARK | (nonce & 0xFFFF) << 16 | stream << 32)
    compact[1] = seq
    compact[1] |= _check(compact[:2]) & _HIGH
    return compact


def _check(words: Words) -> Words:
    """The sum whose upper half is the check word, of the words of a form, ``(4, n)`` or ``(2, n)``, with 0 for the check in them.

    Folding matters: of the upper half of a word times a constant only the constant's lower half counts, and damage of the top bits of
    two words would cancel.
    """
    folded = words >> _32
    folded ^= words
    folded *= _FACTORS[: len(words)]
    total: Words = np.add.reduce(folded, axis=0)
    return total


def _fits(words: Words, check: Words) -> Mask:
    """Whether the check read (in the upper half of ``check``, the lower is 0) is the one computed."""
    total = _check(words)
    total ^= check
    fits: Mask = total <= _LOW
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
    """Read envelopes.

    :param heads: ``(n, 32)`` uint8, the first 32 bytes of each payload, zero padded. :param size: bytes of each whole payload.
    """
    words = np.ascontiguousarray(heads).view(_WORD).T.astype(np.uint64, "C")
    start, second, seq, intended = words
    check = second & _HIGH
    second &= _LOW
    good = _fits(words, check)
    good &= start & _ALL_BUT_BUCKET == np.uint64(_MARK | nonce << 32)
    good &= size >= HEAD
    found = Heads(
        stream=second.view(np.int64).astype(np.int32),
        seq=seq.view(np.int64),
        intended=intended.view(np.int64),
        bucket=(start.astype(np.uint32) >> np.uint32(24)).astype(np.int16),
        kind=np.zeros(len(size), np.uint8),
    )
    if np.count_nonzero(good) < len(size):
        full = size >= HEAD
        bad, small = np.flatnonzero(full & ~good), np.flatnonzero(~full)
        found.kind[bad] = _kinds(words[:, bad], check[bad], nonce)
        _read_compact(found, small, words[:2, small], check[small], size[small], nonce)
    return found


def _kinds(words: Words, check: Words, nonce: int) -> NDArray[np.uint8]:
    """The kinds of full forms."""
    start = words[0].copy()
    whole = _fits(words, check)
    words[0] = start & ~_ALL_BUT_BUCKET | np.uint64(_MARK | nonce << 32)
    return _kind(
        marked=start & np.uint64(0xFF_FFFF) == np.uint64(_MARK),
        own=start >> _32 == np.uint64(nonce),
        whole=whole,
        once=_fits(words, check),
    )


def _read_compact(found: Heads, rows: NDArray[np.intp], words: Words, check: Words, size: NDArray[np.int32], nonce: int) -> None:
    """Read the compact forms among what was found."""
    start, seq = words[0].copy(), words[1]
    whole = _fits(words, check)
    words[0] = start & _HIGH | np.uint64(_COMPACT_MARK | (nonce & 0xFFFF) << 16)
    truncated = start & _ALL_BUT_BUCKET == np.uint64(_MARK | nonce << 32)
    kind = _kind(
        marked=start & np.uint64(0xFFFF) == np.uint64(_COMPACT_MARK),
        own=start >> np.uint64(16) & np.uint64(0xFFFF) == np.uint64(nonce & 0xFFFF),
        whole=whole,
        once=_fits(words, check) | truncated,
    )
    kind[size < COMPACT_HEAD] = FOREIGN
    found.kind[rows], found.seq[rows], found.intended[rows] = kind, seq.view(np.int64), -1
    found.stream[rows] = (start >> _32 & np.uint64(0xFF_FFFF)).astype(np.int32)
    found.bucket[rows] = (start >> _56).astype(np.int16)


def _kind(*, marked: Mask, own: Mask, whole: Mask, once: Mask) -> NDArray[np.uint8]:
    """What magic, nonce and check say together.

    :param marked: magic and version are right. :param own: the nonce is this run's. :param whole: the check fits what stands there.
    :param once: the check fits this run's magic, version and nonce, whatever stands in their place now.
    """
    kind = np.where(own | once | (marked & ~whole), np.uint8(CORRUPT), np.uint8(FOREIGN))
    kind[marked & own & whole] = OURS
    return kind
