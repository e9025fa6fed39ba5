"""What connections need of the machine: open files, addresses to come from, memory; and whether it has them.

A client of its own for each producer and each consumer makes this the first limit of a broadcast: every connection is an open file at
both of its ends, and has a port of its own at the address that it comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_loadtest.plan.scaling import OTHER_FILES, fewer, largest
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.values.quantities import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.plan.scaling import Machine
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

EACH_SOURCE: Final = 10_000
"""Connections from one address to one port. Linux has 28 232 ports for them, and looks at half of those first: beyond 14 116 each connect
searches all of that half in vain."""
# Bytes of a connection: in its worker, of 1 000 to 18 000 measured at 1.7 to 2.0 KiB of the native MQTT client, 26 of paho; in a broker
# beside it, where mosquitto keeps 1.7, and the kernel as much again. What TLS adds: 20 to 22 in the worker, 14 to 15 in mosquitto.
# The worker's part is the client's own: Client.connection_memory.
_BROKER, _TLS, _BROKER_TLS = 4 << 10, 25 << 10, 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """Of one workload.

    :param total: to the target. :param busiest: of the worker that has most. :param addresses: that they have to come from.
    :param spread: over more addresses as they get more: those of 127.0.0.0/8, which are all this machine's.
    :param broker_here: their other ends are files, and memory, of this machine too. :param memory: bytes.
    """

    total: int
    busiest: int
    addresses: int
    spread: bool
    broker_here: bool
    memory: int

    @classmethod
    def of(cls, profile: Profile, topology: Topology, workers: int, machine: Machine, *, broker_here: bool) -> Connections:
        """:param broker_here: the target is on this machine."""
        total = profile.driver.connections(topology.streams, topology.all_consumers, workers)
        busiest = min(total, math.ceil(topology.streams / workers) + math.ceil(topology.all_consumers / workers))
        client = profile.driver.kind.clients[choose_client(profile).client]
        spread = broker_here and client.spreads
        each, tls = client.connection_memory + _BROKER * broker_here, _TLS + _BROKER_TLS * broker_here
        memory = total * each + min(total, _over_tls(profile, topology)) * tls
        addresses = workers * math.ceil(busiest / EACH_SOURCE) if spread else math.ceil(total / machine.ports)
        return cls(total=total, busiest=busiest, addresses=addresses, spread=spread, broker_here=broker_here, memory=memory)

    @property
    def files(self) -> int:
        """Open in the worker that has most."""
        return self.busiest + OTHER_FILES

    @property
    def broker_files(self) -> int:
        """Open in the broker, where it is one process."""
        return self.total + OTHER_FILES

    def workers(self, machine: Machine) -> int:
        """As many as have files enough together."""
        return math.ceil(self.total / machine.connections)


def _over_tls(profile: Profile, topology: Topology) -> int:
    """Producers and consumers that speak TLS."""
    target = profile.target
    if target is None:
        return 0
    tls = target.security.tls if target.security is not None else False
    url = target.url or ""
    encrypted = {name for name, scheme in profile.driver.kind.schemes.items() if scheme.tls}
    producers, consumers = (of.partition(":")[0] in encrypted for of in (url, target.subscriber_url or url))
    return topology.streams * (producers or tls is True) + topology.all_consumers * (consumers or bool(tls))


def too_many(planned: Sequence[Connections], machine: Machine) -> Iterator[str]:
    """Why this machine cannot have the connections of workloads that run together."""
    limit = f"a process may have {machine.files:,} (the hard limit, ulimit -Hn)"
    files, broker = (sum(getattr(one, side) for one in planned) for side in ("busiest", "total"))
    if files + OTHER_FILES > machine.files:
        more = max(one.workers(machine) for one in planned)
        yield f"a worker would have {files + OTHER_FILES:,} files open, {limit}: {format_count(more)} workers (-n) would do, or raise it"
    if any(one.broker_here for one in planned) and broker + OTHER_FILES > machine.files:
        yield f"the broker would have {broker + OTHER_FILES:,} files open, {limit}: raise it, or have the broker elsewhere"
    ports = sum(one.total for one in planned if not one.spread)
    if ports > machine.ports:
        yield (
            f"{ports:,} connections from one address want as many ports, this machine has {machine.ports:,}"
            " (net.ipv4.ip_local_port_range): widen it, or use more machines"
        )


def connects(profile: Profile, topology: Topology, workers: int, machine: Machine, *, broker_here: bool) -> bool:
    """Whether this machine can have the connections."""
    return not any(too_many([Connections.of(profile, topology, workers, machine, broker_here=broker_here)], machine))


def fitting(profile: Profile, wanted: Topology, workers: int, machine: Machine, *, broker_here: bool) -> Topology:
    """As much of ``wanted`` as this machine can have the connections of."""
    return fewer(wanted, largest(lambda factor: connects(profile, fewer(wanted, factor), workers, machine, broker_here=broker_here)))
