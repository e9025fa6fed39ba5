"""The controller's bookkeeping: which workers are in which run, who waits where, when a phase ends, who must be told to stop.

It knows no transport and no broker. Messages come in through :meth:`Rendezvous.receive` from any thread; slow answers are worked out by
the conductor in a thread of their own, so that no event loop stands still.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pytest_loadtest.errors import LoadtestError, NoData, UsageError, WorkerError
from pytest_loadtest.fleet.link import Key, Message, portable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.workload_run import Drain
    from pytest_loadtest.schedule.changes import Change

MEETING_TIMEOUT = 300  # s; connecting thousands of clients may take minutes
SILENCE_TIMEOUT = 60  # s without a word from a worker that drives load


@dataclass(frozen=True, slots=True)
class Role:
    """A worker's place in a run."""

    rank: int
    size: int

    @property
    def lead(self) -> bool:
        """The worker that reports the test."""
        return self.rank == 0


@dataclass(slots=True)
class Run:
    """One run as the controller sees it. ``facts`` belongs to the conductor, which may raise ``patience``."""

    key: Key
    arrived: set[str] = field(default_factory=set)
    members: list[str] = field(default_factory=list)
    meetings: dict[str, dict[str, Any]] = field(default_factory=dict)
    meeting_since: int | None = None
    answering: bool = False  # all are at a meeting and wait for its answers
    progress: dict[str, dict[str, Progress]] = field(default_factory=dict)  # by workload, then by worker
    heard: dict[str, int] = field(default_factory=dict)
    drains: dict[str, Drain] = field(default_factory=dict)  # by workload: those that drive load just now
    error: Exception | None = None
    ended: bool = False
    patience: int = MEETING_TIMEOUT  # s that workers wait for each other at a meeting
    facts: Any = None

    def release(self) -> None:
        """Forget what only a run that goes on needs: a session may have thousands, and payloads of meetings have megabytes."""
        self.ended, self.meeting_since, self.facts = True, None, None
        for part in (self.meetings, self.progress, self.drains, self.heard):
            part.clear()


class RunControl(Protocol):
    """What the coordinator asks of the conductor; see :class:`~pytest_loadtest.fleet.run_controller.RunController`."""

    def meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]:
        """All are at ``name`` with these payloads, by rank: what each gets. Runs in a thread of its own and may take long."""

    def check(self, run: Run) -> None:
        """Once a second while load runs. :raises BrokenRun: the target is gone."""

    def progressed(self, run: Run, name: str) -> None:
        """New progress of the workload of that name is there, to be shown and acted upon."""

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        """The test's body wants something: what to answer, or, where that takes long, a function that works it out in a thread of its own.

        :raises UsageError: it cannot be. What the function raises besides ends the run.
        """

    def gave_up(self, run: Run, error: Exception) -> None:
        """The run is broken; nothing more comes of it."""


class Rendezvous:
    """Brings workers together for one run after another.

    :param send: puts a message on its way to a worker; must not block. :param clock: ns.
    :param stopping: says why no further run may start, or None.
    """

    def __init__(
        self, controller: RunControl, send: Callable[[str, Message], None], clock: Callable[[], int], stopping: Callable[[], str | None]
    ) -> None:
        self.lock = threading.RLock()
        self._conductor, self._send, self._clock, self._stopping = controller, send, clock, stopping
        self._workers: list[str] = []
        self.runs: dict[Key, Run] = {}
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None

    # --- workers come and go

    def join(self, worker: str) -> None:
        """A worker is there."""
        with self.lock:
            self._workers.append(worker)

    def leave(self, worker: str, why: str) -> None:
        """A worker is gone; runs that need it cannot go on."""
        with self.lock:
            if worker in self._workers:
                self._workers.remove(worker)
            for run in self.runs.values():
                if worker in run.members and not run.ended:
                    self.abort(run, WorkerError(f"load worker {worker} went down: {why}"))
                    if worker == run.members[0]:
                        self._finish(run)

    def gather(self) -> None:
        """Start every run that waited for a worker which is gone."""
        with self.lock:
            for run in list(self.runs.values()):
                self._gather(run)

    # --- messages

    def receive(self, worker: str, message: Message) -> None:
        """Take one message of a worker; from any thread."""
        name, key, payload = message
        assert key is not None
        with self.lock:
            run = self.runs.setdefault(key, Run(key))
            if run.ended and name in ("progress", "command", "meet"):  # of a worker that has not heard yet
                self._send(worker, ("abort", run.key, run.error or NoData("the run has ended")))
                return
            run.heard[worker] = self._clock()
            if name == "arrive":
                self._arrive(run, worker)
            elif name == "again":
                self._again(run, self.runs[key[0], key[1] - 1])
            elif name == "meet":
                self._meet(run, worker, *payload)
            elif name == "progress":
                self._progress(run, worker, payload)
            elif name == "command":
                self._command(run, worker, *payload)
            elif name == "failed":
                self.abort(run, _blame(worker, payload))
            elif name == "finished":
                self._finish(run)

    def _arrive(self, run: Run, worker: str) -> None:
        if run.members:  # a replacement worker comes too late for this one
            self._send(worker, ("release", run.key, None))
            return
        run.arrived.add(worker)
        self._gather(run)

    def _gather(self, run: Run) -> None:
        if run.members or not run.arrived or run.ended:
            return
        if (why := self._stopping()) is not None:
            for worker in run.arrived:
                self._send(worker, ("release", run.key, why))
        elif set(self._workers) <= run.arrived:
            self._cast(run, self._workers)

    def _again(self, run: Run, before: Run) -> None:
        """Start a rerun with the members that are left; a worker that replaced one of them is past this test already."""
        run.arrived.update(before.members)
        self._cast(run, [worker for worker in self._workers if worker in before.members])

    def _cast(self, run: Run, members: Sequence[str]) -> None:
        run.members, now = list(members), self._clock()
        run.heard |= dict.fromkeys(members, now)  # of a rerun, only the lead has said a word yet
        for rank, worker in enumerate(run.members):
            self._send(worker, ("role", run.key, Role(rank, len(run.members))))

    def _meet(self, run: Run, worker: str, name: str, payload: Any) -> None:
        if run.error is not None:
            self._send(worker, ("abort", run.key, run.error))
            return
        meeting = run.meetings.setdefault(name, {})
        if worker == run.members[0] or len(run.meetings) > 1:  # the body of a live test may prepare for long: the lead says when it begins
            run.meeting_since = run.meeting_since or self._clock()
        meeting[worker] = payload
        if set(run.members) <= set(meeting):
            run.meeting_since, run.answering = None, True
            run.drains.clear()
            payloads = [meeting[member] for member in run.members]
            run.meetings[name] = dict.fromkeys(meeting)  # who was there is all that is asked of it later
            # a daemon: on Ctrl-C nobody waits for a broker that is just starting; its watchdog ends it with this process
            threading.Thread(target=self._work, args=(run, name, payloads), name=f"loadtest-{name}", daemon=True).start()
            self._watching()

    def _work(self, run: Run, name: str, payloads: Sequence[Any]) -> None:
        try:
            answers = self._conductor.meeting(run, name, payloads)
        except Exception as error:  # whatever it is, the workers wait for an answer
            with self.lock:
                self.abort(run, portable(error))
            return
        with self.lock:
            run.answering = False
            if run.error is None:
                for worker, answer in zip(run.members, answers, strict=True):
                    run.heard[worker] = self._clock()  # until now it had nothing to say
                    self._send(worker, ("pass", run.key, (name, answer)))

    def _progress(self, run: Run, worker: str, progress: Progress) -> None:
        workload = progress.workload
        run.progress.setdefault(workload, {})[worker] = progress
        self._conductor.progressed(run, workload)
        drain = run.drains.get(workload)
        if drain is not None and drain.has_ended(run.progress[workload], self._clock()):
            self._tell(run, "end", (workload, drain.phase))
            del run.drains[workload]

    def _tell(self, run: Run, name: str, payload: Any) -> None:
        for member in run.members:
            self._send(member, (name, run.key, payload))

    def change(self, run: Run, workload: str, phase: str, change: Change) -> None:
        """Let all workers of the run change something at one instant."""
        with self.lock:
            self._tell(run, "change", ((workload, phase), change))

    def _command(self, run: Run, worker: str, kind: str, argument: Any) -> None:
        try:
            answer = self._conductor.command(run, kind, argument)
        except Exception as error:  # the body waits for an answer
            answer = error if isinstance(error, LoadtestError) else portable(error)
        if callable(answer):
            threading.Thread(target=self._work_out, args=(run, worker, answer), name=f"loadtest-{kind}", daemon=True).start()
        else:
            self._send(worker, ("answer", run.key, answer))

    def _work_out(self, run: Run, worker: str, work: Callable[[], Any]) -> None:
        """Answer a command that takes long; the load goes on meanwhile."""
        try:
            answer = work()
        except UsageError as error:
            answer = error
        except Exception as error:  # the body hears of it as the workers do
            with self.lock:
                self.abort(run, portable(error))
            return
        with self.lock:
            self._send(worker, ("answer", run.key, answer))

    def abort(self, run: Run, error: Exception) -> None:
        """Give the run up; the first error is the cause."""
        if run.error is not None or run.ended:
            return
        run.error, run.meeting_since = error, None
        run.drains.clear()
        self._tell(run, "abort", error)
        self._conductor.gave_up(run, error)

    def abort_all(self, error: Exception) -> None:
        """Give up every run that has not ended."""
        with self.lock:
            for run in self.runs.values():
                self.abort(run, error)

    def _finish(self, run: Run) -> None:
        run.release()
        self._tell(run, "release", None)

    def _watching(self) -> None:
        if self._watch is None:
            self._watch = threading.Thread(target=self._look_after, name="loadtest-watch", daemon=True)
            self._watch.start()

    def _look_after(self) -> None:  # once a second
        while not self._closed.wait(1.0):
            with self.lock:
                runs = [run for run in self.runs.values() if run.members and not run.ended and run.error is None]
            for run in runs:
                try:
                    self._conductor.check(run)
                    self._check_silence(run)
                except Exception as error:  # whatever it is, the workers must hear of it
                    with self.lock:
                        self.abort(run, portable(error))

    def _check_silence(self, run: Run) -> None:
        now = self._clock()
        if run.meeting_since is not None and now - run.meeting_since > run.patience * 1_000_000_000:
            name, meeting = list(run.meetings.items())[-1]
            missing = ", ".join(sorted(set(run.members) - set(meeting)))
            raise WorkerError(f"{missing} did not reach {name!r} within {run.patience} s")
        silent = [w for w in run.members if now - run.heard[w] > SILENCE_TIMEOUT * 1_000_000_000]
        if silent and run.drains and not run.answering:
            raise WorkerError(f"{', '.join(silent)} said nothing for {SILENCE_TIMEOUT} s while driving load")

    def close(self) -> None:
        """The session ends."""
        self.abort_all(NoData("the session ends"))
        self._closed.set()


def _blame(worker: str, error: Exception) -> Exception:
    """The error with the name of the worker that met it."""
    named = len(error.args) != 1 or str(error).startswith(f"worker {worker} ")
    return error if named else type(error)(f"worker {worker}: {error}")
