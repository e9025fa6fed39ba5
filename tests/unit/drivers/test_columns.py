"""Messages that find no room in their stream's window, compared with counting them one by one; and the columns of single messages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.columns import (
    AnswerColumns,
    ArrivedMessages,
    choose_received,
    join_received,
    positions_without_room,
)
from pytest_loadtest.message.samples import Status

STREAMS = 6
BURSTS = st.lists(st.integers(0, STREAMS - 1), max_size=60)
ROOMS = st.lists(st.integers(0, 12), min_size=STREAMS, max_size=STREAMS)


def rejected(streams: list[int], room: list[int]) -> list[int]:
    """Count the messages one at a time."""
    left, positions = list(room), []
    for position, stream in enumerate(streams):
        if left[stream] > 0:
            left[stream] -= 1
        else:
            positions.append(position)
    return positions


@given(streams=BURSTS, room=ROOMS)
def test_the_first_messages_of_each_stream_find_room(streams: list[int], room: list[int]) -> None:
    """Exactly as many as the stream has room for; the positions of the others are ascending int64."""
    found = positions_without_room(np.array(streams, np.int32), np.array(room))
    assert found.dtype == np.int64
    assert found.tolist() == rejected(streams, room)


@given(streams=BURSTS, room=ROOMS)
def test_rejected_messages_are_the_last_of_their_stream(
    streams: list[int], room: list[int]
) -> None:
    """No message overtakes one of its own stream, and none waits for another stream's window."""
    out = set(positions_without_room(np.array(streams, np.int32), np.array(room)).tolist())
    for stream in range(STREAMS):
        mine = [position in out for position, other in enumerate(streams) if other == stream]
        assert mine == sorted(mine)
        assert mine.count(False) == min(room[stream], len(mine))


@given(streams=BURSTS, room=ROOMS, more=ROOMS)
def test_messages_offered_again_use_the_new_room(
    streams: list[int], room: list[int], more: list[int]
) -> None:
    """Windows that open in two steps let the same messages through as windows that open at once."""
    column, first, second = np.array(streams, np.int32), np.array(room), np.array(more)
    left = positions_without_room(column, first)
    taken = np.bincount(np.delete(column, left), minlength=STREAMS)
    at_last = left[positions_without_room(column[left], first - taken + second)]
    assert at_last.tolist() == positions_without_room(column, first + second).tolist()


@given(streams=BURSTS, room=ROOMS)
def test_burst_and_room_are_not_changed(streams: list[int], room: list[int]) -> None:
    column, left = np.array(streams, np.int32), np.array(room)
    positions_without_room(column, left)
    assert (column.tolist(), left.tolist()) == (streams, room)


@pytest.mark.parametrize(("room", "found"), [(0, [0, 1, 2]), (2, [2]), (3, []), (-1, [0, 1, 2])])
def test_a_window_without_room_takes_nothing(room: int, found: list[int]) -> None:
    """The room is negative if the window became smaller than the number of messages in flight."""
    assert positions_without_room(np.zeros(3, np.int32), np.array([room])).tolist() == found


def test_an_empty_burst_has_no_message_without_room() -> None:
    found = positions_without_room(np.empty(0, np.int32), np.empty(0, np.int64))
    assert (found.dtype, found.tolist()) == (np.int64, [])


def test_resends_belong_to_their_answer() -> None:
    """Answers without a resend have no column of resends; otherwise every answer has its own number."""
    answers = AnswerColumns()
    answers.add([4, 5], 10, Status.ACKED)
    first = answers.take()
    assert first is not None and first.resends is None
    answers.add([6], 20, Status.FAILED, resends=2)
    answers.add_one(7, 30, Status.ACKED)
    answers.add_one(8, 30, Status.ACKED, resends=1)
    second = answers.take()
    assert second is not None and second.resends is not None
    assert (second.row.tolist(), second.time.tolist(), second.resends.tolist()) == (
        [6, 7, 8],
        [20, 30, 30],
        [2, 0, 1],
    )
    assert answers.take() is None


def test_short_messages_have_padded_heads() -> None:
    arrived = ArrivedMessages()
    arrived.add(3, 10, [b"short", b"x" * 40])
    received = arrived.take()
    assert received is not None
    assert [bytes(head) for head in received.heads] == [b"short".ljust(32, b"\0"), b"x" * 32]
    assert (received.consumer.tolist(), received.size.tolist(), received.time.tolist()) == (
        [3, 3],
        [5, 40],
        [10, 10],
    )
    assert arrived.take() is None


def test_bodies_of_received_messages_are_known() -> None:
    """Also of those that are chosen; of joined parts none is."""
    arrived = ArrivedMessages()
    arrived.add(3, 7, [b"a", b"b" * 100, b"c"])
    received = arrived.take()
    assert received is not None and received.bodies is not None
    assert list(map(received.bodies, range(3))) == [b"a", b"b" * 100, b"c"]
    chosen = choose_received(received, np.array([False, True, True]))
    assert chosen.bodies is not None and chosen.size.tolist() == [100, 1]
    assert list(map(chosen.bodies, range(2))) == [b"b" * 100, b"c"]
    joined = join_received([received, chosen])
    assert joined is not None and joined.bodies is None
    assert joined.size.tolist() == [1, 100, 1, 100, 1]
    assert joined.lag is None
