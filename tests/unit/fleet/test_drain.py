"""The end of a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.progress import made_progress

from pytest_loadtest.fleet.drain import GRACE, QUIET, Drain
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from pytest_loadtest.engine.progress import Progress


def report(**counts: Any) -> Progress:
    return made_progress(**{"acked": 10, "received": 10} | counts)


def drain(deliveries: int = 1) -> Drain:
    return Drain("measure", 2, deliveries, 30 * SECOND)


def test_a_phase_ends_a_moment_after_all_acknowledged_messages_were_received() -> None:
    """The moment shows late duplicates."""
    d = drain()
    everything = {"a": report(acked=20, received=5), "b": report(acked=0, received=15)}
    assert not d.has_ended(everything, 1)
    assert not d.has_ended(everything, GRACE)
    assert d.has_ended(everything, 1 + GRACE)


def test_more_copies_than_due_prolong_the_drain() -> None:
    """A second copy may hide a first one that is under way: the target must be quiet for long, and any arrival restarts the wait."""
    d, doubtful = drain(), {"a": report(), "b": report(received=11)}
    assert not d.has_ended({"a": report(), "b": report()}, 1)
    assert not d.has_ended(doubtful, GRACE + 1)
    assert not d.has_ended(doubtful, GRACE + QUIET)
    assert d.has_ended(doubtful, GRACE + 1 + QUIET)


@pytest.mark.parametrize("sign", ["repeats", "redelivered", "resent", "failed"])
def test_a_copy_that_may_hide_a_missing_one_prolongs_the_drain(sign: str) -> None:
    """As many as were due arrived, but some were answered as failed, or are second copies at another consumer."""
    d, doubtful = drain(), {"a": report(**{sign: 1}), "b": report()}
    assert not d.has_ended(doubtful, 1)
    assert not d.has_ended(doubtful, QUIET)
    assert d.has_ended(doubtful, 1 + QUIET)


def test_no_phase_ends_before_all_workers_report_in_it() -> None:
    """A worker without a report, or one that still reports the warm-up or sends, has not finished."""
    d = drain()
    for others in ({}, {"b": report(phase="warm-up")}, {"b": report(sending=True)}):
        assert not d.has_ended({"a": report(), **others}, 100 * SECOND)


def test_unanswered_and_missing_messages_are_waited_for_until_the_deadline() -> None:
    """In flight, or acknowledged but not received: the deadline counts from the moment when no worker sends any more."""
    for missing in (report(in_flight=1), report(received=9)):
        d = drain()
        assert not d.has_ended({"a": report(sending=True), "b": missing}, SECOND)
        assert not d.has_ended({"a": report(), "b": missing}, 2 * SECOND)
        assert not d.has_ended({"a": report(), "b": missing}, 32 * SECOND - 1)
        assert d.has_ended({"a": report(), "b": missing}, 32 * SECOND)


def test_every_subscription_is_due_a_copy() -> None:
    """With two subscriptions, twice the number of acknowledged messages is due."""
    d = drain(deliveries=2)
    assert not d.has_ended({"a": report(), "b": report()}, 1)
    assert not d.has_ended({"a": report(), "b": report()}, 1 + GRACE)
    assert not d.has_ended({"a": report(received=30), "b": report()}, 2 + GRACE)
    assert d.has_ended({"a": report(received=30), "b": report()}, 2 + 2 * GRACE)
