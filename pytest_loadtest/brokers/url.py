"""A target that runs already.

A run connects to it and describes it as far as possible, but never starts or stops it.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_loadtest.brokers.base import (
    BrokerFacts,
    BrokerRequest,
    Node,
    refuse_node,
    unapplied_settings,
)
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.kinds.registry import kind_of, load_reference
from pytest_loadtest.values.addresses import check_address, masked
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_loadtest.brokers.starting import Progress
    from pytest_loadtest.kinds import DriverKind

CONNECT_SECONDS = 5.0
PROBE_EVERY = 5.0  # s between two probes: each is a connection that the target may log
GONE_AFTER = 10.0  # s of refused connections: a restart of the target may be part of the test


@immutable
class Endpoint:
    """One host and port of an address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoints(kind: str, url: str) -> tuple[Endpoint, ...]:
    """Return the endpoints of an address such as ``pulsar://a:6650,b``.

    An endpoint without a port gets the scheme's default.

    :raises UsageError: another scheme, no host, an invalid port, or a user or password.
    """
    ports = {name: scheme.port for name, scheme in kind_of(kind).schemes.items()}
    return _endpoints("target", url, ports, kind_of(kind).label)


def kind_at(url: str, among: Iterable[DriverKind]) -> DriverKind:
    """Return the kind of broker that an address is of.

    :raises UsageError: it is of none of these, or as :func:`parse_endpoints`.
    """
    by_scheme = {scheme: kind for kind in among for scheme in kind.target_schemes}
    scheme = url.partition("://")[0]
    if scheme not in by_scheme:
        examples = ", ".join(f"{name}://HOST:PORT" for name in by_scheme)
        raise UsageError(f"target {masked(url)!r} is not an address of a broker: write {examples}")
    parse_endpoints(by_scheme[scheme].name, url)
    return by_scheme[scheme]


def check_admin_url(url: str | None) -> None:
    """Check an address such as ``http://a:8080,b:8080``.

    :raises UsageError: as :func:`parse_endpoints`.
    """
    if url is not None:
        _endpoints("admin URL", url, {"http": 80, "https": 443}, "an admin REST")


def _endpoints(what: str, url: str, ports: Mapping[str, int], of: str) -> tuple[Endpoint, ...]:
    check_address(url, what)
    shown = f"{what} {masked(url)!r}"
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ports:
        schemes = " or ".join(f"{name}://" for name in ports)
        raise UsageError(f"{shown} is not an address of {of}: it begins with {schemes}")
    authority = rest.partition("/")[0]
    return tuple(_endpoint(shown, scheme, host, ports[scheme]) for host in authority.split(","))


def _endpoint(shown: str, scheme: str, text: str, default: int) -> Endpoint:
    try:
        parts = urlsplit(f"{scheme}://{text}")
        host = parts.hostname
        port = default if parts.port is None else parts.port
    except ValueError as error:
        raise UsageError(f"{shown}: {error}") from error
    if not host or not port:
        missing = "port" if host else "host"
        raise UsageError(f"{shown}: no {missing}; write {scheme}://HOST:PORT")
    return Endpoint(host, port)


class RemoteBroker:
    """A target that the run did not start; see :class:`~pytest_loadtest.brokers.base.Broker`."""

    def __init__(self, facts: BrokerFacts, endpoints: tuple[Endpoint, ...]) -> None:
        self._facts = facts
        self._endpoints = endpoints
        self._probed = self._answered = time.monotonic()

    @property
    def facts(self) -> BrokerFacts:
        return self._facts

    def failure(self) -> str | None:
        """Return a reason after every endpoint has *refused* connections for ten seconds.

        A time-out is no proof that the target ended.
        """
        now = time.monotonic()
        if now - self._probed >= PROBE_EVERY:
            self._probed = now
            if not all(refuses(endpoint) for endpoint in self._endpoints):
                self._answered = now
        refused = self._probed - self._answered
        return (
            f"{self._facts.url} has refused connections for {refused:.0f} s"
            if refused >= GONE_AFTER
            else None
        )

    def restart(self, *, kill: bool = False) -> None:
        """:raises UsageError: always: the run did not start it."""
        raise UsageError(
            f"cannot restart {self._facts.url}, which the run did not start: omit the address,"
            " and the run starts a broker"
        )

    def node(self, role: str, number: int) -> Node:
        raise refuse_node(self._facts.url)

    def stop(self) -> None:
        """Do nothing: the run did not start it."""


def refuses(endpoint: Endpoint) -> bool:
    """Return True if the host refuses the connection, which means that nothing listens."""
    try:
        socket.create_connection((endpoint.host, endpoint.port), 0.3).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def reach_target(request: BrokerRequest, progress: Progress) -> RemoteBroker:
    """Connect to the target at ``request.url`` and describe it.

    :raises UsageError: it is not an address of this kind of broker.
    :raises TargetError: none of its endpoints accepts a connection; with the reason of each.
    """
    url = request.url or ""
    endpoints = parse_endpoints(request.kind, url)
    check_address(request.admin_url, "admin URL")
    progress(f"reaching {url}")
    reach(url, endpoints)
    if request.subscriber_url is not None:
        for_subscribers = parse_endpoints(request.kind, request.subscriber_url)
        reach(f"target.subscriberUrl {request.subscriber_url}", for_subscribers)
        endpoints = (*endpoints, *for_subscribers)
    kind = kind_of(request.kind)
    admin = request.admin_url
    version, settings = (
        load_reference(kind, kind.describe)(admin) if kind.describe and admin else ("unknown", {})
    )
    return RemoteBroker(
        BrokerFacts(
            name=kind.remote or kind.label,
            version=version,
            mode="url",
            url=url,
            subscriber_url=request.subscriber_url,
            admin_url=admin,
            settings={**settings, **unapplied_settings(request.settings)},
            local=all(is_local(endpoint.host) for endpoint in endpoints),
        ),
        endpoints,
    )


def reach(url: str, endpoints: tuple[Endpoint, ...]) -> None:
    """Check that one of the endpoints accepts a connection.

    :raises TargetError: none does; with the reason of each.
    """
    problems = []
    for endpoint in endpoints:
        try:
            socket.create_connection((endpoint.host, endpoint.port), CONNECT_SECONDS).close()
        except OSError as error:
            problems.append(f"{endpoint}: {error.strerror or error}")
        else:
            return
    raise TargetError(
        f"cannot reach {url} ({'; '.join(problems)}): is the broker running, and the address right?"
    )


def is_local(host: str) -> bool:
    """Return True if the host is this machine, whose cores the broker then shares.

    Only addresses of this machine can be bound.
    """
    if host == "localhost":  # by definition (RFC 6761, 6.3), even if no name service knows it
        return True
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True
