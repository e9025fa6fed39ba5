"""The targets of one session: each is started when a run first needs it, and stopped at the end, or
earlier to make room for others.

The run controller calls :class:`Targets` in its own process, in the thread that answers the first
meeting of a run, and at the session's end. The functions decide, without I/O, which target a run
uses; a request that contradicts itself is a usage error with file and line.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pytest_loadtest import brokers
from pytest_loadtest.brokers.base import Broker, BrokerFacts, BrokerRequest
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.addresses import is_loopback, masked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.fleet.messages import Request
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.profile import Profile

# Brokers of a kind that keep running while a test uses another one of that kind.
IDLE: Final = 1


def choose_address(
    request: Request, profile: Profile, options: Options
) -> tuple[str | None, str | None, str | None]:
    """Return URL, admin URL and image; all None if the run has its own broker.

    They are the marker's, else the command line's, else the profile's. The first source that has an
    address or an image decides on both.
    """
    if profile.driver.kind.own_broker:
        return None, None, None
    sources: list[tuple[str | None, str | None]] = [
        (request.target, None),
        (options.target, options.image),
    ]
    admin = request.admin or options.admin
    if profile.target is not None:
        sources.append((profile.target.url, profile.target.image))
        admin = admin or profile.target.admin_url
    url, image = next((source for source in sources if any(source)), (None, None))
    if image:
        admin = None
    return url, admin, image


def unused_address(request: Request, profile: Profile, options: Options) -> dict[str, str]:
    """Return the mark's address, else the command line's, if the run starts its target itself.

    As a setting that does not apply, with the reason; otherwise empty.
    """
    address = request.target or options.target
    if address is None or not starts_target(request, profile, options):
        return {}
    kind = profile.driver.kind
    modes = f"driver {kind.name} and broker mode {broker_mode(request, options)}"
    reason = f"with {modes} the run starts its own {kind.target}"
    return {"target": f"{masked(address)} is not tested: {reason}"}


def subscriber_url(url: str | None, profile: Profile) -> str | None:
    """Return the profile's address for consumers, if ``url`` is the profile's too.

    A URL from elsewhere is for all clients.
    """
    target = profile.target
    if target is None or target.url != url:
        return None
    return target.subscriber_url


def broker_mode(request: Request, options: Options) -> str:
    """Return the way to get the target: the mark's ``broker_mode``, else ``--load-broker-mode``."""
    return request.broker or options.broker


def starts_target(request: Request, profile: Profile, options: Options) -> bool:
    """Return whether the run starts its target."""
    url, _, _ = choose_address(request, profile, options)
    return url is None or broker_mode(request, options) not in ("auto", "url")


def has_admin(request: Request, profile: Profile, options: Options) -> bool:
    """Return whether the target has an admin REST, if its kind has one.

    It does if the run starts it, or if its address has an admin URL.
    """
    _, admin, _ = choose_address(request, profile, options)
    return admin is not None or starts_target(request, profile, options)


def uses_this_machine(request: Request, profile: Profile, options: Options) -> bool:
    """Return whether the target uses cores of this machine."""
    url, _, _ = choose_address(request, profile, options)
    is_local = is_loopback(urlsplit(url or "").hostname or "")
    return is_local or starts_target(request, profile, options)


def check_addresses(request: Request, profile: Profile, options: Options) -> None:
    """Check the target's addresses without connecting to them.

    :raises UsageError: one is no address of this kind of broker.
    """
    # On use: a session without load tests needs none of it.
    from pytest_loadtest.brokers.url import check_admin_url, parse_endpoints

    url, admin, _ = choose_address(request, profile, options)
    kind = profile.driver.kind
    if url is not None:
        parse_endpoints(kind.name, url)
        subscribers = subscriber_url(url, profile)
        if subscribers is not None:
            parse_endpoints(kind.name, subscribers)
    if kind.describe:
        check_admin_url(admin)


def check_security(request: Request, profile: Profile, options: Options) -> None:
    """Check ``target.security``.

    :raises UsageError: the run does not start the broker as a process, or the broker does not
        support it.
    """
    if profile.target is None or profile.target.security is None:
        return
    place = _place(request, request.security_line)
    driver = profile.driver
    started = driver.kind.start_of(driver.broker_name)
    if not started.secured:
        broker = started.label or driver.kind.label
        remedy = "leave it out"
        if driver.named_broker:
            remedy += f", or driver.broker: {driver.named_broker}"
        raise UsageError(
            f"{place}: target.security: {broker} is started without TLS and authentication: "
            f"{remedy}"
        )
    url, _, image = choose_address(request, profile, options)
    other = url or image or _other_mode(request, options)
    if other is not None:
        remedy = (
            "leave it out, or leave out target.security and give the client's credentials in the "
            "driver section"
        )
        raise UsageError(
            f"{place}: target.security is for a broker that the run starts as a process, not for "
            f"{other}: {remedy}"
        )


def check_broker(request: Request, profile: Profile, options: Options) -> None:
    """Check ``driver.broker``.

    :raises UsageError: it names a broker, but the run is to use another one.
    """
    named = profile.driver.named_broker
    if named is None:
        return
    process_only = "container" not in profile.driver.kind.start_of(profile.driver.broker_name).ways
    url, _, image = choose_address(request, profile, options)
    other = url
    if process_only:
        other = url or image or _other_mode(request, options)
    if other is not None:
        place = _place(request, request.broker_line)
        remedy = "leave one of the two out"
        raise UsageError(
            f"{place}: driver.broker: {named} is a process that the run starts, but the run is to "
            f"use {other}: {remedy}"
        )


def check_cluster(request: Request, profile: Profile, options: Options) -> None:
    """Check ``broker.brokers`` and ``bookies``.

    :raises UsageError: the run does not start the broker as processes.
    """
    if not cluster_nodes(profile):
        return
    if broker_mode(request, options) == "process":
        # An address, of a driver file for example, does not apply, as with a single broker.
        return
    url, _, image = choose_address(request, profile, options)
    address = url or image
    other = address or _other_mode(request, options)
    if other is not None:
        place = _place(request, request.cluster_line)
        message = (
            "broker.brokers and bookies are for a cluster of processes that the run starts, not "
            f"for {other}"
        )
        remedy = "leave one of the two out"
        if address:
            remedy += ", or run with --load-broker-mode process"
        raise UsageError(f"{place}: {message}: {remedy}")


def cluster_nodes(profile: Profile) -> dict[str, int]:
    """Return the number of processes of each role of a cluster; empty: a single process."""
    driver = profile.driver
    return profile.broker.nodes(driver.kind.start_of(driver.broker_name).nodes)


def _place(request: Request, line: int | None) -> str:
    return request.source if line is None else f"{request.source}:{line}"


def _other_mode(request: Request, options: Options) -> str | None:
    """Return ``--load-broker-mode …`` if it rules out a broker started as a process."""
    mode = broker_mode(request, options)
    return f"--load-broker-mode {mode}" if mode not in ("auto", "process") else None


def target_address(facts: BrokerFacts) -> TargetAddress:
    """Return a broker's addresses for a driver."""
    return TargetAddress(
        url=facts.url,
        subscriber_url=facts.subscriber_url,
        admin_url=facts.admin_url,
        started=facts.started,
    )


def with_keys(profile: Profile, facts: BrokerFacts) -> Profile:
    """Return the profile with the client settings that the started broker requires.

    Settings in the profile take precedence.
    """
    if not facts.client:
        return profile
    return profile.model_copy(update={"driver": profile.driver.with_keys(facts.client)})


def _hashable(setting: Any) -> Any:
    return tuple(sorted(setting.items())) if isinstance(setting, dict) else setting


class _Kept(NamedTuple):
    """A broker with its kind, and the test and attempt that used it last."""

    broker: Broker
    kind: str
    user: tuple[str, int]


class Targets:
    """Starts and keeps brokers.

    A broker takes memory and CPU time for as long as it runs. So when another broker of its kind
    starts, those that no workload of this test uses are stopped, except the :data:`IDLE` used last:
    a matrix of settings does not fill the machine, and tests that alternate between two brokers
    start each only once.

    :param session: the session's results folder; brokers keep data and logs below it.
    :param announce: shows a line to the user; with ``quiet=True`` also under ``-q``.
    """

    def __init__(self, options: Options, session: Path, announce: Callable[..., None]) -> None:
        self._options = options
        self._folder = session / "brokers"
        self._announce = announce
        self._kept: dict[Any, _Kept] = {}  # in order of last use
        self._numbers = itertools.count(1)

    def get(self, request: Request, profile: Profile) -> Broker:
        """Return the target of a run; start it unless one with the same settings is running.

        :raises TargetError: it cannot be started or reached.
        :raises UsageError: the request is wrong.
        """
        settings = self._settings(request, profile)
        user = (request.nodeid, request.attempt)
        key = tuple(map(_hashable, settings.values()))
        kept = self._kept.pop(key, None)
        broker = None if kept is None else kept.broker
        # A test may have left processes of a cluster down: the next one starts with all of them.
        if broker is not None and (broker.failure() or None in broker.facts.nodes.values()):
            broker.stop()
            broker = None
        if broker is None:
            self._make_room(settings["kind"], user)
            folder = self._folder / f"{settings['kind']}-{next(self._numbers)}"
            broker = brokers.start(BrokerRequest(**settings, folder=folder), self._announce)
            self._announce(f"target: {broker.facts.describe()}", quiet=True)
        self._kept[key] = _Kept(broker, settings["kind"], user)
        return broker

    def _make_room(self, kind: str, user: tuple[str, int]) -> None:
        idle = [
            key
            for key, kept in self._kept.items()
            if kept.kind == kind and kept.user != user and kept.broker.facts.started
        ]
        for key in idle[: len(idle) - IDLE]:
            self._kept.pop(key).broker.stop()

    def _settings(self, request: Request, profile: Profile) -> dict[str, Any]:
        """Return the fields of a :class:`BrokerRequest` that are equal for runs with one broker."""
        url, admin, image = choose_address(request, profile, self._options)
        security = None if profile.target is None else profile.target.security
        driver = profile.driver
        settings = {**driver.broker_settings, **profile.broker.settings}
        return {
            "kind": driver.broker_name,
            "mode": broker_mode(request, self._options),
            "url": url,
            "subscriber_url": subscriber_url(url, profile),
            "admin_url": admin,
            "image": image,
            "version": profile.broker.version,
            "settings": settings,
            "security": security,
            "tls": driver.broker_tls if security else None,
            "nodes": cluster_nodes(profile),
        }

    def close(self) -> None:
        """Stop all brokers."""
        for kept in self._kept.values():
            kept.broker.stop()
        self._kept.clear()
