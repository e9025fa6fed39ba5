"""The table of transitions: every row, every pair without one, and any sequence of messages, deaths, answers and time."""

from __future__ import annotations

import queue
import re
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import pytest
from builders.progress import made_progress
from engine_rig import make_pool
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from null_driver import NullDriver
from transitions_table import transitions_table

from pytest_loadtest import fleet
from pytest_loadtest.drivers.base import DriverContext, Joined, TargetAddress
from pytest_loadtest.engine.run import Engine
from pytest_loadtest.engine.run import drive as drive_engines
from pytest_loadtest.engine.send import Setup
from pytest_loadtest.errors import NoData, TargetError, UsageError, WorkerError
from pytest_loadtest.fleet import rendezvous as rendezvous_module
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.link import Link, Released
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Again,
    Answer,
    Arrive,
    ClientsMade,
    Command,
    Continue,
    Failed,
    Finished,
    Meet,
    NextPhases,
    PhaseDone,
    Release,
    ReportProgress,
    StoresSamples,
    TakeRole,
)
from pytest_loadtest.fleet.rendezvous import Rendezvous, StepAnswers
from pytest_loadtest.fleet.run_events import (
    Answered,
    AnswerFailed,
    Conclude,
    Event,
    Gather,
    GiveUp,
    Kill,
    Send,
    StartAgain,
    Superseded,
    Tick,
    WorkerLost,
)
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
from pytest_loadtest.fleet.service_request import ServiceRequest
from pytest_loadtest.fleet.setup_steps import BeginLoad, StartService
from pytest_loadtest.fleet.transitions import TABLE, handle_event
from pytest_loadtest.plan.phases import Phase
from pytest_loadtest.schedule.pacing import Pacer, StreamCounts
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_loadtest.fleet.messages import ControllerMessage, RunMessage, RunStep
    from pytest_loadtest.fleet.run_events import Effect

KEY = (4, 0)
DESIGN = Path(__file__).parents[3] / "docs/design.md"
FAULTS = Path(__file__).parents[3] / "docs/reference/faults.md"
NOW = 1000 * SECOND
STEP = PhaseDone(1, ())
CAUSE = NoData("the first error")


def drain() -> Drain:
    return Drain("measure", 2, 1, 0)


def run_in(state: type[State], members: Sequence[str] = ("a", "b")) -> Run:
    """Return a run in this state: of ``a``, which leads, and ``b``."""
    facts: dict[type[State], Callable[[], State]] = {
        Gathering: lambda: Gathering(arrived={"a"}),
        Working: Working,
        Meeting: lambda: Meeting(brought={"a": STEP}, since=NOW),
        Answering: lambda: Answering(PhaseDone),
        DrivingLoad: lambda: DrivingLoad({"": drain()}),
        Concluded: lambda: Concluded(PhaseDone),
        GivenUp: lambda: GivenUp(CAUSE),
        Ended: lambda: Ended(concluded=False, error=CAUSE),
    }
    has_members = state is not Gathering
    is_over = state is Ended
    return Run(
        KEY,
        state=facts[state](),
        members=tuple(members) if has_members else (),
        last_message=dict.fromkeys(members if has_members and not is_over else (), NOW),
    )


def described(effects: Iterable[Effect]) -> list[str]:
    """Return each effect by its name, a message with its receiver."""
    return [
        f"{type(effect.message).__name__} {effect.worker}"
        if isinstance(effect, Send)
        else type(effect).__name__
        for effect in effects
    ]


PROGRESS = ReportProgress(KEY, made_progress())
SENDING = ReportProgress(KEY, made_progress(sending=True))
COMMAND = Command(KEY, "rate", 5)
FAILED = Failed(KEY, NoData("disk full"))
LOST = WorkerLost("SIGKILL")
ANSWERED = Answered((Continue(), Continue()))
UNANSWERED = AnswerFailed(TargetError("no broker"))
GIVE_UP = GiveUp(TargetError("it went away"))

ABORTED = ["AbortRun a", "AbortRun b", "NoteGivenUp"]
RELEASED = ["NoteEnded", "Release a", "Release b"]
ANSWERS = ["Answer a", "Answer b"]
NOTHING: list[str] = []

# The state, the event, its worker, the next state, and the effects.
Row = tuple[type[State], Any, str, type[State], list[str]]
# fmt: off
ROWS: list[Row] = [
    (Gathering, Arrive(KEY), "b", Gathering, NOTHING),
    (Gathering, Gather(("a", "b")), "", Gathering, NOTHING),
    (Gathering, Gather(("a",)), "", Working, ["TakeRole a"]),
    (Gathering, Gather(()), "", Gathering, NOTHING),
    (Gathering, Gather(("a", "b"), stopping=True), "", Ended, ["Release a", "NoteEnded"]),
    (Gathering, StartAgain(("a", "b")), "", Working, ["TakeRole a", "TakeRole b"]),
    (Gathering, FAILED, "a", Ended, ["NoteGivenUp", "Release a", "NoteEnded"]),
    (Gathering, GIVE_UP, "", Ended, ["NoteGivenUp", "Release a", "NoteEnded"]),
    (Gathering, LOST, "a", Gathering, NOTHING),
    (Gathering, Tick(), "", Gathering, NOTHING),

    (Working, Meet(KEY, STEP), "a", Meeting, NOTHING),
    (Working, PROGRESS, "a", Working, ["ShowProgress"]),
    (Working, StoresSamples(KEY), "a", Working, NOTHING),
    (Working, Tick(), "", Working, NOTHING),

    (Meeting, Meet(KEY, STEP), "b", Answering, ["FindAnswers"]),
    (Meeting, PROGRESS, "b", Meeting, ["ShowProgress"]),
    (Meeting, StoresSamples(KEY), "b", Meeting, NOTHING),
    (Meeting, Tick(), "", Meeting, NOTHING),

    (Answering, ANSWERED, "", Working, ANSWERS),
    (Answering, Answered(ANSWERED.answers, {"": drain()}), "", DrivingLoad, ANSWERS),
    (Answering, UNANSWERED, "", GivenUp, ABORTED),
    (Answering, Conclude(), "", Concluded, NOTHING),
    (Answering, StoresSamples(KEY), "a", Answering, NOTHING),
    (Answering, Tick(), "", Answering, NOTHING),

    (DrivingLoad, SENDING, "a", DrivingLoad, ["ShowProgress"]),
    (DrivingLoad, Tick(), "", DrivingLoad, NOTHING),
    (DrivingLoad, StoresSamples(KEY), "a", DrivingLoad, NOTHING),

    *((state, FAILED, "b", GivenUp, ABORTED) for state in (Working, Meeting, Answering, DrivingLoad)),
    *((state, GIVE_UP, "", GivenUp, ABORTED) for state in (Working, Meeting, Answering, DrivingLoad)),
    *((state, LOST, "b", GivenUp, ABORTED) for state in (Working, Meeting, Answering, DrivingLoad)),
    *((state, LOST, "a", Ended, ABORTED + RELEASED) for state in (Working, Meeting, Answering, DrivingLoad)),
    *((state, LOST, "c", state, NOTHING) for state in (Working, Meeting, Answering, DrivingLoad)),

    (Concluded, ANSWERED, "", Concluded, ANSWERS),
    (Concluded, UNANSWERED, "", GivenUp, ABORTED),
    (Concluded, LOST, "b", Concluded, NOTHING),
    (Concluded, LOST, "a", Ended, RELEASED),
    *((Concluded, event, worker, Concluded, NOTHING) for event, worker in (
        (StoresSamples(KEY), "a"), (FAILED, "b"), (GIVE_UP, ""), (Tick(), ""))),

    (GivenUp, Meet(KEY, STEP), "b", GivenUp, ["AbortRun b"]),
    (GivenUp, LOST, "b", GivenUp, NOTHING),
    (GivenUp, LOST, "a", Ended, RELEASED),
    *((GivenUp, event, worker, GivenUp, NOTHING) for event, worker in (
        (StoresSamples(KEY), "a"), (PROGRESS, "a"), (FAILED, "b"), (ANSWERED, ""), (UNANSWERED, ""), (Conclude(), ""), (GIVE_UP, ""),
        (Tick(), ""))),

    *((state, COMMAND, "a", state, ["CarryOut"]) for state in STATES if state not in (Gathering, Ended)),
    *((state, Finished(KEY), "a", Ended, RELEASED) for state in STATES if state not in (Gathering, Ended)),
    *((state, Superseded(), "", Ended, ["NoteEnded"]) for state in STATES if state not in (Gathering, Ended)),
    *((state, Arrive(KEY), "c", state, ["Release c"]) for state in STATES if state is not Gathering),
    *((state, Gather(("a", "b")), "", state, NOTHING) for state in STATES if state is not Gathering),

    *((Ended, event, "b", Ended, ["AbortRun b"]) for event in (Meet(KEY, STEP), PROGRESS, COMMAND)),
    *((Ended, event, "a", Ended, NOTHING) for event in (StoresSamples(KEY), FAILED, Finished(KEY), LOST)),
    *((Ended, event, "", Ended, NOTHING) for event in (Superseded(), ANSWERED, UNANSWERED, Conclude(), GIVE_UP, Tick())),
]
# fmt: on


def row_name(row: Row) -> str:
    before, event, worker, after, _ = row
    return f"{before.__name__}, {type(event).__name__} {worker} → {after.__name__}"


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_a_row_of_the_table_does_what_it_says(row: Row) -> None:
    before, event, worker, after, effects = row
    run = run_in(before)
    assert described(handle_event(run, event, NOW, worker)) == effects
    assert type(run.state) is after


def test_every_row_of_the_table_has_a_test() -> None:
    """And no test is about a row that is gone."""
    assert {(before, type(event)) for before, event, *_ in ROWS} == set(TABLE)


def test_the_table_of_the_documentation_has_every_change_of_state() -> None:
    """scripts/schemas writes it."""
    changes = {
        (before.__name__, after.__name__)
        for (before, _), row in TABLE.items()
        for after in row.leads_to
        if after is not before
    }
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in transitions_table().splitlines()[2:]
    ]
    assert {(before, after) for before, after, _ in lines} == changes
    assert len(lines) == len(changes)
    assert transitions_table() in DESIGN.read_text(encoding="utf-8"), "run scripts/schemas"


def test_the_diagram_of_the_shell_has_only_changes_of_state_of_the_table() -> None:
    """An arrow of the diagram that the table does not have would mislead."""
    changes = {
        (before.__name__, after.__name__)
        for (before, _), row in TABLE.items()
        for after in row.leads_to
    }
    assert rendezvous_module.__doc__ is not None
    arrows = re.findall(r"(?=\b([A-Z]\w+) ──▶ ([A-Z]\w+))", rendezvous_module.__doc__)
    assert len(arrows) >= 7
    assert set(arrows) <= changes
    given_up = {before for before, after in changes if after == "GivenUp"} - {"GivenUp"}
    assert given_up == {state.__name__ for state in STATES} - {"Gathering", "GivenUp", "Ended"}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_a_run_that_is_over_is_not_watched(state: type[State]) -> None:
    """The watch of the targets looks only at runs that continue."""
    watched = state in (Working, Meeting, Answering, DrivingLoad)
    assert run_in(state).continues is watched


def event_of(kind: type[Event]) -> tuple[Any, str]:
    """Return an event of this kind, and the member that it is from."""
    events: list[tuple[Any, str]] = [
        (event, worker) for _, event, worker, *_ in ROWS if type(event) is kind
    ]
    return events[0] if events else (kind(KEY), "a")  # type: ignore[call-arg]


WITHOUT_ROW = [
    (state, event) for state in STATES for event in get_args(Event) if (state, event) not in TABLE
]


@pytest.mark.parametrize(("state", "kind"), WITHOUT_ROW, ids=lambda part: part.__name__)
def test_an_event_without_a_row_ends_the_run_with_an_error_that_names_it(
    state: type[State], kind: type[Event]
) -> None:
    """It names run, worker, state and message, and reaches all workers; but it never hides the first error."""
    run = run_in(state)
    event, worker = event_of(kind)
    sender = f"worker {worker}" if worker else "the controller"
    text = f"run (4, 0), {state.text}: {sender} sent {kind.__name__}, which is not allowed in this state (internal error)"
    if state in (GivenUp, Ended) and not worker:  # no worker is left that could get it
        with pytest.raises(WorkerError) as raised:
            handle_event(run, event, NOW, worker)
        assert str(raised.value) == text
    else:
        effects = handle_event(run, event, NOW, worker)
        receivers = {
            effect.worker
            for effect in effects
            if isinstance(effect, Send) and isinstance(effect.message, AbortRun)
        }
        assert receivers == (
            {worker} - {""} if state in (Gathering, GivenUp, Ended) else set(run.members)
        )
    assert type(run.state) is (Ended if state in (Gathering, Ended) else GivenUp)
    assert str(run.error) == (str(CAUSE) if state in (GivenUp, Ended) else text)


def test_a_message_of_a_worker_without_a_part_in_the_run_ends_it() -> None:
    """The worker gets the error too: it would wait for ever."""
    for event in (PROGRESS, Meet(KEY, STEP), COMMAND, Failed(KEY, NoData("odd"))):
        run = run_in(Working)
        assert described(handle_event(run, event, NOW, "c")) == [*ABORTED, "AbortRun c"]
        assert "worker c sent" in str(run.error)


@pytest.mark.parametrize(
    ("state", "event", "worker"),
    [
        (Meeting, Meet(KEY, STEP), "a"),
        (Meeting, Meet(KEY, PhaseDone(2, ())), "b"),
        (Meeting, Meet(KEY, ClientsMade("consumers", "")), "b"),
        (DrivingLoad, Finished(KEY), "b"),
        (Concluded, Finished(KEY), "b"),
        (Working, Arrive(KEY), "a"),
    ],
)
def test_a_message_that_its_worker_cannot_send_now_ends_the_run(
    state: type[State], event: Any, worker: str
) -> None:
    """A second time at a meeting, at another meeting than the others, the end by a member, arriving anew."""
    run = run_in(state)
    assert described(handle_event(run, event, NOW, worker)) == ABORTED
    assert (
        f"worker {worker} sent {type(event).__name__}, which is not allowed in this state"
        in str(run.error)
    )


def service(*command: str) -> StartService:
    return StartService(ServiceRequest(command=command, ready="ready", timeout=1))


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((service("x"), service("y")), ("start the service `x`", "start the service `y`")),
        ((service("x"), BeginLoad()), ("start the service `x`", "begin its load")),
        ((BeginLoad(), STEP), ("begin its load", "finish step 1")),
        ((STEP, BeginLoad()), ("finish step 1", "begin its load")),
    ],
)
def test_fixtures_that_differ_between_workers_are_a_usage_error(
    steps: tuple[RunStep, RunStep], said: tuple[str, str]
) -> None:
    """It names both workers and what each would do."""
    run = run_in(Working)
    first, second = steps
    assert described(handle_event(run, Meet(KEY, first), NOW, "b")) == NOTHING
    assert described(handle_event(run, Meet(KEY, second), NOW, "a")) == ABORTED
    assert isinstance(run.error, UsageError)
    assert f"worker b would {said[0]}, and worker a would {said[1]}" in str(run.error)


def test_a_worker_that_comes_to_one_meeting_twice_is_an_error_of_the_fleet() -> None:
    """Not of the test's fixtures."""
    run = run_in(Working)
    handle_event(run, Meet(KEY, service("x")), NOW, "b")
    handle_event(run, Meet(KEY, service("y")), NOW, "b")
    assert isinstance(run.error, WorkerError)


def test_the_setup_waits_for_the_lead_without_limit() -> None:
    """Then the members have as long as at any meeting."""
    run = run_in(Working)
    run.members = ("a", "b", "c")
    handle_event(run, Meet(KEY, BeginLoad()), NOW, "b")
    assert run.deadline is None
    handle_event(run, Meet(KEY, BeginLoad()), NOW, "a")
    assert run.deadline == NOW + MEETING_TIMEOUT * SECOND


def test_workers_meet_for_the_clients_of_one_workload() -> None:
    """Consumers and producers of each workload have meetings of their own."""
    meetings = {
        ClientsMade(clients, workload).meeting
        for clients in ("consumers", "producers")
        for workload in ("", "b")
    }
    assert len(meetings) == 4


def test_a_run_ends_no_sooner_than_its_deadline() -> None:
    """And names what was missing. While the members work or wait for answers, there is no limit."""
    for state, limit, text in (
        (Meeting, MEETING_TIMEOUT, "worker b did not finish step 1 within 300 s"),
        (DrivingLoad, SILENCE_TIMEOUT, "a, b sent no message for 60 s while driving load"),
    ):
        run = run_in(state)
        assert run.deadline == NOW + limit * SECOND
        assert handle_event(run, Tick(), run.deadline) == []
        effects = handle_event(run, Tick(), run.deadline + 1)
        assert str(run.error) == text
        assert [effect for effect in effects if isinstance(effect, Kill)] == (
            [Kill("a"), Kill("b")] if state is DrivingLoad else [Kill("b", limit * SECOND)]
        )
    assert [run_in(state).deadline for state in STATES if state not in (Meeting, DrivingLoad)] == [
        None
    ] * 6


def test_progress_of_an_ended_phase_is_forgotten_when_the_next_one_begins() -> None:
    """Its last reports would end the drain of a phase with the same name."""
    run = run_in(Answering)
    run.progress = {"": {"a": made_progress()}, "other": {"a": made_progress()}}
    handle_event(run, Answered(ANSWERED.answers, {"": drain()}), NOW)
    assert set(run.progress) == {"other"}


def test_the_phases_of_several_workloads_end_one_by_one() -> None:
    """Load is driven until the last one has ended."""
    run = run_in(DrivingLoad)
    run.state = DrivingLoad({"x": drain(), "y": drain()})
    seen = []
    for workload in ("x", "y"):
        for worker in run.members:
            seen += described(
                handle_event(
                    run, ReportProgress(KEY, made_progress(workload=workload)), NOW, worker
                )
            )
        seen.append(type(run.state).__name__)
    ended = ["ShowProgress", "ShowProgress", "EndPhase a", "EndPhase b"]
    assert seen == [*ended, "DrivingLoad", *ended, "Working"]


def test_the_tests_that_the_package_names_exist() -> None:
    """In the table of what happens when a worker, a host, the lead, Spark or the target dies."""
    text = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py")
    )
    assert fleet.__doc__ is not None
    named = re.findall(r"``(test_\w+)``", fleet.__doc__)
    assert len(named) >= 10
    assert [name for name in named if f"def {name}(" not in text] == []
    catalogue = FAULTS.read_text(encoding="utf-8")
    faults = re.findall(r"fault\s+``([\w-]+)``", fleet.__doc__)
    assert len(faults) >= 5
    assert [name for name in faults if f"| `{name}` |" not in catalogue] == []


def test_the_table_of_deaths_names_every_state_for_worker_lead_and_target() -> None:
    """A state that it forgets is one in which nobody knows what happens."""
    assert fleet.__doc__ is not None
    _, _, table = fleet.__doc__.partition("dies or falls silent")
    for who in ("member", "lead", "target"):
        lines = re.findall(rf"^(?:the|a) {who}:? *(.*?)(?=^\S|\Z)", table, re.MULTILINE | re.DOTALL)
        named = {state.__name__ for state in STATES if state.__name__ in " ".join(lines)}
        assert named | {"Gathering"} == {state.__name__ for state in STATES}


# Several workers of a run in one thread, on a virtual clock.


class OneThread:
    """Two workers of a run: real engines, links and states, with drivers that answer in memory."""

    def __init__(self) -> None:
        self.clock, self.run = FakeClock(), Run(KEY)
        self.inboxes: dict[str, queue.SimpleQueue[ControllerMessage]] = {
            worker: queue.SimpleQueue() for worker in ("a", "b")
        }
        self.links = {
            worker: Link(partial(self.handle, worker=worker), inbox, KEY)
            for worker, inbox in self.inboxes.items()
        }
        self.engines = {
            worker: self.engine(worker, stream) for stream, worker in enumerate(self.links)
        }

    def handle(self, event: Any, worker: str = "") -> None:
        for effect in handle_event(self.run, event, self.clock(), worker):
            if isinstance(effect, Send):
                self.inboxes[effect.worker].put(effect.message)

    def engine(self, worker: str, stream: int) -> Engine:
        topology, pool, streams = (
            Topology(topics=1, partitions=1, producers=2, subscriptions=1, consumers=1),
            make_pool(),
            range(stream, stream + 1),
        )
        context = DriverContext(
            target=TargetAddress(url="null://"),
            settings=None,
            clock=self.clock,
            run="r",
            nonce=7,
            worker=worker,
            topology=topology,
            pool=pool,
        )
        driver = NullDriver(context)
        opened = Joined(np.zeros(1, np.int32), driver.open_consumers(range(1)))
        setup = Setup(
            driver=driver,
            clock=self.clock,
            pool=pool,
            topology=topology,
            streams=streams,
            opened=opened,
            nonce=7,
            seed=1,
            key_distributor="NO_KEY",
            max_send_delay=10 * SECOND,
            ordered=True,
        )
        return Engine(setup)

    def begin(self, rate: float, duration: int) -> None:
        """Gather both, let them meet, and begin a phase."""
        for worker in self.links:
            self.handle(Arrive(KEY), worker)
        self.handle(Gather(tuple(self.links)))
        for worker in self.links:
            self.handle(Meet(KEY, PhaseDone(0, ())), worker)
        self.handle(Answered((NextPhases(None),) * 2, {"": Drain("measure", 2, 1, SECOND)}))
        phase = Phase(
            name="measure",
            duration=duration,
            pacer=Pacer.of(rate, 2),
            before=StreamCounts(streams=2),
            recorded=True,
        )
        for worker, link in self.links.items():
            assert [type(self.inboxes[worker].get()) for _ in range(2)] == [TakeRole, Answer]
            self.engines[worker].begin(
                phase, self.clock() + SECOND, link.phase_control("", "measure"), None
            )


def test_two_workers_of_a_run_are_driven_in_one_thread_on_a_virtual_clock() -> None:
    """The last report of either ends the phase on both, after as much virtual time as the phase lasts."""
    both = OneThread()
    began = both.clock()
    both.begin(rate=100, duration=2 * SECOND)
    assert type(both.run.state) is DrivingLoad
    drive_engines(list(both.engines.values()), both.clock)
    assert type(both.run.state) is Working
    assert [engine.sender.ends.tolist() for engine in both.engines.values()] == [[100], [100]]
    assert 3 * SECOND <= both.clock() - began <= 5 * SECOND
    for worker in both.links:
        both.handle(Meet(KEY, PhaseDone(1, ())), worker)
    assert both.run.state == Answering(PhaseDone)


def test_the_failure_of_one_worker_ends_the_load_of_the_other_in_the_same_thread() -> None:
    both = OneThread()
    both.begin(rate=100, duration=2 * SECOND)
    both.links["b"].fail(NoData("disk full"))
    with pytest.raises(NoData, match="worker b: disk full"):
        drive_engines([both.engines["a"]], both.clock)
    both.handle(Finished(KEY), "a")
    with pytest.raises(Released):
        both.links["a"].process_messages()


# Any sequence of messages, deaths, answers and time, through the rendezvous, whose threads run when the test says so.

WORKERS = [f"gw{number}" for number in range(5)]
OUTCOMES = ("answer", "drive", "fail", "conclude", "conclude and fail")


class Controller:
    """Answers each step as the test has drawn, and keeps what it was told."""

    clocks = None

    def __init__(self) -> None:
        self.outcome = "answer"
        self.rendezvous: Rendezvous
        self.errors: dict[tuple[int, int], list[str]] = {}
        self.ends: list[tuple[int, int]] = []

    def answer(self, run: Run, brought: Sequence[RunStep]) -> StepAnswers:
        if self.outcome.startswith("conclude"):
            self.rendezvous.conclude(run)
        if self.outcome.endswith("fail"):
            raise TargetError("no answer")
        drains = {"": Drain("measure", len(brought), 1, 0)} if self.outcome == "drive" else {}
        return StepAnswers(by_rank=(Continue(),) * len(brought), drains=drains)

    def check(self, run: Run) -> None: ...

    def progressed(self, run: Run, workload: str) -> None: ...

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        raise UsageError("cannot be")

    def gave_up(self, run: Run, error: Exception) -> None:
        self.errors.setdefault(run.key, []).append(str(error))

    def ended(self, run: Run) -> None:
        self.ends.append(run.key)


class Deferred:
    """A thread that runs when the test calls it."""

    started: ClassVar[list[Deferred]] = []

    def __init__(
        self,
        target: Callable[..., None],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool = True,
    ) -> None:
        self.name = name
        self.call = lambda: target(*args)

    def start(self) -> None:
        if self.name not in ("loadtest-watch", "loadtest-clocks"):  # time passes by a rule
            self.started.append(self)


class Sessions(RuleBasedStateMachine):
    """One to five workers go through the tests of a session, and may die, lie, or fall silent at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.controller = FakeClock(), Controller()
        self.sent: list[tuple[str, ControllerMessage]] = []
        self.stop: str | None = None
        self.arrivals: list[tuple[tuple[int, int], str]] = []
        self.alive: list[str] = []
        self.key = (0, 0)
        self.steps = 0
        Deferred.started = []
        rendezvous_module.threading = SimpleNamespace(
            Thread=Deferred, RLock=threading.RLock, Event=threading.Event
        )  # type: ignore[assignment]
        self.rendezvous = Rendezvous(
            self.controller,
            lambda worker, message: self.sent.append((worker, message)),
            self.clock,
            lambda: self.stop,
        )
        self.controller.rendezvous = self.rendezvous

    @property
    def run(self) -> Run:
        return self.rendezvous.runs.get(self.key) or Run(self.key)

    def say(self, worker: str, message: RunMessage) -> None:
        if isinstance(message, Arrive):
            self.arrivals.append((message.key, worker))
        self.rendezvous.receive(worker, message)

    @initialize(count=st.integers(1, len(WORKERS)))
    def join(self, count: int) -> None:
        for worker in WORKERS[:count]:
            self.alive.append(worker)
            self.rendezvous.join(worker)

    # --- what happens in a session where nothing goes wrong

    @rule(times=st.integers(1, 25), outcome=st.sampled_from(["answer", "drive"]))
    def go_on(self, times: int, outcome: str) -> None:
        for _ in range(times):
            self.step(outcome)

    @rule(state=st.sampled_from([Meeting, Answering, DrivingLoad, Concluded, Ended]))
    def go_on_until(self, state: type[State]) -> None:
        outcome = {DrivingLoad: "drive", Concluded: "conclude"}.get(state, "answer")
        for _ in range(30):
            if type(self.run.state) is state:
                return
            self.step(outcome)

    def step(self, outcome: str) -> None:
        """Let one worker, or the controller, do what it would do next."""
        run = self.run
        living = [member for member in run.members if member in self.alive]
        match run.state:
            case Gathering(arrived=arrived):
                for worker in [worker for worker in self.alive if worker not in arrived][:1]:
                    self.say(worker, Arrive(self.key))
            case Working() | Meeting():
                brought = run.state.brought if isinstance(run.state, Meeting) else {}
                if not brought:
                    self.steps += 1
                for worker in [member for member in living if member not in brought][:1]:
                    self.say(worker, Meet(self.key, self.next_step()))
            case Answering():
                self.answer(outcome)
            case DrivingLoad():
                for worker in living:
                    self.say(worker, ReportProgress(self.key, made_progress()))
            case Concluded(step=None) | GivenUp():
                if run.lead in self.alive:
                    self.say(run.lead, Finished(self.key))
            case Concluded():
                self.answer("answer")
            case Ended():
                self.key = (self.key[0] + 1, 0)

    def next_step(self) -> RunStep:
        """Return the step that the members bring next: some are of the setup."""
        if self.steps % 4 == 1:
            return BeginLoad()
        return service("x") if self.steps % 2 else PhaseDone(self.steps, ())

    @precondition(lambda self: Deferred.started)
    @rule(outcome=st.sampled_from(OUTCOMES))
    def answer(self, outcome: str) -> None:
        if Deferred.started:
            self.controller.outcome = outcome
            Deferred.started.pop(0).call()

    @precondition(lambda self: self.run.lead in self.alive)
    @rule()
    def run_the_test_again(self) -> None:
        lead, key = self.run.lead, (self.key[0], self.key[1] + 1)
        assert lead is not None
        self.say(lead, Again(key))
        self.key = key

    # --- what goes wrong

    @rule(
        number=st.integers(0, 4),
        kind=st.sampled_from([StoresSamples, ReportProgress, Command, Failed, Finished]),
    )
    def let_a_member_send(self, number: int, kind: type[RunMessage]) -> None:
        members = [member for member in self.run.members if member in self.alive]
        if members:
            self.send(members[number % len(members)], self.key, kind)

    @rule(
        worker=st.sampled_from([*WORKERS, "stranger"]),
        kind=st.sampled_from(
            [Arrive, Again, Meet, StoresSamples, ReportProgress, Command, Failed, Finished]
        ),
        other=st.sampled_from([0, 0, 0, -1, 1]),
    )
    def send_anything(self, worker: str, kind: type[RunMessage], other: int) -> None:
        """A message that may be illegal, of a worker that may be dead, in the current run or another one."""
        self.send(worker, (self.key[0] + other, self.key[1]), kind)

    def send(self, worker: str, key: tuple[int, int], kind: type[RunMessage]) -> None:
        messages: list[RunMessage] = [
            Arrive(key),
            Again((key[0], key[1] + 1)),
            Meet(key, self.next_step()),
            StoresSamples(key),
            ReportProgress(key, made_progress()),
            Command(key, "rate", 5),
            Failed(key, NoData("disk full")),
            Finished(key),
        ]
        self.say(worker, next(message for message in messages if type(message) is kind))

    @precondition(lambda self: isinstance(self.run.state, Meeting))
    @rule(last=st.booleans())
    def let_a_fixture_differ(self, last: bool) -> None:
        """A worker starts a service that the others do not know: all get an error about it."""
        run, meeting = self.run, self.run.state
        assert isinstance(meeting, Meeting)
        missing = [
            worker
            for worker in run.members
            if worker in self.alive and worker not in meeting.brought
        ]
        if missing:
            self.say(missing[-last], Meet(run.key, service("other")))
            assert isinstance(run.error, UsageError)
            assert f"worker {missing[-last]} would start the service `other`" in str(run.error)

    @precondition(lambda self: self.alive)
    @rule(number=st.sampled_from([0, 0, 1, 2, 3, 4]))
    def lose_a_worker(self, number: int) -> None:
        worker = self.alive.pop(number % len(self.alive))
        self.rendezvous.leave(worker, "SIGKILL")
        self.rendezvous.gather()

    @rule(worker=st.sampled_from(WORKERS))
    def replace_a_worker(self, worker: str) -> None:
        if worker not in self.alive:
            self.alive.append(worker)
            self.rendezvous.join(worker)

    @rule(seconds=st.sampled_from([1, 59, 61, 299, 301]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)
        for run in list(self.rendezvous.runs.values()):
            due = run.deadline is not None and self.clock() > run.deadline
            self.rendezvous.tick(run)
            assert not (due and run.continues)

    @rule()
    def interrupt(self) -> None:
        self.rendezvous.abort_all(NoData("interrupted"))

    @precondition(lambda self: Deferred.started)
    @rule()
    def answer_too_late(self) -> None:
        """Something else has ended the run meanwhile."""
        self.interrupt()
        self.answer("conclude")

    @rule()
    def stop_the_session(self) -> None:
        """As after ``-x``; here it goes on with the next test."""
        self.stop = "stopping after 1 failures"
        self.rendezvous.gather()
        self.stop = None

    # --- what holds at any time

    def got(self, kind: type[ControllerMessage], key: tuple[int, int]) -> list[tuple[str, Any]]:
        return [
            (worker, message)
            for worker, message in self.sent
            if isinstance(message, kind) and message.key == key
        ]

    @invariant()
    def the_first_error_remains(self) -> None:
        for key, run in self.rendezvous.runs.items():
            errors = self.controller.errors.get(key, [])
            assert errors == ([] if run.error is None else [str(run.error)])
            if run.error is not None:
                assert {str(abort.error) for _, abort in self.got(AbortRun, key)} <= {
                    str(run.error)
                }

    @invariant()
    def a_run_that_waits_for_workers_has_a_deadline(self) -> None:
        for run in self.rendezvous.runs.values():
            limited = isinstance(run.state, DrivingLoad) or (
                isinstance(run.state, Meeting) and run.state.since is not None
            )
            assert (run.deadline is not None) == limited

    @invariant()
    def an_ended_run_leaves_nothing(self) -> None:
        for key, run in self.rendezvous.runs.items():
            assert self.controller.ends.count(key) == run.ended
            assert not run.ended or (run.progress, run.last_message) == ({}, {})

    @invariant()
    def no_worker_is_released_twice(self) -> None:
        for key, run in self.rendezvous.runs.items():
            for worker in run.members:
                released = self.got(Release, key).count((worker, Release(key)))
                assert released <= max(self.arrivals.count((key, worker)), 1)

    def teardown(self) -> None:
        """Let time pass, then let all workers end: nothing continues, and every worker has been released."""
        try:
            for run in list(self.rendezvous.runs.values()):
                if run.deadline is not None:
                    self.clock.advance(max(run.deadline + 1 - self.clock(), 0))
                    self.rendezvous.tick(run)
                    assert not run.continues
            while self.alive:
                self.lose_a_worker(0)
            while Deferred.started:
                self.answer("answer")
            for key, run in self.rendezvous.runs.items():
                assert run.ended or run.state == Gathering()
                following = self.rendezvous.runs.get((key[0], key[1] + 1))
                for worker in run.members:
                    is_in_the_rerun = following is not None and bool(following.members)
                    assert self.got(Release, key).count((worker, Release(key))) >= (
                        0 if is_in_the_rerun else 1
                    )
            self.the_first_error_remains()
            self.an_ended_run_leaves_nothing()
            self.no_worker_is_released_twice()
        finally:
            rendezvous_module.threading = threading


TestSessions = Sessions.TestCase
TestSessions.settings = settings(stateful_step_count=60)
