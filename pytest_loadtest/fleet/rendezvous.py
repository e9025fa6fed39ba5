"""The controller's bookkeeping of runs: which workers take part, which of them wait at a meeting, when a phase or the run ends.

Messages of workers arrive through :meth:`Rendezvous.receive`, in the controller's process and from any thread (local fleet: the thread that
drives load; xdist: execnet's receivers and the main loop); one lock guards all state. The run controller's slow answers are computed in
threads of their own, so that no event loop blocks. It depends on no transport, broker or clock, and every worker of a run that cannot
continue gets the error: within a second of it, or after the timeouts below.
"""

from __future__ import annotations

import threading
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pytest_loadtest.errors import LoadtestError, NoData, UsageError, WorkerError
from pytest_loadtest.fleet.host_clocks import INTERVAL
from pytest_loadtest.fleet.link import Key, Message, portable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.fleet.drain import Drain
    from pytest_loadtest.fleet.host_clocks import HostClocks
    from pytest_loadtest.schedule.changes import Change

MEETING_TIMEOUT = 300  # s; connecting thousands of clients may take minutes
SILENCE_TIMEOUT = 60  # s without a message from a worker that drives load


@dataclass(slots=True)
class Run:
    """One run at the controller. ``state`` belongs to the run controller, which may raise ``patience``."""

    key: Key
    arrived: set[str] = field(default_factory=set)
    members: list[str] = field(default_factory=list)
    meetings: dict[str, dict[str, Any]] = field(default_factory=dict)
    meeting_since: int | None = None
    answering: bool = False  # all workers are at a meeting and wait for its answers
    progress: dict[str, dict[str, Progress]] = field(default_factory=dict)  # by workload, then by worker
    last_message: dict[str, int] = field(default_factory=dict)  # by worker, ns of the clock
    drains: dict[str, Drain] = field(default_factory=dict)  # by workload: the phases in progress
    error: Exception | None = None
    concluded: bool = False  # set by the run controller: it has its results, whatever happens to its workers
    ended: bool = False
    patience: int = MEETING_TIMEOUT  # s that workers wait for each other at a meeting
    state: Any = None  # a RunState, once the run has been planned

    def release(self) -> None:
        """Free what only a current run needs: a session may have thousands of runs, and payloads of meetings have megabytes."""
        self.ended, self.meeting_since, self.state = True, None, None
        # A copy has no traceback, whose frames hold samples and open files.
        self.error = None if self.error is None else copy(self.error)
        for part in (self.meetings, self.progress, self.drains, self.last_message):
            part.clear()


class RunControl(Protocol):
    """The callbacks of a rendezvous, described in :class:`~pytest_loadtest.fleet.run_controller.RunController`."""

    clocks: HostClocks | None

    def meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]: ...

    def check(self, run: Run) -> None: ...

    def progressed(self, run: Run, name: str) -> None: ...

    def command(self, run: Run, kind: str, argument: Any) -> Any: ...

    def gave_up(self, run: Run, error: Exception) -> None: ...


class Rendezvous:
    """Brings workers together for one run after another.

    :param controller: answers meetings and commands. :param send: sends a message to a worker; must not block. :param clock: ns.
    :param stopping: returns the reason why no further run may start, or None. :param kill: ends a worker that no longer answers.
    """

    def __init__(
        self, controller: RunControl, send: Callable[[str, Message], None], clock: Callable[[], int], stopping: Callable[[], str | None],
        kill: Callable[[str], None] = lambda worker: None,
    ) -> None:  # fmt: skip
        self.lock = threading.RLock()
        self._run_controller, self._send, self._clock, self._stopping, self._kill = controller, send, clock, stopping, kill
        self._workers: list[str] = []
        self.runs: dict[Key, Run] = {}
        self._closed = threading.Event()
        self._watches: list[threading.Thread] = []

    # --- workers join and leave

    def join(self, worker: str) -> None:
        """Add a worker of the session."""
        with self.lock:
            self._workers.append(worker)

    def leave(self, worker: str, why: str) -> None:
        """Remove a worker that is gone, and abort the runs that need it."""
        with self.lock:
            if worker in self._workers:
                self._workers.remove(worker)
            for run in self.runs.values():
                if worker in run.members and not run.ended:
                    self.abort(run, WorkerError(f"load worker {worker} went down: {why}"))
                    if worker == run.members[0]:
                        self._finish(run)

    def gather(self) -> None:
        """Start the runs that waited only for a worker which is gone."""
        with self.lock:
            for run in list(self.runs.values()):
                self._gather(run)

    # --- messages

    def receive(self, worker: str, message: Message) -> None:
        """Handle one message of a worker; from any thread."""
        name, key, payload = message
        assert key is not None
        with self.lock:
            run = self.runs.setdefault(key, Run(key))
            if run.ended and name in ("progress", "command", "meet"):  # sent before the worker received the end
                self._send(worker, ("abort", run.key, run.error or NoData("the run has ended")))
                return
            run.last_message[worker] = self._clock()
            if name == "arrive":
                self._arrive(run, worker)
            elif name == "again":
                self._again(run, self.runs[key[0], key[1] - 1])
            elif name == "meet":
                self._meet(run, worker, *payload)
            elif name == "busy":
                self.keep_waiting(key)
            elif name == "progress":
                self._progress(run, worker, payload)
            elif name == "command":
                self._command(run, worker, *payload)
            elif name == "failed":
                self.abort(run, _blame(worker, payload))
            elif name == "finished":
                self._finish(run)

    def _arrive(self, run: Run, worker: str) -> None:
        if run.members:  # a replacement worker: the run has begun without it
            self._send(worker, ("release", run.key, None))
            return
        run.arrived.add(worker)
        self._gather(run)

    def _gather(self, run: Run) -> None:
        if run.members or not run.arrived or run.ended:
            return
        if (reason := self._stopping()) is not None:
            for worker in run.arrived:
                self._send(worker, ("release", run.key, reason))
        elif set(self._workers) <= run.arrived:
            self._assign_roles(run, self._workers)

    def _again(self, run: Run, before: Run) -> None:
        """Start a rerun with the members that are left; a worker that replaced one of them has passed this test already."""
        before.release()  # without a word to its members, who wait for their next role
        run.arrived.update(before.members)
        self._assign_roles(run, [worker for worker in self._workers if worker in before.members])

    def _assign_roles(self, run: Run, members: Sequence[str]) -> None:
        run.members, now = list(members), self._clock()
        run.last_message |= dict.fromkeys(members, now)  # in a rerun, only the lead has sent a message so far
        for worker in run.members:
            self._send(worker, ("role", run.key, worker == run.members[0]))  # True for the lead

    def _meet(self, run: Run, worker: str, name: str, payload: Any) -> None:
        if run.error is not None:
            self._send(worker, ("abort", run.key, run.error))
            return
        meeting = run.meetings.setdefault(name, {})
        # The first meeting has no timeout before the lead is there: the body of a live test may prepare for long before it begins the load.
        if worker == run.members[0] or len(run.meetings) > 1:
            run.meeting_since = run.meeting_since or self._clock()
        meeting[worker] = payload
        if set(run.members) <= set(meeting):
            run.meeting_since, run.answering = None, True
            run.drains.clear()
            payloads = [meeting[member] for member in run.members]
            run.meetings[name] = dict.fromkeys(meeting)  # later only the names are needed, not the payloads
            # A daemon, so that Ctrl-C does not wait for a broker that is starting: its watchdog stops it when this process ends.
            threading.Thread(target=self._answer_meeting, args=(run, name, payloads), name=f"loadtest-{name}", daemon=True).start()
            self._start_watches()

    def _answer_meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> None:
        try:
            answers = self._run_controller.meeting(run, name, payloads)
        except Exception as error:  # of any kind: the workers wait for an answer
            with self.lock:
                run.concluded = False
                self.abort(run, portable(error))
            return
        with self.lock:
            run.answering = False
            if run.error is None:
                for worker, answer in zip(run.members, answers, strict=True):
                    run.last_message[worker] = self._clock()  # it could not send any while it waited
                    self._send(worker, ("pass", run.key, (name, answer)))

    def _progress(self, run: Run, worker: str, progress: Progress) -> None:
        workload = progress.workload
        run.progress.setdefault(workload, {})[worker] = progress
        self._run_controller.progressed(run, workload)
        drain = run.drains.get(workload)
        if drain is not None and drain.has_ended(run.progress[workload], self._clock()):
            self._send_all(run, "end", (workload, drain.phase))
            del run.drains[workload]

    def _send_all(self, run: Run, name: str, payload: Any) -> None:
        for member in run.members:
            self._send(member, (name, run.key, payload))

    def change(self, run: Run, workload: str, phase: str, change: Change) -> None:
        """Send a change to all workers of the run, to be applied by all at one instant."""
        with self.lock:
            self._send_all(run, "change", ((workload, phase), change))

    def _command(self, run: Run, worker: str, kind: str, argument: Any) -> None:
        try:
            answer = self._run_controller.command(run, kind, argument)
        except Exception as error:  # the body waits for an answer
            answer = error if isinstance(error, LoadtestError) else portable(error)
        if callable(answer):
            threading.Thread(target=self._answer_command, args=(run, worker, answer), name=f"loadtest-{kind}", daemon=True).start()
        else:
            self._send(worker, ("answer", run.key, answer))

    def _answer_command(self, run: Run, worker: str, work: Callable[[], Any]) -> None:
        try:
            answer = work()
        except UsageError as error:
            answer = error
        except Exception as error:  # the abort reaches the body through its worker
            with self.lock:
                self.abort(run, portable(error))
            return
        with self.lock:
            self._send(worker, ("answer", run.key, answer))

    def abort(self, run: Run, error: Exception) -> None:
        """Give the run up, unless it has its results. Only the first error counts: later ones are its consequences."""
        if run.error is not None or run.concluded or run.ended:
            return
        run.error, run.meeting_since = error, None
        run.drains.clear()
        self._send_all(run, "abort", error)
        self._run_controller.gave_up(run, error)

    def abort_all(self, error: Exception) -> None:
        """Give up every run that has not ended."""
        with self.lock:
            for run in self.runs.values():
                self.abort(run, error)

    def keep_waiting(self, key: Key | None) -> None:
        """Restart the timeout of a meeting, because a worker is still sending or storing its samples."""
        with self.lock:
            run = None if key is None else self.runs.get(key)
            if run is not None and run.meeting_since is not None:
                run.meeting_since = self._clock()

    def _finish(self, run: Run) -> None:
        run.release()
        self._send_all(run, "release", None)

    def _start_watches(self) -> None:
        if self._watches:
            return
        checks = [("watch", 1.0, self._check)]
        if self._run_controller.clocks is not None:
            # A thread of its own: a container engine may take long to answer, and times are exchanged meanwhile.
            checks.append(("clocks", INTERVAL, self._ask_clocks))
        for name, interval, check in checks:
            watch = threading.Thread(target=self._watch_runs, args=(interval, check), name=f"loadtest-{name}", daemon=True)
            self._watches.append(watch)
            watch.start()

    def _watch_runs(self, interval: float, check: Callable[[Run], None]) -> None:
        while not self._closed.wait(interval):
            with self.lock:
                runs = [run for run in self.runs.values() if run.members and not (run.ended or run.concluded or run.error)]
            for run in runs:
                try:
                    check(run)
                except Exception as error:  # of any kind: the workers must get it
                    with self.lock:
                        self.abort(run, portable(error))

    def _check(self, run: Run) -> None:
        self._run_controller.check(run)
        self._check_silence(run)

    def _ask_clocks(self, run: Run) -> None:
        clocks = self._run_controller.clocks
        if clocks is not None and run.drains:
            clocks.ask_under_load()

    def _check_silence(self, run: Run) -> None:
        now = self._clock()
        if run.meeting_since is not None and now - run.meeting_since > run.patience * 1_000_000_000:
            name, meeting = list(run.meetings.items())[-1]
            missing = ", ".join(sorted(set(run.members) - set(meeting)))
            raise WorkerError(f"{missing} did not reach {name!r} within {run.patience} s")
        silent = [w for w in run.members if now - run.last_message[w] > SILENCE_TIMEOUT * 1_000_000_000]
        if silent and run.drains and not run.answering:
            error = WorkerError(f"{', '.join(silent)} sent no message for {SILENCE_TIMEOUT} s while driving load")
            with self.lock:
                self.abort(run, error)
            for worker in silent:  # its loop hangs or is stopped: the next test would wait for it without limit
                self._kill(worker)
            raise error

    def close(self) -> None:
        """Abort what still runs, at the end of the session."""
        self.abort_all(NoData("the session ends"))
        self._closed.set()


def _blame(worker: str, error: Exception) -> Exception:
    """Return the error with the name of the worker that it happened on."""
    is_named = len(error.args) != 1 or str(error).startswith(f"worker {worker} ")
    return error if is_named else type(error)(f"worker {worker}: {error}")
