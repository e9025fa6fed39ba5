"""The needs of a plan: CPU, memory, disk, connections and workers, and the limits of a machine on connections.

With a client for each producer and each consumer, connections are the first limit of a broadcast: each is an open file at both of its
ends, and has a port of its own at the address that it comes from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.plan.aggregation import Aggregation, aggregation_of
from pytest_loadtest.plan.scaling import OTHER_FILES, fewer_connections, largest_factor
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.schedule.topology import rows_of_broadcast
from pytest_loadtest.values.quantities import SECOND, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.plan.phases import StageSpan
    from pytest_loadtest.plan.scaling import Machine
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

EACH_SOURCE: Final = 10_000
"""Connections from one address to one port. Linux has 28 232 ports for them, and tries one half of these first: from 14 116 connections on
each connect searches this half in vain."""
# Bytes of a connection. In its worker, measured with 1 000 to 18 000 connections: 1.7 to 2.0 KiB with the native MQTT client, 26 KiB with
# paho; this is Client.connection_memory. In a broker on this machine: 1.7 KiB in mosquitto, and as much again in the kernel. TLS adds 20 to
# 22 KiB in the worker, and 14 to 15 KiB in mosquitto.
_BROKER, _TLS, _BROKER_TLS = 4 << 10, 25 << 10, 16 << 10
SAMPLE_BYTES = 8  # on disk, per row: measured 5.8 for even schedules, 7.7 for jittered ones; the receive lag adds 1 to 2 to a received row
# Bytes on disk of broadcasts, per copy, rows included: measured 2.9 to 3.2 for mosquitto with 100, 1 000 and 10 000 subscriptions, 4.4 for
# a cold Artemis, whose copies come in any order, and 4.7 for simulated arrivals spread over two seconds. A row costs 6 to 8 of that. The
# receive lag adds 2 to 2.5 where it is different for every copy.
COPY_BYTES, ROW_BYTES = 7.5, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The connections of one workload.

    :param total: to the target. :param busiest: of the worker with most of them. :param addresses: number of source addresses needed.
    :param spread: more source addresses are used for more connections: those of 127.0.0.0/8, which all belong to this machine.
    :param broker_here: the broker's files and memory are this machine's too. :param memory: bytes.
    """

    total: int
    busiest: int
    addresses: int
    spread: bool
    broker_here: bool
    memory: int

    @classmethod
    def of(
        cls,
        profile: Profile,
        topology: Topology,
        workers: int,
        machine: Machine,
        *,
        broker_here: bool,
    ) -> Connections:
        """Compute the connections of a profile. :param broker_here: the target is on this machine."""
        total = profile.driver.connections(topology.streams, topology.all_consumers, workers)
        busiest = min(
            total,
            math.ceil(topology.streams / workers) + math.ceil(topology.all_consumers / workers),
        )
        client = profile.driver.kind.clients[choose_client(profile).client]
        spread = broker_here and client.spreads
        each, tls = (
            client.connection_memory + _BROKER * broker_here,
            _TLS + _BROKER_TLS * broker_here,
        )
        memory = total * each + min(total, _over_tls(profile, topology)) * tls
        addresses = (
            workers * math.ceil(busiest / EACH_SOURCE)
            if spread
            else math.ceil(total / machine.source_ports)
        )
        return cls(
            total=total,
            busiest=busiest,
            addresses=addresses,
            spread=spread,
            broker_here=broker_here,
            memory=memory,
        )

    @property
    def files(self) -> int:
        """The open files of the worker with most connections."""
        return self.busiest + OTHER_FILES

    @property
    def broker_files(self) -> int:
        """The open files of the broker, if it is one process."""
        return self.total + OTHER_FILES

    def workers(self, machine: Machine) -> int:
        """Return the number of workers that together may open enough files."""
        return math.ceil(self.total / machine.connections)


def _over_tls(profile: Profile, topology: Topology) -> int:
    """Return the number of producers and consumers that use TLS."""
    target = profile.target
    if target is None:
        return 0
    tls = target.security.tls if target.security is not None else False
    url = target.url or ""
    encrypted = {name for name, scheme in profile.driver.kind.schemes.items() if scheme.tls}
    producers, consumers = (
        address.partition(":")[0] in encrypted for address in (url, target.subscriber_url or url)
    )
    return topology.streams * (producers or tls is True) + topology.all_consumers * (
        consumers or bool(tls)
    )


def missing_for_connections(planned: Sequence[Connections], machine: Machine) -> Iterator[str]:
    """Yield the reasons why this machine cannot have the connections of workloads that run together."""
    limit = f"a process may have {machine.files:,} (the hard limit, ulimit -Hn)"
    files, broker = (
        sum(getattr(connections, side) for connections in planned) for side in ("busiest", "total")
    )
    if files + OTHER_FILES > machine.files:
        more = max(connections.workers(machine) for connections in planned)
        yield f"a worker would have {files + OTHER_FILES:,} files open, {limit}: {format_count(more)} workers (-n) would do, or raise it"
    if (
        any(connections.broker_here for connections in planned)
        and broker + OTHER_FILES > machine.files
    ):
        yield f"the broker would have {broker + OTHER_FILES:,} files open, {limit}: raise it, or have the broker elsewhere"
    ports = sum(connections.total for connections in planned if not connections.spread)
    if ports > machine.ports:
        yield (
            f"{ports:,} connections from one address need as many ports, this machine has {machine.ports:,}"
            " (net.ipv4.ip_local_port_range): widen it, or use more machines"
        )
    each = max(
        (min(connections.busiest, EACH_SOURCE) for connections in planned if connections.spread),
        default=0,
    )
    if each > machine.source_ports:
        yield (
            f"{each:,} connections from each source address need as many ports, this machine has {machine.source_ports:,} for each"
            " (net.ipv4.ip_local_port_range): widen it, or use more workers (-n)"
        )


def can_connect(
    profile: Profile, topology: Topology, workers: int, machine: Machine, *, broker_here: bool
) -> bool:
    """Return true if this machine can have the connections of a topology."""
    connections = Connections.of(profile, topology, workers, machine, broker_here=broker_here)
    return not any(missing_for_connections([connections], machine))


def largest_connectable(
    profile: Profile, unscaled: Topology, workers: int, machine: Machine, *, broker_here: bool
) -> Topology:
    """Return the largest part of a topology whose connections this machine can have."""

    def fits(factor: float) -> bool:
        return can_connect(
            profile, fewer_connections(unscaled, factor), workers, machine, broker_here=broker_here
        )

    return fewer_connections(unscaled, largest_factor(fits))


class ChunkBuffers(NamedTuple):
    """The messages in chunks that are in memory at a time (PIP-37 has these limits for producers and consumers).

    :param largest: bytes of the largest message. :param chunks: its chunks, by the broker's default limit or the profile's.
    :param producers: each producer has one such message in the making, which is built as a whole and then cut.
    :param incomplete: messages that may be incomplete at all consumers together.
    """

    largest: int
    chunks: int
    producers: int
    incomplete: int

    @property
    def sending(self) -> int:
        """The bytes of one message of each producer."""
        return self.producers * self.largest

    @property
    def receiving(self) -> int:
        """The bytes of all incomplete messages, each counted as nearly whole."""
        return self.incomplete * self.largest


def chunk_buffers(profile: Profile, topology: Topology, largest: int) -> ChunkBuffers | None:
    """Return the buffers for chunks, None if no message is sent in chunks. :param largest: bytes of the largest payload.

    A producer has at most one incomplete message at a partition, so a consumer has at most one for each producer.
    """
    incomplete_each, most = profile.driver.incomplete_messages, profile.max_piece
    if incomplete_each is None or largest <= most:
        return None
    incomplete = (
        topology.all_consumers * topology.partitions * min(incomplete_each, topology.producers)
    )
    return ChunkBuffers(
        largest=largest,
        chunks=-(-largest // most),
        producers=topology.streams,
        incomplete=incomplete,
    )


def expected_batch(profile: Profile, topology: Topology, size: float, rate: float) -> float:
    """Return the mean number of messages in a batch, on which the costs of a client that works by the batch depend.

    :param size: mean bytes of a message. :param rate: msg/s of all streams together.
    :returns: at least 1: for drivers without batches, and for delayed messages, which no client batches, exactly 1.
    """
    if not topology.streams or profile.delays is not None:
        return 1.0
    return profile.driver.batch(
        rate / topology.streams,
        topology.partitions,
        size,
        keyed=profile.key_distributor != "NO_KEY",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The needs of a plan; sizes in bytes, rates per second. ``memory`` is with all windows and queues full.

    :param bytes_per_second: from the producers. :param delivered: bytes per second to the consumers.
    :param batch: mean number of messages in a batch; None if the costs do not depend on it.
    :param workers: number that suffices. :param chunks: None if no message is sent in chunks. :param aggregation: after the load.
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
    aggregation: Aggregation


def needs_of(
    profile: Profile, *, topology: Topology, pool: PayloadPool, rate: float, size: float, duration: int, workers: int, cost: Cost,
    machine: Machine, broker_here: bool, stages: Sequence[StageSpan] = (),
) -> Needs:  # fmt: skip
    """Compute the needs. :param rate: msg/s of all streams. :param size: mean bytes of a message. :param duration: measured phase, ns."""
    fan_out, driver, partitions = topology.subscriptions, profile.driver, topology.partitions
    bounds = [
        topology.streams * driver.window(partitions) * size,
        (driver.memory_limit or 0) * workers,
    ]
    pending = min((bound for bound in bounds if bound), default=0)
    fetched = topology.all_consumers * driver.receive_window(partitions) * size
    batch = expected_batch(profile, topology, size, rate)
    connections = Connections.of(profile, topology, workers, machine, broker_here=broker_here)
    chunks = chunk_buffers(profile, topology, int(pool.sizes.max()))
    chunked = 0 if chunks is None else chunks.sending + chunks.receiving
    busiest = cost.busiest_worker(rate, fan_out, size, workers, batch=batch)
    return Needs(
        bytes_per_second=rate * size, delivered=rate * size * fan_out, connections=connections,
        memory=int(pending + fetched) + chunked + pool.memory * workers + connections.memory,
        cores=cost.cores(rate, fan_out, size, broker_here=broker_here, batch=batch),
        busiest_worker=busiest, batch=batch if cost.shared else None, broker_here=broker_here,
        disk=int(rate * duration / SECOND * _sample_bytes(topology, workers)),
        workers=max(math.ceil(busiest * workers), connections.workers(machine), 1), chunks=chunks,
        aggregation=aggregation_of(profile, topology, rate * duration / SECOND, duration, stages),
    )  # fmt: skip


def _sample_bytes(topology: Topology, workers: int) -> float:
    """Return the bytes on disk of one message and its copies."""
    if not topology.broadcasts:
        return SAMPLE_BYTES * (1 + topology.subscriptions)
    return (
        SAMPLE_BYTES
        + ROW_BYTES * rows_of_broadcast(topology, workers)
        + COPY_BYTES * topology.subscriptions
    )
