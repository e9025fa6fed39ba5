"""Free ports for brokers, and whether something listens."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST = 20_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def ephemeral_range() -> tuple[int, int]:
    """The ports the kernel gives to outgoing connections, first and last; the Linux default where it cannot be read."""
    try:
        low, high = _RANGE.read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999
    return int(low), int(high)


def free_ports(count: int) -> tuple[int, ...]:
    """Different TCP ports that are free on 127.0.0.1 now.

    Below the ephemeral range where possible: a load test opens thousands of outgoing connections, any of which could take an
    ephemeral port before the broker binds it; and a client that connects to an ephemeral port where nothing listens may be given that very
    port to connect from, and is then connected to itself.
    """
    high = ephemeral_range()[0]
    candidates = random.sample(range(LOWEST, high), min(200, high - LOWEST)) if high > LOWEST else []
    found: list[int] = []
    for port in [*candidates, *([0] * count)]:
        if len(found) == count:
            break
        found += _bindable(port)
    return tuple(found)


def _bindable(port: int) -> list[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return []
        return [probe.getsockname()[1]]


def listens(host: str, port: int, timeout: float = 1.0) -> bool:
    """Whether a TCP connection is accepted there."""
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return False
    return True
