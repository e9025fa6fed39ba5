"""Bytes to and from a socket: every byte once, in order."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.wire.buffers import Outbox, ReceiveBuffer


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


@given(parts=st.lists(st.binary(min_size=1, max_size=40), max_size=20), piece=st.integers(1, 60))
def test_bytes_of_an_incomplete_frame_survive_a_new_piece_of_memory(parts, piece):
    """The memory has always room for more bytes, and earlier views keep theirs."""
    inbox, whole, views = ReceiveBuffer(piece), b"", []
    for part in parts:
        left = part
        while left:
            space = inbox.space()
            taken = left[: len(space)]
            assert len(taken) > 0
            space[: len(taken)] = taken
            inbox._end += len(taken)
            whole, left = whole + taken, left[len(taken) :]
            views.append((inbox._memory[inbox._start : inbox._end], whole))
            inbox._make_room(len(whole) + 1)
    assert bytes(inbox._memory[inbox._start : inbox._end]) == whole
    assert all(bytes(view) == expected for view, expected in views)


def test_a_frame_gets_no_more_memory_than_twice_its_arrived_bytes_and_16_mib():
    """A length of 2 GiB alone takes 16 MiB, and a frame of 40 MiB arrives completely."""
    most, whole = 1 << 24, np.arange(10 << 20, dtype=np.uint32).view(np.uint8)
    tracemalloc.start()
    try:
        for needed in (1 << 31, len(whole)):
            inbox, taken = ReceiveBuffer(1 << 18), 0
            while taken < len(whole):
                space = inbox.space()
                count = min(len(space), len(whole) - taken, 3 << 20)
                space[:count] = whole[taken : taken + count].data
                del space
                inbox._end, taken = inbox._end + count, taken + count
                inbox._make_room(needed)
                assert tracemalloc.get_traced_memory()[0] < most + 2 * taken + (1 << 20)
            assert bytes(inbox._memory[inbox._start : inbox._end]) == whole.tobytes()
    finally:
        tracemalloc.stop()
