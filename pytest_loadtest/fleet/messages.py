"""The payloads of the messages between the controller and the workers of one run, other than progress.

Created on one side and read on the other, pickled between processes under xdist. All are frozen: no side changes what the other one holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import TargetAddress
    from pytest_loadtest.metrics.clocks import ClockLine
    from pytest_loadtest.plan.phases import Phase
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.results.load import Load
    from pytest_loadtest.schedule.topology import Assignment, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One workload of a request. :param payload_file: content of the profile's payloadFile."""

    profile: Profile
    payload_file: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The load that a test requests.

    :param nodeid: the test's. :param profile: the content of the file. :param parts: its workloads, which run together; mostly one.
    :param source: the path of the profile, as shown in results. :param broker: the mode that the marker sets, or None.
    :param target: the marker's URL, or None. :param admin: the marker's admin URL, or None.
    :param security_line: the line of ``target.security`` in the file, or None. :param broker_line: the line of ``driver.broker``, or None.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A request of the test's body to end, start or restart the target.

    :param action: ``kill``, ``start`` or ``restart``. :param role, number: one process of a cluster; number None: the whole target.
    :param kill: restart with SIGKILL.
    """

    action: str
    role: str = "broker"
    number: int | None = None
    kill: bool = False

    @property
    def text(self) -> str:
        """``restarting``, or ``killing broker 2 of``: the target's description follows."""
        verb = {"kill": "killing", "start": "starting", "restart": "restarting"}[self.action]
        return verb if self.number is None else f"{verb} {self.role} {self.number} of"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadAssignment:
    """One worker's share of one workload.

    :param workload: its name if there are several, otherwise empty. :param bounds: latencies, ns, whose exceedances the controller counts
        while load runs. :param opened: consumers of each subscription that are connected before load begins.
    :param disk: bytes that the plan needs for the samples of all workers. :param rate: msg/s, all streams together, on average.
    :param clock: relation of the worker's clock to the controller's; None on the controller's host.
    :param sources: addresses that the worker's connections come from, in turn; empty: the system chooses.
    :param timely_bounds: latencies, ns; the worker reports by second how many copies took no longer, for the last ``timely_seconds``.
    """

    workload: str
    run: str
    nonce: int
    worker: str
    profile: Profile
    payload_file: bytes | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLocation:
    """A worker's process, so that it can be sampled.

    :param pid: its process id, as in its /proc. :param processes: the namespace of this id. :param network: the namespace of its sockets.
        Each has a name that no other namespace has on any host.
    """

    pid: int
    processes: str
    network: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSampling:
    """The samples that one worker takes of workers on its host, itself the first of them.

    :param host: its name. :param workers: process ids by worker, all in one namespace. :param addresses: host and port of each target, by
        workload; empty if the sockets are sampled elsewhere.
    """

    host: str
    workers: Mapping[str, int]
    addresses: Mapping[str, Sequence[tuple[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPhase:
    """The next phase of one workload, to be started.

    :param start: ns. :param folder: the folder for its samples; None if none are kept. :param wall: wall clock minus the run's clock, ns.
    :param clock: relation of the worker's clock to the controller's; None on the controller's host.
    :param samples: the place of the samples when the phase is over, if it is not the folder: a path, or a URI.
    """

    phase: Phase
    start: int
    folder: Path | None
    wall: int = 0
    clock: ClockLine | None = None
    samples: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFinished:
    """A worker's report on one workload's phase, when its samples are closed.

    :param ends: one past the last sequence of each of the worker's streams, in the order of its assignment.
    :param marks: for each change ``(ns after the start, first sequence of each of those streams from then on)``, in the order in which the
        worker applied them. :param disconnected: the clients without a connection when the drain ended; None if there were none.
    :param answered: the target acknowledged or delivered a message in the phase. :param unanswered: it left messages without an answer.
    """

    ends: NDArray[np.int64]
    marks: tuple[tuple[int, NDArray[np.int64]], ...]
    disconnected: str | None
    answered: bool
    unanswered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run for the test, and its properties for JUnit; sent to the lead."""

    load: Load
    properties: tuple[tuple[str, Any], ...]
