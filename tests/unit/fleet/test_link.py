"""A worker's connection to the controller."""

from __future__ import annotations

import pickle
import queue
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_loadtest.errors import (
    GeneratorLimited,
    NoData,
    Problem,
    ProfileError,
    TargetError,
    UsageError,
    WorkerError,
)
from pytest_loadtest.fleet.link import Link, Released, portable
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Answer,
    ChangeLoad,
    Command,
    CommandAnswer,
    ConnectFrom,
    Continue,
    ControllerMessage,
    EndPhase,
    Meet,
    Release,
    RunStep,
    SessionClosed,
    TakeRole,
    WorkerMessage,
)
from pytest_loadtest.fleet.service_request import STOP_SERVICES
from pytest_loadtest.schedule.changes import Change

KEY = (1, 0)


@dataclass(frozen=True)
class Order(RunStep):
    payload: Any = None


class Other(RunStep):
    """Another step."""


def line(*messages: ControllerMessage) -> tuple[Link, list[WorkerMessage]]:
    sent: list[WorkerMessage] = []
    inbox: queue.SimpleQueue[ControllerMessage] = queue.SimpleQueue()
    for message in messages:
        inbox.put(message)
    return Link(sent.append, inbox, KEY), sent


def test_a_meeting_returns_the_answer_for_this_attempt() -> None:
    """Answers of other attempts are ignored."""
    link, sent = line(Answer((1, 1), Order, ConnectFrom(1)), Answer(KEY, Order, ConnectFrom(2)))
    assert link.meet(Order("payload"), ConnectFrom) == ConnectFrom(2)
    assert sent == [Meet(KEY, Order("payload"))]


def test_an_answer_to_another_step_is_an_error() -> None:
    """Workers and controller would be at different steps of the run."""
    link, _ = line(Answer(KEY, Other, Continue()))
    with pytest.raises(WorkerError, match="an answer to Other while waiting for Order"):
        link.meet(Order(), Continue)
    link, _ = line(Answer(KEY, Other, Continue()))
    with pytest.raises(WorkerError, match="an answer to Other while waiting for no step"):
        link.process_messages()


def test_a_second_role_is_an_error() -> None:
    link, _ = line(TakeRole(KEY, lead=True))
    with pytest.raises(WorkerError, match="a second role"):
        link.process_messages()


def test_a_link_has_no_assignments_before_the_controller_sends_them() -> None:
    """The handle of a live test depends on it."""
    assert line()[0].assignments == ()


def test_idle_is_called_repeatedly_while_a_worker_waits() -> None:
    """Drivers keep their connections alive by it."""
    link, _ = line()
    calls: list[int] = []

    def idle() -> None:
        calls.append(1)
        if len(calls) == 3:
            link._inbox.put(Answer(KEY, Order, Continue()))

    link.meet(Order(), Continue, idle=idle)
    assert len(calls) >= 3


@pytest.mark.parametrize(
    ("message", "raised"),
    [
        (AbortRun(KEY, TargetError("gone")), TargetError),
        (Release(KEY), Released),
        (SessionClosed(), NoData),
    ],
)
def test_the_end_of_a_run_is_raised_at_a_meeting_and_while_load_runs(
    message: ControllerMessage, raised: type[Exception]
) -> None:
    """Aborted, released, or the controller is gone."""
    with pytest.raises(raised):
        line(message)[0].meet(Order(), Continue)
    with pytest.raises(raised):
        line(message)[0].phase_control("", "measure").ended()


def test_an_abort_of_an_earlier_attempt_does_not_end_a_rerun() -> None:
    link, _ = line(AbortRun((1, 1), NoData("old")), Release((0, 0)))
    assert not link.phase_control("", "measure").ended()


@pytest.mark.parametrize(
    "ending",
    [CommandAnswer(KEY, STOP_SERVICES), SessionClosed()],
    ids=["stopped", "the controller is gone"],
)
def test_services_are_stopped_whatever_became_of_the_run(ending: ControllerMessage) -> None:
    """Neither the run's end nor the answers to other commands of the body are what is waited for."""
    before = (AbortRun(KEY, NoData("gone")), CommandAnswer(KEY, 5), CommandAnswer((9, 9), "x"))
    link, sent = line(*before, ending, Release(KEY))
    link.stop_services(300)
    assert sent == [Command(KEY, STOP_SERVICES, None)]
    assert link._inbox.qsize() == 1


def test_services_that_do_not_stop_are_not_waited_for_without_limit() -> None:
    line()[0].stop_services(0.01)


def test_the_end_of_a_phase_ends_no_other_phase() -> None:
    """A late end of the warm-up does not end the measured phase."""
    link, _ = line(EndPhase(KEY, "", "warm-up"))
    assert link.phase_control("", "warm-up").ended()
    assert not link.phase_control("", "measure").ended()
    link._inbox.put(EndPhase(KEY, "other", "measure"))
    assert not link.phase_control("", "measure").ended()
    link._inbox.put(EndPhase(KEY, "", "measure"))
    assert link.phase_control("", "measure").ended()


def test_a_change_reaches_its_phase_once() -> None:
    """The engine of that workload in that phase, and no other."""
    change = Change(at=5, rate=10.0)
    link, _ = line(ChangeLoad(KEY, "small", "measure", change))
    other, mine = link.phase_control("large", "measure"), link.phase_control("small", "measure")
    assert not other.ended()
    assert list(other.changes()) == []
    assert list(mine.changes()) == [change]
    assert list(mine.changes()) == []


def test_a_command_is_sent_and_its_answer_kept() -> None:
    """Until the body takes it."""
    link, sent = line(CommandAnswer(KEY, 7))
    link.command("rate", 100.0)
    assert sent == [Command(KEY, "rate", 100.0)]
    assert not link.phase_control("", "measure").ended()
    assert link.answers.get(timeout=1) == 7


class Rejected(TargetError):
    """An error of a driver of another package, which its arguments do not make again."""

    def __init__(self, host: str, status: int) -> None:
        super().__init__(f"{host} rejected the client with {status}")


def test_an_error_of_a_drivers_own_class_crosses_as_that_of_this_package() -> None:
    """Otherwise its message could not be read, and the other workers would wait for five minutes."""
    crossed = pickle.loads(pickle.dumps(portable(Rejected("broker", 7))))
    assert type(crossed) is TargetError
    assert str(crossed) == "broker rejected the client with 7"


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
def test_errors_can_be_pickled_and_keep_their_kind(error: BaseException) -> None:
    """Errors of other libraries become no data: they prove nothing about the target."""
    crossed: Any = pickle.loads(pickle.dumps(portable(error)))
    assert isinstance(
        crossed,
        type(error) if isinstance(error, (NoData, GeneratorLimited, UsageError)) else NoData,
    )
    assert str(error) in str(crossed)
