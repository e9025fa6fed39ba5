"""Batches of messages in the relay: split, selected and joined, each message keeps its bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.loopback.batch import (
    STREAM,
    Batch,
    DelayQueue,
    compose_index,
    join_batches,
    merge_small_batches,
    pick,
)

SIZES = (
    st.lists(st.sampled_from([0, 1, 5, 3000]), max_size=12)
    | st.lists(st.just(4), max_size=12)
    | st.lists(st.just(3000), max_size=4)
)


def batch_of(sizes: list[int], first: int = 0) -> Batch:
    """Make messages; every byte of a message is its number."""
    seq = np.arange(first, first + len(sizes))
    size = np.array(sizes, np.int32)
    return Batch(seq + 1, seq + (9 << 32), seq, size, np.repeat(seq, size).astype(np.uint8))


def check(batch: Batch, numbers: list[int]) -> None:
    """Check that a batch has exactly these messages, complete."""
    assert batch.seq.tolist() == numbers
    assert batch.topic.tolist() == [number + 1 for number in numbers]
    assert (batch.producer & STREAM).tolist() == numbers and (batch.producer > STREAM).all()
    assert batch.payload.tobytes() == b"".join(
        bytes([number]) * size for number, size in zip(numbers, batch.size.tolist(), strict=True)
    )


@given(SIZES, st.data())
def test_selected_messages_keep_their_bytes(sizes, data):
    """In any order, with repetitions, neighbours or not, of one size or many."""
    whole = batch_of(sizes)
    chosen = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=20)) if sizes else []
    index = np.array(chosen, np.intp)
    check(whole.take(index), chosen)
    assert b"".join(whole.pieces(index)) == whole.take(index).payload.tobytes()
    assert whole.take(None) is whole
    assert b"".join(whole.pieces(None)) == whole.payload.tobytes()


def test_empty_messages_are_selected_more_than_once():
    check(batch_of([0]).take(np.array([0, 0, 0], np.intp)), [0, 0, 0])


@given(SIZES, st.data())
def test_two_parts_of_a_batch_are_the_whole(sizes, data):
    """Parts made by splitting, and by a mask and its complement."""
    whole, numbers = batch_of(sizes), list(range(len(sizes)))
    count = data.draw(st.integers(0, len(sizes)))
    first, rest = whole.split(count)
    check(first, numbers[:count])
    check(rest, numbers[count:])
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))), np.bool_
    )
    check(whole.where(mask), np.flatnonzero(mask).tolist())
    check(join_batches([first, rest]), numbers)


@given(st.lists(SIZES, max_size=8), st.integers(0, 10_000))
def test_merged_batches_have_the_same_messages(parts, most):
    """In the same order; no join copies more bytes than allowed."""
    firsts = np.cumsum([0, *map(len, parts)]).tolist()
    batches = [batch_of(sizes, first) for sizes, first in zip(parts, firsts, strict=False)]
    bundles = merge_small_batches(batches, most)
    assert len(bundles) <= len(batches)
    if bundles:
        check(join_batches(bundles), list(range(firsts[-1])))
    assert all(len(part.payload) <= most or any(part is one for one in batches) for part in bundles)


def test_a_composed_index_applies_both_indexes():
    """None selects everything."""
    column, outer, inner = np.arange(10) * 10, np.array([4, 2, 8]), np.array([2, 0])
    assert (
        pick(column, compose_index(outer, inner)).tolist()
        == pick(pick(column, outer), inner).tolist()
        == [80, 40]
    )
    assert pick(column, None) is column
    assert (
        compose_index(None, inner) is inner
        and compose_index(outer, None) is outer
        and compose_index(None, None) is None
    )


BATCHES = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=8), max_size=8)


def due_batch(due: list[int], first: int) -> Batch:
    """Make messages with one byte of payload, their number."""
    number = np.arange(first, first + len(due))
    zeros = np.zeros(len(due), np.int64)
    return Batch(zeros, zeros, number, np.ones(len(due), np.int32), number.astype(np.uint8))


@given(BATCHES, st.lists(st.integers(0, 45), max_size=10))
def test_delayed_messages_leave_when_they_are_due(
    batches: list[list[int]], looks: list[int]
) -> None:
    """Each once, none early, ordered by due time and then by arrival, with their payloads."""
    later, dues, first = DelayQueue(), list[int](), 0
    for one in batches:
        later.add(due_batch(one, first), np.array(one))
        dues += one
        first += len(one)
    left = list[int]()
    for now in [*sorted(looks), 50]:
        assert later.next_due() == min(
            (due for number, due in enumerate(dues) if number not in left), default=None
        )
        ready = later.release(now)
        for seq in () if ready is None else ready.seq.tolist():
            assert dues[seq] <= now
            left.append(seq)
        if ready is not None:
            assert (ready.payload == ready.seq).all()
        assert all(due > now for number, due in enumerate(dues) if number not in left)
    assert [dues[seq] for seq in left] == sorted(dues)
    assert sorted(left) == list(range(len(dues)))
    assert later.next_due() is None and later.release(10**18) is None


def test_the_rest_of_a_batch_keeps_its_place_among_equal_times() -> None:
    """Half of the first batch leaves while the second batch waits for the same time."""
    queue = DelayQueue()
    queue.add(due_batch([1, 9], 0), np.array([1, 9]))
    queue.add(due_batch([9], 2), np.array([9]))
    assert queue.release(1) is not None
    ready = queue.release(9)
    assert ready is not None
    assert ready.seq.tolist() == [1, 2]
