"""The effect of ``--load-scale`` and ``--load-duration`` on a plan: its rate, topology, durations and bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.costs import cost_key
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.values.quantities import SECOND, ByteRate, format_duration, format_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.plan.phases import PacedTraffic
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology


AUTO_LOAD = (
    0.2  # of all cores: leaves room for the broker's own bursts, Spark's idle JVM and other tenants
)
AUTO_BANDWIDTH = 0.8  # of a host's: the plan counts payloads only, so the rest is for headers, acknowledgements and bursts
HANDLES_PER_CORE = 50  # partition producers and consumers that `auto` opens per core
OTHER_FILES = 100  # open in addition to connections: libraries, logs, samples, links to the controller; a new process has some forty
_HALVINGS = 64  # of the interval from 0 to 1: its last step is far below the least factor at which any rate can be paced


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The resources of this machine: cores that this process may use, memory in bytes.

    :param files: the most that a process may have open. :param ports: for connections from all its source addresses to one port.
    :param source_ports: for those from one of them. :param bandwidth: of its network in each direction, bit/s; None if unknown.
    """

    cores: float
    memory: int
    files: int = 1 << 20
    ports: int = 28_232
    source_ports: int = 28_232
    bandwidth: float | None = None

    @property
    def connections(self) -> int:
        """The most connections of a process."""
        return max(self.files - OTHER_FILES, 1)

    def network_load(self, bytes_per_second: float, fan_out: int) -> float:
        """Return the load of the busier direction as a share of the bandwidth that ``auto`` uses; 0 if that is unknown."""
        return (
            0.0
            if self.bandwidth is None
            else bytes_per_second * max(fan_out, 1) * 8 / (self.bandwidth * AUTO_BANDWIDTH)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The differences between a plan and its profile; ``changes`` has ``before → after`` by name.

    :param factor: on the load: of a broadcast on its subscribers, without messages on its connections. :param rate: on the rate, which a
        broadcast keeps.
    :param messages: planned messages divided by those of the profile; of a search, those of a hold; of a broadcast, deliveries.
    """

    factor: float
    rate: float
    messages: float
    changes: Mapping[str, str]


def auto_broadcast(
    unscaled: Topology, rate: float, size: float, cost: Cost, machine: Machine, workers: int, broker_here: bool,
    connects: Callable[[Topology], bool],
) -> Topology:  # fmt: skip
    """Return a broadcast with as many subscribers as this machine can serve, by the calibrated costs and its bandwidth, and connect.

    :param rate: msg/s. :param connects: true for a topology whose connections this machine can have.
    """

    def fits(topology: Topology) -> bool:
        fan_out = topology.subscriptions
        cores = cost.cores(rate, fan_out, size, broker_here=broker_here) / machine.cores
        worker = cost.busiest_worker(rate, fan_out, size, workers)
        return (
            max(cores, worker) <= AUTO_LOAD
            and machine.network_load(rate * size, fan_out) <= 1
            and connects(topology)
        )

    if fits(unscaled):
        return unscaled
    few, many = WIDTH, max(unscaled.subscriptions, WIDTH + 1)
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (
            (middle, many) if fits(replace(unscaled, subscriptions=middle)) else (few, middle)
        )
    return replace(unscaled, subscriptions=few)


def auto_factor(
    fan_out: int,
    whole: PacedTraffic,
    cost: Cost,
    machine: Machine,
    workers: int,
    broker_here: bool,
    batch: Callable[[float], float],
) -> float:
    """Return the factor on the load that this machine can carry, by the calibrated costs and its bandwidth; at most 1.

    :param batch: messages in a batch at a rate, msg/s. It may not grow faster than the rate: more messages are not fewer batches.
    """

    def load(factor: float) -> float:
        """Return the load as a share of what this machine, or a worker, should carry; it never falls as the factor grows."""
        rate = whole.highest * factor
        cores = cost.cores(
            rate, fan_out, whole.mean_size, broker_here=broker_here, batch=batch(rate)
        )
        worker = cost.busiest_worker(rate, fan_out, whole.mean_size, workers, batch=batch(rate))
        return max(
            max(cores / machine.cores, worker) / AUTO_LOAD,
            machine.network_load(rate * whole.mean_size, fan_out),
        )

    return float(f"{largest_factor(lambda factor: load(factor) <= 1):.1e}")


def largest_factor(fits: Callable[[float], bool]) -> float:
    """Return the largest factor that fits, by bisection; at most 1, and 0 if none fits."""
    if fits(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def auto_topology(profile: Profile, unscaled: Topology, machine: Machine) -> Topology:
    """Return a topology with as many clients as this machine should have; only the numbers in ``scalable`` change."""
    limit, share = HANDLES_PER_CORE * machine.cores, 1.0
    topology = unscaled
    while topology.partition_handles > limit and profile.scalable and share > 1e-4:
        share *= 0.9
        topology = scaled_topology(unscaled, profile.scalable, share)
    return topology


def scaled_broadcast(topology: Topology, factor: float) -> tuple[Topology, float]:
    """Return a broadcast with ``factor`` of its subscribers, and 1; or with the fewest of a broadcast, and the factor left for the rate."""
    left = topology.subscriptions * factor
    return replace(topology, subscriptions=max(round(left), WIDTH)), min(left / WIDTH, 1.0)


def fewer_connections(topology: Topology, factor: float) -> Topology:
    """Return a topology with about ``factor`` of the connections: first with fewer topics, then with fewer clients of each."""
    topics = max(math.ceil(round(topology.topics * min(factor, 1.0), 6)), 1)
    left = factor * topology.topics / topics
    producers, subscriptions = (
        max(round(count * left), min(1, count))
        for count in (topology.producers, topology.subscriptions)
    )
    return replace(topology, topics=topics, producers=producers, subscriptions=subscriptions)


def scaled_topology(topology: Topology, scalable: tuple[str, ...], factor: float) -> Topology:
    """Return a topology with ``factor`` of each number in ``scalable``, but at least 1."""

    def scaled(name: str, value: int) -> int:
        return max(min(1, value), round(value * factor)) if name in scalable else value

    return replace(
        topology, topics=scaled("topics", topology.topics), partitions=scaled("partitions", topology.partitions),
        producers=scaled("producers", topology.producers), consumers=scaled("consumers", topology.consumers),
    )  # fmt: skip


def durations(profile: Profile, whole: PacedTraffic, cap: int | None) -> dict[str, tuple[int, int]]:
    """Return the durations in a run by name, ns: as in the profile, and as shortened by ``cap``.

    A confirmation must show more than a step, so it gets twice the cap; a warm-up gets half of it.

    :param whole: the profile's traffic. :param cap: longest measured phase, ns.
    """
    if profile.search is not None and profile.peak_search:
        search = profile.search
        shares = {
            "hold": (search.hold, Fraction(1)),
            "confirm": (search.confirm, Fraction(2)),
            "warm-up": (search.warmup, Fraction(1, 2)),
        }
    else:
        warmup = 0 if profile.consumer_only or profile.connects_only else profile.warmup_duration
        shares = {
            "measured phase": (whole.duration, Fraction(1)),
            "warm-up": (warmup, Fraction(1, 2)),
        }
    return {
        name: (length, length if cap is None else min(length, int(cap * share)))
        for name, (length, share) in shares.items()
    }


def check_windows(profile: Profile, traffic: PacedTraffic, cap: int | None) -> None:
    """Check that windows still fit into a measured phase that a cap has shortened.

    :raises UsageError: a window does not fit, or a tenth is shorter than a second; names section and remedy.
    """
    if cap is None or profile.consumer_backlog_size_gb:
        return
    hold = (
        profile.search.hold
        if profile.search is not None and profile.peak_search
        else traffic.duration
    )
    judged = [
        ("slo", profile.slo, min(hold, cap)),
        *((f"the slo of stage {span.name}", span.slo, span.duration) for span in traffic.stages),
    ]
    for name, section, length in judged:
        least = 10 * SECOND if "drift" in section else 0
        needed = max(section.window or 0, least)
        if needed > length:
            left = format_duration(length)
            if needed == least:
                conflict = f"drift needs 10 s, and --load-duration leaves {left} to measure"
                remedy = "raise --load-duration"
            else:
                window = f"a window of {format_duration(needed)}"
                conflict = (
                    f"{window} is longer than the {left} that --load-duration leaves to measure"
                )
                remedy = "raise --load-duration, or write a shorter window under scaled: {slo: {window: …}}"
            raise UsageError(f"profile {profile.name}: {name}: {conflict}: {remedy}")


def plan_scale(
    profile: Profile,
    unscaled: Topology,
    topology: Topology,
    factor: float,
    whole: PacedTraffic,
    traffic: PacedTraffic,
    cap: int | None,
) -> Scale | None:
    """Return the differences between plan and profile; None if the profile runs as it is written.

    :param factor: on the rate. :param whole: the profile's traffic. :param traffic: the plan's. :param cap: longest measured phase, ns.
    """
    changes = {} if factor == 1.0 else {"rate": _rates(profile, factor, whole)}
    for name in ("topics", "partitions", "producers", "subscriptions", "consumers"):
        before, after = getattr(unscaled, name), getattr(topology, name)
        if before != after:
            changes[name] = f"{before} → {after}"
    planned = durations(profile, whole, cap)
    for name, (before, after) in planned.items():
        if after < before:
            changes[name] = f"{format_duration(before)} → {format_duration(after)}"
    if not changes:
        return None
    if profile.scaled.keys:
        changes["bounds"] = f"as under scaled: {', '.join(profile.scaled.keys)}"
    share = topology.subscriptions / unscaled.subscriptions if unscaled.broadcasts else 1.0
    if profile.connects_only:
        share = topology.clients / unscaled.clients
    messages = _share(planned.get("hold"), factor, whole, traffic) * share
    return Scale(factor=factor * share, rate=factor, messages=messages, changes=changes)


def _share(
    hold: tuple[int, int] | None, factor: float, whole: PacedTraffic, traffic: PacedTraffic
) -> float:
    """Return the planned share of the profile's messages; of a search, of those in a hold."""
    if hold is not None:
        before, after = hold
        return factor * after / before
    planned = _messages(whole)
    return _messages(traffic) / planned if planned else 1.0


def _messages(traffic: PacedTraffic) -> int:
    """Return the number of messages, or of bytes if these are paced."""
    return Pacer.through(traffic.steps, 1).total(traffic.duration)


def _rates(profile: Profile, factor: float, whole: PacedTraffic) -> str:
    rate = whole.highest or 0.0
    if profile.search is not None and profile.peak_search:
        rate = profile.search.start
    elif profile.in_bytes:
        rate = ByteRate(profile.producer_rate or max(rate for _, rate in whole.steps))
    return f"{format_rate(rate)} → {format_rate(type(rate)(rate * factor))}"


def profile_cost(profile: Profile, table: Mapping[str, Cost]) -> Cost:
    """Return the cost of a message of a profile.

    :param table: costs by :func:`profile_cost_key`, for the kind's default broker; the cost of another broker is replaced by its own.
    :raises UsageError: the kind has no such cost.
    """
    key, kind = profile_cost_key(profile), profile.driver.kind
    if key not in table:
        raise UsageError(
            f"driver {kind.name!r} of the package {kind.package} has no cost {key!r}: its DriverKind.costs must have one"
        )
    broker = kind.start_of(profile.driver.broker_name).costs.get(key)
    return table[key] if broker is None else replace(table[key], broker=broker)


def profile_cost_key(profile: Profile) -> str:
    """Return the key of the cost table for a profile's driver and client."""
    return cost_key(profile.driver.name, profile.driver.cost_variant, choose_client(profile).client)
