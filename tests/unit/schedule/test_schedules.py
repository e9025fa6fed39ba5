"""The rows of a worker: every message once, in intended order, with a rate in messages or in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from builders.pacing import due_in_stream, offset
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.message.payloads import Bucket, PayloadChooser, build_pool
from pytest_loadtest.schedule.pacing import NS, Pacer
from pytest_loadtest.schedule.schedules import ByteSchedule, Drawing, EvenSchedule
from pytest_loadtest.schedule.stream_order import Turns

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZES = st.lists(st.integers(32, 100_000), min_size=1, max_size=5, unique=True)
SHARES = st.integers(1, 20).flatmap(
    lambda total: st.integers(1, 4).flatmap(
        lambda workers: st.tuples(st.just(total), st.just(workers))
    )
)


def pool_of(*distributions: list[int]):  # type: ignore[no-untyped-def]
    made = [
        [Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in sizes]
        for sizes in distributions
    ]
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
    return Drawing(
        PayloadChooser(pool, 1, streams), streams, np.zeros(len(streams), np.int64), pool.sizes
    )


def even(rate: float, total: int, streams: range) -> EvenSchedule:
    pool = pool_of([100, 200])
    return EvenSchedule(Pacer.of(rate, total), drawing(pool, streams), pool.table(0))


def in_bytes(
    pool, rate: float, total: int, streams: range, turns: Turns | None = None
) -> ByteSchedule:  # type: ignore[no-untyped-def]
    """Return one worker's schedule of a run with ``total`` streams."""
    return ByteSchedule(
        Pacer.of(rate, total), drawing(pool, range(total)), pool.table(0), streams, turns
    )


@given(shares=SHARES, rate=st.integers(1, 10**6), elapsed=st.integers(0, 3 * NS))
def test_workers_shares_add_up(shares: tuple[int, int], rate: int, elapsed: int) -> None:
    """Over the workers and over the streams of each."""
    total, workers = shares
    pacer = Pacer.of(rate, total)
    parts = [even(rate, total, range(rank, total, workers)) for rank in range(min(workers, total))]
    assert sum(part.due(elapsed) for part in parts) == pacer.due(elapsed)
    for rank, part in enumerate(parts):
        due = part.due(elapsed)
        assert part.numbers(due).tolist() == [
            due_in_stream(pacer, elapsed, stream) for stream in range(rank, total, workers)
        ]
        assert due == 0 or part.time(due - 1) <= elapsed
        assert part.time(due) > elapsed


@given(
    shares=SHARES, rate=st.integers(1, 10**6), first=st.integers(0, 10**6), count=st.integers(1, 50)
)
def test_a_row_of_a_rate_in_messages_is_a_message_of_the_run(
    shares: tuple[int, int], rate: int, first: int, count: int
) -> None:
    """Its stream, number and time are those of the pacer, and it is found by them."""
    total, workers = shares
    streams = range(workers - 1 if workers <= total else 0, total, workers)
    made, pacer = even(rate, total, streams), Pacer.of(rate, total)
    rows = made.rows(first, count)
    assert rows.time.tolist() == [
        offset(pacer, streams[i], k)
        for i, k in zip(rows.index.tolist(), rows.number.tolist(), strict=True)
    ]
    assert made.find(rows.index, rows.number).tolist() == list(range(first, first + count))
    assert (
        [made.time(row) for row in range(first, first + count)]
        == rows.time.tolist()
        == sorted(rows.time.tolist())
    )


@dataclass(frozen=True)
class Story:
    """A run with a rate in bytes, whose rate and sizes change while it runs.

    :param changes: instant, ns; the new rate or None; the number of the new distribution or None.
    """

    weights: tuple[int, ...] | None
    streams: int
    rate: int
    sizes: tuple[list[int], ...]
    changes: tuple[tuple[int, int | None, int | None], ...]

    @property
    def turns(self) -> Turns | None:
        return None if self.weights is None else Turns.weighted(self.weights)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    weights = draw(st.none() | st.lists(st.integers(1, 5), min_size=1, max_size=6).map(tuple))
    streams = draw(st.integers(1, 40)) if weights is None else len(weights)
    sizes = draw(st.tuples(SIZES, SIZES))
    rate = draw(st.integers(1, 200)) * max(sizes[0] + sizes[1])
    instants = sorted(draw(st.lists(st.integers(0, 3 * NS), max_size=3)))
    new_rates, new_sizes = (
        st.none() | st.integers(1, 200 * max(sizes[0] + sizes[1])),
        st.sampled_from([None, 0, 1]),
    )
    return Story(
        weights,
        streams,
        rate,
        sizes,
        tuple((at, draw(new_rates), draw(new_sizes)) for at in instants),
    )


Sent = tuple[int, int, int, int]
"""Time, stream, number in the stream, size."""


def told(story: Story, until: int) -> tuple[list[Sent], list[list[int]]]:
    """Return all messages due before ``until`` one by one, and the counts by stream at each change:
    the definition, without a schedule.
    """
    pool = pool_of(*story.sizes)
    chooser = PayloadChooser(pool, 1, range(story.streams))
    cycle = list(range(story.streams)) if story.turns is None else story.turns.cycle.tolist()
    pacer, tables, edges = Pacer.of(story.rate, story.streams), [(0, 0)], []
    for at, rate, distribution in story.changes:
        edges.append(pacer.due(at - 1))
        tables += [] if distribution is None else [(edges[-1], distribution)]
        pacer = pacer if rate is None else pacer.changed(at, rate)
    counts, place, sent = [0] * story.streams, 0, []
    marks: list[list[int]] = []
    while pacer.time(place) < until or len(marks) < len(edges):
        while len(marks) < len(edges) and edges[len(marks)] <= place:
            marks.append(list(counts))
        stream = cycle[sum(counts) % len(cycle)]
        number, counts[stream] = counts[stream], counts[stream] + 1
        table = pool.table([distribution for start, distribution in tables if start <= place][-1])
        size = int(pool.sizes[chooser.draw(np.array([stream]), np.array([number]), table)[0]])
        if pacer.time(place) < until:
            sent.append((pacer.time(place), stream, number, size))
        place += size
    return sent, marks


def step_before(change: int, until: int) -> int:
    """Return when a worker takes messages before a change: half a second earlier if there is time,
    and never what the change affects.
    """
    return min(max(change - NS // 2, min(0, change - 1)), until - 1)


def of_worker(
    story: Story, streams: range, until: int, ahead: list[int]
) -> tuple[list[Sent], list[NDArray[np.int64]]]:
    """Return one worker's messages due before ``until``, taken in steps, and its marks.

    :param ahead: rows made before each change.
    """
    pool = pool_of(*story.sizes)
    made = in_bytes(pool, story.rate, story.streams, streams, story.turns)
    sent: list[Sent] = []
    taken = 0
    steps = [(step_before(change[0], until), change) for change in story.changes]
    steps.append((until - 1, None))
    for (now, change), rows_ahead in zip(steps, [*ahead, 0], strict=True):
        due = made.due(now)
        rows = made.rows(taken, due - taken)
        assert made.find(rows.index, rows.number).tolist() == list(range(taken, due))
        assert due == 0 or made.time(due - 1) <= now < made.time(due)
        sizes = pool.sizes[rows.payload].tolist()
        sent += zip(
            rows.time.tolist(),
            np.array(streams)[rows.index].tolist(),
            rows.number.tolist(),
            sizes,
            strict=True,
        )
        taken = due
        made.forget(taken)
        if change is not None:
            made.rows(taken, rows_ahead)
            at, rate, distribution = change
            assert (
                made.change(at, None if distribution is None else pool.table(distribution)) >= taken
            )
            made.pacer = made.pacer if rate is None else made.pacer.changed(at, rate)
    return sent, [numbers for _, numbers in made.marks()]


@settings(deadline=None)
@given(
    story=stories(),
    workers=st.sampled_from([1, 2, 3, 16]),
    ahead=st.lists(st.integers(0, 300), min_size=3, max_size=3),
)
def test_any_number_of_workers_sends_one_byte_train(
    story: Story, workers: int, ahead: list[int]
) -> None:
    """Each message is due when the bytes before it are sent, at the rates and sizes of its time."""
    until = 2 * NS
    sent, marks = told(story, until)
    together: list[Sent] = []
    for rank in range(min(workers, story.streams)):
        streams = range(rank, story.streams, workers)
        own, own_marks = of_worker(story, streams, until, ahead[: len(story.changes)])
        assert own == sorted(own, key=lambda message: message[0])
        assert [numbers.tolist() for numbers in own_marks] == [
            [counts[stream] for stream in streams] for counts in marks
        ]
        together += own
    assert sorted(together) == sorted(sent)


@pytest.mark.parametrize("streams", [1, 200, 20_000])
def test_each_ten_seconds_have_the_bytes_of_the_rate(streams: int) -> None:
    """Also where few of the messages have nearly all of the bytes, and from the beginning on."""
    pool = build_pool(
        buckets=[
            Bucket(name="small", low=384, high=385, weight=98),
            Bucket(name="large", low=786_432, high=786_433, weight=2),
        ],
        message_size=None,
        randomized=False,
        random_ratio=0.0,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=None,
    )
    rate, window = 2**20, 10 * NS
    made, taken = in_bytes(pool, rate, streams, range(streams)), 0
    for number in range(3):
        due = made.due((number + 1) * window - 1)
        offered = int(pool.sizes[made.rows(taken, due - taken).payload].sum())
        assert abs(offered - 10 * rate) <= 786_432
        taken = due


@given(
    sizes=SIZES,
    cuts=st.lists(st.integers(1, 9000), min_size=1, max_size=4),
    streams=st.integers(1, 40),
)
def test_rows_do_not_depend_on_the_length_of_blocks(
    sizes: list[int], cuts: list[int], streams: int
) -> None:
    """Forgotten rows make no difference to later ones, and every message is found."""
    pool = pool_of(sizes)
    made, whole = (
        in_bytes(pool, 1e6, 50, range(3, 3 + streams)),
        in_bytes(pool, 1e6, 50, range(3, 3 + streams)),
    )
    all_rows = whole.rows(0, sum(cuts))
    first = 0
    for count in cuts:
        made.forget(first)
        rows = made.rows(first, count)
        for name in ("index", "number", "time", "payload"):
            assert np.array_equal(
                getattr(rows, name), getattr(all_rows, name)[first : first + count]
            )
        assert made.find(rows.index, rows.number).tolist() == list(range(first, first + count))
        assert made.time(first + count - 1) == all_rows.time[first + count - 1]
        first += count
    assert all_rows.time.tolist() == sorted(all_rows.time.tolist())
    for stream in range(streams):
        mine = all_rows.number[all_rows.index == stream]
        assert mine.tolist() == list(range(len(mine)))


@given(
    streams=st.integers(1, 12),
    at=st.integers(0, 3 * NS),
    ahead=st.integers(0, 2000),
    later=st.integers(1, 500),
)
def test_a_change_of_sizes_keeps_what_is_due_before_it(
    streams: int, at: int, ahead: int, later: int
) -> None:
    """However far messages were drawn when it is announced."""
    pool = pool_of([100, 300], [700])
    made, told_first = (in_bytes(pool, 100_000, 12, range(streams)) for _ in range(2))
    told_first.change(at, pool.table(1))
    made.rows(0, ahead)
    first = made.change(at, pool.table(1))
    due = told_first.due(at - 1)
    assert made.due(at - 1) == due
    assert first == due or ahead <= first < due
    rows, expected = made.rows(0, due + later), told_first.rows(0, due + later)
    for name in ("index", "number", "time", "payload"):
        assert np.array_equal(getattr(rows, name), getattr(expected, name))
    assert (pool.sizes[rows.payload[due:]] == 700).all()
    assert (pool.sizes[rows.payload[:due]] != 700).all()
    assert (rows.time[due:] >= at).all()
    assert made.find(rows.index, rows.number).tolist() == list(range(due + later))
    ((when, marked),) = made.marks()
    assert (when, marked.tolist()) == (
        at,
        np.bincount(rows.index[:due], minlength=streams).tolist(),
    )


def test_a_change_of_forgotten_rows_is_seen_to_affect_them() -> None:
    """A worker that hears of a change too late must not go on as if it had made it."""
    pool = pool_of([100, 300], [700])
    made = in_bytes(pool, 10**7, 1, range(1))
    taken = made.due(NS)
    made.rows(0, taken)
    made.forget(taken)
    assert made.change(NS // 2, pool.table(1)) < taken


def test_memory_does_not_grow_with_the_time_that_has_passed() -> None:
    """A day must not need more memory than a minute."""
    made = in_bytes(pool_of([100, 300]), 10**7, 4, range(1, 4, 2))
    sizes = []
    for second in range(1, 11):
        taken = made.due(second * NS)
        made.rows(taken, 100)
        made.forget(taken)
        sizes.append(
            sum(len(part) for part in vars(made).values() if isinstance(part, (list, np.ndarray)))
        )
    assert max(sizes[5:]) <= 2 * max(sizes[:5])


@given(at=st.integers(0, 3 * NS), streams=st.integers(1, 7), workers=st.integers(1, 3))
def test_a_change_begins_with_the_first_row_due_at_its_instant_or_later(
    at: int, streams: int, workers: int
) -> None:
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
