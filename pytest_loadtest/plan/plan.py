"""Profile × scale × workers → a plan: assignments, phases and needs.

A pure function: the same arguments give the same plan everywhere. Streams, sequences and payloads
depend on the profile and the scale alone, never on the number of workers.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message import draws
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.payloads import PayloadPool, build_pattern_pool, build_pool
from pytest_loadtest.message.route import Carrier
from pytest_loadtest.message.streams import stream_column
from pytest_loadtest.message.template import (
    check_pattern,
    example_of,
    excerpt,
    render_template,
    with_head,
)
from pytest_loadtest.plan.auto import Capacity, auto_scaled
from pytest_loadtest.plan.hosts import CONTROLLER
from pytest_loadtest.plan.needs import missing_for_connections, needs_of
from pytest_loadtest.plan.phases import (
    BacklogPlan,
    PacedTraffic,
    Phase,
    paced_traffic,
    warmup_and_measure,
)
from pytest_loadtest.plan.scaling import (
    Machine,
    Scale,
    at,
    check_windows,
    durations,
    highest_rate,
    plan_scale,
)
from pytest_loadtest.schedule.pacing import LEAST_RATE, MOST_RATE
from pytest_loadtest.schedule.pairing import (
    assign_by_host,
    count_workers,
    placement,
    topics_of_hosts,
)
from pytest_loadtest.schedule.stream_order import Turns
from pytest_loadtest.schedule.topology import MOST, Topology, assign
from pytest_loadtest.values.quantities import SECOND, format_size
from pytest_loadtest.verdict.early import lowest_rate
from pytest_loadtest.verdict.peak import Spec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.message.template import Pattern
    from pytest_loadtest.plan.needs import Needs
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.profile.sections import PayloadSection
    from pytest_loadtest.schedule.pairing import Placement
    from pytest_loadtest.schedule.topology import Assignment


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled profile.

    :param rate: mean msg/s of all streams together.
    :param scale: None if the profile runs as written.
    :param profile: with the bounds of its section ``scaled``, if the plan is scaled.
    :param clamped: payloads whose size was moved to the envelope's or the target's limit.
    :param example: a message of the first template, with zeros in its fields; empty without
        templates.
    :param bodies: a digest of all bodies of templates, whose files the profile only names; empty
        without templates.
    :param hosts: of each worker, by rank.
    :param phases: empty if a search makes them one by one.
    :param turns: the order of streams in all of them.
    :param search: the peak search, None if the profile has a rate.
    :param unscaled: the needs of the unscaled profile with the same workers; None if the plan is
        not scaled.
    """

    profile: Profile
    topology: Topology
    rate: float
    phases: tuple[Phase, ...]
    turns: Turns | None
    search: Spec | None
    backlog: BacklogPlan | None
    assignments: tuple[Assignment, ...]
    hosts: tuple[str, ...]
    scale: Scale | None
    mean_size: float
    bucket_names: tuple[str, ...]
    clamped: int
    example: str
    bodies: str
    needs: Needs
    unscaled: Needs | None

    @property
    def measure(self) -> Phase:
        return self.phases[-1]

    @cached_property
    def placement(self) -> Placement | None:
        """The expected deliveries within one host; None without deliveries, and on one host."""
        weights = None if self.turns is None else self.turns.weights
        return placement(self.topology, self.assignments, self.hosts, weights)

    @property
    def within_hosts(self) -> bool:
        """True if both ends of each latency are read on one clock.

        Every delivery is then within one host, and none is delayed: a delayed message is due at an
        instant of the wall clock, which only the controller relates to the clock of a run.
        """
        delivers = self.topology.streams and self.topology.all_consumers
        if not delivers or self.profile.delays is not None:
            return False
        return len(set(self.hosts)) == 1 or (self.placement is not None and self.placement.complete)

    @property
    def host_shares(self) -> dict[str, float]:
        """The share of the load by host, if hosts have whole topics.

        It is empty if every worker has an equal share.
        """
        by_host = topics_of_hosts(self.topology.topics, count_workers(self.hosts))
        if not self.profile.pair_consumers or not by_host:
            return {}
        weights = np.ones(self.topology.streams) if self.turns is None else self.turns.weights
        shares = dict.fromkeys(self.hosts, 0.0)
        for host, assignment in zip(self.hosts, self.assignments, strict=True):
            shares[host] += float(weights[stream_column(assignment.streams)].sum() / weights.sum())
        return shares

    @property
    def document(self) -> dict[str, int | float | str]:
        """The plan's entry in the results."""
        document: dict[str, int | float | str] = {
            "workers": len(self.assignments),
            "rate": self.rate,
            "meanSize": self.mean_size,
            "bytesPerSecond": self.needs.bytes_per_second,
            "topics": self.topology.topics,
            "partitions": self.topology.partitions,
            "producers": self.topology.streams,
            "consumers": self.topology.all_consumers,
            "messages": self.measure.total if self.phases else 0,
            "cores": round(self.needs.cores, 3),
        }
        if self.placement is not None:
            document["withinHosts"] = self.placement.share
        if self.bodies:
            document["bodies"] = self.bodies
        return document


def overload_reasons(plans: Sequence[Plan], machine: Machine) -> tuple[str, ...]:
    """Return the reasons why this machine cannot carry plans together; empty if it can.

    They follow from the calibrated costs.
    """
    reasons = []
    needs = [plan.needs for plan in plans]
    cores = sum(need.cores for need in needs)
    if cores > machine.cores:
        share = ""
        if any(need.broker_here for need in needs):
            share = " with the broker on it"
        reasons.append(
            f"it needs about {cores:,.1f} cores{share}, this machine has {machine.cores:g}"
        )
    busiest = sum(need.busiest_worker for need in needs)
    if busiest > 1:
        workers = math.ceil(max(len(plan.assignments) for plan in plans) * busiest)
        reasons.append(
            f"a worker would need {busiest:,.1f} cores and has one:"
            f" {workers:,} workers (-n) are enough"
        )
    memory = sum(need.memory for need in needs)
    if memory > machine.memory:
        reasons.append(
            f"full windows and queues need {format_size(memory)},"
            f" this machine has {format_size(machine.memory)}"
        )
    reasons += missing_for_connections([need.connections for need in needs], machine)
    return tuple(reasons)


def profile_pool(profile: Profile, files: Mapping[str, bytes] | None = None) -> PayloadPool:
    """Make the payloads of a profile and of its stages.

    :param files: contents of the files that bodies are made of, by their names in the profile.
    :raises UsageError: a template is wrong, or the payloads of all sizes are too many.
    """
    if profile.payload is not None:
        return _rendered_pool(profile, profile.payload, files or {})
    message_size = profile.message_size
    if (profile.consumer_only or profile.connects_only) and not profile.buckets:
        message_size = message_size or HEAD  # a pool must not be empty, even if nothing is sent
    try:
        pool = build_pool(
            buckets=profile.buckets,
            message_size=message_size,
            representative=profile.representative,
            randomized=profile.use_randomized_payloads,
            random_ratio=profile.random_bytes_ratio,
            pool_size=profile.randomized_payload_pool_size,
            file_content=(files or {}).get(profile.payload_file or ""),
            seed=profile.seed,
            checksum=profile.checksum,
            max_size=profile.max_message_size,
            per_bucket=profile.payloads_per_bucket,
            more=[stage.buckets for stage in profile.stages if stage.buckets],
            place=profile.sent_place,
        )
    except ValueError as error:  # the sizes of the profile and of its stages together
        raise UsageError(f"profile {profile.name}: {error}") from None
    return skewed_pool(profile, pool)


def _digest(pool: PayloadPool) -> str:
    """Return a digest of the patterns, empty without any."""
    if not pool.patterns:
        return ""
    return hashlib.sha256(repr(pool.patterns).encode()).hexdigest()[:16]


def _rendered_pool(
    profile: Profile, payload: PayloadSection, files: Mapping[str, bytes]
) -> PayloadPool:
    """Make the payloads of templates.

    :raises UsageError: one is wrong, with its line.
    """
    place = profile.sent_place
    patterns: dict[str, tuple[Pattern, ...]] = {}
    for number, name in enumerate(payload.weights):
        named = name or "payload.template"
        try:
            text = files[name].decode() if name else str(payload.template)
        except UnicodeDecodeError as error:
            raise UsageError(f"{named}: is not UTF-8: {error}") from None
        seed = draws.subkey(profile.seed, number)
        rendered = render_template(text, named, seed=seed, count=payload.pool)
        for pattern in rendered:
            check_pattern(pattern, text, named, place)
        if place.carrier is Carrier.BODY:
            rendered = tuple(map(with_head, rendered))
        patterns[named] = rendered
    weights = dict(zip(patterns, payload.weights.values(), strict=True))
    try:
        return build_pattern_pool(patterns, weights, profile.max_message_size, place)
    except ValueError as error:
        raise UsageError(f"payload: {error}") from None


def make_plan(
    profile: Profile,
    pool: PayloadPool,
    *,
    workers: int,
    cost: Cost,
    machine: Machine,
    broker_here: bool,
    scale: float | str | None = None,
    duration_cap: int | None = None,
    hosts: Sequence[str] = (),
) -> Plan:
    """Compile a profile.

    :param hosts: of each worker, by rank; all are on this machine if empty.
    :param scale: a factor, ``"auto"``, or None.
    :param duration_cap: longest measured phase, or hold of a search, ns; see
        :func:`~pytest_loadtest.plan.scaling.durations`.
    """
    unscaled = _profile_topology(profile)
    whole = paced_traffic(profile, pool, 1.0, None, unscaled.consumers)
    capacity = Capacity(cost=cost, machine=machine, workers=workers, broker_here=broker_here)
    topology, factor = _scaled(profile, unscaled, whole, scale, capacity)
    _check_size(topology, profile)
    _check_rate(whole, factor, profile)

    traffic = paced_traffic(profile, pool, factor, duration_cap, topology.consumers)
    changed = plan_scale(profile, unscaled, topology, factor, whole, traffic, duration_cap)
    if changed is not None:
        profile = profile.as_scaled()
    check_windows(profile, traffic, duration_cap)
    _check_compact(pool, topology.streams, traffic.rate, profile)

    turns = turns_of(profile, topology, traffic.rate)
    search = _search(profile, topology, pool, whole, factor, duration_cap)
    backlog = _backlog(profile, topology, pool, factor, traffic.rate, duration_cap)
    if search is not None:
        phases: tuple[Phase, ...] = ()
        rate = traffic.messages(search.start)
        longest = search.confirm
    else:
        _, warmup = durations(profile, whole, duration_cap)["warm-up"]
        phases = warmup_and_measure(traffic, topology.streams, warmup, pool.mean_size, turns)
        if backlog is not None:
            phases = backlog.phases(phases)
        rate = traffic.rate
        longest = phases[-1].duration

    hosts = tuple(hosts) or (CONTROLLER,) * workers
    if profile.pair_consumers:
        assignments = assign_by_host(topology, hosts)
    else:
        assignments = assign(topology, workers)
    needs_at = partial(
        needs_of,
        profile,
        pool=pool,
        size=traffic.mean_size,
        duration=longest,
        workers=workers,
        cost=cost,
        machine=machine,
        broker_here=broker_here,
        stages=phases[-1].stages if phases else (),
    )
    whole_needs = None
    if changed is not None:
        highest = highest_rate(profile, whole)
        whole_needs = needs_at(unscaled, highest=highest, rate=whole.rate or highest)

    return Plan(
        profile=profile,
        topology=topology,
        rate=rate,
        phases=phases,
        turns=turns,
        search=search,
        backlog=backlog,
        assignments=assignments,
        hosts=hosts,
        scale=changed,
        mean_size=traffic.mean_size,
        bucket_names=pool.bucket_names,
        clamped=pool.clamped,
        example=excerpt(example_of(pool.patterns[0])) if pool.patterns else "",
        bodies=_digest(pool),
        needs=needs_at(topology, highest=max(rate, traffic.highest), rate=rate),
        unscaled=whole_needs,
    )


def _profile_topology(profile: Profile) -> Topology:
    skew = profile.skew
    route = profile.route
    return Topology(
        topics=profile.topics,
        partitions=profile.partitions_per_topic,
        producers=profile.producers_per_topic,
        subscriptions=0 if profile.producer_only else profile.subscriptions_per_topic,
        consumers=profile.consumer_per_subscription,
        name=profile.topic,
        hashes=(skew and skew.hashes) or (),
        outputs=route.due if route else 1,
        selective=bool(route and route.choice),
        tapped=bool(route and route.tap),
    )


def _scaled(
    profile: Profile,
    unscaled: Topology,
    whole: PacedTraffic,
    scale: float | str | None,
    capacity: Capacity,
) -> tuple[Topology, float]:
    """Return the topology, and the factor on the rate."""
    if scale is None:
        return unscaled, 1.0
    if scale == "auto":
        return auto_scaled(profile, unscaled, whole, capacity)
    return at(profile, unscaled, float(scale))


def _search(
    profile: Profile,
    topology: Topology,
    pool: PayloadPool,
    whole: PacedTraffic,
    factor: float,
    cap: int | None,
) -> Spec | None:
    search = profile.search
    if search is None or not profile.peak_search:
        return None
    hold, confirm, warmup = (planned for _, planned in durations(profile, whole, cap).values())
    floor = lowest_rate(profile.objectives, hold, topology.fan_out)
    if profile.in_bytes:
        floor *= pool.mean_size
    return Spec(
        start=search.start * factor,
        maximum=search.max and search.max * factor,
        hold=hold,
        confirm=confirm,
        warmup=warmup,
        precision=search.precision,
        repeats=search.repeats,
        floor=floor,
    )


def _backlog(
    profile: Profile,
    topology: Topology,
    pool: PayloadPool,
    factor: float,
    rate: float,
    cap: int | None,
) -> BacklogPlan | None:
    if not profile.consumer_backlog_size_gb:
        return None
    # A broadcast scales its subscriptions, and other profiles their rate: either way the backlog
    # takes as long to build as that of the profile.
    share = topology.subscriptions / profile.subscriptions_per_topic
    size = profile.consumer_backlog_size_gb * 1024**3 * factor * share
    return BacklogPlan(
        messages=max(round(size / pool.mean_size), 1),
        size=round(size),
        drain_ratio=profile.backlog_drain_ratio,
        drain_timeout=profile.backlog_drain_timeout,
        after=min(profile.test_duration, cap or profile.test_duration),
        subscriptions=topology.subscriptions,
        rate=rate,
    )


def _check_size(topology: Topology, profile: Profile) -> None:
    """Check the number of clients: only a scale above 1 exceeds the limit on profiles."""
    for what, count in (("streams", topology.streams), ("consumers", topology.all_consumers)):
        if count > MOST:
            raise UsageError(
                f"profile {profile.name}: scaled to {count:,} {what},"
                f" at most {MOST:,} are possible: use a smaller --load-scale"
            )


def _check_rate(whole: PacedTraffic, factor: float, profile: Profile) -> None:
    highest = highest_rate(profile, whole) * factor
    unit = "messages"
    if whole.in_bytes:
        highest *= whole.mean_size
        unit = "bytes"
    if highest >= MOST_RATE:
        limit = f"less than {MOST_RATE:.0e} can be timed: use a smaller --load-scale"
    elif 0 < highest < LEAST_RATE:
        limit = f"at least {LEAST_RATE:g} can be paced: use a larger --load-scale"
    else:
        return
    raise UsageError(f"profile {profile.name}: scaled to {highest:g} {unit} a second, {limit}")


def _check_compact(pool: PayloadPool, streams: int, rate: float, profile: Profile) -> None:
    """Check that the compact envelope suffices for payloads below 32 bytes.

    It has 24 bits for the stream and 32 for the sequence.
    """
    messages = rate / max(streams, 1) * (profile.warmup_duration + profile.test_duration) / SECOND
    if pool.compact and (streams >= 1 << 24 or messages >= 1 << 32):
        raise UsageError(
            f"profile {profile.name}: payloads below 32 B carry stream numbers below {1 << 24:,}"
            f" and {1 << 32:,} messages a stream; this has {streams:,} streams of {messages:,.0f}"
            " messages: make the payloads 32 B or larger"
        )


def turns_of(profile: Profile, topology: Topology, rate: float) -> Turns | None:
    """Return the order of streams of a skewed workload; None without a skew of the rate.

    The producers of a topic are equal.

    :param rate: msg/s of all streams together.
    :raises UsageError: the scale makes the cycle of turns too long.
    """
    skew = profile.skew
    if skew is None or not topology.streams or (skew.weights is None and skew.zipf is None):
        return None
    shares = skew.shares(topology.topics)
    try:
        return Turns.weighted(shares, swing=skew.period(rate), times=topology.producers)
    except ValueError as error:  # only a scale above 1 exceeds the limit on profiles
        raise UsageError(
            f"profile {profile.name}: skew: {error}: use a smaller --load-scale"
        ) from None


def skewed_pool(profile: Profile, pool: PayloadPool) -> PayloadPool:
    """Return the pool, with the size bucket of each topic if topics have sizes of their own."""
    sizes = profile.skew and profile.skew.message_sizes
    if not sizes:
        return pool
    return replace(pool, of_topics=tuple(pool.bucket_names.index(str(size)) for size in sizes))
