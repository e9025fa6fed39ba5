"""The promises of a driver whose consumers pause, come and go while messages flow."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.testing.rig import Rig, Subject, rig
from pytest_loadtest.values.quantities import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable


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
