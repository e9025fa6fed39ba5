"""Free ports, and the wait until a broker is ready."""

from __future__ import annotations

import socket

import pytest

from pytest_loadtest.brokers import starting
from pytest_loadtest.errors import TargetError


def test_free_ports_differ_and_lie_below_the_ephemeral_ones() -> None:
    """No outgoing connection of the load can take a broker's port."""
    found = starting.free_ports(20)
    assert len(set(found)) == 20
    low, _ = starting.ephemeral_range()
    assert all(starting.LOWEST <= port < low for port in found) or low <= starting.LOWEST


def test_only_a_port_with_a_listener_listens() -> None:
    """A connection is accepted while a server runs there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert starting.listens("127.0.0.1", port)
    (free,) = starting.free_ports(1)
    assert not starting.listens("127.0.0.1", free)


class Dying:
    """A broker that ends at once with these last lines in its log."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.abandoned = False

    def failure(self) -> str | None:
        return "exited with status 1"

    def tail(self) -> str:
        return self.words

    def stop(self) -> None:
        raise AssertionError("its log has to be kept")

    def abandon(self) -> None:
        self.abandoned = True


def test_the_error_of_a_failed_start_has_the_log() -> None:
    """The log is kept."""
    dying = Dying("bad option\nunknown key")
    with pytest.raises(
        TargetError, match=r"x did not start: exited with status 1\nbad option\nunknown key"
    ):
        starting.wait_ready(dying, lambda: False, "x", 60, print)
    assert dying.abandoned


def test_only_a_taken_port_leads_to_another_attempt() -> None:
    """The number of attempts is limited."""
    attempts: list[tuple[int, ...]] = []

    def launch(ports: tuple[int, ...]) -> starting.StartedBroker:
        attempts.append(ports)
        starting.wait_ready(
            Dying("Error: Address already in use"),
            lambda: False,
            "x",
            60,
            print,
        )
        raise AssertionError

    with pytest.raises(starting.PortTakenError):
        starting.on_free_ports(2, launch)
    assert len(attempts) == starting.ATTEMPTS
    assert all(len(set(ports)) == 2 for ports in attempts)
