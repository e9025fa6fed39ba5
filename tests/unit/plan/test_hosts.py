"""The hosts that carry a plan together: shares, limits, and how many would do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_loadtest.plan.hosts import HostNeeds, HostShare, format_bit_rate, host_overload_reasons, hosts_needed, joint_machine
from pytest_loadtest.plan.needs import Connections, Needs
from pytest_loadtest.plan.scaling import Machine

GIB = 1 << 30
MACHINE = Machine(cores=4, memory=16 * GIB, files=1000, ports=20_000)
BIG = HostShare(name="big", workers=3, of=4, machine=MACHINE, bandwidth=10e9)
SMALL = HostShare(name="small", workers=1, of=4, machine=replace(MACHINE, cores=2), bandwidth=1e9)


def needs(**changes: Any) -> Needs:
    """Needs that both hosts can carry."""
    connections = Connections(total=400, busiest=100, addresses=1, spread=False, broker_here=False, memory=0)
    base = Needs(
        bytes_per_second=100e6, delivered=200e6, connections=connections, memory=8 * GIB, cores=4.0, busiest_worker=0.9, batch=None,
        broker_here=False, disk=0, workers=4, chunks=None,
    )  # fmt: skip
    return replace(base, **changes)


def test_a_host_needs_its_share_of_the_workers() -> None:
    """Three of four workers are three quarters of everything but the files of a worker."""
    need = HostNeeds.of([needs()], BIG.share)
    assert (need.cores, need.memory, need.connections, need.bits_per_second) == (3.0, 6 * GIB, 300, 200e6 * 8 * 0.75)
    assert need.files == HostNeeds.of([needs()], SMALL.share).files


def test_hosts_that_carry_their_shares_have_no_reasons() -> None:
    """None of them is beyond anything."""
    assert list(host_overload_reasons([needs()], [BIG, SMALL])) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cores": 6.0}, ["host big, with 3 of 4 workers, needs about 4.5 cores and has 4"]),
        ({"cores": 9.0}, ["host big, with 3 of 4 workers, needs about 6.8 cores", "host small, with 1 of 4 workers, needs about 2.2 cores"]),
        ({"memory": 30 * GIB}, ["host big, with 3 of 4 workers, needs 22.5 GiB"]),
        ({"delivered": 800e6}, ["host small, with 1 of 4 workers, needs 1.6 Gbit/s and has 1 Gbit/s (bandwidth)"]),
        ({"connections": Connections(total=30_000, busiest=10, addresses=1, spread=False, broker_here=False, memory=0)}, ["needs 22,500 ports"]),
        (
            {"connections": Connections(total=4000, busiest=1000, addresses=1, spread=False, broker_here=False, memory=0)},
            ["host big, with 3 of 4 workers, needs 1,1", "host small, with 1 of 4 workers, needs 1,1"],
        ),
    ],
)  # fmt: skip
def test_each_host_beyond_a_limit_is_named(changes: dict[str, Any], expected: list[str]) -> None:
    """With its need and what it has."""
    reasons = list(host_overload_reasons([needs(**changes)], [BIG, SMALL]))
    assert len(reasons) == len(expected)
    assert all(part in reason for part, reason in zip(expected, reasons, strict=True))


def test_workloads_that_run_together_add_up() -> None:
    """Two that fit alone need not fit together."""
    assert len(list(host_overload_reasons([needs(), needs()], [BIG, SMALL]))) == 1


def test_the_joint_machine_is_full_when_its_tightest_host_is() -> None:
    """4 cores carry three quarters, so 5.3 carry all; 2 cores a quarter, so 8 would."""
    joint = joint_machine([BIG, SMALL])
    assert joint.cores == pytest.approx(4 / 0.75)
    assert joint.files == 1000
    assert list(host_overload_reasons([needs(cores=joint.cores * 0.999)], [BIG, SMALL])) == []
    assert list(host_overload_reasons([needs(cores=joint.cores * 1.001)], [BIG, SMALL])) != []


def test_the_number_of_hosts_follows_the_scarcest_resource() -> None:
    """Bandwidth, or cores where that is unknown."""
    assert hosts_needed([needs(delivered=12.5e9)], BIG) == 10
    assert hosts_needed([needs(cores=9.0, delivered=12.5e9)], replace(BIG, bandwidth=None)) == 3
    assert hosts_needed([needs(cores=0.1, memory=1)], BIG) == 1


@pytest.mark.parametrize(("rate", "text"), [(9.64e9, "9.64 Gbit/s"), (1e12, "1 Tbit/s"), (5e6, "5 Mbit/s"), (12, "12 bit/s")])
def test_rates_have_decimal_units(rate: float, text: str) -> None:
    """As networks are sold."""
    assert format_bit_rate(rate) == text
