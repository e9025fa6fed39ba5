"""Connections from a given source address, for drivers that open their own sockets."""

from __future__ import annotations

import socket
from typing import Final

# IP_BIND_ADDRESS_NO_PORT in linux/in.h: connect() chooses the port, so that a port can serve several destinations. Linux reads it for
# IPv6 sockets, too.
_BIND_ADDRESS_NO_PORT: Final = 24


def source_family(source: str | None) -> socket.AddressFamily:
    """Return the family of addresses that can be reached from a source address; any family if the system chooses the source (None)."""
    if source is None:
        return socket.AF_UNSPEC
    return socket.AF_INET6 if ":" in source else socket.AF_INET


def bind_to_source(sock: socket.socket, source: str | None) -> None:
    """Let a socket connect from an address; do nothing if it is None.

    :raises OSError: this machine does not have the address, or it is of another family than the socket's.
    """
    if source is None:
        return
    try:
        sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
    except OSError as error:
        raise OSError(error.errno, f"cannot connect from {source}: {error.strerror or error}") from error


def connect_from(host: str, port: int, timeout: float, source: str | None) -> socket.socket:
    """Connect to the first of a host's addresses that answers. :param timeout: seconds for each. :param source: None: the system chooses.

    :raises OSError: none answers, or the host has no address of the family of ``source``.
    """
    if source is None:
        return socket.create_connection((host, port), timeout)
    try:
        addresses = socket.getaddrinfo(host, port, source_family(source), socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot connect from {source}: {error.strerror}") from error
    failure: OSError | None = None
    for family, kind, _, _, address in addresses:
        sock = socket.socket(family, kind)
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
    raise OSError(failure.errno, f"cannot connect from {source}: {failure.strerror or failure}") from failure
