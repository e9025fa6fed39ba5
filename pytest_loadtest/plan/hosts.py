"""The hosts that carry a plan together: what each of them gets, and what it cannot carry.

Every worker has an equal share of the load, so a host's share is its share of the workers, unless
hosts have whole topics (``pairConsumers``).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from pytest_loadtest.plan.scaling import OTHER_FILES, Machine
from pytest_loadtest.values.quantities import format_bits, format_size
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_loadtest.plan.needs import Needs


CONTROLLER = "controller"  # the host that pytest was started on


@record
class HostShare:
    """A host, with its part of the workers.

    :param workers: on this host. :param of: on all hosts.
    :param sources: addresses that its connections come from; empty: the system chooses.
    """

    name: str
    workers: int
    of: int
    machine: Machine
    sources: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The share of the load."""
        return self.workers / self.of


@record
class HostNeeds:
    """The needs of a host.

    Cores, bytes of memory, connections, open files of its busiest worker, and bit/s in the
    busier direction.
    """

    cores: float
    memory: float
    connections: int
    files: int
    bits_per_second: float

    @classmethod
    def of(cls, parts: Iterable[tuple[Needs, float]], equal: float = 1.0) -> HostNeeds:
        """Compute the needs of a host's part of workloads that run together.

        :param parts: the needs of each workload, and the host's share of them.
        :param equal: the share of its workers, if all are equal.
        """
        cores = memory = sent = received = connections = 0.0
        files = OTHER_FILES
        for needs, share in parts:
            cores += needs.cores * share
            memory += needs.memory * share
            sent += needs.bytes_per_second * share
            received += needs.delivered * share
            connections += needs.connections.total * share
            files += math.ceil(needs.connections.busiest * share / equal)
        return cls(
            cores=cores,
            memory=memory,
            connections=math.ceil(connections),
            files=files,
            bits_per_second=max(sent, received) * 8,
        )


def spread_sources(
    hosts: Sequence[HostShare], host_of: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the source addresses of each worker in its order of use.

    Workers of a host begin with different ones.

    :param host_of: name of the host of each worker that is not on the controller's host.
    """
    sources = {host.name: host.sources for host in hosts}
    begun = Counter[str]()
    rotated = {}
    for worker, host in host_of.items():
        addresses = sources.get(host, ())
        first = begun[host] % max(len(addresses), 1)
        rotated[worker] = (*addresses[first:], *addresses[:first])
        begun[host] += 1
    return rotated


def joint_machine(hosts: Sequence[HostShare], shares: Mapping[str, float]) -> Machine:
    """Return all hosts as one machine: what they carry before the tightest of them is full.

    :param shares: of the load by host, if they are not those of the workers.
    """
    tightest = dict.fromkeys(("cores", "memory", "ports", "bandwidth"), math.inf)
    machines = []
    for host in hosts:
        share = shares.get(host.name, host.share)
        if not share:
            continue
        machines.append(host.machine)
        for resource, least in tightest.items():
            amount = getattr(host.machine, resource)
            if amount is not None:
                tightest[resource] = min(least, amount / share)
    bandwidth = tightest["bandwidth"]
    files = min(machine.files for machine in machines)
    source_ports = min(machine.source_ports for machine in machines)
    return Machine(
        cores=tightest["cores"],
        memory=int(tightest["memory"]),
        files=files,
        ports=int(tightest["ports"]),
        source_ports=source_ports,
        bandwidth=bandwidth if math.isfinite(bandwidth) else None,
    )


def host_overload_reasons(
    parts: Sequence[tuple[Needs, Mapping[str, float]]], hosts: Sequence[HostShare]
) -> Iterator[str]:
    """Yield the reasons why hosts cannot carry their shares of workloads that run together.

    :param parts: the needs of each workload, and its shares by host, if they are not those of the
        workers.
    """
    for host in hosts:
        own_parts = [(needs, shares.get(host.name, host.share)) for needs, shares in parts]
        need = HostNeeds.of(own_parts, host.share)
        machine = host.machine
        share = f"host {host.name}, with {host.workers} of {host.of} workers,"
        if need.cores > machine.cores:
            yield f"{share} needs about {need.cores:,.1f} cores and has {machine.cores:g}"
        if need.memory > machine.memory:
            yield (
                f"{share} needs {format_size(need.memory)} for full windows and queues and has"
                f" {format_size(machine.memory)}"
            )
        if need.connections > machine.ports:
            each = (
                f"{machine.source_ports:,} for each source address: net.ipv4.ip_local_port_range,"
                " sourceAddresses in the file of hosts"
            )
            yield (
                f"{share} needs {need.connections:,} ports for its connections and has"
                f" {machine.ports:,} ({each})"
            )
        if need.files > machine.files:
            yield (
                f"{share} needs {need.files:,} open files in a worker and may have"
                f" {machine.files:,} (ulimit -Hn)"
            )
        if machine.bandwidth is not None and need.bits_per_second > machine.bandwidth:
            yield (
                f"{share} needs {format_bits(need.bits_per_second)} and has"
                f" {format_bits(machine.bandwidth)} (bandwidth)"
            )


def hosts_needed(needs: Sequence[Needs], host: HostShare) -> int:
    """Return the number of hosts like this one that would carry workloads that run together."""
    whole = HostNeeds.of((workload, 1.0) for workload in needs)
    machine = host.machine
    ratios = [
        whole.cores / machine.cores,
        whole.memory / machine.memory,
        whole.connections / machine.ports,
    ]
    if machine.bandwidth is not None:
        ratios.append(whole.bits_per_second / machine.bandwidth)
    return max(math.ceil(max(ratios)), 1)


def clocks_needed(topics: int, hosts: int, *, delayed: bool) -> str:
    """Explain why latencies need a relation of clocks although consumers are paired by host.

    :returns: '' if they need none.

    :param topics: and :param hosts: their numbers. :param delayed: messages are delayed.
    """
    if hosts > 1 and topics < hosts:
        plural = "s" if topics > 1 else ""
        return (
            f"pairConsumers: host is not possible with {topics} topic{plural} on {hosts} hosts:"
            f" write {hosts} topics or more, or use fewer hosts"
        )
    if delayed:
        return (
            "pairConsumers: host does not free latencies from the error of clocks,"
            " because delayed messages are due by the wall clock"
        )
    return ""
