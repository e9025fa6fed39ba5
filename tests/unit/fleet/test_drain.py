"""When a phase is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.progress import made_progress

from pytest_loadtest.fleet.drain import GRACE, QUIET, Drain
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.engine.progress import Progress


def said(**counts: Any) -> Progress:
    return made_progress(**{"acked": 10, "received": 10} | counts)


def drain(deliveries: int = 1) -> Drain:
    return Drain("measure", 2, deliveries, 30 * SECOND)


def test_all_arrived_and_a_moment_more() -> None:
    """It ends when everything acknowledged was received, and nothing more came for a moment."""
    d = drain()
    everything = {"a": said(acked=20, received=5), "b": said(acked=0, received=15)}
    assert not d.has_ended(everything, 1)
    assert not d.has_ended(everything, GRACE)
    assert d.has_ended(everything, 1 + GRACE)


def test_more_than_was_due_is_doubtful() -> None:
    """A second copy may stand in for a first one that is still under way: the target must be quiet for long; news starts it anew."""
    d, doubtful = drain(), {"a": said(), "b": said(received=11)}
    assert not d.has_ended({"a": said(), "b": said()}, 1)
    assert not d.has_ended(doubtful, GRACE + 1)
    assert not d.has_ended(doubtful, GRACE + QUIET)
    assert d.has_ended(doubtful, GRACE + 1 + QUIET)


@pytest.mark.parametrize("sign", ["repeats", "redelivered", "resent", "failed"])
def test_a_copy_that_may_stand_in_for_another_one_is_waited_out(sign: str) -> None:
    """All as many as were due: delivered though it was answered as failed, or a second copy that went to another consumer."""
    d, doubtful = drain(), {"a": said(**{sign: 1}), "b": said()}
    assert not d.has_ended(doubtful, 1)
    assert not d.has_ended(doubtful, QUIET)
    assert d.has_ended(doubtful, 1 + QUIET)


def test_not_before_all_workers_are_in_the_phase() -> None:
    """A worker that has not spoken, or still speaks of the warm-up, is not through."""
    d = drain()
    for others in ({}, {"b": said(phase="warm-up")}, {"b": said(sending=True)}):
        assert not d.has_ended({"a": said(), **others}, 100 * SECOND)


def test_unanswered_and_missing_messages_are_waited_for_until_the_deadline() -> None:
    """In flight, or acknowledged and not there: the deadline counts from the moment that nobody sends any more."""
    for missing in (said(in_flight=1), said(received=9)):
        d = drain()
        assert not d.has_ended({"a": said(sending=True), "b": missing}, SECOND)
        assert not d.has_ended({"a": said(), "b": missing}, 2 * SECOND)
        assert not d.has_ended({"a": said(), "b": missing}, 32 * SECOND - 1)
        assert d.has_ended({"a": said(), "b": missing}, 32 * SECOND)


def test_every_subscription_is_due_a_copy() -> None:
    """Two subscriptions: twice the acknowledged messages."""
    d = drain(deliveries=2)
    assert not d.has_ended({"a": said(), "b": said()}, 1)
    assert not d.has_ended({"a": said(), "b": said()}, 1 + GRACE)
    assert not d.has_ended({"a": said(received=30), "b": said()}, 2 + GRACE)
    assert d.has_ended({"a": said(received=30), "b": said()}, 2 + 2 * GRACE)
