"""A stream's messages: each is answered once, dropped or given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers._base import Acks
from pytest_loadtest.engine.blocks import Block, Ledger
from pytest_loadtest.samples import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray


def block(first: int, size: int, first_seq: int = 0) -> Block:
    seq = np.arange(first_seq + first, first_seq + first + size, dtype=np.int64)
    return Block(first, seq, seq * 10, np.zeros(size, np.uint16), None)


def acks(seq: list[int] | NDArray[np.int64], status: Status = Status.ACKED, time: int = 99) -> Acks:
    n = len(seq)
    return Acks(seq=np.array(seq, np.int64), time=np.full(n, time, np.int64), status=np.full(n, status, np.int8))


def test_a_burst_is_a_view() -> None:
    """What a driver writes into a burst's column is what gets recorded."""
    b = block(0, 10)
    b.burst(2, 5).sent[:] = 7
    assert b.sent.tolist() == [0, 0, 7, 7, 7, 0, 0, 0, 0, 0]


def test_the_first_answer_holds() -> None:
    """A refusal after an acknowledgement changes nothing, and is not counted twice."""
    b = block(0, 3)
    b.answer(np.array([0, 1]), np.array([50, 51]), np.full(2, Status.ACKED, np.int8))
    b.answer(np.array([1, 2]), np.array([60, 61]), np.full(2, Status.FAILED, np.int8))
    assert b.status.tolist() == [Status.ACKED, Status.ACKED, Status.FAILED]
    assert b.acked.tolist() == [50, 51, 0]
    assert b.open == 0


def test_what_never_got_an_answer() -> None:
    """Handed over and unanswered is unknown; never handed over is dropped."""
    b = block(0, 4)
    b.burst(0, 2).sent[:] = 5
    b.answer(np.array([0]), np.array([9]), np.full(1, Status.ACKED, np.int8))
    b.give_up()
    assert b.status.tolist() == [Status.ACKED, Status.UNKNOWN, Status.DROPPED, Status.DROPPED]
    assert b.open == 0


@given(st.data())
def test_every_answer_finds_its_message(data: st.DataObject) -> None:
    """Answers in any order and any portions complete every block once; those of an earlier phase or of nobody are ignored."""
    first_seq, size, blocks = data.draw(st.integers(0, 1000)), data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    ledger = Ledger(first_seq, size)
    made = [block(number * size, size, first_seq) for number in range(blocks)]
    ledger.blocks = dict(enumerate(made))
    seqs = data.draw(st.permutations(range(first_seq, first_seq + size * blocks)))
    strange = [first_seq - 1, first_seq + size * blocks]
    complete: list[Block] = []
    while seqs:
        n = data.draw(st.integers(1, len(seqs)))
        portion, seqs = list(seqs[:n]), seqs[n:]
        complete += ledger.answer(acks(portion + data.draw(st.lists(st.sampled_from(strange), max_size=2))))
    assert sorted(b.first for b in complete) == [b.first for b in made]
    assert not ledger.blocks
    assert all((b.status == Status.ACKED).all() and (b.acked == 99).all() for b in made)
