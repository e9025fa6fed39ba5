"""The targets of one session: each is started once, when a run first needs it, and stopped at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_loadtest import brokers
from pytest_loadtest.brokers._base import BrokerRequest
from pytest_loadtest.brokers.faults import relay_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_loadtest.brokers._base import Broker
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.orders import Request
    from pytest_loadtest.profile import Profile

_LOOPBACK_HOSTS = {"localhost", "127.0.0.1", "::1"}


def address(request: Request, profile: Profile, options: Options) -> tuple[str | None, str | None]:
    """URL and admin URL: the marker's, else the command line's, else the profile's; loopback brings its own."""
    if profile.driver.name == "loopback":
        return None, None
    target = profile.target
    url = request.target or options.target or (target.url if target else None)
    admin = request.admin or options.admin or (target.admin_url if target else None)
    return url, admin


def mode(request: Request, options: Options) -> str:
    """How the target comes to be: the marker's word, else the command line's."""
    return request.broker or options.broker


def here(request: Request, profile: Profile, options: Options) -> bool:
    """Whether the target takes its share of this machine's cores."""
    url, _ = address(request, profile, options)
    return url is None or mode(request, options) not in ("auto", "url") or urlsplit(url).hostname in _LOOPBACK_HOSTS


class Targets:
    """Starts and keeps brokers.

    :param session: the session's results folder; brokers keep data and logs below it.
    """

    def __init__(self, options: Options, session: Path, say: Callable[[str], None]) -> None:
        self._options, self._folder, self._say = options, session / "brokers", say
        self._brokers: dict[Any, Broker] = {}

    def get(self, request: Request, profile: Profile) -> Broker:
        """The target of a run, started now unless an earlier run left one of the same kind running.

        :raises TargetError: it cannot be had. :raises UsageError: it should not have been asked for.
        """
        url, admin = address(request, profile, self._options)
        how = mode(request, self._options)
        settings = {**(relay_settings(profile.driver) if profile.driver.name == "loopback" else {}), **profile.broker.settings}
        key = (profile.driver.name, how, url, admin, profile.broker.version, tuple(sorted(settings.items())))
        broker = self._brokers.get(key)
        if broker is None or broker.failure():
            broker = self._brokers[key] = brokers.start(
                BrokerRequest(
                    kind=profile.driver.name, mode=how, url=url, admin_url=admin, version=profile.broker.version, settings=settings,
                    folder=self._folder / f"{profile.driver.name}-{len(self._brokers) + 1}",
                ),
                self._say,
            )  # fmt: skip
        return broker

    def close(self) -> None:
        """Stop every one of them."""
        for broker in self._brokers.values():
            broker.stop()
        self._brokers.clear()
