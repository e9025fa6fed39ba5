"""The due times of delayed messages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.due import AT_ONCE, Delays, wall_offset
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

WALLS = st.integers(0, 2**61)
TIMES = st.lists(st.integers(0, 2**50), min_size=1, max_size=50)


def columns(times: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return streams, sequences and intended times of messages of three streams."""
    seq = np.arange(len(times))
    return (seq % 3).astype(np.int32), seq // 3, np.array(times, np.int64)


@given(st.integers(0, 2**63 - 1), st.integers(0, 10_000), st.integers(0, 100_000), WALLS, TIMES)
def test_a_delay_is_in_its_range_and_ends_at_a_whole_millisecond(
    seed: int, least: int, more: int, wall: int, times: list[int]
) -> None:
    """At or after the delay, and less than a millisecond after the longest."""
    delays = Delays(seed=seed, least=least, most=least + more, wall=wall)
    stream, seq, intended = columns(times)
    due = delays.due(stream, seq, intended)
    assert ((due + wall) % MILLISECOND == 0).all()
    assert (due - intended >= least * MILLISECOND).all()
    assert (due - intended < (least + more + 1) * MILLISECOND).all()
    assert (delays.on_the_wire(stream, seq, intended) * MILLISECOND == due + wall).all()


def test_the_due_time_of_a_message_does_not_depend_on_bursts_and_workers() -> None:
    """Another seed has other due times."""
    delays, times = Delays(seed=5, least=0, most=60_000), list(range(1000))
    stream, seq, intended = columns(times)
    whole = delays.due(stream, seq, intended)
    pick = np.random.default_rng(1).permutation(1000)[:300]
    assert (delays.due(stream[pick], seq[pick], intended[pick]) == whole[pick]).all()
    assert (Delays(seed=6, least=0, most=60_000).due(stream, seq, intended) != whole).sum() > 900


def test_every_whole_millisecond_of_the_range_is_equally_likely() -> None:
    seq = np.arange(100_000)
    zeros = np.zeros(len(seq), np.int64)
    drawn = np.bincount(Delays(seed=0, least=3, most=12).on_the_wire(zeros, seq, zeros))
    assert set(np.flatnonzero(drawn)) == set(range(3, 13))
    assert drawn[3:].min() > 9500


@given(st.integers(0, 10 * SECOND), st.integers(0, 10 * SECOND), WALLS, TIMES)
def test_messages_intended_before_the_instant_are_due_at_it_and_later_ones_are_not_delayed(
    at: int, start: int, wall: int, times: list[int]
) -> None:
    delays = Delays(seed=0, at=at, start=start, wall=wall)
    stream, seq, intended = columns(times)
    early = intended < start + at
    due, wire = delays.due(stream, seq, intended), delays.on_the_wire(stream, seq, intended)
    assert (wire[~early] == AT_ONCE).all()
    assert (due[~early] == intended[~early]).all()
    assert ((due[early] >= start + at) & (due[early] < start + at + MILLISECOND)).all()
    assert delays.longest == at


@pytest.mark.parametrize(
    "delays",
    [Delays(seed=2**63 - 1, least=1, most=7, tick=3, start=5, wall=9), Delays(seed=0, at=4)],
)
def test_delays_survive_their_document(delays: Delays) -> None:
    assert Delays.from_document(delays.document() | {"drift": 1}) == delays


def test_the_offset_of_the_wall_clock_is_that_of_the_quickest_reading() -> None:
    """A pause in a reading makes no difference."""
    steps = itertools.chain([SECOND, SECOND, 10, 10], itertools.repeat(500))
    now = 0

    def clock() -> int:
        nonlocal now
        now += next(steps)
        return now

    assert abs(wall_offset(lambda: clock() + 10**18, clock) - 10**18) <= 500
