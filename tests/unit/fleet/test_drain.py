"""When a phase is over."""

from __future__ import annotations

from pytest_loadtest.engine.progress import Progress
from pytest_loadtest.fleet.drain import GRACE, QUIET, Drain
from pytest_loadtest.quantities import SECOND


def said(*, phase: str = "measure", sending: bool = False, acked: int = 10, received: int = 10, in_flight: int = 0, repeats: int = 0) -> Progress:
    return Progress(
        phase=phase, elapsed=SECOND, sending=sending, offered=10, sent=10, acked=acked, failed=0, dropped=0, received=received, repeats=repeats,
        in_flight=in_flight, send_delay_p99=None, blocked=False,
    )  # fmt: skip


def drain(deliveries: int = 1) -> Drain:
    return Drain("measure", 2, deliveries, 30 * SECOND)


def test_all_arrived_and_a_moment_more() -> None:
    """It ends when everything acknowledged was received, and nothing more came for a moment."""
    d = drain()
    everything = {"a": said(acked=20, received=5), "b": said(acked=0, received=15)}
    assert not d.over(everything, 1)
    assert not d.over(everything, GRACE)
    assert d.over(everything, 1 + GRACE)


def test_a_late_duplicate_starts_the_moment_anew() -> None:
    """More than was due still counts as news."""
    d = drain()
    assert not d.over({"a": said(), "b": said()}, 1)
    assert not d.over({"a": said(), "b": said(received=11)}, GRACE + 1)
    assert not d.over({"a": said(), "b": said(received=11)}, GRACE + QUIET)
    assert d.over({"a": said(), "b": said(received=11)}, GRACE + 1 + QUIET)


def test_second_copies_do_not_stand_in_for_first_ones() -> None:
    """As many copies as were due, some of them perhaps doubled: the missing ones get the time to come."""
    d = drain()
    assert not d.over({"a": said(repeats=1), "b": said()}, 1)
    assert not d.over({"a": said(repeats=1), "b": said()}, 1 + GRACE)
    assert not d.over({"a": said(repeats=1), "b": said(received=11)}, QUIET)
    assert d.over({"a": said(repeats=1), "b": said(received=11)}, 2 * QUIET)


def test_not_before_all_workers_are_in_the_phase() -> None:
    """A worker that has not spoken, or still speaks of the warm-up, is not through."""
    d = drain()
    for others in ({}, {"b": said(phase="warm-up")}, {"b": said(sending=True)}):
        assert not d.over({"a": said(), **others}, 100 * SECOND)


def test_unanswered_and_missing_messages_are_waited_for_until_the_deadline() -> None:
    """In flight, or acknowledged and not there: the deadline counts from the moment that nobody sends any more."""
    for missing in (said(in_flight=1), said(received=9)):
        d = drain()
        assert not d.over({"a": said(sending=True), "b": missing}, SECOND)
        assert not d.over({"a": said(), "b": missing}, 2 * SECOND)
        assert not d.over({"a": said(), "b": missing}, 32 * SECOND - 1)
        assert d.over({"a": said(), "b": missing}, 32 * SECOND)


def test_every_subscription_is_due_a_copy() -> None:
    """Two subscriptions: twice the acknowledged messages."""
    d = drain(deliveries=2)
    assert not d.over({"a": said(), "b": said()}, 1)
    assert not d.over({"a": said(), "b": said()}, 1 + GRACE)
    assert not d.over({"a": said(received=30), "b": said()}, 2 + GRACE)
    assert d.over({"a": said(received=30), "b": said()}, 2 + 2 * GRACE)
