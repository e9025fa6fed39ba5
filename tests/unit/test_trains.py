"""Messages that are paced by their bytes: as many bytes are due as the rate says, whatever sizes come."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.pacing import NS, Pacer
from pytest_loadtest.trains import ByteTrain, MessageTrain

SIZES = st.lists(st.integers(32, 100_000), min_size=1, max_size=50)


def train(rate: float, streams: int, stream: int, sizes: list[int]) -> tuple[ByteTrain, np.ndarray]:
    """A train whose messages have these sizes over and over, and the sizes of its first 20 000."""
    column = np.array(sizes, np.int32)
    drawn = column[np.arange(20_000) % len(column)]
    return ByteTrain(
        Pacer.of(rate, streams), stream, float(column.mean()), lambda first, count: column[np.arange(first, first + count) % len(column)]
    ), drawn


@given(sizes=SIZES, rate=st.integers(10_000, 10**9), streams=st.integers(1, 20), elapsed=st.integers(0, 3 * NS), data=st.data())
def test_what_is_due_is_what_the_rate_says(sizes: list[int], rate: int, streams: int, elapsed: int, data: st.DataObject) -> None:
    """A message is due when its stream's share of the bytes has reached its beginning, and no other is."""
    stream = data.draw(st.integers(0, streams - 1))
    made, drawn = train(rate, streams, stream, sizes)
    due = made.due(elapsed)
    assert due == 0 or made.offset(due - 1) <= elapsed
    assert made.offset(due) > elapsed
    if 0 < due < len(drawn):
        share = rate * elapsed / NS / streams
        begun = int(drawn[: due - 1].sum()) + stream * float(np.mean(sizes)) / streams
        assert begun <= share + 1
        assert begun + int(drawn[due - 1]) >= share - 1


@given(sizes=SIZES, cuts=st.lists(st.integers(1, 3000), min_size=1, max_size=6))
def test_offsets_do_not_depend_on_how_they_are_asked_for(sizes: list[int], cuts: list[int]) -> None:
    """Blocks of any length, with what is behind them forgotten, have the times of one long block."""
    made, _ = train(1e6, 3, 1, sizes)
    whole, _ = train(1e6, 3, 1, sizes)
    pieces, first = [], 0
    for count in cuts:
        made.forget(first)
        pieces += made.offsets(first, count).tolist()
        first += count
    assert pieces == whole.offsets(0, first).tolist()


def test_other_sizes_from_a_message_on() -> None:
    """What was due before stays; the first message of another size begins where the last one ended."""
    size = [100]
    made = ByteTrain(Pacer.of(1000, 1), 0, 100.0, lambda first, count: np.full(count, size[0], np.int32))
    before = made.offsets(0, 10).tolist()
    size[0] = 300
    made.resize(5)
    assert made.offsets(0, 6).tolist() == before[:6]
    assert np.diff(made.offsets(5, 4)).tolist() == [300_000_000] * 3


def test_messages_are_the_pacers() -> None:
    """Paced by number, a train is the pacer's own arithmetic."""
    pacer = Pacer.of(1000, 4)
    made = MessageTrain(pacer, 3)
    assert (made.due(NS), made.offset(2)) == (pacer.due_in_stream(NS, 3), pacer.offset(3, 2))
    assert made.offsets(0, 5).tolist() == pacer.offsets(3, 0, 5).tolist()
