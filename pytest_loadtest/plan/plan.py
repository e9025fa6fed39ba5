"""Profile × scale × workers → a plan: who sends and receives what, when, and what that will need.

Pure: the same arguments give the same plan everywhere. Streams, sequences and payloads depend on the profile and the scale alone, never
on the number of workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import PayloadPool, build_pool
from pytest_loadtest.plan.chunking import ChunkBuffers, chunk_buffers, expected_batch
from pytest_loadtest.plan.connections import Connections, connects, fitting, too_many
from pytest_loadtest.plan.phases import BacklogPlan, PacedTraffic, Phase, paced_traffic, warmup_and_measure
from pytest_loadtest.plan.scaling import (
    Machine,
    Scale,
    auto_crowd,
    auto_factor,
    auto_topology,
    check_windows,
    compare,
    crowd,
    fewer,
    lengths,
    shrunk,
)
from pytest_loadtest.schedule.pacing import LEAST_RATE, MOST_RATE
from pytest_loadtest.schedule.stream_order import Turns
from pytest_loadtest.schedule.topology import MOST, Topology, assign, rows_of_broadcast
from pytest_loadtest.values.quantities import SECOND, format_size
from pytest_loadtest.verdict.early import lowest_rate
from pytest_loadtest.verdict.peak import Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Assignment


SAMPLE_BYTES = 7  # on disk, per row: measured 5.8 for even schedules, 7.7 for jittered ones
# Broadcasts, all in all: measured 2.9 to 3.2 a copy of mosquitto with 100, 1 000 and 10 000 subscriptions, 4.4 of a cold Artemis, whose
# copies come in any order; of made-up arrivals 4.7 where a message takes two seconds to reach all. A row costs 6 to 8 of that.
COPY_BYTES, ROW_BYTES = 4.5, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the plan will need; sizes in bytes, rates per second. ``memory`` is with every window and queue full.

    :param bytes_per_second: from the producers. :param delivered: bytes per second to the consumers.
    :param batch: messages that share one, on the average; None where a message costs the same in any.
    :param workers: that would do. :param chunks: None where no message is sent in chunks.
    """

    bytes_per_second: float
    delivered: float
    connections: Connections
    memory: int
    cores: float
    busiest_worker: float
    batch: float | None
    broker_here: bool
    disk: int
    workers: int
    chunks: ChunkBuffers | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled profile.

    :param rate: msg/s offered, all streams together, on the average. :param scale: None when the profile runs as written.
    :param profile: bounded by what stands under its ``scaled`` where the plan is.
    :param clamped: payloads whose size was moved to the envelope's or the target's limit.
    :param phases: empty where a search makes them as it goes. :param turns: of all of them.
    :param search: how the peak is searched, None where a rate is given.
    :param unscaled: what the profile as it is written would need of so many workers; None where this is it.
    """

    profile: Profile
    topology: Topology
    rate: float
    phases: tuple[Phase, ...]
    turns: Turns | None
    search: Spec | None
    backlog: BacklogPlan | None
    assignments: tuple[Assignment, ...]
    scale: Scale | None
    mean_size: float
    bucket_names: tuple[str, ...]
    clamped: int
    needs: Needs
    unscaled: Needs | None

    @property
    def measure(self) -> Phase:
        return self.phases[-1]

    @property
    def document(self) -> dict[str, int | float | str]:
        """What results say of the plan."""
        return {
            "workers": len(self.assignments), "rate": self.rate, "meanSize": self.mean_size, "bytesPerSecond": self.needs.bytes_per_second,
            "topics": self.topology.topics, "partitions": self.topology.partitions, "producers": self.topology.streams,
            "consumers": self.topology.all_consumers, "messages": self.measure.total if self.phases else 0,
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
    reasons += too_many([plan.needs.connections for plan in plans], machine)
    return tuple(reasons)


def profile_pool(profile: Profile, file_content: bytes | None = None) -> PayloadPool:
    """The payloads that a profile asks for, those of its stages included."""
    silent = (profile.consumer_only or profile.connects_only) and not profile.buckets
    unused = HEAD if silent else None  # nothing is sent, and a pool is never empty
    pool = build_pool(
        buckets=profile.buckets, message_size=profile.message_size or unused, representative=profile.representative,
        randomized=profile.use_randomized_payloads, random_ratio=profile.random_bytes_ratio, pool_size=profile.randomized_payload_pool_size,
        file_content=file_content, seed=profile.seed, checksum=profile.checksum, max_size=profile.max_message_size,
        per_bucket=profile.payloads_per_bucket, more=[stage.buckets for stage in profile.stages if stage.buckets],
    )  # fmt: skip
    return skewed_pool(profile, pool)


def make_plan(
    profile: Profile, pool: PayloadPool, *, workers: int, cost: Cost, machine: Machine, broker_here: bool,
    scale: float | str | None = None, duration_cap: int | None = None,
) -> Plan:  # fmt: skip
    """Compile a profile.

    :param scale: a factor, ``"auto"``, or None. :param duration_cap: longest measured phase, or hold of a search, ns; see
        :func:`~pytest_loadtest.plan.scaling.lengths`.
    """
    wanted = Topology(
        topics=profile.topics, partitions=profile.partitions_per_topic, producers=profile.producers_per_topic,
        subscriptions=0 if profile.producer_only else profile.subscriptions_per_topic, consumers=profile.consumer_per_subscription,
        name=profile.topic, hashes=(profile.skew and profile.skew.hashes) or (),
    )  # fmt: skip
    factor, topology = 1.0, wanted
    whole = paced_traffic(profile, pool, 1.0, None)
    if scale is not None and profile.connects_only:
        auto = scale == "auto"
        topology = fitting(profile, wanted, workers, machine, broker_here=broker_here) if auto else fewer(wanted, float(scale))
    elif scale == "auto" and wanted.broadcasts:
        topology = auto_crowd(
            wanted, _asked(profile, whole), whole.mean_size, cost, machine, workers, broker_here,
            lambda some: connects(profile, some, workers, machine, broker_here=broker_here),
        )  # fmt: skip
        factor = auto_factor(topology.subscriptions, whole, cost, machine, workers, broker_here, lambda _: 1.0)
    elif scale == "auto":
        topology = auto_topology(profile, wanted, machine)
        batch = partial(expected_batch, profile, topology, whole.mean_size)
        factor = auto_factor(wanted.subscriptions, whole, cost, machine, workers, broker_here, batch)
    elif scale is not None and wanted.broadcasts:
        topology, factor = crowd(wanted, float(scale))
    elif scale is not None:
        factor = float(scale)
        topology = shrunk(wanted, profile.scalable, factor)
    _check_size(topology, profile)
    _check_rate(whole, factor, profile)
    made = paced_traffic(profile, pool, factor, duration_cap)
    changed = compare(profile, wanted, topology, factor, whole, made, duration_cap)
    if changed is not None:
        profile = profile.as_scaled()
    check_windows(profile, made, duration_cap)
    search, backlog = (
        _search(profile, topology, pool, whole, factor, duration_cap),
        _backlog(profile, pool, factor, made.rate, duration_cap),
    )
    _check_compact(pool, topology.streams, made.rate, profile)
    _, warmup = lengths(profile, whole, duration_cap)["warm-up"]
    turns = turns_of(profile, topology, made.rate)
    phases = () if search else warmup_and_measure(profile, made, topology.streams, warmup, turns)
    if backlog is not None:
        phases = backlog.phases(phases)
    rate, longest = (search.start, search.confirm) if search else (made.rate, phases[-1].duration)
    needs = partial(_needs, profile, pool=pool, size=made.mean_size, duration=longest, cost=cost, machine=machine, broker_here=broker_here)
    return Plan(
        profile=profile, topology=topology, rate=rate, phases=phases, turns=turns, search=search, backlog=backlog,
        assignments=assign(topology, workers), scale=changed,
        mean_size=made.mean_size, bucket_names=pool.bucket_names, clamped=pool.clamped,
        needs=needs(topology=topology, rate=max(rate, made.highest), workers=workers),
        unscaled=None if changed is None else needs(topology=wanted, rate=_asked(profile, whole), workers=workers),
    )  # fmt: skip


def _asked(profile: Profile, whole: PacedTraffic) -> float:
    """The highest msg/s that the profile asks for; of a search, its first."""
    if profile.search is not None and profile.peak_search:
        return profile.search.start / (whole.mean_size if profile.in_bytes else 1)
    return whole.highest


def _search(profile: Profile, topology: Topology, pool: PayloadPool, whole: PacedTraffic, factor: float, cap: int | None) -> Spec | None:
    if not profile.peak_search:
        return None
    asked = profile.search
    assert asked is not None
    hold, confirm, warmup = (given for _, given in lengths(profile, whole, cap).values())
    return Spec(
        start=asked.start * factor, maximum=asked.max and asked.max * factor, hold=hold, confirm=confirm, warmup=warmup,
        precision=asked.precision, repeats=asked.repeats,
        floor=lowest_rate(profile.objectives, hold, topology.subscriptions) * (pool.mean_size if profile.in_bytes else 1),
    )  # fmt: skip


def _backlog(profile: Profile, pool: PayloadPool, factor: float, rate: float, cap: int | None) -> BacklogPlan | None:
    if not profile.consumer_backlog_size_gb:
        return None
    size = profile.consumer_backlog_size_gb * 1024**3 * factor
    return BacklogPlan(
        messages=max(round(size / pool.mean_size), 1), size=round(size), drain_ratio=profile.backlog_drain_ratio,
        drain_timeout=profile.backlog_drain_timeout, after=min(profile.test_duration, cap or profile.test_duration),
        subscriptions=profile.subscriptions_per_topic, rate=rate,
    )  # fmt: skip


def _check_size(topology: Topology, profile: Profile) -> None:
    """The profile itself is within the limit; a scale above 1 may go beyond it."""
    for what, count in (("streams", topology.streams), ("consumers", topology.all_consumers)):
        if count > MOST:
            raise UsageError(
                f"profile {profile.name}: scaled to {count:,} {what}, at most {MOST:,} are possible: use a smaller --load-scale"
            )


def _check_rate(whole: PacedTraffic, factor: float, profile: Profile) -> None:
    highest = whole.highest * factor * (whole.mean_size if whole.in_bytes else 1)
    unit = "bytes" if whole.in_bytes else "messages"
    if highest >= MOST_RATE:
        scaled = f"{highest:g} {unit} a second, less than {MOST_RATE:.0e} can be timed"
        raise UsageError(f"profile {profile.name}: scaled to {scaled}: use a smaller --load-scale")
    if 0 < highest < LEAST_RATE:
        scaled = f"{highest:g} {unit} a second, at least {LEAST_RATE:g} can be paced"
        raise UsageError(f"profile {profile.name}: scaled to {scaled}: use a larger --load-scale")


def _check_compact(pool: PayloadPool, streams: int, rate: float, profile: Profile) -> None:
    """The envelope of payloads below 32 bytes has 24 bits for the stream and 32 for the sequence."""
    messages = rate / max(streams, 1) * (profile.warmup_duration + profile.test_duration) / SECOND
    if pool.compact and (streams >= 1 << 24 or messages >= 1 << 32):
        raise UsageError(
            f"profile {profile.name}: payloads below 32 B carry stream numbers below {1 << 24:,} and {1 << 32:,} messages a stream;"
            f" this has {streams:,} streams of {messages:,.0f} messages: make the payloads 32 B or larger"
        )


def _needs(
    profile: Profile, *, topology: Topology, pool: PayloadPool, rate: float, size: float, duration: int, workers: int, cost: Cost,
    machine: Machine, broker_here: bool,
) -> Needs:  # fmt: skip
    fan_out, driver, partitions = topology.subscriptions, profile.driver, topology.partitions
    bounds = [topology.streams * driver.window(partitions) * size, (driver.memory_limit or 0) * workers]
    pending = min((bound for bound in bounds if bound), default=0)
    fetched = topology.all_consumers * driver.receive_window(partitions) * size
    batch = expected_batch(profile, topology, size, rate)
    connections = Connections.of(profile, topology, workers, machine, broker_here=broker_here)
    chunks = chunk_buffers(profile, topology, int(pool.sizes.max()))
    pieces = 0 if chunks is None else chunks.sending + chunks.receiving
    busiest = cost.busiest_worker(rate, fan_out, size, workers, batch=batch)
    return Needs(
        bytes_per_second=rate * size, delivered=rate * size * fan_out, connections=connections,
        memory=int(pending + fetched) + pieces + pool.memory * workers + connections.memory,
        cores=cost.cores(rate, fan_out, size, broker_here=broker_here, batch=batch),
        busiest_worker=busiest, batch=batch if cost.shared else None, broker_here=broker_here,
        disk=int(rate * duration / SECOND * _sample_bytes(topology, workers)),
        workers=max(math.ceil(busiest * workers), connections.workers(machine), 1), chunks=chunks,
    )  # fmt: skip


def _sample_bytes(topology: Topology, workers: int) -> float:
    """On disk, of one message and its copies."""
    if not topology.broadcasts:
        return SAMPLE_BYTES * (1 + topology.subscriptions)
    return SAMPLE_BYTES + ROW_BYTES * rows_of_broadcast(topology, workers) + COPY_BYTES * topology.subscriptions


# What a profile's ``skew`` makes of the plan: whose turn each message is, and which payloads a topic has.


def turns_of(profile: Profile, topology: Topology, rate: float) -> Turns | None:
    """By the weights of topics, which all producers of a topic have alike; None where topics have the same share.

    :param rate: msg/s, all streams together.
    """
    skew = profile.skew
    if skew is None or not topology.streams or (skew.weights is None and skew.zipf is None):
        return None
    return Turns.weighted(skew.shares(topology.topics), swing=skew.period(rate), times=topology.producers)


def skewed_pool(profile: Profile, pool: PayloadPool) -> PayloadPool:
    """The pool, where topics have sizes of their own with the size bucket of each of them."""
    sizes = profile.skew and profile.skew.message_sizes
    if not sizes:
        return pool
    return replace(pool, of_topics=tuple(pool.bucket_names.index(str(size)) for size in sizes))
