"""The needs of a plan, and the limits of a machine on connections.

Needs are CPU, memory, disk, connections and workers.

With a client for each producer and each consumer, connections are the first limit of a broadcast:
each is an open file at both of its ends, and has a port of its own at the address that it comes
from.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_loadtest.plan.aggregation import Aggregation, aggregation_of
from pytest_loadtest.plan.scaling import OTHER_FILES
from pytest_loadtest.profile.model import choose_client
from pytest_loadtest.schedule.topology import rows_of_broadcast
from pytest_loadtest.values.quantities import SECOND, format_count
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_loadtest.kinds.costs import Cost
    from pytest_loadtest.message.payloads import PayloadPool
    from pytest_loadtest.plan.phases import StageSpan
    from pytest_loadtest.plan.scaling import Machine
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.schedule.topology import Topology

EACH_SOURCE: Final = 10_000
"""Connections from one address to one port.

Linux has 28 232 ports for them, and tries one half of these first: from 14 116 connections on
each connect searches this half in vain."""
# Bytes of a connection. In its worker, measured with 1 000 to 18 000 connections: 1.7 to 2.0 KiB
# with the native MQTT client, 26 KiB with paho; this is Client.connection_memory. In a broker on
# this machine: 1.7 KiB in mosquitto, and as much again in the kernel. TLS adds 20 to 22 KiB in the
# worker, and 14 to 15 KiB in mosquitto.
_BROKER = 4 << 10
_TLS = 25 << 10
_BROKER_TLS = 16 << 10
# Bytes on disk of a row: measured 5.8 for even schedules, 7.7 for jittered ones; the receive lag
# adds 1 to 2 to a received row.
SAMPLE_BYTES = 8
# Bytes on disk of broadcasts, per copy, rows included: measured 2.9 to 3.2 for mosquitto with 100,
# 1 000 and 10 000 subscriptions, 4.4 for a cold Artemis, whose copies come in any order, and 4.7
# for simulated arrivals spread over two seconds. A row costs 6 to 8 of that. The receive lag adds 2
# to 2.5 where it is different for every copy.
COPY_BYTES = 7.5
ROW_BYTES = 12


@record
class Connections:
    """The connections of one workload.

    :param total: to the target. :param busiest: of the worker with most of them.
    :param addresses: number of source addresses needed.
    :param spread: more source addresses are used for more connections: those of 127.0.0.0/8, which
        all belong to this machine.
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
        """Compute the connections of a profile.

        :param broker_here: the target is on this machine.
        """
        total = profile.driver.connections(topology.streams, topology.all_consumers, workers)
        # A tap is a client of its own, also where a worker has one connection for all others.
        total += profile.driver.connections(0, topology.taps, workers)
        clients = (topology.streams, topology.all_consumers, topology.taps)
        of_worker = sum(math.ceil(number / workers) for number in clients)
        busiest = min(total, of_worker)
        client = profile.driver.kind.clients[choose_client(profile).client]
        spread = broker_here and client.spreads
        if spread:
            addresses = workers * math.ceil(busiest / EACH_SOURCE)
        else:
            addresses = math.ceil(total / machine.source_ports)
        plain = client.connection_memory
        tls = _TLS
        if broker_here:
            plain += _BROKER
            tls += _BROKER_TLS
        return cls(
            total=total,
            busiest=busiest,
            addresses=addresses,
            spread=spread,
            broker_here=broker_here,
            memory=total * plain + min(total, _over_tls(profile, topology)) * tls,
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
    schemes = profile.driver.kind.schemes
    tls = target.security is not None and target.security.tls

    def encrypted(url: str) -> bool:
        scheme = schemes.get(url.partition(":")[0])
        return scheme is not None and scheme.tls

    url = target.url or ""
    clients = 0
    if tls is True or encrypted(url):
        clients += topology.streams
    if tls or encrypted(target.subscriber_url or url):
        clients += topology.all_consumers + topology.taps
    return clients


def missing_for_connections(planned: Sequence[Connections], machine: Machine) -> Iterator[str]:
    """Yield the reasons why this machine cannot have the connections of all workloads together."""
    limit = f"a process may have {machine.files:,} (the hard limit, ulimit -Hn)"
    files = sum(connections.busiest for connections in planned) + OTHER_FILES
    if files > machine.files:
        workers = max(connections.workers(machine) for connections in planned)
        yield (
            f"a worker would have {files:,} files open, {limit}:"
            f" {format_count(workers)} workers (-n) are enough, or raise it"
        )
    broker_files = sum(connections.total for connections in planned) + OTHER_FILES
    broker_here = any(connections.broker_here for connections in planned)
    if broker_here and broker_files > machine.files:
        yield (
            f"the broker would have {broker_files:,} files open, {limit}: raise it,"
            " or have the broker elsewhere"
        )
    ports = sum(connections.total for connections in planned if not connections.spread)
    if ports > machine.ports:
        yield (
            f"{ports:,} connections from one address need as many ports,"
            f" this machine has {machine.ports:,}"
            " (net.ipv4.ip_local_port_range): widen it, or use more machines"
        )
    spread = [connections.busiest for connections in planned if connections.spread]
    of_source = min(max(spread, default=0), EACH_SOURCE)
    if of_source > machine.source_ports:
        yield (
            f"{of_source:,} connections from each source address need as many ports,"
            f" this machine has {machine.source_ports:,} for each"
            " (net.ipv4.ip_local_port_range): widen it, or use more workers (-n)"
        )


def can_connect(
    profile: Profile, topology: Topology, workers: int, machine: Machine, *, broker_here: bool
) -> bool:
    """Return true if this machine can have the connections of a topology."""
    connections = Connections.of(profile, topology, workers, machine, broker_here=broker_here)
    return not any(missing_for_connections([connections], machine))


class ChunkBuffers(NamedTuple):
    """The messages in chunks that are in memory at a time, by the limits of PIP-37.

    :param largest: bytes of the largest message.
    :param chunks: its chunks, by the broker's default limit or the profile's.
    :param producers: each producer has one such message in the making, which is built as a whole
        and then cut.
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
    """Return the buffers for chunks, None if no message is sent in chunks.

    A producer has at most one incomplete message at a partition, so a consumer has at most one for
    each producer.

    :param largest: bytes of the largest payload.
    """
    of_consumer = profile.driver.incomplete_messages
    most = profile.max_piece
    if of_consumer is None or largest <= most:
        return None
    of_partition = min(of_consumer, topology.producers)
    return ChunkBuffers(
        largest=largest,
        chunks=-(-largest // most),
        producers=topology.streams,
        incomplete=topology.all_consumers * topology.partitions * of_partition,
    )


def expected_batch(profile: Profile, topology: Topology, size: float, rate: float) -> float:
    """Return the mean number of messages in a batch.

    The costs of a client that works by the batch depend on it.

    :param size: mean bytes of a message. :param rate: msg/s of all streams together.
    :returns: at least 1: for drivers without batches, and for delayed messages, which no client
        batches, exactly 1.
    """
    if not topology.streams or profile.delays is not None:
        return 1.0
    return profile.driver.batch(
        rate / topology.streams,
        topology.partitions,
        size,
        keyed=profile.key_distributor != "NO_KEY",
    )


@record
class Needs:
    """The needs of a plan; sizes in bytes, rates per second.

    ``memory`` is with all windows and queues full.

    :param bytes_per_second: from the producers.
    :param delivered: bytes per second to the consumers.
    :param batch: mean number of messages in a batch; None if the costs do not depend on it.
    :param workers: number that suffices. :param chunks: None if no message is sent in chunks.
    :param aggregation: after the load.
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
    profile: Profile,
    topology: Topology,
    *,
    pool: PayloadPool,
    highest: float,
    rate: float,
    size: float,
    duration: int,
    workers: int,
    cost: Cost,
    machine: Machine,
    broker_here: bool,
    stages: Sequence[StageSpan] = (),
) -> Needs:
    """Compute the needs.

    :param highest: msg/s of all streams. :param rate: likewise their mean rate.
    :param size: mean bytes of a message. :param duration: measured phase, ns.
    """
    fan_out = topology.reads
    batch = expected_batch(profile, topology, size, highest)
    busiest = cost.busiest_worker(highest, fan_out, size, workers, batch=batch)
    connections = Connections.of(profile, topology, workers, machine, broker_here=broker_here)
    chunks = chunk_buffers(profile, topology, int(pool.sizes.max()))
    queues = _queued_bytes(profile, topology, size, workers)
    if chunks is not None:
        queues += chunks.sending + chunks.receiving
    messages = rate * duration / SECOND
    return Needs(
        bytes_per_second=highest * size,
        delivered=highest * size * fan_out,
        connections=connections,
        memory=queues + pool.memory * workers + connections.memory,
        cores=cost.cores(highest, fan_out, size, broker_here=broker_here, batch=batch),
        busiest_worker=busiest,
        batch=batch if cost.shared else None,
        broker_here=broker_here,
        disk=int(messages * _sample_bytes(topology, workers)),
        workers=max(math.ceil(busiest * workers), connections.workers(machine), 1),
        chunks=chunks,
        aggregation=aggregation_of(profile, topology, messages, duration, stages),
    )


def _queued_bytes(profile: Profile, topology: Topology, size: float, workers: int) -> int:
    """Return the bytes in full windows of producers and full queues of consumers."""
    driver = profile.driver
    windows = topology.streams * driver.window(topology.partitions) * size
    memory_limit = (driver.memory_limit or 0) * workers
    pending = min(filter(None, (windows, memory_limit)), default=0)
    consumers = topology.all_consumers + topology.taps
    fetched = consumers * driver.receive_window(topology.partitions) * size
    return int(pending + fetched)


def _sample_bytes(topology: Topology, workers: int) -> float:
    """Return the bytes on disk of one message and its copies."""
    if not topology.broadcasts:
        return SAMPLE_BYTES * (1 + topology.reads)
    return (
        SAMPLE_BYTES
        + ROW_BYTES * rows_of_broadcast(topology, workers)
        + COPY_BYTES * topology.subscriptions
    )
