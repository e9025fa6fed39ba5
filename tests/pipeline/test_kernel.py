"""What workers compute of rows, without Spark: every table and every word as the plainest counting has it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import generate, make_run, make_stages

from pytest_loadtest.errors import NoData
from pytest_loadtest.message.samples import KINDS, Status
from pytest_loadtest.metrics.histogram import hdr_index, join_total
from pytest_loadtest.pipeline import bitmaps, broadcasts, executor, kernel, tables

INT = st.integers(-(1 << 40), 1 << 40)
FAR = st.sampled_from([0, 1, 5, 1 << 30, -(1 << 40)])  # keys so far apart that they are sorted, not counted


@given(rows=st.lists(st.tuples(st.integers(-2, 3) | FAR, st.integers(0, 2), INT), min_size=1), few=st.sampled_from([0, tables.FEW]))
def test_groups_are_rows_by_equal_keys(rows: list[tuple[int, int, int]], few: int) -> None:
    """In the order of the keys; counted or sorted."""
    expected: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one, two, value in rows:
        expected[one, two].append(value)
    one, two, values = np.array(rows, np.int64).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "FEW", few)
        groups = tables.Groups({"one": one, "two": two})
    assert list(zip(*(column.tolist() for column in groups.keys.values()), strict=True)) == sorted(expected)
    found = zip(groups.n, groups.sum(values), groups.minimum(values), groups.maximum(values), strict=True)
    assert [tuple(map(int, row)) for row in found] == [(len(part), sum(part), min(part), max(part)) for _, part in sorted(expected.items())]


@given(values=st.lists(st.integers(-(1 << 62), 1 << 62), min_size=1), group=st.lists(st.integers(0, 2), min_size=1))
def test_sums_of_nanoseconds_never_overflow(values: list[int], group: list[int]) -> None:
    """Whatever a broken clock makes of them."""
    n = min(len(values), len(group))
    numbers, index = np.array(values[:n], np.int64), np.array(group[:n], np.int64)
    high, low = kernel._halves(tables.Groups({"group": index}), numbers)
    expected = Counter[int]()
    for key, value in zip(group[:n], values[:n], strict=True):
        expected[key] += value
    assert [join_total(int(h), int(lo)) for h, lo in zip(high, low, strict=True)] == [expected[key] for key in sorted(set(group[:n]))]


@given(st.lists(st.integers(0, 1 << 50), min_size=1))
def test_a_coarser_bucket_is_the_one_that_the_value_lies_in(values: list[int]) -> None:
    """The way over the finer bucket changes nothing."""
    numbers = np.array(values, np.int64)
    assert kernel._coarser(hdr_index(numbers)).tolist() == hdr_index(numbers, kernel.SERIES_BITS).tolist()


def bits(word: int, mask: int) -> set[int]:
    return {64 * word + i for i in range(64) if int(mask) >> i & 1}


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.booleans()), max_size=80))
def test_words_hold_every_number_and_every_mark(rows: list[tuple[int, bool, bool]]) -> None:
    """A mark that every number has, or none, costs nothing and is there all the same."""
    numbers = np.array([row[0] for row in rows], np.int64)
    marks = {f"mark_{i}": np.array([row[i] for row in rows], np.bool_) for i in (1, 2)}
    found = bitmaps.words(numbers, marks, ("rows", "all"))
    expected = {"all": {row[0] for row in rows}} | {f"mark_{i}": {row[0] for row in rows if row[i]} for i in (1, 2)}
    for name, numbers_of_it in expected.items():
        assert set().union(*(bits(word, mask) for word, mask in zip(found["word"], found[name], strict=True))) == numbers_of_it
    assert int(found["rows"].sum()) == len(rows) and len(set(found["word"].tolist())) == len(found["word"])


def test_words_are_named_by_subscription_stream_and_place() -> None:
    """Streams that begin in the middle of a word, or have no messages at all."""
    run = replace(make_run(streams=4, subscriptions=2), first=np.array([70, 0, 5, 64]), end=np.array([130, 0, 5, 65]))
    columns = dict.fromkeys(bitmaps.SENT_WORD_COLUMNS, np.zeros(3, np.int64))
    rows = columns | {"stream": np.array([0, 3, 0]), "seq": np.array([129, 64, 70]), "bucket": np.array([9, 2, 0])}
    words = bitmaps.Words(run)
    found = words.named(words.sent(rows))
    keys = list(zip(*(found[name].tolist() for name in ("subscription", "stream", "word", "offered", "plane_0", "plane_1")), strict=True))
    once = [(0, 1, 1 << 6, 0, 0), (0, 2, 1 << 1, 1 << 1, 1 << 1), (3, 1, 1, 0, 1)]
    assert keys == [(subscription, *word) for subscription in (0, 1) for word in once]


@pytest.mark.parametrize("planned", [200_000_000, 2**29 - 1, 2**29, 2**29 + 1, 2**31, 2**33])
@pytest.mark.parametrize("first", [0, 2**31 - 1, 2**33])
def test_words_of_more_messages_than_32_bits_count_keep_their_subscription(planned: int, first: int) -> None:
    """Four streams of so many messages each, and four subscriptions, in columns as wide as those of sample files."""
    run = make_run(streams=4, topics=1, subscriptions=4, first=first, end=np.full(4, first + planned))
    words = bitmaps.Words(run)
    seq = np.array([first + planned - 1, first + 2])
    rows = {column.name: np.zeros(8, column.type) for column in KINDS["received"]} | {"seq": np.tile(seq, 4)}
    rows |= {"subscription": np.repeat(np.arange(4, dtype=np.int32), 2), "stream": np.full(8, 3, np.int32)}
    for found in (words.named(words.copies(rows, 0, 1)), words.named(words.sent(sent_rows(3, seq)))):
        pairs = zip(*(found[name].tolist() for name in ("subscription", "stream", "word")), strict=True)
        assert sorted(pairs) == [(subscription, 3, int(word)) for subscription in range(4) for word in sorted(seq >> 6)]


def sent_rows(stream: int, seq: Any) -> dict[str, Any]:
    """As sample files have them."""
    rows = {column.name: np.zeros(len(seq), column.type) for column in KINDS["sent"]}
    return rows | {"seq": np.asarray(seq, np.int64), "stream": np.full(len(seq), stream, np.int32)}


@pytest.mark.parametrize("subscriptions", [65, 10_000_000])
def test_broadcasts_have_no_more_words_than_64_bits_number(subscriptions: int) -> None:
    """The last of them has a number, and where it would have none the run is refused."""
    planned = (1 << 62 - bitmaps.WORD_BITS - 4) // (-(-subscriptions // 64))
    run = make_run(streams=1, topics=1, subscriptions=subscriptions, end=np.array([planned]), broadcasts=True)
    rows = {column.name: np.zeros(1, column.type) for column in KINDS["received"]}
    rows |= {"seq": np.array([planned - 1]), "subscription": np.array([subscriptions - 1], np.int32)}
    (word,) = broadcasts.BroadcastWords(run).copies(rows, 0, 1)["word"].tolist()
    assert word == planned * -(-subscriptions // 64) - 1
    with pytest.raises(NoData, match="more than can be counted"):
        broadcasts.BroadcastWords(replace(run, end=np.array([2 * planned + 2])))


@pytest.mark.parametrize("first", [2**31 - 1, 2**33, 2**50])
def test_lost_broadcasts_are_named_by_sequences_of_any_size(first: int) -> None:
    """Of 100 000 subscriptions the last one lost the second of two messages."""
    run = make_run(streams=2, topics=1, subscriptions=100_000, messages=2, first=first, broadcasts=True)
    words = broadcasts.BroadcastWords(run)
    found = words.by_subscription({"subscription": np.array([99_999]), "stream": np.array([1]), "seq": np.array([first + 1])})
    assert [found[name].tolist() for name in ("subscription", "stream", "word")] == [[99_999], [1], [first + 1 >> 6]]


def merged(rows: dict[str, Any], kind: str, runs: list[Any], block: int) -> dict[str, Any]:
    """All tables of a kind, from blocks of rows."""
    how = {"sent": kernel.sent_tables, "received": kernel.received_tables}[kind]
    found: dict[str, list[tables.Table]] = defaultdict(list)
    for low in range(0, len(rows["seq"]), block):
        for run in runs:
            for name, table in how({column: values[low : low + block] for column, values in rows.items()}, run):
                found[name].append(executor.unpack(executor.pack(table)))
    whole = {name: {column: values.tolist() for column, values in tables.merge(name, parts).items()} for name, parts in found.items()}
    halves = [whole["histograms"].pop(half) for half in ("high", "low")]  # two of many ways to write the same sum
    whole["histograms"]["total"] = [join_total(high, low) for high, low in zip(*halves, strict=True)]
    return whole


@pytest.mark.parametrize("kind", ["sent", "received"])
def test_how_rows_are_cut_into_blocks_makes_no_difference(kind: str) -> None:
    """Merged tables are those of all rows at once."""
    run = make_run(messages=300, subscriptions=2)
    rows = dict(zip(("sent", "received"), generate(run, 7), strict=True))[kind]
    assert merged(rows, kind, [run], 37) == merged(rows, kind, [run], 1_000_000) != {}


def test_stages_that_share_out_the_messages_add_up_to_the_run() -> None:
    """No message of a stage is seen in another one."""
    run = make_run(messages=300)
    sent, _ = generate(run, 8)
    stages = list(make_stages(run, 8).values())
    parts = [replace(run, first=stages[0].first, end=stages[0].end), replace(run, first=stages[0].end)]
    together, whole = merged(sent, "sent", parts, 100), merged(sent, "sent", [run], 100)
    assert together == whole
    assert sum(whole["sent"]["n"]) == int((run.end - run.first).sum())
    assert whole["sent"]["status"] and set(whole["sent"]["status"]) <= set(map(int, Status))
