"""The number of messages due: exact for a rate in messages, bounded for one in bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.payloads import Bucket, PayloadChooser, build_pool
from pytest_loadtest.schedule.due_messages import DueMessages
from pytest_loadtest.schedule.pacing import NS, Pacer
from pytest_loadtest.schedule.schedules import ByteSchedule, Drawing


@given(rate=st.integers(1, 10**6), at=st.integers(0, 10 * NS))
def test_messages_of_a_rate_in_messages_are_counted_exactly(rate: int, at: int) -> None:
    due = DueMessages(Pacer.of(rate, 3))
    assert due.fewest(at) == due.most(at) == Pacer.of(rate, 3).total(at)


@given(rate=st.integers(1000, 10**6), change=st.integers(0, 3 * NS), at=st.integers(0, 4 * NS))
def test_the_messages_of_a_schedule_are_within_the_bounds(rate: int, change: int, at: int) -> None:
    """Also where the sizes change while load runs."""
    made = [
        [Bucket(name=str(size), low=size, high=size + 1, weight=weight) for size, weight in sizes]
        for sizes in ([(100, 90), (10_000, 10)], [(300, 1), (700, 2)])
    ]
    pool = build_pool(
        buckets=made[0], message_size=None, randomized=False, random_ratio=0.0, file_content=None, seed=1, checksum=False, max_size=None,
        more=made[1:],
    )  # fmt: skip
    pacer, streams = Pacer.of(rate, 3), range(3)
    drawing = Drawing(PayloadChooser(pool, 1, streams), streams, np.zeros(3, np.int64), pool.sizes)
    schedule = ByteSchedule(pacer, drawing, pool.table(0), streams)
    schedule.change(change, pool.table(1))
    due = DueMessages(pacer, ((0, pool.mix(0)), (change, pool.mix(1))))
    assert due.fewest(at) <= schedule.due(at - 1) <= due.most(at)


def test_a_large_message_is_the_only_one_due_while_it_lasts_however_often_the_sizes_change_meanwhile() -> (
    None
):
    """10 kB last for a second; the sizes change twice in the first 20 ms."""
    made = [[Bucket(name=str(size), low=size, high=size + 1, weight=1)] for size in (10_000, 100)]
    pool = build_pool(
        buckets=made[0], message_size=None, randomized=False, random_ratio=0.0, file_content=None, seed=1, checksum=False, max_size=None,
        more=made[1:],
    )  # fmt: skip
    later = [(at * NS // 100, pool.mix(1)) for at in (1, 2)]
    due = DueMessages(Pacer.of(10_000, 1), ((0, pool.mix(0)), *later))
    assert due.fewest(9 * NS // 10) == 1
