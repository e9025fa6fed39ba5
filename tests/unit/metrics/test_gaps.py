"""The longest time without delivery of each subscription of each topic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.metrics.expected import Expected
from pytest_loadtest.metrics.gaps import CELLS, delivery_gaps, gap_cells, gap_resolution, gap_times
from pytest_loadtest.metrics.histogram import document
from pytest_loadtest.pipeline.tables import Groups
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

START, MS = 5 * SECOND, MILLISECOND


def plan(duration: int = SECOND, *, topics: int = 2, subscriptions: int = 2) -> Expected:
    return Expected(
        start=START, duration=duration, rate=1.0, topics=topics, subscriptions=subscriptions, ordered=True, publish_acks=True,
        buckets=("all",), stream_topics=np.arange(topics), first=np.zeros(topics, np.int64), end=np.full(topics, 99),
    )  # fmt: skip


def gaps(run: Expected, *receipts: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """Return number, least and greatest gap in ns. :param receipts: subscription, topic, ms after the start."""
    subscription, topic, at = np.array(receipts, np.int64).reshape(-1, 3).T
    times = gap_times({"received": START + at * MS}, run)
    counted = delivery_gaps(run, subscription, topic, times, times)
    return None if counted is None else (counted.n, counted.minimum, counted.maximum)


def test_the_longest_time_between_two_deliveries_counts() -> None:
    assert gaps(plan(), (0, 0, 1), (0, 0, 900), (0, 0, 300), (0, 0, 301)) == (1, 599 * MS, 599 * MS)


@pytest.mark.parametrize(("at", "gap"), [(10, 990), (700, 700), (1400, 1400)], ids=["to the end", "from the start", "into the drain"])
def test_the_phases_edges_count_and_a_gap_goes_on_in_the_drain(at: int, gap: int) -> None:
    assert gaps(plan(), (0, 0, at)) == (1, gap * MS, gap * MS)


def test_each_subscription_of_each_topic_has_its_own_gap() -> None:
    """The other subscription, and the other topic, go on meanwhile."""
    steady = [(subscription, topic, at) for subscription, topic in ((0, 1), (1, 0)) for at in range(0, 1000, 10)]
    assert gaps(plan(), *steady, (0, 0, 500), (1, 1, 250), (1, 1, 500)) == (4, 10 * MS, 500 * MS)


def test_a_subscription_that_received_nothing_has_no_gap() -> None:
    assert gaps(plan()) is None
    assert gaps(plan(), (1, 1, 500)) == (1, 500 * MS, 500 * MS)


def test_shorter_gaps_count_as_the_resolution() -> None:
    """Which is coarser for many topics, so that the rows that are merged stay few."""
    many = plan(3600 * SECOND, topics=10_000, subscriptions=1)
    assert gap_resolution(plan()) == MS
    assert gap_resolution(many) * CELLS >= many.duration * many.topics > (gap_resolution(many) - 1) * CELLS
    assert gaps(plan(MS), (0, 0, 0), (0, 0, 1)) == (1, MS, MS)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(-3 * MS, 40 * MS)), min_size=1), st.sampled_from([MS, 30 * MS]))
def test_cells_give_the_gaps_of_single_receipts(receipts: list[tuple[int, int, int]], duration: int) -> None:
    subscription, topic, at = np.array(receipts, np.int64).T
    run, copies = plan(duration), {"received": START + at}
    times = gap_times(copies, run)
    groups = Groups({"subscription": subscription, "topic": topic, "cell": gap_cells(copies, run)})
    keys = groups.keys
    of_cells = delivery_gaps(run, keys["subscription"], keys["topic"], groups.minimum(times), groups.maximum(times))
    single = delivery_gaps(run, subscription, topic, times, times)
    assert of_cells is not None and single is not None
    assert document(of_cells) == document(single)
