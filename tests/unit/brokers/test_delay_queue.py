"""The relay's delayed messages."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.batch import Batch, DelayQueue

BATCHES = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=8), max_size=8)


def batch(due: list[int], first: int) -> Batch:
    """Messages whose payload is a byte, their number."""
    number = np.arange(first, first + len(due))
    zeros = np.zeros(len(due), np.int64)
    return Batch(zeros, zeros, number, np.ones(len(due), np.int32), number.astype(np.uint8))


@given(BATCHES, st.lists(st.integers(0, 45), max_size=10))
def test_messages_leave_when_they_are_due(batches: list[list[int]], looks: list[int]) -> None:
    """Each once, none early, in the order of due times, and of equal ones in the order in which they came; payloads with them."""
    later, dues, first = DelayQueue(), list[int](), 0
    for one in batches:
        later.add(batch(one, first), np.array(one))
        dues += one
        first += len(one)
    left = list[int]()
    for now in [*sorted(looks), 50]:
        assert later.next() == min((due for number, due in enumerate(dues) if number not in left), default=None)
        ready = later.release(now)
        for seq in () if ready is None else ready.seq.tolist():
            assert dues[seq] <= now
            left.append(seq)
        if ready is not None:
            assert (ready.payload == ready.seq).all()
        assert all(due > now for number, due in enumerate(dues) if number not in left)
    assert [dues[seq] for seq in left] == sorted(dues)
    assert sorted(left) == list(range(len(dues)))
    assert later.next() is None and later.release(10**18) is None
