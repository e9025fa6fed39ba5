"""The messages handed over at each tick, with windows that open and close at random."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from builders.pacing import due_in_stream, offset
from engine_rig import make_pool
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.drivers.base import Acks, Burst, Joined
from pytest_loadtest.engine.blocks import Block
from pytest_loadtest.engine.retries import RETRY, STALL
from pytest_loadtest.engine.send import KEYS, SendCounts, Sender, Setup, key_column
from pytest_loadtest.errors import WorkerError
from pytest_loadtest.message.payloads import Bucket, build_pool
from pytest_loadtest.message.samples import NEVER_SENT, Status
from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.metrics.pauses import Pauses
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.schedule.pacing import NEVER, Pacer, StreamCounts
from pytest_loadtest.schedule.schedules import ByteSchedule
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pytest_loadtest.message.streams import Streams

START = 5 * SECOND
ALL = 6
"""Streams of the run; this worker has every second one, from 1 on."""
MINE = range(1, ALL, 2)
EACH = 61 * MILLISECOND // 2
"""Between two messages of one stream."""
PACER = Pacer.of(ALL * SECOND / EACH, ALL)
LENGTH = 2 * SECOND  # some blocks long
MAX_DELAY = 300 * MILLISECOND


class Rooms:
    """A driver whose streams take as many messages as they have room for, and which answers on
    request.
    """

    def __init__(self) -> None:
        self.room = dict.fromkeys(MINE, 0)
        self.calls, self.now, self.took = 0, 0, list[tuple[int, int]]()
        self.answered_at, self.polls = 0, 0
        self.open: list[int] = []  # rows not answered yet
        self.answers: list[int] = []

    def send(self, burst: Burst) -> Any:
        self.calls += 1
        assert len(burst) and not burst.sent.any() and not burst.idle.any()
        rejected = []
        for i, (row, stream, seq) in enumerate(
            zip(burst.row.tolist(), burst.stream.tolist(), burst.seq.tolist(), strict=True)
        ):
            if self.room[stream]:
                self.room[stream] -= 1
                burst.sent[i] = self.now
                self.took.append((stream, seq))
                self.open.append(row)
            else:
                rejected.append(i)
        return np.array(rejected, np.int64) if rejected else None

    def acks(self) -> Acks | None:
        rows, self.answers = self.answers, []
        return (
            Acks(
                np.array(rows, np.int64),
                np.full(len(rows), self.answered_at),
                np.full(len(rows), Status.ACKED, np.int8),
            )
            if rows
            else None
        )

    def poll(self, timeout_ns: int) -> None:
        self.polls += 1


class Expected:
    """The expected result, one message at a time: a rejected stream waits with all its messages for
    answers or its turn.
    """

    def __init__(self, first: dict[int, int]) -> None:
        self.first, self.due = (
            first,
            dict.fromkeys(MINE, 0),
        )  # messages of the phase that were due so far
        self.queue: dict[int, list[int]] = {stream: [] for stream in MINE}
        self.freed, self.tried, self.retry_at = Counter[int](), dict[int, int](), 0
        self.answered_at: dict[
            int, int
        ] = {}  # by stream, the time of the latest answer that was taken in
        self.full: dict[tuple[int, int], int] = {}  # since when the window stood in a message's way
        self.blocked: dict[tuple[int, int], int] = {}
        self.dropped: dict[tuple[int, int], int] = {}  # messages and when they were dropped

    def intended(self, stream: int, seq: int) -> int:
        return START + offset(PACER, stream, seq - self.first[stream])

    def take(self, stream: int, room: dict[int, int], most: int, now: int) -> list[tuple[int, int]]:
        queue = self.queue[stream]
        taken = [(stream, queue.pop(0)) for _ in range(min(room[stream], most, len(queue)))]
        room[stream] -= len(taken)
        self.blocked |= {one: now - self.full.get(one, now) for one in taken}
        return taken

    def answer(self, streams: list[int], at: int) -> None:
        self.freed.update(streams)
        self.answered_at |= dict.fromkeys(streams, at)

    def full_until(self, stream: int, now: int, in_flight: set[int]) -> int:
        """Return when the window of a waiting stream stopped to be full: a target that has answered
        everything was idle from then on.
        """
        stalled = self.freed[stream] > 0 and self.tried[stream] < now - STALL
        return (
            max(self.answered_at[stream], self.tried[stream])
            if stalled and stream not in in_flight
            else now
        )

    def drop(self, stream: int, seq: int, now: int, until: int | None) -> None:
        """Drop a message.

        :param until: None if its stream does not wait.
        """
        one = (stream, seq)
        self.dropped[one] = now
        if until is not None:
            since = self.full.get(one, max(self.intended(*one), self.tried[stream]))
            self.blocked[one] = max(until - since, 0)

    def fresh(self, stream: int, now: int) -> tuple[list[int], list[int]]:
        """Return the messages that are due for the first time: those that are too late already, and
        the others.
        """
        due = due_in_stream(PACER, min(now - START, LENGTH - 1), stream)
        fresh = [self.first[stream] + k for k in range(self.due[stream], due)]
        late = [seq for seq in fresh if now - self.intended(stream, seq) > MAX_DELAY]
        return late, fresh[len(late) :]

    def drop_late(self, stream: int, now: int, until: int | None) -> None:
        queue = self.queue[stream]
        while queue and now - self.intended(stream, queue[0]) > MAX_DELAY:
            self.drop(stream, queue.pop(0), now, until)
        for seq in self.fresh(stream, now)[0]:
            self.drop(stream, seq, now, until)

    def tick(
        self,
        now: int,
        room: dict[int, int],
        answers: list[int],
        answered_at: int,
        in_flight: set[int],
    ) -> list[tuple[int, int]]:
        """Return the messages that are sent.

        :param answers: by stream, taken in before anything is dropped or tried.
        :param in_flight: streams with unanswered messages.
        """
        waited = [stream for stream in MINE if self.queue[stream]]
        if waited:
            self.answer(answers, answered_at)
        for stream in MINE:
            until = self.full_until(stream, now, in_flight) if stream in waited else None
            self.drop_late(stream, now, until)
        waits = [stream for stream in MINE if self.queue[stream]]
        taken = []
        if waits:
            turn = now >= self.retry_at
            if turn:
                self.retry_at = now + RETRY
            for stream in waits:
                if turn or self.freed[stream]:
                    taken += self.take(stream, room, self.freed[stream] or ALL * 1000, now)
                    self.freed[stream], self.tried[stream] = 0, now
        waits = [stream for stream in MINE if self.queue[stream]]
        for stream in MINE:
            late, fresh = self.fresh(stream, now)
            self.queue[stream] += fresh
            self.due[stream] += len(late) + len(fresh)
            if stream in waits:
                self.full |= {
                    (stream, seq): max(self.intended(stream, seq), self.tried[stream])
                    for seq in fresh
                }
        for stream in [one for one in MINE if one not in waits]:
            taken += self.take(stream, room, ALL * 1000, now)
        rejected = [stream for stream in MINE if stream not in waits and self.queue[stream]]
        if rejected and not waits:
            self.retry_at = now + RETRY
        for stream in rejected:
            self.tried[stream], self.freed[stream] = now, 0
            self.full |= {(stream, seq): now for seq in self.queue[stream]}
        if not waited:  # answers are taken in afterwards
            self.answer(answers, answered_at)
        return taken


class Tick(NamedTuple):
    """The events before a tick.

    :param after: ns since the last one.
    :param answers: the number of oldest messages that are answered.
    """

    after: int
    room: tuple[int, int, int]
    answers: int


def sender(
    driver: Rooms, retired: list[Block], before: int = 0, pool: Any = None, streams: Streams = MINE
) -> Sender:
    setup = Setup(
        driver=driver, clock=lambda: driver.now, pool=pool or make_pool(), topology=Topology(topics=1, partitions=1, producers=ALL, subscriptions=1, consumers=1),
        streams=streams, opened=Joined(np.zeros(0, np.int32), np.zeros(0, np.int32)), nonce=7, seed=1, key_distributor="KEY_ROUND_ROBIN",
        max_send_delay=MAX_DELAY, ordered=True,
    )  # type: ignore[arg-type]  # fmt: skip
    made = Sender(setup, retired.append)
    made.begin(phase(before), START)
    return made


def phase(before: int) -> Phase:
    counts = StreamCounts(streams=ALL).plus(before)
    return Phase(name="measure", duration=LENGTH, pacer=PACER, before=counts, recorded=True)


TICKS = st.lists(
    st.builds(
        Tick, after=st.sampled_from([MILLISECOND, 9 * MILLISECOND, 40 * MILLISECOND, 700 * MILLISECOND]),
        room=st.tuples(*[st.sampled_from([0, 0, 1, 3, 50])] * 3), answers=st.integers(0, 9),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=60)
@given(TICKS, st.integers(0, 20), st.sampled_from([MINE, stream_column(MINE)]))
def test_each_tick_sends_the_due_messages_that_find_room(
    ticks: list[Tick], before: int, streams: Streams
) -> None:
    """Rejected streams wait for answers or their turn, late messages are dropped, and blocked is
    the time explained by the target.
    """
    driver, retired = Rooms(), list[Block]()
    made = sender(driver, retired, before, streams=streams)
    assert made.next_at() == START + PACER.time(MINE[0])
    first = {
        stream: StreamCounts(streams=ALL).plus(before).column().tolist()[stream] for stream in MINE
    }
    expected, sent, answered, delays = Expected(first), list[tuple[int, int]](), 0, list[int]()
    now = START
    for after, room, answers in ticks:
        now += after
        driver.now, driver.room, driver.took = now, dict(zip(MINE, room, strict=True)), []
        driver.answers, driver.open = driver.open[:answers], driver.open[answers:]
        driver.answered_at = now - after // 2
        streams = [MINE[row % len(MINE)] for row in driver.answers]
        in_flight = {MINE[row % len(MINE)] for row in driver.open}
        taken = expected.tick(now, dict(driver.room), streams, driver.answered_at, in_flight)
        answered += len(streams)
        made.tick(now)
        made.collect()  # what the tick has not
        assert sorted(driver.took) == sorted(taken)
        sent += driver.took
        delays += [now - expected.intended(*one) - expected.blocked[one] for one in taken]
        dropped = len(expected.dropped)
        assert made.counts == SendCounts(sent=len(sent), acked=answered, dropped=dropped)
        assert made.counts.in_flight == len(driver.open)
        assert made.blocked is any(expected.queue.values())
        due = sum(expected.due.values())
        assert (
            made.offered(now - START)
            == due
            == len(sent) + dropped + sum(map(len, expected.queue.values()))
        )
        assert made.finished is (due == made.offered(LENGTH) and not made.blocked)
        assert made.next_at() == (
            0 if made.blocked else NEVER if made.finished else START + made._schedule.time(due)
        )
    for stream in MINE:
        seqs = [seq for one, seq in sent if one == stream]
        assert seqs == sorted(seqs)
    whole = sorted(delays)
    assert made.own_delay_p99() == (whole[len(whole) * 99 // 100] if whole else None)
    assert made.own_delay_p99() is None
    for stream, queue in expected.queue.items():
        for seq in queue:
            expected.drop(
                stream,
                seq,
                now,
                expected.full_until(stream, now, {MINE[row % len(MINE)] for row in driver.open}),
            )
    made.end()
    check_rows(retired, expected, sent, made)
    check_late(retired, made)


def check_rows(
    retired: list[Block], expected: Expected, sent: list[tuple[int, int]], made: Sender
) -> None:
    """Assert that every planned message is in one row of one block."""
    rows = {
        name: np.concatenate([getattr(block, name) for block in retired]).tolist()
        for name in ("stream", "seq", "intended", "blocked", "status", "key")
    }
    planned = {
        stream: range(expected.first[stream], int(end))
        for stream, end in zip(MINE, made.ends, strict=True)
    }
    assert [len(seqs) for seqs in planned.values()] == [
        due_in_stream(PACER, LENGTH - 1, stream) for stream in MINE
    ]
    keys = list(zip(rows["stream"], rows["seq"], strict=True))
    assert sorted(keys) == [(stream, seq) for stream in MINE for seq in planned[stream]]
    assert rows["intended"] == [expected.intended(*key) for key in keys]
    assert rows["key"] == rows["seq"]
    gone = set(sent)
    assert [status in NEVER_SENT for status in rows["status"]] == [key not in gone for key in keys]
    assert rows["blocked"] == [expected.blocked.get(key, 0) for key in keys]
    blocked = {
        key
        for key, now in expected.dropped.items()
        if expected.blocked.get(key) and 2 * expected.blocked[key] >= now - expected.intended(*key)
    }
    assert [status == Status.BLOCKED for status in rows["status"]] == [
        key in blocked for key in keys
    ]


def check_late(retired: list[Block], made: Sender) -> None:
    """Assert that no message is later by the noted late sends than it was by the generator alone."""
    rows = {
        name: np.concatenate([getattr(block, name) for block in retired])
        for name in ("intended", "sent", "blocked")
    }
    went = rows["sent"] > 0
    own = (rows["sent"] - rows["intended"] - rows["blocked"])[went]
    assert (late_by_steps(made, rows["intended"][went]) <= own).all()


def late_by_steps(made: Sender, intended: Any) -> Any:
    """Return by how much messages were sent late, as the sender has noted it, ns."""
    steps = {name: np.array(column, np.int64) for name, column in made.late.document().items()}
    none = np.zeros(0, np.int64)
    return Pauses(begin=none, end=none, since=none, until=none, exact=True, **steps).until_sent(
        intended
    )


def test_messages_that_were_due_while_the_loop_stood_still_are_late_by_the_rest_of_it() -> None:
    """They found room at once, so all of it is the generator's."""
    driver, retired = Rooms(), list[Block]()
    made = sender(driver, retired)
    driver.room = dict.fromkeys(MINE, 10_000)
    for driver.now in (
        START + 10 * MILLISECOND,
        START + 250 * MILLISECOND,
        START + 251 * MILLISECOND,
    ):
        made.tick(driver.now)
    made.end()
    rows = {
        name: np.concatenate([getattr(block, name) for block in retired])
        for name in ("intended", "sent")
    }
    went = (
        (rows["sent"] > 0)
        & (rows["intended"] > START + 10 * MILLISECOND)
        & (rows["intended"] <= START + 250 * MILLISECOND)
    )
    assert went.sum() > 20
    own = (rows["sent"] - rows["intended"])[went]
    assert late_by_steps(made, rows["intended"][went]).tolist() == own.tolist()


def test_the_wait_for_a_full_window_is_not_the_senders_lateness() -> None:
    """A window is full while the loop stands still: messages that become due meanwhile wait for the
    target in any case.
    """
    driver, retired = Rooms(), list[Block]()
    made = sender(driver, retired)
    driver.room = dict.fromkeys(MINE, 10_000)
    driver.room[MINE[0]] = 0
    for driver.now in (START + 100 * MILLISECOND, START + 200 * MILLISECOND):
        made.tick(driver.now)
    driver.room[MINE[0]] = 10_000
    driver.now = START + 230 * MILLISECOND
    made.tick(driver.now)
    while_full = START + np.array([101, 150, 199]) * MILLISECOND
    assert late_by_steps(made, while_full).tolist() == [0, 0, 0]
    # The window had room again, and was never tried.
    assert late_by_steps(made, START + np.array([50, 215]) * MILLISECOND).tolist() == [
        50 * MILLISECOND,
        15 * MILLISECOND,
    ]
    made.end()
    check_late(retired, made)


def test_rows_continue_from_phase_to_phase() -> None:
    """So an answer to a message of an earlier phase is recognized and ignored."""
    driver, retired = Rooms(), list[Block]()
    made = sender(driver, retired)
    driver.room = dict.fromkeys(MINE, 10_000)
    for driver.now in range(START, START + LENGTH + 1, LENGTH // 10):
        made.tick(driver.now)
    number, first = made.offered(LENGTH), list(driver.open)
    assert first == list(range(number))
    made.end()
    before = phase(0).ends.total
    made.begin(phase(before), START + 9 * SECOND)
    assert made.counts == SendCounts()
    driver.open.clear()
    driver.now = START + 9 * SECOND + 200 * MILLISECOND
    made.tick(driver.now)
    assert driver.open == list(range(number, number + len(driver.open)))
    driver.answers = [first[-1], driver.open[0]]
    made.collect()
    assert made.counts.acked == 1


class Resending(Rooms):
    """A driver whose client sent every message again before it was answered."""

    def acks(self) -> Acks | None:
        got = super().acks()
        return got and replace(got, resends=np.ones(len(got.row), np.uint8))


def test_resent_messages_are_counted_by_phase() -> None:
    driver = Resending()
    made = sender(driver, [])
    driver.room, driver.now = dict.fromkeys(MINE, 10_000), START + LENGTH
    made.tick(driver.now)
    driver.answers = driver.open[:3]
    made.collect()
    assert made.counts.resent == 3
    made.begin(phase(0), START + 9 * SECOND)
    assert made.counts.resent == 0


class Slow(Rooms):
    """A driver whose calls take this long, after which the messages are sent."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self._takes = takes

    def send(self, burst: Burst) -> Any:
        self.now += self._takes
        return super().send(burst)


def test_a_message_that_becomes_too_late_while_others_are_sent_is_dropped() -> None:
    """Far behind, a worker has several blocks to send at once."""
    driver, retired = Slow(MAX_DELAY), list[Block]()
    driver.room = dict.fromkeys(MINE, 100_000)
    made = sender(driver, retired)
    driver.now = now = START + LENGTH
    made.begin(replace(phase(0), pacer=Pacer.of(PACER.highest * 1000, ALL)), START)
    made.tick(now)
    first = made._ledger.block_size
    late = made._schedule.due(LENGTH - MAX_DELAY - 1)
    assert 0 < made.counts.sent <= first
    assert made.counts.dropped >= late
    made.end()
    sent = np.concatenate([(block.sent - block.intended)[block.sent > 0] for block in retired])
    assert len(sent) == made.counts.sent == len(driver.took)
    assert sent.max() <= 2 * MAX_DELAY  # the limit, and the call itself


@settings(max_examples=60)
@given(TICKS, st.sampled_from([MILLISECOND, MAX_DELAY // 3, MAX_DELAY, 2 * MAX_DELAY]))
def test_slow_calls_lose_no_message(ticks: list[Tick], takes: int) -> None:
    """Each planned message is sent once, in the order of its stream, or dropped, or left over."""
    driver, retired = Slow(takes), list[Block]()
    made = sender(driver, retired)
    made.begin(replace(phase(0), pacer=Pacer.of(PACER.highest * 20, ALL)), START)
    driver.now = START
    for after, room, answers in ticks:
        driver.now += after
        driver.room = {stream: found * 40 for stream, found in zip(MINE, room, strict=True)}
        driver.answers, driver.open = driver.open[:answers], driver.open[answers:]
        made.tick(driver.now)
        made.collect()
    ends = made.ends
    counts = made.counts
    made.end()
    rows = [
        row
        for block in retired
        for row in zip(
            block.stream.tolist(), block.seq.tolist(), block.status.tolist(), strict=True
        )
    ]
    assert sorted(row[:2] for row in rows) == [
        (stream, seq) for stream, end in zip(MINE, ends.tolist(), strict=True) for seq in range(end)
    ]
    gone = {row[:2] for row in rows if row[2] in NEVER_SENT}
    assert len(set(driver.took)) == len(driver.took) == counts.sent
    assert not gone & set(driver.took)
    assert len(gone) == counts.dropped
    for stream in MINE:
        seqs = [seq for one, seq in driver.took if one == stream]
        assert seqs == sorted(seqs)


def test_a_waiting_stream_is_tried_once_for_its_answers() -> None:
    """One call offers as many messages as there were answers."""
    driver = Rooms()
    made = sender(driver, [])
    driver.room[1], driver.now = 5, START + 290 * MILLISECOND
    made.tick(driver.now)
    driver.calls, driver.room[1], driver.answers, driver.now = 0, 3, driver.open[:3], driver.now + 1
    made.tick(driver.now)
    assert (driver.calls, driver.room[1]) == (1, 0)


def test_a_window_that_opens_without_an_answer_is_filled_in_few_calls() -> None:
    """Its room is unknown, so each call offers twice as many."""
    driver = Rooms()
    made = sender(driver, [])
    driver.now = START + 290 * MILLISECOND
    made.tick(driver.now)
    waiting = made.offered(290 * MILLISECOND) // len(MINE)
    driver.calls, driver.room, driver.now = 0, dict.fromkeys(MINE, 100), driver.now + RETRY - 1
    made.tick(driver.now)
    assert driver.calls == 0
    driver.now += 1
    made.tick(driver.now)
    assert not made.blocked
    assert driver.calls == (waiting + 1).bit_length()


@pytest.mark.parametrize(
    ("rate", "size"), [(1.0, 64), (127.9, 64), (128.0, 128), (1e4, 8192), (1e7, 8192)]
)
def test_a_block_is_half_a_second_of_the_workers_own_rate(rate: float, size: int) -> None:
    """Rounded up to a power of two, from 64 to 8 192 rows."""
    made = sender(Rooms(), [])
    made.begin(replace(phase(0), pacer=Pacer.of(rate * 2, ALL)), START)
    assert made._ledger.block_size == size
    made.begin(replace(phase(0), pacer=Pacer.of(rate * 2 * 64, ALL), mean_size=64.0), START)
    assert made._ledger.block_size == size


def test_a_worker_without_streams_has_nothing_to_send_of_a_rate_in_bytes() -> None:
    """Its end is known at once; and so are its marks of a change."""
    pool = make_pool()
    made = Sender(replace(sender(Rooms(), [])._setup, streams=range(0), pool=pool), [].append)
    made.begin(replace(phase(0), pacer=Pacer.of(1e4, ALL), mean_size=pool.mean_size), START)
    made.change(Change(at=SECOND), None, pool.table(0))
    for elapsed in (0, SECOND, LENGTH):
        made.tick(START + elapsed)
        assert made.next_at() == NEVER
        assert made.offered(elapsed) == 0
    assert made.finished
    assert made.ends.tolist() == []
    assert [(at, marks.tolist()) for at, marks in made.marks] == [(SECOND, [])]


@pytest.mark.parametrize("waiting", [False, True])
def test_unanswered_messages_do_not_keep_the_rows_of_a_rate_in_bytes_after_them(
    waiting: bool,
) -> None:
    """A target that leaves one message without an answer would fill the memory in a day, and each
    drawing would copy all rows.

    Rows of a stream that waits are kept until they are dropped, and no longer.
    """
    driver, retired = Rooms(), list[Block]()
    driver.room = dict.fromkeys(MINE, 10**9)
    made = sender(driver, retired)
    size, each = make_pool().mean_size, 200_000
    made.begin(replace(phase(0), pacer=Pacer.of(each * size, ALL), mean_size=size), START)
    kept, mine = [], each // 2 * MAX_DELAY // SECOND
    for elapsed in range(0, LENGTH, LENGTH // 50):
        driver.now = START + elapsed
        driver.room[MINE[0]] = 0 if waiting else 10**9
        made.tick(driver.now)
        driver.answers, driver.open = driver.open[1:], driver.open[:1]
        driver.answered_at = driver.now
        made.collect()
        schedule = made._schedule
        assert isinstance(schedule, ByteSchedule)
        kept.append(len(schedule._place))
        late = max(elapsed - MAX_DELAY, 0) * each // 2 // len(MINE) // SECOND
        assert made.counts.dropped == pytest.approx(late if waiting else 0, abs=2)
    assert len(driver.open) == 1
    assert max(kept) < mine * waiting + 5 * 8192


MIXED = build_pool(
    buckets=[Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in (40, 100)], message_size=None, randomized=False,
    random_ratio=0.0, file_content=None, seed=0, checksum=False, max_size=None, more=[[Bucket(name="300", low=300, high=301, weight=1)]],
)  # fmt: skip
CHANGES = st.builds(
    Change, at=st.integers(1, LENGTH - 1), rate=st.none() | st.sampled_from([10.0, 50.0, 500.5]), distribution=st.sampled_from([None, 1, 0]),
    end=st.booleans(),
)  # fmt: skip


def changing(
    change: Change, told_at: int, step: int, in_bytes: bool
) -> tuple[Sender, list[tuple[Any, ...]]]:
    """Return all rows of a phase with a change announced at a time, after ticks in steps."""
    driver, retired = Rooms(), list[Block]()
    made = sender(driver, retired, 5, MIXED)
    size = MIXED.mean_size if in_bytes else 1
    pacer = Pacer.of(PACER.highest * size, ALL)
    made.begin(
        replace(phase(5), pacer=pacer, mean_size=MIXED.mean_size if in_bytes else None), START
    )
    assert made.finished is False
    told = False
    for elapsed in [*range(0, LENGTH, step), LENGTH]:
        if not told and elapsed >= told_at:
            changed = None if change.rate is None else pacer.changed(change.at, change.rate * size)
            made.change(
                change,
                changed,
                None if change.distribution is None else MIXED.table(change.distribution),
            )
            told = True
        driver.room, driver.now = dict.fromkeys(MINE, 10_000), START + elapsed
        made.tick(driver.now)
    assert made.finished
    assert made.next_at() == NEVER
    made.end()
    names = ("stream", "seq", "intended", "payload", "status", "key", "row")
    rows = [dict(zip(names, row, strict=True)) for block in retired for row in zip(
        *(getattr(block, name).tolist() for name in names[:-1]), range(block.row, block.row + block.size), strict=True
    )]  # fmt: skip
    return made, [tuple(row[name] for name in names) for row in rows]


@settings(max_examples=60)
@given(
    change=CHANGES,
    ahead=st.integers(0, LENGTH),
    step=st.sampled_from([LENGTH // 40, LENGTH // 7]),
    in_bytes=st.booleans(),
)
def test_the_time_of_the_announcement_of_a_change_makes_no_difference(
    change: Change, ahead: int, step: int, in_bytes: bool
) -> None:
    """If it is before the change's instant."""
    known, expected = changing(change, 0, step, in_bytes)
    told_at = max(change.at - step - ahead, 0)
    made, rows = changing(change, told_at, step, in_bytes)
    assert rows == expected
    assert made.ends.tolist() == known.ends.tolist()
    ((at, marks),) = made.marks
    assert at == change.at
    for stream, end, mark, first in zip(
        MINE, made.ends.tolist(), marks.tolist(), phase(5).first_of(MINE).tolist(), strict=True
    ):
        mine = [row for row in rows if row[0] == stream]
        assert [row[1] for row in mine] == list(range(first, end))
        assert mark == first + sum(row[2] < START + at for row in mine)
    later = [row for row in rows if row[2] >= START + at]
    assert all(row[4] == Status.UNKNOWN for row in rows)
    assert not (change.end and later)
    large = [MIXED.sizes[row[3]] == 300 for row in rows]
    assert large == [change.distribution == 1 and row[2] >= START + at for row in rows]
    if not in_bytes and change.rate is not None:
        pacer = Pacer.of(PACER.highest, ALL).changed(at, change.rate)
        assert [row[2] for row in rows] == [
            START + offset(pacer, row[0], row[1] - phase(5).first[row[0]]) for row in rows
        ]


@pytest.mark.parametrize("announced", [100, 250])
def test_a_second_end_of_a_phase_does_not_extend_it(announced: int) -> None:
    """No message is due after the first one, before which it may be announced or after it."""
    driver = Rooms()
    made = sender(driver, [])
    made.change(Change(at=200 * MILLISECOND, end=True), None, None)
    ends = made.ends.tolist()
    driver.room, driver.now = dict.fromkeys(MINE, 100), START + announced * MILLISECOND
    made.tick(driver.now)
    made.change(Change(at=400 * MILLISECOND, end=True), None, None)
    driver.now = START + 300 * MILLISECOND
    made.tick(driver.now)
    assert made.ends.tolist() == ends
    assert len(driver.took) == sum(ends)


def test_a_change_announced_too_late_is_an_error() -> None:
    """The error has the number of messages that were sent already."""
    driver = Rooms()
    made = sender(driver, [])
    driver.room, driver.now = dict.fromkeys(MINE, 100), START + 290 * MILLISECOND
    made.tick(driver.now)
    late = sum(
        made._schedule.time(row) >= 200 * MILLISECOND
        for row in range(made.offered(290 * MILLISECOND))
    )
    with pytest.raises(WorkerError, match=f"had already sent {late} messages"):
        made.change(
            Change(at=200 * MILLISECOND, rate=1.0), PACER.changed(200 * MILLISECOND, 1.0), None
        )


def test_without_keys_there_is_no_column() -> None:
    assert key_column("NO_KEY", 1, range(3))(np.zeros(2, np.int64), np.arange(2)) is None


def test_a_round_robin_key_is_the_sequence_modulo_the_keys() -> None:
    """In every stream, as each producer of OMB has a distributor of its own."""
    keys = key_column("KEY_ROUND_ROBIN", 1, range(3))(
        np.array([0, 1, 2]), np.array([0, 9_999, 10_000])
    )
    assert keys is not None
    assert keys.tolist() == [0, 9_999, 0]


def test_random_keys_are_pinned() -> None:
    """A seed means the same keys in every release; they are not the draws of payloads or bodies."""
    keys = key_column("RANDOM_NANO", 7, range(1, 5, 3))(
        np.array([0, 0, 1, 1]), np.array([0, 1, 0, 10**9])
    )
    assert keys is not None
    assert keys.tolist() == [3774, 1115, 6048, 5803]


@given(seed=st.integers(0, 2**64 - 1), workers=st.integers(1, 5), streams=st.integers(1, 20))
def test_random_keys_do_not_depend_on_workers(seed: int, workers: int, streams: int) -> None:
    whole = key_column("RANDOM_NANO", seed, range(streams))
    for rank in range(min(workers, streams)):
        mine = range(rank, streams, workers)
        index, seq = np.repeat(np.arange(len(mine)), 5), np.tile(np.arange(5), len(mine))
        keys, expected = (
            key_column("RANDOM_NANO", seed, mine)(index, seq),
            whole(np.array(mine)[index], seq),
        )
        assert keys is not None
        assert expected is not None
        assert keys.tolist() == expected.tolist()


def test_random_keys_are_even() -> None:
    """Each key is as frequent as any other, within chance, and streams differ."""
    index, seq = np.repeat(np.arange(2), 1_000_000), np.tile(np.arange(1_000_000), 2)
    keys = key_column("RANDOM_NANO", 7, range(2))(index, seq)
    assert keys is not None
    counts = np.bincount(keys, minlength=KEYS)
    assert len(counts) == KEYS
    assert 100 < counts.min() <= counts.max() < 300  # 200 expected, standard deviation 14
    assert (keys[:1000] == keys[1_000_000:1_001_000]).sum() < 10


@pytest.mark.parametrize("answered", [True, False])
def test_drops_after_a_stall_are_the_targets_unless_it_had_answered_everything_meanwhile(
    answered: bool,
) -> None:
    """The driver reads the answers before anything is dropped."""

    class Unread(Rooms):
        def poll(self, timeout_ns: int) -> None:
            super().poll(timeout_ns)
            if answered:
                self.answers, self.open = self.open, []

    driver, retired = Unread(), list[Block]()
    made = sender(driver, retired)
    driver.room, driver.now = dict.fromkeys(MINE, 1), START + 100 * MILLISECOND
    made.tick(driver.now)
    driver.answered_at, driver.now = driver.now + MILLISECOND, driver.now + SECOND
    made.tick(driver.now)
    assert driver.polls == 1
    made.end()
    late = [
        block.status[(block.sent == 0) & (block.intended < driver.now - MAX_DELAY)]
        for block in retired
    ]
    assert set(np.concatenate(late).tolist()) == {Status.DROPPED if answered else Status.BLOCKED}
