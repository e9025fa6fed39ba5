"""Bounds on sums of drawn sizes hold for the sizes that are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.payloads import Bucket, PayloadChooser, PayloadPool, build_pool
from pytest_loadtest.message.size_mix import SizeMix

if TYPE_CHECKING:
    from numpy.typing import NDArray

WEIGHTED = st.lists(
    st.tuples(st.integers(32, 1_000_000), st.integers(1, 100)),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row[0],
)


def pool_of(weighted: list[tuple[int, int]], seed: int = 1) -> PayloadPool:
    buckets = [
        Bucket(name=str(size), low=size, high=size + 1, weight=weight) for size, weight in weighted
    ]
    return build_pool(
        buckets=buckets, message_size=None, randomized=False, random_ratio=0.0, file_content=None, seed=seed, checksum=False, max_size=None
    )  # fmt: skip


def drawn(pool: PayloadPool, seed: int, count: int) -> NDArray[np.int64]:
    """Return the sizes of the first messages of a stream."""
    payload = PayloadChooser(pool, seed, range(1)).draw(np.zeros(count, np.int64), np.arange(count))
    return pool.sizes[payload].astype(np.int64)


@given(weighted=WEIGHTED, seed=st.integers(0, 1 << 40), room=st.integers(0, 10**8))
def test_as_many_messages_begin_within_a_room_as_the_bounds_allow(
    weighted: list[tuple[int, int]], seed: int, room: int
) -> None:
    pool = pool_of(weighted)
    mix = pool.mix(0)
    count = min(room // mix.smallest + 1, 20_000)
    begins = np.cumsum(drawn(pool, seed, count))
    if begins[-1] >= room:
        begun = int(np.searchsorted(np.concatenate([[0], begins]), room))
        assert mix.fewest_messages(room) <= begun <= mix.most_messages(room)


@given(weighted=WEIGHTED, seed=st.integers(0, 1 << 40), messages=st.integers(0, 20_000))
def test_the_bytes_of_messages_deviate_from_their_mean_as_the_bound_allows(
    weighted: list[tuple[int, int]], seed: int, messages: int
) -> None:
    pool = pool_of(weighted)
    mix = pool.mix(0)
    assert (
        abs(drawn(pool, seed, messages).sum() - messages * mix.mean)
        <= mix.deviation(messages) + 1e-3
    )


def test_messages_of_one_size_are_counted_exactly() -> None:
    mix = pool_of([(100, 1)]).mix(0)
    assert [(mix.fewest_messages(room), mix.most_messages(room)) for room in (0, 1, 100, 101, 10_000)] == [
        (0, 0), (1, 1), (1, 1), (2, 2), (100, 100),
    ]  # fmt: skip


def test_bounds_come_close_where_there_are_many_messages() -> None:
    """Within 2 % of ten million messages of a mix in which 2 % have nearly all bytes."""
    mix = pool_of([(384, 98), (786_432, 2)]).mix(0)
    room = round(10_000_000 * mix.mean)
    assert 9_800_000 < mix.fewest_messages(room) < 10_000_000 < mix.most_messages(room) < 10_200_000


def test_only_the_extremes_bound_sizes_that_the_topic_decides() -> None:
    mix = SizeMix(mean=550.0, variance=202_500.0, smallest=100, largest=1000, independent=False)
    assert (mix.fewest_messages(10_000), mix.most_messages(10_000), mix.deviation(5)) == (
        10,
        100,
        float("inf"),
    )


def test_a_mix_has_the_moments_of_other_weights_too() -> None:
    """Of the weights that a test gives while load runs, as of a profile's."""
    pool = pool_of([(100, 1), (300, 1)])
    assert pool.mix(0) == SizeMix(mean=200.0, variance=10_000.0, smallest=100, largest=300)
    assert pool.mix({"300": 5}) == SizeMix(mean=300.0, variance=0.0, smallest=300, largest=300)
    assert pool.mix({"100": 3, "300": 1}).mean == pytest.approx(150.0)
