"""The end of a phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders.progress import made_progress
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest.drivers.base import Undelivered
from pytest_loadtest.fleet.drain import ASK_EVERY, ASK_SHARE, GRACE, LONG_QUIET, QUIET, Drain
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


@pytest.mark.parametrize("others", [{"repeats": 1}, {"failed": 1}])
def test_a_wait_for_quiet_is_enough_if_all_that_was_due_arrived_without_the_others(
    others: dict[str, int],
) -> None:
    """One copy more than due, and one that may be a second copy or of a failed message."""
    d, reports = drain(), {"a": report(received=11, **others), "b": report()}
    assert not d.has_ended(reports, 1)
    assert d.has_ended(reports, 1 + QUIET)


@pytest.mark.parametrize("others", [{"repeats": 2}, {"failed": 2}, {"repeats": 1, "failed": 1}])
def test_more_copies_than_due_that_may_hide_a_missing_one_need_a_long_quiet(
    others: dict[str, int],
) -> None:
    """Two of 21 copies may be others, so 19 of 20 messages are certain."""
    d = Drain("measure", 2, 1, 100 * SECOND)
    reports = {"a": report(received=11, **others), "b": report()}
    assert not d.has_ended(reports, 1)
    assert d.describe(1) == "second copies may hide missing ones, ends in 30 s"
    assert not d.has_ended(reports, LONG_QUIET)
    assert d.has_ended(reports, 1 + LONG_QUIET)


def test_more_copies_than_due_at_several_consumers_need_a_long_quiet() -> None:
    """A second copy at another consumer looks like a first one."""
    reports = {"a": report(), "b": report(received=11)}
    for timeout in (20, 100):
        d = Drain("measure", 2, 1, timeout * SECOND, one_order=False)
        end = min(1 + LONG_QUIET, 1 + timeout * SECOND)
        assert not d.has_ended(reports, 1)
        assert not d.has_ended(reports, end - 1)
        assert d.has_ended(reports, end)


def test_second_copies_of_a_service_may_look_like_first_ones_on_another_topic() -> None:
    """Nothing marks them, so even as many copies as were due end no phase at once; a broker's own second copies are marked."""
    reports = {"a": report(), "b": report()}
    d = Drain("measure", 2, 1, 30 * SECOND, one_order=False, routed=True)
    assert not d.has_ended(reports, 1)
    assert d.describe(1) == "second copies may hide missing ones, ends in 5 s"
    assert not d.has_ended(reports, QUIET)
    assert d.has_ended(reports, 1 + QUIET)
    for alone in ({"routed": True}, {"one_order": False}):
        d = Drain("measure", 2, 1, 30 * SECOND, **alone)
        assert not d.has_ended(reports, 1)
        assert d.has_ended(reports, 1 + GRACE)


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


# A target that can be asked.


def asked(**counts: Any) -> tuple[Drain, dict[str, Progress]]:
    """Return a drain with reports in which a message is missing, and which has asked at ``1 + GRACE``."""
    d, reports = (
        Drain("measure", 2, 1, 30 * SECOND, can_ask=True),
        {"a": report(received=9, taken=12), "b": report(taken=10)},
    )
    assert not d.has_ended(reports, 1)
    assert not d.asks(GRACE)
    assert d.asks(1 + GRACE)
    return d, reports


@pytest.mark.parametrize("handed_over", [None, 22])
def test_a_phase_ends_when_the_target_holds_nothing_and_all_it_handed_over_was_taken(
    handed_over: int | None,
) -> None:
    """Or all of it was acknowledged by its consumers."""
    d, reports = asked()
    d.answered(Undelivered(0, handed_over), 0, 1)
    assert d.has_ended(reports, 2 + GRACE)


@pytest.mark.parametrize(
    "undelivered",
    [None, Undelivered(1), Undelivered(0, 23), Undelivered(1, 22), Undelivered(0, 21)],
)
def test_an_answer_that_proves_nothing_ends_no_phase_before_its_deadline(
    undelivered: Undelivered | None,
) -> None:
    """Unknown, still held, on the way, or a count that was reset and is below what was taken."""
    d, reports = asked()
    d.answered(undelivered, 0, 1)
    assert not d.has_ended(reports, 30 * SECOND)
    assert d.has_ended(reports, 30 * SECOND + 1)


@pytest.mark.parametrize(
    "change",
    [{"in_flight": 1}, {"failed": 1}, {"resent": 1}, {"connected": False}, {"sending": True}],
)
def test_no_question_is_asked_while_messages_may_still_reach_the_target(
    change: dict[str, Any],
) -> None:
    """In flight; failed or sent again, and perhaps in a broken connection; and a client that is not connected may return."""
    d = Drain("measure", 2, 1, 30 * SECOND, can_ask=True)
    assert not d.has_ended({"a": report(received=9), "b": report(**change)}, 1)
    assert not d.asks(10 * SECOND)


def test_an_answer_is_not_used_once_a_client_has_lost_its_connection() -> None:
    """What it had received is with its driver, but it gets the time to return."""
    d, reports = asked()
    d.answered(Undelivered(0), 0, 1)
    assert not d.has_ended({**reports, "b": report(taken=10, connected=False)}, 2 + GRACE)
    assert not d.has_ended(reports, 3 + GRACE)


def test_duplicates_are_not_waited_for_once_the_target_holds_nothing() -> None:
    """As many copies as due arrived, and some may hide others: the answer replaces the quiet time."""
    d, doubtful = (
        Drain("measure", 2, 1, 30 * SECOND, can_ask=True),
        {"a": report(repeats=1), "b": report()},
    )
    assert not d.has_ended(doubtful, 1)
    assert d.asks(1 + GRACE)
    d.answered(Undelivered(0), 0, 1)
    assert d.has_ended(doubtful, 2 + GRACE)


def test_one_question_is_asked_at_a_time_and_slow_answers_make_them_rare() -> None:
    """A target that needs half a second for an answer is not asked for the next five."""
    d, reports = asked()
    assert not d.asks(9 * SECOND)
    d.answered(None, SECOND, SECOND)
    assert not d.asks(SECOND + ASK_EVERY - 1)
    assert d.asks(SECOND + ASK_EVERY)
    d.answered(Undelivered(1), 3 * SECOND, 3 * SECOND + SECOND // 2)
    assert not d.has_ended(reports, 8 * SECOND)
    assert not d.asks(3 * SECOND + SECOND // 2 + ASK_SHARE * SECOND // 2 - 1)
    assert d.asks(3 * SECOND + SECOND // 2 + ASK_SHARE * SECOND // 2)


def test_a_target_that_cannot_be_asked_is_not() -> None:
    d = drain()
    assert not d.has_ended({"a": report(received=9), "b": report()}, 1)
    assert not d.asks(10 * SECOND)


def test_a_drain_describes_what_is_missing_and_when_it_ends() -> None:
    """Nothing before it begins, and nothing when all copies are there."""
    d = Drain("measure", 2, 1, 30 * SECOND, can_ask=True)
    for reports in (
        {"a": report(received=9), "b": report(sending=True)},
        {"a": report(), "b": report()},
    ):
        assert not d.has_ended(reports, SECOND)
        assert d.describe(SECOND) is None
    assert not d.has_ended({"a": report(received=8), "b": report()}, SECOND)
    assert (
        d.describe(7 * SECOND)
        == "2 of 20 deliveries missing, ends in 24 s, sooner if the target has none left"
    )
    without = drain()
    assert not without.has_ended({"a": report(received=8), "b": report()}, SECOND)
    assert without.describe(40 * SECOND) == "2 of 20 deliveries missing, ends in 0 s"


def test_a_drain_describes_the_wait_for_messages_that_second_copies_may_hide() -> None:
    """Its end moves with each arrival, and is not after that of the drain."""
    d = drain()
    assert not d.has_ended({"a": report(repeats=1), "b": report()}, SECOND)
    assert d.describe(3 * SECOND) == "second copies may hide missing ones, ends in 3 s"
    assert not d.has_ended({"a": report(received=11, repeats=1), "b": report()}, 4 * SECOND)
    assert d.describe(4 * SECOND) == "second copies may hide missing ones, ends in 5 s"
    assert not d.has_ended({"a": report(received=12, repeats=2), "b": report()}, 29 * SECOND)
    assert d.describe(29 * SECOND) == "second copies may hide missing ones, ends in 2 s"


class Target:
    """A target with two workers, whose messages take any way: stored, on the way, in a driver, counted, reported; or lost, or doubled.

    :param acknowledged: the target keeps a message until its consumer's driver has it; otherwise it counts the copies that it hands over.
    """

    def __init__(self, stored: int, *, acknowledged: bool) -> None:
        self._acknowledged, self.sent = acknowledged, stored
        self.stored, self.handed_over = stored, 0
        self.underway, self.taken = [0, 0], [0, 0]
        self.reports = [report(acked=stored, received=0), report(acked=0, received=0)]
        self.answers: list[Undelivered] = []

    def step(self, action: str, worker: int) -> None:
        if action == "hand over" and self.stored:
            self.stored, self.handed_over = self.stored - 1, self.handed_over + 1
            self.underway[worker] += 1
        elif action == "double" and self.stored:
            self.handed_over += 1
            self.underway[worker] += 1
        elif action == "lose" and self.stored:
            self.stored -= 1
        elif action == "take" and self.underway[worker]:
            self.underway[worker] -= 1
            self.taken[worker] += 1
        elif action == "report":
            count = self.taken[worker]
            self.reports[worker] = report(
                acked=0 if worker else self.sent,
                received=count,
                taken=count,
                repeats=int(count > self.sent),
            )

    def count(self) -> Undelivered:
        if self._acknowledged:
            return Undelivered(self.stored + sum(self.underway))
        return Undelivered(self.stored, self.handed_over)


# Questions and answers are drawn more often, because most of them cannot be made when they are drawn.
ACTIONS = st.sampled_from(["hand over", "double", "lose", "take", "report", *["ask", "answer"] * 3])


@settings(max_examples=400)
@given(
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.tuples(ACTIONS, st.integers(0, 1)), min_size=8, max_size=40),
)
def test_no_answer_ends_a_phase_while_a_copy_can_still_come(
    stored: int, acknowledged: bool, actions: list[tuple[str, int]]
) -> None:
    """Whatever the order of deliveries, old reports, questions and late answers: at the end nothing is stored and nothing on the way.

    Time stands still after the first question may be asked, so that only answers can end the phase.
    """
    target, d, now = (
        Target(stored, acknowledged=acknowledged),
        Drain("measure", 2, 1, 10**9 * SECOND, can_ask=True),
        1,
    )
    answer: Undelivered | None = None
    assert not d.has_ended(dict(zip("ab", target.reports, strict=True)), now)
    for action, worker in actions:
        now += ASK_EVERY  # a new question is allowed at each step; the rules of time are switched off below
        if action == "ask" and answer is None and d.asks(now):
            answer = target.count()
        elif action == "answer" and answer is not None:
            d.answered(answer, now, now)
            answer = None
        else:
            target.step(action, worker)
        d._complete = None
        if d.has_ended(dict(zip("ab", target.reports, strict=True)), now):
            assert (target.stored, target.underway) == (0, [0, 0])
            return


def test_outputs_of_a_service_that_chooses_are_awaited_until_the_timeout() -> None:
    """Even if as many copies came as messages were sent: each may be the second one of another."""
    d = Drain("measure", 1, 1, 7 * SECOND, selective=True)
    done = {"a": report(acked=10, received=10)}
    assert not d.has_ended(done, SECOND)
    assert not d.has_ended(done, 1 + QUIET + SECOND)
    assert "the service may send further outputs" in (d.describe(5 * SECOND) or "")
    assert d.has_ended(done, 8 * SECOND)
