"""The messages between the controller and the workers of one run, besides progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_loadtest.drivers.base import DriverFacts, TargetAddress
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
    """What a test asks for.

    :param nodeid: of the test. :param profile: as the file has it. :param parts: its workloads, which run together; mostly one.
    :param source: the profile's file, as shown in results. :param broker: mode, URL and admin URL from the marker, None where it has none.
    :param security_line: of ``target.security`` in that file; None where it has none. :param broker_line: of ``driver.broker``.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadAssignment:
    """One worker's assignment in one workload.

    :param workload: its name where there are several, otherwise empty. :param bounds: latencies that the controller wants to hear about
        while load runs, ns. :param opened: consumers of each subscription that are connected before load begins.
    :param disk: bytes that the plan needs for the samples of all workers. :param rate: msg/s, all streams together, on the average.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPhase:
    """The next phase of one workload, to be started.

    :param start: ns. :param folder: where its samples go; None where none are kept. :param wall: wall clock less the run's, ns.
    """

    phase: Phase
    start: int
    folder: Path | None
    wall: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFinished:
    """What a worker says of one workload's phase when its samples are closed.

    :param ends: one past the last sequence of each of the worker's streams, in the order of its assignment.
    :param marks: for each change ``(ns after the start, first sequence of each of those streams from then on)``, in the order in which the
        worker worked them in. :param disconnected: what had no connection when the drain ended.
    """

    ends: NDArray[np.int64]
    marks: tuple[tuple[int, NDArray[np.int64]], ...]
    disconnected: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A worker's report at the end of its part of a workload."""

    facts: DriverFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What the lead gets: the result for the test and the properties for JUnit."""

    load: Load
    properties: tuple[tuple[str, Any], ...]
