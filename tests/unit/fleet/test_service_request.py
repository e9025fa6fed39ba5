"""A service as a test requests it."""

from __future__ import annotations

import pickle

import pytest

from pytest_loadtest.fleet.service_request import ServiceRequest


def request(*command: str) -> ServiceRequest:
    return ServiceRequest(command=command, ready="ready", timeout=1, env=(("A", "b"),))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("/usr/bin/python3.11", "-u", "apps/orders.py", "--port", "1"), "orders.py"),
        (("java", "-jar", "orders.jar"), "orders.jar"),
        (("./orders", "config.yaml"), "orders"),
        (("python", "-V"), "python"),
    ],
)
def test_a_service_has_the_name_of_its_program_or_script(
    command: tuple[str, ...], name: str
) -> None:
    assert request(*command).name == name


def test_the_text_of_a_command_has_no_secret_of_an_address() -> None:
    made = request("orders", "mqtt://me:secret@host:1", "two words")
    assert made.text == "orders mqtt://***@host:1 'two words'"


def test_equal_requests_of_two_processes_are_equal() -> None:
    """The controller compares those of all workers."""
    made = request("orders")
    received = pickle.loads(pickle.dumps(made))
    assert received == made
    assert hash(received) == hash(made)
