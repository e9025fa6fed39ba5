"""The frames of the loopback protocol: the decoder returns what was encoded, and nothing else."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire import frames
from pytest_loadtest.wire.frames import HEAD, Decoder, Frame, FrameError, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = {
    Kind.SUBSCRIBE: ("topic", "subscription", "consumer", "place"),
    Kind.SUBSCRIBED: ("place",),
    Kind.PAUSE: ("place",),
    Kind.RESUME: ("place",),
    Kind.UNSUBSCRIBE: ("place",),
    Kind.PRODUCE: ("seq", "stream", "size"),
    Kind.PRODUCE_LATER: ("seq", "due", "stream", "size"),
    Kind.ACK: (),
    Kind.DELIVER: ("place", "size"),
    Kind.COUNT: (),
    Kind.COUNTS: ("held", "delivered"),
}
RANGES = {
    "seq": 2**63,
    "held": 2**63,
    "delivered": 2**63,
    "due": 2**63,
    "stream": 2**31,
    "place": 2**31,
}  # the others are unsigned, of 32 bits
U32 = st.integers(0, 2**32 - 1)


class Written(NamedTuple):
    """The content of a frame."""

    kind: Kind
    n: int
    head: dict[str, int]
    columns: dict[str, list[int]]
    payloads: Sequence[bytes] = ()

    def bytes(self) -> bytes:
        arrays = {name: np.array(column, np.int64) for name, column in self.columns.items()}
        return b"".join(
            frames.encode_frame(
                self.kind,
                arrays,
                n=self.n,
                **self.head,
                payloads=[memoryview(payload) for payload in self.payloads],
            )
        )


@st.composite
def contents(draw: st.DrawFn) -> Written:
    """A kind, the numbers of its head, columns as lists, and payloads if the kind has them."""
    kind = draw(st.sampled_from(Kind))
    n = draw(st.integers(1, 6))
    payloads = (
        draw(st.lists(st.binary(max_size=40), min_size=n, max_size=n))
        if "size" in COLUMNS[kind]
        else []
    )
    columns = {}
    for name in COLUMNS[kind]:
        numbers = st.lists(st.integers(0, RANGES.get(name, 2**32) - 1), min_size=n, max_size=n)
        columns[name] = list(map(len, payloads)) if name == "size" else draw(numbers)
    head = {"run": draw(U32), "topics": draw(st.integers(1, 2**32 - 1)), "topic": draw(U32)}
    return Written(kind, n, head, columns, payloads)


def fed(decoder: Decoder, data: bytes, cuts: Sequence[int] = ()) -> list[Frame]:
    """Give ``data`` to the decoder in pieces that end at ``cuts`` or at the end of its memory; return the frames."""
    came = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        piece = data[start:end]
        while piece:
            space = decoder.space()
            part, piece = piece[: len(space)], piece[len(space) :]
            space[: len(part)] = part
            came += decoder.filled(len(part))
    for frame in came:
        assert len(frame.columns) == len(COLUMNS[frame.kind])
    return came


@given(st.lists(contents(), max_size=6), st.data(), st.integers(0, 300))
def test_frames_do_not_depend_on_the_pieces_of_the_stream(plan, data, piece):
    """Nor on the memory; they do not change when more is read."""
    stream = b"".join(frame.bytes() for frame in plan)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    came = fed(Decoder(piece), stream, cuts)
    assert [(frame.kind, frame.n, frame.run, frame.topics, frame.topic) for frame in came] == [
        (frame.kind, frame.n, *frame.head.values()) for frame in plan
    ]
    for frame, planned in zip(came, plan, strict=True):
        assert {name: column.tolist() for name, column in frame.columns.items()} == planned.columns
        assert frame.payload.tobytes() == b"".join(planned.payloads)


@given(st.lists(contents(), min_size=1, max_size=12))
def test_joined_frames_have_all_rows_and_payloads_in_order(plan):
    same = [frame for frame in plan if frame.kind is plan[0].kind]
    joined = frames.join(fed(Decoder(), b"".join(frame.bytes() for frame in same)))
    columns = {
        name: [number for frame in same for number in frame.columns[name]]
        for name in COLUMNS[joined.kind]
    }
    assert joined.n == sum(frame.n for frame in same)
    assert {name: column.tolist() for name, column in joined.columns.items()} == columns
    assert joined.payload.tobytes() == b"".join(
        payload for frame in same for payload in frame.payloads
    )


@given(st.lists(contents(), min_size=1, max_size=6))
def test_columns_are_aligned(plan):
    """Whatever the lengths of the frames before."""
    for frame in fed(Decoder(), b"".join(frame.bytes() for frame in plan)):
        assert all(column.flags.aligned for column in frame.columns.values())


@given(st.binary(max_size=200), st.booleans())
def test_invalid_bytes_raise_a_frame_error_or_wait(noise, plausible):
    """Never any other error."""
    head = Written(Kind.ACK, 1, {}, {}).bytes()[:4] if plausible else b""
    try:
        came = fed(Decoder(), head + noise)
    except FrameError:
        return
    assert not came or plausible


FIRST_SIZE = HEAD + 2 * (8 + 4)
LENGTH = HEAD + 2 * 16 + 7


def damaged(position: int, layout: str, value: int) -> bytes:
    """A frame of two messages of 3 and 4 bytes with one number changed."""
    columns = {"seq": [5, 6], "stream": [0, 1], "size": [3, 4]}
    frame = bytearray(
        Written(Kind.PRODUCE, 2, {"run": 1, "topics": 2}, columns, [b"abc", b"defg"]).bytes()
    )
    assert len(frame) == LENGTH + 1  # a multiple of 8
    struct.pack_into(layout, frame, position, value)
    return bytes(frame)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(damaged(0, "<H", 0x1234), id="magic"),
        pytest.param(damaged(2, "<B", 0), id="kind 0"),
        pytest.param(damaged(2, "<B", 9), id="kind 9"),
        pytest.param(damaged(2, "<B", Kind.ACK), id="kind without payload"),
        pytest.param(damaged(2, "<B", Kind.SUBSCRIBE), id="kind of narrower columns"),
        pytest.param(damaged(3, "<B", frames.VERSION - 1), id="version"),
        pytest.param(damaged(4, "<I", 0), id="no length"),
        pytest.param(damaged(4, "<I", HEAD), id="too short for its columns"),
        pytest.param(damaged(4, "<I", frames.LARGEST + 1), id="too long"),
        pytest.param(damaged(4, "<I", LENGTH - 1), id="shorter than its payloads"),
        pytest.param(damaged(4, "<I", LENGTH + 1), id="longer than its payloads"),
        pytest.param(damaged(8, "<I", 0), id="no messages"),
        pytest.param(damaged(8, "<I", 1), id="fewer messages"),
        pytest.param(damaged(8, "<I", 2**32 - 1), id="more messages than bytes"),
        pytest.param(damaged(16, "<I", 0), id="no topics"),
        pytest.param(damaged(FIRST_SIZE, "<i", 2), id="sizes in sum too small"),
        pytest.param(damaged(FIRST_SIZE, "<i", 4), id="sizes in sum too large"),
        pytest.param(damaged(FIRST_SIZE, "<i", -1), id="negative size"),
    ],
)
def test_a_contradictory_frame_is_an_error(frame):
    with pytest.raises(FrameError):
        fed(Decoder(), frame)


def test_negative_sizes_are_an_error_even_if_their_sum_is_right():
    """8 and -1 add up to the 7 bytes of payload."""
    frame = bytearray(damaged(FIRST_SIZE, "<i", 8))
    struct.pack_into("<i", frame, FIRST_SIZE + 4, -1)
    with pytest.raises(FrameError, match="PRODUCE of 2 rows"):
        fed(Decoder(), bytes(frame))


@given(st.integers(0, 2**32 - 1) | st.integers(0, 2 * LENGTH))
def test_an_impossible_length_is_an_error_before_its_bytes_arrive(length):
    """No memory is allocated for it."""
    decoder = Decoder()
    impossible = not HEAD + 2 * 16 <= length <= frames.LARGEST
    try:
        came = fed(decoder, damaged(4, "<I", length)[:HEAD])
    except FrameError as error:
        assert impossible and "impossible frame" in str(error), length
    else:
        assert not came and not impossible


def test_frames_are_views_of_the_memory():
    """A whole frame in one read is not copied."""
    decoder = Decoder()
    memory = np.asarray(decoder.space())
    columns = {"seq": [5], "stream": [0], "size": [3]}
    (frame,) = fed(decoder, Written(Kind.PRODUCE, 1, {"topics": 1}, columns, [b"abc"]).bytes())
    assert all(
        np.shares_memory(column, memory) for column in (*frame.columns.values(), frame.payload)
    )


@given(st.lists(st.integers(0, 3 * frames.PORTION), max_size=12))
def test_portions_have_all_messages_in_bounded_frames(sizes):
    """Consecutive messages are together as long as they fit; a larger one is alone."""
    size = np.array(sizes, np.int32)
    pieces = frames.portions(size)
    assert np.concatenate([np.arange(len(size))[piece] for piece in pieces]).tolist() == list(
        range(len(size))
    )
    totals = [(len(size[piece]), int(size[piece].sum(dtype=np.int64))) for piece in pieces]
    assert all(total <= frames.PORTION or count == 1 for count, total in totals)
    assert all(
        total + sizes[piece.stop] > frames.PORTION
        for (_, total), piece in zip(totals[:-1], pieces, strict=False)
    )
