"""A worker's connection to the controller: messages out, an inbox, and the meetings at which all workers wait for each other.

Used on every worker, in the thread that drives load; the body of a live test sends its commands from a second thread. A message is
``(name, key, payload)``; ``key`` is ``(item, attempt)``, and messages with the key of another attempt are dropped.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from pytest_loadtest.errors import BrokenRun, NoData, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.messages import WorkloadAssignment
    from pytest_loadtest.schedule.changes import Change

FILE_PART = 1 << 20
"""Bytes of a sample file in one message: large enough that messages cost little, small enough that others get through in between."""

Phase = tuple[str, str]  # names of the workload and the phase
Key = tuple[int, int]
Message = tuple[str, Key | None, Any]


class Released(Exception):
    """This worker is no longer needed in the run: the lead never started it, or it has ended."""


class Link:
    """One worker's connection for one run.

    :param send: sends a message to the controller. :param inbox: messages of the controller.
    """

    def __init__(self, send: Callable[[Message], None], inbox: queue.SimpleQueue[Message], key: Key) -> None:
        self._send, self._inbox, self.key = send, inbox, key
        self._ended: set[Phase] = set()
        self._changes: dict[Phase, list[Change]] = {}
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """The controller's answers to commands of the test's body."""
        self.measured_since: int | None = None
        """The instant at which the first message of the measured phase is due, ns; None until it is known."""
        self.assignments: Sequence[WorkloadAssignment] = ()
        """The worker's shares, one for each workload; empty until the controller has sent them."""
        self.aborted = False
        """True once the profile's ``abort`` section has ended a workload."""
        self.before_cleanup: Callable[[], None] = lambda: None
        """Called on the lead after all clients are closed and before anything of the run is deleted."""

    def meet(self, name: str, payload: Any = None, *, idle: Callable[[], None] | None = None) -> Any:
        """Wait until every worker of the run has reached the meeting; return the controller's answer.

        :param idle: called repeatedly while waiting, so that drivers can keep their connections alive.
        :raises BrokenRun, UsageError: the run was given up. :raises Released: it ended without this worker.
        """
        self._send(("meet", self.key, (name, payload)))
        while True:  # no deadline here: the controller has its own, and its end arrives as "closed"
            try:
                message = self._inbox.get(timeout=1.0 if idle is None else 0.02)  # short, so that Ctrl-C is handled
            except queue.Empty:
                if idle is not None:
                    idle()
                continue
            received, arg = self._handle(message)
            if received == "pass" and arg[0] == name:
                return arg[1]

    def process_messages(self) -> None:
        """Handle the messages that have arrived, without waiting.

        :raises BrokenRun, UsageError: the run was given up. :raises Released: it ended without this worker.
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
        self._send(("command", self.key, (kind, argument)))

    def send_file(self, file: Path, target: Path) -> None:
        """Send a sample file to the controller, see :meth:`send_parts`."""
        with file.open("rb") as stream:
            self.send_parts(stream, target)
        self.process_messages()

    def send_parts(self, stream: BinaryIO, target: Path) -> None:
        """Send the content of a file to the controller in parts. The channel takes no more than it can carry, so memory is bounded."""
        part = stream.read(FILE_PART)
        while part:
            following = stream.read(FILE_PART)
            self._send(("samples", self.key, (target, part, not following)))
            part = following

    def keep_waiting(self) -> None:
        """Tell the controller that this worker is still storing its samples."""
        self._send(("busy", self.key, None))

    def report(self, progress: Progress) -> None:
        """Send this worker's progress in the phase."""
        self._send(("progress", self.key, progress))

    def fail(self, error: BaseException) -> None:
        """Report that this worker cannot continue; the controller aborts the run on the others."""
        self._send(("failed", self.key, portable(error)))

    def _handle(self, message: Message) -> tuple[str, Any]:
        name, key, arg = message
        if name == "closed":
            raise NoData("the controller went away")
        if key is not None and key != self.key:
            return "", None
        if name == "abort":
            raise arg
        if name == "release":
            raise Released
        if name == "end":
            self._ended.add(arg)
        elif name == "change":
            self._changes.setdefault(arg[0], []).append(arg[1])
            self.aborted = self.aborted or arg[1].aborted is not None
        elif name == "answer":
            self.answers.put(arg)
        return name, arg


class PhaseControl:
    """The connection of one workload's engine while a phase runs; an engine's ``Control``."""

    def __init__(self, link: Link, phase: Phase) -> None:
        self._link, self._phase = link, phase

    def ended(self) -> bool:
        return self._link.ended(self._phase)

    def changes(self) -> Sequence[Change]:
        return self._link.changes(self._phase)

    def report(self, progress: Progress) -> None:
        self._link.report(replace(progress, workload=self._phase[0]))


def portable(error: BaseException) -> Exception:
    """Return the error as one that can be pickled, and that does not blame the target without evidence."""
    if isinstance(error, (BrokenRun, UsageError)):
        return error
    if isinstance(error, KeyboardInterrupt):
        return NoData("interrupted")
    return NoData(f"{type(error).__name__}: {error}")
