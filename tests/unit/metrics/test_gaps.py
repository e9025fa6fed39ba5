"""The longest time without delivery of each subscription of each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics import gaps as module
from pytest_loadtest.metrics.expected import Expected
from pytest_loadtest.metrics.gaps import (
    CELLS,
    DeliveryGaps,
    cell_length,
    cells_of_pair,
    delivery_gaps,
    ends_of_pieces,
    gap_cells,
    gap_times,
    gaps_of_cells,
    longest_gaps,
    longest_of_each,
    suspect_cells,
)
from pytest_loadtest.pipeline.tables import Groups
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

START, MS = 5 * SECOND, MILLISECOND


def plan(duration: int = SECOND, *, topics: int = 2, subscriptions: int = 2) -> Expected:
    return Expected(
        start=START, duration=duration, rate=1.0, topics=topics, subscriptions=subscriptions, ordered=True, publish_acks=True,
        buckets=("all",), stream_topics=np.arange(topics), first=np.zeros(topics, np.int64), end=np.full(topics, 99),
    )  # fmt: skip


def gaps(run: Expected, *receipts: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """Return number, least and greatest gap in ns.

    :param receipts: subscription, topic, ms after the start.
    """
    subscription, topic, at = np.array(receipts, np.int64).reshape(-1, 3).T
    counted = delivery_gaps(
        run, subscription, topic, gap_times({"received": START + at * MS}, run)
    ).histogram()
    return None if counted is None else (counted.n, counted.minimum, counted.maximum)


def test_the_longest_time_between_two_deliveries_counts() -> None:
    assert gaps(plan(), (0, 0, 1), (0, 0, 900), (0, 0, 300), (0, 0, 301)) == (1, 599 * MS, 599 * MS)


@pytest.mark.parametrize(
    ("at", "gap"),
    [(10, 990), (700, 700), (1400, 1400)],
    ids=["to the end", "from the start", "into the drain"],
)
def test_the_phases_edges_count_and_a_gap_goes_on_in_the_drain(at: int, gap: int) -> None:
    assert gaps(plan(), (0, 0, at)) == (1, gap * MS, gap * MS)


def test_each_subscription_of_each_topic_has_its_own_gap() -> None:
    """The other subscription, and the other topic, go on meanwhile."""
    steady = [
        (subscription, topic, at)
        for subscription, topic in ((0, 1), (1, 0))
        for at in range(0, 1000, 10)
    ]
    assert gaps(plan(), *steady, (0, 0, 500), (1, 1, 250), (1, 1, 500)) == (4, 10 * MS, 500 * MS)


def test_a_subscription_that_received_nothing_has_no_gap() -> None:
    assert gaps(plan()) is None
    assert gaps(plan(), (1, 1, 500)) == (1, 500 * MS, 500 * MS)


def test_a_gap_has_its_beginning_and_its_end() -> None:
    """The earliest of two that are equally long; one that no receipt ended has the phase's end."""
    times = START + np.array([100, 400, 700, 800, 100]) * MS
    found = delivery_gaps(plan(), np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 0, 1]), times)
    assert [
        (int(began) - START, int(ended) - START)
        for began, ended in zip(found.began, found.ended, strict=True)
    ] == [
        (100 * MS, 400 * MS),
        (100 * MS, 1000 * MS),
    ]
    assert (found.subscription.tolist(), found.topic.tolist()) == ([0, 1], [0, 1])


def test_cells_of_a_long_run_of_many_topics_are_few() -> None:
    """The rows that the controller holds are bounded, however long the phase and the drain are."""
    many = plan(3600 * SECOND, topics=10_000, subscriptions=1)
    assert cell_length(plan()) == MS
    assert many.topics * (cells_of_pair(many) - 1) <= CELLS + many.topics
    late = gap_cells(np.array([START, START + 3600 * SECOND, START + 90_000 * SECOND]), many)
    assert late.tolist() == [0, cells_of_pair(many) - 2, cells_of_pair(many) - 1]


Receipts = list[tuple[int, int, int]]


def counted_cells(run: Expected, receipts: Receipts) -> dict[str, Column]:
    """Return the cells of receipts, as the first scan counts them."""
    subscription, topic, at = np.array(receipts, np.int64).T
    times = gap_times({"received": START + at}, run)
    groups = Groups({"subscription": subscription, "topic": topic, "cell": gap_cells(times, run)})
    return {
        **groups.keys,
        "first": groups.minimum(times),
        "last": groups.maximum(times),
        "n": groups.n,
    }


def inside(
    run: Expected, receipts: Receipts, cells: dict[str, Column], known: DeliveryGaps, workers: int
) -> dict[str, Column]:
    """Return the longest gaps inside suspect cells, as the last scan finds them: each worker has a
    part of the receipts.
    """
    rows, piece = suspect_cells(run, cells, known)
    place = {
        tuple(key): number
        for number, key in enumerate(
            np.stack([cells[name][rows] for name in KEYS], axis=1).tolist()
        )
    }
    subscription, topic, at = np.array(receipts, np.int64).T
    times = gap_times({"received": START + at}, run)
    keys = np.stack([subscription, topic, gap_cells(times, run)], axis=1).tolist()
    number = np.array([place.get(tuple(key), -1) for key in keys])
    kept: list[tuple[int, int]] = []
    for worker in range(workers):
        own = sorted(
            zip(number[worker::workers].tolist(), times[worker::workers].tolist(), strict=True)
        )
        cell, when = np.array([one for one in own if one[0] >= 0], np.int64).reshape(-1, 2).T
        ends = ends_of_pieces(cell, when, piece[cell])
        kept += zip(cell[ends].tolist(), when[ends].tolist(), strict=True)
    cell, when = np.array(sorted(kept), np.int64).reshape(-1, 2).T
    same = np.flatnonzero(cell[1:] == cell[:-1])
    of, began, ended = longest_of_each(cell[same], when[same], when[same + 1])
    return {
        "pair": (cells["subscription"] * run.topics + cells["topic"])[rows][of],
        "began": began,
        "ended": ended,
    }


KEYS = ("subscription", "topic", "cell")
RECEIPTS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 1), st.integers(-3 * MS, 40 * MS) | st.integers(0, 30)
    ),
    min_size=1,
)


@given(
    RECEIPTS,
    st.sampled_from([1, MS, 30 * MS]),
    st.sampled_from([1, 4, 40, CELLS]),
    st.integers(1, 3),
)
def test_two_looks_at_cells_give_the_gaps_of_single_receipts(
    receipts: Receipts, duration: int, most: int, workers: int
) -> None:
    """However few cells there are, and whoever has the receipts: to the ns, with the same beginning
    and end.
    """
    run = plan(duration)
    subscription, topic, at = np.array(receipts, np.int64).T
    single = delivery_gaps(run, subscription, topic, gap_times({"received": START + at}, run))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CELLS", most)
        cells = counted_cells(run, receipts)
        shown = gaps_of_cells(run, cells)
        hidden = inside(run, receipts, cells, longest_gaps(run, shown), workers)
    found = longest_gaps(run, {name: np.concatenate([shown[name], hidden[name]]) for name in shown})
    for name in ("subscription", "topic", "began", "ended"):
        assert getattr(found, name).tolist() == getattr(single, name).tolist()


def test_cells_shorter_than_the_gap_need_no_second_look() -> None:
    """Most runs have a pause of some milliseconds; and two receipts of a cell are one gap."""
    receipts = [(0, 0, at * MS + of) for at in (3, 8, 9) for of in (0, 7, 900)] + [
        (1, 0, 2 * MS),
        (1, 0, 2 * MS + 900),
    ]
    run = plan(10 * MS)
    cells = counted_cells(run, receipts)
    assert suspect_cells(run, cells, longest_gaps(run, gaps_of_cells(run, cells)))[0].tolist() == []


def test_only_some_receipts_of_a_fast_stream_are_looked_at_again() -> None:
    """A gap of a millisecond among receipts each microsecond: two of each millisecond remain."""
    times = np.delete(np.arange(100_000) * 1000, slice(50_000, 51_000))
    cell = np.zeros(len(times), np.int64)
    mask = ends_of_pieces(cell, times, np.full(len(times), 1_001_000))
    assert int(mask.sum()) <= 2 * 101
    assert int(np.diff(times[mask]).max()) == 1_001_000
