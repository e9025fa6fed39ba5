"""Which messages of a burst find room: the same as counting them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.columns import positions_without_room

STREAMS = 6
BURSTS = st.lists(st.integers(0, STREAMS - 1), max_size=60)
ROOMS = st.lists(st.integers(0, 12), min_size=STREAMS, max_size=STREAMS)


def refused(streams: list[int], room: list[int]) -> list[int]:
    """One message at a time."""
    left, positions = list(room), []
    for position, stream in enumerate(streams):
        if left[stream] > 0:
            left[stream] -= 1
        else:
            positions.append(position)
    return positions


@given(streams=BURSTS, room=ROOMS)
def test_the_first_of_each_stream_find_room(streams: list[int], room: list[int]) -> None:
    """Of each stream, exactly as many as it has room for, the first ones; the others' positions come back ascending, as int64."""
    found = positions_without_room(np.array(streams, np.int32), np.array(room))
    assert found.dtype == np.int64
    assert found.tolist() == refused(streams, room)


@given(streams=BURSTS, room=ROOMS)
def test_what_is_refused_is_a_suffix_of_each_stream(streams: list[int], room: list[int]) -> None:
    """No message overtakes one of its own stream, and none waits for another stream's window."""
    out = set(positions_without_room(np.array(streams, np.int32), np.array(room)).tolist())
    for stream in range(STREAMS):
        mine = [position in out for position, other in enumerate(streams) if other == stream]
        assert mine == sorted(mine)
        assert mine.count(False) == min(room[stream], len(mine))


@given(streams=BURSTS, room=ROOMS, more=ROOMS)
def test_offering_again_takes_up_the_new_room(streams: list[int], room: list[int], more: list[int]) -> None:
    """Windows that open in two steps let through what they would let through at once."""
    column, first, second = np.array(streams, np.int32), np.array(room), np.array(more)
    left = positions_without_room(column, first)
    taken = np.bincount(np.delete(column, left), minlength=STREAMS)
    at_last = left[positions_without_room(column[left], first - taken + second)]
    assert at_last.tolist() == positions_without_room(column, first + second).tolist()


@given(streams=BURSTS, room=ROOMS)
def test_the_columns_are_only_read(streams: list[int], room: list[int]) -> None:
    """Neither the burst nor the room changes."""
    column, left = np.array(streams, np.int32), np.array(room)
    positions_without_room(column, left)
    assert (column.tolist(), left.tolist()) == (streams, room)


@pytest.mark.parametrize(("room", "found"), [(0, [0, 1, 2]), (2, [2]), (3, []), (-1, [0, 1, 2])])
def test_one_stream(room: int, found: list[int]) -> None:
    """A window without room takes nothing, also one that became smaller than what is in flight."""
    assert positions_without_room(np.zeros(3, np.int32), np.array([room])).tolist() == found


def test_an_empty_burst() -> None:
    """Nothing is beyond anything."""
    found = positions_without_room(np.empty(0, np.int32), np.empty(0, np.int64))
    assert (found.dtype, found.tolist()) == (np.int64, [])
