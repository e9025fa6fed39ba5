"""The clock, the null driver and the conformance kit: what they promise, and that the kit sees what is broken."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from null_driver import NullDriver

from pytest_loadtest.drivers.base import Acks, Burst, DriverContext, Joined, Received, TargetAddress
from pytest_loadtest.drivers.columns import positions_without_room
from pytest_loadtest.message import envelope
from pytest_loadtest.message.samples import Status
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import DRIVER_CHECKS, FakeClock, Subject, check_driver
from pytest_loadtest.testing.rig import plain_pool, rows

NOWHERE = TargetAddress(url="null://")
TOPOLOGY = Topology(topics=1, partitions=1, producers=4, subscriptions=1, consumers=2)
WINDOW = 40


def subject(driver, window=None) -> Subject:
    return Subject(driver=driver, target=NOWHERE, settings=None, window=window, deadline=200_000_000)


def windowed(driver, window=WINDOW) -> Subject:
    """A subject that promises a window of 40."""
    return subject(partial(driver, window=window, latency=lambda seq: np.full_like(seq, 100_000)), window=WINDOW)


def null_driver(clock, topology=TOPOLOGY, **options) -> NullDriver:
    context = DriverContext(
        target=NOWHERE, settings=None, clock=clock, run="run", nonce=7, worker="gw0", topology=topology, pool=plain_pool()
    )
    return NullDriver(context, **options)


def burst(count: int, first: int = 0, stream: int = 0) -> Burst:
    """Of one stream; rows are a hundred and the sequence."""
    seq, sent, idle = np.arange(first, first + count), np.zeros(count, np.int64), np.zeros(count, np.int64)
    column = np.full(count, stream, np.int32)
    return Burst(row=seq + 100, stream=column, seq=seq, intended=seq * 10, payload=np.zeros(count, np.uint16), sent=sent, idle=idle)


def test_fake_clock_moves_only_when_told():
    """Reading the clock lets no time pass; sleeping and advancing do, exactly."""
    clock = FakeClock(5)
    assert [clock(), clock()] == [5, 5]
    clock.sleep(10)
    clock.advance(1)
    assert clock() == 16
    with pytest.raises(ValueError, match="ns=-1"):
        clock.advance(-1)


# the null driver


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
def test_null_driver_keeps_the_promises_of_a_driver(check):
    """The null driver passes the kit that every driver must pass, unbounded and with a window."""
    check(subject(NullDriver))
    check(windowed(NullDriver))
    check(subject(partial(NullDriver, window=WINDOW), window=WINDOW))


def test_null_driver_answers_when_its_latency_has_passed():
    """Acks and copies come at sent + latency, stamped exactly then, in the order of those times, and the window follows."""
    clock = FakeClock(1000)
    driver = null_driver(clock, window=4, latency=lambda seq: 100 - 10 * seq)
    assert driver.open_consumers([0]).tolist() == [0]
    driver.open_producers([3])
    messages = burst(6, stream=3)
    assert driver.send(messages).tolist() == [4, 5]
    assert messages.sent.tolist() == [1000] * 4 + [0, 0]
    assert (driver.send(burst(1, 4, stream=3)).tolist(), driver.acks(), driver.take()) == ([0], None, None)
    driver.poll(85)
    acks, received = driver.acks(), driver.take()
    assert acks.row.tolist() == [103, 102]
    assert acks.time.tolist() == received.time.tolist() == [1070, 1080]
    assert acks.status.tolist() == [Status.ACKED] * 2
    heads = envelope.decode_heads(received.heads, received.size, 7)
    assert (heads.seq.tolist(), heads.stream.tolist(), heads.intended.tolist()) == ([3, 2], [3, 3], [30, 20])
    younger = burst(6, 4, stream=3)
    assert driver.send(younger).tolist() == [2, 3, 4, 5]
    driver.poll(15)
    assert driver.acks().row.tolist() == [101, 100]
    driver.poll(45)
    assert driver.acks().time.tolist() == [1135, 1145]
    last = burst(2, 6, stream=3)
    assert (driver.send(last), last.idle.tolist(), younger.idle.tolist()) == (None, [1145, 0], [0] * 6)


def test_null_driver_can_deliver_nothing():
    """With deliver off, messages are acked and received nowhere."""
    driver = null_driver(FakeClock(), deliver=False)
    driver.open_consumers([0])
    driver.open_producers([0])
    assert driver.send(burst(5)) is None
    assert len(driver.acks().row) == 5
    assert driver.take() is None


@given(
    topics=st.integers(1, 4), subscriptions=st.integers(0, 3), consumers=st.integers(1, 3), leaving=st.sets(st.integers(0, 35)),
    streams=st.lists(st.integers(0, 7), max_size=30),
)  # fmt: skip
def test_null_driver_shares_streams_by_number(topics, subscriptions, consumers, leaving, streams):
    """Each subscription of a stream's topic gets a copy, its consumer number (stream modulo those present) takes it."""
    topology = Topology(topics=topics, partitions=1, producers=8, subscriptions=subscriptions, consumers=consumers)
    driver = null_driver(FakeClock(), topology)
    places = driver.open_consumers(range(topology.all_consumers)).tolist()
    driver.detach([place for place in places if place in leaving])
    present = {}
    for place in set(places) - leaving:
        own = (topology.topic_of_consumer(place), topology.subscription_of_consumer(place))
        present.setdefault(own, []).append(place)
    wanted = []
    for seq, stream in enumerate(streams):
        served = [sorted(present.get((stream % topics, subscription), [])) for subscription in range(subscriptions)]
        wanted += [(members[stream % len(members)], stream, seq) for members in served if members]
    driver.send(replace(burst(len(streams)), stream=np.array(streams, np.int32)))
    received = driver.take()
    if received is None:
        assert wanted == []
        return
    heads = envelope.decode_heads(received.heads, received.size, 7)
    assert sorted(zip(received.consumer.tolist(), heads.stream.tolist(), heads.seq.tolist(), strict=True)) == sorted(wanted)


def test_null_driver_gives_others_what_a_paused_consumer_held():
    """Stamped when it is handed over: at the leave, or when its latency has passed."""
    clock = FakeClock(1000)
    driver = null_driver(clock, latency=lambda seq: 10 * seq)
    first, second = driver.open_consumers(range(2)).tolist()
    driver.open_producers([0])
    driver.pause([first])
    driver.send(burst(4))
    driver.poll(15)
    driver.detach([first])
    driver.poll(15)
    received = driver.take()
    assert (received.consumer.tolist(), received.time.tolist()) == ([second] * 4, [1015, 1015, 1020, 1030])
    driver.send(burst(1))
    assert driver.take().time.tolist() == [1030]


def test_null_driver_lets_a_place_deliver_after_it_was_left():
    """Where no other consumer is left, what was under way still comes to the one that has gone, each at its time."""
    clock = FakeClock(1000)
    driver = null_driver(clock, latency=lambda seq: 10 * seq)
    (place,) = driver.open_consumers([0]).tolist()
    driver.send(burst(3))
    driver.detach([place])
    driver.send(burst(1, 3))
    driver.close()
    driver.poll(50)
    received = driver.take()
    assert (received.consumer.tolist(), received.time.tolist()) == ([place] * 3, [1000, 1010, 1020])


# the kit sees what is broken


class _DropsLast(NullDriver):
    def take(self):
        got = super().take()
        return got and Received(*(getattr(got, name)[:-1] for name in Received.__slots__))


class _Twice(NullDriver):
    def take(self):
        got = super().take()
        return got and Received(*(np.concatenate([getattr(got, name)] * 2) for name in Received.__slots__))


class _Damages(NullDriver):
    def take(self):
        got = super().take()
        if got is not None:
            got.heads[0, 20] ^= 1
        return got


class _ShortSize(NullDriver):
    def take(self):
        got = super().take()
        return got and replace(got, size=got.size - 1)


class _WideTime(NullDriver):
    def take(self):
        got = super().take()
        return got and replace(got, time=got.time.astype(float))


class _AcksTwice(NullDriver):
    def acks(self):
        got = super().acks()
        return got and Acks(*(np.concatenate([getattr(got, name)] * 2) for name in ("row", "time", "status")))


class _AcksBefore(NullDriver):
    def acks(self):
        got = super().acks()
        return got and replace(got, time=got.time - 1)


class _AcksSequences(NullDriver):
    def acks(self):
        got = super().acks()
        return got and replace(got, row=np.arange(len(got.row)))


class _AcksInNarrowRows(NullDriver):
    def acks(self):
        got = super().acks()
        return got and replace(got, row=got.row.astype(np.int32))


class _CountsResends(NullDriver):
    def acks(self):
        got = super().acks()
        return got and replace(got, resends=np.ones(len(got.row), np.uint8))


class _Fails(NullDriver):
    def acks(self):
        got = super().acks()
        return got and replace(got, status=got.status + np.int8(Status.FAILED))


class _KeepsColumns(NullDriver):
    def send(self, burst):
        self.row = burst.row
        return super().send(burst)

    def acks(self):
        got = super().acks()
        return got and replace(got, row=self.row)


class _MixesTopics(NullDriver):
    def open_producers(self, streams):
        serve = self._members.serve
        self._members.serve = lambda stream: serve(stream + 1)


class _NeverPauses(NullDriver):
    def pause(self, places):
        pass


class _PausesAll(NullDriver):
    def pause(self, places):
        super().pause(range(2))


class _StampsAsIfSeen(NullDriver):
    resumed = False

    def resume(self, places):
        self.resumed = True
        super().resume(places)

    def take(self):
        got = super().take()
        return got and replace(got, time=got.time - 1_000_000_000 * self.resumed)


class _ForgetsWhatItHeld(NullDriver):
    def resume(self, places):
        self.take()
        super().resume(places)
        self.take()


class _NeverLeaves(NullDriver):
    def detach(self, places):
        pass


class _LeavesWithWhatItHolds(NullDriver):
    def detach(self, places):
        self.resume(places)
        self.take()
        super().detach(places)


class _NeverAttaches(NullDriver):
    def attached(self):
        return None


class _UsesPlacesAgain(NullDriver):
    def attached(self):
        got = super().attached()
        return got and Joined(got.consumer, got.consumer)


@pytest.mark.parametrize(
    ("driver", "complaint"),
    [
        (_DropsLast, "not acked and received in time"),
        (_Twice, "got 600 copies of 300"),
        (_Damages, "1 corrupt"),
        (_ShortSize, "sizes differ"),
        (_WideTime, "time is float64"),
        (_AcksTwice, "acks of"),
        (_AcksBefore, "acked before it was sent"),
        (_AcksSequences, "rows that were never offered"),
        (_AcksInNarrowRows, "row is int32"),
        (_CountsResends, "sent again though no connection was lost"),
        (_Fails, "not every message was acked"),
        (_KeepsColumns, "rows that were never offered"),
        (_MixesTopics, r"consumer 0 got messages of the streams \[1, 7\]"),
        (_NeverPauses, "a paused consumer took 100 messages"),
        (_PausesAll, "received by the one that goes on in time"),
        (_StampsAsIfSeen, "stamped when it is handed over"),
        (_ForgetsWhatItHeld, "not received after resume in time"),
        (_NeverLeaves, "not left alone: the consumer that was to leave goes on taking messages in time"),
        (_LeavesWithWhatItHolds, "received after one has left in time"),
        (_NeverAttaches, "not attached consumer 1 in time"),
        (_UsesPlacesAgain, r"places \[1\] for consumers that come, after \[0, 1\]: wanted \[2\]"),
    ],
)
def test_kit_sees_a_broken_driver(driver, complaint):
    """A driver that breaks one promise fails the kit, with words that say which."""
    with pytest.raises(AssertionError, match=complaint):
        check_driver(subject(driver))


class _RefusesNarrow(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        return None if refused is None else refused.astype(np.int32)


class _RefusesBackwards(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        return None if refused is None else refused[::-1].copy()


class _RefusesNothingInMany(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        return np.empty(0, np.int64) if refused is None else refused


class _RefusesTheFirst(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        if refused is None:
            return None
        burst.sent[0] = burst.idle[0] = 0
        return np.concatenate([[0], refused])


class _StampsWhatItRefuses(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        burst.sent[:] = 1
        return refused


class _ForgetsToStamp(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        burst.sent[:] = 0
        return refused


class _AnswersWhatItRefuses(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        self.left = None if refused is None else burst.row[refused]
        return refused

    def acks(self):
        got, left = super().acks(), getattr(self, "left", None)
        if left is None:
            return got
        self.left = None
        failed = Acks(left, np.full(len(left), self._clock()), np.full(len(left), Status.FAILED, np.int8))
        parts = [part for part in (got, failed) if part]
        return Acks(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "time", "status")))


class _WaitsForTheFullOne(NullDriver):
    def send(self, burst):
        self._settle(self._clock())
        full = positions_without_room(burst.stream, self._windows._room)
        if not len(full):
            return super().send(burst)
        taken = rows(burst, np.arange(full[0]))
        super().send(taken)
        burst.sent[: full[0]], burst.idle[: full[0]] = taken.sent, taken.idle
        return np.arange(full[0], len(burst))


class _NeverIdle(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        burst.idle[:] = 0
        return refused


class _AlwaysIdle(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        taken = burst.sent > 0
        burst.idle[taken] = self._windows._emptied[burst.stream[taken]]
        return refused


class _IdleOfAnyStream(NullDriver):
    def send(self, burst):
        refused = super().send(burst)
        burst.idle[burst.idle > 0] = self._windows._emptied.max()
        return refused


@pytest.mark.parametrize(
    ("driver", "complaint"),
    [
        (_RefusesNarrow, "refused positions are int32"),
        (_RefusesBackwards, "not ascending"),
        (_RefusesNothingInMany, "wanted None when all are taken"),
        (_RefusesTheFirst, "a message was taken after one that was refused"),
        (_StampsWhatItRefuses, "stamped what it refused"),
        (_ForgetsToStamp, "must stamp what it takes"),
        (_AnswersWhatItRefuses, "acks of"),
        (_WaitsForTheFullOne, "because of another stream's full window"),
        (_NeverIdle, r"idle is \[0, 0\]"),
        (_AlwaysIdle, "idle is set while messages are in flight"),
        (_IdleOfAnyStream, "idle is .* the last answers came at"),
    ],
)
def test_kit_sees_broken_windows(driver, complaint):
    """A driver with windows that refuses wrongly, or tells wrongly when a window ran empty, fails."""
    with pytest.raises(AssertionError, match=complaint):
        check_driver(windowed(driver))


def test_kit_sees_a_window_that_is_not_kept():
    """A driver that takes more of a stream than its window fails."""
    with pytest.raises(AssertionError, match="with a window of 40"):
        check_driver(windowed(NullDriver, window=41))
