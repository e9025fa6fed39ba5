"""Addresses without credentials: these belong to the profile's driver, whose secrets are in no
result.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from urllib.parse import unquote

from pytest_loadtest.errors import UsageError

NO_USER = "an address must not have a user or a password"
INSTEAD = "write driver.username and driver.password (MQTT), or driver.authentication (Pulsar)"

_USER = re.compile(r"^([\w+.:-]*?://)?.*@", re.DOTALL)
"""Everything up to the last ``@``, because a password may contain one."""
_PARAMETER = re.compile(r"([;?&][^=;?&#/]*=)([^;?&#]*)")
"""A parameter of a URI, ``?name=value``, or of Spark Connect, ``;name=value``."""
_SECRET_NAME = re.compile(r"token|pass|pwd|secret|key|auth|cred|sign|sig=|user", re.IGNORECASE)
_IN_TEXT = re.compile(r"[A-Za-z][\w+.:-]*://[^\s'\"<>]+")
HIDDEN = "***"


def masked(address: str) -> str:
    """Return an address for display, without user and password, and without the values of its
    parameters.

    ``mqtt://user:secret@host`` → ``mqtt://***@host``, ``sc://host:15002/;token=secret`` →
    ``sc://host:15002/;token=***``.
    """
    without_user = _USER.sub(rf"\1{HIDDEN}@", address)
    if "://" not in without_user:
        return without_user
    return _PARAMETER.sub(rf"\1{HIDDEN}", without_user)


def masked_text(text: str, *addresses: str) -> str:
    """Return a text for display, such as the error of a library, with each address in it masked.

    :param addresses: known ones, whose secrets are hidden wherever they are in the text.
    """
    shown = _IN_TEXT.sub(lambda match: masked(match[0]), text)
    secrets = set()
    for address in addresses:
        for secret in _secrets(address):
            secrets |= {secret, unquote(secret)}
    # The longest first: one may be a part of another.
    for secret in sorted(secrets, key=len, reverse=True):
        shown = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, shown)
    return shown


def _secrets(address: str) -> list[str]:
    """Return user, password and parameter values of an address."""
    user = address.rpartition("://")[2].rpartition("@")[0]
    values = [user, *user.partition(":")[::2]]
    values += [match[2] for match in _PARAMETER.finditer(address)]
    return list(filter(None, values))


def has_secret(address: str) -> bool:
    """Return whether an address has a user, a password, or a parameter whose name says that it is
    secret.
    """
    parameters = (match[1] for match in _PARAMETER.finditer(address))
    return "@" in address or any(map(_SECRET_NAME.search, parameters))


def check_address(address: str | None, what: str) -> None:
    """Reject an address with credentials before it is shown anywhere.

    :param what: the option or key that has it.

    :raises UsageError: the address has a user, a password or a secret parameter; the message has it
        masked.
    """
    if address is not None and has_secret(address):
        raise UsageError(f"{what} {masked(address)}: {NO_USER}: {INSTEAD}")


STORES = ("s3", "gs", "abfs", "abfss", "hdfs", "file")
CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


def check_samples_location(location: str, what: str) -> None:
    """Reject a URI of samples that cannot be used, or that may contain a secret, without showing
    it.

    :param what: the option or ini key.

    :raises UsageError: the store is unknown, or the URI has a user, a password, a query or a
        fragment.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:  # a path
        return
    if scheme not in STORES or not rest.startswith("//") or not rest.strip("/"):
        # without slashes the scheme may be a user or a password
        shown = f"{scheme}://" if rest.startswith("//") else "***"
        raise UsageError(
            f"{what} {shown}…: write s3://BUCKET/PREFIX, the path of a shared folder,"
            f" or a URI of {', '.join(STORES[1:])}"
        )
    if re.search("[@?#]", rest):
        variables = CREDENTIALS.get(scheme, "see the documentation of the store")
        error = (
            f"{what} {scheme}://***: a URI of samples must not have a user, a password, a query"
            f" or a fragment: credentials come from the environment ({variables})"
        )
        if scheme.startswith("abfs"):
            error += "; write abfs://ACCOUNT.dfs.core.windows.net/CONTAINER/PREFIX"
        raise UsageError(error)


def is_loopback(host: str) -> bool:
    """Return true for the name or address of this machine's loopback; names are not looked up."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
