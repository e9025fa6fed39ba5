"""Free ports."""

from __future__ import annotations

import socket

from pytest_loadtest.brokers import starting


def test_free_ports_differ_and_lie_below_the_ephemeral_ones() -> None:
    """So that no outgoing connection of the load can take a broker's port."""
    found = starting.free_ports(20)
    assert len(set(found)) == 20
    low, _ = starting.ephemeral_range()
    assert all(starting.LOWEST <= port < low for port in found) or low <= starting.LOWEST


def test_listens() -> None:
    """Something listens, or nothing does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert starting.listens("127.0.0.1", port)
    (free,) = starting.free_ports(1)
    assert not starting.listens("127.0.0.1", free)
