"""Targets: at an address, in a container, as a process of this machine, or embedded.

An embedded target is a substitute for a broker.

:func:`start` uses the requested mode, or under ``auto`` the first one that works on this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pytest_loadtest.brokers.base import MODES, Broker, BrokerFacts, BrokerRequest, UnavailableError
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.kinds.registry import kind_of_broker, load_reference

__all__ = ["MODES", "Broker", "BrokerFacts", "BrokerRequest", "start"]

Progress = Callable[[str], None]

AUTO: Final = ("container", "process", "embedded")
_REACH: Final = "pytest_loadtest.brokers.url:reach_target"


def start(request: BrokerRequest, progress: Progress) -> Broker:
    """Start the broker, or connect to the one at the given address.

    :param progress: takes short lines about what happens.
    :raises UsageError: the request is invalid (unknown kind or mode, ``url`` without an address, a
        setting that the run chooses itself).
    :raises TargetError: no mode worked; the text lists each one with the reason and the remedy.
    """
    tried: list[str] = []
    for mode in modes(request):
        try:
            return _starter(request.kind, mode)(request, progress)
        except UnavailableError as missing:
            tried.append(f"  {mode}: {missing}")
            progress(
                f"{request.kind} broker cannot start as {mode}: {missing.reason.splitlines()[0]}"
            )
    raise TargetError(f"no {request.kind} broker; tried\n" + "\n".join(tried))


def modes(request: BrokerRequest) -> tuple[str, ...]:
    """Return the modes to try, in order.

    ``auto`` means the address or the image, if the request has one; a process, if it has security
    or is a cluster; otherwise container, process, embedded. A kind with its own broker (loopback)
    always starts that as a process, unless an address is given.

    :raises UsageError: the kind or mode is unknown, or the kind does not have the mode.
    """
    kind = kind_of_broker(request.kind)
    ways = kind.start_of(request.kind).ways
    if request.mode not in MODES:
        raise UsageError(
            f"--load-broker-mode={request.mode} is unknown: choose one of {', '.join(MODES)}"
        )
    if request.mode == "url" and request.url is None:
        raise UsageError(
            "--load-broker-mode=url needs an address: give --load-target URL, or target: {url:"
            " …} in the profile"
        )
    if request.url is not None and request.mode in ("auto", "url"):
        return ("url",)
    if kind.own_broker:
        return ("process",)
    if not ways:
        raise UsageError(
            f"no run can start a {request.kind} broker: give --load-target URL, or target: {{url:"
            f" …}} in the profile"
        )
    if request.mode == "auto" and request.image is not None:
        return ("container",)
    if request.mode == "auto" and (request.security is not None or request.nodes):
        return ("process",)
    if request.mode == "auto":
        return tuple(mode for mode in AUTO if mode in ways)
    if request.mode not in ways:
        choices = (*(("url",) if request.kind == kind.name else ()), *ways)
        raise UsageError(
            f"there is no {request.mode} {request.kind} broker: choose one of {', '.join(choices)}"
        )
    return (request.mode,)


def _starter(name: str, mode: str) -> Callable[[BrokerRequest, Progress], Broker]:
    kind = kind_of_broker(name)
    starter: Callable[[BrokerRequest, Progress], Broker] = load_reference(
        kind, _REACH if mode == "url" else kind.start_of(name).ways[mode]
    )
    return starter
