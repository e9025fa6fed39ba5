"""The controller's shell around the runs of a session: one lock, the threads that find answers, and
the watch.

A run is a state machine (:mod:`~pytest_loadtest.fleet.transitions`), whose states follow each other
like this::

    Gathering ──▶ Working ──▶ Meeting ──▶ Answering ──▶ Working …      between two steps
                                          │   └───▶ DrivingLoad ──▶ Working …   a phase of load
                                          └───────▶ Concluded ──▶ Ended         it has results
    Gathering ──▶ Ended; each of the others ──▶ GivenUp ──▶ Ended               it cannot continue

Messages of workers arrive through :meth:`Rendezvous.receive`, in the controller's process and from
any thread (local fleet: the thread that drives load; xdist: execnet's receivers and the main loop);
one lock guards all state. The run controller's slow answers are found in threads of their own, so
that no event loop blocks. Every worker of a run that cannot continue gets the error: within a
second of it, or after the timeouts of the states.
"""

from __future__ import annotations

import threading
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.fleet.host_clocks import INTERVAL, HostClocks
from pytest_loadtest.fleet.link import portable
from pytest_loadtest.fleet.messages import (
    Again,
    Arrive,
    ChangeLoad,
    Command,
    CommandAnswer,
    ControllerMessage,
    Key,
    Meet,
    RunMessage,
    RunStep,
    StepAnswer,
)
from pytest_loadtest.fleet.run_events import (
    Answered,
    AnswerFailed,
    CarryOut,
    Conclude,
    Effect,
    Event,
    FindAnswers,
    Gather,
    GiveUp,
    Kill,
    NoteEnded,
    NoteGivenUp,
    Send,
    ShowProgress,
    StartAgain,
    Superseded,
    Tick,
    WorkerLost,
)
from pytest_loadtest.fleet.run_states import Gathering, Run
from pytest_loadtest.fleet.transitions import handle_event
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_loadtest.fleet.drain import Drain
    from pytest_loadtest.schedule.changes import Change


@record
class StepAnswers:
    """The controller's answers to a step.

    :param by_rank: one for each member.
    :param drains: of the phases that begin, by workload.
    """

    by_rank: tuple[StepAnswer, ...]
    drains: Mapping[str, Drain] = field(default_factory=dict)


class RunControl(Protocol):
    """The callbacks of a rendezvous, described in
    :class:`~pytest_loadtest.fleet.run_controller.RunController`.
    """

    clocks: HostClocks | None

    def answer(self, run: Run, brought: Sequence[RunStep]) -> StepAnswers: ...

    def check(self, run: Run) -> None: ...

    def progressed(self, run: Run, workload: str) -> None: ...

    def command(self, run: Run, kind: str, argument: Any) -> Any: ...

    def gave_up(self, run: Run, error: Exception) -> None: ...

    def ended(self, run: Run) -> None: ...


class Rendezvous:
    """Brings workers together for one run after another.

    :param controller: answers steps and commands.
    :param send: sends a message to a worker; must not block.
    :param clock: ns.
    :param stopping: returns the reason why no further run may start, or None.
    :param kill: ends a worker that no longer answers.
    """

    def __init__(
        self,
        controller: RunControl,
        send: Callable[[str, ControllerMessage], None],
        clock: Callable[[], int],
        stopping: Callable[[], str | None],
        kill: Callable[[str], None] = lambda worker: None,
    ) -> None:
        self.lock = threading.RLock()
        self._run_controller = controller
        self._send = send
        self._clock = clock
        self._stopping = stopping
        self._kill = kill
        self._workers: list[str] = []
        self.runs: dict[Key, Run] = {}
        self._closed = threading.Event()
        self._watching = False
        # By worker that may answer no more: when it is killed, ns of the clock.
        self._doubted: dict[str, int] = {}

    # --- workers join and leave

    def join(self, worker: str) -> None:
        """Add a worker of the session."""
        with self.lock:
            self._workers.append(worker)

    def leave(self, worker: str, why: str) -> None:
        """Remove a worker that is gone, and abort the runs that need it."""
        with self.lock:
            self._doubted.pop(worker, None)
            if worker in self._workers:
                self._workers.remove(worker)
            for run in list(self.runs.values()):
                self._handle(run, WorkerLost(why), worker)

    def gather(self) -> None:
        """Start the runs that waited only for a worker which is gone."""
        with self.lock:
            for run in list(self.runs.values()):
                self._gather(run)

    # --- messages

    def receive(self, worker: str, message: RunMessage) -> None:
        """Handle one message of a worker; from any thread."""
        with self.lock:
            self._doubted.pop(worker, None)
            if isinstance(message, Arrive | Again) and worker not in self._workers:
                # These take a queue, in which the end of their worker has overtaken them. It has
                # no part in any run.
                return
            if isinstance(message, Again):
                self._start_again(message, worker)
                return
            run = self.runs.setdefault(message.key, Run(message.key))
            self._handle(run, message, worker)
            if isinstance(message, Arrive):
                self._gather(run)
            if isinstance(message, Meet):
                self._start_watches()

    def _gather(self, run: Run) -> None:
        stopping = isinstance(run.state, Gathering) and self._stopping() is not None
        self._handle(run, Gather(tuple(self._workers), stopping=stopping))

    def _start_again(self, message: Again, worker: str) -> None:
        """Start a rerun with the members that are left; a worker that replaced one of them has
        passed this test already.
        """
        index, attempt = message.key
        run = self.runs.setdefault(message.key, Run(message.key))
        before = self.runs.get((index, attempt - 1))
        if before is None or before.lead != worker or not isinstance(run.state, Gathering):
            # It has no row: the lead alone runs its test again, and once.
            self._handle(run, message, worker)
            return
        members = tuple(member for member in self._workers if member in before.members)
        self._handle(before, Superseded())
        self._handle(run, StartAgain(members))

    def change(self, run: Run, workload: str, phase: str, change: Change) -> None:
        """Send a change to all workers of the run, to be applied by all at one instant."""
        with self.lock:
            self._carry_out(run, run.send_all(ChangeLoad(run.key, workload, phase, change)))

    def conclude(self, run: Run) -> bool:
        """Note that the run has been judged; return whether it has results, which is False if it
        was given up meanwhile.
        """
        with self.lock:
            self._handle(run, Conclude())
            return run.concluded

    def abort(self, run: Run, error: Exception) -> None:
        """Give the run up, unless it has its results.

        Only the first error counts: later ones are its consequences.
        """
        with self.lock:
            self._handle(run, GiveUp(portable(error)))

    def abort_all(self, error: Exception) -> None:
        """Give up every run that has not ended."""
        with self.lock:
            for run in list(self.runs.values()):
                self.abort(run, error)

    def close(self) -> None:
        """Give up what still runs, at the end of the session."""
        self.abort_all(NoData("the session ends"))
        self._closed.set()

    # --- effects

    def _handle(self, run: Run, event: Event, worker: str = "") -> None:
        self._carry_out(run, handle_event(run, event, self._clock(), worker))

    def _carry_out(self, run: Run, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(worker, message):
                    self._send(worker, message)
                case FindAnswers(brought):
                    # A daemon, so that Ctrl-C does not wait for a broker that is starting: its
                    # watchdog stops it when this process ends.
                    name = f"loadtest-{type(brought[0]).__name__}"
                    threading.Thread(
                        target=self._find_answers, args=(run, brought), name=name, daemon=True
                    ).start()
                case ShowProgress(workload):
                    self._run_controller.progressed(run, workload)
                case CarryOut(worker, command):
                    self._command(run, worker, command)
                case NoteGivenUp(error):
                    self._run_controller.gave_up(run, error)
                case NoteEnded():
                    self._run_controller.ended(run)
                case Kill(worker, after):
                    self._doubted[worker] = self._clock() + after
                    self._kill_silent()
                case _:
                    assert_never(effect)

    def _find_answers(self, run: Run, brought: Sequence[RunStep]) -> None:
        event: Event
        try:
            answers = self._run_controller.answer(run, brought)
            event = Answered(answers.by_rank, answers.drains)
        # Of any kind, as pytest.skip() in a user's hook too: the workers wait for an answer, and
        # no timeout gives up the wait for it.
        except BaseException as error:
            event = AnswerFailed(portable(error))
        with self.lock:
            self._handle(run, event)

    def _command(self, run: Run, worker: str, command: Command) -> None:
        try:
            answer = self._run_controller.command(run, command.kind, command.argument)
        except Exception as error:  # the body waits for an answer
            answer = portable(error)
        if callable(answer):
            name = f"loadtest-{command.kind}"
            threading.Thread(
                target=self._answer_command, args=(run, worker, answer), name=name, daemon=True
            ).start()
        else:
            self._send(worker, CommandAnswer(run.key, answer))

    def _answer_command(self, run: Run, worker: str, work: Callable[[], Any]) -> None:
        try:
            answer = work()
        except UsageError as error:
            answer = portable(error)
        except Exception as error:  # the abort reaches the body through its worker
            self.abort(run, error)
            return
        with self.lock:
            self._send(worker, CommandAnswer(run.key, answer))

    # --- the watches

    def _kill_silent(self) -> None:
        """Kill the workers whose time for a message is over."""
        for worker, deadline in tuple(self._doubted.items()):
            if self._clock() >= deadline:
                del self._doubted[worker]
                self._kill(worker)

    def _start_watches(self) -> None:
        if self._watching:
            return
        self._watching = True
        checks = [("watch", 1.0, self._check)]
        if self._run_controller.clocks is not None:
            # A thread of its own: a container engine may take long to answer, and times are
            # exchanged meanwhile.
            checks.append(("clocks", INTERVAL, self._ask_clocks))
        for name, interval, check in checks:
            threading.Thread(
                target=self._watch_runs,
                args=(interval, check),
                name=f"loadtest-{name}",
                daemon=True,
            ).start()

    def _watch_runs(self, interval: float, check: Callable[[Run], None]) -> None:
        while not self._closed.wait(interval):
            with self.lock:
                self._kill_silent()
                runs = [run for run in self.runs.values() if run.continues]
            for run in runs:
                try:
                    check(run)
                except Exception as error:  # of any kind: the workers must get it
                    self.abort(run, error)

    def _check(self, run: Run) -> None:
        self._run_controller.check(run)
        self.tick(run)

    def _ask_clocks(self, run: Run) -> None:
        clocks = self._run_controller.clocks
        if clocks is not None and run.drains:
            clocks.ask_under_load()

    def tick(self, run: Run) -> None:
        """Give the run up if one of its timeouts is over."""
        with self.lock:
            self._handle(run, Tick())
