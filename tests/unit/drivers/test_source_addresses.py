"""Connections from a given address."""

from __future__ import annotations

import errno
import socket

import pytest

from pytest_loadtest.brokers.starting import ephemeral_range
from pytest_loadtest.drivers.source_addresses import bind_to_source, connect_error, connect_from

FOREIGN = "192.0.2.1"  # for documentation (RFC 5737): no machine has it


@pytest.mark.parametrize(
    ("host", "source"), [("127.0.0.1", "127.0.0.5"), ("::1", "::1"), ("127.0.0.1", None)]
)
def test_a_server_sees_the_source_address(host: str, source: str | None) -> None:
    """IPv6 works as IPv4 does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as server,
        connect_from(host, server.getsockname()[1], 5, source) as connected,
    ):
        peer, address = server.accept()
        peer.close()
        assert address[:2] == connected.getsockname()[:2]
        assert address[0] == (source or host)


def test_a_port_serves_several_destinations() -> None:
    """The system chooses it when the connection begins, not before: otherwise each would need a port of its own."""
    with socket.socket() as sock:
        bind_to_source(sock, "127.0.0.5")
        assert sock.getsockname() == ("127.0.0.5", 0)


def test_an_address_that_this_machine_does_not_have_is_named() -> None:
    message = rf"cannot connect from {FOREIGN}: .*assign requested address"
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(OSError, match=message):
        connect_from("127.0.0.1", server.getsockname()[1], 5, FOREIGN)


def test_an_address_without_a_free_port_is_named_with_the_number_of_its_ports() -> None:
    """The system's own text is the same as for an address that this machine does not have."""
    low, high = ephemeral_range()
    text = connect_error(errno.EADDRNOTAVAIL, "127.0.0.5")
    assert text.startswith(
        f"Cannot assign requested address: 127.0.0.5 has {high - low + 1:,} ports for connections to one destination (net.ipv4.ip_local"
    )
    assert text.endswith(
        ": widen it, or use more source addresses (sourceAddresses in the file of hosts)"
    )
    assert "this address has" in connect_error(errno.EADDRNOTAVAIL, None)
    assert connect_error(errno.ECONNREFUSED, None) == "Connection refused"


def test_an_address_of_another_family_is_named() -> None:
    """The target's name has none of its family."""
    with pytest.raises(
        OSError,
        match=r"cannot connect from ::1: no IPv6 address of 127\.0\.0\.1 is known \(Address family",
    ):
        connect_from("127.0.0.1", 1, 5, "::1")


def test_a_target_that_does_not_answer_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(
        ConnectionRefusedError, match=r"cannot connect from 127\.0\.0\.5: Connection refused"
    ):
        connect_from("127.0.0.1", port, 5, "127.0.0.5")
