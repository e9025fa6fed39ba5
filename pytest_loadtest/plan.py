"""Profile × scale × workers → a plan: who sends and receives what, when, and what that will need.

Pure: the same arguments give the same plan everywhere. Streams, sequences and payloads depend on the profile and the scale alone, never
on the number of workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_loadtest.costs import Cost, cost_key
from pytest_loadtest.early import lowest_rate
from pytest_loadtest.envelope import HEAD
from pytest_loadtest.errors import UsageError
from pytest_loadtest.payloads import PayloadPool, build_pool
from pytest_loadtest.phases import BacklogPlan, Phase, Traffic, traffic, warmup_and_measure
from pytest_loadtest.quantities import SECOND, ByteRate, format_duration, format_rate, format_size
from pytest_loadtest.search import Spec
from pytest_loadtest.topology import ConsumerSpec, ProducerSpec, Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.profile import Profile

AUTO_LOAD = 0.2  # of all cores: leaves room for the broker's own bursts, Spark's idle JVM and other tenants
HANDLES_PER_CORE = 50  # partition producers and consumers that `auto` opens per core
SAMPLE_BYTES = 7  # on disk, per row: measured 5.8 for even schedules, 7.7 for jittered ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine has: cores this process may use, memory in bytes."""

    cores: float
    memory: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One worker's share."""

    producers: tuple[ProducerSpec, ...]
    consumers: tuple[ConsumerSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the plan will need; sizes in bytes, rates per second. ``memory`` is with every window and queue full."""

    bytes_per_second: float
    connections: int
    memory: int
    cores: float
    busiest_worker: float
    broker_here: bool
    disk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How a plan differs from its profile: the factor on the rate, and ``before → after`` of each thing changed."""

    factor: float
    changes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled profile.

    :param rate: msg/s offered, all streams together, on the average. :param scale: None when the profile runs as written.
    :param clamped: payloads whose size was moved to the envelope's or the target's limit.
    :param phases: empty where a search makes them as it goes. :param search: how the peak is searched, None where a rate is given.
    """

    profile: Profile
    topology: Topology
    rate: float
    phases: tuple[Phase, ...]
    search: Spec | None
    backlog: BacklogPlan | None
    assignments: tuple[Assignment, ...]
    scale: Scale | None
    mean_size: float
    bucket_names: tuple[str, ...]
    clamped: int
    needs: Needs

    @property
    def measure(self) -> Phase:
        return self.phases[-1]

    @property
    def document(self) -> dict[str, int | float | str]:
        """What results say of the plan."""
        return {
            "workers": len(self.assignments), "rate": self.rate, "meanSize": self.mean_size, "bytesPerSecond": self.needs.bytes_per_second,
            "topics": self.topology.topics, "partitions": self.topology.partitions, "producers": self.topology.streams,
            "consumers": len(self.topology.consumer_specs()), "messages": self.measure.total if self.phases else 0,
            "cores": round(self.needs.cores, 3),
        }  # fmt: skip


def beyond(plans: Sequence[Plan], machine: Machine) -> tuple[str, ...]:
    """Why this machine cannot carry these plans together; empty when it can, by the calibrated costs."""
    reasons = []
    cores, busiest, memory = (sum(getattr(plan.needs, need) for plan in plans) for need in ("cores", "busiest_worker", "memory"))
    if cores > machine.cores:
        share = " with the broker on it" if any(plan.needs.broker_here for plan in plans) else ""
        reasons.append(f"it needs about {cores:,.1f} cores{share}, this machine has {machine.cores:g}")
    if busiest > 1:
        more = math.ceil(max(len(plan.assignments) for plan in plans) * busiest)
        reasons.append(f"a worker would need {busiest:,.1f} cores and has one: {more:,} workers (-n) would do")
    if memory > machine.memory:
        reasons.append(f"full windows and queues need {format_size(memory)}, this machine has {format_size(machine.memory)}")
    return tuple(reasons)


def profile_pool(profile: Profile, file_content: bytes | None = None) -> PayloadPool:
    """The payloads that a profile asks for, those of its stages included."""
    unused = HEAD if profile.consumer_only and not profile.buckets else None  # nothing is sent, and a pool is never empty
    return build_pool(
        buckets=profile.buckets, message_size=profile.message_size or unused, representative=profile.representative,
        randomized=profile.use_randomized_payloads, random_ratio=profile.random_bytes_ratio, pool_size=profile.randomized_payload_pool_size,
        file_content=file_content, seed=profile.seed, checksum=profile.checksum, max_size=profile.max_message_size,
        per_bucket=profile.payloads_per_bucket, more=[stage.buckets for stage in profile.stages if stage.buckets],
    )  # fmt: skip


def make_plan(
    profile: Profile, pool: PayloadPool, *, workers: int, cost: Cost, machine: Machine, broker_here: bool,
    scale: float | str | None = None, duration_cap: int | None = None,
) -> Plan:  # fmt: skip
    """Compile a profile.

    :param scale: a factor, ``"auto"``, or None. :param duration_cap: longest measured phase, ns; warm-up gets at most half of it.
    """
    wanted = Topology(
        topics=profile.topics, partitions=profile.partitions_per_topic, producers=profile.producers_per_topic,
        subscriptions=0 if profile.producer_only else profile.subscriptions_per_topic, consumers=profile.consumer_per_subscription,
        name=profile.topic,
    )  # fmt: skip
    factor, topology = 1.0, wanted
    whole = traffic(profile, pool, 1.0, None)
    if scale == "auto":
        factor = _auto_factor(wanted.subscriptions, whole, cost, machine, workers, broker_here)
        topology = _auto_topology(profile, wanted, machine)
    elif scale is not None:
        factor = float(scale)
        topology = _shrunk(wanted, profile.scalable, factor)
    search, backlog = _search(profile, pool, factor, duration_cap), _backlog(profile, pool, factor, duration_cap)
    made = traffic(profile, pool, factor, duration_cap)
    _check_compact(pool, topology.streams, made.rate, profile)
    warmup = profile.warmup_duration if duration_cap is None else min(profile.warmup_duration, duration_cap // 2)
    phases = () if search else warmup_and_measure(profile, made, topology.streams, warmup)
    if backlog is not None:
        phases = backlog.phases(phases, made.rate)
    rate = search.start if search else made.rate
    longest = phases[-1].duration if phases else search.confirm if search else 0
    return Plan(
        profile=profile, topology=topology, rate=rate, phases=phases, search=search, backlog=backlog,
        assignments=_assign(topology, workers), scale=_scale(profile, wanted, topology, factor, whole, made, duration_cap),
        mean_size=made.mean_size, bucket_names=pool.bucket_names, clamped=pool.clamped,
        needs=_needs(profile, topology, pool, max(rate, made.highest), made.mean_size, longest, workers, cost, broker_here),
    )  # fmt: skip


def _search(profile: Profile, pool: PayloadPool, factor: float, cap: int | None) -> Spec | None:
    if not profile.peak_search:
        return None
    asked = profile.search
    assert asked is not None
    hold = min(asked.hold, cap or asked.hold)
    return Spec(
        start=asked.start * factor, maximum=asked.max and asked.max * factor, hold=hold, confirm=min(asked.confirm, 2 * hold),
        warmup=min(asked.warmup, hold // 2), precision=asked.precision, repeats=asked.repeats,
        floor=lowest_rate(profile.objectives, hold) * (pool.mean_size if profile.in_bytes else 1),
    )  # fmt: skip


def _backlog(profile: Profile, pool: PayloadPool, factor: float, cap: int | None) -> BacklogPlan | None:
    if not profile.consumer_backlog_size_gb:
        return None
    size = profile.consumer_backlog_size_gb * 1024**3 * factor
    return BacklogPlan(
        messages=max(round(size / pool.mean_size), 1), size=round(size), drain_ratio=profile.backlog_drain_ratio,
        drain_timeout=profile.backlog_drain_timeout, after=min(profile.test_duration, cap or profile.test_duration),
        subscriptions=profile.subscriptions_per_topic,
    )  # fmt: skip


def _check_compact(pool: PayloadPool, streams: int, rate: float, profile: Profile) -> None:
    """The envelope of payloads below 32 bytes has 24 bits for the stream and 32 for the sequence."""
    messages = rate / max(streams, 1) * (profile.warmup_duration + profile.test_duration) / SECOND
    if pool.compact and (streams >= 1 << 24 or messages >= 1 << 32):
        raise UsageError(
            f"profile {profile.name}: payloads below 32 B carry stream numbers below {1 << 24:,} and {1 << 32:,} messages a stream;"
            f" this has {streams:,} streams of {messages:,.0f} messages: make the payloads 32 B or larger"
        )


def _assign(topology: Topology, workers: int) -> tuple[Assignment, ...]:
    """Producers dealt from the first worker on, consumers from the last one back, so that few of each land apart."""
    producers, consumers = topology.producer_specs(), topology.consumer_specs()
    return tuple(
        Assignment(producers=producers[rank::workers], consumers=consumers[workers - 1 - rank :: workers]) for rank in range(workers)
    )


def _auto_factor(copies: int, whole: Traffic, cost: Cost, machine: Machine, workers: int, broker_here: bool) -> float:
    rate = whole.highest
    if not rate:
        return 1.0
    cores = cost.cores(rate, copies, whole.mean_size, broker_here=broker_here)
    worker = cost.busiest_worker(rate, copies, whole.mean_size, workers)
    factor = min(1.0, AUTO_LOAD * machine.cores / cores, AUTO_LOAD / worker)
    return factor if factor == 1.0 else float(f"{factor:.1e}")


def _auto_topology(profile: Profile, wanted: Topology, machine: Machine) -> Topology:
    limit, share = HANDLES_PER_CORE * machine.cores, 1.0
    topology = wanted
    while topology.partition_handles > limit and profile.scalable and share > 1e-4:
        share *= 0.9
        topology = _shrunk(wanted, profile.scalable, share)
    return topology


def _shrunk(topology: Topology, scalable: tuple[str, ...], factor: float) -> Topology:
    def scaled(name: str, value: int) -> int:
        return max(min(1, value), round(value * factor)) if name in scalable else value

    return Topology(
        topics=scaled("topics", topology.topics), partitions=scaled("partitions", topology.partitions),
        producers=scaled("producers", topology.producers), subscriptions=topology.subscriptions,
        consumers=scaled("consumers", topology.consumers), name=topology.name,
    )  # fmt: skip


def _scale(
    profile: Profile, wanted: Topology, topology: Topology, factor: float, whole: Traffic, made: Traffic, cap: int | None
) -> Scale | None:
    changes = {}
    if factor != 1.0:
        rate = whole.highest or 0.0
        if profile.search is not None and profile.peak_search:
            rate = profile.search.start
        elif profile.in_bytes:
            rate = ByteRate(profile.producer_rate)
        changes["rate"] = f"{format_rate(rate)} → {format_rate(type(rate)(rate * factor))}"
    for name in ("topics", "partitions", "producers", "consumers"):
        before, after = getattr(wanted, name), getattr(topology, name)
        if before != after:
            changes[name] = f"{before} → {after}"
    if profile.search is not None and profile.peak_search:
        if cap is not None and cap < profile.search.hold:
            changes["hold"] = f"{format_duration(profile.search.hold)} → {format_duration(cap)}"
    elif cap is not None and cap < whole.duration:
        changes["measured phase"] = f"{format_duration(whole.duration)} → {format_duration(made.duration)}"
    return Scale(factor=factor, changes=changes) if changes else None


def _needs(
    profile: Profile, topology: Topology, pool: PayloadPool, rate: float, size: float, duration: int, workers: int, cost: Cost,
    broker_here: bool,
) -> Needs:  # fmt: skip
    copies, driver, partitions = topology.subscriptions, profile.driver, topology.partitions
    consumers = topology.topics * topology.subscriptions * topology.consumers
    bounds = [topology.streams * driver.window(partitions) * size, (driver.memory_limit or 0) * workers]
    pending = min((bound for bound in bounds if bound), default=0)
    fetched = consumers * driver.receive_window(partitions) * size
    return Needs(
        bytes_per_second=rate * size, connections=driver.connections(topology.streams, consumers, workers),
        memory=int(pending + fetched) + pool.memory * workers,
        cores=cost.cores(rate, copies, size, broker_here=broker_here), busiest_worker=cost.busiest_worker(rate, copies, size, workers),
        broker_here=broker_here, disk=int(rate * (1 + copies) * duration / SECOND * SAMPLE_BYTES),
    )  # fmt: skip


def profile_cost_key(profile: Profile) -> str:
    """The row of the cost table that a profile's driver has."""
    return cost_key(profile.driver.name, getattr(profile.driver, "qos", None))
