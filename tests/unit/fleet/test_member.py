"""The order of the steps in a worker's part in a run."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_loadtest.errors import NoData, TargetError, UsageError
from pytest_loadtest.fleet.link import Link, Released
from pytest_loadtest.fleet.member import WorkerRun, _drive
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Answer,
    AwaitVerdict,
    ClaimShares,
    CleanUp,
    ClientsClosed,
    Command,
    CommandAnswer,
    ConsumersConnected,
    Continue,
    Failed,
    Meet,
    NextPhases,
    PhaseDone,
    Release,
    Result,
    SampleHost,
    Shares,
    TargetPrepared,
)
from pytest_loadtest.fleet.service_request import (
    STOP_SERVICES,
    Service,
    ServiceRequest,
    ServiceStarted,
)
from pytest_loadtest.fleet.setup_steps import BeginLoad, StartService

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.fleet.messages import (
        ControllerMessage,
        Request,
        RunStep,
        StepAnswer,
        WorkerMessage,
    )


class Share:
    """One of several workloads; notes which drivers are polled while it opens its connections."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self.driver, self._turns = (
            SimpleNamespace(poll=lambda _: turns.append(name), close=lambda: None),
            turns,
        )
        self.drivers = [self.driver]
        self.polled: list[list[str]] = []

    def open_consumers(self, _: object, idle: Callable[[], None]) -> None:
        self._turns.clear()
        idle()
        self.polled.append(self._turns[:])

    open_producers = open_consumers


@pytest.fixture
def inbox() -> queue.SimpleQueue[ControllerMessage]:
    """Messages from the controller."""
    return queue.SimpleQueue()


@pytest.fixture
def link(inbox: queue.SimpleQueue[ControllerMessage]) -> Link:
    """A connection whose meetings pass at once; the run has no phase."""
    answers: dict[type[RunStep], StepAnswer] = {
        ConsumersConnected: SampleHost(None),
        PhaseDone: NextPhases(None),
    }

    def send(message: WorkerMessage) -> None:
        assert isinstance(message, Meet)
        inbox.put(Answer(message.key, type(message.step), answers[type(message.step)]))

    return Link(send, inbox, (0, 0))


def test_the_other_drivers_are_polled_while_one_connects(link: Link) -> None:
    """Connecting at a rate takes long; a broker drops connected clients that send no keep-alive."""
    turns: list[str] = []
    shares: list[Any] = [Share(name, turns) for name in ("a", "b", "c")]
    _drive(link, shares, time.monotonic_ns)
    assert [share.polled for share in shares] == [
        [["b", "c"]] * 2,
        [["a", "c"]] * 2,
        [["a", "b"]] * 2,
    ]


def test_an_aborted_run_opens_no_more_connections(
    link: Link, inbox: queue.SimpleQueue[ControllerMessage]
) -> None:
    """Connecting may take a quarter of an hour, and another worker may die in it."""

    class Last(Share):
        def open_producers(self, meet: object, idle: Callable[[], None]) -> None:
            inbox.put(AbortRun(link.key, NoData("load worker gw1 went down")))
            super().open_producers(meet, idle)

    shares: list[Any] = [Last("a", [])]
    with pytest.raises(NoData, match="gw1 went down"):
        _drive(link, shares, time.monotonic_ns)
    assert len(shares[0].polled) == 1


SERVICE = Service(name="s.py", pid=1, log=Path("log"))
REQUEST = ServiceRequest(command=("s.py",), ready="ready", timeout=1)


class Early:
    """A worker's part in a run whose controller answers each step at once, or with an error.

    :param errors: steps that the controller does not answer well → its message in place of the answer.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        lead: bool = True,
        errors: dict[type[RunStep], ControllerMessage] | None = None,
    ) -> None:
        self.events: list[str] = []
        self.failures: list[Exception] = []
        self.finished = 0
        self._errors = errors or {}
        self._inbox: queue.SimpleQueue[ControllerMessage] = queue.SimpleQueue()
        monkeypatch.setattr("pytest_loadtest.fleet.member.WorkloadShare", self._share)
        link = Link(self._send, self._inbox, (0, 0))
        self.run = WorkerRun(link, cast("Request", None), lead=lead, finish=self._finish)

    def _finish(self) -> None:
        self.finished += 1

    def _share(self, assigned: object, clock: object) -> Any:
        def note(name: str) -> Callable[..., None]:
            return lambda *_: self.events.append(name)

        driver = SimpleNamespace(
            prepare=note("prepare"),
            facts=lambda: None,
            poll=lambda _: None,
            close=note("close"),
            cleanup=note("cleanup"),
        )
        return SimpleNamespace(
            driver=driver,
            drivers=[driver],
            open_consumers=note("consumers"),
            open_producers=note("producers"),
            facts=lambda: None,
            abandon=note("abandon"),
        )

    def _send(self, message: WorkerMessage) -> None:
        answers: dict[type[RunStep], StepAnswer] = {
            ClaimShares: Shares((cast("Any", SimpleNamespace(clock=None)),)),
            TargetPrepared: Continue(),
            StartService: ServiceStarted(SERVICE),
            BeginLoad: Continue(),
            ConsumersConnected: SampleHost(None),
            PhaseDone: NextPhases(None),
            ClientsClosed: CleanUp(is_silent=False),
            AwaitVerdict: Result(None),
        }
        match message:
            case Meet(key, step):
                self.events.append(type(step).__name__)
                answer = Answer(key, type(step), answers[type(step)])
                self._inbox.put(self._errors.get(type(step), answer))
            case Command(key, kind, _):
                self.events.append(kind)
                self._inbox.put(CommandAnswer(key, kind))
            case Failed(_, error):
                self.failures.append(error)


DRIVEN = [
    "consumers",
    "ConsumersConnected",
    "producers",
    "PhaseDone",
    "close",
    "ClientsClosed",
    "cleanup",
    "close",
    "AwaitVerdict",
]


def test_a_run_that_no_fixture_has_begun_has_no_steps_of_the_setup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = Early(monkeypatch)
    early.run.drive()
    early.run.close()
    assert early.events == ["ClaimShares", "prepare", "TargetPrepared", *DRIVEN]
    assert (early.failures, early.finished) == ([], 1)


def test_fixtures_begin_a_run_and_the_load_goes_on_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its services end with the test, after its load."""
    early = Early(monkeypatch)
    early.run.prepare()
    assert early.run.start_service(REQUEST) is SERVICE
    assert not early.run.driven
    early.run.drive()
    assert early.run.driven
    early.run.close()
    early.run.close()
    prepared = ["ClaimShares", "prepare", "TargetPrepared"]
    assert early.events == [*prepared, "StartService", "BeginLoad", *DRIVEN, STOP_SERVICES]
    assert (early.failures, early.finished) == ([], 1)


def test_a_member_prepares_nothing_deletes_nothing_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = Early(monkeypatch, lead=False)
    early.run.prepare()
    early.run.start_service(REQUEST)
    early.run.close()
    assert early.events == ["ClaimShares", "TargetPrepared", "StartService", "close"]
    assert early.failures == []


def test_a_load_that_is_never_begun_is_given_up_and_its_topics_are_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a usage error, which has no results: the test says itself why it ended."""
    early = Early(monkeypatch)
    early.run.prepare()
    early.run.close()
    assert early.events == ["ClaimShares", "prepare", "TargetPrepared", "close", "cleanup"]
    (error,) = early.failures
    assert isinstance(error, UsageError)
    assert str(error) == "the test ended before its load began"
    assert early.finished == 1


@pytest.mark.parametrize("step", [ClaimShares, StartService, BeginLoad])
def test_an_error_in_the_setup_is_raised_and_reported(
    monkeypatch: pytest.MonkeyPatch, step: type[RunStep]
) -> None:
    """Services are stopped although the run was given up."""
    early = Early(monkeypatch, errors={step: AbortRun((0, 0), TargetError("not ready"))})

    def go() -> None:
        early.run.prepare()
        early.run.start_service(REQUEST)
        early.run.drive()

    with pytest.raises(TargetError, match="not ready"):
        go()
    assert [str(error) for error in early.failures] == ["not ready"]
    early.run.close()
    assert (STOP_SERVICES in early.events) is (step is not ClaimShares)
    assert early.events.count("close") == (step is not ClaimShares)


def test_a_worker_that_is_released_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch, lead=False, errors={StartService: Release((0, 0))})
    early.run.prepare()
    with pytest.raises(Released):
        early.run.start_service(REQUEST)
    early.run.close()
    assert early.failures == []
