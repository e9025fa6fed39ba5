"""The plan as a table: the load, its distribution over workers, and the resources that it needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_loadtest.kinds.registry import load_reference
from pytest_loadtest.plan.connecting import connect_duration
from pytest_loadtest.plan.hosts import HostNeeds, HostShare, clocks_needed, hosts_needed
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.values.quantities import (
    MILLISECOND,
    ByteRate,
    format_bits,
    format_count,
    format_duration,
    format_rate,
    format_size,
)
from pytest_loadtest.values.wording import counted, exact, format_value, scale_word
from pytest_loadtest.verdict.finding import write_bounds
from pytest_loadtest.verdict.grammar import SILENT
from pytest_loadtest.verdict.objectives import explicit
from pytest_loadtest.verdict.observations import DELIVERIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_loadtest.drivers.base import DriverFacts
    from pytest_loadtest.message.route import Route
    from pytest_loadtest.plan.aggregation import Aggregation
    from pytest_loadtest.plan.needs import Needs
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.plan.scaling import Machine
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.verdict.peak import Spec

_SHOWN_WORKERS = 16
_MANY = 1000
"""Connections: the needs of fewer ones are far below every limit."""


def plan_table(
    plan: Plan, driver: DriverFacts, machine: Machine, hosts: Sequence[HostShare] = ()
) -> list[str]:
    """Return a plan as lines, one for each fact.

    :param hosts: the hosts that carry it; empty for this machine alone.
    """
    rows = [("profile", plan.profile.name)]
    if plan.scale is not None:
        changes = "; ".join(f"{name} {change}" for name, change in plan.scale.changes.items())
        word, _, factor = scale_word(plan.scale.factor).partition(" ")
        text = f"{factor}: {changes}" if factor else changes
        rows.append((word.upper(), f"{text}. It says nothing about the full load."))
    if plan.unscaled is not None:
        rows.append(("", _unscaled(plan.unscaled)))
    rows += _messages(plan)
    rows += _phases(plan)
    rows += _abort(plan)
    rows += _delays(plan)
    rows += _parties(plan)
    rows.append(("driver", f"{driver.client} {driver.version}"))
    rows += _choice(plan)
    for key, why in {**plan.profile.not_applied, **driver.not_applied}.items():
        rows.append((f"  {key}", f"not applied: {why}"))
    rows += _host_needs(plan, hosts, machine) if hosts else _needs(plan, machine)
    return [f"{name:<12} {text}" for name, text in rows]


def _choice(plan: Plan) -> list[tuple[str, str]]:
    """Return the client and the reason for it, if there is a choice."""
    client, why = choose_client(plan.profile)
    return [("client", f"{client}: {why}")] if why else []


def _messages(plan: Plan) -> list[tuple[str, str]]:
    if plan.profile.connects_only:
        return []
    mean = f"{int(plan.mean_size):,} B mean".replace(",", " ")
    rows = [("rate", f"{format_rate(plan.rate)} of {mean}")]
    if plan.clamped:
        sizes = "the nearest size that the envelope and the target allow"
        rows.append(("", f"{plan.clamped} of the payloads have {sizes}"))
    rows.append(("bytes", _bytes(plan)))
    route = plan.profile.route
    if route is not None:
        outputs = " or ".join(route.output)
        text = f"{route.input} through the service under test to {outputs}"
        if route.due > 1:
            text += f", {route.due} outputs for each input"
        if route.choice is not None:
            share = format_value(route.choice.share, "ratio")
            text += f", an output for {share} of the inputs"
        rows.append(("route", text))
        rows.append(("envelope", _envelope(plan.profile, route.route())))
        if route.tap:
            text = "one more subscription on each input: the broker delivers each input once more"
            rows.append(("tap", text))
    if plan.example:
        rows.append(("message", plan.example))
    if plan.turns is not None:
        rows.append(("skew", _skew(plan.turns.weights.tolist(), plan.topology.topics)))
    return rows


def _envelope(profile: Profile, route: Route) -> str:
    added = profile.driver.kind.clients[choose_client(profile).client].envelopes
    places = []
    for direction, place in route.places.items():
        size = added[place.carrier]
        beside = f" ({size} B beside the body)" if size else ""
        places.append(f"{direction} {place}{beside}")
    return ", ".join(places)


def _skew(turns: list[int], topics: int) -> str:
    """:param turns: of each stream; the streams of a topic are ``topics`` apart."""
    shares = [sum(turns[topic::topics]) / sum(turns) for topic in range(topics)]
    busiest = f"the busiest topic has {max(shares):.1%} of the messages"
    return f"{busiest}, the quietest {min(shares):.1%}".replace("%", " %")


def _phases(plan: Plan) -> list[tuple[str, str]]:
    if plan.profile.connects_only:
        duration = format_duration(plan.measure.duration)
        return [("phases", f"connect → hold {duration}, without messages")]
    if plan.search is not None:
        return [*_search(plan.search, plan.profile), *_implicit(plan)]
    # In bytes, the sizes that are drawn decide how many messages there are.
    about = "about " if plan.profile.in_bytes else ""
    phases = []
    for phase in plan.phases:
        messages = f"{about}{format_count(phase.total)} messages"
        phases.append(f"{phase.name} {format_duration(phase.duration)} ({messages})")
    rows = [("phases", " → ".join([*phases, "drain"]))]
    for number, stage in enumerate(plan.phases[-1].stages):
        pace = f"at {format_rate(stage.rate)} on the average" if stage.rate else "without messages"
        text = f"{stage.name}: {format_duration(stage.duration)} {pace}"
        rows.append(("" if number else "stages", text))
    if plan.backlog is not None:
        backlog = plan.backlog
        built = f"{format_count(backlog.messages)} messages, {format_size(backlog.size)}"
        drained = f"drained within {format_duration(backlog.drain_timeout)}"
        after = f"then {format_duration(backlog.after)} more"
        rows.append(("backlog", f"{built}, {drained}, {after}"))
    return rows


def _abort(plan: Plan) -> list[tuple[str, str]]:
    """Return the conditions that end the run early."""
    abort = plan.profile.abort
    if abort is None:
        return []
    first, *others = abort.lines()
    return [("aborts at", first), *(("", line) for line in others)]


def _delays(plan: Plan) -> list[tuple[str, str]]:
    """Return the times of delayed messages, and the memory that they need at the broker."""
    profile = plan.profile
    delays = profile.delays
    if delays is None:
        return []
    when = f"until {format_duration(delays.longest)} into the phase"
    if delays.at is None:
        when = f"{format_duration(delays.longest)} each"
        if delays.least < delays.most:
            when = f"{format_duration(delays.least * MILLISECOND)} to {when}"
    kind = profile.driver.kind
    if kind.delayed_index is None:
        return [("delayed", when)]
    index = load_reference(kind, kind.delayed_index)
    text, warning = index(profile, plan.topology, plan.rate, plan.measure.total)
    rows = [("delayed", f"{when}; {text}")]
    if warning:
        rows.append(("WARNING", warning))
    return rows


def _search(spec: Spec, profile: Profile) -> list[tuple[str, str]]:
    unit = ByteRate if profile.in_bytes else float
    limits = f"from {format_rate(unit(spec.first))}"
    if spec.maximum is not None:
        limits += f" up to {format_rate(unit(spec.maximum))}"
    hold = f"{format_duration(spec.warmup)} warm-up and {format_duration(spec.hold)} hold"
    rows = [
        ("search", f"{limits}, to within {spec.precision:.2%}"),
        ("", f"each step {hold}, the best one {format_duration(spec.confirm)}"),
    ]
    if not {"producer_rate", "search"} & profile.model_fields_set:
        reason = "because producerRate is missing, for which OMB searches the highest rate"
        rows.append(("", reason))
    return rows


def _implicit(plan: Plan) -> list[tuple[str, str]]:
    """Return the implicit objectives if the profile has none."""
    objectives = plan.profile.objectives
    if explicit(objectives):
        return []
    unmeasured: tuple[str, ...] = ()
    if plan.profile.producer_only:
        unmeasured = DELIVERIES if plan.profile.publish_acks else (*DELIVERIES, SILENT)
    bounds = [
        f"{objective.name} {write_bounds(objective)}"
        for objective in objectives
        if objective.metric not in unmeasured
    ]
    reason = "no objectives in the profile: the implicit ones must hold"
    return [("", f"{reason}, {', '.join(bounds)}")]


def _bytes(plan: Plan) -> str:
    out = plan.needs.bytes_per_second
    mean = plan.rate * plan.mean_size
    rate = f"{_decimal(out)}B/s = {_decimal(out * 8)}bit/s"
    if out > mean * 1.001:
        rate += " at the highest rate"
    subscriptions = plan.topology.subscriptions
    back = f"{subscriptions} × that in"
    if plan.profile.route is not None:
        back = f"in, {subscriptions} × what the service sends"
    text = f"{rate}, {_decimal(mean * 3600)}B per hour out; {back}"
    if plan.topology.broadcasts:
        deliveries = format_rate(plan.rate * subscriptions).replace("msg/s", "deliveries/s")
        bits = _decimal(plan.needs.delivered * 8)
        text += f", {deliveries}, {bits}bit/s out of the broker"
    return text


def _parties(plan: Plan) -> list[tuple[str, str]]:
    topology = plan.topology
    topics = f"{topology.topics} × {topology.partitions} partitions"
    rows = [("topics", f"{topics}, {topology.subscriptions} subscriptions each")]

    producers = "none"
    if topology.streams:
        partitions = exact(topology.streams * topology.partitions)
        producers = f"{topology.streams} ({partitions} partition producers)"
        if not plan.profile.connects_only:
            producers += f", {plan.rate / topology.streams:,.1f} msg/s each"
    rows.append(("producers", producers))

    consumers = topology.all_consumers
    partitions = exact(consumers * topology.partitions)
    rows.append(("consumers", f"{consumers} ({partitions} partition consumers)"))

    shares = []
    for assignment in plan.assignments[:_SHOWN_WORKERS]:
        shares.append(f"{len(assignment.streams)}p+{len(assignment.consumers)}c")
    workers = f"{len(plan.assignments)}: {', '.join(shares)}"
    if len(plan.assignments) > _SHOWN_WORKERS:
        workers += f" and {len(plan.assignments) - _SHOWN_WORKERS} more"
    return [*rows, ("workers", workers)]


def _needs(plan: Plan, machine: Machine) -> list[tuple[str, str]]:
    needs = plan.needs
    memory = f"{format_size(needs.memory)} with every window and queue full"
    cores = f"about {needs.cores:,.1f} cores by calibrated cost{_batch(needs.batch)}"
    if needs.broker_here:
        cores += ", the broker on this machine included"
    if plan.profile.has_service:
        cores += ", the service not"
    return [
        ("connections", exact(needs.connections.total) + _room(plan, machine)),
        *_pace(plan),
        ("memory", f"{memory}; this machine has {format_size(machine.memory)}"),
        *_chunks(needs),
        ("CPU", f"{cores}; this machine has {machine.cores:g}"),
        ("", f"busiest worker {needs.busiest_worker:,.2f} of the one core it can use"),
        ("samples", f"{format_size(needs.disk)} on disk"),
        *_aggregation(needs.aggregation, machine),
    ]


def _aggregation(needs: Aggregation, machine: Machine) -> list[tuple[str, str]]:
    """Return the needs after the load, of a search after each step."""
    took = format_duration(needs.duration(machine.cores))
    controller = format_size(needs.controller)
    workers = counted(needs.workers(machine.cores), "worker")
    spark = f"{format_size(needs.java)} in Spark"
    spark += f" and {format_size(needs.worker)} in each of its {workers}"
    on_cores = f"about {took} on the {machine.cores:g} cores here after the load"
    return [
        ("aggregation", f"{on_cores}; at most {controller}"),
        ("", f"in the controller, {spark}; {format_size(needs.disk)} on disk while it lasts"),
    ]


def _host_needs(plan: Plan, hosts: Sequence[HostShare], machine: Machine) -> list[tuple[str, str]]:
    """Return the needs of each host, next to its resources."""
    rows = [("connections", exact(plan.needs.connections.total)), *_pace(plan)]
    shares = plan.host_shares
    label = "hosts"
    for host in hosts:
        share = shares.get(host.name, host.share)
        need = HostNeeds.of([(plan.needs, share)], host.share)
        parts = [f"{host.name}: {host.workers} of {host.of} workers"]
        if shares:
            parts.append(f"{format_value(share, 'ratio')} of the load")
        bandwidth = format_bits(need.bits_per_second)
        if host.machine.bandwidth is not None:
            bandwidth += f" of {format_bits(host.machine.bandwidth)}"
        parts += [
            f"{need.cores:,.1f} of {host.machine.cores:g} cores",
            f"{format_size(need.memory)} of {format_size(host.machine.memory)}",
            bandwidth,
            f"{exact(need.connections)} of {exact(host.machine.ports)} ports",
        ]
        rows.append((label, ", ".join(parts)))
        label = ""
    rows += _placement(plan)
    smallest = min(hosts, key=lambda host: (host.machine.cores, host.machine.bandwidth or math.inf))
    as_written = "as written it needs" if plan.unscaled else "it needs"
    needed = counted(hosts_needed([plan.unscaled or plan.needs], smallest), "host")
    return [
        *rows,
        ("", f"{as_written} {needed} like {smallest.name}, by calibrated cost"),
        ("samples", f"{format_size(plan.needs.disk)} on disk, on the controller's host"),
        *_aggregation(plan.needs.aggregation, machine),
    ]


def _placement(plan: Plan) -> list[tuple[str, str]]:
    """Return the expected deliveries within one host.

    If the profile asks for all of them, the reason why it is not all follows.
    """
    if plan.placement is None:
        return []
    share = "all" if plan.placement.complete else format_value(plan.placement.share, "ratio")
    rows = [("", f"{share} of the deliveries are within one host")]
    if plan.profile.pair_consumers:
        delayed = plan.profile.delays is not None
        reason = clocks_needed(plan.topology.topics, len(set(plan.hosts)), delayed=delayed)
        if reason:
            rows.append(("WARNING", reason))
    return rows


def _chunks(needs: Needs) -> list[tuple[str, str]]:
    """Return the memory for messages in chunks."""
    chunks = needs.chunks
    if chunks is None:
        return []
    message = f"{chunks.chunks} of a message of {format_size(chunks.largest)}"
    producers = f"{chunks.producers} producers cut one each, {format_size(chunks.sending)}"
    consumers = f"may be incomplete at the consumers, {format_size(chunks.receiving)}"
    return [
        ("chunks", f"{message}; {producers}"),
        ("", f"{chunks.incomplete} such messages {consumers}"),
    ]


def _pace(plan: Plan) -> list[tuple[str, str]]:
    """Return the duration of connecting, if it is paced."""
    if plan.profile.connect_rate is None:
        return []
    duration = format_duration(connect_duration(plan))
    return [("", f"{plan.profile.connect_rate:g} a second, so connecting takes {duration}")]


def _room(plan: Plan, machine: Machine) -> str:
    """Return the addresses and open files that many connections need."""
    needs = plan.needs.connections
    if needs.total < _MANY:
        return ""
    addresses = counted(needs.addresses, "address", "addresses")
    worker = f"{exact(needs.files)} open files of a worker"
    broker = f"{exact(needs.broker_files)} of the broker"
    process = f"a process here may have {exact(machine.files)}"
    return f" from {addresses}; {worker}, {broker}; {process}"


def _unscaled(needs: Needs) -> str:
    """Return the needs of the run without scaling, in one line."""
    connections = needs.connections
    addresses = counted(connections.addresses, "address", "addresses")
    parts = (
        f"as written: {exact(connections.total)} connections from {addresses}",
        f"{exact(connections.broker_files)} open files of the broker",
        format_size(needs.memory),
        f"{needs.cores:,.1f} cores",
        f"{_decimal(needs.delivered * 8)}bit/s out of the broker",
        counted(needs.workers, "worker"),
    )
    return ", ".join(parts)


def _batch(messages: float | None) -> str:
    if messages is None:
        return ""
    count = format_count(round(messages, 1))
    unit = "message" if count == "1" else "messages"
    return f" at about {count} {unit} a batch"


def _decimal(size: float) -> str:
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} "
