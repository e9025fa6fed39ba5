"""The controller's shell around runs, without any transport: workers are names, messages are lists."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from builders.progress import made_progress

from pytest_loadtest.errors import NoData, TargetError, UsageError, WorkerError
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Again,
    Answer,
    Arrive,
    ChangeLoad,
    Command,
    CommandAnswer,
    EndPhase,
    Failed,
    Finished,
    Meet,
    PhaseDone,
    Release,
    ReportProgress,
    RunStep,
    StoresSamples,
    TakeRole,
)
from pytest_loadtest.fleet.rendezvous import Rendezvous, StepAnswers
from pytest_loadtest.fleet.run_states import MEETING_TIMEOUT, SILENCE_TIMEOUT, Run
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_loadtest.fleet.host_clocks import HostClocks
    from pytest_loadtest.fleet.messages import ControllerMessage, RunMessage

KEY = (4, 0)
Message = TypeVar("Message")


@dataclass(frozen=True)
class Order(RunStep):
    work = "give its order"
    payload: Any = None


@dataclass(frozen=True)
class Prepare(RunStep):
    work = "prepare"


@dataclass(frozen=True)
class SetUp(RunStep):
    work = "set up"
    in_setup = True


@dataclass(frozen=True)
class Fails(RunStep):
    error: BaseException


@dataclass(frozen=True)
class Begins(RunStep):
    """Phases of load begin with the answer."""


class Controller:
    """A run controller that answers each step with rank and payload."""

    def __init__(self) -> None:
        self.gone: Exception | None = None
        self.clocks: HostClocks | None = None
        self.broken: list[Exception] = []
        self.forgotten: list[tuple[int, int]] = []
        self.begin: Callable[[Run], dict[str, Drain]] = lambda run: {}

    def answer(self, run: Run, brought: Sequence[RunStep]) -> StepAnswers:
        match brought[0]:
            case Fails(error):
                raise error
            case Begins():
                return StepAnswers(by_rank=tuple(range(len(brought))), drains=self.begin(run))  # type: ignore[arg-type]
            case _:
                pairs = tuple(
                    (rank, getattr(step, "payload", None)) for rank, step in enumerate(brought)
                )
                return StepAnswers(by_rank=pairs)  # type: ignore[arg-type]

    def check(self, run: Run) -> None:
        if self.gone is not None:
            raise self.gone

    def progressed(self, run: Run, workload: str) -> None: ...

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        if kind == "wrong":
            raise UsageError("cannot be")
        return argument  # of some tests a function

    def gave_up(self, run: Run, error: Exception) -> None:
        self.broken.append(error)

    def ended(self, run: Run) -> None:
        self.forgotten.append(run.key)


class Fleet:
    """A rendezvous, with the messages that it sent."""

    def __init__(self) -> None:
        self.clock, self.controller = FakeClock(), Controller()
        self.stop: str | None = None
        self.sent: list[tuple[str, ControllerMessage]] = []
        self.killed: list[str] = []
        self._came = threading.Condition()
        self.rendezvous = Rendezvous(
            self.controller, self._send, self.clock, lambda: self.stop, self.killed.append
        )

    def _send(self, worker: str, message: ControllerMessage) -> None:
        with self._came:
            self.sent.append((worker, message))
            self._came.notify_all()

    def join(self, *workers: str) -> None:
        for worker in workers:
            self.rendezvous.join(worker)

    def say(self, worker: str, message: RunMessage) -> None:
        self.rendezvous.receive(worker, message)

    def meet(self, worker: str, step: RunStep, key: tuple[int, int] = KEY) -> None:
        self.say(worker, Meet(key, step))

    def got(self, kind: type[Message]) -> list[tuple[str, Message]]:
        """Return the messages of this kind with their receivers."""
        return [(worker, message) for worker, message in self.sent if isinstance(message, kind)]

    def wait(self, kind: type[Message], n: int) -> list[tuple[str, Message]]:
        """Return them once there are ``n``."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.got(kind)) >= n, 10)
            return self.got(kind)

    def errors(self, n: int) -> dict[str, str]:
        """Return the text of the abort that each worker got, once there are ``n``."""
        return {worker: str(abort.error) for worker, abort in self.wait(AbortRun, n)}

    def start(self, *workers: str, key: tuple[int, int] = KEY) -> Run:
        for worker in workers:
            self.say(worker, Arrive(key))
        return self.rendezvous.runs[key]

    def drive(self, *workers: str) -> Run:
        """Start a run of these workers, whose load is driven."""
        self.join(*workers)
        run = self.start(*workers)
        self.controller.begin = lambda run: {"": Drain("measure", len(workers), 1, 30 * SECOND)}
        for worker in workers:
            self.meet(worker, Begins())
        self.wait(Answer, len(workers))
        return run


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    made = Fleet()
    yield made
    made.rendezvous.close()


def test_a_run_starts_when_all_workers_have_arrived(fleet: Fleet) -> None:
    """The first worker of the session leads, in whatever order they arrive."""
    fleet.join("a", "b", "c")
    fleet.start("c", "b")
    assert not fleet.sent
    run = fleet.start("a")
    assert run.members == ("a", "b", "c")
    assert [(worker, role.lead) for worker, role in fleet.got(TakeRole)] == [
        ("a", True),
        ("b", False),
        ("c", False),
    ]


def test_a_meeting_ends_when_all_are_there_with_answers_by_rank(fleet: Fleet) -> None:
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.meet("b", Order("from b"))
    assert not fleet.got(Answer)
    fleet.meet("a", Order("from a"))
    answers = [(worker, answer.step, answer.answer) for worker, answer in fleet.wait(Answer, 2)]
    assert answers == [("a", Order, (0, "from a")), ("b", Order, (1, "from b"))]


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (TargetError("no broker"), TargetError, "no broker"),
        (ValueError("odd"), NoData, "ValueError: odd"),
        (pytest.skip.Exception("no module"), NoData, "Skipped: no module"),
        (SystemExit(3), NoData, "SystemExit: 3"),
    ],
)
def test_an_error_at_a_meeting_reaches_every_worker(
    fleet: Fleet, error: BaseException, kind: type[Exception], text: str
) -> None:
    """As the kind of error that it is."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    for worker in ("a", "b"):
        fleet.meet(worker, Fails(error))
    aborts = fleet.wait(AbortRun, 2)
    assert [worker for worker, _ in aborts] == ["a", "b"]
    assert all(type(abort.error) is kind and str(abort.error) == text for _, abort in aborts)
    assert len(fleet.controller.broken) == 1


def test_the_first_error_of_a_run_is_its_cause(fleet: Fleet) -> None:
    """It names its worker and aborts the run once; a worker that reaches a meeting later gets it at once."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("b", Failed(KEY, NoData("disk full")))
    fleet.say("a", Failed(KEY, NoData("aborted")))
    assert str(run.error) == "worker b: disk full"
    assert len(fleet.got(AbortRun)) == 2
    fleet.meet("a", Order())
    assert len(fleet.got(AbortRun)) == 3


def test_a_member_that_dies_aborts_the_run(fleet: Fleet) -> None:
    """The error names it; the others are released when the lead has finished."""
    fleet.join("a", "b", "c")
    run = fleet.start("a", "b", "c")
    fleet.rendezvous.leave("b", "SIGKILL")
    assert isinstance(run.error, WorkerError)
    assert str(run.error) == "load worker b went down: SIGKILL"
    assert not fleet.got(Release)
    fleet.say("a", Finished(KEY))
    assert {worker for worker, _ in fleet.got(Release)} >= {"a", "c"}


def test_the_error_of_an_ended_run_holds_no_traceback(fleet: Fleet) -> None:
    """Its frames would keep samples and open files until the session ends."""
    fleet.join("a")
    run = fleet.start("a")
    try:
        raise NoData("broken")
    except NoData as error:
        fleet.rendezvous.abort(run, error)
    fleet.say("a", Finished(KEY))
    assert str(run.error) == "broken"
    assert run.error is not None and run.error.__traceback__ is None


def test_a_lead_that_dies_releases_the_others(fleet: Fleet) -> None:
    """No worker is left to report the end of the item."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.rendezvous.leave("a", "SIGKILL")
    assert ("b", Release(KEY)) in fleet.got(Release)


def test_a_replacement_waits_for_the_next_run(fleet: Fleet) -> None:
    """It is released from the run that began without it, and the next one waits for it."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.rendezvous.leave("b", "SIGKILL")
    fleet.join("b2")
    fleet.say("b2", Arrive(KEY))
    assert fleet.got(Release) == [("b2", Release(KEY))]
    fleet.say("a", Finished(KEY))
    fleet.start("a", key=(5, 0))
    fleet.rendezvous.gather()
    assert not fleet.rendezvous.runs[5, 0].members
    assert fleet.start("b2", key=(5, 0)).members == ("a", "b2")


def test_a_worker_that_is_gone_is_not_waited_for(fleet: Fleet) -> None:
    """A run whose last missing worker is gone for good starts without it, at the controller's next ``gather``."""
    fleet.join("a", "b", "c")
    run = fleet.start("a", "b")
    fleet.rendezvous.leave("c", "maximum of restarts")
    assert not run.members
    fleet.rendezvous.gather()
    assert run.members == ("a", "b")


def test_a_rerun_consists_of_the_members_that_are_left(fleet: Fleet) -> None:
    """A replacement that has passed the item is not waited for; the lead remains the lead."""
    fleet.join("a", "b", "c")
    fleet.start("a", "b", "c")
    fleet.rendezvous.leave("b", "SIGKILL")
    fleet.join("b2")
    fleet.say("b2", Arrive(KEY))
    fleet.say("a", Again((4, 1)))
    run = fleet.rendezvous.runs[4, 1]
    assert run.members == ("a", "c")
    assert fleet.got(TakeRole)[-2:] == [
        ("a", TakeRole((4, 1), lead=True)),
        ("c", TakeRole((4, 1), lead=False)),
    ]


def test_a_run_with_results_is_not_given_up(fleet: Fleet) -> None:
    """When a member, or the lead in its body, goes down, or the session is interrupted; a lead that is gone still releases the others."""

    def conclude(run: Run) -> dict[str, Drain]:
        assert fleet.rendezvous.conclude(run)
        return {}

    fleet.join("a", "b", "c")
    run = fleet.start("a", "b", "c")
    fleet.controller.begin = conclude
    for worker in ("a", "b", "c"):
        fleet.meet(worker, Begins())
    fleet.wait(Answer, 3)
    fleet.rendezvous.leave("c", "SIGKILL")
    fleet.rendezvous.abort_all(NoData("interrupted"))
    assert not run.ended
    fleet.rendezvous.leave("a", "SIGKILL")
    assert [worker for worker, _ in fleet.got(Release)][-3:] == ["a", "b", "c"]
    assert (fleet.controller.broken, fleet.got(AbortRun), run.ended, run.concluded) == (
        [],
        [],
        True,
        True,
    )


def test_an_answer_that_fails_gives_up_a_run_with_results(fleet: Fleet) -> None:
    """Its workers wait for that answer."""

    def conclude(run: Run) -> dict[str, Drain]:
        assert fleet.rendezvous.conclude(run)
        raise ValueError("odd")

    fleet.controller.begin = conclude
    fleet.join("a")
    fleet.start("a")
    fleet.meet("a", Begins())
    assert fleet.errors(1) == {"a": "ValueError: odd"}
    assert len(fleet.controller.broken) == 1


def test_a_run_that_was_given_up_has_no_results(fleet: Fleet) -> None:
    """Although it was judged meanwhile."""
    fleet.join("a")
    run = fleet.start("a")
    fleet.rendezvous.abort(run, NoData("interrupted"))
    assert not fleet.rendezvous.conclude(run)
    assert not run.concluded


def test_the_run_before_a_rerun_has_ended(fleet: Fleet) -> None:
    """With its results: it is not given up when its workers end, hours later."""
    fleet.join("gw0", "gw1")
    first = fleet.start("gw0", "gw1")
    fleet.say("gw0", Again((4, 1)))
    assert first.ended
    fleet.say("gw0", Finished((4, 1)))
    for worker in ("gw0", "gw1"):
        fleet.rendezvous.leave(worker, "it ended")
    fleet.rendezvous.close()
    assert fleet.controller.broken == []


def test_no_run_starts_when_the_session_stops(fleet: Fleet) -> None:
    """After -x or --maxfail workers that arrive are released without a role."""
    fleet.join("a", "b")
    fleet.stop = "stopping after 1 failures"
    fleet.start("a", "b")
    assert not fleet.got(TakeRole)
    assert {worker for worker, _ in fleet.got(Release)} == {"a", "b"}


def test_the_end_of_a_drain_is_sent_to_every_member_once(fleet: Fleet) -> None:
    run = fleet.drive("a", "b")
    for _ in range(3):
        for worker in ("a", "b"):
            fleet.say(worker, ReportProgress(KEY, made_progress(acked=5, received=5)))
        fleet.clock.advance(SECOND)
    assert fleet.got(EndPhase) == [(worker, EndPhase(KEY, "", "measure")) for worker in ("a", "b")]
    assert run.drains == {}


def test_an_error_names_its_worker_once(fleet: Fleet) -> None:
    """Also if its text does so already."""
    for error, told in (
        (NoData("odd"), "worker a: odd"),
        (NoData("worker a could not write"), "worker a could not write"),
    ):
        key = (len(fleet.controller.broken) + 7, 0)
        fleet.say("a", Arrive(key))
        fleet.say("a", Failed(key, error))
        assert str(fleet.controller.broken[-1]) == told


def test_a_worker_that_waits_for_the_controller_is_not_silent(fleet: Fleet) -> None:
    """The time without messages counts from the controller's answer."""

    def begin(run: Run) -> dict[str, Drain]:
        fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)  # Spark starts
        fleet.rendezvous.tick(run)
        return {"": Drain("measure", 2, 1, 30 * SECOND)}

    fleet.controller.begin = begin
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    for worker in ("a", "b"):
        fleet.meet(worker, Begins())
    fleet.wait(Answer, 2)
    fleet.rendezvous.tick(run)
    assert run.error is None
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    fleet.rendezvous.tick(run)
    assert str(run.error) == "a, b sent no message for 60 s while driving load"


def test_a_worker_that_sends_nothing_is_named_and_killed(fleet: Fleet) -> None:
    """Otherwise the next test would wait for it without limit."""
    run = fleet.drive("a", "b")
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    fleet.say("a", ReportProgress(KEY, made_progress(sending=True)))
    fleet.rendezvous.tick(run)
    assert isinstance(run.error, WorkerError)
    assert fleet.killed == ["b"]
    assert str(run.error) == "b sent no message for 60 s while driving load"


def test_a_worker_that_misses_a_meeting_is_an_error(fleet: Fleet) -> None:
    """The error names it, and what it has not done."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.meet("a", Order())
    fleet.rendezvous.tick(run)
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous.tick(run)
    assert isinstance(run.error, WorkerError)
    assert str(run.error) == "worker b did not give its order within 300 s"


@pytest.mark.parametrize("step", [Order(), SetUp()], ids=["own", "setup"])
@pytest.mark.parametrize("answers", [False, True], ids=["silent", "late"])
def test_a_worker_that_stays_silent_is_killed(fleet: Fleet, step: RunStep, answers: bool) -> None:
    """Otherwise the next test, and the end of the session, would wait for it without limit.

    A late one goes on, and so does one whose fixtures take long.
    """
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.meet("a", step)
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous.tick(run)
    assert isinstance(run.error, WorkerError)
    fleet.say("a", Finished(KEY))
    assert fleet.killed == []
    if answers:
        fleet.meet("b", step)
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    with fleet.rendezvous.lock:
        fleet.rendezvous._kill_silent()
    assert fleet.killed == (["b"] if step == Order() and not answers else [])


def test_the_silence_of_members_counts_from_the_start_of_a_rerun(fleet: Fleet) -> None:
    """Only the lead has sent a message by then."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.say("a", Again((4, 1)))
    run = fleet.rendezvous.runs[4, 1]
    assert run.last_message == {"a": fleet.clock(), "b": fleet.clock()}


def test_paced_connections_prolong_the_timeout_of_a_meeting(fleet: Fleet) -> None:
    """By the time that the plan needs; then a missing worker is an error all the same."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    run.patience += 1000
    fleet.meet("a", Prepare())
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous.tick(run)
    assert run.error is None
    fleet.clock.advance(1000 * SECOND)
    fleet.rendezvous.tick(run)
    assert str(run.error) == "worker b did not prepare within 1300 s"


def test_a_worker_that_stores_its_samples_prolongs_the_timeout_of_a_meeting(fleet: Fleet) -> None:
    """Each sign restarts it; without one the worker is missing."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.meet("a", PhaseDone(1, ()))
    for _ in range(3):
        fleet.clock.advance((MEETING_TIMEOUT - 1) * SECOND)
        fleet.say("b", StoresSamples(KEY))
        fleet.rendezvous.tick(run)
    assert run.error is None
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous.tick(run)
    assert str(run.error) == "worker b did not finish step 1 within 300 s"


def test_the_body_of_a_live_test_may_prepare_for_long(fleet: Fleet) -> None:
    """Meetings of the setup have no timeout before the lead is there; later meetings have one."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    for number in (1, 2):
        fleet.meet("b", SetUp())
        fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
        fleet.rendezvous.tick(run)
        fleet.meet("a", SetUp())
        assert len(fleet.wait(Answer, 2 * number)) == 2 * number
    fleet.meet("b", Prepare())
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous.tick(run)
    assert str(run.error) == "worker a did not prepare within 300 s"


def test_a_target_that_is_gone_aborts_the_run(fleet: Fleet) -> None:
    """It is checked every second during a run, in a thread of its own."""
    fleet.join("a")
    fleet.start("a")
    fleet.controller.gone = TargetError("exited with status 9")
    fleet.meet("a", Prepare())
    assert fleet.errors(1) == {"a": "exited with status 9"}


def test_clocks_of_other_hosts_are_asked_while_load_runs_and_a_silent_host_aborts_the_run(
    fleet: Fleet,
) -> None:
    """Not between phases: then the run controller asks. A target whose engine does not answer does not delay them."""
    asked, released = threading.Event(), threading.Event()

    class Silent:
        def ask_under_load(self) -> None:
            asked.set()
            raise NoData("host h1 did not answer")

    fleet.controller.clocks = Silent()  # type: ignore[assignment]
    fleet.controller.check = lambda run: released.wait(10)  # type: ignore
    fleet.join("a")
    fleet.start("a")
    fleet.meet("a", Prepare())
    fleet.wait(Answer, 1)
    assert not asked.is_set()
    fleet.controller.begin = lambda run: {"": Drain("measure", 1, 1, 0)}
    fleet.meet("a", Begins())
    assert fleet.errors(1) == {"a": "host h1 did not answer"}
    released.set()


def test_a_change_is_sent_to_all_workers(fleet: Fleet) -> None:
    """With its workload and phase."""
    run = fleet.drive("a", "b")
    change = Change(at=5, rate=10.0)
    fleet.rendezvous.change(run, "small", "measure", change)
    assert fleet.got(ChangeLoad) == [
        (worker, ChangeLoad(KEY, "small", "measure", change)) for worker in ("a", "b")
    ]


def test_a_command_is_answered_to_its_worker(fleet: Fleet) -> None:
    """With its result or its error; the run continues."""
    run = fleet.drive("a", "b")
    fleet.say("a", Command(KEY, "rate", 5))
    fleet.say("a", Command(KEY, "wrong", None))
    (_, answer), (worker, error) = fleet.got(CommandAnswer)
    assert (answer.answer, worker, str(error.answer)) == (5, "a", "cannot be")
    assert run.error is None


class Unsupported(UsageError):
    """An error of a driver of another package, which its arguments do not make again."""

    def __init__(self, kind: str, number: int) -> None:
        super().__init__(f"{kind} has no node {number}")


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_command_is_answered_with_an_error_that_its_worker_can_read(
    fleet: Fleet, is_slow: bool
) -> None:
    """Otherwise the worker would be told that the controller has gone away."""

    def restart(*_: object) -> None:
        raise Unsupported("nats", 3)

    fleet.drive("a", "b")
    if not is_slow:
        fleet.controller.command = restart  # type: ignore[method-assign]
    fleet.say("a", Command(KEY, "long", restart))
    ((_, message),) = fleet.wait(CommandAnswer, 1)
    crossed = pickle.loads(pickle.dumps(message)).answer
    assert (type(crossed), str(crossed)) == (UsageError, "nats has no node 3")


def test_a_slow_command_blocks_no_other_message(fleet: Fleet) -> None:
    """It runs in a thread of its own and is answered at its end."""
    run = fleet.drive("a", "b")
    begun, end = threading.Event(), threading.Event()

    def restart() -> str:
        begun.set()
        assert end.wait(10)
        return "done"

    fleet.say("a", Command(KEY, "long", restart))
    assert begun.wait(10)
    fleet.say("b", ReportProgress(KEY, made_progress(acked=5)))
    fleet.rendezvous.change(run, "", "measure", Change(at=5, rate=10.0))
    assert run.progress[""]["b"].acked == 5
    assert len(fleet.got(ChangeLoad)) == 2
    assert not fleet.got(CommandAnswer)
    end.set()
    assert fleet.wait(CommandAnswer, 1) == [("a", CommandAnswer(KEY, "done"))]


def test_a_usage_error_of_a_slow_command_does_not_end_the_run(fleet: Fleet) -> None:

    def restart() -> None:
        raise UsageError("not ours")

    run = fleet.drive("a", "b")
    fleet.say("a", Command(KEY, "long", restart))
    ((worker, message),) = fleet.wait(CommandAnswer, 1)
    assert (worker, str(message.answer), run.error) == ("a", "not ours", None)


def test_any_other_error_of_a_slow_command_ends_the_run(fleet: Fleet) -> None:
    """All workers get it."""

    def restart() -> None:
        raise TargetError("did not come back")

    fleet.drive("a", "b")
    fleet.say("a", Command(KEY, "long", restart))
    assert fleet.errors(2) == {"a": "did not come back", "b": "did not come back"}
    assert [str(error) for error in fleet.controller.broken] == ["did not come back"]
    assert not fleet.got(CommandAnswer)


class Payload:
    """A large object that a worker brings to a meeting."""


def test_a_run_that_has_ended_holds_no_payloads(fleet: Fleet) -> None:
    """A payload file of 1 MB, eight workers, three hundred tests: otherwise 2.4 GB are kept until the session ends."""
    fleet.join("a")
    held = []
    for number in range(3):
        key = (number, 0)
        fleet.start("a", key=key)
        payload = Payload()
        fleet.meet("a", Order(payload), key)
        fleet.wait(Answer, 1)
        fleet.say("a", Finished(key))
        held.append(weakref.ref(payload))
        del payload
        fleet.sent.clear()
    gc.collect()
    assert [one() for one in held] == [None] * 3
    assert [
        (run.progress, run.last_message, run.members) for run in fleet.rendezvous.runs.values()
    ] == [({}, {}, ("a",))] * 3
    assert fleet.controller.forgotten == [(0, 0), (1, 0), (2, 0)]


def test_a_message_for_a_run_that_has_ended_is_answered_with_an_abort(fleet: Fleet) -> None:
    """Its progress changes nothing, and its worker does not wait forever."""
    fleet.join("a")
    run = fleet.start("a")
    fleet.say("a", Finished(KEY))
    fleet.sent.clear()
    fleet.say("a", ReportProgress(KEY, made_progress()))
    fleet.meet("a", Order())
    assert [(worker, type(message)) for worker, message in fleet.sent] == [
        ("a", AbortRun),
        ("a", AbortRun),
    ]
    assert run.progress == {}


def test_a_rerun_that_was_ended_before_it_began_is_an_error_of_its_worker(fleet: Fleet) -> None:
    """Only the lead runs its test again, and once; xdist's main loop, which receives the message, continues."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    for worker in ("b", "a", "a"):
        fleet.say(worker, Again((4, 1)))
        text = fleet.errors(1)[worker]
        assert (
            text
            == "run (4, 1), waiting for workers: worker b sent Again, which is not allowed in this state (internal error)"
        )
    assert fleet.rendezvous.runs[4, 1].ended


def test_what_a_dead_worker_sent_last_starts_nothing(fleet: Fleet) -> None:
    """Its arrival was in a queue when it went down."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.rendezvous.leave("a", "SIGKILL")
    fleet.say("a", Again((4, 1)))
    fleet.say("a", Arrive((5, 0)))
    assert list(fleet.rendezvous.runs) == [KEY]


def test_the_first_meeting_of_a_session_has_a_timeout(fleet: Fleet) -> None:
    """Nothing has been answered by then."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.meet("a", SetUp())
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    assert set(fleet.errors(2).values()) == {"worker b did not set up within 300 s"}


def test_the_watch_kills_a_worker_that_stays_silent(fleet: Fleet) -> None:
    """Also when its run has ended."""
    killed = threading.Event()
    fleet.rendezvous._kill = lambda worker: killed.set()
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.meet("a", Order())
    fleet.meet("b", Order())
    fleet.wait(Answer, 2)
    fleet.meet("a", Prepare())
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.errors(2)
    fleet.say("a", Finished(KEY))
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    assert killed.wait(10)


def test_the_watch_gives_up_a_run_whose_time_is_over(fleet: Fleet) -> None:
    """Once a second, in a thread of its own."""
    fleet.drive("a", "b")
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    assert set(fleet.errors(2).values()) == {"a, b sent no message for 60 s while driving load"}
