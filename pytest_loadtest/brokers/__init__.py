"""How a target comes to be: an address, a container, a process of this machine, or a stand-in.

:func:`start` takes the wanted way, or under ``auto`` the first that works here, and says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pytest_loadtest.brokers.base import MODES, Broker, BrokerFacts, BrokerRequest, UnavailableError
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.kinds.registry import kind_of_broker, load

__all__ = ["MODES", "Broker", "BrokerFacts", "BrokerRequest", "start"]

Progress = Callable[[str], None]

AUTO: Final = ("container", "process", "embedded")
_REACH: Final = "pytest_loadtest.brokers.url:start"


def start(request: BrokerRequest, progress: Progress) -> Broker:
    """Bring the target up, or reach it.

    :param progress: told what happens, one short line at a time.
    :raises UsageError: the request makes no sense (unknown kind or mode, ``url`` without an address, a setting that is chosen per run).
    :raises TargetError: nothing worked; says what was tried, why not, and what to do.
    """
    tried: list[str] = []
    for mode in modes(request):
        try:
            return _starter(request.kind, mode)(request, progress)
        except UnavailableError as missing:
            tried.append(f"  {mode}: {missing}")
            progress(f"{request.kind} broker, {mode}: {missing.reason.splitlines()[0]}")
    raise TargetError(f"no {request.kind} broker; tried\n" + "\n".join(tried))


def modes(request: BrokerRequest) -> tuple[str, ...]:
    """The ways to try, in order.

    ``auto``: the address or the image's container where there is one, a process where there is to be security, else container, process,
    embedded. Loopback always brings its own relay, unless given an address.

    :raises UsageError: unknown kind or mode, or one that this kind does not have.
    """
    kind = kind_of_broker(request.kind)
    ways = kind.start_of(request.kind).ways
    if request.mode not in MODES:
        raise UsageError(f"--load-broker={request.mode} is unknown: choose one of {', '.join(MODES)}")
    if request.mode == "url" and request.url is None:
        raise UsageError("--load-broker=url needs an address: give --load-target URL, or target: {url: …} in the profile")
    if request.url is not None and request.mode in ("auto", "url"):
        return ("url",)
    if kind.own_broker:
        return ("process",)
    if not ways:
        raise UsageError(f"no run can start a {request.kind} broker: give --load-target URL, or target: {{url: …}} in the profile")
    if request.mode == "auto" and request.image is not None:
        return ("container",)
    if request.mode == "auto" and request.security is not None:
        return ("process",)
    if request.mode == "auto":
        return tuple(mode for mode in AUTO if mode in ways)
    if request.mode not in ways:
        known = (*(("url",) if request.kind == kind.name else ()), *ways)
        raise UsageError(f"there is no {request.mode} {request.kind} broker: choose one of {', '.join(known)}")
    return (request.mode,)


def _starter(name: str, mode: str) -> Callable[[BrokerRequest, Progress], Broker]:
    kind = kind_of_broker(name)
    starter: Callable[[BrokerRequest, Progress], Broker] = load(kind, _REACH if mode == "url" else kind.start_of(name).ways[mode])
    return starter
