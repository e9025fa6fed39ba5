"""Payloads where each topic has its own size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.by_topic import TopicChooser, chooser
from pytest_loadtest.message.payloads import Bucket, PayloadChooser, PayloadPool, build_pool

SIZES = st.lists(st.integers(32, 5000), min_size=1, max_size=8)


def pool_of(sizes: list[int], each: int = 1) -> PayloadPool:
    """:param sizes: by topic."""
    different = list(dict.fromkeys(sizes))
    pool = build_pool(
        buckets=[Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in different], message_size=None,
        randomized=True, random_ratio=1.0, file_content=None, seed=1, checksum=False, max_size=None, per_bucket=each,
    )  # fmt: skip
    return replace(pool, of_topics=tuple(map(different.index, sizes)))


@given(sizes=SIZES, each=st.integers(1, 4), producers=st.integers(1, 3), workers=st.integers(1, 3))
def test_every_message_has_its_topics_size(sizes: list[int], each: int, producers: int, workers: int) -> None:
    """Whichever worker has the stream; of several payloads of that size all are used, and always the same for a message."""
    pool, topics = pool_of(sizes, each), len(sizes)
    for rank in range(workers):
        streams = range(rank, topics * producers, workers)
        index, seq = np.repeat(np.arange(len(streams)), 200), np.tile(np.arange(200), len(streams))
        made = chooser(pool, 7, streams, topics)
        drawn = made.draw(index, seq, pool.choices[0])
        wanted = np.array(sizes)[np.arange(streams.start, streams.stop, streams.step) % topics]
        assert pool.sizes[drawn].tolist() == np.repeat(wanted, 200).tolist()
        assert drawn.dtype == np.uint16
        assert np.array_equal(made.draw(index[::-1], seq[::-1], pool.choices[0])[::-1], drawn)
        for at in range(len(streams)):
            assert len(np.unique(drawn[index == at])) == each


def test_topics_that_do_not_differ_draw_by_weight() -> None:
    """Nothing is different without a skew."""
    pool = pool_of([100, 200])
    assert isinstance(chooser(pool, 1, range(2), 2), TopicChooser)
    assert isinstance(chooser(replace(pool, of_topics=()), 1, range(2), 2), PayloadChooser)
