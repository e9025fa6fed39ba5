"""The accounting of messages in flight: the same result as counting one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar.in_flight import InFlight

STREAMS, PARTITIONS = 3, 2
BURST = st.lists(
    st.tuples(st.integers(0, STREAMS - 1), st.integers(0, PARTITIONS - 1), st.integers(0, 50)),
    max_size=25,
)
STEPS = st.lists(st.tuples(BURST, st.lists(st.integers(0, 100), max_size=12)), max_size=6)
WINDOWS = st.one_of(st.none(), st.integers(1, 10))
MEMORY = st.one_of(st.none(), st.integers(1, 400))


@dataclass
class Naive:
    """The same accounting, one message at a time."""

    window: int | None
    memory: int | None
    in_order: bool = True
    here: list[tuple[int, int]] = field(
        default_factory=list
    )  # place and size of each message in flight
    answered: dict[int, int] = field(default_factory=dict)

    def beyond(self, burst: list[tuple[int, int, int]]) -> list[int]:
        """Apply the windows first, then memory to the messages within them."""
        count = Counter(place for place, _ in self.here)
        used = sum(size for _, size in self.here)
        stopped: set[int] = set()
        refused, no_memory = [], False
        for position, (stream, partition, size) in enumerate(burst):
            place = stream * PARTITIONS + partition
            if stream in stopped or (self.window is not None and count[place] >= self.window):
                if self.in_order:
                    stopped.add(stream)
                refused.append(position)
                continue
            count[place] += 1
            no_memory = no_memory or (self.memory is not None and used >= self.memory)
            if no_memory:
                refused.append(position)
            used += size
        return refused

    def idle(self, taken: list[tuple[int, int, int]]) -> list[int]:
        busy = {place // PARTITIONS for place, _ in self.here}
        found = []
        for stream, _, _ in taken:
            found.append(0 if stream in busy else self.answered.get(stream, 0))
            busy.add(stream)
        return found


def arrays(burst: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    stream, partition, size = np.array(burst, np.int64).reshape(-1, 3).T
    return stream, stream * PARTITIONS + partition, size.astype(np.int32)


@given(steps=STEPS, window=WINDOWS, memory=MEMORY, in_order=st.booleans())
def test_the_result_is_that_of_counting_one_by_one(
    steps: list[tuple[list[tuple[int, int, int]], list[int]]],
    window: int | None,
    memory: int | None,
    in_order: bool,
) -> None:
    """In bursts and answers of any sequence: refused positions, idle times and busy places."""
    real, naive, now = (
        InFlight(STREAMS, PARTITIONS, window, memory, in_order=in_order),
        Naive(window, memory, in_order),
        0,
    )
    for burst, answers in steps:
        refused = real.beyond(*arrays(burst)).tolist()
        assert refused == naive.beyond(burst)
        taken = [message for position, message in enumerate(burst) if position not in refused]
        if taken:
            stream, place, size = arrays(taken)
            assert np.broadcast_to(real.idle_since(stream), len(stream)).tolist() == naive.idle(
                taken
            )
            real.add(stream, place, int(size.sum()))
            naive.here += zip(place.tolist(), size.tolist(), strict=True)
        now += 100
        going = [naive.here.pop(number % len(naive.here)) for number in answers if naive.here]
        if going:
            for time, (place, each) in enumerate(going, now):
                real.answered(place, 1, time, each)
                naive.answered[place // PARTITIONS] = time
        assert real.parts() == sorted({place for place, _ in naive.here})


@given(burst=BURST, before=BURST, window=WINDOWS, memory=MEMORY)
def test_refused_messages_are_a_suffix_of_each_stream(
    burst: list[tuple[int, int, int]],
    before: list[tuple[int, int, int]],
    window: int | None,
    memory: int | None,
) -> None:
    """No message overtakes one of its own stream, at another partition either; positions ascend."""
    real = InFlight(STREAMS, PARTITIONS, window, memory, in_order=True)
    stream, place, size = arrays(before)
    keep = np.setdiff1d(np.arange(len(before)), real.beyond(stream, place, size))
    real.add(stream[keep], place[keep], int(size[keep].sum()))
    refused = real.beyond(*arrays(burst))
    assert refused.tolist() == sorted(set(refused.tolist()))
    for number in range(STREAMS):
        mine = [
            position in set(refused.tolist())
            for position, message in enumerate(burst)
            if message[0] == number
        ]
        assert mine == sorted(mine)


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_a_message_is_sent_while_there_is_any_memory(size: int) -> None:
    """One larger than the whole limit is sent alone: otherwise it could never be sent (PIP-74)."""
    real = InFlight(1, 1, None, 100, in_order=True)
    zeros = np.zeros(3, np.int64)
    taken = max(-(-100 // size), 1)
    assert real.beyond(zeros, zeros, np.full(3, size, np.int32)).tolist() == list(
        range(min(taken, 3), 3)
    )


def test_a_batch_gives_back_the_room_of_all_its_messages() -> None:
    real = InFlight(1, 1, 3, 30, in_order=True)
    zeros, size = np.zeros(3, np.int64), np.full(3, 10, np.int32)
    real.add(zeros, zeros, 30)
    assert real.beyond(zeros, zeros, size).tolist() == [0, 1, 2]
    real.answered(0, 3, 77, 30)
    assert real.beyond(zeros, zeros, size).tolist() == [] == real.parts()
    assert list(real.idle_since(zeros)) == [77, 0, 0]


def test_answers_of_single_messages_may_come_in_any_order() -> None:
    """Each gives back its place in the window; the stream is idle since the latest of them."""
    flight = InFlight(streams=1, partitions=2, window=1, memory=100, in_order=True)
    stream, place = np.zeros(2, np.int64), np.array([0, 1])
    flight.add(stream, place, 80)
    assert flight.beyond(stream, place, np.array([1, 1])).tolist() == [0, 1]
    flight.answered_each(place, np.array([9, 4]), 80)
    assert flight.beyond(stream, place, np.array([60, 60])).tolist() == []
    assert np.asarray(flight.idle_since(stream)).tolist() == [9, 0]
    assert flight.parts() == []
