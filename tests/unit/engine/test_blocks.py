"""A worker's messages: each is answered once, dropped or given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.base import Acks
from pytest_loadtest.engine.blocks import Block, Ledger
from pytest_loadtest.message.samples import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray


def block(row: int, size: int) -> Block:
    """Return a block of three streams in round robin."""
    rows = np.arange(row, row + size, dtype=np.int64)
    return Block(
        row, (rows % 3).astype(np.int32), rows // 3, rows * 10, np.zeros(size, np.uint16), None
    )


def acks(
    row: list[int] | NDArray[np.int64],
    status: Status = Status.ACKED,
    time: int = 99,
    resends: int | None = None,
) -> Acks:
    n = len(row)
    times, statuses = np.full(n, time, np.int64), np.full(n, status, np.int8)
    return Acks(
        np.array(row, np.int64),
        times,
        statuses,
        None if resends is None else np.full(n, resends, np.uint8),
    )


EVERY = slice(None)


def test_what_a_driver_writes_into_a_burst_is_in_its_block() -> None:
    b = block(0, 10)
    burst = b.burst(2, 5)
    burst.sent[:] = 7
    assert burst.row.tolist() == [2, 3, 4]
    assert b.sent.tolist() == [0, 0, 7, 7, 7, 0, 0, 0, 0, 0]


def test_only_the_first_answer_to_a_message_counts() -> None:
    """A failure after an acknowledgement changes nothing."""
    b = block(0, 3)
    assert b.answer(np.array([0, 1]), acks([0, 1], time=50), EVERY).tolist() == [Status.ACKED] * 2
    assert b.answer(np.array([1, 2]), acks([1, 2], Status.FAILED, 60), EVERY).tolist() == [
        Status.FAILED
    ]
    assert b.status.tolist() == [Status.ACKED, Status.ACKED, Status.FAILED]
    assert b.acked.tolist() == [50, 50, 0]
    assert b.open == 0


def test_resends_are_those_of_the_first_answer() -> None:
    b = block(0, 3)
    b.answer(np.array([0]), acks([0]), EVERY)
    b.answer(np.array([0, 1]), acks([0, 1], resends=255), EVERY)
    assert b.resends.tolist() == [0, 255, 0]


def test_a_message_without_an_answer_is_unknown_if_it_was_sent_and_dropped_if_not() -> None:
    b = block(0, 4)
    b.burst(0, 2).sent[:] = 5
    b.answer(np.array([0]), acks([0], time=9), EVERY)
    b.give_up()
    assert b.status.tolist() == [Status.ACKED, Status.UNKNOWN, Status.DROPPED, Status.DROPPED]
    assert b.open == 0


@given(st.data())
def test_every_answer_finds_its_message(data: st.DataObject) -> None:
    """Answers in any order and any portions complete every block once; answers to other rows are
    ignored.
    """
    first, size, blocks = (
        data.draw(st.integers(0, 1000)),
        data.draw(st.integers(1, 9)),
        data.draw(st.integers(1, 5)),
    )
    ledger = Ledger(first, size)
    made = [block(first + number * size, size) for number in range(blocks)]
    ledger.blocks = dict(enumerate(made))
    rows = data.draw(st.permutations(range(first, first + size * blocks)))
    strange = [first - 1, first + size * blocks]
    complete: list[Block] = []
    statuses = 0
    while rows:
        n = data.draw(st.integers(1, len(rows)))
        portion, rows = list(rows[:n]), rows[n:]
        done, status = ledger.answer(
            acks(portion + data.draw(st.lists(st.sampled_from(strange), max_size=2)))
        )
        complete += done
        statuses += sum(map(len, status))
    assert sorted(b.row for b in complete) == [b.row for b in made]
    assert statuses == size * blocks
    assert not ledger.blocks
    assert all((b.status == Status.ACKED).all() and (b.acked == 99).all() for b in made)


@given(st.data())
def test_rows_are_found_in_their_blocks(data: st.DataObject) -> None:
    """Ascending rows are split by block; the streams of rows in any order are returned."""
    first, size, blocks = (
        data.draw(st.integers(0, 1000)),
        data.draw(st.integers(1, 9)),
        data.draw(st.integers(1, 5)),
    )
    ledger = Ledger(first, size)
    ledger.blocks = {number: block(first + number * size, size) for number in range(blocks)}
    rows = np.array(
        sorted(data.draw(st.sets(st.integers(first, first + size * blocks - 1)))), np.int64
    )
    parts = list(ledger.parts(rows))
    assert all(len(index) and 0 <= index.min() <= index.max() < size for _, index, _ in parts)
    assert len({b.row for b, _, _ in parts}) == len(parts)
    assert all((b.row + index).tolist() == rows[part].tolist() for b, index, part in parts)
    assert sum(len(index) for _, index, _ in parts) == len(rows)
    if not len(rows):
        return
    given_answers = Acks(rows[::-1], rows[::-1] + 9, np.zeros(len(rows), np.int8))
    answers = [
        pair
        for streams, times in ledger.answers(given_answers)
        for pair in zip(streams.tolist(), times.tolist(), strict=True)
    ]
    assert sorted(answers) == sorted((row % 3, row + 9) for row in rows.tolist())


def test_messages_in_flight_are_those_sent_and_not_answered() -> None:
    ledger = Ledger(0, 3)
    ledger.blocks = {number: block(3 * number, 3) for number in range(2)}
    ledger.blocks[0].sent[:2] = ledger.blocks[1].sent[2] = 5
    ledger.answer(Acks(np.array([0]), np.array([7]), np.zeros(1, np.int8)))
    assert sorted(ledger.in_flight().tolist()) == [1, 2]
    ledger.blocks.clear()
    assert not len(ledger.in_flight())


@pytest.mark.parametrize(
    ("blocked", "status"),
    [(0, Status.DROPPED), (49, Status.DROPPED), (50, Status.BLOCKED), (100, Status.BLOCKED)],
)
def test_a_dropped_message_is_the_targets_if_it_waited_half_of_its_delay_for_a_full_window(
    blocked: int, status: Status
) -> None:
    made = block(0, 2)
    made.intended[:] = 1000, 1001
    made.drop(np.array([0]), np.array([blocked]), 1100)
    assert (made.status.tolist(), made.blocked.tolist(), made.open) == (
        [status, Status.PENDING],
        [blocked, 0],
        1,
    )
