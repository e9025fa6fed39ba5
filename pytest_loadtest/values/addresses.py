"""Addresses without credentials: these belong to the profile's driver, whose secrets are in no result."""

from __future__ import annotations

import contextlib
import ipaddress
import re

from pytest_loadtest.errors import UsageError

NO_USER = "an address must not have a user or a password"
INSTEAD = "write driver.username and driver.password (MQTT), or driver.authentication (Pulsar)"


def masked(address: str) -> str:
    """``mqtt://user:secret@host`` → ``mqtt://***@host``: everything up to the last ``@``, because a password may contain one."""
    return re.sub(r"^([a-z+]*://)?.*@", r"\1***@", address, flags=re.DOTALL)


def check_address(address: str | None, what: str) -> None:
    """Reject an address with credentials before it is shown anywhere. :param what: the option or key that has it.

    :raises UsageError: the address has a user or a password; the message has it masked.
    """
    if address is not None and "@" in address:
        raise UsageError(f"{what} {masked(address)}: {NO_USER}: {INSTEAD}")


def is_loopback(host: str) -> bool:
    """Return true if a host's name or address is this machine's loopback; names are not looked up."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
