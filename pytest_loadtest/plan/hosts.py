"""The hosts that carry a plan together: what each of them gets, and what it cannot carry.

Every worker has an equal share of the load, so a host's share is its share of the workers.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_loadtest.plan.scaling import OTHER_FILES, Machine
from pytest_loadtest.values.quantities import format_bits, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_loadtest.plan.needs import Needs


CONTROLLER = "controller"  # the host that pytest was started on


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNeeds:
    """The needs of a host: cores, bytes of memory, connections, open files of its busiest worker, and bit/s in the busier direction."""

    cores: float
    memory: float
    connections: int
    files: int
    bits_per_second: float

    @classmethod
    def of(cls, needs: Sequence[Needs], share: float) -> HostNeeds:
        """Compute the needs of a share of workloads that run together."""
        out, delivered = (sum(getattr(one, name) for one in needs) for name in ("bytes_per_second", "delivered"))
        return cls(
            cores=sum(one.cores for one in needs) * share, memory=sum(one.memory for one in needs) * share,
            connections=math.ceil(sum(one.connections.total for one in needs) * share),
            files=sum(one.connections.busiest for one in needs) + OTHER_FILES, bits_per_second=max(out, delivered) * share * 8,
        )  # fmt: skip


def spread_sources(hosts: Sequence[HostShare], host_of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the source addresses of each worker in its order of use; workers of a host begin with different ones.

    :param host_of: name of the host of each worker that is not on the controller's host.
    """
    sources, begun = {host.name: host.sources for host in hosts}, Counter[str]()
    rotated = {}
    for worker, host in host_of.items():
        own = sources.get(host, ())
        first = begun[host] % len(own) if own else 0
        rotated[worker] = (*own[first:], *own[:first])
        begun[host] += 1
    return rotated


def joint_machine(hosts: Sequence[HostShare]) -> Machine:
    """Return the machine that all hosts are together: what they carry before the tightest of them is full."""
    bandwidths = [host.machine.bandwidth / host.share for host in hosts if host.machine.bandwidth is not None]
    return Machine(
        cores=min(host.machine.cores / host.share for host in hosts),
        memory=int(min(host.machine.memory / host.share for host in hosts)),
        files=min(host.machine.files for host in hosts),
        ports=int(min(host.machine.ports / host.share for host in hosts)),
        source_ports=min(host.machine.source_ports for host in hosts),
        bandwidth=min(bandwidths, default=None),
    )


def host_overload_reasons(needs: Sequence[Needs], hosts: Sequence[HostShare]) -> Iterator[str]:
    """Yield the reasons why hosts cannot carry their shares of workloads that run together."""
    for host in hosts:
        need, machine = HostNeeds.of(needs, host.share), host.machine
        share = f"host {host.name}, with {host.workers} of {host.of} workers,"
        if need.cores > machine.cores:
            yield f"{share} needs about {need.cores:,.1f} cores and has {machine.cores:g}"
        if need.memory > machine.memory:
            yield f"{share} needs {format_size(need.memory)} for full windows and queues and has {format_size(machine.memory)}"
        if need.connections > machine.ports:
            each = f"{machine.source_ports:,} for each source address: net.ipv4.ip_local_port_range, sourceAddresses in the file of hosts"
            yield f"{share} needs {need.connections:,} ports for its connections and has {machine.ports:,} ({each})"
        if need.files > machine.files:
            yield f"{share} needs {need.files:,} open files in a worker and may have {machine.files:,} (ulimit -Hn)"
        if machine.bandwidth is not None and need.bits_per_second > machine.bandwidth:
            yield f"{share} needs {format_bits(need.bits_per_second)} and has {format_bits(machine.bandwidth)} (bandwidth)"


def hosts_needed(needs: Sequence[Needs], host: HostShare) -> int:
    """Return the number of hosts like this one that would carry workloads that run together."""
    whole, machine = HostNeeds.of(needs, 1.0), host.machine
    ratios = [whole.cores / machine.cores, whole.memory / machine.memory, whole.connections / machine.ports]
    if machine.bandwidth is not None:
        ratios.append(whole.bits_per_second / machine.bandwidth)
    return max(math.ceil(max(ratios)), 1)
