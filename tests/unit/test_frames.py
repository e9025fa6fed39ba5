"""The loopback protocol: what is framed comes out again, however it is cut, and nothing else does."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import HEAD, Address, Decoder, Frame, FrameError, Kind, Outbox

if TYPE_CHECKING:
    from collections.abc import Sequence

NUMBER = st.integers(0, 2**32 - 1)
ADDRESSES = st.builds(Address, run=NUMBER, topic=NUMBER, stream=NUMBER, subscription=NUMBER, consumer=NUMBER)
MESSAGES = st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=40)), min_size=1, max_size=6)
WRITERS = {Kind.PRODUCE: frames.produce, Kind.DELIVER: frames.deliver}


def written(kind: Kind, address: Address, messages: Sequence[tuple[int, bytes]]) -> bytes:
    """One frame as bytes."""
    seq = np.array([number for number, _ in messages], np.int64)
    size = np.array([len(payload) for _, payload in messages], np.int32)
    if kind in WRITERS:
        buffers = WRITERS[kind](address, seq, size, [memoryview(payload) for _, payload in messages])
    elif kind is Kind.ACK:
        buffers = frames.ack(address, seq)
    else:
        buffers = frames.wish(kind, address)
    return b"".join(buffers)


def fed(decoder: Decoder, data: bytes, cuts: Sequence[int] = ()) -> list[Frame]:
    """Give ``data`` to the decoder in pieces that end at ``cuts``, and in smaller ones where its space is smaller."""
    came = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        piece = data[start:end]
        while piece:
            space = decoder.space()
            part, piece = piece[: len(space)], piece[len(space) :]
            space[: len(part)] = part
            came += decoder.filled(len(part))
    return came


@given(st.lists(st.tuples(st.sampled_from(Kind), ADDRESSES, MESSAGES), max_size=6), st.data(), st.integers(0, 300))
def test_frames_survive_any_cutting(plan, data, piece):
    """Whatever the pieces of the stream and the memory, the same frames come out, and stay as they were when more is read."""
    stream = b"".join(written(*frame) for frame in plan)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    came = fed(Decoder(piece), stream, cuts)
    assert [(frame.kind, frame.address) for frame in came] == [(kind, address) for kind, address, _ in plan]
    for frame, (kind, _, messages) in zip(came, plan, strict=True):
        numbered = messages if kind in WRITERS or kind is Kind.ACK else []
        assert frame.seq.tolist() == [number for number, _ in numbered]
        carried = messages if kind in WRITERS else []
        assert frame.size.tolist() == [len(payload) for _, payload in carried]
        assert frame.payload.tobytes() == b"".join(payload for _, payload in carried)


@given(st.binary(max_size=200), st.booleans())
def test_noise_is_refused_or_waited_for(noise, plausible):
    """Bytes that are no frame raise FrameError at the latest, never anything else."""
    head = written(Kind.ACK, Address(run=1, topic=2), [(3, b"")])[:4] if plausible else b""
    try:
        came = fed(Decoder(), head + noise)
    except FrameError:
        return
    assert not came or plausible


def damaged(position: int, layout: str, value: int) -> bytes:
    """A frame of two messages of 3 and 4 bytes with one number changed."""
    frame = bytearray(written(Kind.PRODUCE, Address(run=1, topic=2), [(5, b"abc"), (6, b"defg")]))
    struct.pack_into(layout, frame, position, value)
    return bytes(frame)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(damaged(0, "<H", 0x1234), id="magic"),
        pytest.param(damaged(2, "<B", 0), id="kind 0"),
        pytest.param(damaged(2, "<B", 9), id="kind 9"),
        pytest.param(damaged(2, "<B", Kind.ACK), id="kind without payload"),
        pytest.param(damaged(2, "<B", Kind.SUBSCRIBE), id="kind without messages"),
        pytest.param(damaged(3, "<B", 2), id="version"),
        pytest.param(damaged(4, "<I", HEAD), id="too short for its columns"),
        pytest.param(damaged(4, "<I", frames.LARGEST + 1), id="too long"),
        pytest.param(damaged(4, "<I", HEAD + 24 + 6), id="shorter than its payloads"),
        pytest.param(damaged(28, "<I", 0), id="no messages"),
        pytest.param(damaged(28, "<I", 1), id="fewer messages"),
        pytest.param(damaged(28, "<I", 2**32 - 1), id="more messages than bytes"),
        pytest.param(damaged(HEAD + 16, "<i", 2), id="sizes in sum too small"),
        pytest.param(damaged(HEAD + 16, "<i", -1), id="negative size"),
    ],
)
def test_malformed_frames_are_refused(frame):
    """A frame that contradicts itself is an error, with nothing handed out."""
    with pytest.raises(FrameError):
        fed(Decoder(), frame)


def test_negative_sizes_that_add_up_are_refused():
    """Sizes of 8 and -1 add up to 7 payload bytes and are still no sizes."""
    frame = bytearray(damaged(HEAD + 16, "<i", 8))
    struct.pack_into("<i", frame, HEAD + 20, -1)
    with pytest.raises(FrameError, match="PRODUCE of 2 messages"):
        fed(Decoder(), bytes(frame))


def test_a_bad_length_is_refused_before_its_bytes_come():
    """The head alone tells that a frame is impossible: no memory is taken for it."""
    with pytest.raises(FrameError, match="impossible frame"):
        fed(Decoder(), damaged(4, "<I", 2**32 - 1)[:HEAD])


def test_frames_are_views_into_what_was_read():
    """A whole frame in one read is not copied."""
    decoder = Decoder()
    memory = np.asarray(decoder.space())
    (frame,) = fed(decoder, written(Kind.PRODUCE, Address(run=1, topic=2), [(5, b"abc")]))
    assert all(np.shares_memory(column, memory) for column in (frame.seq, frame.size, frame.payload))


@given(st.lists(st.binary(max_size=20), max_size=1200), st.data())
def test_outbox_gives_every_byte_once(buffers, data):
    """However much the socket takes at a time, everything leaves in order."""
    outbox = Outbox()
    outbox.add(map(memoryview, buffers))
    gone = b""
    while outbox:
        offered = b"".join(outbox.next())
        assert offered
        count = data.draw(st.integers(1, len(offered))) if len(gone) < 100 else len(offered)
        gone += offered[:count]
        outbox.sent(count)
    assert gone == b"".join(buffers)
