"""Free ports."""

from __future__ import annotations

import socket

from pytest_loadtest.brokers import ports


def test_free_ports_differ_and_lie_below_the_ephemeral_ones() -> None:
    """So that no outgoing connection of the load can take a broker's port."""
    found = ports.free_ports(20)
    assert len(set(found)) == 20
    low, _ = ports.ephemeral_range()
    assert all(ports.LOWEST <= port < low for port in found) or low <= ports.LOWEST


def test_listens() -> None:
    """Something listens, or nothing does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ports.listens("127.0.0.1", port)
    (free,) = ports.free_ports(1)
    assert not ports.listens("127.0.0.1", free)
