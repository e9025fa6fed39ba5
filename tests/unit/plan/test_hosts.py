"""The hosts that carry a plan together: shares, limits, and how many would do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from builders.plans import loopback, made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.plan.aggregation import Aggregation
from pytest_loadtest.plan.auto import AUTO_LOAD
from pytest_loadtest.plan.hosts import (
    HostNeeds,
    HostShare,
    clocks_needed,
    host_overload_reasons,
    hosts_needed,
    joint_machine,
    spread_sources,
)
from pytest_loadtest.plan.needs import Connections, Needs
from pytest_loadtest.plan.scaling import AUTO_BANDWIDTH, Machine

GIB = 1 << 30
MACHINE = Machine(cores=4, memory=16 * GIB, files=1000, ports=20_000, bandwidth=10e9)
AMPLE = Machine(cores=1, memory=1 << 50, files=1 << 20, ports=1 << 20)
BIG = HostShare(name="big", workers=3, of=4, machine=MACHINE)
SMALL = HostShare(name="small", workers=1, of=4, machine=replace(MACHINE, cores=2, bandwidth=1e9))


def needs(**changes: Any) -> Needs:
    """Needs that both hosts can carry."""
    connections = Connections(
        total=400, busiest=100, addresses=1, spread=False, broker_here=False, memory=0
    )
    base = Needs(
        bytes_per_second=100e6,
        delivered=200e6,
        connections=connections,
        memory=8 * GIB,
        cores=4.0,
        busiest_worker=0.9,
        batch=None,
        broker_here=False,
        disk=0,
        workers=4,
        chunks=None,
        aggregation=Aggregation(
            parallel=1.0, serial=0.0, controller=GIB, java=GIB, worker=0, tasks=1, disk=0, at_once=0
        ),
    )
    return replace(base, **changes)


def test_a_host_needs_its_share_of_the_workers() -> None:
    """Three of four workers are three quarters of everything but the files of a worker."""
    need = HostNeeds.of([(needs(), BIG.share)], BIG.share)
    assert (need.cores, need.memory, need.connections, need.bits_per_second) == (
        3.0,
        6 * GIB,
        300,
        200e6 * 8 * 0.75,
    )
    assert need.files == HostNeeds.of([(needs(), SMALL.share)], SMALL.share).files


def test_hosts_that_carry_their_shares_have_no_reasons() -> None:
    """None of them is beyond anything."""
    assert list(host_overload_reasons([(needs(), {})], [BIG, SMALL])) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cores": 6.0}, ["host big, with 3 of 4 workers, needs about 4.5 cores and has 4"]),
        ({"cores": 9.0}, ["host big, with 3 of 4 workers, needs about 6.8 cores", "host small, with 1 of 4 workers, needs about 2.2 cores"]),
        ({"memory": 30 * GIB}, ["host big, with 3 of 4 workers, needs 22.5 GiB"]),
        ({"delivered": 800e6}, ["host small, with 1 of 4 workers, needs 1.60 Gbit/s and has 1.00 Gbit/s (bandwidth)"]),
        ({"connections": Connections(total=30_000, busiest=10, addresses=1, spread=False, broker_here=False, memory=0)}, ["needs 22,500 ports for its connections and has 20,000 (28,232 for each source address: net.ipv4.ip_local_port_range, sourceAddresses"]),
        (
            {"connections": Connections(total=4000, busiest=1000, addresses=1, spread=False, broker_here=False, memory=0)},
            ["host big, with 3 of 4 workers, needs 1,1", "host small, with 1 of 4 workers, needs 1,1"],
        ),
    ],
)  # fmt: skip
def test_each_host_beyond_a_limit_is_named(changes: dict[str, Any], expected: list[str]) -> None:
    """With its need and what it has."""
    reasons = list(host_overload_reasons([(needs(**changes), {})], [BIG, SMALL]))
    assert len(reasons) == len(expected)
    assert all(part in reason for part, reason in zip(expected, reasons, strict=True))


def test_workloads_that_run_together_add_up() -> None:
    """Two that fit alone need not fit together."""
    assert len(list(host_overload_reasons([(needs(), {}), (needs(), {})], [BIG, SMALL]))) == 1


def test_a_host_with_whole_topics_needs_their_share() -> None:
    """Its workers have more than equal shares: twice the connections, and so the files."""
    shares = {"big": 0.5, "small": 0.5}
    need = HostNeeds.of([(needs(), 0.5)], SMALL.share)
    assert (need.cores, need.connections, need.files) == (2.0, 200, 2 * 100 + 100)
    assert list(host_overload_reasons([(needs(cores=4.1), {})], [BIG, SMALL])) == []
    (reason,) = host_overload_reasons([(needs(cores=4.1), shares)], [BIG, SMALL])
    assert reason == "host small, with 1 of 4 workers, needs about 2.0 cores and has 2"
    assert joint_machine([BIG, SMALL], shares).cores == 4
    assert joint_machine([BIG, SMALL], {"big": 1.0, "small": 0.0}).cores == 4


@pytest.mark.parametrize(
    ("topics", "hosts", "delayed", "expected"),
    [
        (2, 2, False, ""),
        (1, 1, False, ""),
        (
            1,
            2,
            False,
            (
                "pairConsumers: host is not possible with 1 topic on 2 hosts: write 2 topics or more,"
                " or use fewer hosts"
            ),
        ),
        (
            3,
            4,
            True,
            (
                "pairConsumers: host is not possible with 3 topics on 4 hosts:"
                " write 4 topics or more, or use fewer hosts"
            ),
        ),
        (2, 2, True, "delayed messages are due by the wall clock"),
    ],
)
def test_pairing_that_frees_no_latency_has_a_reason(
    topics: int, hosts: int, delayed: bool, expected: str
) -> None:
    reason = clocks_needed(topics, hosts, delayed=delayed)
    assert expected in reason
    assert bool(reason) is bool(expected)


def test_the_joint_machine_is_full_when_its_tightest_host_is() -> None:
    """4 cores carry three quarters, so 5.3 carry all; 2 cores a quarter, so 8 would.

    1 Gbit/s carries a quarter, so 4 carry all.
    """
    joint = joint_machine([BIG, SMALL], {})
    assert joint.cores == pytest.approx(4 / 0.75)
    assert (joint.files, joint.bandwidth) == (1000, 4e9)
    assert list(host_overload_reasons([(needs(cores=joint.cores * 0.999), {})], [BIG, SMALL])) == []
    assert list(host_overload_reasons([(needs(cores=joint.cores * 1.001), {})], [BIG, SMALL])) != []


@st.composite
def fleets(draw: st.DrawFn) -> list[HostShare]:
    """Hosts of any size; the bandwidth of some is unknown."""
    workers = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    machines = [
        replace(
            AMPLE,
            cores=draw(st.integers(1, 64)),
            bandwidth=draw(st.one_of(st.none(), st.floats(1e7, 1e11))),
        )
        for _ in workers
    ]
    pairs = enumerate(zip(workers, machines, strict=True))
    return [
        HostShare(name=f"h{i}", workers=count, of=sum(workers), machine=machine)
        for i, (count, machine) in pairs
    ]


@given(
    hosts=fleets(), rate=st.floats(1e3, 1e6), size=st.integers(32, 65536), fan_out=st.integers(1, 5)
)
def test_auto_fills_the_tightest_host_and_overloads_none(
    hosts: list[HostShare], rate: float, size: int, fan_out: int
) -> None:
    """To two digits: by cores, by one worker, or by bandwidth in the busier direction."""
    plan = made(
        loopback(rate=rate, size=size, subscriptions=fan_out),
        scale="auto",
        workers=hosts[0].of,
        machine=joint_machine(hosts, {}),
        broker_here=False,
    )
    assert list(host_overload_reasons([(plan.needs, {})], hosts)) == []
    loads = [plan.needs.busiest_worker / AUTO_LOAD]
    for host in hosts:
        need = HostNeeds.of([(plan.needs, host.share)], host.share)
        loads.append(need.cores / host.machine.cores / AUTO_LOAD)
        loads.append(
            0.0
            if host.machine.bandwidth is None
            else need.bits_per_second / host.machine.bandwidth / AUTO_BANDWIDTH
        )
    assert max(loads) <= 1.06
    assert plan.scale is None or max(loads) >= 0.94


@given(hosts=fleets(), subscriptions=st.integers(64, 100_000))
def test_auto_gives_a_broadcast_as_many_subscribers_as_the_network_of_its_hosts_carries(
    hosts: list[HostShare], subscriptions: int
) -> None:
    """One message of 10 kB a second to each of them, which costs little CPU time."""
    text = (
        "name: p\nproducerRate: 1\nmessageSize: 10000\ntestDuration: 3s\nsubscriptionsPerTopic:"
        f" {subscriptions}\ndriver: {{name: mqtt}}\n"
        "slo: {loss: 0}\n"
    )
    plan = made(
        profiles.loads(text, "p.yaml"),
        scale="auto",
        workers=hosts[0].of,
        machine=replace(joint_machine(hosts, {}), cores=1e6),
        broker_here=False,
    )
    needs = [HostNeeds.of([(plan.needs, host.share)], host.share).bits_per_second for host in hosts]
    pairs = zip(needs, hosts, strict=True)
    loads = [
        need / host.machine.bandwidth / AUTO_BANDWIDTH
        for need, host in pairs
        if host.machine.bandwidth is not None
    ]
    assert max(loads, default=0) <= 1
    assert plan.scale is None or max([*loads, plan.needs.busiest_worker / AUTO_LOAD]) >= 0.98


@given(
    counts=st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5)), min_size=1, max_size=4),
    connections=st.integers(0, 1000),
)
def test_the_connections_of_a_host_are_spread_over_its_source_addresses(
    counts: list[tuple[int, int]], connections: int
) -> None:
    """Each worker takes its addresses in turn.

    No address has more than a connection of each worker above its share.

    :param counts: workers and source addresses of each host. :param connections: of each worker.
    """
    hosts = [
        HostShare(
            name=f"h{i}",
            workers=workers,
            of=9,
            machine=AMPLE,
            sources=tuple(f"10.0.{i}.{n}" for n in range(addresses)),
        )
        for i, (workers, addresses) in enumerate(counts)
    ]
    host_of = {f"{host.name}-{n}": host.name for host in hosts for n in range(host.workers)}
    used = spread_sources(hosts, host_of)
    assert used.keys() == host_of.keys()
    for host in hosts:
        own = [used[worker] for worker, name in host_of.items() if name == host.name]
        assert all(sorted(sources) == sorted(host.sources) for sources in own)
        if host.sources:
            assert {sources[0] for sources in own} == set(host.sources[: host.workers])
            number = Counter(
                sources[n % len(sources)] for sources in own for n in range(connections)
            )
            assert (
                max(number.values(), default=0)
                <= connections * host.workers // len(host.sources) + host.workers
            )


def test_a_host_is_not_listed_without_workers_of_its_own() -> None:
    """A worker of a host that the plan does not know has no source addresses."""
    assert spread_sources([BIG], {"w": "other"}) == {"w": ()}


def test_the_number_of_hosts_follows_the_scarcest_resource() -> None:
    """Bandwidth, or cores where that is unknown."""
    assert hosts_needed([needs(delivered=12.5e9)], BIG) == 10
    assert (
        hosts_needed(
            [needs(cores=9.0, delivered=12.5e9)],
            replace(BIG, machine=replace(MACHINE, bandwidth=None)),
        )
        == 3
    )
    assert hosts_needed([needs(cores=0.1, memory=1)], BIG) == 1
