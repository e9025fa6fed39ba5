"""The plan as a table: the load, its distribution over workers, and the resources that it needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_loadtest.kinds.registry import load_reference
from pytest_loadtest.plan.connecting import connect_duration
from pytest_loadtest.plan.hosts import HostNeeds, clocks_needed, hosts_needed
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
    from pytest_loadtest.plan.aggregation import Aggregation
    from pytest_loadtest.plan.hosts import HostShare
    from pytest_loadtest.plan.needs import Needs
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.plan.scaling import Machine
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.verdict.peak import Spec

_SHOWN_WORKERS = 16
_MANY = 1000  # connections: the needs of fewer ones are far below every limit


def plan_table(
    plan: Plan, driver: DriverFacts, machine: Machine, hosts: Sequence[HostShare] = ()
) -> list[str]:
    """Return a plan as lines, one for each fact. :param hosts: the hosts that carry it; empty for this machine alone."""
    rows = [
        ("profile", plan.profile.name),
        *_messages(plan),
        *_phases(plan),
        *_abort(plan),
        *_delays(plan),
        *_parties(plan),
        ("driver", f"{driver.client} {driver.version}"),
        *_choice(plan),
        *(
            (f"  {key}", f"not applied: {why}")
            for key, why in {**plan.profile.not_applied, **driver.not_applied}.items()
        ),
        *(_host_needs(plan, hosts, machine) if hosts else _needs(plan, machine)),
    ]
    if plan.scale is not None:
        changes = "; ".join(f"{name} {change}" for name, change in plan.scale.changes.items())
        word, _, factor = scale_word(plan.scale.factor).partition(" ")
        rows.insert(
            1,
            (
                word.upper(),
                f"{f'{factor}: ' if factor else ''}{changes}. It says nothing about the full load.",
            ),
        )
    if plan.unscaled is not None:
        rows.insert(2, ("", _unscaled(plan.unscaled)))
    return [f"{name:<12} {text}" for name, text in rows]


def _choice(plan: Plan) -> list[tuple[str, str]]:
    """Return the client and the reason for it, if there is a choice."""
    client, why = choose_client(plan.profile)
    return [("client", f"{client}: {why}")] if why else []


def _messages(plan: Plan) -> list[tuple[str, str]]:
    if plan.profile.connects_only:
        return []
    return [
        ("rate", f"{format_rate(plan.rate)} of {int(plan.mean_size):,} B mean".replace(",", " ")),
        *(
            [
                (
                    "",
                    f"{plan.clamped} of the payloads have the nearest size that the envelope and the target allow",
                )
            ]
            if plan.clamped
            else []
        ),
        ("bytes", _bytes(plan)),
        *(
            []
            if plan.turns is None
            else [("skew", _skew(plan.turns.weights.tolist(), plan.topology.topics))]
        ),
    ]


def _skew(turns: list[int], topics: int) -> str:
    """:param turns: of each stream; the streams of a topic are ``topics`` apart."""
    shares = [sum(turns[topic::topics]) / sum(turns) for topic in range(topics)]
    return f"the busiest topic has {max(shares):.1%} of the messages, the quietest {min(shares):.1%}".replace(
        "%", " %"
    )


def _phases(plan: Plan) -> list[tuple[str, str]]:
    if plan.profile.connects_only:
        return [
            ("phases", f"connect → hold {format_duration(plan.measure.duration)}, without messages")
        ]
    if plan.search is not None:
        return [*_search(plan.search, plan.profile), *_implicit(plan)]
    about = "about " if plan.profile.in_bytes else ""  # the sizes that are drawn decide
    phases = (
        f"{p.name} {format_duration(p.duration)} ({about}{format_count(p.total)} messages)"
        for p in plan.phases
    )
    rows = [("phases", " → ".join(phases) + " → drain")]
    for number, stage in enumerate(plan.phases[-1].stages):
        pace = f"at {format_rate(stage.rate)} on the average" if stage.rate else "without messages"
        text = f"{stage.name}: {format_duration(stage.duration)} {pace}"
        rows.append(("" if number else "stages", text))
    if plan.backlog is not None:
        backlog = plan.backlog
        built = f"{format_count(backlog.messages)} messages, {format_size(backlog.size)}"
        drained = f"drained within {format_duration(backlog.drain_timeout)}, then {format_duration(backlog.after)} more"
        rows.append(("backlog", f"{built}, {drained}"))
    return rows


def _abort(plan: Plan) -> list[tuple[str, str]]:
    """Return the conditions that end the run early."""
    abort = plan.profile.abort
    lines = [] if abort is None else abort.lines()
    return [("" if at else "aborts at", line) for at, line in enumerate(lines)]


def _delays(plan: Plan) -> list[tuple[str, str]]:
    """Return the times of delayed messages, and the memory that they need at the broker."""
    profile, delays = plan.profile, plan.profile.delays
    if delays is None:
        return []
    when = f"until {format_duration(delays.longest)} into the phase"
    if delays.at is None:
        least = (
            f"{format_duration(delays.least * MILLISECOND)} to "
            if delays.least < delays.most
            else ""
        )
        when = f"{least}{format_duration(delays.longest)} each"
    kind = profile.driver.kind
    if kind.delayed_index is None:
        return [("delayed", when)]
    text, warning = load_reference(kind, kind.delayed_index)(
        profile, plan.topology, plan.rate, plan.measure.total
    )
    return [("delayed", f"{when}; {text}"), *([("WARNING", warning)] if warning else [])]


def _search(spec: Spec, profile: Profile) -> list[tuple[str, str]]:
    unit = ByteRate if profile.in_bytes else float
    top = "" if spec.maximum is None else f" up to {format_rate(unit(spec.maximum))}"
    warmup, hold, confirm = map(format_duration, (spec.warmup, spec.hold, spec.confirm))
    step = f"each step {warmup} warm-up and {hold} hold, the best one {confirm}"
    rows = [
        ("search", f"from {format_rate(unit(spec.first))}{top}, to within {spec.precision:.2%}"),
        ("", step),
    ]
    if not {"producer_rate", "search"} & profile.model_fields_set:
        rows.append(
            ("", "because producerRate is missing, for which OMB searches the highest rate")
        )
    return rows


def _implicit(plan: Plan) -> list[tuple[str, str]]:
    """Return the implicit objectives if the profile has none."""
    objectives = plan.profile.objectives
    if explicit(objectives):
        return []
    unmeasured = (
        ()
        if not plan.profile.producer_only
        else DELIVERIES
        if plan.profile.publish_acks
        else (*DELIVERIES, SILENT)
    )
    applied = (objective for objective in objectives if objective.metric not in unmeasured)
    named = ", ".join(f"{objective.name} {write_bounds(objective)}" for objective in applied)
    return [("", f"no objectives in the profile: the implicit ones must hold, {named}")]


def _bytes(plan: Plan) -> str:
    out, delivered = plan.needs.bytes_per_second, plan.needs.delivered
    back = f"; {plan.topology.subscriptions} × that in"
    if plan.topology.broadcasts:
        rate = format_rate(plan.rate * plan.topology.subscriptions).replace("msg/s", "deliveries/s")
        back += f", {rate}, {_decimal(delivered * 8)}bit/s out of the broker"
    mean = plan.rate * plan.mean_size
    most = " at the highest rate" if out > mean * 1.001 else ""
    return f"{_decimal(out)}B/s = {_decimal(out * 8)}bit/s{most}, {_decimal(mean * 3600)}B per hour out{back}"


def _parties(plan: Plan) -> list[tuple[str, str]]:
    topology, consumers = plan.topology, plan.topology.all_consumers
    spread = ", ".join(
        f"{len(a.streams)}p+{len(a.consumers)}c" for a in plan.assignments[:_SHOWN_WORKERS]
    )
    more = len(plan.assignments) - _SHOWN_WORKERS
    parts = f"{exact(topology.streams * topology.partitions)} partition producers"
    each = (
        ""
        if plan.profile.connects_only or not topology.streams
        else f", {plan.rate / topology.streams:,.1f} msg/s each"
    )
    return [
        ("topics", f"{topology.topics} × {topology.partitions} partitions, {topology.subscriptions} subscriptions each"),
        ("producers", f"{topology.streams} ({parts}){each}" if topology.streams else "none"),
        ("consumers", f"{consumers} ({exact(consumers * topology.partitions)} partition consumers)"),
        ("workers", f"{len(plan.assignments)}: {spread}" + (f" and {more} more" if more > 0 else "")),
    ]  # fmt: skip


def _needs(plan: Plan, machine: Machine) -> list[tuple[str, str]]:
    needs = plan.needs
    broker = ", the broker on this machine included" if needs.broker_here else ""
    return [
        ("connections", exact(needs.connections.total) + _room(plan, machine)),
        *_pace(plan),
        (
            "memory",
            f"{format_size(needs.memory)} with every window and queue full; this machine has {format_size(machine.memory)}",
        ),
        *_chunks(needs),
        (
            "CPU",
            f"about {needs.cores:,.1f} cores by calibrated cost{_batch(needs.batch)}{broker}; this machine has {machine.cores:g}",
        ),
        ("", f"busiest worker {needs.busiest_worker:,.2f} of the one core it can use"),
        ("samples", f"{format_size(needs.disk)} on disk"),
        *_aggregation(needs.aggregation, machine),
    ]


def _aggregation(needs: Aggregation, machine: Machine) -> list[tuple[str, str]]:
    """Return the needs after the load, of a search after each step."""
    took = format_duration(needs.duration(machine.cores))
    workers = counted(needs.workers(machine.cores), "worker")
    spark = f"{format_size(needs.java)} in Spark and {format_size(needs.worker)} in each of its {workers}"
    return [
        (
            "aggregation",
            f"about {took} on the {machine.cores:g} cores here after the load; at most {format_size(needs.controller)}",
        ),
        ("", f"in the controller, {spark}; {format_size(needs.disk)} on disk while it lasts"),
    ]


def _host_needs(plan: Plan, hosts: Sequence[HostShare], machine: Machine) -> list[tuple[str, str]]:
    """Return the needs of each host, next to its resources."""
    rows = [("connections", exact(plan.needs.connections.total)), *_pace(plan)]
    shares = plan.host_shares
    for at, host in enumerate(hosts):
        share = shares.get(host.name, host.share)
        need, machine = HostNeeds.of([(plan.needs, share)], host.share), host.machine
        bandwidth = "" if machine.bandwidth is None else f" of {format_bits(machine.bandwidth)}"
        parts = (
            f"{host.name}: {host.workers} of {host.of} workers", *([f"{format_value(share, 'ratio')} of the load"] if shares else []),
            f"{need.cores:,.1f} of {machine.cores:g} cores",
            f"{format_size(need.memory)} of {format_size(machine.memory)}", f"{format_bits(need.bits_per_second)}{bandwidth}",
            f"{exact(need.connections)} of {exact(machine.ports)} ports",
        )  # fmt: skip
        rows.append(("hosts" if not at else "", ", ".join(parts)))
    rows += _placement(plan)
    aggregation = _aggregation(plan.needs.aggregation, machine)
    written = plan.unscaled or plan.needs
    smallest = min(hosts, key=lambda host: (host.machine.cores, host.machine.bandwidth or math.inf))
    as_written = "as written it needs" if plan.unscaled else "it needs"
    needed = hosts_needed([written], smallest)
    rows.append(
        ("", f"{as_written} {counted(needed, 'host')} like {smallest.name}, by calibrated cost")
    )
    return [
        *rows,
        ("samples", f"{format_size(plan.needs.disk)} on disk, on the controller's host"),
        *aggregation,
    ]


def _placement(plan: Plan) -> list[tuple[str, str]]:
    """Return the expected deliveries within one host, and the reason why it is not all of them if that is asked for."""
    if plan.placement is None:
        return []
    share = "all" if plan.placement.complete else format_value(plan.placement.share, "ratio")
    rows = [("", f"{share} of the deliveries are within one host")]
    if plan.profile.pair_consumers:
        reason = clocks_needed(
            plan.topology.topics, len(set(plan.hosts)), delayed=plan.profile.delays is not None
        )
        rows += [("WARNING", reason)] if reason else []
    return rows


def _chunks(needs: Needs) -> list[tuple[str, str]]:
    """Return the memory for messages in chunks."""
    chunks = needs.chunks
    if chunks is None:
        return []
    largest = format_size(chunks.largest)
    return [
        (
            "chunks",
            f"{chunks.chunks} of a message of {largest}; {chunks.producers} producers cut one each, {format_size(chunks.sending)}",
        ),
        (
            "",
            f"{chunks.incomplete} such messages may be incomplete at the consumers, {format_size(chunks.receiving)}",
        ),
    ]


def _pace(plan: Plan) -> list[tuple[str, str]]:
    """Return the duration of connecting, if it is paced."""
    if plan.profile.connect_rate is None:
        return []
    return [
        (
            "",
            f"{plan.profile.connect_rate:g} a second, so connecting takes {format_duration(connect_duration(plan))}",
        )
    ]


def _room(plan: Plan, machine: Machine) -> str:
    """Return the addresses and open files that many connections need."""
    needs = plan.needs.connections
    if needs.total < _MANY:
        return ""
    files = (
        f"{exact(needs.files)} open files of a worker, {exact(needs.broker_files)} of the broker"
    )
    return f" from {counted(needs.addresses, 'address', 'addresses')}; {files}; a process here may have {exact(machine.files)}"


def _unscaled(needs: Needs) -> str:
    """Return the needs of the run without scaling, in one line."""
    connections = needs.connections
    return ", ".join((
        f"as written: {exact(connections.total)} connections from {counted(connections.addresses, 'address', 'addresses')}",
        f"{exact(connections.broker_files)} open files of the broker", format_size(needs.memory), f"{needs.cores:,.1f} cores",
        f"{_decimal(needs.delivered * 8)}bit/s out of the broker", counted(needs.workers, "worker"),
    ))  # fmt: skip


def _batch(messages: float | None) -> str:
    if messages is None:
        return ""
    count = format_count(round(messages, 1))
    return f" at about {count} message{'' if count == '1' else 's'} a batch"


def _decimal(size: float) -> str:
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} "
