"""The targets of one session: each is started when a run first needs it, and stopped at the end, or earlier to make room for others."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pytest_loadtest import brokers
from pytest_loadtest.brokers.base import BrokerRequest
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.brokers.base import Broker, BrokerFacts
    from pytest_loadtest.fleet.messages import Request
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.profile import Profile

IDLE: Final = 1
"""Brokers of a kind that keep running while a test uses others of it."""


def address(request: Request, profile: Profile, options: Options) -> tuple[str | None, str | None, str | None]:
    """URL, admin URL and image: the marker's, else the command line's, else the profile's; none where a run brings its own broker.

    Who names an image wants no address of those that come after, and the other way round.
    """
    if profile.driver.kind.own_broker:
        return None, None, None
    target = profile.target
    of_profile = (target.url, target.image) if target else (None, None)
    said = ((request.target, None), (options.target, options.image), of_profile)
    url, image = next((one for one in said if any(one)), (None, None))
    admin = request.admin or options.admin or (target.admin_url if target else None)
    return url, None if image else admin, image


def subscriber_url(url: str | None, profile: Profile) -> str | None:
    """Where consumers connect beside ``url``, the address that holds: whoever names another one than the profile names one for all."""
    target = profile.target
    return target.subscriber_url if target is not None and target.url == url else None


def mode(request: Request, options: Options) -> str:
    """How the target comes to be: the marker's word, else the command line's."""
    return request.broker or options.broker


def here(request: Request, profile: Profile, options: Options) -> bool:
    """Whether the target takes its share of this machine's cores."""
    url, _, _ = address(request, profile, options)
    return url is None or mode(request, options) not in ("auto", "url") or is_loopback(urlsplit(url).hostname or "")


def check_security(request: Request, profile: Profile, options: Options) -> None:
    """:raises UsageError: ``target.security`` of a target that the run does not start as a process, or of a broker that has none."""
    if profile.target is None or profile.target.security is None:
        return
    place = request.source if request.security_line is None else f"{request.source}:{request.security_line}"
    driver = profile.driver
    started = driver.kind.start_of(driver.broker_name)
    if not started.secured:
        broker = started.label or driver.kind.label
        remedy = f"leave it out, or driver.broker: {driver.named_broker}" if driver.named_broker else "leave it out"
        raise UsageError(f"{place}: target.security: {broker} is started without TLS and authentication: {remedy}")
    url, _, image = address(request, profile, options)
    how = mode(request, options)
    given = url or image or (f"--load-broker {how}" if how not in ("auto", "process") else None)
    if given is not None:
        remedy = "leave it out, or leave out target.security and say in the driver section who the client is"
        raise UsageError(f"{place}: target.security is for a broker that the run starts as a process, not for {given}: {remedy}")


def check_broker(request: Request, profile: Profile, options: Options) -> None:
    """:raises UsageError: ``driver.broker`` names a broker, and the run is to use another."""
    named = profile.driver.named_broker
    if named is None:
        return
    process_only = "container" not in profile.driver.kind.start_of(profile.driver.broker_name).ways
    url, _, image = address(request, profile, options)
    how = mode(request, options)
    given = url or (image or (f"--load-broker {how}" if how not in ("auto", "process") else None) if process_only else None)
    if given is not None:
        place = request.source if request.broker_line is None else f"{request.source}:{request.broker_line}"
        remedy = "leave one of the two out"
        raise UsageError(f"{place}: driver.broker: {named} is a process that the run starts, and it is to use {given}: {remedy}")


def target_of(facts: BrokerFacts) -> TargetAddress:
    """What a driver is told of a broker."""
    return TargetAddress(url=facts.url, subscriber_url=facts.subscriber_url, admin_url=facts.admin_url, started=facts.started)


def with_keys(profile: Profile, facts: BrokerFacts) -> Profile:
    """The profile for a worker: beside its own driver settings those without which the broker lets nobody in. What it says itself holds."""
    return profile.model_copy(update={"driver": profile.driver.with_keys(facts.client)}) if facts.client else profile


class _Kept(NamedTuple):
    """A broker with its kind, and the attempt at a test that used it last."""

    broker: Broker
    kind: str
    user: tuple[str, int]


class Targets:
    """Starts and keeps brokers.

    A broker takes memory and time of the processor for as long as it runs. So when another of its kind starts, those that no workload of
    this test uses are stopped, but for the :data:`IDLE` used last: a grid of settings does not fill the machine, and tests that take turns
    on two brokers start each once.

    :param session: the session's results folder; brokers keep data and logs below it.
    :param announce: shows a line to the user; with ``quiet=True`` also to one who asked for few.
    """

    def __init__(self, options: Options, session: Path, announce: Callable[..., None]) -> None:
        self._options, self._folder, self._announce = options, session / "brokers", announce
        self._kept: dict[Any, _Kept] = {}  # the last used is the last
        self._numbers = itertools.count(1)

    def get(self, request: Request, profile: Profile) -> Broker:
        """The target of a run, started now unless one with the same settings runs still.

        :raises TargetError: it cannot be had. :raises UsageError: it should not have been asked for.
        """
        wanted, user = self._wanted(request, profile), (request.nodeid, request.attempt)
        key = tuple(tuple(sorted(value.items())) if isinstance(value, dict) else value for value in wanted.values())
        kept = self._kept.pop(key, None)
        broker = None if kept is None else kept.broker
        if broker is not None and broker.failure():
            broker.stop()
            broker = None
        if broker is None:
            self._make_room(wanted["kind"], user)
            folder = self._folder / f"{wanted['kind']}-{next(self._numbers)}"
            broker = brokers.start(BrokerRequest(**wanted, folder=folder), self._announce)
            self._announce(f"target: {broker.facts.describe()}", quiet=True)
        self._kept[key] = _Kept(broker, wanted["kind"], user)
        return broker

    def _make_room(self, kind: str, user: tuple[str, int]) -> None:
        idle = [key for key, kept in self._kept.items() if kept.kind == kind and kept.user != user and kept.broker.facts.started]
        for key in idle[: len(idle) - IDLE]:
            self._kept.pop(key).broker.stop()

    def _wanted(self, request: Request, profile: Profile) -> dict[str, Any]:
        """Of a :class:`BrokerRequest`, what two runs must have in common to share a broker."""
        url, admin, image = address(request, profile, self._options)
        security, driver = profile.target.security if profile.target else None, profile.driver
        settings = {**driver.broker_settings, **profile.broker.settings}
        return {
            "kind": driver.broker_name,
            "mode": mode(request, self._options), "url": url, "subscriber_url": subscriber_url(url, profile),
            "admin_url": admin, "image": image, "version": profile.broker.version, "settings": settings, "security": security,
            "tls": driver.broker_tls if security else None,
        }  # fmt: skip

    def close(self) -> None:
        """Stop every one of them."""
        for kept in self._kept.values():
            kept.broker.stop()
        self._kept.clear()
