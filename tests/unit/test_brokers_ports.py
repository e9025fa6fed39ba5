"""Free ports."""

from __future__ import annotations

import socket

from pytest_loadtest.brokers import _ports


def test_free_ports_differ_and_lie_below_the_ephemeral_ones() -> None:
    """So that no outgoing connection of the load can take a broker's port."""
    ports = _ports.free_ports(20)
    assert len(set(ports)) == 20
    low, _ = _ports.ephemeral_range()
    assert all(_ports.LOWEST <= port < low for port in ports) or low <= _ports.LOWEST


def test_listens() -> None:
    """Something listens, or nothing does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert _ports.listens("127.0.0.1", port)
    (free,) = _ports.free_ports(1)
    assert not _ports.listens("127.0.0.1", free)
