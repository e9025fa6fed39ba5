"""The messages between the controller and the workers: one frozen class for each direction and
meaning.

Created on one side and read on the other, pickled between processes under xdist. First come the
payloads, then the steps of a run with their answers, then what a worker sends, then what the
controller sends. Both sides dispatch by the type of a message.
"""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_loadtest.fleet.service_request import ServiceStarted
from pytest_loadtest.values.records import immutable, record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import DriverFacts, TargetAddress
    from pytest_loadtest.engine.progress import Progress
    from pytest_loadtest.metrics.clocks import ClockLine
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.results.load import Load
    from pytest_loadtest.schedule.changes import Change
    from pytest_loadtest.schedule.topology import Assignment, Topology

Key = tuple[int, int]
"""A run: the index of the test among the collected ones, and the attempt, which counts reruns."""


@record
class Part:
    """One workload of a request.

    :param files: contents of the files that bodies are made of, by their names in the profile.
    """

    profile: Profile
    files: Mapping[str, bytes] = field(default_factory=dict)


@record
class Request:
    """The load that a test requests.

    :param nodeid: the test's.
    :param profile: the content of the file.
    :param parts: its workloads, which run together; mostly one.
    :param source: the path of the profile, as shown in results.
    :param broker: the mode that the marker sets, or None.
    :param target: the marker's URL, or None. :param admin: the marker's admin URL, or None.
    :param security_line: the line of ``target.security`` in the file, or None.
    :param broker_line: the line of ``driver.broker``, or None.
    :param cluster_line: the line of ``broker``, or None.
    """

    nodeid: str
    attempt: int
    profile: Profile
    parts: tuple[Part, ...]
    source: str
    broker: str | None = None
    target: str | None = None
    admin: str | None = None
    security_line: int | None = None
    broker_line: int | None = None
    cluster_line: int | None = None


@record
class WorkloadAssignment:
    """One worker's share of one workload.

    :param workload: its name if there are several, otherwise empty.
    :param bounds: latencies, ns, whose exceedances the controller counts while load runs.
    :param opened: consumers of each subscription that are connected before load begins.
    :param disk: bytes that the plan needs for the samples of all workers.
    :param rate: msg/s, all streams together, on average.
    :param clock: relation of the worker's clock to the controller's; None on the controller's host.
    :param sources: addresses that the worker's connections come from, in turn; empty: the system
        chooses.
    :param timely_bounds: latencies, ns; the worker reports by second how many copies took no
        longer, for the last ``timely_seconds``.
    """

    workload: str
    run: str
    nonce: int
    worker: str
    profile: Profile
    files: Mapping[str, bytes]
    assignment: Assignment
    topology: Topology
    target: TargetAddress
    ordered: bool
    bounds: tuple[int, ...]
    opened: int
    disk: int
    rate: float
    timely_bounds: tuple[int, ...] = ()
    timely_seconds: int = 0
    clock: ClockLine | None = None
    sources: tuple[str, ...] = ()


@record
class WorkerLocation:
    """A worker's process, so that it can be sampled.

    :param pid: its process id, as in its /proc.
    :param processes: the namespace of this id.
    :param network: the namespace of its sockets. Each has a name that no other namespace has on any
        host.
    """

    pid: int
    processes: str
    network: str


@record
class HostSampling:
    """The samples that one worker takes of workers on its host, itself the first of them.

    :param host: its name.
    :param workers: process ids by worker, all in one namespace.
    :param addresses: host and port of each target, by workload; empty if the sockets are sampled
        elsewhere.
    """

    host: str
    workers: Mapping[str, int]
    addresses: Mapping[str, Sequence[tuple[str, int]]]


@record
class StartPhase:
    """The next phase of one workload, to be started.

    :param start: ns.
    :param folder: the folder for its samples; None if none are kept.
    :param wall: wall clock minus the run's clock, ns.
    :param clock: relation of the worker's clock to the controller's; None on the controller's host.
    :param samples: the place of the samples when the phase is over, if it is not the folder: a
        path, or a URI.
    """

    phase: Phase
    start: int
    folder: Path | None
    wall: int = 0
    clock: ClockLine | None = None
    samples: str | None = None


@record
class PhaseFinished:
    """A worker's report on one workload's phase, when its samples are closed.

    :param ends: one past the last sequence of each of the worker's streams, in the order of its
        assignment.
    :param marks: for each change ``(ns after the start, first sequence of each of those streams
        from then on)``, in the order in which the worker applied them.
    :param disconnected: the clients without a connection when the drain ended; None if there were
        none.
    :param answered: the target acknowledged or delivered a message in the phase.
    :param unanswered: it left messages without an answer.
    """

    ends: NDArray[np.int64]
    marks: tuple[tuple[int, NDArray[np.int64]], ...]
    disconnected: str | None
    answered: bool
    unanswered: bool = False


@record
class RunResult:
    """The result of a run for the test, and its properties for JUnit; sent to the lead."""

    load: Load
    properties: tuple[tuple[str, Any], ...]


# The steps of a run, in their order. Every worker brings its own to a meeting, where all wait for
# each other, and gets an answer.


class RunStep:
    """One step of a run.

    ``work``: what a worker does before it reaches the meeting, for the error about one that does
    not. ``in_setup``: the test's fixtures, or its body, bring it when they come to it.
    """

    __slots__ = ()
    work: ClassVar[str]
    in_setup: ClassVar[bool] = False

    @property
    def meeting(self) -> tuple[object, ...]:
        """The identity of the step's meeting, equal for all workers."""
        return (type(self),)


@immutable
class ClaimShares(RunStep):
    """The first step: the workers want their shares of the load.

    The request of the lead decides.
    """

    work = "ask for its share of the load"
    in_setup = True
    request: Request


@immutable
class TargetPrepared(RunStep):
    """Topics exist.

    :param facts: of each workload's driver, from the lead; None from the others.
    """

    work = "prepare the target"
    facts: tuple[DriverFacts, ...] | None


@immutable
class ClientsMade(RunStep):
    """A profile with a rate of connections: the clients can begin to connect.

    :param clients: ``consumers`` or ``producers``.
    """

    work = "make its clients"
    clients: str
    workload: str

    @property
    def meeting(self) -> tuple[object, ...]:
        """One meeting for each workload's consumers, and one for its producers."""
        return (type(self), self.clients, self.workload)


@immutable
class ConsumersConnected(RunStep):
    """All consumers of the worker are connected.

    :param location: its process, so that it can be sampled.
    """

    work = "connect its consumers"
    location: WorkerLocation


@immutable
class PhaseDone(RunStep):
    """The worker has finished a phase, or has connected its producers and can begin the first one.

    :param number: of the phase, from 1; 0: none was driven yet.
    :param finished: by workload; None for one that had no phase.
    """

    number: int
    finished: tuple[PhaseFinished | None, ...]

    @property
    def work(self) -> str:  # type: ignore[override]
        """The work that a worker does before this step."""
        return f"finish step {self.number}" if self.number else "connect its producers"

    @property
    def meeting(self) -> tuple[object, ...]:
        """One meeting for each phase."""
        return (type(self), self.number)


@immutable
class ClientsClosed(RunStep):
    """All clients of the worker are closed. :param facts: of each workload's driver."""

    work = "close its clients"
    facts: tuple[DriverFacts, ...]


@immutable
class AwaitVerdict(RunStep):
    """The last step: nothing is left to do."""

    work = "wait for the verdict"


# The answers to the steps.


@immutable
class Shares:
    """A worker's share of each workload; answers :class:`ClaimShares`."""

    assignments: tuple[WorkloadAssignment, ...]


@immutable
class Continue:
    """Nothing but the permission to go on; answers :class:`TargetPrepared`."""


@immutable
class ConnectFrom:
    """The instant from which paced connections count, ns; answers :class:`ClientsMade`."""

    instant: int


@immutable
class SampleHost:
    """The workers to sample on this host, or None; answers :class:`ConsumersConnected`."""

    sampling: HostSampling | None


@immutable
class NextPhases:
    """The next phase of each workload, None for one that has none now; answers :class:`PhaseDone`.

    :param phases: None: the run has no more phases.
    """

    phases: tuple[StartPhase | None, ...] | None


@immutable
class CleanUp:
    """The permission to delete what the run has made on the target; answers :class:`ClientsClosed`.

    :param is_silent: the target went away or answers no more, so that it may fail.
    """

    is_silent: bool


@immutable
class Result:
    """The result of the run for the lead, None for the others; answers :class:`AwaitVerdict`."""

    result: RunResult | None


StepAnswer = (
    Shares | Continue | ConnectFrom | SampleHost | NextPhases | CleanUp | Result | ServiceStarted
)


# What a worker sends about one run.


@immutable
class Arrive:
    """The worker has reached the test, and waits for its role."""

    key: Key


@immutable
class Again:
    """The lead runs its test again: a rerun, which is a run of its own."""

    key: Key


@immutable
class Meet:
    """The worker has reached the meeting of a step."""

    key: Key
    step: RunStep


@immutable
class StoresSamples:
    """The worker is still storing its samples, and makes progress."""

    key: Key


@immutable
class ReportProgress:
    """The counts of one workload on this worker, a few times a second while it drives load."""

    key: Key
    progress: Progress


@immutable
class Command:
    """A request of the test's body.

    :param kind: the method of the handle: ``rate``, ``end``, ``disturb`` …
    """

    key: Key
    kind: str
    argument: Any


@immutable
class Failed:
    """The worker cannot continue."""

    key: Key
    error: Exception


@immutable
class Finished:
    """The lead has finished the test, with its reruns."""

    key: Key


@immutable
class SamplePart:
    """A part of a sample file of another host.

    :param target: the file at the controller.
    :param last: nothing follows.
    """

    key: Key
    target: Path
    part: bytes
    last: bool


RunMessage = Arrive | Again | Meet | StoresSamples | ReportProgress | Command | Failed | Finished


# What a worker sends about the session.


@immutable
class LoadItems:
    """The indexes of the load tests among the collected ones."""

    indexes: tuple[int, ...]


@immutable
class LeadsTest:
    """The worker leads the test.

    :param description: what the controller needs to report the test if this worker dies.
    """

    key: Key
    description: Any


@immutable
class UsageFound:
    """A usage error that the worker found while tests were collected."""

    text: str


@immutable
class HostFiles:
    """The machine of a worker on another host, and the hashes of the files that it would run."""

    machine: str
    hashes: Mapping[str, str]


@immutable
class ClockRead:
    """The host's clock, ns. :param number: that of the question."""

    number: int
    time: int


WorkerMessage = RunMessage | SamplePart | LoadItems | LeadsTest | UsageFound | HostFiles | ClockRead


# What the controller sends about one run.


@immutable
class TakeRole:
    """The worker takes part in the run. :param lead: it leads."""

    key: Key
    lead: bool


@immutable
class Release:
    """The worker is not needed in the run, or no longer."""

    key: Key


@immutable
class Answer:
    """The answer to a step, once all workers have reached its meeting.

    :param step: the step's class.
    """

    key: Key
    step: type[RunStep]
    answer: StepAnswer


@immutable
class EndPhase:
    """The phase of a workload is over: its drain has ended."""

    key: Key
    workload: str
    phase: str


@immutable
class ChangeLoad:
    """A change that all workers apply at one instant of the phase."""

    key: Key
    workload: str
    phase: str
    change: Change


@immutable
class CommandAnswer:
    """The answer to a :class:`Command`; an error is raised in the test's body."""

    key: Key
    answer: Any


@immutable
class AbortRun:
    """The run is given up."""

    key: Key
    error: Exception


# What the controller sends about the session.


@immutable
class ReadClock:
    """A question for the time of the host's clock."""

    number: int


@immutable
class SessionClosed:
    """The controller has gone away, or the connection to it: the end marker of the channel."""


ControllerMessage = (
    TakeRole
    | Release
    | Answer
    | EndPhase
    | ChangeLoad
    | CommandAnswer
    | AbortRun
    | ReadClock
    | SessionClosed
)
