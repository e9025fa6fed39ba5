"""Which classes of worlds a run of the simulator has seen: a state that never came was not tested."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from simulation.draw import FAULTS, LASTING, SERVICE_FAULTS, TAGS, TOGETHER
from simulation.draw_objectives import COUNTS, LATENCIES, SHARES, STATISTICS
from simulation.world import GENERATOR, SECOND, TARGET

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from simulation.world import Fault, World

OUTCOMES: Final = ("met", "missed", "generator-limited", "no data")
AT_FAULT: Final = ("nobody", "target", "generator", "both")
ENOUGH: Final = 1_000
"""Worlds after which each class must have come."""
PARTS: Final = ("buckets", "window", "violations", "whole", "drift")
"""Keys of an ``slo`` section that are not metrics."""

LONG: Final = 9.0
"""Seconds of a load in which a clock that drifts becomes wrong by more than its error."""
LONG_STEP: Final = 4.0
"""Seconds of a step of a search that can end early."""

Profile = dict[str, Any]


def workloads(world: World) -> list[Profile]:
    """Return the keys of each workload of a world, with those that all of them share."""
    profile = world.profile
    if "workloads" not in profile:
        return [profile]
    shared = {key: value for key, value in profile.items() if key != "workloads"}
    return [{**shared, **keys} for keys in profile["workloads"]]


# Shapes: name → whether a workload has it.


def _driver(key: str, value: object) -> Callable[[Profile], bool]:
    return lambda profile: profile.get("driver", {}).get(key) == value


def _has(key: str) -> Callable[[Profile], bool]:
    return lambda profile: key in profile


def _number(key: str, least: int) -> Callable[[Profile], bool]:
    return lambda profile: profile.get(key, 1) >= least


def _slo(key: str) -> Callable[[Profile], bool]:
    return lambda profile: key in profile.get("slo", {})


def _stage_rate(key: str) -> Callable[[Profile], bool]:
    def has(profile: Profile) -> bool:
        rates = [stage.get("rate") for stage in profile.get("stages", ())]
        return any(isinstance(rate, dict) and key in rate for rate in rates)

    return has


def streams(profile: Profile) -> int:
    """Return the number of streams of a workload."""
    number: int = profile.get("topics", 1) * profile.get("producersPerTopic", 1)
    return number


def seconds_of(text: str) -> float:
    """Return a duration of a profile: ``2500ms``."""
    for unit, factor in (("us", 1e-6), ("ms", 1e-3), ("min", 60.0), ("s", 1.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)


def outputs(profile: Profile) -> Any:
    """Return the outputs of a service for each input: a number, or a section if it chooses."""
    return profile.get("route", {}).get("outputs", 1)


def load_seconds(profile: Profile) -> float:
    """Return the length of the measured phase; 0 where the profile does not say it."""
    if "stages" in profile:
        return sum(seconds_of(stage["duration"]) for stage in profile["stages"])
    return seconds_of(profile.get("testDuration", "0s"))


def _has_long_steps(profile: Profile) -> bool:
    return seconds_of(profile.get("search", {}).get("hold", "0s")) > LONG_STEP


SHAPES: Final[dict[str, Callable[[Profile], bool]]] = {
    "search": _has("search"),
    "long steps": _has_long_steps,
    "long load": lambda profile: load_seconds(profile) > LONG,
    "stages": _has("stages"),
    "ramp": _stage_rate("from"),
    "sine": _stage_rate("sine"),
    "spike": _stage_rate("spike"),
    "replay": _stage_rate("replay"),
    "pause": lambda profile: any(stage.get("rate") == 0 for stage in profile.get("stages", ())),
    "consumer changes": lambda profile: any("consumerPerSubscription" in stage for stage in profile.get("stages", ())),
    "stage objectives": lambda profile: any("slo" in stage for stage in profile.get("stages", ())),
    "message count": _has("messages"),
    "rate in bytes": lambda profile: str(profile.get("producerRate", "")).endswith("B/s"),
    "backlog": _has("consumerBacklogSizeGB"),
    "warm-up": _has("warmupDuration"),
    "producer-only": lambda profile: profile.get("subscriptionsPerTopic") == 0,
    "broadcast": _number("subscriptionsPerTopic", 64),
    "several subscriptions": lambda profile: 2 <= profile.get("subscriptionsPerTopic", 1) < 64,
    "several consumers": _number("consumerPerSubscription", 2),
    "partitions": _number("partitionsPerTopic", 2),
    "keys": _has("keyDistributor"),
    "one stream": lambda profile: streams(profile) == 1,
    "100 streams": lambda profile: 100 <= streams(profile) < 5_000,
    "5000 streams": lambda profile: streams(profile) >= 5_000,
    "skew": _has("skew"),
    "swing": lambda profile: "swing" in profile.get("skew", {}),
    "delays": lambda profile: "deliverAfter" in profile or "deliverAt" in profile,
    "size mix": _has("messageSizeDistribution"),
    "compact head": lambda profile: profile.get("messageSize", 32) < 32,
    "checksum": _has("checksum"),
    "no acknowledgements": _driver("acknowledged", False),
    "window of one": _driver("maxPendingMessages", 1),
    "small window": lambda profile: 1 < profile.get("driver", {}).get("maxPendingMessages", 1_000) <= 50,
    "window that fails": _driver("blockIfQueueFull", False),
    "short send delay": _has("maxSendDelay"),
    "objectives in windows": _slo("window"),
    "violations": _slo("violations"),
    "whole": _slo("whole"),
    "drift": _slo("drift"),
    "buckets": _slo("buckets"),
    "abort": _has("abort"),
    "connects": _driver("connects", True),
    "connections at a rate": lambda profile: "connectRate" in profile.get("driver", {}),
    "generator limits": _has("generator"),
    "paired consumers": _has("pairConsumers"),
    "no objectives": lambda profile: not profile.get("slo"),
    "route": _has("route"),
    "envelope outside of the body": lambda profile: profile.get("route", {}).get("envelope") in ("properties", "correlationData"),
    "envelope in JSON": lambda profile: str(profile.get("route", {}).get("envelope")).startswith("json:"),
    "several outputs": lambda profile: isinstance(outputs(profile), int) and outputs(profile) > 1,
    "chosen outputs": lambda profile: isinstance(outputs(profile), dict),
    "tap": lambda profile: "tap" in profile.get("route", {}),
    "several output topics": lambda profile: isinstance(profile.get("route", {}).get("output"), list),
}  # fmt: skip


def lasts_into_drain(fault: Fault, world: World) -> bool:
    """Return whether a fault begins while load runs, and goes on after it, but not for good."""
    profile = world.profile
    length = load_seconds(profile)
    if not length or fault.kind not in LASTING or fault.duration is None:
        return False
    end = (length + seconds_of(profile.get("warmupDuration", "0s"))) * SECOND
    return fault.at < end < fault.at + fault.duration + fault.values.get("by", 0)


def has_faults_of_one_rule(world: World) -> bool:
    """Return whether a world has two faults that one rule of a verdict looks at together."""
    kinds = {fault.kind for fault in world.faults}
    return any(kinds.intersection(TOGETHER.get(kind, ())) for kind in kinds)


OF_WORLDS: Final[dict[str, Callable[[World], bool]]] = {
    "several workloads": lambda world: "workloads" in world.profile,
    "one worker": lambda world: len(world.workers) == 1,
    "several workers": lambda world: len(world.workers) > 1,
    "9 workers": lambda world: len(world.workers) >= 9,
    "other hosts": lambda world: bool(world.hosts),
    "several hosts": lambda world: len(set(world.workers)) > 1,
    "clock that drifts": lambda world: any(abs(host.drift) > 40e-6 for host in world.hosts),
    "clock that slews": lambda world: any(host.slews for host in world.hosts),
    "clock that is set": lambda world: any(host.steps for host in world.hosts),
    "asymmetric path": lambda world: any(host.there != host.back for host in world.hosts),
    "lossy path": lambda world: any(host.lossy for host in world.hosts),
    "fault into the drain": lambda world: any(
        lasts_into_drain(fault, world) for fault in world.faults
    ),
    "faults of one rule": has_faults_of_one_rule,
}


def objectives(world: World) -> Iterator[tuple[str, str]]:
    """Yield metric and statistic of each bound in a world; the statistic is empty where the metric has none."""
    for profile in workloads(world):
        sections = [profile.get("slo", {})]
        sections += [stage.get("slo", {}) for stage in profile.get("stages", ())]
        sections += [section.get("whole", {}) for section in sections]
        sections += [
            bucket for section in sections for bucket in section.get("buckets", {}).values()
        ]
        for section in sections:
            yield from _bounds(section)
        for key in profile.get("slo", {}).get("drift", {}):
            metric, _, statistic = key.partition(".")
            yield metric, statistic


def _bounds(section: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for metric, bound in section.items():
        if metric in PARTS:
            continue
        if metric in LATENCIES:
            yield from ((metric, statistic) for statistic in bound)
        else:
            yield metric, ""


def at_fault(world: World) -> str:
    """Return who is at fault in a world: ``nobody``, ``target``, ``generator`` or ``both``, where two outcomes may be right."""
    target = bool(world.of_side(TARGET))
    generator = bool(world.of_side(GENERATOR))
    if target and generator:
        return "both"
    if generator:
        return "generator"
    return "target" if target else "nobody"


def classes(world: World) -> tuple[str, ...]:
    """Return the classes that a world belongs to: ``tag: calm``, ``fault: stall``, ``shape: search``, ``metric: loss``, ``statistic: p99``."""
    found = [f"tag: {world.tag}", f"at fault: {at_fault(world)}"]
    found += [f"fault: {fault.kind}" for fault in world.faults]
    found += [f"shape: {name}" for name, has in SHAPES.items() if any(map(has, workloads(world)))]
    found += [f"shape: {name}" for name, has in OF_WORLDS.items() if has(world)]
    for metric, statistic in objectives(world):
        found.append(f"metric: {metric}")
        if statistic:
            found.append(f"statistic: {statistic}")
    return tuple(dict.fromkeys(found))


def expected(without: Collection[str] = ()) -> tuple[str, ...]:
    """Return all classes. :param without: names of classes that cannot come, without ``fault:`` and so on."""
    names = [f"tag: {tag}" for tag in TAGS]
    names += [f"at fault: {side}" for side in AT_FAULT]
    names += [f"fault: {kind}" for kind in (*FAULTS, *SERVICE_FAULTS)]
    names += [f"shape: {name}" for name in (*SHAPES, *OF_WORLDS)]
    names += [f"metric: {name}" for name in (*LATENCIES, *COUNTS, *SHARES, "backlogDrain")]
    names += [f"statistic: {name}" for name in STATISTICS]
    names += [f"outcome: {outcome}" for outcome in OUTCOMES]
    absent = {*without, *(name.replace("-", " ") for name in without)}
    return tuple(name for name in names if name.partition(": ")[2] not in absent)


class Coverage:
    """Counts of what came, and of each fault together with each metric."""

    def __init__(self) -> None:
        self.worlds = 0
        self.counts: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[tuple[str, str]] = Counter()

    def add(self, world: World, outcome: str) -> None:
        """Count a world that was played."""
        self.worlds += 1
        self.counts.update(classes(world))
        self.counts[f"outcome: {outcome}"] += 1
        self.outcomes[world.tag, outcome] += 1
        kinds = dict.fromkeys(fault.kind for fault in world.faults)
        metrics = dict.fromkeys(metric for metric, _ in objectives(world))
        for kind in kinds:
            for metric in metrics:
                self.pairs[kind, metric] += 1

    def missing(self, without: Collection[str] = ()) -> list[str]:
        """Return the classes that never came."""
        return [name for name in expected(without) if not self.counts[name]]

    def missing_pairs(self, without: Collection[str] = ()) -> list[tuple[str, str]]:
        """Return the pairs of a fault and a metric that never came together."""
        metrics = (*LATENCIES, *COUNTS, *SHARES)
        pairs = [
            (kind, metric)
            for kind in (*FAULTS, *SERVICE_FAULTS)
            for metric in metrics
            if not {kind, metric} & set(without)
        ]
        return [pair for pair in pairs if not self.pairs[pair]]

    def table(self) -> str:
        """Return the counts as text: one group a paragraph, and faults × metrics."""
        groups: dict[str, list[str]] = {}
        for name in dict.fromkeys((*expected(), *self.counts)):
            group, _, member = name.partition(": ")
            groups.setdefault(group, []).append(f"{member} {self.counts[name]}")
        lines = [f"{self.worlds} worlds"]
        for group, members in groups.items():
            lines += _wrapped(f"{group}: ", members)
        lines += ["", *self._outcome_rows(), "", *self._pair_rows()]
        return "\n".join(lines)

    def _outcome_rows(self) -> list[str]:
        outcomes = list(dict.fromkeys((*OUTCOMES, *(outcome for _, outcome in self.outcomes))))
        rows = [["tag", *outcomes]]
        rows += [[tag, *(str(self.outcomes[tag, outcome]) for outcome in outcomes)] for tag in TAGS]
        return _aligned(rows)

    def _pair_rows(self) -> list[str]:
        metrics = (*LATENCIES, *COUNTS, *SHARES)
        rows = [["fault", *(metric[:9] for metric in metrics)]]
        rows += [
            [kind, *(str(self.pairs[kind, metric] or "·") for metric in metrics)]
            for kind in (*FAULTS, *SERVICE_FAULTS)
        ]
        return _aligned(rows)


def _wrapped(head: str, members: Iterable[str]) -> list[str]:
    lines = [head]
    for member in members:
        if len(lines[-1]) + len(member) > 130:
            lines.append(" " * len(head))
        lines[-1] += member if lines[-1].strip() in ("", head.strip()) else f", {member}"
    return lines


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells))
    return lines
