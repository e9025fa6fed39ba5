"""What words tell of deliveries, without Spark."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import Rows, far_rows, generate, make_run

from pytest_loadtest.message.samples import KINDS
from pytest_loadtest.pipeline import bitmaps, broadcasts, executor, tables

HIGH = -(1 << 63)


def words(*rows: dict[str, int]) -> tables.Table:
    """Words of deliveries; what is not given is 0."""
    rows = tuple({"expected": row.get("acked", 0), **row} for row in rows)
    columns = (
        "subscription",
        "stream",
        "word",
        *bitmaps.WORD_SUMS,
        *bitmaps.WORD_MASKS,
        "copies_of_resent",
        "expected",
        "plane_0",
        "plane_1",
    )
    return {name: np.array([row.get(name, 0) for row in rows], np.int64) for name in columns}


def plain(table: tables.Table) -> list[dict[str, int]]:
    return [dict(zip(table, row, strict=True)) for row in zip(*(column.tolist() for column in table.values()), strict=True)]


def test_deliveries_are_counted_by_their_bits() -> None:
    """Late are those got and not punctual; sequence 63 makes a word negative and is a message like any."""
    one = {"offered_rows": 3, "offered": HIGH | 3, "acked": HIGH | 1, "copies": 3, "got": 3, "punctual": 1, "in_time": 2}
    one |= {"resent": HIGH | 6, "copies_of_resent": 2}
    (found,) = plain(tables.delivery_totals(words(one, {**one, "word": 1})))
    assert found == {
        "subscription": 0, "stream": 0, "offered": 6, "copies": 6, "distinct": 6, "received": 4, "received_in_time": 2, "lost": 2, "late": 2,
        "resent": 6, "duplicates_of_resent": 2, "acked": 4,
    }  # fmt: skip


def test_deliveries_are_shared_out_to_buckets_by_the_bits_of_their_numbers() -> None:
    """Messages 0 to 3 are of the buckets 0 to 3, of which the run has three."""
    found = tables.bucket_totals(words({"acked": 0b1111, "got": 0b1101, "in_time": 0b1001, "plane_0": 0b1010, "plane_1": 0b1100}), 3)
    assert plain(found) == [
        {"bucket": i, "received": received, "received_in_time": in_time, "lost": lost}
        for i, (received, in_time, lost) in enumerate([(1, 1, 0), (0, 0, 1), (1, 0, 0)])
    ]


def test_the_first_ranges_are_found() -> None:
    """In the order of topic, subscription, stream, word; a range may go over words."""
    rows = [{"stream": stream, "word": word, "acked": -1} for stream in (0, 1) for word in (4, 5, 9)]
    found = plain(tables.lost_edges(words(*rows), np.array([1, 0]), 1))
    edges = [(row["topic"], row["stream"], row["word"], row["first"], row["last"]) for row in found]
    assert edges == [(0, 1, 4, 1, 0), (0, 1, 5, 0, HIGH)]


@given(
    lost=st.lists(st.integers(0, 63) | st.integers(0, 64 * 6 - 1), max_size=300), cuts=st.sets(st.integers(1, 11)), ranges=st.integers(1, 8)
)
def test_where_slots_end_makes_no_difference_to_lost_ranges(lost: list[int], cuts: set[int], ranges: int) -> None:
    """Nor does how many there are: edges that pair up, of two streams that begin and end with a word."""
    mask = np.zeros(2 * 6 * 64, np.bool_)
    mask[[number + 384 * stream for number in lost for stream in (0, 1)]] = True
    acked = np.packbits(mask, bitorder="little").view(np.int64)
    rows = words(*({"stream": i // 6, "word": i % 6, "acked": int(word)} for i, word in enumerate(acked)))
    slots = [{name: column[part] for name, column in rows.items()} for part in np.split(np.arange(12), sorted(cuts))]
    topics = np.array([1, 0])
    found = tables.first_edges([tables.lost_edges(slot, topics, ranges) for slot in slots], ranges)
    whole = tables.lost_edges(rows, topics, ranges)
    assert plain(found) == plain(whole)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask[384:].astype(int), [0]])))[: 2 * ranges]
    pairs = [
        (row["stream"], 64 * row["word"] + bit)
        for row in plain(whole)
        for bit in range(64)
        for edge in ("first", "last")
        if row[edge] >> bit & 1
    ]
    assert [at for stream, at in pairs if stream == 1][: len(edges)] == [int(edge) - i % 2 for i, edge in enumerate(edges)]


@pytest.mark.parametrize("seed", [3, 5])
@pytest.mark.parametrize("slot_bits", [0, 2, 17])
def test_words_are_the_same_whatever_the_slots(monkeypatch: pytest.MonkeyPatch, slot_bits: int, seed: int) -> None:
    """Cut into blocks and slots and merged again, twice: as of all rows at once."""
    run = make_run(messages=300, subscriptions=2, first=7)
    sent, received = generate(run, seed)
    found = bitmaps.Words(run)
    tables_of = [found.sent(sent), found.copies(received, run.start, run.start + run.duration)]
    whole = found.merge(tables_of)
    monkeypatch.setattr(bitmaps, "SLOT_BITS", slot_bits)
    blocks = [
        found.compact([table])
        for low in range(0, 4000, 170)
        for rows, how in ((sent, found.sent), (received, lambda part: found.copies(part, run.start, run.start + run.duration)))
        if len((table := how({name: column[low : low + 170] for name, column in rows.items()}))["word"])
    ]
    slots: dict[int, list[tables.Table]] = {}
    for block in blocks:
        for number, part in found.slots(block):
            slots.setdefault(number, []).append(part)
    merged = [found.merge(slots[number]) for number in sorted(slots)]
    assert {name: np.concatenate([part[name] for part in merged]).tolist() for name in whole} == {
        name: whole[name].tolist() for name in whole
    }


COPIES = st.lists(st.sampled_from([0, 1, 62, 63, 64, 65, 130]) | st.integers(0, 200), max_size=60)


@given(blocks=st.lists(COPIES, max_size=6), resent=st.sets(st.integers(0, 200)), cuts=st.sets(st.integers(1, 6)))
def test_copies_of_resent_messages_are_told_from_the_others(blocks: list[list[int]], resent: set[int], cuts: set[int]) -> None:
    """However often each came, in which block, and which blocks were gathered before they met: one by one, and never more than that."""
    run = make_run(streams=1, topics=1, messages=201)
    found = bitmaps.Words(run)
    sent = {name: np.zeros(201, np.int64) for name in bitmaps.SENT_WORD_COLUMNS}
    sent |= {"seq": np.arange(201), "resends": np.isin(np.arange(201), list(resent)).astype(np.int64)}
    parts = [found.sent(sent)]
    for seqs in blocks:
        rows = {name: np.zeros(len(seqs), np.int64) for name in bitmaps.RECEIVED_WORD_COLUMNS}
        parts.append(found.copies(rows | {"seq": np.array(seqs, np.int64)}, 0, 1))
    gathered = [found.compact([parts[i] for i in group]) for group in np.split(np.arange(len(parts)), sorted(cuts)) if len(group)]
    (total,) = plain(tables.delivery_totals(found.named(found.merge(gathered))))
    times = Counter(seq for seqs in blocks for seq in seqs)
    assert (total["copies"], total["received"]) == (times.total(), len(times))
    assert (total["resent"], total["duplicates_of_resent"]) == (len(resent), sum(times[seq] - 1 for seq in resent if times[seq]))
    assert sum(len(table["word"]) for table in gathered) <= times.total() + 4 * len(gathered)


def test_what_nobody_sent_again_costs_nothing() -> None:
    """No column; and a word whose messages came once is one row, from however many blocks."""
    run = make_run(streams=1, topics=1, messages=64)
    found = bitmaps.Words(run)
    sent = {name: np.zeros(64, np.int64) for name in bitmaps.SENT_WORD_COLUMNS} | {"seq": np.arange(64)}
    copies = {name: np.zeros(64, np.int64) for name in bitmaps.RECEIVED_WORD_COLUMNS} | {"seq": np.arange(64)}
    halves = [found.copies({name: column[half] for name, column in copies.items()}, 0, 1) for half in (slice(32), slice(32, 64))]
    table = found.compact([found.sent(sent), *halves])
    assert "resent" not in table and len(table["word"]) == 1
    assert "offered" not in found.compact(halves)


FAR = [800_000_000, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, 1 << 33]
"""Numbers of messages around what 32 bits hold, and far beyond; 800 M times three of four subscriptions are beyond too."""


def columns_of_files(rows: Rows, kind: str) -> Rows:
    """The rows with the types that sample files have, as Spark's workers read them."""
    return {column.name: rows[column.name].astype(column.type) for column in KINDS[kind]}


@pytest.mark.parametrize("planned", FAR)
def test_words_number_messages_beyond_32_bits(planned: int) -> None:
    """Each subscription got the last messages of a long run, and lost none of them."""
    end = np.array([planned], np.int64)
    run = dataclasses.replace(make_run(streams=1, topics=1, subscriptions=4, messages=planned), first=end * 0, end=end)
    sent, received = far_rows(run, last=100)
    words = bitmaps.Words(run)
    merged = words.merge([words.sent(columns_of_files(sent, "sent")), words.copies(columns_of_files(received, "received"), 0, 1 << 62)])
    found = [plain(tables.delivery_totals(words.named(slot))) for _, slot in words.slots(merged)]
    told = [(row["subscription"], row["received"], row["lost"]) for slot in found for row in slot]
    assert [(s, sum(r for at, r, _ in told if at == s), sum(n for at, _, n in told if at == s)) for s in range(4)] == [
        (s, 100, 0) for s in range(4)
    ]


def test_more_bytes_than_a_column_of_spark_holds_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets of 32 bits would wrap around and give one table the bytes of another."""
    monkeypatch.setattr(executor, "LARGEST", 10)
    with pytest.raises(ValueError, match="12 bytes of tables are more than an Arrow column holds, 10"):
        executor._column([b"123456", b"123456"], "binary")


def test_who_was_reached_in_several_slots_is_merged_by_bits() -> None:
    """A subscription counts once, however many slots have a message for it."""
    rows = [{"topic": 0, "group": 0, "mask": 0b011}, {"topic": 0, "group": 1, "mask": HIGH}, {"topic": 2, "group": 0, "mask": 1}]
    again = [{"topic": 0, "group": 0, "mask": 0b110}, {"topic": 0, "group": 1, "mask": 1}]
    parts = [{name: np.array([row[name] for row in part], np.int64) for name in ("topic", "group", "mask")} for part in (rows, again)]
    assert plain(tables.merge("reached", parts)) == [
        {"topic": 0, "group": 0, "mask": 0b111},
        {"topic": 0, "group": 1, "mask": HIGH | 1},
        {"topic": 2, "group": 0, "mask": 1},
    ]


@given(numbers=st.sets(st.integers(0, 60)), most=st.integers(1, 8))
def test_ranges_have_all_their_numbers_and_as_few_others_as_they_may(numbers: set[int], most: int) -> None:
    """Exactly these numbers, or one range where there would be too many."""
    ordered = np.array(sorted(numbers), np.int64)
    found = tables.ranges_of(ordered, most)
    inside = set(np.flatnonzero(tables.within(np.arange(61), found)).tolist())
    apart = sum(number - 1 not in numbers for number in numbers)
    assert inside == (numbers if apart <= most else set(range(min(numbers), max(numbers) + 1)))
    assert len(found["low"]) == (apart if apart <= most else 1)


def test_words_with_a_message_that_came_twice_are_repeated() -> None:
    """In one block or in two, and no word beside it; of a broadcast all words of the message."""
    run = make_run(streams=1, topics=1, subscriptions=130, messages=200)
    rows = {name: np.zeros(4, np.int64) for name in (*bitmaps.RECEIVED_WORD_COLUMNS, "intended")} | {"seq": np.array([0, 63, 64, 128])}
    for how, expected in ((bitmaps.Words(run), [(1, 1)]), (broadcasts.BroadcastWords(run), [(64 * 3, 64 * 3 + 2)])):
        blocks = [how.copies(rows, 0, 1), how.copies({name: column[2:3] for name, column in rows.items()}, 0, 1)]
        for parts in (blocks, [how.compact(blocks)]):
            found = how.repeated(how.merge(parts))
            assert list(zip(found["low"].tolist(), found["high"].tolist(), strict=True)) == expected
        assert not len(how.repeated(how.merge(blocks[:1]))["low"])
