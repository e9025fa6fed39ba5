"""Worlds drawn from seeds: :func:`draw`.

Each world has a random subset of shapes and fault kinds, not a little of everything: many defects need one fault to be absent. A seed is
only a handle: a change of this module gives it another world, so the documents of failures are kept, not their seeds.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from simulation.dice import Dice, dice, significant, span
from simulation.draw_load import Load, draw_load
from simulation.draw_objectives import COUNTED_BY, Author, Scales, generator_limits, widest_fault
from simulation.world import (
    CONTROLLER,
    GENERATOR,
    KINDS,
    MS,
    SECOND,
    TARGET,
    US,
    Fault,
    Host,
    Target,
    World,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Features = tuple[str, ...]

TAGS: Final = {"calm": 0.2, "stormy": 0.3, "unrestricted": 0.5}
"""Class of worlds → share."""

FEATURES: Final[dict[str, float]] = {
    # How the load is made. The first of two that exclude each other wins.
    "several-workloads": 0.04, "search": 0.03, "backlog": 0.035, "producer-only": 0.03, "broadcast": 0.04, "many-subscriptions": 0.08,
    "many-streams": 0.025, "message-count": 0.05, "bytes": 0.07, "delays": 0.08, "stages": 0.15, "partitions": 0.15, "keys": 0.12,
    "consumers": 0.15, "consumer-changes": 0.5, "skew": 0.08, "unacknowledged": 0.08, "sizes": 0.3, "checksum": 0.35, "small-window": 0.25,
    "short-send-delay": 0.15, "connects": 0.07, "connect-rate": 0.7, "warm-up": 0.4, "long": 0.03, "long-steps": 0.4,
    # How it is judged.
    "windows": 0.15, "drift": 0.06, "buckets": 0.5, "stage-objectives": 0.5, "tolerances": 0.4, "abort": 0.06, "generator-limits": 0.25,
    # Who makes it.
    "many-workers": 0.03, "workers": 0.45, "hosts": 0.5, "clocks": 0.4, "pair-consumers": 0.15,
    # What is between producers and consumers.
    "route": 0.17,
}  # fmt: skip
"""Shape → share of the worlds that can have it."""

EXCLUDED_BY: Final[dict[str, Features]] = {
    "search": ("several-workloads",),
    "backlog": ("several-workloads", "search"),
    "producer-only": ("several-workloads", "search", "backlog"),
    "broadcast": ("several-workloads", "backlog", "producer-only"),
    "many-subscriptions": ("backlog", "producer-only", "broadcast"),
    "many-streams": ("several-workloads", "search", "backlog", "broadcast", "many-subscriptions"),
    "message-count": ("search", "backlog"),
    "bytes": ("backlog", "message-count"),
    "delays": ("search", "backlog", "producer-only", "broadcast"),
    "stages": ("search", "backlog", "message-count"),
    "consumers": ("producer-only", "broadcast"),
    "skew": ("backlog", "producer-only", "many-streams"),
    "long": ("several-workloads", "search", "backlog", "many-streams", "message-count"),
    "buckets": ("producer-only",),
    "windows": ("search", "backlog", "message-count"),
    "drift": ("search", "backlog", "message-count"),
    "abort": ("search", "backlog"),
    "many-workers": ("several-workloads", "search", "many-streams", "long"),
    "pair-consumers": ("producer-only", "broadcast"),
    "connects": ("several-workloads", "search", "many-streams"),
    "route": ("backlog", "producer-only", "broadcast", "bytes", "delays", "partitions", "checksum"),
}
"""Shape → others that it cannot be combined with."""
WITH: Final[dict[str, Features]] = {"long": ("hosts", "clocks")}
"""Shape → others that come with it: a clock that drifts is wrong by milliseconds only after many seconds."""

FAULTS: Final[dict[str, float]] = {
    "latency": 2, "stall": 2, "hang": 0.5, "throttle": 1.5, "slow-delivery": 1, "no-delivery": 0.7, "early-delivery": 8, "reject": 1,
    "lose-unanswered": 1, "lose-acknowledged": 1, "lose-copy": 1, "redeliver": 1, "double": 1, "reorder": 1, "corrupt-body": 0.7,
    "corrupt-head": 0.5, "misrouted": 0.7, "foreign": 0.5, "cut-resend": 1, "cut-lose": 1, "restart": 0.7, "forget": 0.7, "counters": 0.5,
    "pause": 2.5, "slow-send": 1.5, "slow-read": 1.5, "slow-disk": 1, "kill": 0.4,
}  # fmt: skip
"""Kind of fault → weight among those of its side."""

SERVICE_FAULTS: Final[dict[str, float]] = {
    "service-lose": 2.5, "service-double": 2, "service-slow": 2, "service-stall": 2, "service-death": 1.7,
}  # fmt: skip
"""The same of faults of a service under test, which are drawn apart."""
OF_SERVICE: Final = 0.8
"""Share of the worlds with a route and a fault of the target in which its service has one."""
SERVICE_ALONE: Final = 0.6
"""Share of these in which nothing else of the target is at fault."""

SURVIVED: Final = tuple(
    kind for kind in (*FAULTS, *SERVICE_FAULTS) if kind not in ("hang", "counters", "kill")
)
"""Kinds of stormy worlds: a run survives and reports them."""
OF_DELIVERIES: Final = (
    "lose-copy", "foreign", "misrouted", "slow-delivery", "no-delivery", "early-delivery", "redeliver", "double", "reorder",
)  # fmt: skip
"""Kinds that need consumers."""
INSTANTS: Final = ("kill",)
"""Kinds without a duration."""
ONCE: Final = ("hang", "counters")
"""Kinds that a second fault of the same kind would not change, or would contradict."""

SIDES: Final = {(TARGET,): 0.48, (GENERATOR,): 0.32, (TARGET, GENERATOR): 0.2}
"""Whose faults a world has. Where both are at fault, two outcomes are allowed, so such worlds prove less."""

_SECOND_COPIES: Final = ("double", "redeliver")
_MISSING: Final = ("lose-acknowledged", "lose-copy")
_NEVER_CAME: Final = (*_MISSING, "lose-unanswered", "reject")
_LATE: Final = ("slow-delivery", "no-delivery")
_OWN_DELAYS: Final = ("pause", "slow-send", "slow-read")
TOGETHER: Final[dict[str, tuple[str, ...]]] = {
    # A second copy counts like one that is missing, or late, where a rule compares sums.
    **dict.fromkeys(_SECOND_COPIES, (*_MISSING, *_LATE)),
    **dict.fromkeys(_LATE, _SECOND_COPIES),
    **dict.fromkeys(_MISSING, (*_SECOND_COPIES, *_OWN_DELAYS)),
    # A latency is the target's and the generator's, and what never came has none.
    **dict.fromkeys(("lose-unanswered", "reject"), _OWN_DELAYS),
    **dict.fromkeys(_OWN_DELAYS, (*_MISSING, "lose-unanswered", "reject", "latency")),
}
"""Kind of fault → kinds that one rule of a verdict looks at together with it."""
OFTEN_TOGETHER: Final = 0.5
"""Share of the worlds with such a fault in which the next one is of these kinds."""
OF_BACKLOGS: Final = 6
"""How many times as often faults of second, missing and late copies come with a backlog, whose size is a difference of sums."""

SHORT: Final = (20 * MS, 90 * MS)
"""ns: stops of a worker that lengthen some latencies, and are below the limits of ``generator`` by default."""

HIDDEN: Final = "second copies hide late ones"
EXCUSED: Final = "a stop among losses"
SCENARIOS: Final = {"": 0.955, HIDDEN: 0.015, EXCUSED: 0.03}
"""Faults that are drawn together on purpose → share: some defects need both, and all else well."""

LASTING: Final = (
    "latency", "stall", "throttle", *_LATE, "cut-resend", "cut-lose", "restart", "forget", "service-stall", "service-death",
)  # fmt: skip
"""Kinds that may last into the drain."""
STRONG: Final = 0.15
"""Share of the faults that strike a large part of the load, for the rest of it."""
STRONG_TOGETHER: Final = 0.4
"""The same of a fault that is drawn for the one before."""
STRONG_OF_BACKLOGS: Final = 0.6
"""The same with a backlog, of which some messages may always be left."""
INTO_DRAIN: Final = 0.15
"""Share of these faults that do."""
LATE_INTO_DRAIN: Final = 0.45
"""The same of late deliveries, which a drain is there for."""

IMPOSSIBLE: Final = frozenset(
    {
        "subscribeLatency",
        "reconnectLatency",
        "delayedIndexBytesPerMessage",
    }
)
"""Metrics that the simulated kind cannot have. Regression and users' own metrics are not drawn either."""

DAY: Final = 86_400 * SECOND


def draw(seed: int, without: Set[str] = frozenset()) -> World:
    """Draw the world of a seed. :param without: shapes and kinds of faults to leave out; everything else stays as it is."""
    tag = dice(seed, "tag").weighted(TAGS)
    features = _features(seed, without)
    target = _target(seed)
    # The latency of one message in a thousand, where the distribution is widest.
    slowest = 10 * (target.up + target.store + target.down) / SECOND if tag == "calm" else None
    names = _workload_names(seed, features)
    loads = [draw_load(seed, name, features, slowest) for name in names]
    hosts = _hosts(seed, tag, features)
    workers = _workers(seed, features, hosts)
    hosts = tuple(host for host in hosts if host.name in workers)
    length = max(load.warmup + load.duration for load in loads)
    if "search" in features:
        length *= 6
    drawn = _Faults(seed, tag, loads[0], workers, length, without)
    faults = drawn.draw()
    if drawn.drain > loads[0].drain:
        loads[0].keys["drainTimeout"] = span(drawn.drain)
    if "search" in features and tag != "calm":
        faults = (*faults, _limit(seed, loads[0], without))
    faults = tuple(fault for fault in faults if fault is not None)
    if "route" in features:
        target = replace(target, service=_service_time(seed, loads))
        faults = drawn.with_service(faults)
    scales = _scales(tag, target, faults, routed="route" in features)
    for number, load in enumerate(loads):
        Author(seed, f"workload {number}", load, features, scales).write()
    return World(
        seed=seed,
        tag=tag,
        workers=workers,
        hosts=hosts,
        profile=_profile(seed, loads, features, scales, workers),
        target=target,
        faults=faults,
    )


def _features(seed: int, without: Set[str]) -> Features:
    chosen: list[str] = []
    for name, share in FEATURES.items():
        drawn = dice(seed, name).chance(share)
        excluded = any(other in chosen for other in EXCLUDED_BY.get(name, ()))
        if drawn and name not in without and not excluded:
            chosen.append(name)
    for name in tuple(chosen):
        chosen += [
            other for other in WITH.get(name, ()) if other not in chosen and other not in without
        ]
    return tuple(chosen)


def _workload_names(seed: int, features: Features) -> list[str]:
    if "several-workloads" not in features:
        return ["workload 0"]
    return [f"workload {number}" for number in range(dice(seed, "workloads").randint(2, 3))]


def _target(seed: int) -> Target:
    die = dice(seed, "target")
    scale = die.between(0.3, 20)
    return Target(
        up=round(100 * US * scale * die.between(0.3, 3)),
        store=round(500 * US * scale * die.between(0.3, 3)),
        down=round(100 * US * scale * die.between(0.3, 3)),
        spread=die.choice([0.0, 0.1, 0.3, 0.3, 0.7]),
    )


# Hosts and workers.


def _hosts(seed: int, tag: str, features: Features) -> tuple[Host, ...]:
    """Draw hosts. Every host has a clock that began at another time and drifts a little: that is no fault."""
    if "hosts" not in features:
        return ()
    die = dice(seed, "hosts")
    untrue = "clocks" in features and tag != "calm"
    number = die.choice([1, 1, 2, 3])
    return tuple(
        _host(f"h{index}", dice(seed, "host", index), tag, untrue) for index in range(number)
    )


def _host(name: str, die: Dice, tag: str, untrue: bool) -> Host:
    there = die.whole(20 * US, 500 * US)
    natural = {
        "offset": round(die.uniform(-30, 30) * DAY) if die.chance(0.7) else 0,
        "drift": significant(die.uniform(-20e-6, 20e-6)) if die.chance(0.5) else 0.0,
        "there": there,
        "back": there,
        "jitter": die.choice([0, 10 * US, 50 * US]),
    }
    if not untrue:
        return Host(name=name, **natural)
    kinds = die.some(["drift", "slew", "asymmetric", "jitter", "lossy", "step"], 2)
    extra: dict[str, Any] = {}
    if "drift" in kinds:
        extra["drift"] = significant(die.choice([-1, 1]) * die.between(50e-6, 500e-6))
    if "slew" in kinds:
        begin = round(die.uniform(0, 10) * SECOND)
        extra["slews"] = (
            (
                begin,
                begin + round(die.between(0.5, 10) * SECOND),
                significant(die.uniform(-500e-6, 500e-6)),
            ),
        )
    if "asymmetric" in kinds:
        extra["there"] = die.whole(MS // 10, 20 * MS)
    if "jitter" in kinds:
        extra["jitter"] = die.whole(100 * US, 10 * MS)
    if "lossy" in kinds:
        extra["lossy"] = significant(die.between(0.01, 0.3))
    if "step" in kinds and tag == "unrestricted":
        extra["steps"] = (
            (
                round(die.uniform(0, 10) * SECOND),
                round(die.choice([-1, 1]) * die.between(MS, 10 * SECOND)),
            ),
        )
    return Host(name=name, **{**natural, **extra})


def _workers(seed: int, features: Features, hosts: tuple[Host, ...]) -> tuple[str, ...]:
    die = dice(seed, "workers")
    number = 1
    if "many-workers" in features:
        number = die.randint(9, 16)
    elif "workers" in features:
        number = die.weighted({2: 0.5, 3: 0.2, 4: 0.2, die.randint(5, 8): 0.1})
    if {"several-workloads", "search", "long"} & set(features):
        # Each worker takes part in each workload, and in each step of a search, and costs CPU time for each second.
        number = min(number, 3)
    names = [host.name for host in hosts]
    if not names:
        return (CONTROLLER,) * number
    # Each host has a worker; the controller's host may have some, too.
    names = names[:number]
    own = names if die.chance(0.5) else [CONTROLLER, *names]
    places = [*names, *(die.choice(own) for _ in range(number - len(names)))]
    return tuple(sorted(places, key=lambda name: (name != CONTROLLER, name)))


# Faults.


class _Faults:
    """Draws the faults of a world.

    :param length: ns, how long load runs: times of faults lie in it, and a few just behind it, in the drain.
    """

    def __init__(
        self,
        seed: int,
        tag: str,
        load: Load,
        workers: tuple[str, ...],
        length: int,
        without: Set[str],
    ) -> None:
        self._seed = seed
        self._tag = tag
        self._load = load
        self._workers = workers
        self._length = length
        self._without = without
        self.drain = 0
        """ns: the drain has to last so long, for what the faults hold back."""
        self._is_backlog = "consumerBacklogSizeGB" in load.keys
        self._strong = STRONG_OF_BACKLOGS if self._is_backlog else STRONG

    def draw(self) -> tuple[Fault, ...]:
        if self._tag == "calm":
            return ()
        scenario = dice(self._seed, "scenario").weighted(SCENARIOS)
        if scenario and self._load.subscriptions:
            drawn = self._scenario(scenario, dice(self._seed, scenario))
            kept = [fault for fault in drawn if fault.kind not in self._without]
            return tuple(sorted(kept, key=lambda fault: (fault.at, fault.kind)))
        die = dice(self._seed, "faults")
        sides = die.weighted(SIDES)
        possible = tuple(FAULTS)
        if self._tag == "stormy":
            possible = tuple(kind for kind in FAULTS if kind in SURVIVED)
        impossible = {*self._impossible(), *self._without}
        kinds = [kind for kind in possible if KINDS[kind].side in sides and kind not in impossible]
        number = die.weighted({1: 0.45, 2: 0.25, 3: 0.15, 4: 0.08, 6: 0.05, 8: 0.02})
        faults: list[Fault] = []
        following = kinds
        for index in range(max(number, len(sides))):
            candidates = following
            if index == 1:
                candidates, following = self._second(faults[0].kind, kinds, sides, die)
            weights = self._weights(candidates, faults)
            if not weights:
                break
            strong = self._strong
            if index == 1 and candidates[0] in TOGETHER.get(faults[0].kind, ()):
                strong = STRONG_TOGETHER
            kind = die.weighted(weights)
            faults.append(self._fault(kind, dice(self._seed, "fault", index), strong))
        return tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind)))

    def with_service(self, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
        """Return the faults with some of a service, if the target has any; often these alone."""
        die = dice(self._seed, "service faults")
        weights = {
            kind: weight for kind, weight in SERVICE_FAULTS.items() if kind not in self._without
        }
        others = [fault for fault in faults if KINDS[fault.kind].side == TARGET]
        if not others or not weights or not die.chance(OF_SERVICE):
            return faults
        kept = list(faults)
        if die.chance(SERVICE_ALONE):
            kept = [fault for fault in faults if fault not in others]
        for _ in range(die.weighted({1: 0.5, 2: 0.35, 3: 0.15})):
            kept.append(self._fault(die.weighted(weights), die, STRONG))
        return tuple(sorted(kept, key=lambda fault: (fault.at, fault.kind)))

    def _scenario(self, name: str, die: Dice) -> list[Fault]:
        """Return the faults of a scenario."""
        if name == HIDDEN:
            copies = self._lasting(die.choice(_SECOND_COPIES), die)
            copies.values["after"] = round(die.between(100 * US, 100 * MS))
            late = self._into_drain("slow-delivery", die)
            late.values["share"] = significant(die.between(0.1, 1))
            return [replace(copies, at=0), late]
        # A few messages are missing, and a worker stops for less than the limits of ``generator`` allow.
        missing = self._lasting(die.choice(_NEVER_CAME), die)
        missing.values["share"] = significant(die.between(0.02, 0.5))
        stopped = Fault(
            kind="pause",
            at=round(die.uniform(self._load.warmup, self._length)),
            duration=round(die.between(*SHORT)),
            values=self._values("pause", die),
        )
        return [missing, stopped]

    def _second(
        self, first: str, kinds: list[str], sides: tuple[str, ...], die: Dice
    ) -> tuple[list[str], list[str]]:
        """Return the kinds of which the second fault may be, and those of all further ones."""
        others = [kind for kind in kinds if KINDS[kind].side != KINDS[first].side]
        candidates = others if len(sides) > 1 and others else kinds
        together = [kind for kind in candidates if kind in TOGETHER.get(first, ())]
        if die.chance(OFTEN_TOGETHER) and together:
            return together, kinds
        if die.chance(0.3) and first not in ONCE and candidates is kinds:
            # One kind several times: some defects need it again.
            return [first], [first]
        return candidates, kinds

    def _weights(self, kinds: list[str], faults: list[Fault]) -> dict[str, float]:
        """Return the kinds that may be drawn next, with their weights."""
        drawn = {fault.kind for fault in faults}
        weights: dict[str, float] = {
            kind: FAULTS[kind] for kind in kinds if kind not in ONCE or kind not in drawn
        }
        if self._is_backlog:
            for kind in weights.keys() & {*_SECOND_COPIES, *_MISSING, *_LATE}:
                weights[kind] *= OF_BACKLOGS
        return weights

    def _impossible(self) -> Set[str]:
        """Return the kinds that would change nothing with this load."""
        kinds: set[str] = set()
        if not self._load.subscriptions:
            kinds.update(OF_DELIVERIES)
        if self._load.topics < 2:
            kinds.add("misrouted")
        if not self._load.longest_delay:
            kinds.add("early-delivery")
        return kinds

    def _fault(self, kind: str, die: Dice, strong: float) -> Fault:
        into_drain = LATE_INTO_DRAIN if kind in _LATE else INTO_DRAIN
        if kind in LASTING and die.chance(into_drain):
            return self._into_drain(kind, die)
        if "share" in KINDS[kind].values and die.chance(strong):
            return self._lasting(kind, die)
        at = die.weighted(
            {
                round(die.uniform(0, self._length)): 0.75,
                0: 0.07,
                self._load.warmup: 0.06,
                self._length - round(die.between(MS, self._length)): 0.08,
                self._length + round(die.between(MS, SECOND)): 0.04,
            }
        )
        return Fault(
            kind=kind,
            at=max(at, 0),
            duration=self._duration(kind, die),
            values=self._values(kind, die),
        )

    def _lasting(self, kind: str, die: Dice) -> Fault:
        """Return a fault that strikes a large part of the messages until the end of the world."""
        values = {**self._values(kind, die), "share": significant(die.between(0.1, 1))}
        at = die.choice([0, round(die.uniform(0, self._length / 2))])
        return Fault(kind=kind, at=at, duration=None, values=values)

    def _into_drain(self, kind: str, die: Dice) -> Fault:
        """Return a fault that begins before the end of the load, and whose effect ends before that of the drain, or a little later."""
        before = round(die.between(10 * MS, min(self._length, SECOND)))
        further = round(die.uniform(0, 1.1) * self._load.drain)
        if kind in _LATE and die.chance(0.6):
            # What comes late comes in time for the drain, which is as long as that.
            further = round(die.between(0.3, 3) * SECOND)
            self.drain = max(self.drain, further + 2 * SECOND)
        values = self._values(kind, die)
        duration = before + further
        if kind == "slow-delivery":
            values["by"] = duration
            duration = before
        return Fault(kind=kind, at=self._length - before, duration=duration, values=values)

    def _duration(self, kind: str, die: Dice) -> int | None:
        if kind in INSTANTS:
            return 0
        if kind == "hang":
            return None
        if kind == "pause":
            return die.weighted(
                {
                    round(die.between(MS, 3 * SECOND)): 0.93,
                    round(die.between(3 * SECOND, 60 * SECOND)): 0.07,
                }
            )
        if kind in ("stall", "cut-resend", "cut-lose", "restart", "forget", "service-stall"):
            return round(die.between(MS, min(self._length, 5 * SECOND)))
        if die.chance(0.15):
            return None
        return round(die.between(min(10 * MS, self._length), self._length))

    def _values(self, kind: str, die: Dice) -> dict[str, Any]:
        values: dict[str, Any] = {}
        left_out = ""
        if "nth" in KINDS[kind].values and "share" in KINDS[kind].values:
            # The one that is left out.
            left_out = die.choice(["nth", "share"])
        for name in KINDS[kind].values:
            if name == left_out:
                continue
            if name == "topics" and (self._load.topics < 2 or die.chance(0.5)):
                continue
            if name == "late" and die.chance(0.5):
                continue
            values[name] = self._value(name, kind, die)
        return values

    def _value(self, name: str, kind: str, die: Dice) -> Any:
        load = self._load
        draws: dict[str, Callable[[], Any]] = {
            # At least one message of those in the fault's time should be affected.
            "share": lambda: significant(min(die.between(min(2 / load.messages, 1), 1), 1.0)),
            "by": lambda: self._by(kind, die),
            "after": lambda: round(die.between(100 * US, 3 * SECOND)),
            "late": lambda: round(die.between(100 * US, SECOND)),
            "topics": lambda: die.some(range(load.topics), 3),
            "rate": lambda: max(significant(load.rate * die.between(0.1, 3)), 0.5),
            "every": lambda: round(die.between(MS, SECOND)),
            "subscription": lambda: die.randrange(load.subscriptions),
            "worker": lambda: die.randrange(len(self._workers)),
            "nth": lambda: die.whole(2, max(load.messages // (load.topics * load.producers), 2)),
        }
        return draws[name]()

    def _by(self, kind: str, die: Dice) -> int:
        if kind == "counters":
            return die.choice([-1, 1]) * die.whole(1, max(self._load.messages // 2, 1))
        longest = 50 * MS if kind == "slow-send" else 3 * SECOND
        return round(die.between(20 * US, longest))


def _limit(seed: int, load: Load, without: Set[str]) -> Fault | None:
    """Return a throttle for the whole world, so that a search has something to find."""
    if "throttle" in without:
        return None
    die = dice(seed, "limit")
    return Fault(
        kind="throttle",
        at=0,
        duration=None,
        values={"rate": max(significant(load.rate * die.between(0.5, 6)), 1)},
    )


def _service_time(seed: int, loads: list[Load]) -> int:
    """Return the median time of a service for an input, ns: so short that a stream never waits for long."""
    busiest = max(load.highest / (load.topics * load.producers) for load in loads)
    longest = min(0.02 * SECOND / busiest, 50 * MS)
    return round(dice(seed, "service").between(20 * US, max(longest, 20 * US)))


def _scales(tag: str, target: Target, faults: tuple[Fault, ...], *, routed: bool) -> Scales:
    delays: list[int] = []
    for fault in faults:
        if fault.kind != "counters":
            delays.append(int(fault.values.get("by", 0)))
        if fault.kind in (
            "pause",
            "stall",
            "no-delivery",
            "cut-resend",
            "cut-lose",
            "restart",
            "forget",
            "service-stall",
        ):
            delays.append(fault.duration or 0)
    latency = target.up + target.store + target.down
    if routed:
        latency = 2 * latency + target.service
    pauses = [fault.duration or 0 for fault in faults if fault.kind == "pause"]
    slowest = latency * math.exp(3.3 * target.spread) + 2 * MS
    between = (slowest, 0.8 * min(pauses, default=0))
    return Scales(
        latency=latency,
        faults=widest_fault(delays),
        paused=between if between[0] < between[1] <= SHORT[1] else None,
        calm=tag == "calm",
        counts=tuple(COUNTED_BY[fault.kind] for fault in faults if fault.kind in COUNTED_BY),
    )


# The document of the profile.


def _profile(
    seed: int, loads: list[Load], features: Features, scales: Scales, workers: tuple[str, ...]
) -> dict[str, Any]:
    die = dice(seed, "profile")
    top: dict[str, Any] = {"name": f"world {seed}", "seed": die.choice([0, die.randrange(2**31)])}
    if "generator-limits" in features:
        limits = generator_limits(die, scales)
        if limits:
            top["generator"] = limits
    several_hosts = len(set(workers)) > 1
    if (
        "pair-consumers" in features
        and several_hosts
        and all(load.subscriptions < 64 for load in loads)
    ):
        top["pairConsumers"] = "host"
    for load in loads:
        load.keys["driver"] = {"name": "simulated", **load.keys.get("driver", {})}
    if "several-workloads" not in features:
        return {**top, **loads[0].keys}
    entries = [{"name": f"load {number}", **load.keys} for number, load in enumerate(loads)]
    return {**top, "driver": {"name": "simulated"}, "workloads": entries}
