"""The file of ``--load-hosts``: hosts that generate load, and the command that reaches each."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from pytest_loadtest.errors import ProfileError, did_you_mean, sorted_problems
from pytest_loadtest.profile.explain import explain_error, keys
from pytest_loadtest.profile.fields import Section, invalid_field
from pytest_loadtest.profile.text import Document, read_yaml

_BITS = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)bit/s")
_FACTORS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
"""Text that every shell passes on as it is. ``ssh`` hands its arguments to a shell of the remote
host, ``kubectl exec`` hands them to the process: only text that no shell changes reaches both
alike."""


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]*(-[A-Za-z0-9_.]+)*", text):
        message = f"{text!r} is not a name of a host"
        raise invalid_field(message, "use letters, digits, dots, dashes and underscores")
    return text


def _words(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        message = f"{text!r} cannot be split into words: {error}"
        raise invalid_field(message, "close the quote") from None
    if not words:
        remedy = "write the command that runs a program on the host, for example ssh build1"
        raise invalid_field("the command is empty", remedy)
    return text


def parse_bits(text: str) -> float:
    """Parse a rate in bit/s.

    :raises ValueError: it is none.
    """
    match = _BITS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a bandwidth")
    return float(match[1]) * _FACTORS[match[2]]


def _bits(text: str) -> str:
    try:
        parse_bits(text)
    except ValueError as error:
        raise invalid_field(str(error), "write a number and a unit: 10Gbit/s, 500Mbit/s") from None
    return text


def _plain(text: str) -> str:
    if not _SAFE.fullmatch(text):
        message = f"{text!r} has characters that a shell on the host could change"
        raise invalid_field(message, "use letters, digits and _@%+=:,./-")
    return text


def _address(text: str) -> str:
    remedy = "write addresses of the host, for example 10.0.0.5"
    try:
        address = ip_address(text)
    except ValueError:
        raise invalid_field(f"{text!r} is not an IP address", remedy) from None
    if address.is_unspecified or address.is_multicast:
        raise invalid_field(f"no connection can come from {text}", remedy)
    return str(address)


def _addresses(addresses: tuple[str, ...]) -> tuple[str, ...]:
    repeated = [address for address, count in Counter(addresses).items() if count > 1]
    if repeated:
        raise invalid_field(f"{repeated[0]} is repeated", "write each address once")
    if len({":" in address for address in addresses}) > 1:
        message = "IPv4 and IPv6 are mixed, and one address of a target has only one of them"
        raise invalid_field(message, "write addresses of one family")
    return addresses


class HostEntry(Section):
    """One host."""

    name: Annotated[str, AfterValidator(_name)]
    """Name of the host in reports; its workers are ``NAME-1``, ``NAME-2`` …"""
    command: Annotated[str, AfterValidator(_words)]
    """Prefix that runs a program on the host with its standard input and output: ``ssh build1``,
    ``kubectl exec -i gen-0 --``."""
    workers: int = Field(default=1, ge=1, le=1024)
    """Number of workers on the host."""
    python: Annotated[str, AfterValidator(_plain)] = "python3"
    """Python of the host, with this package and the project's own requirements."""
    directory: Annotated[str, AfterValidator(_plain)] | None = None
    """Directory of the host with the same test files; the command's own directory unless given."""
    bandwidth: Annotated[str, AfterValidator(_bits)] | None = None
    """Bandwidth of the host's network in each direction: ``10Gbit/s``. The plan is checked against
    it; unknown unless given."""

    source_addresses: Annotated[
        tuple[Annotated[str, AfterValidator(_address)], ...], AfterValidator(_addresses)
    ] = Field(default=(), strict=False)
    """Addresses of the host that the connections of its workers come from, in turn; the system
    chooses one unless given."""

    @property
    def reached_by(self) -> tuple[str, str, str | None]:
        """Command, Python and directory, which start a worker."""
        return self.command, self.python, self.directory

    @property
    def bits_per_second(self) -> float | None:
        """The bandwidth as a number; None if unknown."""
        return None if self.bandwidth is None else parse_bits(self.bandwidth)


def read_hosts(text: str, source: str) -> tuple[HostEntry, ...]:
    """Read the file.

    :param source: the file as the user named it.
    :raises ProfileError: with every problem.
    """
    document = read_yaml(text, sequence=True)
    entries: list[HostEntry] = []
    for number, value in enumerate(document.value or ()):
        entry = _entry(document, number, value)
        if entry is not None:
            _compare(document, number, entry, entries)
            entries.append(entry)
    if not document.problems and not entries:
        document.refuse((), "the file has no hosts", "write - {name: h1, command: ssh h1}")
    if document.problems:
        raise ProfileError(source, sorted_problems(document.problems))
    return tuple(entries)


def _entry(document: Document, number: int, value: object) -> HostEntry | None:
    """Return an entry of the file; None if it has problems, which are added to the document."""
    try:
        return HostEntry.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            path = (number, *details["loc"])
            details["loc"] = path
            if details["type"] == "extra_forbidden":
                near = did_you_mean(str(path[-1]), keys(HostEntry))
                message = f"unknown key {path[-1]!r}"
                document.problems.append(document.problem(path, message, near, at_key=True))
            else:
                document.problems.append(explain_error(details, document))
        return None


def _compare(
    document: Document, number: int, entry: HostEntry, others: Sequence[HostEntry]
) -> None:
    """Add a problem if an entry has the name, or the command, of an earlier one."""
    if any(other.name == entry.name for other in others):
        message = f"{number}.name: there are several hosts with the name {entry.name}"
        remedy = "give each host a name of its own"
        document.problems.append(document.problem((number, "name"), message, remedy))
        return
    for other in others:
        # The command is all that distinguishes hosts when a worker starts.
        if other.reached_by == entry.reached_by:
            message = f"{number}.command: it reaches the same host as {other.name}"
            remedy = f"give {other.name} more workers, or name another host"
            document.problems.append(document.problem((number, "command"), message, remedy))
            return
