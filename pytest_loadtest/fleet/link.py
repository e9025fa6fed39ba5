"""A worker's connection to the controller: messages out, an inbox, and the meetings of a run.

Used on every worker, in the thread that drives load; the body of a live test sends its commands
from a second thread. Messages about another run or attempt are dropped. What a worker may receive:

=====================  =========================================================================
while it               messages
=====================  =========================================================================
waits at a meeting     ``Answer`` to this step; what else it gets while it works
works or drives load   ``EndPhase``, ``ChangeLoad``, ``CommandAnswer``: kept until they are read
in any state           ``AbortRun``, ``Release``, ``SessionClosed``: raised
=====================  =========================================================================

An answer to a step at whose meeting the worker does not wait is an error.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, assert_never

from pytest_loadtest import errors
from pytest_loadtest.errors import BrokenRun, NoData, UsageError, WorkerError
from pytest_loadtest.fleet.messages import (
    AbortRun,
    Answer,
    ChangeLoad,
    Command,
    CommandAnswer,
    ControllerMessage,
    EndPhase,
    Failed,
    Key,
    Meet,
    ReadClock,
    Release,
    ReportProgress,
    RunStep,
    SamplePart,
    SessionClosed,
    StepAnswer,
    StoresSamples,
    TakeRole,
    WorkerMessage,
    WorkloadAssignment,
)
from pytest_loadtest.fleet.service_request import STOP_SERVICES

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.schedule.changes import Change

FILE_PART = 1 << 20
"""Bytes of a sample file in one message: large enough that messages cost little, small enough that
others get through in between.
"""

Phase = tuple[str, str]  # names of the workload and the phase
A = TypeVar("A", bound="StepAnswer")


class Released(Exception):
    """This worker is no longer needed in the run: the lead never started it, or it has ended."""


class Link:
    """One worker's connection for one run.

    :param send: sends a message to the controller.
    :param inbox: messages of the controller.
    """

    def __init__(
        self,
        send: Callable[[WorkerMessage], None],
        inbox: queue.SimpleQueue[ControllerMessage],
        key: Key,
    ) -> None:
        self._send = send
        self._inbox = inbox
        self.key = key
        self._waits_for: type[RunStep] | None = None
        self._ended: set[Phase] = set()
        self._changes: dict[Phase, list[Change]] = {}
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """The controller's answers to commands of the test's body."""
        self.measured_since: int | None = None
        """The instant at which the first measured message is due, ns; None until it is known."""
        self.assignments: Sequence[WorkloadAssignment] = ()
        """The worker's shares, one for each workload; empty until the controller has sent them."""
        self.aborted = False
        """True once the profile's ``abort`` section has ended a workload."""
        self.before_cleanup: Callable[[], None] = lambda: None
        """Called on the lead when all clients are closed, before anything of the run is deleted."""

    def meet(self, step: RunStep, answer: type[A], *, idle: Callable[[], None] | None = None) -> A:
        """Wait until every worker of the run has reached the meeting of the step; return the
        controller's answer.

        :param answer: the class of the answer.
        :param idle: called repeatedly while waiting, so that drivers can keep their connections
            alive.
        :raises BrokenRun, UsageError: the run was given up.
        :raises Released: it ended without this worker.
        """
        self._waits_for = type(step)
        self._send(Meet(self.key, step))
        while (
            True
        ):  # no deadline here: the controller has its own, and its end arrives as SessionClosed
            try:
                message = self._inbox.get(
                    timeout=1.0 if idle is None else 0.02
                )  # short, so that Ctrl-C is handled
            except queue.Empty:
                if idle is not None:
                    idle()
                continue
            answered = self._handle(message)
            if answered is not None:
                assert isinstance(answered, answer), f"{answered} is no answer to {step}"
                return answered

    def process_messages(self) -> None:
        """Handle the messages that have arrived, without waiting.

        :raises BrokenRun, UsageError: the run was given up.
        :raises Released: it ended without this worker.
        """
        while not self._inbox.empty():
            self._handle(self._inbox.get())

    def phase_control(self, workload: str, phase: str) -> PhaseControl:
        """Return the engine's view of this connection for one phase of one workload."""
        return PhaseControl(self, (workload, phase))

    def ended(self, phase: Phase) -> bool:
        """Return whether the controller has ended the phase."""
        self.process_messages()
        return phase in self._ended

    def changes(self, phase: Phase) -> Sequence[Change]:
        """Return the changes of the phase that arrived since the last call."""
        return self._changes.pop(phase, ())

    def command(self, kind: str, argument: Any = None) -> None:
        """Send a command of the test's body; the answer arrives in :attr:`answers`."""
        self._send(Command(self.key, kind, argument))

    def send_file(self, file: Path, target: Path) -> None:
        """Send a sample file to the controller, see :meth:`send_parts`."""
        with file.open("rb") as stream:
            self.send_parts(stream, target)
        self.process_messages()

    def send_parts(self, stream: BinaryIO, target: Path) -> None:
        """Send the content of a file to the controller in parts.

        The channel takes no more than it can carry, so memory is bounded.
        """
        part = stream.read(FILE_PART)
        while part:
            following = stream.read(FILE_PART)
            self._send(SamplePart(self.key, target, part, last=not following))
            part = following

    def stop_services(self, seconds: float) -> None:
        """Let the controller stop the services of the run, whatever became of the run.

        Return when they have ended, after so many seconds at the latest. Nothing else is read from
        this connection any more.
        """
        self.command(STOP_SERVICES)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                match self._inbox.get(timeout=min(left, 1.0)):
                    case SessionClosed():
                        return
                    case CommandAnswer(self.key, answer) if answer == STOP_SERVICES:
                        return

    def keep_waiting(self) -> None:
        """Tell the controller that this worker is still storing its samples."""
        self._send(StoresSamples(self.key))

    def report(self, progress: Progress) -> None:
        """Send this worker's progress in the phase."""
        self._send(ReportProgress(self.key, progress))

    def fail(self, error: BaseException) -> None:
        """Report that this worker cannot continue; the controller aborts the run on the others."""
        self._send(Failed(self.key, portable(error)))

    def _handle(self, message: ControllerMessage) -> StepAnswer | None:
        """Handle a message; return the answer if it has one to the step at whose meeting this
        worker waits.
        """
        if isinstance(message, SessionClosed):
            raise NoData("the controller went away")
        if isinstance(message, ReadClock) or message.key != self.key:
            return None
        match message:
            case AbortRun(_, error):
                raise error
            case Release():
                raise Released
            case Answer(_, step, answer):
                self._check_answer(step)
                return answer
            case EndPhase(_, workload, phase):
                self._ended.add((workload, phase))
            case ChangeLoad(_, workload, phase, change):
                self._changes.setdefault((workload, phase), []).append(change)
                self.aborted = self.aborted or change.aborted is not None
            case CommandAnswer(_, answer):
                self.answers.put(answer)
            case TakeRole():
                raise WorkerError(
                    f"the controller gave a second role in run {self.key} (internal error)"
                )
            case _:
                assert_never(message)
        return None

    def _check_answer(self, step: type[RunStep]) -> None:
        if step is not self._waits_for:
            waits = "no step" if self._waits_for is None else self._waits_for.__name__
            raise WorkerError(
                f"an answer to {step.__name__} while waiting for {waits} (internal error)"
            )
        self._waits_for = None


class PhaseControl:
    """The connection of one workload's engine while a phase runs; an engine's ``Control``."""

    def __init__(self, link: Link, phase: Phase) -> None:
        self._link = link
        self._phase = phase

    def ended(self) -> bool:
        return self._link.ended(self._phase)

    def changes(self) -> Sequence[Change]:
        return self._link.changes(self._phase)

    def report(self, progress: Progress) -> None:
        self._link.report(replace(progress, workload=self._phase[0]))


def portable(error: BaseException) -> Exception:
    """Return the error as one that can be pickled, and blames no target without evidence."""
    if isinstance(error, (BrokenRun, UsageError)):
        # A class of a driver may have other arguments than its text, or not exist elsewhere.
        own: type[Exception] = next(
            kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__
        )
        return error if own is type(error) else own(str(error))
    if isinstance(error, KeyboardInterrupt):
        return NoData("interrupted")
    return NoData(f"{type(error).__name__}: {error}")
