"""Arrival order within consumer, stream, and partition or key, and by due time; batches make no
difference.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.order import DueOrder, OrderCheck

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 2), st.integers(0, 12)),
    max_size=60,
)


def late_one_by_one(arrivals: list[tuple[int, int, int, int]]) -> tuple[list[bool], int]:
    """Return the definition's result: rows below the highest sequence before in their group, and
    the number of rows not above it.
    """
    highest: dict[tuple[int, int, int], int] = {}
    late, repeats = [], 0
    for *group, seq in arrivals:
        before = highest.get(tuple(group), -1)
        late.append(seq < before)
        repeats += seq <= before
        highest[tuple(group)] = max(before, seq)
    return late, repeats


def late_in_batches(
    check: OrderCheck, arrivals: list[tuple[int, int, int, int]], sizes: list[int]
) -> list[bool]:
    late: list[bool] = []
    at = 0
    while at < len(arrivals):
        batch = np.array(arrivals[at : at + sizes[at % len(sizes)]], np.int64)
        found = check.late(
            batch[:, 0].astype(np.int32), batch[:, 1].astype(np.int32), batch[:, 2], batch[:, 3]
        )
        late += [False] * len(batch) if found is None else found.tolist()
        at += len(batch)
    return late


@given(ARRIVALS, st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_a_row_is_late_if_it_is_below_the_highest_before_in_its_group(
    arrivals: list[tuple[int, int, int, int]], sizes: list[int]
) -> None:
    check = OrderCheck()
    assert (late_in_batches(check, arrivals, sizes), check.repeats) == late_one_by_one(arrivals)


def test_the_table_grows_and_forgets_no_group() -> None:
    """Order by key has as many groups as keys: here 120 000."""
    draws, n = np.random.default_rng(1), 30_000
    check, batches = OrderCheck(), []
    for part in range(4):
        consumer, stream = (
            draws.integers(0, 1000, n, np.int32),
            draws.integers(0, 2**31 - 1, n, np.int32),
        )
        batches.append((consumer, stream, np.arange(part * n, (part + 1) * n) << 10))
    for seq in (0, 1):
        for batch in batches:
            assert check.late(*batch, np.full(n, seq)) is None
    for batch in batches:
        found = check.late(*batch, np.zeros(n, np.int64))
        assert found is not None
        assert found.all()
    assert check.repeats == 4 * n


def test_the_same_sequence_in_another_group_is_no_second_copy() -> None:
    check = OrderCheck()
    zero, one = np.zeros(1, np.int32), np.ones(1, np.int32)
    wide = np.zeros(1, np.int64)
    for consumer, stream, order in (
        (zero, zero, wide),
        (one, zero, wide),
        (zero, one, wide),
        (zero, zero, wide + 1),
    ):
        assert check.late(consumer, stream, order, wide + 5) is None
    assert check.repeats == 0
    assert check.late(zero, zero, wide, wide + 5) is not None
    assert check.repeats == 1


ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=60)


@given(ROWS, st.integers(0, 30), st.integers(0, 60))
def test_a_row_is_overtaken_if_its_consumer_got_one_due_more_than_a_tick_later(
    rows: list[tuple[int, int]], tick: int, cut: int
) -> None:
    latest, expected = dict[int, int](), []
    for place, due in rows:
        expected.append(due < latest.get(place, due) - tick)
        latest[place] = max(latest.get(place, due), due)
    order, found = DueOrder(), list[bool]()
    for part in (rows[:cut], rows[cut:]):
        if part:
            consumer, due = (np.array(column) for column in zip(*part, strict=True))
            found += order.overtaken(consumer.astype(np.int32), due, tick).tolist()
    assert found == expected
