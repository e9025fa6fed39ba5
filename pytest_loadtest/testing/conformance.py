"""One check for each promise of :mod:`pytest_loadtest.drivers.base`.

Any driver can be checked against a running target.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.message import envelope
from pytest_loadtest.message.route import Carrier, Route, parse_place
from pytest_loadtest.testing.rig import (
    Rig,
    Subject,
    context_of,
    expect_acked,
    expect_received,
    mixed_pool,
    placed_pool,
    plain_pool,
    rig,
    select_messages,
)
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable


def check_facts(subject: Subject) -> None:
    """The driver names its client without a connection.

    Each setting is either applied or not.
    """
    facts = subject.driver(context_of(subject, plain_pool())).facts()
    assert facts.client and facts.version, f"client and version must be named: {facts}"
    both = set(facts.applied) & set(facts.not_applied)
    assert not both, f"applied and not applied at once: {sorted(both)}"


def check_quiet(subject: Subject) -> None:
    """An open driver with nothing to do returns None everywhere.

    There is no answer, no message, no new consumer, and nothing disconnected.
    """
    with rig(subject) as r:
        r.driver.poll(0)
        r.driver.poll(MILLISECOND)
        results = [r.driver.acks(), r.driver.take(), r.driver.attached()]
        assert results == [None, None, None], "something came although nothing was sent"
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_round_trip(subject: Subject) -> None:
    """Every message of two streams is acked once and received once, complete and in order.

    Its timestamps are between start and end.
    """
    start = time.monotonic_ns()
    with rig(subject, streams=2) as r:
        burst = r.send(300)
        _await_all(r, 600)
        r.driver.poll(MILLISECOND)
        r.collect()
        expect_acked(r, burst, start)
        expect_received(r, r.places[0], burst, subject.ordered)
        assert all(
            np.all(part.time >= start) & np.all(part.time <= time.monotonic_ns())
            for part in r.received
        )


def check_mixed_sizes(subject: Subject) -> None:
    """Messages from 26 bytes to 40 KiB in one burst arrive complete: head, size and checksum."""
    with rig(subject, mixed_pool()) as r:
        burst = r.send(200)
        _await_all(r, 200)
        expect_received(r, r.places[0], burst, subject.ordered)


def check_streams_of_a_worker(subject: Subject) -> None:
    """A worker sends every third stream of two topics.

    Rows are numbered by worker, streams by run.
    """
    start = time.monotonic_ns()
    with rig(subject, topics=2, streams=range(1, 8, 3)) as r:
        burst = r.send(100)
        _await_all(r, 300)
        expect_acked(r, burst, start)
        for topic, place in enumerate(r.places):
            expect_received(
                r, place, select_messages(burst, burst.stream % 2 == topic), subject.ordered
            )


def check_topics(subject: Subject) -> None:
    """Streams are assigned to the topics in turn.

    Each subscription receives the messages of its topic and no others.
    """
    with rig(subject, topics=3, streams=6, subscriptions=2) as r:
        burst = r.send(50)
        r.until(lambda: r.acked >= 300 and r.copies >= 600, "acked and received twice")
        topic = r.topology.topic_of_consumer(np.arange(len(r.places)))
        for place, own in zip(r.places, topic.tolist(), strict=True):
            expect_received(
                r,
                place,
                select_messages(burst, r.topology.topic_of_stream(burst.stream) == own),
                subject.ordered,
            )


def check_window(subject: Subject) -> None:
    """``send`` takes at most a window of messages of a stream without blocking.

    It takes more once the window is empty.
    """
    window = subject.window
    if window is None:
        return
    for streams in (1, 3):
        with rig(subject, streams=streams) as r:
            burst = r.burst(2 * window)
            left = r.offer(burst)
            taken = np.bincount(np.delete(burst.stream, left), minlength=streams)
            assert np.all((taken > 0) & (taken <= window)), (
                f"took {taken.tolist()} messages at once with a window of {window}"
            )
            r.until(partial(r.has_acked, int(taken.sum())), "the window emptied")
            again = r.offer(burst, left)
            more = np.bincount(np.delete(burst.stream, again), minlength=streams) - taken
            assert np.all(more > 0), "an empty window took nothing"
            r.finish(burst)
            r.until(partial(r.has_acked, len(burst)), "acked after the window was full")


def check_full_stream_alone(subject: Subject) -> None:
    """A stream with a full window does not delay another stream, even in the same burst."""
    window = subject.window
    if window is None:
        return
    start = time.monotonic_ns()
    with rig(subject, streams=2) as r:
        burst = r.burst(2 * window)
        other = np.flatnonzero(burst.stream == 1)
        left = r.offer(burst, np.concatenate([np.flatnonzero(burst.stream == 0), other[:1]]))
        assert len(left), f"took {2 * window} messages at once with a window of {window}"
        assert other[0] not in left, (
            "a message was rejected because of another stream's full window"
        )
        r.finish(burst)
        _await_all(r, len(burst))
        expect_acked(r, burst, start)
        expect_received(r, r.places[0], burst, subject.ordered)


def check_idle(subject: Subject) -> None:
    """``idle`` of a message is the time of the answer that emptied the window.

    It is 0 for messages that found no empty window.
    """
    if subject.window is None:
        return
    with rig(subject, streams=2) as r:
        count = min(subject.window, 20)
        # One stream after the other, so that their windows become empty at different times.
        for stream in r.streams:
            r.finish(r.burst(count, streams=[stream]))
            r.until(partial(r.has_acked, (stream + 1) * count), "acked")
        for first in (count, 2 * count):
            r.until(partial(r.has_acked, 2 * first), "the window emptied")
            last = [int(r.answers(stream).time.max()) for stream in r.streams]
            burst = r.burst(count, first)
            r.offer(burst)
            assert burst.idle[:2].tolist() == last, (
                f"idle is {burst.idle[:2].tolist()}, the last answers came at {last}"
            )
            r.finish(burst)
        r.until(lambda: r.acked >= 6 * count, "acked")
        for stream in r.streams:
            _check_idle_times(r, stream)


def _check_idle_times(r: Rig, stream: int) -> None:
    """Check that ``idle`` is set only when all earlier messages are answered.

    It equals the time of their last answer.
    """
    answers = r.answers(stream)
    answered = np.maximum.accumulate(answers.time[np.argsort(answers.seq)])
    idle = np.concatenate([burst.idle[burst.stream == stream] for burst in r.bursts])
    assert idle[0] == 0, f"stream {stream}: idle is {idle[0]} before anything was answered"
    assert np.all((idle[1:] == 0) | (idle[1:] == answered[:-1])), (
        f"stream {stream}: idle is set while messages are in flight"
    )


def check_shared_subscription(subject: Subject) -> None:
    """Two consumers of one subscription share its messages.

    Each message goes to one of them, and both receive some.
    """
    with rig(_with_sharing(subject), streams=4, consumers=2) as r:
        r.send(250)
        _await_all(r, 1000)
        first, second = (
            set(zip(h.stream.tolist(), h.seq.tolist(), strict=True))
            for h in (r.heads(0), r.heads(1))
        )
        assert first and second, (
            f"one consumer received everything: {len(first)} and {len(second)} messages"
        )
        assert not first & second, f"{len(first & second)} messages went to both consumers"
        assert len(first | second) == r.copies == 1000, (
            f"{r.copies} copies of {len(first | second)} messages, 1000 sent"
        )


def check_every_subscription(subject: Subject) -> None:
    """Each of two subscriptions receives every message."""
    with rig(subject, streams=2, subscriptions=2) as r:
        burst = r.send(200)
        r.until(lambda: r.acked >= 400 and r.copies >= 800, "acked and received twice")
        for place in r.places:
            expect_received(r, place, burst, subject.ordered)


def check_pause(subject: Subject) -> None:
    """A paused consumer takes nothing while messages are acked.

    After ``resume`` it receives all of them, with later timestamps.
    """
    with rig(subject) as r:
        r.send(20)
        _await_all(r, 20)
        r.driver.pause(r.places)
        r.send(100, first=20)
        r.until(lambda: r.acked >= 120, "acked while the consumer is paused")
        for _ in range(20):
            r.driver.poll(MILLISECOND)
        r.collect()
        assert r.copies == 20, f"a paused consumer took {r.copies - 20} messages"
        assert r.driver.disconnected() is None, (
            f"the pause ended the connection: {r.driver.disconnected()}"
        )
        resumed = time.monotonic_ns()
        r.driver.resume(r.places)
        r.until(lambda: r.copies >= 120, "received after resume")
        seq = r.heads(0).seq
        times = r.column(0, "time")
        assert sorted(seq.tolist()) == list(range(120)), (
            f"{len(seq)} copies of {len(np.unique(seq))} messages, 120 sent"
        )
        assert np.all(times[seq >= 20] >= resumed), (
            "messages held during a pause must be stamped when they are handed over, after resume"
        )


def check_pause_of_one(subject: Subject) -> None:
    """While one of two subscriptions is paused the other receives everything.

    The paused one follows after ``resume``.
    """
    with rig(subject, subscriptions=2) as r:
        paused, other = r.places
        r.driver.pause([paused])
        r.send(50)
        r.until(
            lambda: r.acked >= 50 and len(r.column(other, "time")) >= 50,
            "acked, and received by the consumer that is not paused",
        )
        assert not len(r.column(paused, "time")), (
            f"a paused consumer took {len(r.column(paused, 'time'))} messages"
        )
        r.driver.resume([paused])
        r.until(lambda: r.copies >= 100, "received after resume")
        complete = all(sorted(r.heads(place).seq.tolist()) == list(range(50)) for place in r.places)
        assert complete, "each subscription must receive each message once"


def check_attach_and_detach(subject: Subject) -> None:
    """A second consumer joins and the first leaves while messages flow.

    Each message arrives once, the last ones at the second.
    """
    with rig(_with_sharing(subject), streams=4, joining=1) as r:
        sent = _send_around(r, 0, lambda: r.attach(1))
        r.until(lambda: r.copies >= 4 * sent, "received by two consumers")
        sent = _send_around(r, sent, lambda: r.driver.detach(r.places[:1]))
        r.until(
            lambda: r.acked >= 4 * sent and r.copies >= 4 * sent,
            "acked, and received after a consumer has left",
        )

        # A broker serves its clients in turn, so messages sent after detach() may still reach the
        # consumer that leaves.
        def alone() -> bool:
            nonlocal sent
            before = len(r.column(0, "time"))
            sent = sent + 50
            r.send(50, first=sent - 50)
            r.until(lambda: r.copies >= 4 * sent, "received after a consumer has left")
            return len(r.column(0, "time")) == before

        r.until(alone, "left by the detached consumer, which goes on taking messages")
        _expect_once(r, 4 * sent)
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_detached_still_delivers(subject: Subject) -> None:
    """Messages that a consumer has received when it leaves are not lost.

    Nothing needs to be taken from it before.
    """
    with rig(_with_sharing(subject), streams=4, consumers=2) as r:
        burst = r.burst(min(subject.window or 50, 50))
        r.offer(burst)
        for _ in range(20):
            r.driver.poll(MILLISECOND)
        r.driver.detach(r.places[:1])
        r.finish(burst)
        r.until(
            partial(_has_all, r, len(burst)),
            "acked, and received after a consumer has left",
        )
        _expect_once(r, len(burst))


def check_detach_while_paused(subject: Subject) -> None:
    """A consumer that leaves while paused loses nothing.

    Every message reaches one of the consumers.
    """
    with rig(_with_sharing(subject), streams=2, consumers=2) as r:
        r.driver.pause(r.places[:1])
        r.send(100)
        r.until(lambda: r.acked >= 200, "acked while one consumer is paused")
        r.driver.detach(r.places[:1])
        r.until(lambda: r.copies >= 200, "received after the paused consumer has left")
        _expect_once(r, 200)


def check_attach_again(subject: Subject) -> None:
    """A consumer that left can return at once, with the same index and a new place."""
    with rig(_with_sharing(subject), consumers=2) as r:
        for _ in range(2):
            r.driver.detach(r.places[-1:])
            r.attach(1)
        assert r.driver.attached() is None, "the same consumers were attached twice"
        r.send(100)
        _await_all(r, 100)
        assert r.copies == 100, f"{r.copies} copies, 100 sent"


def _with_sharing(subject: Subject) -> Subject:
    return replace(subject, settings=subject.shared or subject.settings)


def _expect_once(r: Rig, sent: int) -> None:
    """Check that each of ``sent`` messages reached one of the consumers, once."""
    copies = [
        pair
        for place in r.places
        for pair in zip(r.heads(place).stream.tolist(), r.heads(place).seq.tolist(), strict=True)
    ]
    assert len(set(copies)) == len(copies) == sent, (
        f"{len(copies)} copies of {len(set(copies))} messages, {sent} sent"
    )


def _send_around(r: Rig, first: int, change: Callable[[], object]) -> int:
    """Send 100 messages on every stream from sequence ``first`` on, make the change, send 100 more.

    Return the next sequence.
    """
    # Few enough for the queue of a consumer that is slower than the producers: by default mosquitto
    # keeps 1 000 messages for a client (max_queued_messages) and drops later ones.
    r.send(100, first)
    change()
    r.send(100, first + 100)
    return first + 200


def check_existing_topic(subject: Subject) -> None:
    """A run on an existing topic recognizes its own messages.

    Neither it nor its end disturbs the topic's other users.
    """
    if subject.existing is None:
        return
    with rig(subject, name=subject.existing) as neighbour:
        neighbour.send(10)
        neighbour.until(
            lambda: neighbour.acked >= 10 and neighbour.copies >= 10, "acked and received"
        )
        with rig(subject, name=subject.existing) as r:
            burst = r.send(20)
            _await_all(r, 20)
            expect_received(r, 0, burst, subject.ordered)
            neighbour.send(10, first=10)
            neighbour.until(lambda: neighbour.acked >= 20, "acked")
            r.until(lambda: r.copies >= 30, "received together with the messages of another run")
            assert np.count_nonzero(r.heads(0).kind == envelope.FOREIGN) == 10, (
                "messages of another run must be foreign"
            )
        neighbour.send(10, first=20)
        neighbour.until(
            lambda: neighbour.acked >= 30 and neighbour.copies >= 50,
            "acked and received after the other run has ended",
        )
        heads = neighbour.heads(0)
        assert sorted(heads.seq[heads.kind == envelope.OURS].tolist()) == list(range(30)), (
            "the run disturbed another one on its topic"
        )


def check_envelopes(subject: Subject) -> None:
    """A driver that tests services writes and reads envelopes in each place that it names.

    One topic is input and output, so that the run receives what it sends.
    """
    for carrier in subject.envelopes:
        place = parse_place("json:/meta/ref" if carrier == Carrier.JSON else carrier)
        topic = f"{subject.existing or 'kit'}-{carrier}"
        route = Route(input=topic, output=(topic,), sent=place, received=place)
        with rig(subject, placed_pool(place), route=route) as r:
            burst = r.send(200)
            r.until(partial(_has_all, r, 200), f"acked and received with the envelope in {place}")
            expect_received(r, r.places[0], burst, subject.ordered)


def _has_all(r: Rig, count: int) -> bool:
    return r.acked >= count and r.copies >= count


def _await_all(r: Rig, count: int) -> None:
    r.until(partial(_has_all, r, count), "acked and received")


def check_producers_alone(subject: Subject) -> None:
    """A run without consumers works."""
    with rig(subject, subscriptions=0) as r:
        assert r.places == [], f"{len(r.places)} consumers were opened, none requested"
        r.send(20)
        r.until(lambda: r.acked >= 20, "acked")
        assert r.driver.take() is None, "a message was received although there is no consumer"
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_consumers_alone(subject: Subject) -> None:
    """A run without producers works."""
    with rig(subject, streams=0) as r:
        r.driver.poll(MILLISECOND)
        assert r.driver.acks() is None and r.driver.take() is None, (
            "something came although nothing was sent"
        )
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_close(subject: Subject) -> None:
    """``close`` is safe before anything was opened, and twice."""
    unopened = subject.driver(context_of(subject, plain_pool()))
    unopened.close()
    with rig(subject) as r:
        r.send(10)
        r.driver.close()
        r.driver.close()


def check_cleanup(subject: Subject) -> None:
    """Messages that a run left unread do not reach the next run with its name."""
    name = f"kit-{secrets.token_hex(4)}"
    with rig(subject, run=name) as r:
        r.send(50)
        r.until(lambda: r.acked >= 50, "acked")
    with rig(subject, run=name) as r:
        burst = r.send(20)
        _await_all(r, 20)
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
    check_envelopes,
    check_producers_alone,
    check_consumers_alone,
    check_close,
    check_cleanup,
)


def check_driver(subject: Subject) -> None:
    """Run every check in turn.

    :raises AssertionError: the driver breaks a promise.
    """
    for check in DRIVER_CHECKS:
        check(subject)
