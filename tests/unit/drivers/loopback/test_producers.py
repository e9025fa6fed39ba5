"""The windows of streams in the loopback driver, without a relay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.producers import StreamWindows

STREAMS = [range(1, 20, 4), range(5), [3], [100, 7, 8, 60]]


@given(st.sampled_from(STREAMS), st.integers(1, 4) | st.just(30), st.data())
def test_each_stream_has_its_own_window(streams, size, data):
    """Exactly the messages without room are rejected; ``idle`` is set for a message that finds an empty window, and for no other."""
    windows = StreamWindows(streams, size)
    in_flight, emptied = dict.fromkeys(streams, 0), dict.fromkeys(streams, 0)
    for now in range(1, 12):
        column = np.array(
            data.draw(st.lists(st.sampled_from(list(streams)), min_size=1, max_size=10)), np.int32
        )
        idle, rejected = windows.admit(windows.slots(column))
        full, since = [], {}
        for position, stream in enumerate(column.tolist()):
            if in_flight[stream] == size:
                full.append(position)
            else:
                since[position] = emptied[stream] if in_flight[stream] == 0 else 0
                in_flight[stream] += 1
        assert (rejected.tolist() if rejected is not None else []) == full
        assert {position: int(idle[position]) for position in since} == since
        answered = [
            stream
            for stream in streams
            for _ in range(data.draw(st.integers(0, in_flight[stream])))
        ]
        windows.answered(windows.slots(np.array(answered, np.int32)), now)
        for stream in answered:
            in_flight[stream] -= 1
            emptied[stream] = emptied[stream] if in_flight[stream] else now


@pytest.mark.parametrize("answers", [True, False], ids=["answered at once", "not answered"])
def test_messages_counted_late_are_counted_by_stream(answers):
    """However long no window could have been full before."""
    windows = StreamWindows(range(3), 1000)
    everybody = np.arange(3, dtype=np.int32)
    for now in range(1, 301):
        idle, rejected = windows.admit(everybody.copy())
        assert rejected is None and idle.tolist() == [(now - 1) * answers] * 3
        if answers:
            windows.answered(everybody.copy(), now)
    _, rejected = windows.admit(np.repeat(everybody[1:2], 1100))
    assert rejected is not None and rejected.tolist() == list(
        range(1000 - 300 * (not answers), 1100)
    )
    _, rejected = windows.admit(np.repeat(everybody, 2))
    assert rejected is not None and rejected.tolist() == [2, 3]
    assert not windows.answered(everybody[::2], 400) and windows.answered(everybody[1:2], 400)


def test_windows_of_a_share_have_one_entry_for_each_stream():
    """For every sixteenth of many streams."""
    windows = StreamWindows(range(3, 1_600_000, 16), 10)
    assert len(windows._room) == 100_000
