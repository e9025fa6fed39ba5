"""The clock, the null driver and the conformance kit: what they promise, and that the kit sees what is broken."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from pytest_loadtest import envelope
from pytest_loadtest.drivers._base import Acks, Burst, ConsumerSpec, DriverContext, ProducerSpec, Received, TargetAddress, TopicSpec
from pytest_loadtest.samples import Status
from pytest_loadtest.testing import DRIVER_CHECKS, FakeClock, NullDriver, Subject, check_driver
from pytest_loadtest.testing.rig import plain_pool

NOWHERE = TargetAddress(url="null://")
TOPIC = TopicSpec(index=0)


def subject(driver, window=None) -> Subject:
    return Subject(driver=driver, target=NOWHERE, settings=None, window=window, deadline=200_000_000)


def null_driver(clock, **options) -> NullDriver:
    context = DriverContext(
        target=NOWHERE, settings=None, clock=clock, run="run", nonce=7, worker="gw0", topics=(TOPIC,), pool=plain_pool()
    )
    return NullDriver(context, **options)


def burst(count: int) -> Burst:
    seq = np.arange(count)
    return Burst(seq=seq, intended=seq * 10, payload=np.zeros(count, np.uint16), sent=np.zeros(count, np.int64))


def test_fake_clock_moves_only_when_told():
    """Reading the clock lets no time pass; sleeping and advancing do, exactly."""
    clock = FakeClock(5)
    assert [clock(), clock()] == [5, 5]
    clock.sleep(10)
    clock.advance(1)
    assert clock() == 16
    with pytest.raises(ValueError, match="ns=-1"):
        clock.advance(-1)


@pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
def test_null_driver_keeps_the_promises_of_a_driver(check):
    """The null driver passes the kit that every driver must pass, unbounded and with a window."""
    check(subject(NullDriver))
    check(subject(partial(NullDriver, window=40, latency=lambda seq: np.full_like(seq, 100_000)), window=40))


def test_null_driver_answers_when_its_latency_has_passed():
    """Acks and copies come at sent + latency, stamped exactly then, in the order of those times, and the window follows."""
    clock = FakeClock(1000)
    driver = null_driver(clock, window=4, latency=lambda seq: 100 - 10 * seq)
    (consumer,) = driver.open_consumers([ConsumerSpec(index=0, topic=TOPIC, subscription=0)])
    (producer,) = driver.open_producers([ProducerSpec(stream=3, topic=TOPIC)])
    messages = burst(6)
    assert producer.send(messages) == 4
    assert messages.sent.tolist() == [1000] * 4 + [0, 0]
    assert (producer.in_flight, producer.acks(), consumer.take()) == (4, None, None)
    driver.poll(85)
    acks, received = producer.acks(), consumer.take()
    assert acks.seq.tolist() == [3, 2]
    assert acks.time.tolist() == received.time.tolist() == [1070, 1080]
    assert acks.status.tolist() == [Status.ACKED] * 2
    heads = envelope.decode_heads(received.heads, received.size, 7)
    assert (heads.seq.tolist(), heads.stream.tolist(), heads.intended.tolist()) == ([3, 2], [3, 3], [30, 20])
    assert producer.in_flight == 2
    driver.poll(15)
    assert (producer.in_flight, producer.idle_since, producer.acks().seq.tolist()) == (0, 1100, [1, 0])


def test_null_driver_can_deliver_nothing():
    """With deliver off, messages are acked and received nowhere."""
    driver = null_driver(FakeClock(), deliver=False)
    (consumer,) = driver.open_consumers([ConsumerSpec(index=0, topic=TOPIC, subscription=0)])
    (producer,) = driver.open_producers([ProducerSpec(stream=0, topic=TOPIC)])
    assert producer.send(burst(5)) == 5
    assert len(producer.acks().seq) == 5
    assert consumer.take() is None


class _Broken(NullDriver):
    """A null driver whose producers and consumers are wrapped."""

    producer: type | None = None
    consumer: type | None = None

    def open_producers(self, specs):
        return [self.producer(inner) if self.producer else inner for inner in super().open_producers(specs)]

    def open_consumers(self, specs):
        made = super().open_consumers(specs)
        return [self.consumer(inner) if self.consumer else inner for inner in made]

    def detach(self, consumers):
        super().detach([consumer.inner if self.consumer else consumer for consumer in consumers])


class _Wrapped:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class _DropsLast(_Wrapped):
    def take(self):
        got = self.inner.take()
        return got and Received(got.heads[:-1], got.size[:-1], got.time[:-1], got.order[:-1], got.flags[:-1])


class _Twice(_Wrapped):
    def take(self):
        got = self.inner.take()
        return got and Received(*(np.concatenate([getattr(got, name)] * 2) for name in Received.__slots__))


class _Damages(_Wrapped):
    def take(self):
        got = self.inner.take()
        if got is not None:
            got.heads[0, 20] ^= 1
        return got


class _ShortSize(_Wrapped):
    def take(self):
        got = self.inner.take()
        return got and Received(got.heads, got.size - 1, got.time, got.order, got.flags)


class _WideTime(_Wrapped):
    def take(self):
        got = self.inner.take()
        return got and Received(got.heads, got.size, got.time.astype(float), got.order, got.flags)


class _AcksTwice(_Wrapped):
    def acks(self):
        got = self.inner.acks()
        return got and Acks(*(np.concatenate([getattr(got, name)] * 2) for name in Acks.__slots__))


class _AcksBefore(_Wrapped):
    def acks(self):
        got = self.inner.acks()
        return got and Acks(got.seq, got.time - 1, got.status)


class _Fails(_Wrapped):
    def acks(self):
        got = self.inner.acks()
        return got and Acks(got.seq, got.time, got.status + np.int8(Status.FAILED))


class _NeverPauses(_Wrapped):
    def pause(self):
        pass


class _StampsAsIfSeen(_Wrapped):
    resumed = False

    def resume(self):
        self.resumed = True
        self.inner.resume()

    def take(self):
        got = self.inner.take()
        return got and Received(got.heads, got.size, got.time - 1_000_000_000 * self.resumed, got.order, got.flags)


class _ForgetsWhatItHeld(_Wrapped):
    def resume(self):
        self.inner.take()
        self.inner.resume()
        self.inner.take()


class _NeverLeaves(NullDriver):
    def detach(self, consumers):
        pass


class _LeavesWithWhatItHolds(NullDriver):
    def detach(self, consumers):
        for consumer in consumers:
            consumer.resume()
            consumer.take()
        super().detach(consumers)


class _NeverAttaches(NullDriver):
    def attached(self):
        return []


class _NeverIdle(_Wrapped):
    @property
    def in_flight(self):
        return 1


@pytest.mark.parametrize(
    ("role", "wrapper", "complaint"),
    [
        ("consumer", _DropsLast, "not acked and received in time"),
        ("consumer", _Twice, "got 600 copies of 300"),
        ("consumer", _Damages, "1 corrupt"),
        ("consumer", _ShortSize, "sizes differ"),
        ("consumer", _WideTime, "time is float64"),
        ("producer", _AcksTwice, "acks of"),
        ("producer", _AcksBefore, "acked before it was sent"),
        ("producer", _Fails, "not every message was acked"),
        ("producer", _NeverIdle, "1 in flight"),
        ("consumer", _NeverPauses, "a paused consumer took 100 messages"),
        ("consumer", _StampsAsIfSeen, "stamped when it is handed over"),
        ("consumer", _ForgetsWhatItHeld, "not received after resume in time"),
    ],
)
def test_kit_sees_a_broken_driver(role, wrapper, complaint):
    """A driver that breaks one promise fails the kit, with words that say which."""
    broken = type("Broken", (_Broken,), {role: wrapper})
    with pytest.raises(AssertionError, match=complaint):
        check_driver(subject(broken))


@pytest.mark.parametrize(
    ("driver", "complaint"),
    [
        (_NeverLeaves, "took [0-9]+ messages after it had left"),
        (_LeavesWithWhatItHolds, "received after one has left in time"),
        (_NeverAttaches, "not attached consumer 1 in time"),
    ],
)
def test_kit_sees_consumers_that_come_and_go_wrongly(driver, complaint):
    """A driver whose consumers do not come, do not go, or take messages with them fails."""
    with pytest.raises(AssertionError, match=complaint):
        check_driver(subject(driver))


def test_null_driver_gives_others_what_a_paused_consumer_held():
    """Stamped when it is handed over: at the leave, or when its latency has passed."""
    clock = FakeClock(1000)
    driver = null_driver(clock, latency=lambda seq: 10 * seq)
    first, second = driver.open_consumers([ConsumerSpec(index=i, topic=TOPIC, subscription=0) for i in range(2)])
    (producer,) = driver.open_producers([ProducerSpec(stream=0, topic=TOPIC)])
    first.pause()
    producer.send(burst(4))
    driver.poll(15)
    driver.detach([first])
    driver.poll(15)
    assert (first.take(), second.take().time.tolist()) == (None, [1015, 1015, 1020, 1030])
    producer.send(burst(1))
    assert second.take().time.tolist() == [1030]


def test_kit_sees_a_window_that_is_not_kept():
    """A producer that takes more than its window fails."""
    with pytest.raises(AssertionError, match="with a window of 40"):
        check_driver(subject(partial(NullDriver, window=41, latency=lambda seq: np.full_like(seq, 100_000)), window=40))
