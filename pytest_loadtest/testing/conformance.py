"""The promises of :mod:`pytest_loadtest.drivers.base`, one check each, for any driver against a running target."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message import envelope
from pytest_loadtest.testing.expected import check_full_stream_alone, check_idle, check_window, expect_acked, expect_received, some_of
from pytest_loadtest.testing.rig import Rig, Subject, context_of, mixed_pool, plain_pool, rig
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable

# The promises of a driver whose consumers pause, come and go while messages flow.


def check_pause(subject: Subject) -> None:
    """A paused consumer takes nothing while all is acked; after ``resume`` everything comes, stamped later than that."""
    with rig(subject) as r:
        r.send(20)
        r.until(lambda: r.acked >= 20 and r.copies >= 20, "acked and received")
        r.driver.pause(r.places)
        r.send(100, first=20)
        r.until(lambda: r.acked >= 120, "acked while the consumer is paused")
        for _ in range(20):
            r.driver.poll(MILLISECOND)
        r.collect()
        assert r.copies == 20, f"a paused consumer took {r.copies - 20} messages"
        assert r.driver.disconnected() is None, f"pausing cost the connection: {r.driver.disconnected()}"
        resumed = time.monotonic_ns()
        r.driver.resume(r.places)
        r.until(lambda: r.copies >= 120, "received after resume")
        seq, times = r.heads(0).seq, r.column(0, "time")
        assert sorted(seq.tolist()) == list(range(120)), f"{len(seq)} copies of {len(np.unique(seq))} messages, 120 sent"
        assert np.all(times[seq >= 20] >= resumed), "what waited must be stamped when it is handed over, after resume"


def check_pause_of_one(subject: Subject) -> None:
    """Of two subscriptions, one pauses: the other gets everything meanwhile, the paused one afterwards."""
    with rig(subject, subscriptions=2) as r:
        paused, other = r.places
        r.driver.pause([paused])
        r.send(50)
        r.until(lambda: r.acked >= 50 and len(r.column(other, "time")) >= 50, "acked, and received by the one that goes on")
        assert not len(r.column(paused, "time")), f"a paused consumer took {len(r.column(paused, 'time'))} messages"
        r.driver.resume([paused])
        r.until(lambda: r.copies >= 100, "received after resume")
        assert all(sorted(r.heads(place).seq.tolist()) == list(range(50)) for place in r.places), "each subscription gets each message once"


def check_attach_and_detach(subject: Subject) -> None:
    """A second consumer joins and the first leaves while messages flow: each message comes once, and the last ones to who stayed."""
    with rig(_sharing(subject), streams=4, joining=1) as r:
        sent = _while_flowing(r, 0, lambda: r.attach(1))
        r.until(lambda: r.copies >= 4 * sent, "received by two")
        sent = _while_flowing(r, sent, lambda: r.driver.detach(r.places[:1]))
        r.until(lambda: r.acked >= 4 * sent and r.copies >= 4 * sent, "acked, and received after one has left")

        def alone() -> bool:  # a broker takes each client's packets in turn: others' messages overtake its leaving
            nonlocal sent
            before, sent = len(r.column(0, "time")), sent + 50
            r.send(50, first=sent - 50)
            r.until(lambda: r.copies >= 4 * sent, "received after one has left")
            return len(r.column(0, "time")) == before

        r.until(alone, "left alone: the consumer that was to leave goes on taking messages")
        _expect_once(r, 4 * sent)
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_detached_still_delivers(subject: Subject) -> None:
    """What a consumer has when it leaves is not lost, though nobody had asked for it until then."""
    with rig(_sharing(subject), streams=4, consumers=2) as r:
        burst = r.burst(min(subject.window or 50, 50))
        r.offer(burst)
        for _ in range(20):
            r.driver.poll(MILLISECOND)
        r.driver.detach(r.places[:1])
        r.finish(burst)
        r.until(lambda: r.acked >= len(burst) and r.copies >= len(burst), "acked, and received after one has left")
        _expect_once(r, len(burst))


def check_detach_while_paused(subject: Subject) -> None:
    """A paused consumer that leaves loses nothing: what it held comes, whoever takes it."""
    with rig(_sharing(subject), streams=2, consumers=2) as r:
        r.driver.pause(r.places[:1])
        r.send(100)
        r.until(lambda: r.acked >= 200, "acked while one consumer is paused")
        r.driver.detach(r.places[:1])
        r.until(lambda: r.copies >= 200, "received after the paused one has left")
        _expect_once(r, 200)


def check_attach_again(subject: Subject) -> None:
    """A consumer that left can come again at once, under the same number and in a new place."""
    with rig(_sharing(subject), consumers=2) as r:
        for _ in range(2):
            r.driver.detach(r.places[-1:])
            r.attach(1)
        assert r.driver.attached() is None, "the same consumers were attached twice"
        r.send(100)
        r.until(lambda: r.acked >= 100 and r.copies >= 100, "acked and received")
        assert r.copies == 100, f"{r.copies} copies, 100 sent"


def _sharing(subject: Subject) -> Subject:
    return replace(subject, settings=subject.shared or subject.settings)


def _expect_once(r: Rig, sent: int) -> None:
    """Each message came to one of the consumers, once."""
    got = [pair for place in r.places for pair in zip(r.heads(place).stream.tolist(), r.heads(place).seq.tolist(), strict=True)]
    assert len(set(got)) == len(got) == sent, f"{len(got)} copies of {len(set(got))} messages, {sent} sent"


def _while_flowing(r: Rig, first: int, change: Callable[[], object]) -> int:
    """Send on every stream from ``first`` on, with the change in the midst of it; return the next sequence.

    No more than brokers keep for a consumer that is slower than the producers: mosquitto drops from the 1001st on.
    """
    r.send(100, first)
    change()
    r.send(100, first + 100)
    return first + 200


def check_facts(subject: Subject) -> None:
    """Without a connection, the driver names its client and says of each setting whether it is applied."""
    facts = subject.driver(context_of(subject, plain_pool())).facts()
    assert facts.client and facts.version, f"client and version must be named: {facts}"
    both = set(facts.applied) & set(facts.not_applied)
    assert not both, f"applied and not applied at once: {sorted(both)}"


def check_quiet(subject: Subject) -> None:
    """An open driver with nothing to do says so: nothing answered, nothing received, nobody joined, all connected."""
    with rig(subject) as r:
        r.driver.poll(0)
        r.driver.poll(MILLISECOND)
        came = [r.driver.acks(), r.driver.take(), r.driver.attached()]
        assert came == [None, None, None], "something came although nothing was sent"
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_round_trip(subject: Subject) -> None:
    """Two streams from sequence 0: every message is acked once and received once, whole, in order, stamped in between."""
    start = time.monotonic_ns()
    with rig(subject, streams=2) as r:
        burst = r.send(300)
        r.until(lambda: r.acked >= 600 and r.copies >= 600, "acked and received")
        r.driver.poll(MILLISECOND)
        r.collect()
        expect_acked(r, burst, start)
        expect_received(r, r.places[0], burst, subject.ordered)
        assert all(np.all(part.time >= start) & np.all(part.time <= time.monotonic_ns()) for part in r.received)


def check_mixed_sizes(subject: Subject) -> None:
    """Sizes from 16 bytes to 40 KiB in one burst arrive whole: head, size and checksum."""
    with rig(subject, mixed_pool()) as r:
        burst = r.send(200)
        r.until(lambda: r.acked >= 200 and r.copies >= 200, "acked and received")
        expect_received(r, r.places[0], burst, subject.ordered)


def check_streams_of_a_worker(subject: Subject) -> None:
    """A worker sends every third stream of two topics: rows are its own, streams are the run's."""
    start = time.monotonic_ns()
    with rig(subject, topics=2, streams=range(1, 8, 3)) as r:
        burst = r.send(100)
        r.until(lambda: r.acked >= 300 and r.copies >= 300, "acked and received")
        expect_acked(r, burst, start)
        for topic, place in enumerate(r.places):
            expect_received(r, place, some_of(burst, burst.stream % 2 == topic), subject.ordered)


def check_topics(subject: Subject) -> None:
    """Streams are dealt over the topics in turn, and each subscription gets what its topic gets, no more."""
    with rig(subject, topics=3, streams=6, subscriptions=2) as r:
        burst = r.send(50)
        r.until(lambda: r.acked >= 300 and r.copies >= 600, "acked and received twice")
        topic = r.topology.topic_of_consumer(np.arange(len(r.places)))
        for place, own in zip(r.places, topic.tolist(), strict=True):
            expect_received(r, place, some_of(burst, r.topology.topic_of_stream(burst.stream) == own), subject.ordered)


def check_shared_subscription(subject: Subject) -> None:
    """Two consumers of one subscription share its messages: each message goes to one of them, and both get some."""
    with rig(replace(subject, settings=subject.shared or subject.settings), streams=4, consumers=2) as r:
        r.send(250)
        r.until(lambda: r.acked >= 1000 and r.copies >= 1000, "acked and received")
        first, second = (set(zip(h.stream.tolist(), h.seq.tolist(), strict=True)) for h in (r.heads(0), r.heads(1)))
        assert first and second, f"one consumer got all: {len(first)} and {len(second)}"
        assert not first & second, f"{len(first & second)} messages went to both consumers"
        assert len(first | second) == r.copies == 1000, f"{r.copies} copies of {len(first | second)} messages, 1000 sent"


def check_every_subscription(subject: Subject) -> None:
    """Each of two subscriptions gets everything."""
    with rig(subject, streams=2, subscriptions=2) as r:
        burst = r.send(200)
        r.until(lambda: r.acked >= 400 and r.copies >= 800, "acked and received twice")
        for place in r.places:
            expect_received(r, place, burst, subject.ordered)


def check_existing_topic(subject: Subject) -> None:
    """A run on an existing topic gets its own messages and tells others apart; its end leaves topic and other subscribers alone."""
    if subject.existing is None:
        return
    with rig(subject, name=subject.existing) as somebody:
        somebody.send(10)
        somebody.until(lambda: somebody.acked >= 10 and somebody.copies >= 10, "acked and received")
        with rig(subject, name=subject.existing) as r:
            burst = r.send(20)
            r.until(lambda: r.acked >= 20 and r.copies >= 20, "acked and received")
            expect_received(r, 0, burst, subject.ordered)
            somebody.send(10, first=10)
            somebody.until(lambda: somebody.acked >= 20, "acked")
            r.until(lambda: r.copies >= 30, "received what somebody else sent too")
            assert np.count_nonzero(r.heads(0).kind == envelope.FOREIGN) == 10, "messages of somebody else are foreign"
        somebody.send(10, first=20)
        somebody.until(lambda: somebody.acked >= 30 and somebody.copies >= 50, "served after the other run has ended")
        heads = somebody.heads(0)
        assert sorted(heads.seq[heads.kind == envelope.OURS].tolist()) == list(range(30)), "the other run disturbed somebody"


def check_producers_alone(subject: Subject) -> None:
    """A run that only sends."""
    with rig(subject, subscriptions=0) as r:
        assert r.places == [], f"{len(r.places)} consumers were opened, none asked for"
        r.send(20)
        r.until(lambda: r.acked >= 20, "acked")
        assert r.driver.take() is None, "something came although nobody listens"
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_consumers_alone(subject: Subject) -> None:
    """A run that only listens."""
    with rig(subject, streams=0) as r:
        r.driver.poll(MILLISECOND)
        assert r.driver.acks() is None and r.driver.take() is None, "something came although nobody sends"
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_close(subject: Subject) -> None:
    """``close`` may come before anything was opened, and twice."""
    unopened = subject.driver(context_of(subject, plain_pool()))
    unopened.close()
    with rig(subject) as r:
        r.send(10)
        r.driver.close()
        r.driver.close()


def check_cleanup(subject: Subject) -> None:
    """A run that left messages unread leaves nothing to the next run of that name."""
    name = f"kit-{secrets.token_hex(4)}"
    with rig(subject, run=name) as r:
        r.send(50)
        r.until(lambda: r.acked >= 50, "acked")
    with rig(subject, run=name) as r:
        burst = r.send(20)
        r.until(lambda: r.acked >= 20 and r.copies >= 20, "acked and received")
        expect_received(r, 0, burst, subject.ordered)


DRIVER_CHECKS: Final = (
    check_facts,
    check_quiet,
    check_round_trip,
    check_mixed_sizes,
    check_streams_of_a_worker,
    check_topics,
    check_window,
    check_full_stream_alone,
    check_idle,
    check_shared_subscription,
    check_every_subscription,
    check_pause,
    check_pause_of_one,
    check_attach_and_detach,
    check_detached_still_delivers,
    check_detach_while_paused,
    check_attach_again,
    check_existing_topic,
    check_producers_alone,
    check_consumers_alone,
    check_close,
    check_cleanup,
)


def check_driver(subject: Subject) -> None:
    """Every promise in turn.

    :raises AssertionError: the first that the driver does not keep.
    """
    for check in DRIVER_CHECKS:
        check(subject)
