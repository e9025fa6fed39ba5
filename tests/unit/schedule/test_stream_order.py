"""The order of streams: exact shares for any number of workers, and every row can be found again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.payloads import PayloadChooser, build_pool
from pytest_loadtest.schedule.pacing import NS, Pacer, StreamCounts
from pytest_loadtest.schedule.schedules import Drawing, EvenSchedule
from pytest_loadtest.schedule.stream_order import MOST_TURNS, RoundRobin, StreamOrder, Turns

WEIGHTS = st.lists(st.integers(1, 30), min_size=1, max_size=6)
CYCLES = st.builds(
    lambda weights, swing, times: Turns.weighted(weights, swing=swing, times=times),
    WEIGHTS,
    st.integers(0, 50),
    st.integers(1, 3),
)


@given(weights=WEIGHTS, times=st.integers(1, 3))
def test_a_stream_has_turns_in_proportion_to_its_topics_weight(
    weights: list[int], times: int
) -> None:
    turns = Turns.weighted(weights, times=times)
    least = np.gcd.reduce(weights)
    assert turns.weights.tolist() == [weight // least for weight in weights] * times
    assert len(turns.cycle) == times * sum(weights) // least


@given(weights=WEIGHTS)
def test_a_stream_is_never_far_from_its_share(weights: list[int]) -> None:
    """At most half a turn, and half a turn for each stream that it may have to wait for."""
    turns = Turns.weighted(weights)
    length = len(turns.cycle)
    for total in range(length + 1):
        share = total * turns.weights / length
        assert (np.abs(turns.counts(total) - share) <= (1 + len(weights)) / 2).all()


def test_six_topics_are_spread_at_the_rates_of_pip_169() -> None:
    """A tenth of the rates of its first proposal."""
    turns = Turns.weighted([1, 2, 3, 4, 5, 20])
    assert turns.weights.tolist() == [1, 2, 3, 4, 5, 20]
    assert turns.counts(350).tolist() == [10, 20, 30, 40, 50, 200]


def test_a_swing_moves_each_weight_on_by_one_topic() -> None:
    """After a full cycle every topic has had every weight."""
    turns = Turns.weighted([2, 1, 1], swing=8)
    assert [turns.counts(8 * n).tolist() for n in (1, 2, 3)] == [[4, 2, 2], [6, 6, 4], [8, 8, 8]]


@given(turns=CYCLES, total=st.integers(0, 10**6))
def test_counts_add_up_and_never_fall(turns: Turns, total: int) -> None:
    counts = turns.counts(total)
    assert counts.sum() == total
    more = turns.counts(total + 1) - counts
    assert sorted(more.tolist())[-1] == more.sum() == 1


@given(
    turns=CYCLES, workers=st.integers(1, 4), first=st.integers(0, 10**5), count=st.integers(1, 60)
)
def test_each_message_of_the_run_is_a_row_of_one_worker(
    turns: Turns, workers: int, first: int, count: int
) -> None:
    """With the same stream and number as on a single worker."""
    whole = turns.order_of(range(turns.streams))
    index, number, place = whole.rows(np.arange(first, first + count))
    assert place.tolist() == list(range(first, first + count))
    assert number.tolist() == [
        turns.counts(at)[stream] for at, stream in zip(place.tolist(), index.tolist(), strict=True)
    ]
    found = {}
    for rank in range(workers):
        streams = range(rank, turns.streams, workers)
        part = turns.order_of(streams)
        rows = np.arange(part.before(first), part.before(first + count))
        for at, nth, where in zip(*part.rows(rows), strict=True):
            found[int(where)] = (streams[int(at)], int(nth))
    assert found == {
        at: (int(i), int(n)) for at, i, n in zip(place.tolist(), index, number, strict=True)
    }


@given(
    turns=CYCLES,
    owners=st.lists(st.integers(0, 2), min_size=18, max_size=18),
    first=st.integers(0, 10**5),
    count=st.integers(1, 60),
)
def test_workers_may_have_any_streams(
    turns: Turns, owners: list[int], first: int, count: int
) -> None:
    """Each message is still a row of one worker, with the same stream and number, in round robin
    and with weights.
    """
    for whole in (
        RoundRobin(turns.streams, range(turns.streams)),
        turns.order_of(range(turns.streams)),
    ):
        index, number, place = whole.rows(np.arange(first, first + count))
        found = {}
        for owner in range(3):
            streams = np.flatnonzero(np.array(owners[: turns.streams]) == owner)
            if not len(streams):
                continue
            part = (
                RoundRobin(turns.streams, streams)
                if isinstance(whole, RoundRobin)
                else turns.order_of(streams)
            )
            rows = np.arange(part.before(first), part.before(first + count))
            assert [part.place(row) for row in rows.tolist()] == part.rows(rows)[2].tolist()
            assert part.find(*part.rows(rows)[:2]).tolist() == rows.tolist()
            found |= {
                int(where): (int(streams[at]), int(nth))
                for at, nth, where in zip(*part.rows(rows), strict=True)
            }
        assert found == {
            at: (int(i), int(n)) for at, i, n in zip(place.tolist(), index, number, strict=True)
        }


def _check(dealt: StreamOrder, streams: range, first: int, count: int) -> None:
    row = np.arange(first, first + count)
    index, number, place = dealt.rows(row)
    assert dealt.find(index, number).tolist() == row.tolist()
    assert [dealt.place(int(one)) for one in row] == place.tolist()
    assert [dealt.before(int(one)) for one in place] == row.tolist()
    counts = dealt.numbers(first)
    assert counts.sum() == first
    for at in range(len(streams)):
        mine = number[index == at]
        assert mine.tolist() == list(range(counts[at], counts[at] + len(mine)))


@given(
    turns=CYCLES, workers=st.integers(1, 4), first=st.integers(0, 10**5), count=st.integers(0, 60)
)
def test_a_row_is_found_by_its_message_its_place_and_the_messages_before(
    turns: Turns, workers: int, first: int, count: int
) -> None:
    streams = range(turns.streams - 1 if workers > turns.streams else 0, turns.streams, workers)
    _check(turns.order_of(streams), streams, first, count)


@given(
    total=st.integers(1, 20),
    workers=st.integers(1, 4),
    first=st.integers(0, 10**5),
    count=st.integers(0, 60),
)
def test_a_row_of_round_robin_is_found_likewise(
    total: int, workers: int, first: int, count: int
) -> None:
    streams = range(total - 1 if workers > total else 0, total, workers)
    _check(RoundRobin(total, streams), streams, first, count)


@given(total=st.integers(1, 20), first=st.integers(0, 10**5), count=st.integers(0, 60))
def test_equal_weights_are_round_robin(total: int, first: int, count: int) -> None:
    rows = np.arange(first, first + count)
    assert [
        column.tolist() for column in Turns.weighted([7] * total).order_of(range(total)).rows(rows)
    ] == [column.tolist() for column in RoundRobin(total, range(total)).rows(rows)]


def test_a_worker_without_streams_has_no_rows() -> None:
    part = Turns.weighted([1, 2]).order_of(range(2, 2))
    assert part.before(1000) == 0
    assert part.numbers(0).tolist() == []


@pytest.mark.parametrize(
    ("weights", "swing", "times"),
    [([MOST_TURNS, 1], 0, 1), ([3, 1], 0, MOST_TURNS), ([3, 1], MOST_TURNS, 1)],
)
def test_a_cycle_longer_than_memory_should_hold_is_an_error(
    weights: list[int], swing: int, times: int
) -> None:
    with pytest.raises(
        ValueError, match=r"the cycle of streams has .* turns, at most 1,000,000 are possible"
    ):
        Turns.weighted(weights, swing=swing, times=times)


@given(turns=CYCLES, totals=st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
def test_counts_of_several_phases_add_up(turns: Turns, totals: list[int]) -> None:
    """Each phase begins its round anew."""
    counts = StreamCounts(streams=turns.streams)
    for total in totals:
        counts = counts.plus(total, turns)
    assert counts.total == sum(totals)
    assert counts.column().tolist() == sum(turns.counts(total) for total in totals).tolist()
    assert counts.of(range(0, turns.streams, 2)).tolist() == counts.column()[::2].tolist()


@given(turns=CYCLES, rate=st.integers(1, 10**6), elapsed=st.integers(0, NS))
def test_a_skew_changes_no_due_time(turns: Turns, rate: int, elapsed: int) -> None:
    pool = build_pool(
        buckets=None, message_size=100, randomized=False, random_ratio=0.0, file_content=None, seed=1, checksum=False, max_size=None
    )  # fmt: skip
    pacer, streams = Pacer.of(rate, turns.streams), range(turns.streams)
    drawing = Drawing(
        PayloadChooser(pool, 1, streams), streams, np.zeros(len(streams), np.int64), pool.sizes
    )
    made = EvenSchedule(pacer, drawing, pool.table(0), turns)
    due = made.due(elapsed)
    assert due == pacer.due(elapsed)
    assert made.rows(due, 20).time.tolist() == [
        pacer.time(number) for number in range(due, due + 20)
    ]
    assert made.numbers(due).tolist() == turns.counts(due).tolist()
    assert made.change(elapsed + 1, None) == due
    assert [(at, counts.tolist()) for at, counts in made.marks()] == [
        (elapsed + 1, turns.counts(due).tolist())
    ]
