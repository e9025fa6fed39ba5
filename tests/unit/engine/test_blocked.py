"""Time before the target's full window."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.blocked import BlockedTime


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, int, int | None]]:
    """Attempts in time: (now, messages due, messages taken, when the window ran empty or None)."""
    now, history = draw(st.integers(0, 10**15)), []
    for _ in range(draw(st.integers(1, 12))):
        before, now = now, now + draw(st.integers(1, 1000))
        due = draw(st.integers(1, 5))
        idle = draw(st.none() | st.integers(before, now))
        history.append((now, due, draw(st.integers(0, due)), idle))
    return history


def overlap(intervals: list[tuple[int, int]], low: int, high: int) -> int:
    return sum(max(0, min(end, high) - max(start, low)) for start, end in intervals)


@given(histories())
def test_blocked_is_the_overlap_with_full_windows(history: list[tuple[int, int, int, int | None]]) -> None:
    """Each message's blocked time is how much of its wait lay between an attempt cut short and the next one, less the target's idle time."""
    blocked, intervals, full = BlockedTime(), list[tuple[int, int]](), None
    waiting: list[int] = []
    for now, due, taken, idle in history:
        waiting += [now - due + i for i in range(due)]
        waiting.sort()
        accepted = min(taken, len(waiting))
        blocked.attempt(now, waiting=accepted == 0, idle_since=idle)
        if full is not None:
            intervals.append((full, now if accepted == 0 or idle is None else min(now, max(idle, full))))
            full = None
        if accepted:
            sent, waiting = np.array(waiting[:accepted], np.int64), waiting[accepted:]
            out = np.zeros(accepted, np.int64)
            blocked.fill(out, sent)
            assert out.tolist() == [overlap(intervals, int(intended), now) for intended in sent]
            assert (out <= now - sent).all()
        if waiting:
            full = blocked.full_since = now


def test_an_idle_target_is_not_to_blame() -> None:
    """A window that ran empty at 30 explains a wait from 10 to 100 as far as 30; the rest is the generator's."""
    blocked = BlockedTime()
    blocked.full_since = 10
    blocked.attempt(100, waiting=False, idle_since=30)
    out = np.zeros(1, np.int64)
    blocked.fill(out, np.array([5], np.int64))
    assert out.tolist() == [20]


def test_nothing_is_kept_that_nobody_needs() -> None:
    """Intervals before the last message that was sent are forgotten, so a long run with a slow target stays small."""
    blocked = BlockedTime()
    for now in range(0, 100_000, 10):
        blocked.attempt(now, waiting=False, idle_since=None)
        blocked.fill(np.zeros(1, np.int64), np.array([now], np.int64))
        blocked.full_since = now + 1
    assert len(blocked._ends) <= 1
