"""A fleet of two processes, one that only sends and one that only receives, so that the CPU time of each can be told apart.

They take the path of every worker (:func:`~pytest_loadtest.fleet.member.take_part`), recording included; nothing is aggregated.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData
from pytest_loadtest.fleet.coordinator import Coordinator
from pytest_loadtest.fleet.drain import Drain
from pytest_loadtest.fleet.link import Key, Link, Message, PhaseControl
from pytest_loadtest.fleet.member import take_part
from pytest_loadtest.fleet.orders import Order, PhaseOrder
from pytest_loadtest.fleet.targets import target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from pytest_loadtest.brokers.base import Broker
    from pytest_loadtest.fleet.coordinator import Run
    from pytest_loadtest.schedule.phases import Phase
    from pytest_loadtest.schedule.plan import Plan

SENDER, RECEIVER = WORKERS = (
    "sender",
    "receiver",
)  # ranks 0 and 1: a plan's producers are at the first, its consumers at the second
START_IN = 100_000_000  # ns from the decision to start until the first message is due
JOIN_SECONDS = 10.0
_MEASURED = "cpu"  # the one message that the coordinator does not know


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the measured phase of one run took: messages, and CPU time in ns of sender, receiver and broker."""

    sent: int
    received: int
    sender: int
    receiver: int
    broker: int


class Pair:
    """The two processes and what conducts them, for any number of runs against one broker.

    :param broker_cpu: CPU time that the broker's process has used so far, ns.
    """

    def __init__(self, broker: Broker, folder: Path, broker_cpu: Callable[[], int]) -> None:
        self._broker, self._folder, self._broker_cpu = broker, folder, broker_cpu
        self._coordinator = Coordinator(self, self._send, time.monotonic_ns, lambda: None)
        self._inbox: queue.SimpleQueue[tuple[str, int | None]] = queue.SimpleQueue()  # worker, its CPU time or None where it failed
        self._plan: Plan | None = None
        self._runs = self._broker_spent = 0
        context = multiprocessing.get_context("spawn")  # pulsar-client must not be used across a fork
        pipes = {worker: context.Pipe() for worker in WORKERS}
        self._pipes: dict[str, Connection] = {worker: here for worker, (here, _) in pipes.items()}
        self._processes = [context.Process(target=work, args=(pipes[worker][1], rank), daemon=True) for rank, worker in enumerate(WORKERS)]
        for process in self._processes:
            process.start()
        for worker in WORKERS:
            pipes[worker][1].close()  # our copy of the child's end: while it is open, reading would not fail when the child dies
            self._coordinator.join(worker)
            threading.Thread(target=self._listen, args=(worker,), name=f"loadtest-{worker}", daemon=True).start()

    def run(self, plan: Plan) -> Spent:
        """Drive one plan whose producers are all the first worker's and whose consumers are all the second's.

        :raises BrokenRun: it came to no end, or less than half of it arrived.
        """
        self._plan, key = plan, (self._runs, 1)
        self._runs += 1
        self._tell(("begin", key, None))
        spent = dict(self._inbox.get() for _ in WORKERS)
        run, sender, receiver = self._coordinator.runs.get(key), spent.get(SENDER), spent.get(RECEIVER)
        if run is None or run.error is not None or sender is None or receiver is None:
            raise (run and run.error) or NoData("a process that drove load ended")
        sent, received = run.progress[""][SENDER].sent, run.progress[""][RECEIVER].received
        if received < plan.measure.total / 2:
            raise NoData(f"{received} of {plan.measure.total} messages arrived")
        return Spent(sent=sent, received=received, sender=sender, receiver=receiver, broker=self._broker_spent)

    def close(self) -> None:
        """End both processes."""
        self._coordinator.close()
        self._tell(("quit", None, None))
        for process in self._processes:
            process.join(JOIN_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()

    # --- what the coordinator asks; see :class:`~pytest_loadtest.fleet.coordinator.Conducting`

    def meeting(self, run: Run, name: str, payloads: Sequence[Any]) -> Sequence[Any]:
        assert self._plan is not None
        if run.members != list(WORKERS):
            raise NoData("a process that drives load ended")
        if name == "order":
            self._phases = list(self._plan.phases)
            return [[self._order(self._plan, rank)] for rank in range(len(WORKERS))]
        if name.startswith("next "):
            return [[self._start(run, self._phases.pop(0))] if self._phases else None] * len(payloads)
        if name == "closed":
            self._broker_spent += self._broker_cpu()
        return [None] * len(payloads)

    def check(self, run: Run) -> None:
        if (failure := self._broker.failure()) is not None:
            raise NoData(f"{self._broker.facts.describe()} went away: {failure}")

    def progressed(self, run: Run, workload: str) -> None:
        """Nothing to do: nobody watches the progress."""

    def command(self, run: Run, kind: str, argument: Any) -> Any:
        """Never called: there is no test's body."""

    def gave_up(self, run: Run, error: Exception) -> None:
        """Nothing to do: :meth:`run` raises the error."""

    def _order(self, plan: Plan, rank: int) -> Order:
        profile = plan.profile
        return Order(
            workload="", run=f"calibrate-{self._runs}", nonce=self._runs, worker=WORKERS[rank], profile=profile, payload_file=None,
            assignment=plan.assignments[rank], topology=plan.topology,
            target=target_of(self._broker.facts), ordered=profile.ordered, bounds=(),
            opened=plan.topology.consumers, disk=plan.needs.disk, rate=plan.rate,
        )  # fmt: skip

    def _start(self, run: Run, phase: Phase) -> PhaseOrder:
        assert self._plan is not None
        run.drains[""] = Drain(phase.name, len(WORKERS), self._plan.topology.subscriptions, self._plan.profile.drain_timeout)
        if phase.recorded:
            self._broker_spent = -self._broker_cpu()
        folder = self._folder / f"run-{self._runs}" if phase.recorded else None
        return PhaseOrder(phase=phase, start=time.monotonic_ns() + START_IN, folder=folder)

    # --- pipes

    def _tell(self, message: Message) -> None:
        with self._coordinator.lock:  # a pipe takes one message at a time
            for worker in WORKERS:
                self._send(worker, message)

    def _send(self, worker: str, message: Message) -> None:
        with contextlib.suppress(OSError):  # it is gone: its listener says so
            self._pipes[worker].send(message)

    def _listen(self, worker: str) -> None:
        while True:
            try:
                name, key, payload = self._pipes[worker].recv()
            except (EOFError, OSError):
                self._coordinator.leave(worker, "its process ended")
                self._inbox.put((worker, None))
                return
            if name == _MEASURED:
                self._inbox.put((worker, payload))
            else:
                self._coordinator.receive(worker, (name, key, payload))


def work(pipe: Connection, rank: int) -> None:
    """The main function of one of the processes: take part in every run that is begun, until told to quit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, inbox), daemon=True).start()
    while True:
        name, key, _ = inbox.get()
        if name in ("quit", "closed"):
            return
        if name == "begin":
            assert key is not None
            pipe.send((_MEASURED, key, _take_part(pipe, inbox, key, lead=rank == 0)))


def _receive(pipe: Connection, inbox: queue.SimpleQueue[Message]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(pipe.recv())
    inbox.put(("closed", None, None))


def _take_part(pipe: Connection, inbox: queue.SimpleQueue[Message], key: Key, *, lead: bool) -> int | None:
    """CPU time of the last phase, ns; None where the run failed, which the coordinator has been told."""
    link = TimedLink(pipe.send, inbox, key)
    pipe.send(("arrive", key, None))
    while True:  # until both are there; what is left of an earlier run is passed by
        name, of, _ = inbox.get()
        if name == "closed":
            return None
        if name == "role" and of == key:
            break
    with contextlib.suppress(Exception):
        take_part(link, None, lead=lead)  # type: ignore[arg-type]  # the order needs no request here
        pipe.send(("finished", key, None))
        return link.spent
    return None


class TimedLink(Link):
    """Takes the process's CPU time from the beginning of a phase to its end: connecting and closing are not the messages' cost."""

    spent = 0

    def phase_control(self, workload: str, phase: str) -> PhaseControl:
        self.spent = -time.process_time_ns()
        return super().phase_control(workload, phase)

    def ended(self, phase: tuple[str, str]) -> bool:
        ended = super().ended(phase)
        if ended:
            self.spent += time.process_time_ns()
        return ended
