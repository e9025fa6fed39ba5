"""The promises of :mod:`pytest_loadtest.drivers._base`, one check each, for any driver against a running target."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pytest_loadtest import envelope
from pytest_loadtest.quantities import MILLISECOND
from pytest_loadtest.samples import Status
from pytest_loadtest.testing.changing import check_attach_again, check_attach_and_detach, check_detach_while_paused, check_pause
from pytest_loadtest.testing.rig import Rig, Subject, context_of, mixed_pool, plain_pool, rig, tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_loadtest.drivers._base import Burst, Received


def check_facts(subject: Subject) -> None:
    """Without a connection, the driver names its client and says of each setting whether it is applied."""
    facts = subject.driver(context_of(subject, plain_pool())).facts()
    assert facts.client and facts.version, f"client and version must be named: {facts}"
    both = set(facts.applied) & set(facts.not_applied)
    assert not both, f"applied and not applied at once: {sorted(both)}"


def check_quiet(subject: Subject) -> None:
    """An open driver with nothing to do says so: nothing answered, nothing received, nothing in flight, all connected."""
    with rig(subject) as r:
        r.driver.poll(0)
        r.driver.poll(MILLISECOND)
        assert [r.producers[0].acks(), r.consumers[0].take()] == [None, None], "something came although nothing was sent"
        assert r.producers[0].in_flight == 0, f"{r.producers[0].in_flight} in flight although nothing was sent"
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_round_trip(subject: Subject) -> None:
    """Two streams from sequence 0: every message is acked once and received once, whole, in order, stamped in between."""
    start = time.monotonic_ns()
    with rig(subject, streams=2) as r:
        bursts = r.send(300)
        r.until(lambda: r.acked >= 600 and r.copies >= 600, "acked and received")
        r.driver.poll(MILLISECOND)
        r.collect()
        for stream, burst in enumerate(bursts):
            _expect_acked(r, stream, burst, start)
        _expect_received(r, 0, bursts, start, subject.ordered)
        assert all(np.all(part.time >= start) & np.all(part.time <= time.monotonic_ns()) for part in r.received[0])


def check_mixed_sizes(subject: Subject) -> None:
    """Sizes from 16 bytes to 40 KiB in one burst arrive whole: head, size and checksum."""
    start = time.monotonic_ns()
    with rig(subject, mixed_pool()) as r:
        bursts = r.send(200)
        r.until(lambda: r.acked >= 200 and r.copies >= 200, "acked and received")
        _expect_received(r, 0, bursts, start, subject.ordered)


def check_window(subject: Subject) -> None:
    """A burst beyond the window is taken as far as the window goes, ``send`` returns at once, and the window empties."""
    window = subject.window
    if window is None:
        return
    with rig(subject) as r:
        producer = r.producers[0]
        burst = r.burst(2 * window)
        taken = producer.send(burst)
        assert 0 < taken <= window, f"took {taken} messages at once with a window of {window}"
        assert np.all(burst.sent[:taken] > 0), "send() must stamp what it takes"
        assert producer.in_flight <= window, f"{producer.in_flight} in flight with a window of {window}"
        r.until(lambda: producer.in_flight == 0 and r.acked >= taken, "the window emptied")
        last = max(int(acks.time.max()) for acks in r.acks[0])
        assert producer.idle_since == last, f"idle_since is {producer.idle_since}, the last answer came at {last}"
        more = producer.send(tail(burst, taken))
        assert more > 0, "an empty window took nothing"
        r.until(lambda: r.acked >= taken + more, "acked after the window was full")


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
    start = time.monotonic_ns()
    with rig(subject, streams=2, subscriptions=2) as r:
        bursts = r.send(200)
        r.until(lambda: r.acked >= 400 and r.copies >= 800, "acked and received twice")
        for consumer in range(2):
            _expect_received(r, consumer, bursts, start, subject.ordered)


def check_existing_topic(subject: Subject) -> None:
    """A run on an existing topic gets its own messages and tells others apart; its end leaves topic and other subscribers alone."""
    if subject.existing is None:
        return
    start = time.monotonic_ns()
    with rig(subject, name=subject.existing) as somebody:
        somebody.send(10)
        somebody.until(lambda: somebody.acked >= 10 and somebody.copies >= 10, "acked and received")
        with rig(subject, name=subject.existing) as r:
            bursts = r.send(20)
            r.until(lambda: r.acked >= 20 and r.copies >= 20, "acked and received")
            _expect_received(r, 0, bursts, start, subject.ordered)
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
        assert r.consumers == [], f"{len(r.consumers)} consumers were opened, none asked for"
        r.send(20)
        r.until(lambda: r.acked >= 20, "acked")
        assert r.driver.disconnected() is None, f"disconnected: {r.driver.disconnected()}"


def check_consumers_alone(subject: Subject) -> None:
    """A run that only listens."""
    with rig(subject, streams=0) as r:
        r.driver.poll(MILLISECOND)
        assert r.producers == [] and r.consumers[0].take() is None, "something came although nobody sends"
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
    start = time.monotonic_ns()
    with rig(subject, run=name) as r:
        bursts = r.send(20)
        r.until(lambda: r.acked >= 20 and r.copies >= 20, "acked and received")
        _expect_received(r, 0, bursts, start, subject.ordered)


DRIVER_CHECKS: Final = (
    check_facts,
    check_quiet,
    check_round_trip,
    check_mixed_sizes,
    check_window,
    check_shared_subscription,
    check_every_subscription,
    check_pause,
    check_attach_and_detach,
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


def _expect_acked(r: Rig, stream: int, burst: Burst, start: int) -> None:
    answers = r.acks[stream]
    seq = np.concatenate([acks.seq for acks in answers])
    times = np.concatenate([acks.time for acks in answers])[np.argsort(seq, kind="stable")]
    assert np.array_equal(np.sort(seq), burst.seq), f"stream {stream}: {len(seq)} acks of {len(np.unique(seq))} messages, {len(burst)} sent"
    assert all(np.all(acks.status == Status.ACKED) for acks in answers), f"stream {stream}: not every message was acked"
    assert np.all(burst.sent >= start), "sent is stamped with the clock given, for every message"
    assert np.all(times >= burst.sent), "acked before it was sent: stamp sent before the client gets the message"
    assert r.producers[stream].in_flight == 0, f"stream {stream}: {r.producers[stream].in_flight} in flight though all is answered"


def _expect_received(r: Rig, consumer: int, bursts: Sequence[Burst], start: int, ordered: bool) -> None:
    """Exactly the messages of ``bursts`` (one a stream), whole."""
    _expect_columns(r.received[consumer])
    heads = r.heads(consumer)
    size = np.concatenate([part.size for part in r.received[consumer]])
    kinds = np.bincount(heads.kind, minlength=3).tolist()
    assert kinds[1:] == [0, 0], f"consumer {consumer}: {kinds[0]} of ours, {kinds[1]} foreign, {kinds[2]} corrupt"
    for stream, burst in enumerate(bursts):
        mine = heads.stream == stream
        seq = heads.seq[mine]
        assert np.array_equal(np.sort(seq), burst.seq), (
            f"stream {stream}: got {len(seq)} copies of {len(np.unique(seq))}, {len(burst)} sent"
        )
        assert not ordered or np.all(np.diff(seq) > 0), f"stream {stream}: out of order"
        payload = burst.payload[seq - burst.seq[0]]
        assert np.array_equal(size[mine], r.pool.sizes[payload]), f"stream {stream}: sizes differ from those sent"
        assert np.array_equal(heads.bucket[mine], r.pool.buckets[payload]), f"stream {stream}: buckets differ from those sent"
        carried = heads.intended[mine]
        assert np.all((carried == seq + 1_000_000) | (carried == -1)), f"stream {stream}: intended time was not carried"


def _expect_columns(parts: Sequence[Received]) -> None:
    wanted = {"heads": np.uint8, "size": np.int32, "time": np.int64, "order": np.int64, "flags": np.int8}
    for part in parts:
        n = len(part.time)
        assert part.heads.shape == (n, envelope.HEAD), f"heads has the shape {part.heads.shape}, wanted ({n}, {envelope.HEAD})"
        for name, kind in wanted.items():
            column: NDArray[Any] = getattr(part, name)
            assert len(column) == n and column.dtype == kind, f"{name} is {column.dtype}[{len(column)}], wanted {np.dtype(kind)}[{n}]"
        assert not np.any(part.flags), f"flags {np.unique(part.flags).tolist()} on whole messages"
