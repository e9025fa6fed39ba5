"""A worker's line to the controller."""

from __future__ import annotations

import pickle
import queue
from typing import Any

import pytest

from pytest_loadtest.errors import GeneratorLimited, NoData, Problem, ProfileError, TargetError, UsageError
from pytest_loadtest.fleet.link import Link, Message, Released, portable
from pytest_loadtest.schedule.changes import Change

KEY = (1, 0)


def line(*messages: Message) -> tuple[Link, list[Message]]:
    sent: list[Message] = []
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    for message in messages:
        inbox.put(message)
    return Link(sent.append, inbox, KEY), sent


def test_meeting() -> None:
    """It says where it is and gets what the controller has for it there; answers of other meetings and attempts are passed over."""
    link, sent = line(("pass", (1, 1), ("order", "wrong")), ("pass", KEY, ("earlier", "wrong")), ("pass", KEY, ("order", "right")))
    assert link.meet("order", "payload") == "right"
    assert sent == [("meet", KEY, ("order", "payload"))]


def test_a_link_has_no_assignments_before_the_controller_sends_them() -> None:
    """The handle of a live test depends on it."""
    assert line()[0].assignments == ()


def test_waiting_keeps_the_driver_alive() -> None:
    """Whoever waits is called again and again."""
    link, _ = line()
    calls: list[int] = []

    def idle() -> None:
        calls.append(1)
        if len(calls) == 3:
            link._inbox.put(("pass", KEY, ("order", None)))

    link.meet("order", idle=idle)
    assert len(calls) >= 3


@pytest.mark.parametrize(
    ("message", "raised"),
    [(("abort", KEY, TargetError("gone")), TargetError), (("release", KEY, None), Released), (("closed", None, None), NoData)],
)
def test_the_end_of_a_run(message: Message, raised: type[Exception]) -> None:
    """Aborted, released, or left alone by the controller: heard at a meeting and while load runs."""
    with pytest.raises(raised):
        line(message)[0].meet("order")
    with pytest.raises(raised):
        line(message)[0].phase_control("", "measure").ended()


def test_an_abort_of_an_earlier_attempt_is_not_ours() -> None:
    """A rerun does not die of what ended the attempt before."""
    link, _ = line(("abort", (1, 1), NoData("old")), ("release", (0, 0), None))
    assert not link.phase_control("", "measure").ended()


def test_a_phase_ends_for_itself_only() -> None:
    """The end of the warm-up that is heard late does not end the measured phase."""
    link, _ = line(("end", KEY, ("", "warm-up")))
    assert link.phase_control("", "warm-up").ended()
    assert not link.phase_control("", "measure").ended()
    link._inbox.put(("end", KEY, ("other", "measure")))
    assert not link.phase_control("", "measure").ended()
    link._inbox.put(("end", KEY, ("", "measure")))
    assert link.phase_control("", "measure").ended()


def test_a_change_is_told_once_and_to_its_phase() -> None:
    """What is to change reaches the engine of that workload in that phase, and no other."""
    change = Change(at=5, rate=10.0)
    link, _ = line(("change", KEY, (("small", "measure"), change)))
    other, mine = link.phase_control("large", "measure"), link.phase_control("small", "measure")
    assert not other.ended()
    assert list(other.changes()) == []
    assert list(mine.changes()) == [change]
    assert list(mine.changes()) == []


def test_the_body_asks_and_is_answered() -> None:
    """A command goes out; its answer waits until somebody takes it."""
    link, sent = line(("answer", KEY, 7))
    link.command("rate", 100.0)
    assert sent == [("command", KEY, ("rate", 100.0))]
    assert not link.phase_control("", "measure").ended()
    assert link.answers.get(timeout=1) == 7


@pytest.mark.parametrize(
    "error",
    [
        NoData("a"),
        GeneratorLimited("b"),
        UsageError("c"),
        ProfileError("p.yaml", (Problem((), "m", line=1, column=2),)),
        ValueError("odd"),
        KeyboardInterrupt(),
    ],
)
def test_errors_cross_processes(error: BaseException) -> None:
    """What is ours stays what it is; anything else says nothing about the target."""
    crossed: Any = pickle.loads(pickle.dumps(portable(error)))
    assert isinstance(crossed, type(error) if isinstance(error, (NoData, GeneratorLimited, UsageError)) else NoData)
    assert str(error) in str(crossed)
