"""What crosses between controller and workers of one run, besides progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import DriverFacts, TargetAddress
    from pytest_loadtest.phases import Phase
    from pytest_loadtest.plan import Assignment
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.result import Load
    from pytest_loadtest.topology import TopicSpec


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
    """

    nodeid: str
    attempt: int
    profile: Profile
    parts: tuple[Part, ...]
    source: str
    broker: str | None = None
    target: str | None = None
    admin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one worker has to do for one workload.

    :param workload: its name where there are several, otherwise empty. :param bounds: latencies that the controller wants to hear about
        while load runs, ns. :param consumers: of each subscription.
    """

    workload: str
    run: str
    nonce: int
    worker: str
    profile: Profile
    payload_file: bytes | None
    assignment: Assignment
    topics: tuple[TopicSpec, ...]
    target: TargetAddress
    ordered: bool
    bounds: tuple[int, ...]
    consumers: int
    opened: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOrder:
    """The next phase of one workload. :param start: ns. :param folder: where its samples go; None where none are kept."""

    phase: Phase
    start: int
    folder: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDone:
    """What a worker says of one workload's phase when its samples are closed.

    :param ends: one past each stream's last sequence. :param marks: by stream, the first sequence from each change on: ``(ns, sequence)``.
    :param disconnected: what had no connection when the drain ended.
    """

    ends: Mapping[int, int]
    marks: Mapping[int, tuple[tuple[int, int], ...]]
    disconnected: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a worker says when its part of a workload is over."""

    facts: DriverFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the lead gets: the result for the test and the properties for JUnit."""

    load: Load
    properties: tuple[tuple[str, Any], ...]
