"""The frames of Pulsar's protocol: the decoder returns what was encoded, and nothing else."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.framing import (
    FrameDecoder,
    ProtocolError,
    encode_command,
    split_frame,
)

FRAMES = st.lists(st.binary(min_size=4, max_size=60), max_size=8)


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def read(decoder: FrameDecoder, raw: bytes, sizes: list[int]) -> list[bytes]:
    """Read all of ``raw`` in pieces of these sizes, repeatedly."""
    found, start, turn = list[bytes](), 0, 0
    while start < len(raw):
        space = decoder.space()
        piece = raw[start : start + min(len(space), sizes[turn % len(sizes)])]
        space[: len(piece)] = piece
        found += map(bytes, decoder.filled(len(piece)))
        start, turn = start + len(piece), turn + 1
    return found


@given(FRAMES, st.lists(st.integers(1, 100), min_size=1, max_size=5), st.integers(1, 80))
def test_frames_do_not_depend_on_the_pieces_of_the_stream(
    bodies: list[bytes], sizes: list[int], piece: int
) -> None:
    """Nor on the memory."""
    assert read(FrameDecoder(piece), framed(bodies), sizes) == bodies


@given(FRAMES)
def test_the_memory_of_a_frame_is_not_read_into_again(bodies: list[bytes]) -> None:
    decoder, kept, raw = FrameDecoder(32), list[memoryview](), framed(bodies)
    while raw:
        space = decoder.space()
        count = min(len(space), len(raw))
        space[:count] = raw[:count]
        kept += decoder.filled(count)
        raw = raw[count:]
    assert [bytes(frame) for frame in kept] == bodies


@pytest.mark.parametrize("total", [0, 3, 101, 2**31, 2**32 - 1])
def test_an_impossible_length_is_an_error_at_its_first_four_bytes(total: int) -> None:
    """No memory is allocated for it, and the error is repeated."""
    decoder = FrameDecoder(16, most=100)
    decoder.space()[:4] = struct.pack(">I", total)
    for count in (4, 0):
        with pytest.raises(ProtocolError, match=f"a frame of {total} bytes, where 4 to 100"):
            decoder.filled(count)
    assert len(decoder.space()) <= 16


@pytest.mark.parametrize("total", [4, 100])
def test_the_least_and_the_largest_length_are_accepted(total: int) -> None:
    assert [
        len(frame) for frame in read(FrameDecoder(16, most=100), framed([bytes(total)]), [1])
    ] == [total]


@given(st.binary(max_size=200), st.lists(st.integers(1, 50), min_size=1, max_size=3))
def test_any_bytes_are_frames_or_a_protocol_error_or_wait(raw: bytes, sizes: list[int]) -> None:
    """With no more memory than for a frame."""
    decoder = FrameDecoder(16, most=64)
    try:
        found = read(decoder, raw, sizes)
    except ProtocolError:
        return
    assert framed(found) == raw[: len(framed(found))]
    assert len(decoder.space()) <= 68


@given(st.integers(0, 2**64 - 1), st.binary(max_size=30))
def test_a_frame_is_split_into_the_command_and_the_rest(number: int, payload: bytes) -> None:
    told = encode_command(
        api.Command(type=api.Command.SUCCESS, success=api.Success(request_id=number))
    )
    assert struct.unpack_from(">II", told) == (len(told) - 4, len(told) - 8)
    command, rest = split_frame(memoryview(told[4:] + payload))
    assert api.Command.FromString(bytes(command)).success.request_id == number
    assert bytes(rest) == payload


@given(st.binary(min_size=4, max_size=20))
def test_a_command_longer_than_its_frame_is_a_protocol_error(frame: bytes) -> None:
    size = int.from_bytes(frame[:4], "big")
    if size > len(frame) - 4:
        with pytest.raises(
            ProtocolError, match=f"a command of {size} bytes in a frame of {len(frame)}"
        ):
            split_frame(memoryview(frame))
    else:
        assert list(map(len, split_frame(memoryview(frame)))) == [size, len(frame) - 4 - size]
