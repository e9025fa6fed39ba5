"""Arrivals: their run, phase, order and size; messages of others are only counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from builders.pacing import offset
from engine_rig import drive
from hypothesis import given
from hypothesis import strategies as st
from null_driver import NullDriver

from pytest_loadtest.drivers.base import Joined, Received
from pytest_loadtest.engine.receive import EXACT, Arrivals, Consumers, Inbox, longest_lag
from pytest_loadtest.message.envelope import encode_heads
from pytest_loadtest.message.payloads import Bucket, build_pool
from pytest_loadtest.message.samples import Flag
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import MILLISECOND, SECOND

START = 7_000 * SECOND
NONCE = 0xBEEF_0001
STREAMS = 3
FULL, COMPACT = 0, 1
"""Payloads of 64 bytes, and of 20, whose envelope leaves the intended time out."""
POOL = build_pool(
    buckets=[Bucket(name=str(size), low=size, high=size + 1, weight=1) for size in (64, 20)], message_size=None, randomized=False,
    random_ratio=0.0, file_content=None, seed=0, checksum=False, max_size=None,
)  # fmt: skip
PACER = Pacer.of(1000, STREAMS)
BOUNDS = (10 * MILLISECOND, 0)


class Copy(NamedTuple):
    """A copy that a consumer gets."""

    place: int = 0
    stream: int = 0
    order: int = 0
    seq: int = 0
    latency: int = MILLISECOND
    payload: int = FULL
    more: int = 0
    """Bytes that it is longer than its payload."""
    whose: str = "ours"


def first_of(before: int) -> list[int]:
    """Return the sequence of the phase's first message, by stream."""
    return StreamCounts(streams=STREAMS).plus(before).column().tolist()


def intended(copy: Copy, before: int) -> int:
    return (
        START + offset(PACER, copy.stream, copy.seq - first_of(before)[copy.stream])
        if copy.stream < STREAMS
        else START
    )


def taken(copies: list[Copy], before: int) -> Received:
    """Return copies as a driver does."""
    columns = {
        name: np.array([getattr(copy, name) for copy in copies], np.int64)
        for name in Copy._fields[:-1]
    }
    due = np.array([intended(copy, before) for copy in copies], np.int64)
    nonces = [NONCE ^ (copy.whose == "foreign") for copy in copies]
    heads = np.concatenate([np.zeros((0, 32), np.uint8), *(
        encode_heads(POOL, nonce=nonce, stream=columns["stream"][i : i + 1].astype(np.int32), seq=columns["seq"][i : i + 1],
                     intended=due[i : i + 1], payload=columns["payload"][i : i + 1].astype(np.uint16))
        for i, nonce in enumerate(nonces)
    )])  # fmt: skip
    heads[[copy.whose == "corrupt" for copy in copies], 9] ^= 1
    flags = np.array([Flag.REDELIVERED * (copy.place == 1) for copy in copies], np.int8)
    return Received(
        columns["place"].astype(np.int32),
        heads,
        POOL.sizes[columns["payload"]] + columns["more"].astype(np.int32),
        due + columns["latency"],
        columns["order"],
        flags,
    )


class Post:
    """A driver that returns the arrivals set by the test."""

    def __init__(self) -> None:
        self.received: Received | None = None

    def take(self) -> Received | None:
        return self.received


def inbox(
    before: int, *, ordered: bool = True, topology: Topology | None = None
) -> tuple[Inbox, Post]:
    """Return the inbox of consumers 7 and 5, at places 0 and 1, in a phase after ``before``
    messages, and its driver.
    """
    post = Post()
    made = Inbox(post, POOL, nonce=NONCE, ordered=ordered, bounds=BOUNDS, topology=topology)  # type: ignore[arg-type]
    made.add(Joined(np.array([7], np.int32), np.array([0], np.int32)))
    made.add(Joined(np.array([5], np.int32), np.array([1], np.int32)))
    made.begin(phase(before), START)
    return made, post


def phase(before: int) -> Phase:
    return Phase(
        name="measure",
        duration=SECOND,
        pacer=PACER,
        before=StreamCounts(streams=STREAMS).plus(before),
        recorded=True,
    )


def collected(made: Inbox, post: Post, copies: list[Copy], before: int) -> dict[str, Any]:
    post.received = taken(copies, before)
    return made.collect() or {}


COPIES = st.builds(
    Copy, place=st.integers(0, 1), stream=st.integers(0, STREAMS), order=st.integers(0, 1), seq=st.integers(0, 6),
    latency=st.sampled_from([-1, 0, 1, 10 * MILLISECOND, 10 * MILLISECOND + 1]), payload=st.sampled_from([FULL, COMPACT]),
    more=st.sampled_from([0, 0, 0, 1]), whose=st.sampled_from(["ours", "ours", "ours", "ours", "foreign", "corrupt"]),
)  # fmt: skip


@given(
    st.lists(st.lists(COPIES, min_size=1, max_size=12), min_size=1, max_size=5),
    st.integers(0, 10),
    st.booleans(),
)
def test_each_copy_counts_as_what_it_is(
    batches: list[list[Copy]], before: int, ordered: bool
) -> None:
    """Recorded are this phase's copies, to the column; late is below the highest before it in its
    consumer, stream and partition (a second copy of the highest is not); what is not above it may
    be a second copy. The others are counted by what they are.
    """
    made, post = inbox(before, ordered=ordered)
    first, highest, counts, beyond = (
        first_of(before),
        dict[tuple[int, int, int], int](),
        Counter[str](),
        [0, 0],
    )
    for copies in batches:
        expected = []
        for copy in copies:
            whose = "foreign" if copy.whose == "ours" and copy.stream >= STREAMS else copy.whose
            if whose == "ours" and copy.seq < first[copy.stream]:
                whose = "straggler"
            counts[whose] += 1
            if whose != "ours":
                continue
            group, due = (copy.place, copy.stream, copy.order), intended(copy, before)
            so_far = highest.get(group, -1)
            counts["repeats"] += copy.seq <= so_far
            counts["redelivered"] += copy.place == 1
            highest[group] = max(so_far, copy.seq)
            beyond = [n + (copy.latency > bound) for n, bound in zip(beyond, BOUNDS, strict=True)]
            flags = (
                Flag.REDELIVERED * (copy.place == 1)
                | Flag.LATE * (ordered and copy.seq < so_far)
                | Flag.CORRUPT * copy.more
            )
            size = int(POOL.sizes[copy.payload]) + copy.more
            expected.append(
                (
                    (7, 5)[copy.place],
                    copy.stream,
                    copy.payload,
                    size,
                    flags,
                    copy.seq,
                    due,
                    due + copy.latency,
                )
            )
        found = collected(made, post, copies, before)
        assert not found or (found["lag"] == -1).all(), "a driver that does not report it"
        names = ("consumer", "stream", "bucket", "size", "flags", "seq", "intended", "received")
        assert (
            list(zip(*(found[name].tolist() for name in names), strict=True) if found else ())
            == expected
        )
    assert (made.counts.received, made.repeats, made.counts.beyond_bounds) == (
        counts["ours"],
        counts["repeats"],
        beyond,
    )
    assert made.counts.redelivered == counts["redelivered"]
    assert (made.counts.foreign, made.counts.corrupt, made.counts.stragglers) == (
        counts["foreign"],
        counts["corrupt"],
        counts["straggler"],
    )


def test_the_receive_lag_is_that_of_all_copies_since_the_last_report() -> None:
    """Also of copies of other runs and phases: the client took them as late.

    Where it is unknown it is not 0.
    """
    made, post = inbox(10)
    for lag in (np.arange(100), np.array([-1, 500, -1]), None):
        copies = taken([Copy(seq=4)] * (1 if lag is None else len(lag)), 10)
        post.received = replace(copies, lag=lag)
        made.collect()
    assert made.lag_p99() == 99  # of 101 known ones
    assert made.lag_p99() is None
    post.received = replace(taken([Copy(seq=4)], 10), lag=np.array([-1]))
    made.collect()
    assert made.lag_p99() is None


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3 * MILLISECOND), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 20 * MILLISECOND), st.integers(0, 20 * MILLISECOND),
)  # fmt: skip
def test_a_copy_that_waited_arrived_between_its_longest_lag_and_its_stamp(
    packets: list[tuple[int, int, bool]], begin: int, length: int
) -> None:
    """However the kernel merged packets of a connection.

    It is no longer than the time since the stamp before of its consumer, or since the pause began.
    Copies from outside the pause, and those with a stamp of their own, stay as they are.

    Packets of three connections, by their distance from the one before; some are merged with the
    next one of their connection.
    """
    arrived = np.cumsum([1 + after for _, after, _ in packets])
    end = begin + length
    place, stamp = np.array([place for place, _, _ in packets]), arrived.copy()
    inside = (arrived > begin) & (arrived <= end)
    for i, (_, _, merged) in reversed(list(enumerate(packets))):
        later = np.flatnonzero((place == place[i]) & (np.arange(len(place)) > i) & inside)
        if merged and inside[i] and len(later):
            stamp[i] = stamp[later[0]]
    lag = np.maximum(end, stamp + 1) - stamp
    copies = replace(
        taken([Copy(place=0)] * len(packets), 0),
        consumer=place.astype(np.int32),
        time=stamp,
        lag=lag,
    )
    longest, late = longest_lag(
        copies, lag, [(begin - 10 * SECOND, begin - 9 * SECOND), (begin, end)]
    )
    alone = [np.count_nonzero(stamp == one) == 1 for one in stamp]
    assert ((stamp + lag - longest <= arrived) | (stamp - arrived <= EXACT)).all()
    assert (stamp + lag - longest >= begin)[inside].all()
    assert (longest == lag)[~inside | alone].all()
    assert late == np.count_nonzero(longest > lag + EXACT)
    for i in np.flatnonzero(inside):
        earlier = stamp[inside & (place == place[i]) & (stamp < stamp[i])]
        assert longest[i] - lag[i] <= stamp[i] - max(begin, *earlier, 0)


@pytest.mark.parametrize(
    ("consumers", "stamps", "longer"),
    [
        ([0, 0, 0], [400, 410, 410], [0, 10, 10]),
        ([0, 0, 0, 0], [400, 400, 410, 410], [400, 400, 10, 10]),
        ([1, 0, 0], [400, 410, 410], [0, 410, 410]),
        ([1, 0, 1], [400, 410, 410], [0, 410, 10]),
    ],
)
def test_a_copy_with_its_own_stamp_bounds_the_lag_of_those_after_it(
    consumers: list[int], stamps: list[int], longer: list[int]
) -> None:
    """Those of its consumer; times in ms, in a pause from 0."""
    time = np.array(stamps, np.int64) * MILLISECOND
    lag = SECOND - time
    copies = replace(
        taken([Copy()] * len(stamps), 0), consumer=np.array(consumers, np.int32), time=time, lag=lag
    )
    longest, late = longest_lag(copies, lag, [(0, SECOND)])
    assert ((longest - lag) // MILLISECOND).tolist() == longer
    assert late == np.count_nonzero(longer)


def test_a_stamp_of_another_partition_bounds_no_lag() -> None:
    """A consumer may have a connection for each partition, to brokers with queues of their own."""
    time = np.array([900, 1000, 1000], np.int64) * MILLISECOND
    lag = 2 * SECOND - time
    copies = replace(taken([Copy(order=0), Copy(order=1), Copy(order=1)], 0), time=time, lag=lag)
    longest, _ = longest_lag(copies, lag, [(0, 2 * SECOND)])
    assert ((longest - lag) // MILLISECOND).tolist() == [0, 1000, 1000]


def test_what_a_service_sent_to_another_topic_is_recorded_and_no_delivery() -> None:
    """Consumers 7 and 5 of four for each topic read topic 1, to which stream 1 belongs and stream 0 does not."""
    routed = Topology(topics=3, partitions=1, producers=1, subscriptions=4, consumers=1)
    made, post = inbox(0, topology=routed)
    rows = collected(made, post, [Copy(stream=1), Copy(stream=0, order=1), Copy(1, stream=1)], 0)
    assert rows["stream"].tolist() == [1, 0, 1]
    assert made.counts.received == 2


def test_an_unknown_lag_stays_unknown() -> None:
    copies = replace(taken([Copy(), Copy()], 0), time=np.array([SECOND, SECOND]))
    longest, late = longest_lag(copies, np.array([-1, -1]), [(0, 2 * SECOND)])
    assert (longest.tolist(), late) == ([-1, -1], 0)


def test_a_pause_counts_until_a_collection_has_no_copy_from_it() -> None:
    """A driver may need several collections to read what had come in it."""
    made, post = inbox(0)

    def lags(after: int) -> list[int]:
        copies = taken([Copy(seq=0), Copy(seq=1)], 0)
        post.received = replace(copies, time=np.full(2, START + after), lag=np.array([5, 5]))
        return (made.collect() or {})["lag"].tolist()

    made.note_pause(START, START + 2 * SECOND)
    assert lags(SECOND) == lags(SECOND) == [SECOND // 1000] * 2
    assert (made.late_stamps, made.lag_p99()) == (4, SECOND + 5)
    assert lags(2 * SECOND + 1) == lags(SECOND) == [0, 0]
    assert made.late_stamps == 4


@pytest.mark.parametrize(("first", "begin"), [(26, 0), (24, 24)])
def test_a_pause_that_follows_a_long_one_goes_on_with_it(first: int, begin: int) -> None:
    made, post = inbox(0)
    for start, end in ((0, first), (first, 60)):
        made.note_pause(START + start * MILLISECOND, START + end * MILLISECOND)
    copies = taken([Copy(seq=0), Copy(seq=1)], 0)
    post.received = replace(
        copies, time=np.full(2, START + 50 * MILLISECOND), lag=np.zeros(2, np.int64)
    )
    assert (made.collect() or {})["lag"].tolist() == [(50 - begin) * 1000] * 2


def test_a_pause_that_follows_a_long_one_goes_on_with_it_after_a_collection() -> None:
    """What had come in the long one may have been read in part."""
    made, post = inbox(0)

    def lags(after: int) -> list[int]:
        copies = taken([Copy(seq=0), Copy(seq=1)], 0)
        times = np.full(2, START + after * MILLISECOND)
        post.received = replace(copies, time=times, lag=np.zeros(2, np.int64))
        return (made.collect() or {})["lag"].tolist()

    made.note_pause(START, START + 500 * MILLISECOND)
    assert lags(499) == [499_000] * 2
    made.note_pause(START + 499 * MILLISECOND, START + 620 * MILLISECOND)
    assert lags(600) == [600_000] * 2


@pytest.mark.parametrize(("lag", "took"), [(None, [50, 60]), ([5 * MILLISECOND, -1], [55])])
def test_the_instants_of_takes_are_known_after_a_pause(
    lag: list[int] | None, took: list[int]
) -> None:
    """By the client's stamps, or by the kernel's and the lag; without a pause nobody asks."""
    made, post = inbox(0)
    times = START + np.array([50, 60]) * MILLISECOND
    copies = replace(
        taken([Copy(seq=0), Copy(seq=1)], 0), time=times, lag=None if lag is None else np.array(lag)
    )
    post.received = copies
    made.collect()
    assert made.took_at is None
    made.note_pause(START, START + 40 * MILLISECOND)
    post.received = copies
    made.collect()
    assert made.took_at is not None
    assert ((made.took_at - START) // MILLISECOND).tolist() == took


def test_messages_of_an_earlier_phase_are_not_measured() -> None:
    """Ten were sent before: four of stream 0, three of each other stream."""
    made, post = inbox(10)
    assert collected(made, post, [Copy(stream=0, seq=3), Copy(stream=1, seq=2)], 10) == {}
    assert collected(
        made, post, [Copy(stream=0, seq=3), Copy(stream=0, seq=4), Copy(stream=1, seq=3)], 10
    )["seq"].tolist() == [4, 3]
    assert (made.counts.stragglers, made.counts.received) == (3, 2)


def test_a_second_copy_of_the_highest_message_is_not_late() -> None:
    """A copy below the highest is late, and may be a second copy."""
    made, post = inbox(0)
    assert collected(made, post, [Copy(seq=4), Copy(seq=4)], 0)["flags"].tolist() == [0, 0]
    assert made.repeats == 1
    assert collected(made, post, [Copy(seq=4), Copy(seq=3), Copy(seq=5)], 0)["flags"].tolist() == [
        0,
        Flag.LATE,
        0,
    ]
    assert made.repeats == 3


def test_a_phase_counts_its_own_copies() -> None:
    """Repeats, copies and those beyond bounds are reset; foreign and corrupt ones count over the
    whole run.
    """
    made, post = inbox(0)
    collected(
        made,
        post,
        [Copy(latency=SECOND), Copy(latency=SECOND), Copy(whose="foreign"), Copy(whose="corrupt")],
        0,
    )
    assert (made.counts.received, made.repeats, made.counts.beyond_bounds) == (2, 1, [2, 2])
    made.begin(phase(30), START)
    assert (made.counts.received, made.repeats, made.counts.beyond_bounds) == (0, 0, [0, 0])
    assert (made.counts.foreign, made.counts.corrupt) == (1, 1)
    assert collected(made, post, [Copy(seq=10, latency=SECOND)], 30)["seq"].tolist() == [10]
    assert (made.counts.received, made.repeats, made.counts.beyond_bounds) == (1, 0, [1, 1])


def test_a_run_without_producers_records_no_row() -> None:
    """Every message counts, whatever its head."""
    made, post = inbox(0)
    made.begin(
        Phase(
            name="measure",
            duration=SECOND,
            pacer=PACER,
            before=StreamCounts(streams=0),
            recorded=True,
        ),
        START,
    )
    assert (
        collected(made, post, [Copy(), Copy(seq=1), Copy(whose="foreign"), Copy(latency=SECOND)], 0)
        == {}
    )
    assert (made.counts.received, made.counts.foreign, made.arrivals.seconds) == (4, 0, {0: 3})


@pytest.mark.parametrize("stream", [2**31, 2**32 - 1])
def test_a_stream_number_above_31_bits_is_foreign(stream: int) -> None:
    """It is not a negative index."""
    made, post = inbox(0)
    assert collected(made, post, [Copy(stream=stream)], 0) == {}
    assert made.counts.foreign == 1


def test_messages_of_streams_that_the_run_does_not_have_are_foreign() -> None:
    made, post = inbox(0)
    made.begin(
        Phase(
            name="measure",
            duration=SECOND,
            pacer=Pacer.of(1000, 1),
            before=StreamCounts(streams=1),
            recorded=True,
        ),
        START,
    )
    assert collected(made, post, [Copy(seq=1), Copy(whose="foreign", stream=2), Copy(stream=1)], 0)[
        "seq"
    ].tolist() == [1]
    assert (made.counts.received, made.counts.foreign) == (1, 2)


def test_empty_columns_are_as_good_as_none() -> None:
    made, post = inbox(0)
    assert made.collect() is None
    assert collected(made, post, [], 0) == {}
    assert made.counts.received == 0


def pool_of(*sizes: int, per_bucket: int = 1) -> Any:
    buckets = [
        Bucket(name=f"{size}-{2 * size}", low=size, high=2 * size, weight=1) for size in sizes
    ]
    return build_pool(
        buckets=buckets, message_size=None, representative="uniform" if per_bucket > 1 else "midpoint", randomized=False, random_ratio=0.0,
        file_content=None, seed=0, checksum=False, max_size=None, per_bucket=per_bucket,
    )  # fmt: skip


@pytest.mark.parametrize(
    "pool",
    [pool_of(64), pool_of(16, 32, 1000), pool_of(16, 4000, per_bucket=4)],
    ids=["one", "three", "several"],
)
@pytest.mark.parametrize("changed", [-1, 1, -900])
def test_a_payload_of_another_size_is_corrupt(
    pool: Any, changed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter or longer, also without a checksum."""
    take, cut = NullDriver.take, set()

    def damaged(driver: NullDriver) -> Received | None:
        came = take(driver)
        if came is not None:
            wrong = (np.arange(len(came.size)) % 3 == 0) & (came.size + changed >= 32)
            came.size[wrong] += changed
            cut.update(came.time[wrong].tolist())
        return came

    monkeypatch.setattr(NullDriver, "take", damaged)
    run = drive(tmp_path, rate=1000, seconds=1, pool=pool, streams=1)
    flagged = run.received["flags"] & Flag.CORRUPT != 0
    assert set(run.received["received"][flagged].tolist()) == cut
    assert len(run.received["seq"]) == 1000
    assert len(cut) > 100 or changed == -900


def test_the_first_foreign_and_corrupt_messages_are_kept_with_their_consumers() -> None:
    """Those of another run or stream, with a damaged head, and ours with a damaged body."""
    made, post = inbox(0)
    copies = [
        Copy(),
        Copy(whose="foreign", latency=3),
        Copy(place=1, stream=STREAMS, latency=2),
        Copy(seq=1, more=4, latency=5),
        Copy(place=1, whose="corrupt", latency=4),
    ]
    post.received = replace(taken(copies, 0), bodies=[b"%d" % n for n in range(5)].__getitem__)
    made.collect()
    strays = sorted(made.take_strays(), key=lambda stray: stray.beginning or b"")
    own = intended(Copy(seq=1), 0)
    assert strays == [
        ("foreign", intended(Copy(), 0) + 3, 7, 64, b"1"),
        ("foreign", START + 2, 5, 64, b"2"),
        ("corrupt", own + 5, 7, 68, b"3"),
        ("corrupt", intended(Copy(), 0) + 4, 5, 64, b"4"),
    ]
    assert (made.counts.foreign, made.counts.corrupt) == (2, 1)
    collected(made, post, [Copy(seq=2)], 0)
    assert made.take_strays() == []


def received(*offsets: int) -> Received:
    n = len(offsets)
    return Received(
        consumer=np.zeros(n, np.int32),
        heads=np.zeros((n, 32), np.uint8), size=np.ones(n, np.int32), time=START + np.array(offsets, np.int64), order=np.zeros(n, np.int64),
        flags=np.zeros(n, np.int8),
    )  # fmt: skip


def test_only_arrivals_within_the_phase_are_counted() -> None:
    """A phase of 4.5 s ends within its fifth second: arrivals in the rest of it would raise the
    rate.
    """
    arrivals = Arrivals(START, 4500 * MILLISECOND)
    arrivals.add(received(-1, 0, SECOND - 1, SECOND, 4 * SECOND))
    arrivals.add(
        received(4500 * MILLISECOND - 1, 4500 * MILLISECOND, 4900 * MILLISECOND, 6 * SECOND)
    )
    assert arrivals.seconds == {0: 2, 1: 1, 4: 2}


def test_a_phase_that_ends_earlier_counts_up_to_that_end() -> None:
    arrivals = Arrivals(START, 60 * SECOND)
    arrivals.add(received(SECOND))
    arrivals.duration = 1500 * MILLISECOND
    arrivals.add(received(1500 * MILLISECOND - 1, 1500 * MILLISECOND))
    assert arrivals.seconds == {1: 2}


@pytest.mark.parametrize("offsets", [(), (-5, -3), (2 * SECOND,)])
def test_arrivals_outside_the_phase_add_no_second(offsets: tuple[int, ...]) -> None:
    arrivals = Arrivals(START, 2 * SECOND)
    arrivals.add(received(*offsets))
    assert not arrivals.seconds


def joined(consumers: Sequence[int], first_place: int) -> Joined:
    places = range(first_place, first_place + len(consumers))
    return Joined(np.array(consumers, np.int32), np.array(places, np.int32))


class Seats:
    """A driver's consumers by place, as the inbox sees them: connected, paused, or connecting."""

    def __init__(self, opened: Sequence[int]) -> None:
        self.places = dict(enumerate(opened))
        self.paused: set[int] = set()
        self.waiting: list[int] = []
        self.told: list[tuple[int, int]] = []
        self._next = len(opened)

    def pause(self, places: list[int]) -> None:
        assert set(places) <= self.places.keys() - self.paused
        self.paused |= set(places)

    def resume(self, places: list[int]) -> None:
        assert set(places) == self.paused
        self.paused.clear()

    def detach(self, places: list[int]) -> None:
        for place in places:
            del self.places[place]
        self.paused -= set(places)

    def attach(self, consumers: list[int]) -> None:
        assert not set(consumers) & {
            *self.waiting,
            *self.here,
        }  # a second connection of one consumer would be nobody's
        assert consumers
        self.waiting += consumers

    def attached(self) -> Joined | None:
        """Connect the oldest three of those that are connecting."""
        here, self.waiting = self.waiting[:3], self.waiting[3:]
        if not here:
            return None
        found = joined(here, self._next)
        self.places |= zip(found.place.tolist(), here, strict=True)
        self._next += len(here)
        return found

    def add(self, found: Joined) -> None:
        self.told += zip(found.place.tolist(), found.consumer.tolist(), strict=True)

    @property
    def here(self) -> list[int]:
        return sorted(self.places.values())


class Act(NamedTuple):
    """A step of the test.

    :param limit: consumers of each subscription from now on.
    """

    limit: int | None = None
    paused: bool | None = None


ACTS = st.builds(Act, limit=st.none() | st.integers(0, 4)) | st.builds(Act, paused=st.booleans())


@given(
    st.integers(1, 3),
    st.lists(st.integers(3, 14), unique=True, min_size=1),
    st.data(),
    st.lists(ACTS, max_size=8),
)
def test_once_all_connect_exactly_the_wanted_consumers_are_connected(
    per_subscription: int, mine: list[int], data: st.DataObject, acts: list[Act]
) -> None:
    """Consumer ``i`` is the ``i mod n``-th of its subscription; paused or not."""
    opened = [one for one in mine if data.draw(st.booleans())]
    seats = Seats(opened)
    later = [one for one in mine if one not in opened]
    made = Consumers(seats, seats, joined(opened, 0), later, per_subscription)  # type: ignore[arg-type]
    assert seats.told == list(enumerate(opened))
    wanted, paused = set(opened), False
    for act in acts:
        if act.limit is not None:
            made.limit(act.limit)
            wanted = {one for one in mine if one % per_subscription < act.limit}
            assert set(seats.here) <= wanted
        if act.paused is not None:
            made.pause(paused=act.paused)
            paused = act.paused
        if data.draw(st.booleans()):
            made.welcome()
        assert seats.paused == (set(seats.places) if paused else set())
    while seats.waiting:
        made.welcome()
    assert seats.here == sorted(wanted)
    assert seats.paused == (set(seats.places) if paused else set())
    assert dict(seats.told).items() >= seats.places.items()
