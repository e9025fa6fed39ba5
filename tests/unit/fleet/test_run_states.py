"""The states of a run, and what others read of a run in each of them."""

from __future__ import annotations

import pytest

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.messages import AbortRun, ClaimShares, PhaseDone
from pytest_loadtest.fleet.run_events import Send
from pytest_loadtest.fleet.run_states import (
    MEETING_TIMEOUT,
    SILENCE_TIMEOUT,
    STATES,
    Answering,
    Concluded,
    DrivingLoad,
    Ended,
    Gathering,
    GivenUp,
    Meeting,
    Run,
    State,
    Working,
)
from pytest_loadtest.values.quantities import SECOND

KEY = (4, 0)
NOW = 1000 * SECOND
CAUSE = NoData("disk full")
ALL: dict[str, State] = {
    "gathering": Gathering(),
    "working": Working(),
    "meeting": Meeting(brought={"a": PhaseDone(1, ())}, since=NOW),
    "answering": Answering(ClaimShares),
    "driving load": DrivingLoad({"": Drain("measure", 2, 1, 0)}),
    "concluded": Concluded(None),
    "given up": GivenUp(CAUSE),
    "ended with results": Ended(concluded=True, error=None),
    "ended for an error": Ended(concluded=False, error=CAUSE),
}


def run_in(name: str) -> Run:
    return Run(KEY, ALL[name], ("a", "b"), last_message={"a": NOW, "b": NOW + SECOND})


def named(attribute: str) -> set[str]:
    """Return the names of the states in which the run has this attribute."""
    return {name for name in ALL if getattr(run_in(name), attribute)}


def test_every_state_is_here() -> None:
    assert {type(state) for state in ALL.values()} == set(STATES)


@pytest.mark.parametrize(
    ("attribute", "names"),
    [
        ("continues", {"working", "meeting", "answering", "driving load"}),
        ("concluded", {"concluded", "ended with results"}),
        ("ended", {"ended with results", "ended for an error"}),
        ("error", {"given up", "ended for an error"}),
        ("drains", {"driving load"}),
        ("deadline", {"meeting", "driving load"}),
    ],
)
def test_a_run_has_an_attribute_in_these_states_alone(attribute: str, names: set[str]) -> None:
    assert named(attribute) == names


def test_the_deadline_of_load_counts_from_the_member_that_is_silent_for_longest() -> None:
    assert run_in("driving load").deadline == NOW + SILENCE_TIMEOUT * SECOND


def test_the_deadline_of_a_meeting_grows_with_the_patience_of_the_run() -> None:
    """Connecting many clients at a rate takes as long as the plan says."""
    run = run_in("meeting")
    assert run.deadline == NOW + MEETING_TIMEOUT * SECOND
    run.patience += 7
    assert run.deadline == NOW + (MEETING_TIMEOUT + 7) * SECOND


def test_a_meeting_of_the_setup_has_no_deadline_before_the_lead_is_there() -> None:
    run = Run(KEY, Meeting(brought={}, since=None), ("a", "b"))
    assert run.deadline is None


def test_a_run_without_members_has_no_lead_and_sends_nothing() -> None:
    run = Run(KEY)
    assert run.lead is None
    assert run.send_all(AbortRun(KEY, CAUSE)) == []
    message = AbortRun(KEY, CAUSE)
    assert run_in("working").send_all(message) == [Send("a", message), Send("b", message)]
