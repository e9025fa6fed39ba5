"""Laws between two worlds that differ in one thing: what may follow from the difference, whatever the rules of a verdict are.

- a tighter bound never turns *missed* into *met* (docs/reference/profile.md, slo);
- a fault that only delays never turns *missed* into *met*: neither one of the target nor one of the generator;
- the faults of a generator never turn *missed* into *met*: what is met with them is met with a perfect generator;
- ordinary clocks, which drift a little, never change *met* and *missed*, nor the counts of a world without faults (docs/clocks.md);
- in a world without faults, another number of workers, and other hosts for them, give the same counts and verdict (docs/design.md, Plan);
- so does a service without the tap on its inputs (docs/howto/test-a-service.md).
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from simulation.blame import is_comparable, missed
from simulation.coverage import objectives, workloads
from simulation.dice import dice, percent, span
from simulation.draw_objectives import COUNTS, LATENCIES
from simulation.margins import margin_between
from simulation.shrink import UNITS
from simulation.violation import Violation
from simulation.world import CONTROLLER, MS, Fault, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.truth import Played

EXACT_COUNTS: Final = (
    "offered",
    "sent",
    "acked",
    "failed",
    "dropped",
    "received",
    "lost",
    "duplicates",
)
"""Keys of ``measurements.counts`` in results.json that do not depend on the number of workers."""

LATE: Final = 20 * MS
"""ns by which the client of a worker reads late."""
SHARE: Final = 0.15
"""Share of the worlds, by their seeds, for which each law is tried."""
OFTEN: Final = 0.5
"""The same of a law that few worlds can have."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A law.

    :param changed: the world to compare with; None: the law does not apply. :param broken: why it is broken, or ''.
    :param margin: what explains a difference between the two plays without the law being broken (margins.py). :param share: of the
        worlds, by their seeds, for which it is tried.
    """

    name: str
    changed: Callable[[World, Played], World | None]
    broken: Callable[[Played, Played], str]
    margin: Callable[[Played, Played], str] = lambda _played, _other: ""
    share: float = SHARE

    def check(self, played: Played, other: Played) -> list[Violation]:
        """Return the violation, if the law is broken."""
        reason = self.broken(played, other)
        if not reason:
            return []
        return [Violation(f"law: {self.name}", reason, self.margin(played, other))]


def applicable(played: Played) -> list[tuple[Law, World]]:
    """Return the laws to try with a world that was played, each with the world to compare with."""
    found = []
    for law in LAWS:
        if dice(played.world.seed, "law", law.name).chance(law.share):
            changed = law.changed(played.world, played)
            if changed is not None:
                found.append((law, changed))
    return found


def _no_longer_missed(played: Played, other: Played) -> str:
    return "" if other.outcome != "met" else f"{played.outcome} turned into {other.outcome}"


# Tighter.


def tighter(world: World, played: Played) -> World | None:
    """Return a missed world with each upper bound half as large; None if a bound has two sides."""
    if played.outcome != "missed" or "search" in world.profile or "workloads" in world.profile:
        return None
    if _two_sided(world.profile):
        return None
    profile = deepcopy(world.profile)
    for section in (profile, *profile.get("stages", ())):
        if "slo" in section:
            section["slo"] = _tightened(section["slo"])
    return replace(world, profile=profile) if profile != world.profile else None


def _two_sided(profile: dict[str, Any]) -> bool:
    sections = [
        profile.get("slo", {}),
        *(stage.get("slo", {}) for stage in profile.get("stages", ())),
    ]
    return any(key in str(section) for section in sections for key in ("'min': '", "'min': {"))


def _tightened(section: dict[str, Any]) -> dict[str, Any]:
    tight = {}
    for key, value in section.items():
        if key in LATENCIES and key != "earliness":
            tight[key] = {statistic: _half_bound(bound) for statistic, bound in value.items()}
        elif key in COUNTS:
            tight[key] = _half_bound(value)
        elif key in ("whole", "buckets") or (isinstance(value, dict) and key != "drift"):
            tight[key] = _tightened(value)
        else:
            tight[key] = value
    return tight


def _half_bound(bound: Any) -> Any:
    if isinstance(bound, dict):
        return {side: _half_bound(value) for side, value in bound.items()}
    if isinstance(bound, int):
        return bound // 2
    match = re.fullmatch(r"([\d.]+)(us|ms|s|%)", bound)
    assert match is not None, bound
    if match[2] == "%":
        return percent(float(match[1]) / 200)
    return span(max(float(match[1]) * UNITS[match[2]] / 2, 1_000))


# Later.


def later(world: World, played: Played) -> World | None:
    """Return a missed world in which every delivery comes 100 ms later."""
    if not _is_delay_harmful(world, played):
        return None
    delay = Fault(kind="slow-delivery", at=0, duration=None, values={"by": 100 * MS, "share": 1.0})
    return replace(world, faults=(*world.faults, delay))


def later_reads(world: World, played: Played) -> World | None:
    """Return a missed world in which the client of each worker reads late, and then sends late too."""
    if not _is_delay_harmful(world, played):
        return None
    late = tuple(
        Fault(kind="slow-read", at=0, duration=None, values={"worker": worker, "by": LATE})
        for worker in range(len(world.workers))
    )
    return replace(world, faults=(*world.faults, *late))


def _is_delay_harmful(world: World, played: Played) -> bool:
    """Return whether a world was missed, and a delay cannot help.

    It may help with a lower bound, a drift (the first tenth may become slower), a gap (the last one becomes shorter), where no message
    may be early, and with a throughput, which counts from the phase's start and the median latency on (docs/decisions/004).
    """
    excluded = {
        "search",
        "workloads",
        "abort",
        "consumerBacklogSizeGB",
        "deliverAfter",
        "deliverAt",
    }
    if played.outcome != "missed" or excluded & set(world.profile):
        return False
    findings = (played.results or {}).get("verdict", {}).get("findings", ())
    if {one["metric"] for one in findings if one["outcome"] == "missed"} == {"throughput"}:
        return False
    metrics = {metric for metric, _ in objectives(world)}
    if _two_sided(world.profile) or {"earliness", "deliveryGap"} & metrics:
        return False
    return not any("drift" in profile.get("slo", {}) for profile in workloads(world))


# A perfect generator.


def perfect(world: World, played: Played) -> World | None:
    """Return a world that was met with faults of the generator, without them."""
    if played.outcome != "met" or world.tag == "calm" or world.has_perfect_generator:
        return None
    return world.without_generator_faults() if is_comparable(played) else None


def _not_missed(played: Played, other: Played) -> str:
    if other.outcome != "missed":
        return ""
    return f"{played.outcome}, and missed with a perfect generator{missed(other)}"


def true_clocks(world: World, played: Played) -> World | None:
    """Return a world with ordinary clocks, which drift and are exchanged over a network, with clocks that are true."""
    if not world.has_perfect_generator or not is_comparable(played):
        return None
    true = world.without_generator_faults()
    return true if played.outcome in ("met", "missed") and true != world else None


def _is_reversed(played: Played, other: Played) -> str:
    """Return whether an outcome, or without faults a count, is another one; a message at the edge of a fault may have another fate."""
    if {played.outcome, other.outcome} == {"met", "missed"}:
        return (
            f"{played.outcome}{missed(played)}, and {other.outcome} with true clocks{missed(other)}"
        )
    return _other_counts(played, other) if _is_untied(played.world, played) else ""


# Other workers.


def other_workers(world: World, played: Played) -> World | None:
    """Return a world without faults and hosts with another number of workers."""
    if world.hosts or not _is_untied(world, played):
        return None
    number = len(world.workers)
    return replace(world, workers=(CONTROLLER,) * (1 if number > 1 else 3))


def other_hosts(world: World, played: Played) -> World | None:
    """Return a world without faults with all workers on the controller's host, which divides the load otherwise."""
    if not world.hosts or not world.has_perfect_generator or not _is_untied(world, played):
        return None
    profile = {key: value for key, value in world.profile.items() if key != "pairConsumers"}
    workers = (CONTROLLER,) * len(world.workers)
    return replace(world, workers=workers, hosts=(), profile=profile)


def without_tap(world: World, played: Played) -> World | None:
    """Return a world without faults whose service has a tap on its inputs, without the tap."""
    if not world.has_perfect_generator or not _is_untied(world, played):
        return None
    profile = deepcopy(world.profile)
    tap = profile.get("route", {}).pop("tap", False)
    return replace(world, profile=profile) if tap else None


def _is_untied(world: World, played: Played) -> bool:
    """Return whether nothing in a world depends on its workers: no fault, no limit of the generator, no load that adapts."""
    if world.faults or played.outcome not in ("met", "missed"):
        return False
    return not {"search", "abort", "consumerBacklogSizeGB", "generator"} & set(world.profile)


def _same(played: Played, other: Played) -> str:
    if played.outcome != other.outcome:
        return f"{played.outcome} turned into {other.outcome}"
    return _other_counts(played, other)


def _other_counts(played: Played, other: Played) -> str:
    ours, theirs = _counts(played), _counts(other)
    different = [
        f"{key} {ours[key]} and {theirs.get(key)}" for key in ours if ours[key] != theirs.get(key)
    ]
    return "; ".join(different)


def _counts(played: Played) -> dict[str, Any]:
    counts = ((played.results or {}).get("measurements") or {}).get("counts", {})
    return {key: counts[key] for key in EXACT_COUNTS if key in counts}


LAWS: Final = (
    Law(name="a tighter bound", changed=tighter, broken=_no_longer_missed),
    Law(name="later deliveries", changed=later, broken=_no_longer_missed),
    Law(
        name="later reads",
        changed=later_reads,
        broken=_no_longer_missed,
        margin=partial(margin_between, later=LATE),
    ),
    Law(
        name="a perfect generator",
        changed=perfect,
        broken=_not_missed,
        margin=margin_between,
        share=1.0,
    ),
    Law(
        name="true clocks",
        changed=true_clocks,
        broken=_is_reversed,
        margin=margin_between,
        share=OFTEN,
    ),
    Law(name="other workers", changed=other_workers, broken=_same),
    Law(name="other hosts", changed=other_hosts, broken=_same, margin=margin_between),
    Law(name="no tap", changed=without_tap, broken=_same, margin=margin_between, share=OFTEN),
)
