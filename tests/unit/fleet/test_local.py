"""A fleet of one worker, with a controller that answers no meeting well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders.plans import loopback

from pytest_loadtest.errors import NoData, TargetError
from pytest_loadtest.fleet.link import Link
from pytest_loadtest.fleet.local import LocalFleet
from pytest_loadtest.fleet.messages import Arrive, ClaimShares, Part, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.fleet.messages import RunStep
    from pytest_loadtest.fleet.rendezvous import Rendezvous, StepAnswers
    from pytest_loadtest.fleet.run_states import Run


class Controller:
    """Fails at the first meeting."""

    rendezvous: Rendezvous

    def __init__(self) -> None:
        self.clocks = None
        self.requests: list[str] = []
        self.broken: list[str] = []

    def answer(self, run: Run, brought: Sequence[RunStep]) -> StepAnswers:
        (step,) = brought
        assert isinstance(step, ClaimShares)
        self.requests.append(step.request.nodeid)
        raise TargetError(f"no broker for {step.request.nodeid}")

    def gave_up(self, run: Run, error: Exception) -> None:
        self.broken.append(str(error))

    def ended(self, run: Run) -> None: ...


def request(nodeid: str, attempt: int = 1) -> Request:
    profile = loopback()
    return Request(
        nodeid=nodeid,
        attempt=attempt,
        profile=profile,
        parts=(Part(profile=profile),),
        source="p.yaml",
    )


def test_each_run_has_its_own_link_and_its_error_is_raised_to_the_test() -> None:
    """A broken run leaves nothing behind that the next one, or a rerun, could take for its own."""
    controller, links = Controller(), list[Link]()
    fleet = LocalFleet(controller)  # type: ignore[arg-type]
    assert controller.rendezvous is fleet.rendezvous
    for nodeid, attempt in (("a", 1), ("a", 2), ("b", 1)):
        with pytest.raises(TargetError, match=f"^no broker for {nodeid}$"):
            fleet.run(request(nodeid, attempt), links.append)
    assert controller.requests == ["a", "a", "b"]
    assert [link.key for link in links] == [(0, 1), (1, 2), (2, 1)]
    assert all(run.ended and run.members == ("main",) for run in fleet.rendezvous.runs.values())
    assert controller.broken == ["no broker for a", "no broker for a", "no broker for b"]


def test_a_fleet_that_is_closed_gives_up_what_runs() -> None:
    controller = Controller()
    fleet = LocalFleet(controller)  # type: ignore[arg-type]
    fleet.rendezvous.receive("main", Arrive((0, 1)))
    fleet.close()
    assert isinstance(fleet.rendezvous.runs[0, 1].error, NoData)
    assert controller.broken == ["the session ends"]
