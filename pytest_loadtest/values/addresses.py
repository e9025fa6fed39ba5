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


STORES = ("s3", "gs", "abfs", "abfss", "hdfs", "file")
CREDENTIALS = {"s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION", "gs": "GOOGLE_APPLICATION_CREDENTIALS"}


def check_samples_location(location: str, what: str) -> None:
    """Reject a URI of samples that cannot be used, or that may contain a secret, without showing it. :param what: the option or ini key.

    :raises UsageError: the store is unknown, or the URI has a user, a password, a query or a fragment.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:  # a path
        return
    if scheme not in STORES or not rest.startswith("//") or not rest.strip("/"):
        shown = f"{scheme}://" if rest.startswith("//") else "***"  # without slashes it may be a user or a password
        raise UsageError(f"{what} {shown}…: write s3://BUCKET/PREFIX, the path of a shared folder, or a URI of {', '.join(STORES[1:])}")
    if re.search("[@?#]", rest):
        azure = "; write abfs://ACCOUNT.dfs.core.windows.net/CONTAINER/PREFIX" if scheme.startswith("abfs") else ""
        raise UsageError(
            f"{what} {scheme}://***: a URI of samples must not have a user, a password, a query or a fragment: credentials come from the"
            f" environment ({CREDENTIALS.get(scheme, 'see the documentation of the store')}){azure}"
        )


def is_loopback(host: str) -> bool:
    """Return true if a host's name or address is this machine's loopback; names are not looked up."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
