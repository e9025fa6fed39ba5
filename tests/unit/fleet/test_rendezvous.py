"""The controller's bookkeeping, without any transport: workers are names, messages are lists."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from builders.progress import made_progress

from pytest_loadtest.errors import NoData, TargetError, UsageError, WorkerError
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.rendezvous import MEETING_TIMEOUT, SILENCE_TIMEOUT, Rendezvous, Run
from pytest_loadtest.schedule.changes import Change
from pytest_loadtest.testing import FakeClock
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_loadtest.fleet.link import Message

KEY = (4, 0)


class Answers:
    """A conductor whose meetings answer with rank and payload."""

    def __init__(self) -> None:
        self.gone: Exception | None = None
        self.broken: list[Exception] = []
        self.begin: Callable[[Run], None] = lambda run: None

    def meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]:
        if name == "fails":
            raise TargetError("no broker")
        if name == "breaks":
            raise ValueError("odd")
        if name == "begins":
            self.begin(run)
        return list(enumerate(payloads))

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


class Fleet:
    """A coordinator and what it sent to whom."""

    def __init__(self) -> None:
        self.clock, self.controller = FakeClock(), Answers()
        self.stop: str | None = None
        self.sent: list[tuple[str, Message]] = []
        self._came = threading.Condition()
        self.rendezvous = Rendezvous(self.controller, self._send, self.clock, lambda: self.stop)

    def _send(self, worker: str, message: Message) -> None:
        with self._came:
            self.sent.append((worker, message))
            self._came.notify_all()

    def join(self, *workers: str) -> None:
        for worker in workers:
            self.rendezvous.join(worker)

    def say(self, worker: str, name: str, payload: Any = None, key: tuple[int, int] = KEY) -> None:
        self.rendezvous.receive(worker, (name, key, payload))

    def got(self, name: str) -> list[tuple[str, Any]]:
        """Who got this message, with what, since last asked for anything."""
        return [(worker, message[2]) for worker, message in self.sent if message[0] == name]

    def wait(self, name: str, n: int) -> list[tuple[str, Any]]:
        """The same, when there are ``n`` of them."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.got(name)) >= n, 10)
            return self.got(name)

    def start(self, *workers: str, key: tuple[int, int] = KEY) -> Run:
        for worker in workers:
            self.say(worker, "arrive", key=key)
        return self.rendezvous.runs[key]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    made = Fleet()
    yield made
    made.rendezvous.close()


def test_roles_when_all_are_there(fleet: Fleet) -> None:
    """The last to arrive starts the run; the first worker leads, in whatever order they come."""
    fleet.join("a", "b", "c")
    fleet.start("c", "b")
    assert not fleet.sent
    run = fleet.start("a")
    assert run.members == ["a", "b", "c"]
    assert fleet.got("role") == [("a", True), ("b", False), ("c", False)]


def test_meetings_answer_by_rank(fleet: Fleet) -> None:
    """Nobody passes before all are there; each gets the answer at its own rank."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.say("b", "meet", ("order", "from b"))
    assert not fleet.got("pass")
    fleet.say("a", "meet", ("order", "from a"))
    assert fleet.wait("pass", 2) == [("a", ("order", (0, "from a"))), ("b", ("order", (1, "from b")))]


@pytest.mark.parametrize(("name", "kind", "text"), [("fails", TargetError, "no broker"), ("breaks", NoData, "ValueError: odd")])
def test_a_meeting_that_fails_aborts_all(fleet: Fleet, name: str, kind: type[Exception], text: str) -> None:
    """What the conductor raises reaches every worker as the kind of error that it is."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    for worker in ("a", "b"):
        fleet.say(worker, "meet", (name, None))
    aborts = fleet.wait("abort", 2)
    assert [worker for worker, _ in aborts] == ["a", "b"]
    assert all(type(error) is kind and str(error) == text for _, error in aborts)
    assert len(fleet.controller.broken) == 1


def test_the_first_error_is_the_cause(fleet: Fleet) -> None:
    """One worker's failure names it and aborts the run once; who comes to a meeting later hears of it at once."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("b", "failed", NoData("disk full"))
    fleet.say("a", "failed", NoData("aborted"))
    assert str(run.error) == "worker b: disk full"
    assert len(fleet.got("abort")) == 2
    fleet.say("a", "meet", ("order", None))
    assert len(fleet.got("abort")) == 3


def test_a_member_that_dies_aborts_the_run(fleet: Fleet) -> None:
    """The error names it; when the lead is through, the others are released."""
    fleet.join("a", "b", "c")
    run = fleet.start("a", "b", "c")
    fleet.rendezvous.leave("b", "SIGKILL")
    assert isinstance(run.error, WorkerError)
    assert str(run.error) == "load worker b went down: SIGKILL"
    assert not fleet.got("release")
    fleet.say("a", "finished")
    assert {worker for worker, _ in fleet.got("release")} >= {"a", "c"}


def test_a_lead_that_dies_releases_the_others(fleet: Fleet) -> None:
    """Nobody is left to say that the item is over."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.rendezvous.leave("a", "SIGKILL")
    assert ("b", None) in fleet.got("release")


def test_a_replacement_waits_for_the_next_run(fleet: Fleet) -> None:
    """It is released from the run that began without it, and the next one waits for it."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.rendezvous.leave("b", "SIGKILL")
    fleet.join("b2")
    fleet.say("b2", "arrive")
    assert fleet.got("release") == [("b2", None)]
    fleet.say("a", "finished")
    fleet.start("a", key=(5, 0))
    fleet.rendezvous.gather()
    assert not fleet.rendezvous.runs[5, 0].members
    assert fleet.start("b2", key=(5, 0)).members == ["a", "b2"]


def test_a_worker_that_is_gone_is_not_waited_for(fleet: Fleet) -> None:
    """A run whose last missing worker went away for good starts without it, when the controller says gather."""
    fleet.join("a", "b", "c")
    run = fleet.start("a", "b")
    fleet.rendezvous.leave("c", "maximum of restarts")
    assert not run.members
    fleet.rendezvous.gather()
    assert run.members == ["a", "b"]


def test_a_rerun_calls_back_who_was_there(fleet: Fleet) -> None:
    """A replacement that passed the item by is not waited for; the lead keeps the lead."""
    fleet.join("a", "b", "c")
    fleet.start("a", "b", "c")
    fleet.rendezvous.leave("b", "SIGKILL")
    fleet.join("b2")
    fleet.say("b2", "arrive")
    fleet.say("a", "again", key=(4, 1))
    run = fleet.rendezvous.runs[4, 1]
    assert run.members == ["a", "c"]
    assert fleet.got("role")[-2:] == [("a", True), ("c", False)]


def test_no_run_starts_when_the_session_stops(fleet: Fleet) -> None:
    """After -x or --maxfail those who arrive are released without a role."""
    fleet.join("a", "b")
    fleet.stop = "stopping after 1 failures"
    fleet.start("a", "b")
    assert not fleet.got("role")
    assert {worker for worker, _ in fleet.got("release")} == {"a", "b"}


def test_progress_ends_the_phase_for_all(fleet: Fleet) -> None:
    """The end of the drain is told to every member, once."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    run.drains[""] = Drain("measure", 2, 1, 30 * SECOND)
    for _ in range(3):
        for worker in ("a", "b"):
            fleet.say(worker, "progress", made_progress(acked=5, received=5))
        fleet.clock.advance(SECOND)
    assert fleet.got("end") == [("a", ("", "measure")), ("b", ("", "measure"))]


def test_a_worker_is_named_once(fleet: Fleet) -> None:
    """By the coordinator, unless the error does so itself."""
    for error, told in ((NoData("odd"), "worker a: odd"), (NoData("worker a could not write"), "worker a could not write")):
        key = (len(fleet.controller.broken) + 7, 0)
        fleet.say("a", "arrive", key=key)
        fleet.say("a", "failed", error, key=key)
        assert str(fleet.controller.broken[-1]) == told


def test_waiting_for_the_controller_is_no_silence(fleet: Fleet) -> None:
    """Before a start line that took the controller long, workers have nothing to say; their silence counts from its answer on."""

    def begin(run: Run) -> None:
        fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)  # Spark starts
        run.drains[""] = Drain("measure", 2, 1, 30 * SECOND)
        fleet.rendezvous._check_silence(run)

    fleet.controller.begin = begin
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    for worker in ("a", "b"):
        fleet.say(worker, "meet", ("begins", None))
    fleet.wait("pass", 2)
    fleet.rendezvous._check_silence(run)
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    with pytest.raises(WorkerError, match=r"^a, b sent no message for 60 s"):
        fleet.rendezvous._check_silence(run)


def test_silence_is_an_error(fleet: Fleet) -> None:
    """A worker that says nothing while load runs, or does not come to a meeting, is named."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    run.drains[""] = Drain("measure", 2, 1, 30 * SECOND)
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    fleet.say("a", "progress", made_progress(sending=True))
    with pytest.raises(WorkerError, match=r"^b sent no message for 60 s"):
        fleet.rendezvous._check_silence(run)
    run.drains.clear()
    fleet.say("a", "meet", ("order", None))
    fleet.rendezvous._check_silence(run)
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    with pytest.raises(WorkerError, match=r"^b did not reach 'order' within 300 s"):
        fleet.rendezvous._check_silence(run)


def test_who_is_called_back_may_say_nothing_yet(fleet: Fleet) -> None:
    """Of a rerun, only the lead has said something when it begins: the others' silence counts from there on, as everybody's."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.say("a", "again", key=(4, 1))
    run = fleet.rendezvous.runs[4, 1]
    fleet.rendezvous._check_silence(run)
    run.drains[""] = Drain("measure", 2, 1, 30 * SECOND)
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    with pytest.raises(WorkerError, match=r"^a, b sent no message for 60 s"):
        fleet.rendezvous._check_silence(run)


def test_connections_at_a_rate_take_their_time(fleet: Fleet) -> None:
    """As much as the conductor says that the plan takes; then a worker that does not come is named all the same."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    run.patience += 1000
    fleet.say("a", "meet", ("subscribed", None))
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous._check_silence(run)
    fleet.clock.advance(1000 * SECOND)
    with pytest.raises(WorkerError, match=r"^b did not reach 'subscribed' within 1300 s"):
        fleet.rendezvous._check_silence(run)


def test_the_body_of_a_live_test_may_prepare_for_long(fleet: Fleet) -> None:
    """The others wait at the first meeting for as long as the lead's own test lets it take; from then on nobody is waited for so long."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("b", "meet", ("order", None))
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous._check_silence(run)
    fleet.say("a", "meet", ("order", None))
    assert len(fleet.wait("pass", 2)) == 2
    fleet.say("b", "meet", ("prepared", None))
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    with pytest.raises(WorkerError, match=r"^a did not reach 'prepared' within 300 s"):
        fleet.rendezvous._check_silence(run)


def test_a_target_that_is_gone_aborts_the_run(fleet: Fleet) -> None:
    """Looked at every second while a run is on, in a thread of its own."""
    fleet.join("a")
    fleet.start("a")
    fleet.controller.gone = TargetError("exited with status 9")
    fleet.say("a", "meet", ("prepared", None))
    ((_, error),) = fleet.wait("abort", 1)
    assert str(error) == "exited with status 9"


def test_a_change_is_told_to_all(fleet: Fleet) -> None:
    """Every worker hears of it, with its workload and phase."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    change = Change(at=5, rate=10.0)
    fleet.rendezvous.change(run, "small", "measure", change)
    assert fleet.got("change") == [(worker, (("small", "measure"), change)) for worker in ("a", "b")]


def test_a_command_is_answered_to_who_asked(fleet: Fleet) -> None:
    """What comes of it, or why it cannot be, goes back; the run goes on."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("a", "command", ("rate", 5))
    fleet.say("a", "command", ("wrong", None))
    (_, answer), (worker, error) = fleet.got("answer")
    assert (answer, worker, str(error)) == (5, "a", "cannot be")
    assert run.error is None


def test_a_command_that_takes_long_holds_nobody_up(fleet: Fleet) -> None:
    """It is worked out in a thread of its own, while workers report and are told to change; then it is answered."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    begun, end = threading.Event(), threading.Event()

    def restart() -> str:
        begun.set()
        assert end.wait(10)
        return "done"

    fleet.say("a", "command", ("long", restart))
    assert begun.wait(10)
    fleet.say("b", "progress", made_progress(acked=5))
    fleet.rendezvous.change(run, "", "measure", Change(at=5, rate=10.0))
    assert run.progress[""]["b"].acked == 5
    assert len(fleet.got("change")) == 2
    assert not fleet.got("answer")
    end.set()
    assert fleet.wait("answer", 1) == [("a", "done")]


def test_a_long_command_that_cannot_be(fleet: Fleet) -> None:
    """As with any other: who asked hears why, and the run goes on."""

    def restart() -> None:
        raise UsageError("not ours")

    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("a", "command", ("long", restart))
    ((worker, error),) = fleet.wait("answer", 1)
    assert (worker, str(error), run.error) == ("a", "not ours", None)


def test_a_long_command_that_loses_the_target_ends_the_run(fleet: Fleet) -> None:
    """All workers hear of it, and with them who asked."""

    def restart() -> None:
        raise TargetError("did not come back")

    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.say("a", "command", ("long", restart))
    assert {worker: str(error) for worker, error in fleet.wait("abort", 2)} == {"a": "did not come back", "b": "did not come back"}
    assert [str(error) for error in fleet.controller.broken] == ["did not come back"]
    assert not fleet.got("answer")


class Payload:
    """Something large that a worker brings to a meeting."""


def test_what_a_run_held_is_let_go_when_it_has_ended(fleet: Fleet) -> None:
    """A payload file of a megabyte, eight workers, three hundred tests: 2.4 GB were kept until the session ended."""
    fleet.join("a")
    held = []
    for number in range(3):
        run = fleet.start("a", key=(number, 0))
        parts = [Payload(), Payload()]
        run.state = parts[0]
        fleet.say("a", "meet", ("order", parts[1]), key=(number, 0))
        fleet.wait("pass", 1)
        fleet.say("a", "finished", key=(number, 0))
        held += map(weakref.ref, parts)
        parts.clear()
        fleet.sent.clear()
    gc.collect()
    assert [one() for one in held] == [None] * 6
    assert [(run.meetings, run.progress, run.members) for run in fleet.rendezvous.runs.values()] == [({}, {}, ["a"])] * 3


def test_a_worker_that_goes_on_with_a_run_that_has_ended_is_told(fleet: Fleet) -> None:
    """Its progress changes nothing, and it does not wait for an answer that never comes."""
    fleet.join("a")
    run = fleet.start("a")
    fleet.say("a", "finished")
    fleet.sent.clear()
    fleet.say("a", "progress", made_progress())
    fleet.say("a", "meet", ("order", None))
    assert [(worker, name) for worker, (name, *_) in fleet.sent] == [("a", "abort"), ("a", "abort")]
    assert run.progress == {}
