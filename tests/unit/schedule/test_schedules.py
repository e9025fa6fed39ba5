"""The rows of a worker: every message once, in intended order, with a rate in messages or in bytes."""

from __future__ import annotations

import numpy as np
from builders.pacing import due_in_stream, offset
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.message.payloads import Bucket, PayloadChooser, build_pool
from pytest_loadtest.schedule.pacing import NS, Pacer
from pytest_loadtest.schedule.schedules import ByteSchedule, Drawing, EvenSchedule

SIZES = st.lists(st.integers(32, 100_000), min_size=1, max_size=5, unique=True)
SHARES = st.integers(1, 20).flatmap(lambda total: st.integers(1, 4).flatmap(lambda workers: st.tuples(st.just(total), st.just(workers))))


def pool_of(*distributions: list[int]):  # type: ignore[no-untyped-def]
    made = [[Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in sizes] for sizes in distributions]
    return build_pool(
        buckets=made[0],
        message_size=None,
        randomized=False,
        random_ratio=0.0,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
        more=made[1:],
    )


def drawing(pool, streams: range) -> Drawing:  # type: ignore[no-untyped-def]
    return Drawing(PayloadChooser(pool, 1, streams), streams, np.zeros(len(streams), np.int64), pool.sizes)


def even(rate: float, total: int, streams: range) -> EvenSchedule:
    pool = pool_of([100, 200])
    return EvenSchedule(Pacer.of(rate, total), drawing(pool, streams), pool.table(0))


def in_bytes(sizes: list[int], rate: float, total: int, streams: range) -> ByteSchedule:
    pool = pool_of(sizes)
    return ByteSchedule(Pacer.of(rate, total), drawing(pool, streams), pool.table(0), pool.mean_size)


@given(shares=SHARES, rate=st.integers(1, 10**6), elapsed=st.integers(0, 3 * NS))
def test_workers_shares_add_up(shares: tuple[int, int], rate: int, elapsed: int) -> None:
    """Over the workers and over the streams of each."""
    total, workers = shares
    pacer = Pacer.of(rate, total)
    parts = [even(rate, total, range(rank, total, workers)) for rank in range(min(workers, total))]
    assert sum(part.due(elapsed) for part in parts) == pacer.due(elapsed)
    for rank, part in enumerate(parts):
        due = part.due(elapsed)
        assert part.numbers(due).tolist() == [due_in_stream(pacer, elapsed, stream) for stream in range(rank, total, workers)]
        assert due == 0 or part.time(due - 1) <= elapsed
        assert part.time(due) > elapsed


@given(shares=SHARES, rate=st.integers(1, 10**6), first=st.integers(0, 10**6), count=st.integers(1, 50))
def test_a_row_of_a_rate_in_messages_is_a_message_of_the_run(shares: tuple[int, int], rate: int, first: int, count: int) -> None:
    """Its stream, number and time are those of the pacer, and it is found by them."""
    total, workers = shares
    streams = range(workers - 1 if workers <= total else 0, total, workers)
    made, pacer = even(rate, total, streams), Pacer.of(rate, total)
    rows = made.rows(first, count)
    assert rows.time.tolist() == [offset(pacer, streams[i], k) for i, k in zip(rows.index.tolist(), rows.number.tolist(), strict=True)]
    assert made.find(rows.index, rows.number).tolist() == list(range(first, first + count))
    assert [made.time(row) for row in range(first, first + count)] == rows.time.tolist() == sorted(rows.time.tolist())


@given(sizes=SIZES, rate=st.integers(10_000, 10**9), streams=st.integers(1, 20), elapsed=st.integers(0, 3 * NS))
def test_a_message_is_due_when_its_streams_share_of_the_bytes_reaches_its_beginning(
    sizes: list[int], rate: int, streams: int, elapsed: int
) -> None:
    elapsed = min(elapsed, 20_000 * min(sizes) * NS // rate)
    made = in_bytes(sizes, rate, streams, range(streams))
    mean = float(np.mean(sizes))
    due = made.due(elapsed)
    assert due == 0 or made.time(due - 1) <= elapsed
    assert made.time(due) > elapsed
    rows = made.rows(0, due)
    share = rate * elapsed / NS / streams
    lengths = pool_of(sizes).sizes[rows.payload]
    for stream in range(streams):
        mine = np.flatnonzero(rows.index == stream)
        if len(mine):
            begun = int(lengths[mine[:-1]].sum()) + stream * mean / streams
            assert begun <= share + 1
            assert begun + int(lengths[mine[-1]]) >= share - 1


@given(sizes=SIZES, cuts=st.lists(st.integers(1, 9000), min_size=1, max_size=4), streams=st.integers(1, 40))
def test_rows_do_not_depend_on_the_length_of_blocks(sizes: list[int], cuts: list[int], streams: int) -> None:
    """Forgotten rows make no difference to later ones, and every message is found."""
    made, whole = in_bytes(sizes, 1e6, 50, range(3, 3 + streams)), in_bytes(sizes, 1e6, 50, range(3, 3 + streams))
    all_rows = whole.rows(0, sum(cuts))
    first = 0
    for count in cuts:
        made.forget(first)
        rows = made.rows(first, count)
        for name in ("index", "number", "time", "payload"):
            assert np.array_equal(getattr(rows, name), getattr(all_rows, name)[first : first + count])
        assert made.find(rows.index, rows.number).tolist() == list(range(first, first + count))
        assert made.time(first + count - 1) == all_rows.time[first + count - 1]
        first += count
    assert all_rows.time.tolist() == sorted(all_rows.time.tolist())
    for stream in range(streams):
        mine = all_rows.number[all_rows.index == stream]
        assert mine.tolist() == list(range(len(mine)))


@given(streams=st.integers(1, 12), at=st.integers(0, 3 * NS), ahead=st.integers(0, 2000), later=st.integers(1, 500))
def test_a_change_of_sizes_keeps_what_is_due_before_it(streams: int, at: int, ahead: int, later: int) -> None:
    """However far messages were drawn when it is announced."""
    pool = pool_of([100, 300], [700])
    made = ByteSchedule(Pacer.of(100_000, streams), drawing(pool, range(streams)), pool.table(0), 200.0)
    told = ByteSchedule(Pacer.of(100_000, streams), drawing(pool, range(streams)), pool.table(0), 200.0)
    told.change(at, pool.table(1))
    made.rows(0, ahead)
    first = made.change(at, pool.table(1))
    due = told.due(at - 1)
    assert made.due(at - 1) == due
    assert first == due or ahead <= first < due
    rows, expected = made.rows(0, due + later), told.rows(0, due + later)
    for name in ("index", "number", "time", "payload"):
        assert np.array_equal(getattr(rows, name), getattr(expected, name))
    assert (pool.sizes[rows.payload[due:]] == 700).all()
    assert (pool.sizes[rows.payload[:due]] != 700).all()
    assert (rows.time[due:] >= at).all()
    assert made.find(rows.index, rows.number).tolist() == list(range(due + later))
    ((when, marked),) = made.marks()
    assert (when, marked.tolist()) == (at, np.bincount(rows.index[:due], minlength=streams).tolist())


@given(at=st.integers(0, 3 * NS), streams=st.integers(1, 7), workers=st.integers(1, 3))
def test_a_change_begins_with_the_first_row_due_at_its_instant_or_later(at: int, streams: int, workers: int) -> None:
    """From there payloads come from the new table."""
    pool = pool_of([100, 300], [700])
    mine = range(0, streams, workers)
    made = EvenSchedule(Pacer.of(200.5, streams), drawing(pool, mine), pool.table(0))
    first = made.change(at, pool.table(1))
    assert first == made.due(at - 1)
    rows = made.rows(max(first - 20, 0), 40)
    late = rows.time >= at
    assert (pool.sizes[rows.payload[late]] == 700).all()
    assert (pool.sizes[rows.payload[~late]] != 700).all()
    assert made.marks()[0][1].tolist() == made.numbers(first).tolist()
