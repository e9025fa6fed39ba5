"""Addresses as texts. Who a client is belongs to the profile's driver, whose secrets no result has: an address says only where."""

from __future__ import annotations

import contextlib
import ipaddress
import re

from pytest_loadtest.errors import UsageError

NO_USER = "an address has no user and no password"
INSTEAD = "write driver.username and driver.password (MQTT), or driver.authentication (Pulsar)"


def masked(address: str) -> str:
    """``mqtt://user:secret@host`` → ``mqtt://***@host``: all up to the last ``@``, for a password may hold anything."""
    return re.sub(r"^([a-z+]*://)?.*@", r"\1***@", address, flags=re.DOTALL)


def check_address(address: str | None, what: str) -> None:
    """Refuse an address that says who somebody is, before it is shown anywhere. :param what: where it was given.

    :raises UsageError: it has a user or a password; with the address masked.
    """
    if address is not None and "@" in address:
        raise UsageError(f"{what} {masked(address)}: {NO_USER}: {INSTEAD}")


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's loopback, whatever its name service says."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
