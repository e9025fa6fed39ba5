"""Who overtook whom, by due time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.due_order import DueOrder

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=60)


@given(ROWS, st.integers(0, 30), st.integers(0, 60))
def test_rows_are_told_as_one_by_one(rows: list[tuple[int, int]], tick: int, cut: int) -> None:
    """Of each consumer against the latest that it has had, however arrivals are cut into batches."""
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
