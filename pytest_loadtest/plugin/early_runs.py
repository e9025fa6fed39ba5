"""Runs that the fixtures of a test begin before its load: ``load_target`` and ``load_service``.

Called by the session in the process of each worker, while fixtures are set up and torn down. What a
run is known by during a test is kept in the stash of its item.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.errors import BrokenRun, GeneratorLimited, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_loadtest.fixture.services import LoadTarget
    from pytest_loadtest.fleet.link import Link
    from pytest_loadtest.fleet.member import WorkerRun
    from pytest_loadtest.fleet.messages import Request, RunResult
    from pytest_loadtest.fleet.service_request import Service, ServiceRequest

EARLY: pytest.StashKey[WorkerRun] = pytest.StashKey()
"""The run that fixtures of the test have begun."""
SET_UP = pytest.StashKey[bool]()
"""There if the fixture ``load`` of this attempt was set up."""
PROPERTIES = pytest.StashKey[list[tuple[str, object]]]()
"""The properties of the test that are about its run."""
BROKEN = pytest.StashKey[BrokenRun]()
"""The error of the test's run."""


def add_properties(item: pytest.Item, properties: list[tuple[str, object]]) -> None:
    """Add properties of its run to a test."""
    item.user_properties += properties
    item.stash[PROPERTIES] += properties


def remove_properties(item: pytest.Item) -> None:
    """Remove the properties of an earlier attempt's run from a test, and none of the user's."""
    earlier = [id(pair) for pair in item.stash.get(PROPERTIES, ())]
    item.user_properties[:] = [pair for pair in item.user_properties if id(pair) not in earlier]
    item.stash[PROPERTIES] = []


def begin_early(
    item: pytest.Item, request: Request, begin: Callable[[Request], WorkerRun]
) -> LoadTarget:
    """Begin the run of a test, but not its load; return the value of ``load_target``.

    :param begin: begins a run in the fleet of this process.
    """
    from pytest_loadtest.fixture.services import LoadTarget

    if len(request.parts) > 1:
        raise UsageError(
            f"{item.nodeid}: load_target: several workloads run together, each with a target of its"
            " own: give each a test of its own"
        )
    with noting_broken(item), _skipping_released():
        early = item.stash[EARLY] = begin(request)
        early.prepare()
        return LoadTarget(early.link.assignments[0], early.topic_names())


def start_service(item: pytest.Item, service: ServiceRequest) -> Service:
    """Start a service for a test, once for all workers."""
    __tracebackhide__ = True
    ensure_before_load(item, "load_service")
    with noting_broken(item), _skipping_released():
        return item.stash[EARLY].start_service(service)


def go_on(early: WorkerRun, on_link: Callable[[Link], None] | None) -> RunResult | None:
    """Drive the load of a run that fixtures have begun; return its result on the lead.

    :param on_link: called with this worker's connection before the load begins.
    """
    from pytest_loadtest.fleet.link import Released

    if on_link is not None:
        on_link(early.link)
    try:
        return early.drive()
    except Released:
        return None


def end_early(item: pytest.Item) -> None:
    """End the run that fixtures of a test have begun, with its services."""
    early = item.stash.get(EARLY, None)
    if early is not None:
        early.close()


def ensure_before_load(item: pytest.Item, fixture: str) -> None:
    """Check that a fixture is used before the load.

    :raises UsageError: it is not.
    """
    if SET_UP in item.stash:
        raise UsageError(
            f"{item.nodeid}: {fixture} was used after the fixture `load` was set up: use it in a"
            " fixture that the test has as an argument, and that needs no `load`"
        )


@contextlib.contextmanager
def noting_broken(item: pytest.Item) -> Iterator[None]:
    """Note on a test that its run broke."""
    try:
        yield
    except BrokenRun as error:
        # not by the fixture record_property: it warns with junit_family=xunit2, pytest's default
        outcome = "generator-limited" if isinstance(error, GeneratorLimited) else "no data"
        add_properties(item, [("load.outcome", outcome), ("load.reason", str(error))])
        item.stash[BROKEN] = error
        raise


@contextlib.contextmanager
def _skipping_released() -> Iterator[None]:
    """Skip the rest of the setup on a member whose lead has ended the test."""
    from pytest_loadtest.fleet.link import Released

    try:
        yield
    except Released:
        pytest.skip("the run of this test has ended without this worker")
