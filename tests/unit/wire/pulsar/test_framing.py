"""Frames of Pulsar's protocol: what is framed comes out again, however it is cut, and nothing else does."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.pulsar import api_pb2 as api
from pytest_loadtest.wire.pulsar.framing import FrameDecoder, ProtocolError, encode_command, split_frame

FRAMES = st.lists(st.binary(min_size=4, max_size=60), max_size=8)


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(body)) + body for body in bodies)


def read(decoder: FrameDecoder, raw: bytes, sizes: list[int]) -> list[bytes]:
    """All of ``raw`` in pieces of these sizes, over and over."""
    found, start, turn = list[bytes](), 0, 0
    while start < len(raw):
        space = decoder.space()
        piece = raw[start : start + min(len(space), sizes[turn % len(sizes)])]
        space[: len(piece)] = piece
        found += map(bytes, decoder.filled(len(piece)))
        start, turn = start + len(piece), turn + 1
    return found


@given(FRAMES, st.lists(st.integers(1, 100), min_size=1, max_size=5), st.integers(1, 80))
def test_however_it_is_cut(bodies: list[bytes], sizes: list[int], piece: int) -> None:
    """The same frames come of the same bytes, in whichever pieces they are read, into however little memory."""
    assert read(FrameDecoder(piece), framed(bodies), sizes) == bodies


@given(FRAMES)
def test_frames_stay_as_they_were(bodies: list[bytes]) -> None:
    """A frame is a view of memory that nothing is read into again."""
    decoder, kept, raw = FrameDecoder(32), list[memoryview](), framed(bodies)
    while raw:
        space = decoder.space()
        count = min(len(space), len(raw))
        space[:count] = raw[:count]
        kept += decoder.filled(count)
        raw = raw[count:]
    assert [bytes(frame) for frame in kept] == bodies


@pytest.mark.parametrize("total", [0, 3, 101, 2**31, 2**32 - 1])
def test_impossible_lengths(total: int) -> None:
    """They are told by the first four bytes, before memory is taken for them, and whenever one reads on."""
    decoder = FrameDecoder(16, most=100)
    decoder.space()[:4] = struct.pack(">I", total)
    for count in (4, 0):
        with pytest.raises(ProtocolError, match=f"a frame of {total} bytes, where 4 to 100"):
            decoder.filled(count)
    assert len(decoder.space()) <= 16


@pytest.mark.parametrize("total", [4, 100])
def test_possible_lengths(total: int) -> None:
    """The least and the most."""
    assert [len(frame) for frame in read(FrameDecoder(16, most=100), framed([bytes(total)]), [1])] == [total]


@given(st.binary(max_size=200), st.lists(st.integers(1, 50), min_size=1, max_size=3))
def test_any_bytes(raw: bytes, sizes: list[int]) -> None:
    """Frames, a protocol error, or waiting for more: nothing else, and never more memory than for a frame."""
    decoder = FrameDecoder(16, most=64)
    try:
        found = read(decoder, raw, sizes)
    except ProtocolError:
        return
    assert framed(found) == raw[: len(framed(found))]
    assert len(decoder.space()) <= 68


@given(st.integers(0, 2**64 - 1), st.binary(max_size=30))
def test_a_command_and_what_follows_it(number: int, payload: bytes) -> None:
    """What is encoded is cut off again, and the rest is the rest."""
    told = encode_command(api.Command(type=api.Command.SUCCESS, success=api.Success(request_id=number)))
    assert struct.unpack_from(">II", told) == (len(told) - 4, len(told) - 8)
    command, rest = split_frame(memoryview(told[4:] + payload))
    assert api.Command.FromString(bytes(command)).success.request_id == number
    assert bytes(rest) == payload


@given(st.binary(min_size=4, max_size=20))
def test_cut_any_frame(frame: bytes) -> None:
    """The command lies within the frame, or it is a protocol error."""
    size = int.from_bytes(frame[:4], "big")
    if size > len(frame) - 4:
        with pytest.raises(ProtocolError, match=f"a command of {size} bytes in a frame of {len(frame)}"):
            split_frame(memoryview(frame))
    else:
        assert list(map(len, split_frame(memoryview(frame)))) == [size, len(frame) - 4 - size]
