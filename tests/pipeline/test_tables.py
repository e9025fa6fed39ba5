"""Tables of counts: grouped, merged, and counted from words."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.pipeline import bitmaps, tables

HIGH = -(1 << 63)
INT = st.integers(-(1 << 40), 1 << 40)
FAR = st.sampled_from(
    [0, 1, 5, 1 << 30, -(1 << 40)]
)  # keys so far apart that they are sorted, not counted


@given(
    rows=st.lists(st.tuples(st.integers(-2, 3) | FAR, st.integers(0, 2), INT), min_size=1),
    few=st.sampled_from([0, tables.FEW]),
)
def test_groups_are_rows_by_equal_keys(rows: list[tuple[int, int, int]], few: int) -> None:
    """They are in the order of the keys, whether counted or sorted."""
    expected: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one, two, value in rows:
        expected[one, two].append(value)
    one, two, values = np.array(rows, np.int64).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "FEW", few)
        groups = tables.Groups({"one": one, "two": two})
    assert list(zip(*(column.tolist() for column in groups.keys.values()), strict=True)) == sorted(
        expected
    )
    found = zip(
        groups.n, groups.sum(values), groups.minimum(values), groups.maximum(values), strict=True
    )
    assert [tuple(map(int, row)) for row in found] == [
        (len(part), sum(part), min(part), max(part)) for _, part in sorted(expected.items())
    ]


def words(*rows: dict[str, int]) -> tables.Table:
    """Words of deliveries; what is not given is 0."""
    rows = tuple({"expected": row.get("acked", 0), **row} for row in rows)
    columns = (
        "subscription",
        "stream",
        "word",
        *bitmaps.WORD_SUMS,
        *bitmaps.WORD_MASKS,
        "in_time",
        "copies_of_resent",
        "expected",
        "plane_0",
        "plane_1",
    )
    return {name: np.array([row.get(name, 0) for row in rows], np.int64) for name in columns}


def plain(table: tables.Table) -> list[dict[str, int]]:
    return [
        dict(zip(table, row, strict=True))
        for row in zip(*(column.tolist() for column in table.values()), strict=True)
    ]


def test_deliveries_are_counted_by_their_bits() -> None:
    """Late are those got and not punctual; sequence 63 makes a word negative and is a message like any."""
    one = {
        "offered_rows": 3,
        "offered": HIGH | 3,
        "acked": HIGH | 1,
        "copies": 3,
        "got": 3,
        "punctual": 1,
        "in_time": 2,
    }
    one |= {"resent": HIGH | 6, "copies_of_resent": 2}
    (found,) = plain(tables.delivery_totals(words(one, {**one, "word": 1})))
    assert found == {
        "subscription": 0, "stream": 0, "offered": 6, "copies": 6, "distinct": 6, "received": 4, "received_in_time": 2, "in_time_without_own": 0, "lost": 2,
        "late": 2,
        "resent": 6, "duplicates_of_resent": 2, "acked": 4,
    }  # fmt: skip


def test_deliveries_are_shared_out_to_buckets_by_the_bits_of_their_numbers() -> None:
    """Messages 0 to 3 are of the buckets 0 to 3, of which the run has three."""
    found = tables.bucket_totals(
        words(
            {
                "acked": 0b1111,
                "got": 0b1101,
                "in_time": 0b1001,
                "plane_0": 0b1010,
                "plane_1": 0b1100,
            }
        ),
        3,
    )
    assert plain(found) == [
        {
            "bucket": i,
            "received": received,
            "received_in_time": in_time,
            "in_time_without_own": 0,
            "lost": lost,
        }
        for i, (received, in_time, lost) in enumerate([(1, 1, 0), (0, 0, 1), (1, 0, 0)])
    ]


def test_the_first_ranges_are_found() -> None:
    """They are in the order of topic, subscription, stream, word; a range can span words."""
    rows = [
        {"stream": stream, "word": word, "acked": -1} for stream in (0, 1) for word in (4, 5, 9)
    ]
    found = plain(tables.lost_edges(words(*rows), np.array([1, 0]), 1))
    edges = [(row["topic"], row["stream"], row["word"], row["first"], row["last"]) for row in found]
    assert edges == [(0, 1, 4, 1, 0), (0, 1, 5, 0, HIGH)]


@given(
    lost=st.lists(st.integers(0, 63) | st.integers(0, 64 * 6 - 1), max_size=300),
    cuts=st.sets(st.integers(1, 11)),
    ranges=st.integers(1, 8),
)
def test_where_slots_end_makes_no_difference_to_lost_ranges(
    lost: list[int], cuts: set[int], ranges: int
) -> None:
    """Their number makes none either: edges form pairs, in two streams that begin and end with a word."""
    mask = np.zeros(2 * 6 * 64, np.bool_)
    mask[[number + 384 * stream for number in lost for stream in (0, 1)]] = True
    acked = np.packbits(mask, bitorder="little").view(np.int64)
    rows = words(
        *({"stream": i // 6, "word": i % 6, "acked": int(word)} for i, word in enumerate(acked))
    )
    slots = [
        {name: column[part] for name, column in rows.items()}
        for part in np.split(np.arange(12), sorted(cuts))
    ]
    topics = np.array([1, 0])
    found = tables.first_edges([tables.lost_edges(slot, topics, ranges) for slot in slots], ranges)
    whole = tables.lost_edges(rows, topics, ranges)
    assert plain(found) == plain(whole)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask[384:].astype(int), [0]])))[
        : 2 * ranges
    ]
    pairs = [
        (row["stream"], 64 * row["word"] + bit)
        for row in plain(whole)
        for bit in range(64)
        for edge in ("first", "last")
        if row[edge] >> bit & 1
    ]
    assert [at for stream, at in pairs if stream == 1][: len(edges)] == [
        int(edge) - i % 2 for i, edge in enumerate(edges)
    ]


def test_who_was_reached_in_several_slots_is_merged_by_bits() -> None:
    """A subscription counts once, however many slots have a message for it."""
    rows = [
        {"topic": 0, "group": 0, "mask": 0b011},
        {"topic": 0, "group": 1, "mask": HIGH},
        {"topic": 2, "group": 0, "mask": 1},
    ]
    again = [{"topic": 0, "group": 0, "mask": 0b110}, {"topic": 0, "group": 1, "mask": 1}]
    parts = [
        {
            name: np.array([row[name] for row in part], np.int64)
            for name in ("topic", "group", "mask")
        }
        for part in (rows, again)
    ]
    assert plain(tables.merge_rows("reached", parts)) == [
        {"topic": 0, "group": 0, "mask": 0b111},
        {"topic": 0, "group": 1, "mask": HIGH | 1},
        {"topic": 2, "group": 0, "mask": 1},
    ]


@given(numbers=st.sets(st.integers(0, 60)), most=st.integers(1, 8))
def test_ranges_have_all_their_numbers_and_as_few_others_as_they_may(
    numbers: set[int], most: int
) -> None:
    """Exactly these numbers, or one range where there would be too many."""
    ordered = np.array(sorted(numbers), np.int64)
    found = tables.ranges_of(ordered, most)
    inside = set(np.flatnonzero(tables.within(np.arange(61), found)).tolist())
    apart = sum(number - 1 not in numbers for number in numbers)
    assert inside == (numbers if apart <= most else set(range(min(numbers), max(numbers) + 1)))
    assert len(found["low"]) == (apart if apart <= most else 1)
