"""What streams have is the same as numbers and as columns."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.schedule.counts import StreamCounts
from pytest_loadtest.schedule.pacing import Pacer

TOTALS = st.lists(st.integers(0, 1000), max_size=6)


@given(streams=st.integers(1, 40), totals=TOTALS, counted=st.booleans())
def test_counts_are_what_was_dealt(streams: int, totals: list[int], counted: bool) -> None:
    """Each phase's messages are dealt as the pacer deals them; what was counted before comes on top."""
    before = np.arange(streams) * 7 % 11
    counts = StreamCounts(streams=streams, counted=before if counted else None)
    for total in totals:
        counts = counts.plus(total)
    pacer = Pacer.of(1.0, streams)
    expected = [sum(pacer.share(total, stream) for total in totals) + counted * int(before[stream]) for stream in range(streams)]
    assert counts.column().tolist() == expected
    assert counts.column().dtype == np.int64
    assert counts.total == sum(expected)


@given(streams=st.integers(1, 40), totals=TOTALS, workers=st.integers(1, 45), counted=st.booleans())
def test_a_workers_share_is_a_part_of_the_column(streams: int, totals: list[int], workers: int, counted: bool) -> None:
    """Also of streams in any order, some of them several times."""
    counts = StreamCounts(streams=streams, counted=np.arange(streams) * 3 if counted else None)
    for total in totals:
        counts = counts.plus(total)
    whole = counts.column()
    for rank in range(workers):
        assert np.array_equal(counts.of(range(rank, streams, workers)), whole[rank::workers])
    some = np.array([streams - 1, 0, 0, streams // 2], np.int32)
    assert np.array_equal(counts.of(some), whole[some])


def test_nobody_sends() -> None:
    """A run without producers has no counts."""
    counts = StreamCounts(streams=0).plus(0)
    assert (counts.total, len(counts.column()), len(counts.of(range(0)))) == (0, 0, 0)


def test_dealt_counts_are_a_few_numbers() -> None:
    """However many streams: they go to every worker."""
    counts = StreamCounts(streams=20_000_000).plus(30_000_001).plus(7)
    assert len(pickle.dumps(counts)) < 500
    assert counts.of(range(0, 20_000_000, 5_000_000)).tolist() == [3, 2, 2, 1]
    assert counts.total == 30_000_008
