"""What crosses between controller and workers of one run, besides progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import DriverFacts, TargetAddress
    from pytest_loadtest.plan import Assignment, Phase
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.result import Load
    from pytest_loadtest.topology import TopicSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a test asks for.

    :param nodeid: of the test. :param source: the profile's file, as shown in results. :param payload_file: content of the profile's
        payloadFile.
    :param broker: mode, URL and admin URL from the marker, None where it has none.
    """

    nodeid: str
    attempt: int
    profile: Profile
    source: str
    payload_file: bytes | None = None
    broker: str | None = None
    target: str | None = None
    admin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one worker has to do."""

    run: str
    nonce: int
    worker: str
    profile: Profile
    payload_file: bytes | None
    assignment: Assignment
    phases: tuple[Phase, ...]
    topics: tuple[TopicSpec, ...]
    target: TargetAddress
    folder: Path
    ordered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a worker says when its samples are closed. :param disconnected: what had no connection when the drain ended."""

    disconnected: str | None
    facts: DriverFacts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the lead gets: the result for the test and the properties for JUnit."""

    load: Load
    properties: tuple[tuple[str, Any], ...]
