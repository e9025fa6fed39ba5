"""Words of broadcasts: one bit for each subscription."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runs import START, make_run

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.metrics.catalogue import COUNTED_LATENCIES
from pytest_loadtest.metrics.in_time import Begins
from pytest_loadtest.metrics.pauses import Pauses
from pytest_loadtest.pipeline import bitmaps, broadcasts
from pytest_loadtest.values.quantities import MILLISECOND, SECOND


@pytest.mark.parametrize("subscriptions", [65, 10_000_000])
def test_broadcasts_have_no_more_words_than_64_bits_number(subscriptions: int) -> None:
    """The last of them has a number, and where it would have none the run is refused."""
    planned = (1 << 62 - bitmaps.WORD_BITS - 4) // (-(-subscriptions // 64))
    run = make_run(
        streams=1, topics=1, subscriptions=subscriptions, end=np.array([planned]), broadcasts=True
    )
    rows = {column.name: np.zeros(1, column.type) for column in KINDS["received"]}
    rows |= {
        "seq": np.array([planned - 1]),
        "subscription": np.array([subscriptions - 1], np.int32),
    }
    (word,) = broadcasts.BroadcastWords(run).copies(rows, Begins(0))["word"].tolist()
    assert word == planned * -(-subscriptions // 64) - 1
    with pytest.raises(NoData, match="more than can be counted"):
        broadcasts.BroadcastWords(replace(run, end=np.array([2 * planned + 2])))


@pytest.mark.parametrize("first", [2**31 - 1, 2**33, 2**50])
def test_lost_broadcasts_are_named_by_sequences_of_any_size(first: int) -> None:
    """The last of 100 000 subscriptions lost the second of two messages."""
    run = make_run(
        streams=2, topics=1, subscriptions=100_000, messages=2, first=first, broadcasts=True
    )
    words = broadcasts.BroadcastWords(run)
    found = words.by_subscription(
        {"subscription": np.array([99_999]), "stream": np.array([1]), "seq": np.array([first + 1])}
    )
    assert [found[name].tolist() for name in ("subscription", "stream", "word")] == [
        [99_999],
        [1],
        [first + 1 >> 6],
    ]


@pytest.mark.parametrize("twice", [False, True])
def test_a_late_send_excuses_the_completion_of_a_broadcast_and_not_its_spread(twice: bool) -> None:
    """It delays all copies alike. Messages with second copies are counted by their first ones."""
    none = np.zeros(0, np.int64)
    due = np.array([START])
    idle = Pauses(begin=none, end=none, since=none, until=none, exact=True)
    run = make_run(
        streams=1,
        topics=1,
        subscriptions=70,
        messages=1,
        broadcasts=True,
        workers=("gw0", "gw1"),
        pauses=(replace(idle, due=due, sent=due + SECOND), idle),
        stream_workers=np.zeros(1, np.int64),
    )
    rows = {column.name: np.zeros(70, column.type) for column in KINDS["received"]}
    rows |= {
        "subscription": np.arange(70, dtype=np.int32),
        "intended": np.full(70, START),
        "received": START + SECOND + np.arange(70) * MILLISECOND,
        "worker": np.ones(70, np.int64),
    }
    words = broadcasts.BroadcastWords(run)
    if twice:
        tables = dict(words.completions(np.arange(70), rows))
    else:
        copies = words.merge([words.copies(rows, Begins(START))])
        tables = words.tables(copies, 10)
    names = list(COUNTED_LATENCIES)
    kinds = {names[number] for number in tables["histograms"]["what"].tolist()}
    assert kinds >= {"completion", "spread", "completion_without_own"}
    assert "spread_without_own" not in kinds
