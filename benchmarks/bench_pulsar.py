"""CPU per message of the generator on a real Pulsar.

Run ``python benchmarks/bench_pulsar.py``: it measures the native and the library client.

It runs the engine, the driver and the recorder of one worker, as in a run, with all samples
written; producers are in one process and consumers in another, so that both have separate figures.
The figure is the CPU time of the process while load ran, with the drain, divided by its messages.
It also prints losses, the send delay, and the longest stalls of both processes.

``--url`` and ``--admin`` name a running broker; without them one is started. ``--case`` selects
cases by number, ``--client`` the clients.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from roles import run_both, run_role

from pytest_loadtest import brokers
from pytest_loadtest.drivers import driver_class
from pytest_loadtest.drivers.base import DriverContext, TargetAddress
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.message.payloads import Bucket, build_pool, parse_range
from pytest_loadtest.schedule.topology import Topology

MIX = {
    "0-256": 234,
    "256-1024": 456,
    "1KB-2KB": 678,
    "2KB-4KB": 902,
    "4KB-16KB": 456,
    "16KB-64KB": 234,
    "64KB-256KB": 45,
    "256KB-1MB": 6,
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One shape of load. ``delay``: ms that a batch waits; ``most``: messages of a batch."""

    name: str
    rate: float
    streams: int = 1
    topics: int = 1
    partitions: int = 1
    consumers: int = 1
    size: int | None = 128
    delay: int = 1
    most: int = 1000
    seconds: float = 10.0


PROD = {"streams": 200, "topics": 10, "partitions": 100, "consumers": 10}
CASES = (
    Case(name="100 a batch, 100 k/s", rate=100_000),
    Case(name="1000 a batch, 500 k/s", rate=500_000, delay=2),
    Case(name="1000 a batch, 600 k/s", rate=600_000, delay=2),
    Case(name="10 a batch, 50 k/s", rate=50_000, most=10),
    Case(name="10 a tick, 10 k/s", rate=10_000),
    Case(name="1 a batch, 3 k/s", rate=3_000, most=1),
    Case(name="200 streams, 50 k/s", rate=50_000, streams=200),
    *(
        Case(name=f"prod-2m's streams, {rate} k/s", rate=rate * 1000, **PROD)
        for rate in (2, 4, 6, 8)
    ),
    Case(name="prod-2m's mix, 2 k/s", rate=2_000, size=None, **PROD),
    Case(name="prod-2m's mix, 3 k/s", rate=3_000, size=None, **PROD),
)


def made_pool(case: Case) -> Any:
    mix = None
    if not case.size:
        mix = []
        for name, weight in MIX.items():
            low, high = parse_range(name)
            mix.append(Bucket(name=name, low=low, high=high, weight=weight))
    return build_pool(
        buckets=mix,
        message_size=case.size,
        randomized=True,
        random_ratio=0.5,
        file_content=None,
        seed=1,
        checksum=False,
        max_size=5_000_000,
    )


def made_driver(
    case: Case, client: str, where: dict[str, Any], name: str, worker: str
) -> tuple[Any, DriverContext]:
    topology = Topology(
        topics=case.topics,
        partitions=case.partitions,
        producers=case.streams // case.topics,
        subscriptions=1,
        consumers=case.consumers // case.topics,
    )
    settings = PulsarSettings(
        client=client,
        batching_max_publish_delay_ms=case.delay,
        batching_max_messages=case.most,
        max_pending_messages=50_000,
        max_pending_messages_across_partitions=200_000,
        receiver_queue_size=10_000,
        max_total_receiver_queue_size_across_partitions=100_000,
        subscription_type="Failover",
    )
    context = DriverContext(
        target=TargetAddress(url=where["url"], admin_url=where["admin_url"]),
        settings=settings,
        clock=time.monotonic_ns,
        run=name,
        nonce=7,
        worker=worker,
        topology=topology,
        pool=made_pool(case),
    )
    return driver_class("pulsar", client)(context), context  # type: ignore[call-arg]


def run_case(case: Case, client: str, where: dict[str, Any]) -> dict[str, Any]:
    """Run both roles of a case."""
    name = f"bench-{secrets.token_hex(4)}"
    lead, _ = made_driver(case, client, where, name, "lead")
    lead.prepare()
    try:
        return run_both(__file__, [asdict(case), client, where, name])
    finally:
        lead.close()
        lead.cleanup()


def row(case: Case, client: str, found: dict[str, Any]) -> str:
    """Return one line of the table."""
    out = found["out"]
    got = found["in"]
    cost = [1e6 * each["cpu"] / max(each["messages"], 1) for each in (out, got)]
    lost = out["messages"] - got["messages"]
    return (
        f"{case.name:26} {client:8} {cost[0]:7.2f} + {cost[1]:6.2f} = {sum(cost):7.2f} µs/msg  "
        f" sent {out['messages']} of {out['expected']}, dropped {out['dropped']},"
        f" failed {out['failed']}, lost {lost}; core {out['core']:.2f} + {got['core']:.2f};"
        f" RSS {out['rss']:.0f} + {got['rss']:.0f} MiB; connected in {out['connected']:.1f} +"
        f" {got['connected']:.1f} s; ended {out['late']:.1f}/{got['late']:.1f} s late;"
        f" stall {out['stall']:.0f}/{got['stall']:.0f} ms;"
        f" send delay p99 {out['delay_p99'] / 1e6:.1f} ms;"
        f" {out['applied'].get('batches', 'unknown')}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--admin")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--scale", type=float, default=1.0, help="of every rate")
    parser.add_argument("--case", type=int, nargs="*", default=range(len(CASES)))
    parser.add_argument("--client", nargs="*", default=["native", "library"])
    parser.add_argument("--job", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.job:
        role, given, client, where, name, folder = json.loads(asked.job)
        case = Case(**given)
        return run_role(
            role,
            *made_driver(case, client, where, name, role),
            rate=case.rate,
            seconds=case.seconds,
            folder=Path(folder),
        )
    folder = Path(tempfile.mkdtemp(prefix="bench-pulsar-broker-"))
    broker = None
    where = {"url": asked.url, "admin_url": asked.admin}
    if not asked.url:
        broker = brokers.start(
            brokers.BrokerRequest(kind="pulsar", mode="process", folder=folder),
            lambda line: print(line, file=sys.stderr),
        )
        where = {"url": broker.facts.url, "admin_url": broker.facts.admin_url}
    try:
        for number in asked.case:
            case = replace(CASES[number], rate=CASES[number].rate * asked.scale)
            case = replace(case, seconds=asked.seconds) if asked.seconds else case
            for client in asked.client:
                print(row(case, client, run_case(case, client, where)), flush=True)
    finally:
        if broker is not None:
            broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return None


if __name__ == "__main__":
    main()
