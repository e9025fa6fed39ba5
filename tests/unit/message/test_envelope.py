"""The envelope: it is read as it was written, and damage never passes as whole."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_loadtest.message import envelope
from pytest_loadtest.message.envelope import (
    COMPACT_HEAD,
    CORRUPT,
    FOREIGN,
    HEAD,
    OURS,
    Heads,
    decode_heads,
    encode_heads,
)
from pytest_loadtest.message.payloads import Bucket, PayloadPool, build_pool

NONCE = 0xDEADBEEF
U32 = st.integers(0, 2**32 - 1)


def made_pool(*sizes: int) -> PayloadPool:
    """Return a pool of these payload sizes, with a bucket for each."""
    buckets = [Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in sizes]
    return build_pool(
        buckets=buckets,
        message_size=None,
        randomized=False,
        random_ratio=0.0,
        file_content=None,
        seed=0,
        checksum=False,
        max_size=None,
    )


POOL = made_pool(*range(16, 48))
FULL, COMPACT = 31, 5
"""Payloads of 47 and of 21 bytes."""


def encoded(
    payload: int, *, nonce: int = NONCE, stream: int = 3, seq: int = 5, intended: int = 7
) -> np.ndarray:
    """Return one head, ``(1, 32)``."""
    return encode_heads(
        POOL, nonce=nonce, stream=np.array([stream], np.int32), seq=np.array([seq], np.int64), intended=np.array([intended]),
        payload=np.array([payload], np.uint16),
    )  # fmt: skip


def decoded(heads: np.ndarray, size: int, nonce: int = NONCE) -> Heads:
    """Read the heads of payloads of one size."""
    return decode_heads(heads, np.full(len(heads), size, np.int32), nonce)


def test_the_full_form_has_the_documented_layout() -> None:
    fields = struct.unpack("<HBBIIIQq", encoded(FULL, seq=2**32 - 1, intended=-9).tobytes())
    assert (*fields[:5], *fields[6:]) == (0x4C50, 1, FULL, NONCE, 3, 2**32 - 1, -9)


def test_the_compact_form_has_the_documented_layout() -> None:
    """After its 16 bytes come zeros."""
    fields = struct.unpack("<BBHIII16s", encoded(COMPACT, seq=2**32 - 1).tobytes())
    assert (*fields[:5], fields[6]) == (
        0x63,
        1,
        NONCE & 0xFFFF,
        COMPACT << 24 | 3,
        2**32 - 1,
        bytes(16),
    )


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 31),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**24 - 1),
        ),
        max_size=40,
    ),
    nonce=U32,
)
def test_every_column_is_read_as_it_was_written(
    rows: list[tuple[int, int, int, int]], nonce: int
) -> None:
    """With streams, full and compact forms mixed in one burst."""
    payload = np.array([row[0] for row in rows], np.uint16)
    seq, intended = (
        np.array([row[1] for row in rows], np.int64),
        np.array([row[2] for row in rows], np.int64),
    )
    stream = np.array([row[3] for row in rows], np.int32)
    heads = encode_heads(
        POOL, nonce=nonce, stream=stream, seq=seq, intended=intended, payload=payload
    )
    found = decode_heads(heads, POOL.sizes[payload], nonce)
    assert heads.shape == (len(rows), HEAD)
    assert found.kind.tolist() == [OURS] * len(rows)
    assert found.stream.tolist() == stream.tolist()
    assert found.seq.tolist() == seq.tolist()
    assert found.bucket.tolist() == POOL.buckets[payload].tolist()
    assert found.intended.tolist() == np.where(POOL.sizes[payload] < HEAD, -1, intended).tolist()


@given(seq=st.integers(2**32, 2**62), stream=st.integers(2**24, 2**31 - 1))
def test_the_full_form_has_streams_and_sequences_beyond_the_compact_one(
    seq: int, stream: int
) -> None:
    pool = made_pool(32)
    column = np.array([seq], np.int64)
    heads = encode_heads(
        pool,
        nonce=NONCE,
        stream=np.array([stream], np.int32),
        seq=column,
        intended=column,
        payload=np.zeros(1, np.uint16),
    )
    found = decoded(heads, 32)
    assert (found.kind[0], found.seq[0], found.stream[0]) == (OURS, seq, stream)


@pytest.mark.parametrize(("stream", "seq"), [(2**24, 0), (0, 2**32)])
def test_a_number_too_large_for_the_compact_form_is_an_error(stream: int, seq: int) -> None:
    """It is never cut."""
    with pytest.raises(OverflowError, match="carry"):
        encoded(COMPACT, stream=stream, seq=seq)


@given(
    word=st.integers(0, 7),
    flips=st.integers(1, 2**32 - 1),
    stream=st.integers(0, 2**24 - 1),
    seq=U32,
    intended=st.integers(0, 2**62),
)
def test_a_full_form_with_any_damaged_word_is_corrupt(
    word: int, flips: int, stream: int, seq: int, intended: int
) -> None:
    heads = encoded(FULL, stream=stream, seq=seq, intended=intended)
    heads.view("<u4")[0, word] ^= flips
    assert decoded(heads, 47).kind[0] == CORRUPT


@given(
    word=st.integers(0, 3),
    flips=st.integers(1, 2**32 - 1),
    stream=st.integers(0, 2**24 - 1),
    seq=U32,
    size=st.integers(16, 31),
)
def test_a_compact_form_with_any_damaged_word_is_corrupt(
    word: int, flips: int, stream: int, seq: int, size: int
) -> None:
    """Also the word with magic and half the nonce."""
    heads = encoded(size - 16, stream=stream, seq=seq)
    heads.view("<u4")[0, word] ^= flips
    assert decoded(heads, size).kind[0] == CORRUPT


@pytest.mark.parametrize(("payload", "head"), [(FULL, HEAD), (COMPACT, COMPACT_HEAD)])
def test_a_head_with_any_other_value_of_a_byte_is_corrupt(payload: int, head: int) -> None:
    heads = np.repeat(encoded(payload), head * 255, axis=0)
    row = np.arange(head * 255)
    heads[row, row // 255] ^= (row % 255 + 1).astype(np.uint8)
    assert set(decoded(heads, int(POOL.sizes[payload])).kind.tolist()) == {CORRUPT}


def test_no_byte_and_no_two_bits_are_invisible_to_the_check() -> None:
    """For any content: each difference of one byte or two bits changes the sum by 2**32 or more,
    and so its upper half.
    """
    factors = np.array(envelope._FACTORS, np.uint64)
    shifts = np.arange(32, dtype=np.uint64)
    one_byte = np.arange(1, 256, dtype=np.uint64)[:, None, None] * (factors[:, None] << shifts[::8])
    bits = (factors[:, None] << shifts).ravel()
    signed = np.concatenate([bits, np.negative(bits)])
    first, second = np.triu_indices(len(signed), 1)
    different = first % len(bits) != second % len(bits)
    two_bits = signed[first[different]] + signed[second[different]]
    for moved in (one_byte.ravel(), two_bits):
        assert min(int(moved.min()), int(np.negative(moved).min())) >= 2**32


@given(payload=st.integers(0, 31), nonce=U32, seq=U32)
def test_a_whole_message_of_another_run_is_foreign(payload: int, nonce: int, seq: int) -> None:
    assume(nonce & 0xFFFF != NONCE & 0xFFFF)
    assert (
        decoded(encoded(payload, nonce=nonce, seq=seq), int(POOL.sizes[payload])).kind[0] == FOREIGN
    )


@pytest.mark.parametrize("payload", [FULL, COMPACT])
def test_a_damaged_head_of_another_run_is_corrupt(payload: int) -> None:
    """It may have been of this run. With another version it is foreign."""
    heads = encoded(payload, nonce=1)
    heads[0, 9] ^= 1
    assert decoded(heads, int(POOL.sizes[payload])).kind[0] == CORRUPT
    heads[0, 1 if payload == COMPACT else 2] ^= 1
    assert decoded(heads, int(POOL.sizes[payload])).kind[0] == FOREIGN


@given(content=st.binary(max_size=64))
def test_payloads_of_other_senders_are_foreign(content: bytes) -> None:
    assume(
        content[:3] != b"PL\x01"
        and content[:2] != b"c\x01"
        and content[4:8] != struct.pack("<I", NONCE)
    )
    assume(content[2:4] != struct.pack("<H", NONCE & 0xFFFF))
    head = np.frombuffer(content[:HEAD].ljust(HEAD, b"\0"), np.uint8).reshape(1, HEAD)
    assert decoded(head, len(content)).kind[0] == FOREIGN


@given(size=st.integers(0, 15), payload=st.integers(0, 31))
def test_a_payload_below_16_bytes_is_foreign(size: int, payload: int) -> None:
    heads = encoded(payload)
    assert decoded(heads, size).kind[0] == FOREIGN
    heads[0, size:] = 0
    assert decoded(heads, size).kind[0] == FOREIGN


@given(size=st.integers(16, 31))
def test_a_full_form_cut_short_is_corrupt(size: int) -> None:
    heads = encoded(FULL)
    heads[0, size:] = 0
    assert decoded(heads, size).kind[0] == CORRUPT


def test_each_row_of_a_burst_has_its_own_kind() -> None:
    """Whole rows next to damaged ones keep their columns."""
    heads = np.concatenate(
        [
            encoded(FULL, seq=1),
            encoded(COMPACT, seq=2),
            encoded(FULL, nonce=1),
            encoded(COMPACT),
            np.zeros((1, 32), np.uint8),
        ]
    )
    heads[3, 9] ^= 1
    heads[1, COMPACT_HEAD:21] = 255  # the body of a compact payload
    found = decode_heads(heads, np.array([47, 21, 47, 21, 99], np.int32), NONCE)
    assert found.kind.tolist() == [OURS, OURS, FOREIGN, CORRUPT, FOREIGN]
    assert found.seq[:2].tolist() == [1, 2]


def test_columns_share_no_memory_with_the_heads() -> None:
    """A driver may use its buffer again, also a slice of a larger one."""
    buffer = np.zeros((4, 64), np.uint8)
    buffer[:, 8:40] = encoded(FULL, seq=11)
    found = decoded(buffer[::2, 8:40], 47)
    buffer[:] = 0
    assert (found.kind.tolist(), found.seq.tolist(), found.stream.tolist()) == (
        [OURS] * 2,
        [11] * 2,
        [3] * 2,
    )
