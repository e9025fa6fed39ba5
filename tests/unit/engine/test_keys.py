"""Keys as OMB's distributors give them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.engine.keys import KEYS, key_column


def test_no_keys() -> None:
    """There is no column then."""
    assert key_column("NO_KEY", 1, range(3))(np.zeros(2, np.int64), np.arange(2)) is None


def test_round_robin_is_the_sequence() -> None:
    """Whatever the stream: as OMB's distributor, which each of its producers has of its own."""
    keys = key_column("KEY_ROUND_ROBIN", 1, range(3))(np.array([0, 1, 2]), np.array([0, 9_999, 10_000]))
    assert keys is not None
    assert keys.tolist() == [0, 9_999, 0]


def test_random_keys_are_pinned() -> None:
    """They are part of what a seed means, and draws of their own: not those that choose payloads or fill them."""
    keys = key_column("RANDOM_NANO", 7, range(1, 5, 3))(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 10**9]))
    assert keys is not None
    assert keys.tolist() == [3774, 1115, 6048, 5803]


@given(seed=st.integers(0, 2**64 - 1), workers=st.integers(1, 5), streams=st.integers(1, 20))
def test_random_keys_do_not_depend_on_workers(seed: int, workers: int, streams: int) -> None:
    """A message has the same key however many workers share the streams."""
    whole = key_column("RANDOM_NANO", seed, range(streams))
    for rank in range(min(workers, streams)):
        mine = range(rank, streams, workers)
        index, seq = np.repeat(np.arange(len(mine)), 5), np.tile(np.arange(5), len(mine))
        keys, expected = key_column("RANDOM_NANO", seed, mine)(index, seq), whole(np.array(mine)[index], seq)
        assert keys is not None
        assert expected is not None
        assert keys.tolist() == expected.tolist()


def test_random_keys_are_even() -> None:
    """Each of the keys as often as any other, give or take chance, and no stream like another."""
    index, seq = np.repeat(np.arange(2), 1_000_000), np.tile(np.arange(1_000_000), 2)
    keys = key_column("RANDOM_NANO", 7, range(2))(index, seq)
    assert keys is not None
    counts = np.bincount(keys, minlength=KEYS)
    assert len(counts) == KEYS
    assert 100 < counts.min() <= counts.max() < 300  # 200 expected, standard deviation 14
    assert (keys[:1000] == keys[1_000_000:1_001_000]).sum() < 10
