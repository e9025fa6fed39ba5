"""Words of 64 messages: which were offered, acknowledged and received."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import Rows, far_rows, generate, make_run

from pytest_loadtest.message.samples import KINDS, Flag
from pytest_loadtest.metrics.in_time import Begins
from pytest_loadtest.pipeline import bitmaps, broadcasts, tables


@pytest.mark.parametrize("seed", [3, 5])
@pytest.mark.parametrize("slot_bits", [0, 2, 17])
def test_words_are_the_same_whatever_the_slots(
    monkeypatch: pytest.MonkeyPatch, slot_bits: int, seed: int
) -> None:
    """Cut into blocks and slots and merged again, twice: as of all rows at once."""
    run = make_run(messages=300, subscriptions=2, first=7)
    sent, received = generate(run, seed)
    found = bitmaps.Words(run)
    tables_of = [found.sent(sent), found.copies(received, Begins(run.start))]
    whole = found.merge(tables_of)
    monkeypatch.setattr(bitmaps, "SLOT_BITS", slot_bits)
    blocks = [
        found.compact([table])
        for low in range(0, 4000, 170)
        for rows, how in (
            (sent, found.sent),
            (received, lambda part: found.copies(part, Begins(run.start))),
        )
        if len(
            (table := how({name: column[low : low + 170] for name, column in rows.items()}))["word"]
        )
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


@given(
    blocks=st.lists(COPIES, max_size=6),
    resent=st.sets(st.integers(0, 200)),
    cuts=st.sets(st.integers(1, 6)),
)
def test_copies_of_resent_messages_are_counted_separately(
    blocks: list[list[int]], resent: set[int], cuts: set[int]
) -> None:
    """However often each came, in which block, and which blocks were gathered before they met: one by one, and never more than that."""
    run = make_run(streams=1, topics=1, messages=201)
    found = bitmaps.Words(run)
    sent = {name: np.zeros(201, np.int64) for name in bitmaps.SENT_WORD_COLUMNS}
    sent |= {
        "seq": np.arange(201),
        "resends": np.isin(np.arange(201), list(resent)).astype(np.int64),
    }
    parts = [found.sent(sent)]
    for seqs in blocks:
        rows = {name: np.zeros(len(seqs), np.int64) for name in bitmaps.RECEIVED_WORD_COLUMNS}
        parts.append(found.copies(rows | {"seq": np.array(seqs, np.int64)}, Begins(0)))
    gathered = [
        found.compact([parts[i] for i in group])
        for group in np.split(np.arange(len(parts)), sorted(cuts))
        if len(group)
    ]
    total = {
        name: int(column[0])
        for name, column in tables.delivery_totals(found.named(found.merge(gathered))).items()
    }
    times = Counter(seq for seqs in blocks for seq in seqs)
    assert (total["copies"], total["received"]) == (times.total(), len(times))
    assert (total["resent"], total["duplicates_of_resent"]) == (
        len(resent),
        sum(times[seq] - 1 for seq in resent if times[seq]),
    )
    assert sum(len(table["word"]) for table in gathered) <= times.total() + 4 * len(gathered)


def test_messages_sent_once_cost_no_column() -> None:
    """No column; and a word whose messages came once is one row, from however many blocks."""
    run = make_run(streams=1, topics=1, messages=64)
    found = bitmaps.Words(run)
    sent = {name: np.zeros(64, np.int64) for name in bitmaps.SENT_WORD_COLUMNS} | {
        "seq": np.arange(64)
    }
    copies = {name: np.zeros(64, np.int64) for name in bitmaps.RECEIVED_WORD_COLUMNS} | {
        "seq": np.arange(64)
    }
    halves = [
        found.copies({name: column[half] for name, column in copies.items()}, Begins(0))
        for half in (slice(32), slice(32, 64))
    ]
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
    run = dataclasses.replace(
        make_run(streams=1, topics=1, subscriptions=4, messages=planned), first=end * 0, end=end
    )
    sent, received = far_rows(run, last=100)
    words = bitmaps.Words(run)
    merged = words.merge(
        [
            words.sent(columns_of_files(sent, "sent")),
            words.copies(columns_of_files(received, "received"), Begins(0)),
        ]
    )
    found = [tables.delivery_totals(words.named(slot)) for _, slot in words.slots(merged)]
    told = [
        row
        for slot in found
        for row in zip(
            *(slot[name].tolist() for name in ("subscription", "received", "lost")), strict=True
        )
    ]
    assert [
        (s, sum(r for at, r, _ in told if at == s), sum(n for at, _, n in told if at == s))
        for s in range(4)
    ] == [(s, 100, 0) for s in range(4)]


def test_words_with_a_message_that_came_twice_are_repeated() -> None:
    """Only that word is, from one block or two; in a broadcast all words of the message are."""
    run = make_run(streams=1, topics=1, subscriptions=130, messages=200)
    rows = {
        name: np.zeros(4, np.int64) for name in (*bitmaps.RECEIVED_WORD_COLUMNS, "intended")
    } | {"seq": np.array([0, 63, 64, 128])}
    for how, expected in (
        (bitmaps.Words(run), [(1, 1)]),
        (broadcasts.BroadcastWords(run), [(64 * 3, 64 * 3 + 2)]),
    ):
        blocks = [
            how.copies(rows, Begins(0)),
            how.copies({name: column[2:3] for name, column in rows.items()}, Begins(0)),
        ]
        for parts in (blocks, [how.compact(blocks)]):
            found = how.repeated(how.merge(parts))
            assert list(zip(found["low"].tolist(), found["high"].tolist(), strict=True)) == expected
        assert not len(how.repeated(how.merge(blocks[:1]))["low"])


def bits(word: int, mask: int) -> set[int]:
    return {64 * word + i for i in range(64) if int(mask) >> i & 1}


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.booleans()), max_size=80))
def test_words_hold_every_number_and_every_mark(rows: list[tuple[int, bool, bool]]) -> None:
    """A mark that every number has, or none, costs nothing and is there all the same."""
    numbers = np.array([row[0] for row in rows], np.int64)
    marks = {f"mark_{i}": np.array([row[i] for row in rows], np.bool_) for i in (1, 2)}
    found = bitmaps.words(numbers, marks, ("rows", "all"))
    expected = {"all": {row[0] for row in rows}} | {
        f"mark_{i}": {row[0] for row in rows if row[i]} for i in (1, 2)
    }
    for name, numbers_of_it in expected.items():
        assert (
            set().union(
                *(bits(word, mask) for word, mask in zip(found["word"], found[name], strict=True))
            )
            == numbers_of_it
        )
    assert int(found["rows"].sum()) == len(rows) and len(set(found["word"].tolist())) == len(
        found["word"]
    )


def test_words_are_named_by_subscription_stream_and_place() -> None:
    """Streams that begin in the middle of a word, or have no messages at all."""
    run = replace(
        make_run(streams=4, subscriptions=2),
        first=np.array([70, 0, 5, 64]),
        end=np.array([130, 0, 5, 65]),
    )
    columns = dict.fromkeys(bitmaps.SENT_WORD_COLUMNS, np.zeros(3, np.int64))
    rows = columns | {
        "stream": np.array([0, 3, 0]),
        "seq": np.array([129, 64, 70]),
        "bucket": np.array([9, 2, 0]),
    }
    words = bitmaps.Words(run)
    found = words.named(words.sent(rows))
    keys = list(
        zip(
            *(
                found[name].tolist()
                for name in ("subscription", "stream", "word", "offered", "plane_0", "plane_1")
            ),
            strict=True,
        )
    )
    once = [(0, 1, 1 << 6, 0, 0), (0, 2, 1 << 1, 1 << 1, 1 << 1), (3, 1, 1, 0, 1)]
    assert keys == [(subscription, *word) for subscription in (0, 1) for word in once]


@pytest.mark.parametrize("planned", [200_000_000, 2**29 - 1, 2**29, 2**29 + 1, 2**31, 2**33])
@pytest.mark.parametrize("first", [0, 2**31 - 1, 2**33])
def test_words_of_more_messages_than_32_bits_count_keep_their_subscription(
    planned: int, first: int
) -> None:
    """Four streams of so many messages each, and four subscriptions, in columns as wide as those of sample files."""
    run = make_run(
        streams=4, topics=1, subscriptions=4, first=first, end=np.full(4, first + planned)
    )
    words = bitmaps.Words(run)
    seq = np.array([first + planned - 1, first + 2])
    rows = {column.name: np.zeros(8, column.type) for column in KINDS["received"]} | {
        "seq": np.tile(seq, 4)
    }
    rows |= {
        "subscription": np.repeat(np.arange(4, dtype=np.int32), 2),
        "stream": np.full(8, 3, np.int32),
    }
    for found in (
        words.named(words.copies(rows, Begins(0))),
        words.named(words.sent(sent_rows(3, seq))),
    ):
        pairs = zip(
            *(found[name].tolist() for name in ("subscription", "stream", "word")), strict=True
        )
        assert sorted(pairs) == [
            (subscription, 3, int(word)) for subscription in range(4) for word in sorted(seq >> 6)
        ]


def sent_rows(stream: int, seq: Any) -> dict[str, Any]:
    """Return sent rows with the types of sample files."""
    rows = {column.name: np.zeros(len(seq), column.type) for column in KINDS["sent"]}
    return rows | {"seq": np.asarray(seq, np.int64), "stream": np.full(len(seq), stream, np.int32)}


@given(
    rows=st.lists(st.tuples(st.integers(0, 130), st.booleans()), max_size=40),
    cut=st.integers(0, 40),
)
def test_words_count_how_often_each_message_came(rows: list[tuple[int, bool]], cut: int) -> None:
    """In two files; of each property at most as many as outputs are due."""
    run = make_run(streams=1, messages=131, outputs=3)
    counter = bitmaps.Words(run)
    parts = []
    for part in (rows[:cut], rows[cut:]):
        n = len(part)
        columns: dict[str, Any] = dict.fromkeys(
            bitmaps.RECEIVED_WORD_COLUMNS, np.zeros(n, np.int64)
        )
        columns["seq"] = np.array([seq for seq, _ in part], np.int64)
        columns["flags"] = np.array([late * int(Flag.LATE) for _, late in part], np.int64)
        parts.append(counter.copies(columns, Begins(0)))
    named = counter.named(counter.merge([counter.compact(parts)]))
    totals = tables.delivery_totals(named) if rows else {}
    every = Counter(seq for seq, _ in rows)
    punctual = Counter(seq for seq, late in rows if not late)
    received = sum(min(many, 3) for many in every.values())
    in_order = sum(min(many, 3) for many in punctual.values())
    if rows:
        assert int(totals["received"].sum()) == int(totals["received_in_time"].sum()) == received
        assert int(totals["late"].sum()) == received - in_order
        assert int(totals["copies"].sum()) == len(rows)
    assert (len(counter.repeated(named)["low"]) > 0) == (max(every.values(), default=0) > 3)
