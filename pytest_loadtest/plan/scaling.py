"""The effect of ``--load-scale`` and ``--load-duration`` on a plan.

They change its rate, topology, durations and bounds. ``auto`` is in
:mod:`~pytest_loadtest.plan.auto`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.costs import cost_key
from pytest_loadtest.message.route import Carrier
from pytest_loadtest.message.samples import WIDTH
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.schedule.pacing import Pacer
from pytest_loadtest.schedule.topology import scaled_count
from pytest_loadtest.values.quantities import SECOND, ByteRate, format_duration, format_rate
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.plan.phases import PacedTraffic
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

# Share of a host's bandwidth that ``auto`` uses. The plan counts payloads only: the rest is for
# headers, acknowledgements and bursts.
AUTO_BANDWIDTH = 0.8
# Files open in addition to connections: libraries, logs, samples, links to the controller. A new
# process has some forty.
OTHER_FILES = 100
# The longest duration of a part of the run, as a multiple of the cap: a confirmation must show more
# than a step of a search.
_CAPS: Final = {
    "measured phase": Fraction(1),
    "hold": Fraction(1),
    "confirm": Fraction(2),
    "warm-up": Fraction(1, 2),
}
_LEAST_FOR_DRIFT = 10 * SECOND


@record
class Machine:
    """The resources of this machine: cores that this process may use, memory in bytes.

    :param files: the most that a process may have open.
    :param ports: for connections from all its source addresses to one port.
    :param source_ports: for those from one of them.
    :param bandwidth: of its network in each direction, bit/s; None if unknown.
    :param workloads: that share it in this run.
    """

    cores: float
    memory: int
    files: int = 1 << 20
    ports: int = 28_232
    source_ports: int = 28_232
    bandwidth: float | None = None
    workloads: int = 1

    @property
    def connections(self) -> int:
        """The most connections of a process."""
        return max(self.files - OTHER_FILES, 1)

    def network_load(self, bytes_per_second: float, fan_out: int) -> float:
        """Return the load of the busier direction, as a share of the bandwidth that ``auto`` uses.

        :returns: 0 if the bandwidth is unknown.
        """
        if self.bandwidth is None:
            return 0.0
        bits_per_second = bytes_per_second * max(fan_out, 1) * 8
        return bits_per_second / (self.bandwidth * AUTO_BANDWIDTH)


@record
class Scale:
    """The differences between a plan and its profile.

    :param factor: on the load: of a broadcast on its subscribers, without messages on its
        connections.
    :param rate: on the rate, which a broadcast keeps.
    :param messages: planned messages divided by those of the profile; of a search, those of a hold;
        of a broadcast, deliveries.
    :param changes: ``before → after`` by name.
    """

    factor: float
    rate: float
    messages: float
    changes: Mapping[str, str]


def at(profile: Profile, unscaled: Topology, factor: float) -> tuple[Topology, float]:
    """Return the topology, and the factor on the rate, for a factor on the load.

    Without messages there are fewer connections. A broadcast has fewer subscribers, but at least
    those of a broadcast: the rest of the factor is on its rate. Other profiles list what is
    scalable, and their rate changes too, unless others send it.
    """
    if profile.connects_only:
        return fewer_connections(unscaled, factor), 1.0
    if unscaled.broadcasts:
        subscribers = unscaled.subscriptions * factor
        topology = replace(unscaled, subscriptions=max(round(subscribers), WIDTH))
        return topology, min(subscribers / WIDTH, 1.0)
    topology = scaled_topology(unscaled, profile.scalable, factor)
    return topology, 1.0 if profile.consumer_only else factor


def fewer_connections(topology: Topology, factor: float) -> Topology:
    """Return a topology with about ``factor`` of the connections.

    First there are fewer topics, then fewer clients of each.
    """
    topics = max(math.ceil(round(topology.topics * min(factor, 1.0), 6)), 1)
    remaining = factor * topology.topics / topics
    return replace(
        topology,
        topics=topics,
        producers=scaled_count(topology.producers, remaining),
        subscriptions=scaled_count(topology.subscriptions, remaining),
    )


def scaled_topology(topology: Topology, scalable: tuple[str, ...], factor: float) -> Topology:
    """Return a topology with ``factor`` of each number in ``scalable``, but at least 1."""
    scaled: dict[str, Any] = {}
    for name in scalable:
        scaled[name] = scaled_count(getattr(topology, name), factor)
    result = replace(topology, **scaled)
    if topology.broadcasts or not result.broadcasts:
        return result
    # A broadcast has other rows and metrics, and the profile was checked without them.
    if topology.consumers > 1:
        return replace(result, consumers=2)
    return replace(result, subscriptions=WIDTH - 1)


def highest_rate(profile: Profile, whole: PacedTraffic) -> float:
    """Return the highest rate of a profile, msg/s; of a search, the first."""
    if profile.search is None or not profile.peak_search:
        return whole.highest
    return whole.messages(profile.search.start)


def durations(profile: Profile, whole: PacedTraffic, cap: int | None) -> dict[str, tuple[int, int]]:
    """Return the durations in a run by name, ns: as in the profile, and as shortened by ``cap``.

    :param whole: the profile's traffic. :param cap: longest measured phase, ns.
    """
    search = profile.search
    if search is not None and profile.peak_search:
        written = {"hold": search.hold, "confirm": search.confirm, "warm-up": search.warmup}
    else:
        written = {"measured phase": whole.duration, "warm-up": profile.warmup_duration}
        if profile.consumer_only or profile.connects_only:
            written["warm-up"] = 0
    planned = {}
    for name, length in written.items():
        most = length if cap is None else int(cap * _CAPS[name])
        planned[name] = (length, min(length, most))
    return planned


def check_windows(profile: Profile, traffic: PacedTraffic, cap: int | None) -> None:
    """Check that windows still fit into a measured phase that a cap has shortened.

    :raises UsageError: a window does not fit, or a tenth is shorter than a second; names section
        and remedy.
    """
    if cap is None or profile.consumer_backlog_size_gb:
        return
    hold = traffic.duration
    if profile.search is not None and profile.peak_search:
        hold = profile.search.hold
    judged = [("slo", profile.slo, min(hold, cap))]
    judged += [
        (f"the slo of stage {span.name}", span.slo, span.duration) for span in traffic.stages
    ]
    for name, section, length in judged:
        window = section.window or 0
        least = _LEAST_FOR_DRIFT if "drift" in section else 0
        if max(window, least) <= length:
            continue
        left = f"{format_duration(length)} that --load-duration leaves to measure"
        remedy = "raise --load-duration"
        if least >= window:
            conflict = f"drift needs 10 s, more than the {left}"
        else:
            conflict = f"a window of {format_duration(window)} is longer than the {left}"
            remedy += ", or write a shorter window under scaled: {slo: {window: …}}"
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

    :param factor: on the rate. :param whole: the profile's traffic. :param traffic: the plan's.
    :param cap: longest measured phase, ns.
    """
    changes = {}
    if factor != 1.0:
        changes["rate"] = _rates(profile, factor, whole)
    for name in ("topics", "partitions", "producers", "subscriptions", "consumers"):
        before = getattr(unscaled, name)
        after = getattr(topology, name)
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

    share = 1.0
    if profile.connects_only:
        share = topology.clients / unscaled.clients
    elif unscaled.broadcasts:
        share = topology.subscriptions / unscaled.subscriptions
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
    rate = highest_rate(profile, whole)
    if profile.in_bytes:
        rate = ByteRate(rate * whole.mean_size)
    return f"{format_rate(rate)} → {format_rate(type(rate)(rate * factor))}"


_TEXT: Final = 2_000
"""ns to make a message that is text, or to find its token: in bursts of 10, on a slow machine, 0.4
to 1.7 µs."""


def profile_cost(profile: Profile, table: Mapping[str, Cost]) -> Cost:
    """Return the cost of a message of a profile; a service's own is not part of it.

    :param table: costs by :func:`profile_cost_key`, for the kind's default broker; the cost of
        another broker is replaced by its own.
    :raises UsageError: the kind has no such cost.
    """
    key = profile_cost_key(profile)
    kind = profile.driver.kind
    if key not in table:
        raise UsageError(
            f"driver {kind.name!r} of the package {kind.package} has no cost {key!r}:"
            " its DriverKind.costs must have one"
        )
    cost = table[key]
    broker = kind.start_of(profile.driver.broker_name).costs.get(key, cost.broker)
    if profile.has_service:
        # The service takes each message from the broker and gives it another one.
        broker *= 2
    token = profile.sent_place.carrier is not Carrier.BODY
    produce = cost.produce + _TEXT * (token or profile.payload is not None)
    consume = cost.consume + _TEXT * token
    return replace(cost, broker=broker, produce=produce, consume=consume)


def profile_cost_key(profile: Profile) -> str:
    """Return the key of the cost table for a profile's driver and client."""
    return cost_key(profile.driver.name, profile.driver.cost_variant, choose_client(profile).client)
