"""Connections from a given source address, for drivers that open their own sockets."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any, Final

from pytest_loadtest.brokers.starting import ephemeral_range

# IP_BIND_ADDRESS_NO_PORT in linux/in.h: connect() chooses the port, so that a port can serve
# several destinations. Linux reads it for IPv6 sockets, too.
_BIND_ADDRESS_NO_PORT: Final = 24


def addresses_from(
    host: str, port: int, source: str | None
) -> list[tuple[socket.AddressFamily, Any]]:
    """Return the addresses of a host that a source address can reach, with their families.

    :param source: None: any.
    :raises OSError: none is known.
    """
    if source is None:
        family = socket.AF_UNSPEC
    elif ":" in source:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET
    try:
        return [
            (one, address)
            for one, _, _, _, address in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        ]
    except socket.gaierror as error:
        if source is None:
            raise
        name = "IPv6" if family == socket.AF_INET6 else "IPv4"
        raise OSError(
            error.errno,
            f"cannot connect from {source}: no {name} address of {host} is known"
            f" ({error.strerror})",
        ) from error


def bind_to_source(sock: socket.socket, source: str | None) -> None:
    """Let a socket connect from an address; do nothing if it is None.

    :raises OSError: this machine does not have the address, or it
        is of another family than the socket's.
    """
    if source is None:
        return
    try:
        sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
    except OSError as error:
        raise OSError(
            error.errno, f"cannot connect from {source}: {error.strerror or error}"
        ) from error


def connect_error(number: int, source: str | None) -> str:
    """Return the text for an error of connect().

    :param source: the socket's source address; None: the system chose it.
    """
    reason = os.strerror(number)
    # The address itself is this machine's: bind() would have failed. So its ports are used up.
    if number != errno.EADDRNOTAVAIL:
        return reason
    low, high = ephemeral_range()
    return (
        f"{reason}: {source or 'this address'} has {high - low + 1:,} ports for connections to one"
        " destination "
        "(net.ipv4.ip_local_port_range), and a connection that was closed here keeps its port for"
        " a minute: widen it, or use more "
        "source addresses (sourceAddresses in the file of hosts)"
    )


def connect_from(host: str, port: int, timeout: float, source: str | None) -> socket.socket:
    """Connect to the first of a host's addresses that answers.

    :param timeout: seconds for each.
    :param source: None: the system chooses.
    :raises OSError: none answers, or the host has no address of the family of ``source``.
    """
    if source is None:
        return socket.create_connection((host, port), timeout)
    failure: OSError | None = None
    for family, address in addresses_from(host, port, source):
        sock = socket.socket(family)
        sock.settimeout(timeout)
        try:
            bind_to_source(sock, source)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    assert failure is not None, "getaddrinfo() returns an address, or raises"
    raise OSError(
        failure.errno, f"cannot connect from {source}: {failure.strerror or failure}"
    ) from failure
