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

    from pytest_loadtest.fleet.host_clocks import HostClocks
    from pytest_loadtest.fleet.link import Message

KEY = (4, 0)


class Answers:
    """A run controller whose meetings answer with rank and payload."""

    def __init__(self) -> None:
        self.gone: Exception | None = None
        self.clocks: HostClocks | None = None
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
    """A rendezvous, with the messages that it sent."""

    def __init__(self) -> None:
        self.clock, self.controller = FakeClock(), Answers()
        self.stop: str | None = None
        self.sent: list[tuple[str, Message]] = []
        self.killed: list[str] = []
        self._came = threading.Condition()
        self.rendezvous = Rendezvous(self.controller, self._send, self.clock, lambda: self.stop, self.killed.append)

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
        """Return the receivers and payloads of the messages of this name."""
        return [(worker, message[2]) for worker, message in self.sent if message[0] == name]

    def wait(self, name: str, n: int) -> list[tuple[str, Any]]:
        """Return them once there are ``n``."""
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


def test_a_run_starts_when_all_workers_have_arrived(fleet: Fleet) -> None:
    """The first worker of the session leads, in whatever order they arrive."""
    fleet.join("a", "b", "c")
    fleet.start("c", "b")
    assert not fleet.sent
    run = fleet.start("a")
    assert run.members == ["a", "b", "c"]
    assert fleet.got("role") == [("a", True), ("b", False), ("c", False)]


def test_a_meeting_ends_when_all_are_there_with_answers_by_rank(fleet: Fleet) -> None:
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.say("b", "meet", ("order", "from b"))
    assert not fleet.got("pass")
    fleet.say("a", "meet", ("order", "from a"))
    assert fleet.wait("pass", 2) == [("a", ("order", (0, "from a"))), ("b", ("order", (1, "from b")))]


@pytest.mark.parametrize(("name", "kind", "text"), [("fails", TargetError, "no broker"), ("breaks", NoData, "ValueError: odd")])
def test_an_error_at_a_meeting_reaches_every_worker(fleet: Fleet, name: str, kind: type[Exception], text: str) -> None:
    """As the kind of error that it is."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    for worker in ("a", "b"):
        fleet.say(worker, "meet", (name, None))
    aborts = fleet.wait("abort", 2)
    assert [worker for worker, _ in aborts] == ["a", "b"]
    assert all(type(error) is kind and str(error) == text for _, error in aborts)
    assert len(fleet.controller.broken) == 1


def test_the_first_error_of_a_run_is_its_cause(fleet: Fleet) -> None:
    """It names its worker and aborts the run once; a worker that reaches a meeting later gets it at once."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("b", "failed", NoData("disk full"))
    fleet.say("a", "failed", NoData("aborted"))
    assert str(run.error) == "worker b: disk full"
    assert len(fleet.got("abort")) == 2
    fleet.say("a", "meet", ("order", None))
    assert len(fleet.got("abort")) == 3


def test_a_member_that_dies_aborts_the_run(fleet: Fleet) -> None:
    """The error names it; the others are released when the lead has finished."""
    fleet.join("a", "b", "c")
    run = fleet.start("a", "b", "c")
    fleet.rendezvous.leave("b", "SIGKILL")
    assert isinstance(run.error, WorkerError)
    assert str(run.error) == "load worker b went down: SIGKILL"
    assert not fleet.got("release")
    fleet.say("a", "finished")
    assert {worker for worker, _ in fleet.got("release")} >= {"a", "c"}


def test_the_error_of_an_ended_run_holds_no_traceback(fleet: Fleet) -> None:
    """Its frames would keep samples and open files until the session ends."""
    fleet.join("a")
    run = fleet.start("a")
    try:
        raise NoData("broken")
    except NoData as error:
        fleet.rendezvous.abort(run, error)
    fleet.say("a", "finished")
    assert str(run.error) == "broken"
    assert run.error is not None and run.error.__traceback__ is None


def test_a_lead_that_dies_releases_the_others(fleet: Fleet) -> None:
    """No worker is left to report the end of the item."""
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
    """A run whose last missing worker is gone for good starts without it, at the controller's next ``gather``."""
    fleet.join("a", "b", "c")
    run = fleet.start("a", "b")
    fleet.rendezvous.leave("c", "maximum of restarts")
    assert not run.members
    fleet.rendezvous.gather()
    assert run.members == ["a", "b"]


def test_a_rerun_consists_of_the_members_that_are_left(fleet: Fleet) -> None:
    """A replacement that has passed the item is not waited for; the lead remains the lead."""
    fleet.join("a", "b", "c")
    fleet.start("a", "b", "c")
    fleet.rendezvous.leave("b", "SIGKILL")
    fleet.join("b2")
    fleet.say("b2", "arrive")
    fleet.say("a", "again", key=(4, 1))
    run = fleet.rendezvous.runs[4, 1]
    assert run.members == ["a", "c"]
    assert fleet.got("role")[-2:] == [("a", True), ("c", False)]


def test_a_run_with_results_is_not_given_up(fleet: Fleet) -> None:
    """When a member, or the lead in its body, goes down, or the session is interrupted; a lead that is gone still releases the others."""
    fleet.join("a", "b", "c")
    run = fleet.start("a", "b", "c")
    fleet.controller.begin = lambda run: setattr(run, "concluded", True)
    for worker in ("a", "b", "c"):
        fleet.say(worker, "meet", ("begins", None))
    fleet.wait("pass", 3)
    fleet.rendezvous.leave("c", "SIGKILL")
    fleet.rendezvous.abort_all(NoData("interrupted"))
    assert not run.ended
    fleet.rendezvous.leave("a", "SIGKILL")
    assert fleet.got("release")[-3:] == [("a", None), ("b", None), ("c", None)]
    assert (fleet.controller.broken, fleet.got("abort"), run.ended) == ([], [], True)


def test_an_answer_that_fails_gives_up_a_run_with_results(fleet: Fleet) -> None:
    """Its workers wait for that answer."""
    fleet.join("a")
    run = fleet.start("a")
    run.concluded = True
    fleet.say("a", "meet", ("breaks", None))
    assert [str(error) for _, error in fleet.wait("abort", 1)] == ["ValueError: odd"]
    assert len(fleet.controller.broken) == 1


def test_the_run_before_a_rerun_has_ended(fleet: Fleet) -> None:
    """With its results: it is not given up when its workers end, hours later."""
    fleet.join("gw0", "gw1")
    first = fleet.start("gw0", "gw1")
    fleet.say("gw0", "again", key=(4, 1))
    assert first.ended
    fleet.say("gw0", "finished", key=(4, 1))
    for worker in ("gw0", "gw1"):
        fleet.rendezvous.leave(worker, "it ended")
    fleet.rendezvous.close()
    assert fleet.controller.broken == []


def test_no_run_starts_when_the_session_stops(fleet: Fleet) -> None:
    """After -x or --maxfail workers that arrive are released without a role."""
    fleet.join("a", "b")
    fleet.stop = "stopping after 1 failures"
    fleet.start("a", "b")
    assert not fleet.got("role")
    assert {worker for worker, _ in fleet.got("release")} == {"a", "b"}


def test_the_end_of_a_drain_is_sent_to_every_member_once(fleet: Fleet) -> None:
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    run.drains[""] = Drain("measure", 2, 1, 30 * SECOND)
    for _ in range(3):
        for worker in ("a", "b"):
            fleet.say(worker, "progress", made_progress(acked=5, received=5))
        fleet.clock.advance(SECOND)
    assert fleet.got("end") == [("a", ("", "measure")), ("b", ("", "measure"))]


def test_an_error_names_its_worker_once(fleet: Fleet) -> None:
    """Also if its text does so already."""
    for error, told in ((NoData("odd"), "worker a: odd"), (NoData("worker a could not write"), "worker a could not write")):
        key = (len(fleet.controller.broken) + 7, 0)
        fleet.say("a", "arrive", key=key)
        fleet.say("a", "failed", error, key=key)
        assert str(fleet.controller.broken[-1]) == told


def test_a_worker_that_waits_for_the_controller_is_not_silent(fleet: Fleet) -> None:
    """The time without messages counts from the controller's answer."""

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


def test_a_worker_that_sends_nothing_is_named_and_killed(fleet: Fleet) -> None:
    """Otherwise the next test would wait for it without limit."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    run.drains[""] = Drain("measure", 2, 1, 30 * SECOND)
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    fleet.say("a", "progress", made_progress(sending=True))
    with pytest.raises(WorkerError, match=r"^b sent no message for 60 s"):
        fleet.rendezvous._check_silence(run)
    assert fleet.killed == ["b"]
    assert "b sent no message" in str(run.error)


def test_a_worker_that_misses_a_meeting_is_an_error(fleet: Fleet) -> None:
    """The error names it."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("a", "meet", ("order", None))
    fleet.rendezvous._check_silence(run)
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    with pytest.raises(WorkerError, match=r"^b did not reach 'order' within 300 s"):
        fleet.rendezvous._check_silence(run)


def test_the_silence_of_members_counts_from_the_start_of_a_rerun(fleet: Fleet) -> None:
    """Only the lead has sent a message by then."""
    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.say("a", "again", key=(4, 1))
    run = fleet.rendezvous.runs[4, 1]
    fleet.rendezvous._check_silence(run)
    run.drains[""] = Drain("measure", 2, 1, 30 * SECOND)
    fleet.clock.advance((SILENCE_TIMEOUT + 1) * SECOND)
    with pytest.raises(WorkerError, match=r"^a, b sent no message for 60 s"):
        fleet.rendezvous._check_silence(run)


def test_paced_connections_prolong_the_timeout_of_a_meeting(fleet: Fleet) -> None:
    """By the time that the plan needs; then a missing worker is an error all the same."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    run.patience += 1000
    fleet.say("a", "meet", ("subscribed", None))
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    fleet.rendezvous._check_silence(run)
    fleet.clock.advance(1000 * SECOND)
    with pytest.raises(WorkerError, match=r"^b did not reach 'subscribed' within 1300 s"):
        fleet.rendezvous._check_silence(run)


def test_a_worker_that_stores_its_samples_prolongs_the_timeout_of_a_meeting(fleet: Fleet) -> None:
    """Each sign restarts it; without one the worker is missing."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("a", "meet", ("next 1", None))
    for _ in range(3):
        fleet.clock.advance((MEETING_TIMEOUT - 1) * SECOND)
        fleet.say("b", "busy")
        fleet.rendezvous._check_silence(run)
    fleet.clock.advance((MEETING_TIMEOUT + 1) * SECOND)
    with pytest.raises(WorkerError, match=r"^b did not reach 'next 1' within 300 s"):
        fleet.rendezvous._check_silence(run)


def test_the_body_of_a_live_test_may_prepare_for_long(fleet: Fleet) -> None:
    """The first meeting has no timeout before the lead is there; later meetings have one."""
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
    """It is checked every second during a run, in a thread of its own."""
    fleet.join("a")
    fleet.start("a")
    fleet.controller.gone = TargetError("exited with status 9")
    fleet.say("a", "meet", ("prepared", None))
    ((_, error),) = fleet.wait("abort", 1)
    assert str(error) == "exited with status 9"


def test_clocks_of_other_hosts_are_asked_while_load_runs_and_a_silent_host_aborts_the_run(fleet: Fleet) -> None:
    """Not between phases: then the run controller asks. A target whose engine does not answer does not delay them."""
    asked, released = threading.Event(), threading.Event()

    class Silent:
        def ask_under_load(self) -> None:
            asked.set()
            raise NoData("host h1 did not answer")

    fleet.controller.clocks = Silent()  # type: ignore[assignment]
    fleet.controller.check = lambda run: released.wait(10)  # type: ignore
    fleet.join("a")
    run = fleet.start("a")
    fleet.say("a", "meet", ("prepared", None))
    fleet.wait("pass", 1)
    assert not asked.is_set()
    with fleet.rendezvous.lock:
        run.drains[""] = Drain("measure", 1, 1, 0)
    ((_, error),) = fleet.wait("abort", 1)
    released.set()
    assert str(error) == "host h1 did not answer"


def test_a_change_is_sent_to_all_workers(fleet: Fleet) -> None:
    """With its workload and phase."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    change = Change(at=5, rate=10.0)
    fleet.rendezvous.change(run, "small", "measure", change)
    assert fleet.got("change") == [(worker, (("small", "measure"), change)) for worker in ("a", "b")]


def test_a_command_is_answered_to_its_worker(fleet: Fleet) -> None:
    """With its result or its error; the run continues."""
    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("a", "command", ("rate", 5))
    fleet.say("a", "command", ("wrong", None))
    (_, answer), (worker, error) = fleet.got("answer")
    assert (answer, worker, str(error)) == (5, "a", "cannot be")
    assert run.error is None


def test_a_slow_command_blocks_no_other_message(fleet: Fleet) -> None:
    """It runs in a thread of its own and is answered at its end."""
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


def test_a_usage_error_of_a_slow_command_does_not_end_the_run(fleet: Fleet) -> None:

    def restart() -> None:
        raise UsageError("not ours")

    fleet.join("a", "b")
    run = fleet.start("a", "b")
    fleet.say("a", "command", ("long", restart))
    ((worker, error),) = fleet.wait("answer", 1)
    assert (worker, str(error), run.error) == ("a", "not ours", None)


def test_any_other_error_of_a_slow_command_ends_the_run(fleet: Fleet) -> None:
    """All workers get it."""

    def restart() -> None:
        raise TargetError("did not come back")

    fleet.join("a", "b")
    fleet.start("a", "b")
    fleet.say("a", "command", ("long", restart))
    assert {worker: str(error) for worker, error in fleet.wait("abort", 2)} == {"a": "did not come back", "b": "did not come back"}
    assert [str(error) for error in fleet.controller.broken] == ["did not come back"]
    assert not fleet.got("answer")


class Payload:
    """A large object that a worker brings to a meeting."""


def test_a_run_that_has_ended_holds_no_payloads(fleet: Fleet) -> None:
    """A payload file of 1 MB, eight workers, three hundred tests: otherwise 2.4 GB are kept until the session ends."""
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


def test_a_message_for_a_run_that_has_ended_is_answered_with_an_abort(fleet: Fleet) -> None:
    """Its progress changes nothing, and its worker does not wait forever."""
    fleet.join("a")
    run = fleet.start("a")
    fleet.say("a", "finished")
    fleet.sent.clear()
    fleet.say("a", "progress", made_progress())
    fleet.say("a", "meet", ("order", None))
    assert [(worker, name) for worker, (name, *_) in fleet.sent] == [("a", "abort"), ("a", "abort")]
    assert run.progress == {}
