"""The smallest world that still violates a rule: a document of a failure that a person can read.

Parts are left out one by one, then numbers are halved, as long as the same rule is violated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from simulation.dice import significant, span
from simulation.world import CONTROLLER, MS, SECOND, US, Fault, Host, Target, World

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_PLAYS: Final = 200
MOST_SECONDS: Final = 45.0
UNITS: Final = {"us": US, "ms": MS, "s": SECOND}

SMALLEST_RATE: Final = 1.0
SMALLEST_SPAN: Final = 100 * MS
"""Rates (messages a second) and durations that are not halved any more."""

OPTIONAL: Final = (
    "abort", "generator", "pairConsumers", "skew", "keyDistributor", "partitionsPerTopic", "checksum", "useRandomizedPayloads",
    "randomBytesRatio", "payloadsPerBucket", "maxSendDelay", "drainTimeout", "warmupDuration", "seed", "backlogDrainRatio",
    "consumerPerSubscription", "deliverAfter", "deliverAt", "messageSizeDistribution", "route",
)  # fmt: skip
"""Keys of a profile that a simpler world may have no need of."""
NUMBERS: Final = (
    "topics",
    "producersPerTopic",
    "subscriptionsPerTopic",
    "consumerPerSubscription",
    "partitionsPerTopic",
    "messages",
    "outputs",
)
"""Numbers that are halved; 1 is the smallest."""
DURATIONS: Final = (
    "testDuration",
    "warmupDuration",
    "drainTimeout",
    "duration",
    "at",
    "for",
    "hold",
    "confirm",
    "every",
    "period",
)
RATES: Final = (
    "producerRate",
    "rate",
    "from",
    "to",
    "mean",
    "amplitude",
    "base",
    "peak",
    "start",
    "max",
)

Smaller = Iterator[World]


def shrink(
    world: World,
    violates: Callable[[World], bool],
    plays: int = MOST_PLAYS,
    seconds: float = MOST_SECONDS,
) -> World:
    """Return the smallest world found. :param violates: whether a world still violates the rule; invalid worlds do not."""
    search = _Search(world, violates, plays, time.monotonic() + seconds)
    before = None
    while before != world and search.goes_on:
        before = world
        for smaller in (
            _fewer_faults,
            _simpler_run,
            _fewer_keys,
            _fewer_objectives,
            _smaller_numbers,
            _smaller_faults,
        ):
            world = search.reduce(world, smaller)
    return world


class _Search:
    """Tries smaller worlds until they end or the budget is spent; no world is tried twice."""

    def __init__(
        self, world: World, violates: Callable[[World], bool], plays: int, deadline: float
    ) -> None:
        self._violates = violates
        self._plays = plays
        self._deadline = deadline
        self._tried = {world.dump()}

    @property
    def goes_on(self) -> bool:
        return self._plays > 0 and time.monotonic() < self._deadline

    def reduce(self, world: World, smaller: Callable[[World], Smaller]) -> World:
        """Take the first smaller world that still violates, and begin again with it, until there is none."""
        found = True
        while found:
            found = False
            for candidate in smaller(world):
                if not self.goes_on:
                    return world
                if self._still(candidate):
                    world, found = candidate, True
                    break
        return world

    def _still(self, world: World) -> bool:
        """Return whether a world that was not tried before violates the rule; one that was tried leads nowhere new."""
        document = world.dump()
        if document in self._tried:
            return False
        self._tried.add(document)
        self._plays -= 1
        return self._violates(world)


# Faults.


def _fewer_faults(world: World) -> Smaller:
    """Yield the world without all faults, without half of them, and without each."""
    faults = world.faults
    if not faults:
        return
    yield replace(world, faults=())
    if len(faults) > 2:
        middle = len(faults) // 2
        yield replace(world, faults=faults[:middle])
        yield replace(world, faults=faults[middle:])
    for index in range(len(faults)):
        yield replace(world, faults=faults[:index] + faults[index + 1 :])


def _smaller_faults(world: World) -> Smaller:
    """Yield the world with simpler numbers in each fault: for all messages, for half the time, at a whole second."""
    for index, fault in enumerate(world.faults):
        for simpler in _simpler_fault(fault):
            yield replace(
                world, faults=(*world.faults[:index], simpler, *world.faults[index + 1 :])
            )


def _simpler_fault(fault: Fault) -> Iterator[Fault]:
    values = fault.values
    if values.get("share", 1.0) != 1.0:
        yield replace(fault, values={**values, "share": 1.0})
    if "topics" in values:
        yield replace(
            fault, values={key: value for key, value in values.items() if key != "topics"}
        )
    if values.get("worker"):
        yield replace(fault, values={**values, "worker": 0})
    for unit in (SECOND, 100 * MS, 10 * MS, MS):
        if fault.at % unit:
            yield replace(fault, at=fault.at // unit * unit)
    if fault.duration and fault.duration > 2 * MS:
        yield replace(fault, duration=_rounded(fault.duration // 2))
    by = values.get("by", 0)
    if fault.kind != "counters" and by > 2 * MS:
        yield replace(fault, values={**values, "by": _rounded(by // 2)})
    if fault.duration is not None and fault.duration != _rounded(fault.duration):
        yield replace(fault, duration=_rounded(fault.duration))


def _rounded(ns: int) -> int:
    return ns // MS * MS if ns > MS else ns


# Workers, hosts, the target.


def _simpler_run(world: World) -> Smaller:
    """Yield the world with one worker, half of the workers, all on the controller's host, with true clocks, with the usual target."""
    number = len(world.workers)
    if number > 1:
        yield _with_workers(world, world.workers[:1])
        yield _with_workers(world, world.workers[: (number + 1) // 2])
        yield _with_workers(world, world.workers[:-1])
    if world.hosts:
        yield replace(world, hosts=(), workers=(CONTROLLER,) * number)
    for index, host in enumerate(world.hosts):
        for simpler in _simpler_host(host):
            yield replace(world, hosts=(*world.hosts[:index], simpler, *world.hosts[index + 1 :]))
    for target in (replace(Target(), spread=0.0), Target(), replace(world.target, spread=0.0)):
        if world.target.spread or target.spread:
            yield replace(world, target=target)


def _with_workers(world: World, workers: tuple[str, ...]) -> World:
    """Return the world with these workers alone; faults of others become theirs."""
    faults = []
    for fault in world.faults:
        values = dict(fault.values)
        if "worker" in values:
            values["worker"] %= len(workers)
        faults.append(replace(fault, values=values))
    hosts = tuple(host for host in world.hosts if host.name in workers)
    return replace(world, workers=workers, hosts=hosts, faults=tuple(faults))


def _simpler_host(host: Host) -> Iterator[Host]:
    plain = Host(name=host.name)
    if host == plain:
        return
    yield plain
    for name in ("offset", "drift", "slews", "steps", "jitter", "lossy"):
        value = getattr(plain, name)
        if getattr(host, name) != value:
            yield replace(host, **{name: value})
    if host.there != host.back:
        yield replace(host, there=host.back)


# The profile.


def _fewer_keys(world: World) -> Smaller:
    """Yield the world with one workload, and without each optional key of it."""
    profile = world.profile
    entries = profile.get("workloads", [])
    for entry in entries:
        shared = {key: value for key, value in profile.items() if key != "workloads"}
        yield replace(world, profile={**shared, **entry})
    if len(entries) > 1:
        return
    for key in OPTIONAL:
        if key in profile:
            yield replace(world, profile=_without(profile, (key,)))
    for key in profile.get("driver", {}):
        if key != "name":
            yield replace(world, profile=_without(profile, ("driver", key)))
    route = profile.get("route", {})
    for key in route:
        if key not in ("input", "output"):
            yield replace(world, profile=_without(profile, ("route", key)))
    if isinstance(route.get("output"), list):
        yield replace(world, profile={**profile, "route": {**route, "output": route["output"][0]}})
    yield from _fewer_stages(world)


def _fewer_stages(world: World) -> Smaller:
    """Yield the world without each stage, and without each optional key of one."""
    profile = world.profile
    stages = profile.get("stages", [])
    for index, stage in enumerate(stages):
        if len(stages) > 1:
            yield replace(world, profile=_without(profile, ("stages", index)))
        for key in stage:
            if key not in ("name", "duration"):
                yield replace(world, profile=_without(profile, ("stages", index, key)))
    if len(stages) == 1:
        shared = {key: value for key, value in profile.items() if key != "stages"}
        yield replace(world, profile={**shared, "testDuration": stages[0]["duration"]})


def _fewer_objectives(world: World) -> Smaller:
    """Yield the world without each of its objectives, wherever they are."""
    for path in _paths(world.profile):
        inside = "slo" in path[:-1]
        if inside or path[-1] == "slo":
            yield replace(world, profile=_without(world.profile, path))


def _smaller_numbers(world: World) -> Smaller:
    """Yield the world in half the time, with half the rate, and with half of each number of clients."""
    if all(fault.at < 100 * SECOND for fault in world.faults):
        yield _in_half_the_time(world)
    yield replace(world, profile=_halved(world.profile, RATES))
    for key in NUMBERS:
        halved = _halved(world.profile, (key,))
        if halved != world.profile:
            yield replace(world, profile=halved)
    size = world.profile.get("messageSize", 100)
    if size != 100:
        yield replace(world, profile={**world.profile, "messageSize": 100})
    if "messageSize" not in world.profile and "messageSizeDistribution" not in world.profile:
        yield replace(world, profile={**world.profile, "messageSize": 100})


def _in_half_the_time(world: World) -> World:
    faults = []
    for fault in world.faults:
        duration = fault.duration // 2 if fault.duration else fault.duration
        faults.append(replace(fault, at=fault.at // 2, duration=duration))
    return replace(world, profile=_halved(world.profile, DURATIONS), faults=tuple(faults))


def _halved(value: Any, keys: tuple[str, ...]) -> Any:
    """Return a profile in which the numbers of these keys are half as large."""
    if isinstance(value, list):
        return [_halved(item, keys) for item in value]
    if not isinstance(value, dict):
        return value
    halved = {}
    for key, item in value.items():
        if key in ("slo", "abort", "generator", "driver"):
            halved[key] = item
        elif key in keys and not isinstance(item, dict | list):
            halved[key] = half(item)
        else:
            halved[key] = _halved(item, keys)
    return halved


def half(value: Any) -> Any:
    """Return half of a number, of a duration (in 100 ms) or of a rate with its unit; what is small already as it is."""
    if isinstance(value, int):
        return max(value // 2, min(value, 1))
    if isinstance(value, float):
        return significant(value / 2) if value >= 2 * SMALLEST_RATE else value
    match = re.fullmatch(r"([\d.]+)(us|ms|s|B/s)", str(value))
    if match is None:
        return value
    number, unit = float(match[1]), match[2]
    if unit == "B/s":
        return f"{max(round(number / 2), 1)}B/s"
    ns = number * UNITS[unit] / 2
    return span(round(ns / SMALLEST_SPAN) * SMALLEST_SPAN) if ns >= SMALLEST_SPAN else value


def _paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every key, outer ones first."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return
    for key, item in items:
        yield (*before, key)
        yield from _paths(item, (*before, key))


def _without(profile: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """Return a profile without the key at a path, and without the sections that it leaves empty."""
    reduced = deepcopy(profile)
    parents: list[Any] = [reduced]
    for key in path[:-1]:
        parents.append(parents[-1][key])
    del parents[-1][path[-1]]
    for depth in range(len(path) - 1, 0, -1):
        if parents[depth] in ({}, []):
            del parents[depth - 1][path[depth - 1]]
    return reduced
