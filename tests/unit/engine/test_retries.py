"""Waiting streams: the order of attempts, and the blocked time of each message."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.retries import AT_ONCE, RETRY, Waiting, blocked_before

STREAMS = 3


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def overlap(intervals: list[tuple[int, int]], low: int, high: int) -> int:
    return sum(max(0, min(end, high) - max(start, low)) for start, end in intervals)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Draw attempts in time: (now, messages that joined since the last one, messages taken, when
    the window ran empty or 0).
    """
    now, history = draw(st.integers(1, 10**15)), []
    for _ in range(draw(st.integers(2, 12))):
        before, now = now, now + draw(st.integers(1, 1000))
        idle = draw(st.just(0) | st.integers(before, now))
        history.append((now, draw(st.integers(0, 5)), draw(st.integers(0, 5)), idle))
    return history


@given(histories(), st.integers(0, STREAMS - 1), st.data())
def test_blocked_is_the_overlap_with_full_windows(
    history: list[tuple[int, int, int, int]], stream: int, data: st.DataObject
) -> None:
    """Blocked is the part of a message's wait between an attempt cut short and the next one, less
    the target's idle time.
    """
    waiting, one = Waiting(STREAMS), column(stream)
    start = history[0][0]
    intended = [start - data.draw(st.integers(0, 50)) for _ in range(3)]
    waiting.begin(one, column(7), column(10), start)
    noted, taken_so_far, full, intervals = [0, 0, 0], 0, start, list[tuple[int, int]]()
    for now, joined, wanted, idle in history[1:]:
        times = sorted(data.draw(st.integers(full + 1, now)) for _ in range(joined))
        intended += times
        waiting.join(np.full(joined, stream))
        offered, _ = waiting.offer(one, column(wanted))
        taken = len(offered)
        tried, blocked, newcomers = (
            waiting.tried_at[one],
            waiting.blocked[one],
            waiting.newcomers(one),
        )
        assert newcomers[1].tolist() == [7 + len(intended) - joined + i for i in range(joined)]
        until = waiting.tried(one, column(taken), column(idle), now, now)
        intervals.append((full, now if taken == 0 or idle == 0 else min(now, max(idle, full))))
        full = now
        noted += blocked_before(np.array(times, np.int64), tried, blocked, until).tolist()
        total = int(waiting.blocked[stream])
        for i in range(taken_so_far, taken_so_far + taken):
            assert total - noted[i] == overlap(intervals, max(intended[i], start), now)
        taken_so_far += taken
        assert waiting.count == len(intended) - taken_so_far
        if not waiting.any:
            return


def test_time_after_a_window_ran_empty_is_not_blocked() -> None:
    """A window that ran empty at 30 explains a wait from 10 to 100 up to 30; the rest is the
    generator's lateness.
    """
    waiting, one = Waiting(1), column(0)
    waiting.begin(one, column(0), column(1), 10)
    assert waiting.tried(one, column(1), column(30), 100, 100).tolist() == [30]
    assert waiting.blocked.tolist() == [20]
    assert not waiting.any


def test_a_window_is_not_full_while_the_client_takes_messages() -> None:
    """A call that takes 40 ns before the client finds the window full again is the generator's."""
    waiting, one = Waiting(1), column(0)
    waiting.begin(one, column(0), column(2), 10)
    assert waiting.tried(one, column(1), column(30), 100, 140).tolist() == [30]
    assert waiting.tried(one, column(1), column(150), 200, 240).tolist() == [150]
    assert waiting.blocked.tolist() == [20 + 10]


def test_a_stream_is_tried_for_as_many_messages_as_it_had_answers() -> None:
    """A stream without an answer waits until all are tried."""
    waiting = Waiting(4)
    waiting.begin(column(0, 2, 3), column(5, 5, 5), column(9, 9, 9), 0)
    assert waiting.candidates(1)[0].tolist() == []
    waiting.answered(column(2, 1, 2), column(8, 9, 7))
    assert waiting.answered_at.tolist() == [0, 9, 8, 0]
    index, most = waiting.candidates(2)
    assert (index.tolist(), most.tolist()) == ([2], [2])
    stream, number = waiting.offer(index, most)
    assert (stream.tolist(), number.tolist()) == ([2, 2], [5, 6])
    index, freed = waiting.candidates(RETRY)
    assert (index.tolist(), freed.tolist()) == ([0, 2, 3], [0, 2, 0])


def test_an_attempt_without_answers_tries_a_bounded_number_of_streams() -> None:
    """After a few attempts every stream had its turn."""
    streams = 3 * AT_ONCE + 5
    waiting, tried = Waiting(streams), set[int]()
    waiting.begin(np.arange(streams), np.zeros(streams, np.int64), np.ones(streams, np.int64), 0)
    for attempt in range(1, 5):
        index, _ = waiting.candidates(attempt * RETRY)
        assert len(index) <= AT_ONCE
        tried |= set(index.tolist())
    assert len(tried) == streams


def test_a_message_given_up_waits_no_more() -> None:
    """The oldest is given up first; a stream without waiting messages does not wait."""
    waiting = Waiting(2)
    waiting.begin(column(0, 1), column(0, 4), column(3, 5), 0)
    waiting.drop(column(0, 1, 0))
    assert waiting.streams().tolist() == [True, False]
    assert waiting.offer(column(0, 1), column(9, 9))[1].tolist() == [2]
    assert waiting.count == 1
