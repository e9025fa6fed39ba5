"""A worker's line to the controller: messages out, an inbox, and the meetings at which all workers wait for each other.

A message is ``(name, key, payload)``; ``key`` is ``(item, attempt)``, so that nothing of an earlier attempt is mistaken for this one's.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import BrokenRun, NoData, UsageError

if TYPE_CHECKING:
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.messages import WorkloadAssignment
    from pytest_loadtest.schedule.changes import Change

Phase = tuple[str, str]  # workload and phase
Key = tuple[int, int]
Message = tuple[str, Key | None, Any]


class Released(Exception):
    """This worker is no longer needed in the run: the lead never started it, or it has ended."""


class Link:
    """One worker's line for one run.

    :param send: puts a message on its way to the controller. :param inbox: what the controller sent.
    """

    def __init__(self, send: Callable[[Message], None], inbox: queue.SimpleQueue[Message], key: Key) -> None:
        self._send, self._inbox, self.key = send, inbox, key
        self._ended: set[Phase] = set()
        self._changes: dict[Phase, list[Change]] = {}
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.measured_since: int | None = None
        """When the first message of the measured phase is due, ns; None until that is known."""
        self.orders: Sequence[WorkloadAssignment] = ()
        """What this worker has to do, once it is told."""
        self.aborted = False
        """Whether a run of a workload was ended because it was lost."""
        self.look: Callable[[], None] = lambda: None
        """Called on the lead when all clients are closed and nothing of the run is deleted yet."""

    def meet(self, name: str, payload: Any = None, *, idle: Callable[[], None] | None = None) -> Any:
        """Wait until every worker of the run is here; return what the controller has for this one.

        :param idle: called again and again while waiting: a driver that keeps its connections alive.
        :raises BrokenRun, UsageError: the run was given up. :raises Released: it ended without this worker.
        """
        self._send(("meet", self.key, (name, payload)))
        while True:  # the controller has its own deadlines, and its end is heard as "closed"
            try:
                message = self._inbox.get(timeout=1.0 if idle is None else 0.02)  # short, so that Ctrl-C is heard
            except queue.Empty:
                if idle is not None:
                    idle()
                continue
            what, arg = self._take(message)
            if what == "pass" and arg[0] == name:
                return arg[1]

    def hear(self) -> None:
        """Take what the controller has said meanwhile.

        :raises BrokenRun, UsageError: the run was given up. :raises Released: it ended without this worker.
        """
        while not self._inbox.empty():
            self._take(self._inbox.get())

    def phase_control(self, workload: str, phase: str) -> PhaseControl:
        """The engine's line for one phase of one workload."""
        return PhaseControl(self, (workload, phase))

    def ended(self, phase: Phase) -> bool:
        """Whether the controller has ended the phase."""
        self.hear()
        return phase in self._ended

    def changes(self, phase: Phase) -> Sequence[Change]:
        """What is to change in the phase, each told once."""
        return self._changes.pop(phase, ())

    def command(self, kind: str, argument: Any = None) -> None:
        """The test's body wants something of the running load; what comes of it is in :attr:`answers`."""
        self._send(("command", self.key, (kind, argument)))

    def report(self, progress: Progress) -> None:
        """How the phase goes on this worker."""
        self._send(("progress", self.key, progress))

    def fail(self, error: BaseException) -> None:
        """This worker cannot go on; the controller tells the others."""
        self._send(("failed", self.key, portable(error)))

    def _take(self, message: Message) -> tuple[str, Any]:
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
    """One workload's part of a link while a phase runs: what the engine asks and tells."""

    def __init__(self, link: Link, phase: Phase) -> None:
        self._link, self._phase = link, phase

    def ended(self) -> bool:
        """Whether the controller has ended the phase."""
        return self._link.ended(self._phase)

    def changes(self) -> Sequence[Change]:
        """What is to change, each told once."""
        return self._link.changes(self._phase)

    def report(self, progress: Progress) -> None:
        """How it goes."""
        self._link.report(replace(progress, workload=self._phase[0]))


def portable(error: BaseException) -> Exception:
    """The error as one that crosses processes and says who is at fault."""
    if isinstance(error, (BrokenRun, UsageError)):
        return error
    if isinstance(error, KeyboardInterrupt):
        return NoData("interrupted")
    return NoData(f"{type(error).__name__}: {error}")
