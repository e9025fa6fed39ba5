"""The addresses on which processes listen."""

from __future__ import annotations

import psutil


def listening(pid: int) -> set[str]:
    """Return the addresses (without ports) on which a process and its children listen."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    sockets = [connection for one in family for connection in one.net_connections("inet")]
    return {
        connection.laddr.ip for connection in sockets if connection.status == psutil.CONN_LISTEN
    }


def peers(pid: int) -> list[str]:
    """Return the addresses from which a process and its children are connected to, one for each connection."""
    process = psutil.Process(pid)
    sockets = [
        connection
        for one in [process, *process.children(recursive=True)]
        for connection in one.net_connections("inet")
    ]
    served = {
        connection.laddr.port for connection in sockets if connection.status == psutil.CONN_LISTEN
    }
    open_ones = [
        connection
        for connection in sockets
        if connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port in served
    ]
    return sorted(connection.raddr.ip.removeprefix("::ffff:") for connection in open_ones)


def other_addresses() -> list[str]:
    """Return this machine's IPv4 addresses that are not loopback, including those of containers' bridges."""
    every = [address for addresses in psutil.net_if_addrs().values() for address in addresses]
    return [
        one.address
        for one in every
        if one.family.name == "AF_INET" and not one.address.startswith("127.")
    ]
