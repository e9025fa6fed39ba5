"""The steps that the fixtures of a test add to its run."""

from __future__ import annotations

from pytest_loadtest.fleet.messages import ClaimShares, ConsumersConnected, PhaseDone
from pytest_loadtest.fleet.service_request import ServiceRequest
from pytest_loadtest.fleet.setup_steps import BeginLoad, StartService, different_steps


def step(*command: str, ready: str = "ready") -> StartService:
    return StartService(ServiceRequest(command=command, ready=ready, timeout=1))


def test_workers_meet_for_one_service() -> None:
    """Another command, or another way to see that it is ready, is another meeting."""
    assert step("a").meeting == step("a").meeting
    assert len({step("a").meeting, step("b").meeting, step("a", ready="up").meeting}) == 3
    assert BeginLoad().meeting == BeginLoad().meeting


def test_steps_of_the_setup_come_when_the_test_comes_to_them() -> None:
    assert all(kind.in_setup for kind in (ClaimShares, StartService, BeginLoad))
    assert not any(kind.in_setup for kind in (ConsumersConnected, PhaseDone))


def test_an_error_about_different_steps_names_workers_and_commands() -> None:
    text = different_steps(("gw0", step("orders", "a b")), ("gw1", BeginLoad()))
    assert "worker gw0 would start the service `orders 'a b'`, and worker gw1 would begin" in text


def test_services_that_differ_only_in_details_are_said_to_do_so() -> None:
    text = different_steps(("gw0", step("orders")), ("gw1", step("orders", ready="up")))
    assert "start the service `orders` with another environment, ready or timeout: " in text
