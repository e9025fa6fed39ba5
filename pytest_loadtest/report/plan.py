"""A plan for people: what will be sent by whom, and what that needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_loadtest.quantities import format_count, format_duration, format_rate, format_size

if TYPE_CHECKING:
    from pytest_loadtest.drivers._base import DriverFacts
    from pytest_loadtest.plan import Machine, Plan
    from pytest_loadtest.search import Spec

_SHOWN_WORKERS = 16


def lines(plan: Plan, driver: DriverFacts, machine: Machine) -> list[str]:
    """One line a fact."""
    rows = [
        ("profile", plan.profile.name),
        ("rate", f"{format_rate(plan.rate)} of {int(plan.mean_size):,} B mean".replace(",", " ")),
        *([("", f"{plan.clamped} of the payloads have the nearest size that the envelope and the target allow")] if plan.clamped else []),
        ("bytes", _bytes(plan)),
        *_phases(plan),
        *_parties(plan),
        ("driver", f"{driver.client} {driver.version}"),
        *((f"  {key}", f"not applied: {why}") for key, why in {**plan.profile.not_applied, **driver.not_applied}.items()),
        *_needs(plan, machine),
    ]
    if plan.scale is not None:
        changes = "; ".join(f"{name} {change}" for name, change in plan.scale.changes.items())
        rows.insert(1, ("SCALED", f"×{plan.scale.factor:g}: {changes}. It says nothing about the full load."))
    return [f"{name:<12} {text}" for name, text in rows]


def _phases(plan: Plan) -> list[tuple[str, str]]:
    if plan.search is not None:
        return _search(plan.search)
    phases = (f"{p.name} {format_duration(p.duration)} ({format_count(p.total)} messages)" for p in plan.phases)
    rows = [("phases", " → ".join(phases) + " → drain")]
    for number, stage in enumerate(plan.phases[-1].stages):
        text = f"{stage.name}: {format_duration(stage.duration)} at {format_rate(stage.rate)} on the average"
        rows.append(("" if number else "stages", text))
    if plan.backlog is not None:
        backlog = plan.backlog
        built = f"{format_count(backlog.messages)} messages, {format_size(backlog.size)}"
        drained = f"drained within {format_duration(backlog.drain_timeout)}, then {format_duration(backlog.after)} more"
        rows.append(("backlog", f"{built}, {drained}"))
    return rows


def _search(spec: Spec) -> list[tuple[str, str]]:
    top = "" if spec.maximum is None else f" up to {format_rate(spec.maximum)}"
    warmup, hold, confirm = map(format_duration, (spec.warmup, spec.hold, spec.confirm))
    step = f"each step {warmup} warm-up and {hold} hold, the best one {confirm}"
    return [("search", f"from {format_rate(spec.first)}{top}, to within {spec.precision:.2%}"), ("", step)]


def _bytes(plan: Plan) -> str:
    out = plan.needs.bytes_per_second
    copies = plan.topology.subscriptions
    return f"{_decimal(out)}B/s = {_decimal(out * 8)}bit/s, {_decimal(out * 3600)}B per hour out; {copies} × that in"


def _parties(plan: Plan) -> list[tuple[str, str]]:
    topology, consumers = plan.topology, len(plan.topology.consumer_specs())
    spread = ", ".join(f"{len(a.producers)}p+{len(a.consumers)}c" for a in plan.assignments[:_SHOWN_WORKERS])
    more = len(plan.assignments) - _SHOWN_WORKERS
    parts = f"{_integer(topology.streams * topology.partitions)} partition producers"
    return [
        ("topics", f"{topology.topics} × {topology.partitions} partitions, {topology.subscriptions} subscriptions each"),
        ("producers", f"{topology.streams} ({parts}), {plan.rate / topology.streams:,.1f} msg/s each" if topology.streams else "none"),
        ("consumers", f"{consumers} ({_integer(consumers * topology.partitions)} partition consumers)"),
        ("workers", f"{len(plan.assignments)}: {spread}" + (f" and {more} more" if more > 0 else "")),
    ]  # fmt: skip


def _needs(plan: Plan, machine: Machine) -> list[tuple[str, str]]:
    needs = plan.needs
    broker = ", the broker on this machine included" if needs.broker_here else ""
    return [
        ("connections", _integer(needs.connections)),
        ("memory", f"{format_size(needs.memory)} with every window and queue full; this machine has {format_size(machine.memory)}"),
        ("CPU", f"about {needs.cores:,.1f} cores by calibrated cost{broker}; this machine has {machine.cores:g}"),
        ("", f"busiest worker {needs.busiest_worker:,.2f} of the one core it can use"),
        ("samples", f"{format_size(needs.disk)} on disk"),
    ]


def _integer(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _decimal(size: float) -> str:
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size:.0f} "
