"""The promises of :mod:`pytest_loadtest.drivers.base`, one check each, for any driver against a running target."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import Final

import numpy as np

from pytest_loadtest.message import envelope
from pytest_loadtest.testing.changing import (
    check_attach_again,
    check_attach_and_detach,
    check_detach_while_paused,
    check_detached_still_delivers,
    check_pause,
    check_pause_of_one,
)
from pytest_loadtest.testing.expected import expect_acked, expect_received, some_of
from pytest_loadtest.testing.refusing import check_full_stream_alone, check_idle, check_window
from pytest_loadtest.testing.rig import Subject, context_of, mixed_pool, plain_pool, rig
from pytest_loadtest.values.quantities import MILLISECOND


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
