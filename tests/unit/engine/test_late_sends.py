"""The record of a worker's late sends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.late_sends import LateSends
from pytest_loadtest.metrics.pauses import SHORTEST, Pauses
from pytest_loadtest.values.quantities import MILLISECOND as MS


def excused(log: LateSends, times: list[int]) -> list[int]:
    """Return the lateness that the log shows for messages with these intended times, ns."""
    columns = {name: np.array(column, np.int64) for name, column in log.document().items()}
    none = np.zeros(0, np.int64)
    pauses = Pauses(begin=none, end=none, since=none, until=none, exact=True, **columns)
    return pauses.until_sent(np.array(times, np.int64)).tolist()


def test_a_sender_that_catches_up_in_short_steps_is_late_by_all_of_it() -> None:
    """333 ms late, and a hand-over each 5 ms: no pause is above 5 ms."""
    log = LateSends()
    for number in range(200):
        log.add(number * 5 * MS, number * 5 * MS + 333 * MS)
    assert excused(log, [0, 5 * MS, 8 * MS, 900 * MS]) == [333 * MS, 333 * MS, 330 * MS, 333 * MS]


def test_a_send_in_time_is_not_kept() -> None:
    log = LateSends()
    log.add(0, SHORTEST)
    assert log.document() == {"due": [], "sent": []}
    log.add(MS, 10 * MS)
    log.clear()
    assert log.document() == {"due": [], "sent": []}


def test_a_hand_over_that_was_rejected_ends_the_lateness_of_the_others_of_its_tick() -> None:
    """What was rejected waits for the target from the tick's begin on: the time of sending is not
    excused.
    """
    log = LateSends()
    log.add(0, 110 * MS)
    log.add(50 * MS, 100 * MS)
    assert excused(log, [0, 50 * MS, 105 * MS]) == [100 * MS, 50 * MS, 0]


@given(
    steps=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 60)), min_size=1, max_size=60),
    most=st.integers(4, 20),
)
def test_what_is_forgotten_is_not_excused(steps: list[tuple[int, int]], most: int) -> None:
    """Whatever a log keeps, and however few steps: no message is later by it than it was sent."""
    log = LateSends(most)
    tick = sent = 0
    intended: list[int] = []
    lateness: list[int] = []
    for wait, duration in steps:
        # A message each millisecond: all that became due until a tick are handed over after it.
        first = tick + MS
        tick = sent + wait * MS
        sent = tick + duration * MS
        log.add(first, sent)
        for at in range(first, tick + 1, MS):
            intended.append(at)
            lateness.append(sent - at)
    found = excused(log, intended)
    assert all(shown <= late for shown, late in zip(found, lateness, strict=True))
    assert len(log.document()["due"]) < most
    if len(steps) < most:
        assert all(shown >= late - SHORTEST for shown, late in zip(found, lateness, strict=True))
    else:
        assert any(found)


def test_a_long_lateness_outlasts_many_short_ones() -> None:
    log = LateSends(most=64)
    log.add(0, 2000 * MS)
    for number in range(1000):
        log.add((3000 + 10 * number) * MS, (3003 + 10 * number) * MS)
    assert excused(log, [500 * MS]) == [1500 * MS]
