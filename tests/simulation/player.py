"""Plays a world: the product's own controller and workers over simulated hosts, clocks, channels and target.

What xdist does in a session, :class:`SimulatedFleet` does here: it carries messages between the controller and the workers, answers for the
clocks of hosts, and reports a worker that has ended. Everything else is the product's: profile, plan, rendezvous, engine, samples,
aggregation (in process), verdict and results.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from simulation.truth import Played, PlayedPhase, Truth
from simulation.virtual import BOOTED, Deadlock, Process, Simulation, VirtualQueue, virtual
from simulation.world import FOREVER, SECOND, Host, World

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE: Final = 900 * SECOND
"""Virtual time in which every world must have ended."""
KEY: Final = (0, 0)
NODEID: Final = "test_world.py::test_world"
SEVERITY: Final = ("met", "missed", "generator-limited", "no data")
"""Outcomes of several workloads: the worst one is that of the run (docs/howto/read-a-verdict.md)."""
FREQUENT: Final = ("ReadClock", "ClockRead", "ReportProgress")
"""Messages that come many times a second."""
NOTICED: Final = SECOND // 5
"""From the end of a process until the controller notices it, ns."""


def install() -> None:
    """Make the simulated kind a plugin, as an installed distribution with an entry point is one."""
    folder = Path(tempfile.gettempdir()) / f"loadtest-simulated-{os.getuid()}"
    information = folder / "simulated-1.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    _write(information / "METADATA", "Metadata-Version: 2.1\nName: simulated\nVersion: 1\n")
    _write(
        information / "entry_points.txt",
        "[pytest_loadtest.drivers]\nsimulated = simulation.driver:KIND\n",
    )
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        from pytest_loadtest.kinds import registry
        from pytest_loadtest.profile import client, secrets

        # A test that has read a profile before has filled all of these.
        for kept in (registry.kinds, client.models, client._adapter, secrets._known):
            kept.cache_clear()
    _load_all()


def _write(path: Path, text: str) -> None:
    """Write a file at once: another process may read it now."""
    if path.exists() and path.read_text() == text:
        return
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(text)
    partial.replace(path)


def _load_all() -> None:
    """Load what a run imports on use, before the standard library is replaced."""
    import concurrent.futures.thread
    import pkgutil

    import numpy.random
    import pyarrow.parquet

    import pytest_loadtest

    assert numpy.random  # which keeps the kind of lock that it finds
    assert concurrent.futures.thread
    assert pyarrow.parquet
    for package in (
        "engine",
        "fleet",
        "metrics",
        "observe",
        "pipeline",
        "plan",
        "report",
        "verdict",
    ):
        folder = Path(pytest_loadtest.__file__).parent / package
        for module in pkgutil.iter_modules([str(folder)]):
            importlib.import_module(f"pytest_loadtest.{package}.{module.name}")


def clock_of(host: Host | None, origin: Callable[[], int]) -> Callable[[int], int]:
    """Return the monotonic clock of a host: true time → its time. :param origin: true time from which ``at`` counts."""
    if host is None:
        return lambda now: now
    if not host.slews and not host.steps:
        offset, drift = host.offset, host.drift
        return lambda now: now + offset + round(drift * (now - BOOTED))

    def read(now: int) -> int:
        passed = now - origin()
        ahead = host.offset + round(host.drift * (now - BOOTED))
        for at, until, rate in host.slews:
            ahead += round(rate * (min(max(passed - at, 0), until - at)))
        for at, by in host.steps:
            if passed >= at:
                ahead += by
        return now + ahead

    return read


class SimulatedFleet:
    """The controller's rendezvous, the workers, and the channels between them."""

    def __init__(self, world: World, simulation: Simulation, controller: Any) -> None:
        from pytest_loadtest.fleet.host_clocks import HostClocks
        from pytest_loadtest.fleet.rendezvous import Rendezvous

        self._world, self._simulation = world, simulation
        self._controller = controller
        self.target = simulation.target
        self.rendezvous = Rendezvous(
            controller, self._send, time.monotonic_ns, lambda: None, self._kill
        )
        controller.rendezvous = self.rendezvous
        self._clocks = HostClocks(self._send, self._disconnect)
        self._processes: dict[str, Process] = {}
        self._roles: dict[str, VirtualQueue] = {}
        self._inboxes: dict[str, VirtualQueue] = {}
        self._workloads: list[str] = []
        self._free_at: dict[tuple[str, bool], int] = {}
        self._left: set[str] = set()
        self._copied: set[str] = set()
        self.errors: dict[str, BaseException] = {}
        self.result: Any = None
        for number, name in enumerate(world.names):
            host = world.host_of(number)
            self._processes[name] = Process(name, clock_of(host, self._origin))
            self._roles[name], self._inboxes[name] = VirtualQueue(), VirtualQueue()
            if host is not None:
                self._clocks.add(name, host.name)
                controller.clocks = self._clocks
            self.rendezvous.join(name)

    # --- channels

    def _arrival(self, worker: str, *, there: bool) -> int:
        """Return when a message arrives that is sent now; a channel keeps the order of its messages."""
        host = self._world.host_of(int(worker[1:]))
        travel = 20_000
        if host is not None:
            travel = host.there if there else host.back
            random = self._simulation.random
            if host.jitter:
                travel += round(random.expovariate(1 / host.jitter))
            if random.random() < host.lossy:
                travel += SECOND // 5
        at = max(self._simulation.now + travel, self._free_at.get((worker, there), 0))
        self._free_at[worker, there] = at
        return at

    def _send(self, worker: str, message: Any) -> None:
        """Send a message of the controller to a worker."""
        received = self._transferred(message)
        self._note_phases(message)
        at = self._arrival(worker, there=True)
        self._simulation.spawn(at, self._processes[worker], self._receive, worker, received)

    def _transferred(self, message: Any) -> Any:
        """Return a message as its receiver reads it: a copy.

        Frequent ones, which are made of numbers and cannot be changed, are copied once to show that it is possible; all copies would take a
        twentieth of a world's time.
        """
        kind = type(message).__name__
        if kind in self._copied:
            return message
        if kind in FREQUENT:
            self._copied.add(kind)
        return pickle.loads(pickle.dumps(message))

    def _receive(self, worker: str, message: Any) -> None:
        """Handle a message in the thread of a worker that receives its channel."""
        from pytest_loadtest.fleet.messages import ClockRead, ReadClock, Release, TakeRole

        match message:
            case ReadClock(number):
                self._send_back(worker, ClockRead(number, time.monotonic_ns()))
            case TakeRole():
                self._roles[worker].put(message)
            case Release():
                self._inboxes[worker].put(message)
                self._roles[worker].put(message)
            case _:
                self._inboxes[worker].put(message)

    def _send_back(self, worker: str, message: Any) -> None:
        """Send a message of a worker to the controller."""
        at = self._arrival(worker, there=False)
        received = self._transferred(message)
        self._simulation.spawn(at, self._simulation.controller, self._handle, worker, received)

    def _handle(self, worker: str, message: Any) -> None:
        from pytest_loadtest.fleet.messages import ClockRead, SamplePart, StoresSamples
        from pytest_loadtest.fleet.outputs import store_part

        match message:
            case ClockRead(number, host_time):
                self._clocks.receive(worker, number, host_time)
            case SamplePart():
                store_part(self._controller.folder, message.target, message.part, last=message.last)
                self.rendezvous.receive(worker, StoresSamples(message.key))
            case _:
                self.rendezvous.receive(worker, message)

    # --- workers

    def start(self, request: Any) -> None:
        """Start the workers, which all arrive at the test."""
        self._workloads = [part.profile.name for part in request.parts]
        for name, process in self._processes.items():
            self._simulation.spawn(self._simulation.now, process, self._work, name, request)

    def _work(self, worker: str, request: Any) -> None:
        from pytest_loadtest.errors import LoadtestError
        from pytest_loadtest.fleet.link import Link, Released
        from pytest_loadtest.fleet.member import WorkerRun
        from pytest_loadtest.fleet.messages import Arrive, Finished, TakeRole

        def send(message: Any) -> None:
            self._send_back(worker, message)

        send(Arrive(KEY))
        role = self._roles[worker].get()
        if not isinstance(role, TakeRole):
            self._left.add(worker)
            return
        link = Link(send, self._inboxes[worker], KEY)  # type: ignore[arg-type]
        try:
            result = WorkerRun(link, request, lead=role.lead).drive()
            self.result = result or self.result
        except Released:
            pass
        except LoadtestError as error:
            self.errors[worker] = error
        if role.lead:
            send(Finished(KEY))
        self._left.add(worker)

    def has_ended(self) -> bool:
        """Return whether every worker has left the test, or is gone and the controller has noticed it."""
        return len(self._left) == len(self._processes)

    def _kill(self, worker: str) -> None:
        """End a worker's process now."""
        process = self._processes[worker]
        if process.dead:
            return
        process.dead = True
        self.target.truth.killed.append((int(worker[1:]), self._simulation.now))
        self._simulation.spawn(
            self._simulation.now + NOTICED, self._simulation.controller, self._notice, worker
        )

    def _notice(self, worker: str) -> None:
        self._clocks.remove(worker)
        self.rendezvous.leave(worker, f"worker {worker} crashed")
        self.rendezvous.gather()
        self._left.add(worker)

    def _disconnect(self, host: str) -> None:
        for worker, on in list(self._clocks.hosts.items()):
            if on == host:
                self._kill(worker)

    # --- faults of the generator, and the truth about phases

    def _note_phases(self, message: Any) -> None:
        """Note the phases that begin; the first one starts the time of faults."""
        from pytest_loadtest.fleet.messages import Answer, EndPhase, NextPhases

        if isinstance(message, EndPhase):
            for ended in self.target.truth.phases:
                is_same = ended.name == message.phase
                if len(self._workloads) > 1:
                    is_same = is_same and ended.workload == message.workload
                if is_same and ended.ended is None:
                    ended.ended = self._simulation.now
        if not (isinstance(message, Answer) and isinstance(message.answer, NextPhases)):
            return
        for number, phase in enumerate(message.answer.phases or ()):
            if phase is None:
                continue
            played = PlayedPhase(
                phase.phase.name, phase.start, phase.phase.duration, phase.folder is not None,
                workload=self._workloads[number],
            )  # fmt: skip
            truth: Truth = self.target.truth
            if any(
                (other.name, other.start, other.workload)
                == (played.name, played.start, played.workload)
                for other in truth.phases
            ):
                continue  # the same phase, sent to another worker
            truth.phases.append(played)
            if len(truth.phases) == 1:
                self._begin_faults(phase.start)

    def _origin(self) -> int:
        """Return the true time from which the changes of a clock count: none comes before load begins."""
        phases = self.target.truth.phases
        return phases[0].start if phases else FOREVER

    def _begin_faults(self, origin: int) -> None:
        self.target.begin(origin)
        for pause in self.target.faults("pause"):
            worker = pause.values["worker"]
            process = self._processes[f"w{worker}"]
            process.stops.append((pause.begin, pause.end))
            process.stops.sort()
            self.target.truth.pauses.append((worker, pause.begin, pause.end))
        self._simulation.disk_delay = self._disk_delay
        for kill in self.target.faults("kill"):
            self._simulation.at(kill.begin, partial(self._kill, f"w{kill.values['worker']}"))

    def _disk_delay(self, process: str) -> int:
        """Return how long a write of a process takes longer now, ns."""
        delays = [
            int(slow.values["by"])
            for slow in self.target.faults("slow-disk")
            if process == f"w{slow.values['worker']}"
            and slow.begin <= self._simulation.now < slow.end
        ]
        return max(delays, default=0)


def _request(world: World, name: str) -> Any:
    """Return the request of a test with the world's profile. :raises ProfileError: the product rejects it."""
    from pytest_loadtest import profile as profiles
    from pytest_loadtest.fleet.messages import Part, Request

    profile = profiles.loads(yaml.safe_dump(world.profile, sort_keys=False), name)
    workloads = profile.workloads or (profile,)
    parts = tuple(Part(profile=part, files={}) for part in workloads)
    return Request(nodeid=NODEID, attempt=0, profile=profile, parts=parts, source=name)


def play(world: World, folder: Path) -> Played:
    """Play a world to its end; its samples and results are below ``folder``."""
    install()
    started = time.process_time()
    from pytest_loadtest.errors import LoadtestError

    folder.mkdir(parents=True, exist_ok=True)
    with virtual(world.seed) as simulation:
        from simulation.target import SimulatedTarget

        target = SimulatedTarget(world, BOOTED)
        simulation.target = target
        outcome, error = "no data", None
        try:
            request = _request(world, "world.yaml")
        except LoadtestError as problem:
            outcome, error = "wrong profile", str(problem)
        else:
            error = _run(world, simulation, request, folder)
        ended, events = simulation.now, simulation.hash.hexdigest()
    documents = _documents(folder)
    results, run = documents[-1] if documents else (None, None)
    if "search" in world.profile and (results or {}).get("peak") is None:
        # Its steps have results, and the search that was broken off has none.
        results, run = None, None
    if results is not None:
        outcome = results["verdict"]["outcome"]
    if len(target.routes) > 1:
        outcome = max(
            (one["verdict"]["outcome"] for one, _ in documents), key=SEVERITY.index, default=outcome
        )
    return Played(
        world=world, truth=target.truth, outcome=outcome, results=results, run=run, error=error, folder=folder, ended=ended,
        events=events, cpu=time.process_time() - started, documents=documents,
    )  # fmt: skip


def _run(world: World, simulation: Simulation, request: Any, folder: Path) -> str | None:
    """Play the run; return the error that ended it, or None."""
    from numpy_aggregation import NumpyAggregation

    from pytest_loadtest.fleet import run_controller
    from pytest_loadtest.fleet.options import Options

    place: Any = run_controller
    place.SparkService = NumpyAggregation
    # Worlds must not depend on the memory of the machine that plays them.
    options = Options(results=folder, root=folder, force=True)
    controller = run_controller.RunController(options, None)
    fleet = SimulatedFleet(world, simulation, controller)
    fleet.start(request)
    try:
        if not simulation.run(fleet.has_ended, BOOTED + DEADLINE):
            return f"the run did not end within {DEADLINE // SECOND} s"
    except Deadlock as deadlock:
        return f"the run waits for something that cannot happen: {deadlock}"
    errors = [str(error) for error in fleet.errors.values()]
    return errors[0] if errors else None


def _documents(folder: Path) -> tuple[tuple[dict[str, Any], dict[str, Any] | None], ...]:
    """Return the results documents with their run files; the one with the verdict is the last: of a search, that with the peak."""
    documents = []
    for path in sorted(folder.rglob("results.json")):
        run = path.with_name("run.json")
        read = json.loads(run.read_text()) if run.exists() else None
        documents.append((json.loads(path.read_text()), read))
    documents.sort(key=lambda both: both[0].get("peak") is not None)
    return tuple(documents)
