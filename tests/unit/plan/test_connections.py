"""What connections need, and what a machine says to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders.plans import made

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.plan.connections import EACH_SOURCE, Connections, too_many
from pytest_loadtest.plan.plan import beyond
from pytest_loadtest.plan.scaling import OTHER_FILES, Machine
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.schedule.topology import Topology

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile

MACHINE = Machine(cores=64, memory=1 << 40, files=20_000, ports=28_232)


def crowd(subscribers: int, client: str = "native", more: str = "") -> Profile:
    return profiles.loads(
        f"name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\nsubscriptionsPerTopic: {subscribers}\n"
        f"driver: {{name: mqtt, qos: 0, client: {client}}}\nslo: {{loss: 0}}\n{more}",
        "p.yaml",
    )


def of(profile: Profile, workers: int = 1, machine: Machine = MACHINE, here: bool = True) -> Connections:
    topology = Topology(topics=1, partitions=1, producers=1, subscriptions=profile.subscriptions_per_topic, consumers=1)
    return Connections.of(profile, topology, workers, machine, broker_here=here)


def test_each_client_is_a_file_at_both_ends() -> None:
    """Of the worker that has most, and of the broker; native clients come from an address more for every ten thousand of a worker."""
    found = of(crowd(25_000), workers=2)
    assert (found.total, found.busiest) == (25_001, 12_501)
    assert (found.files, found.broker_files) == (12_501 + OTHER_FILES, 25_001 + OTHER_FILES)
    assert found.addresses == 4
    assert of(crowd(EACH_SOURCE - 1)).addresses == 1
    assert found.workers(MACHINE) == 2


def test_elsewhere_there_is_one_address_for_each_range_of_ports() -> None:
    """Nothing is spread there, nor by the library's client."""
    assert of(crowd(1_000_000), here=False).addresses == 36
    assert of(crowd(1_000_000, "library")).addresses == 36


MQTTS, MIXED, FAN_IN = (
    "url: 'mqtts://h:8883'",
    "url: 'mqtt://h:1883', subscriberUrl: 'mqtts://h:8883'",
    "url: 'mqtts://h:8883', subscriberUrl: 'mqtt://h:1883'",
)
SPOKEN = [
    ("url: 'mqtt://h:1883'", 0),
    (MQTTS, 11),
    (MIXED, 10),
    (FAN_IN, 1),
    ("security: {tls: subscribers}", 10),
    ("security: {tls: true}", 11),
]


@pytest.mark.parametrize(("target", "over_tls"), SPOKEN)
def test_tls_takes_memory_of_those_who_speak_it(target: str, over_tls: int) -> None:
    """Ten subscribers and a publisher, in the workers and in a broker beside them, as measured: about 22 KiB more in a client, 15 in mosquitto."""
    profile = crowd(10, more=f"target: {{{target}}}\n")
    assert of(profile, here=False).memory == (11 * 3 + over_tls * 25) << 10
    assert of(profile).memory == (11 * 7 + over_tls * 41) << 10


def test_the_library_takes_more_memory() -> None:
    """26 KiB were measured of each of its clients."""
    assert of(crowd(10, "library"), here=False).memory == 11 * 28 << 10


LIMIT = "files open, a process may have 20,000 (the hard limit, ulimit -Hn)"
PORTS = "30,001 connections from one address want as many ports, this machine has 28,232 (net.ipv4.ip_local_port_range)"
TOLD = [
    (15_000, True),
    (
        25_000,
        True,
        f"a worker would have 25,101 {LIMIT}: 2 workers (-n) would do, or raise it",
        f"the broker would have 25,101 {LIMIT}: raise it, or have the broker elsewhere",
    ),
    (
        30_000,
        False,
        f"a worker would have 30,101 {LIMIT}: 2 workers (-n) would do, or raise it",
        f"{PORTS}: widen it, or use more machines",
    ),
]


@pytest.mark.parametrize(("subscribers", "here", "told"), [(count, here, told) for count, here, *told in TOLD])
def test_what_cannot_be_names_both_numbers(subscribers: int, here: bool, told: list[str]) -> None:
    """What is wanted and what there is, with what would help."""
    assert list(too_many([of(crowd(subscribers), here=here)], MACHINE)) == told


def test_workloads_share_the_files() -> None:
    """Two that would each fit alone."""
    each = of(crowd(15_000))
    assert list(too_many([each], MACHINE)) == []
    assert len(list(too_many([each, each], MACHINE))) == 2
    assert list(too_many([each, each], replace(MACHINE, files=1 << 20))) == []


def test_the_plan_of_a_broadcast() -> None:
    """Deliveries, addresses, files and what leaves the broker; of a scaled one, what the whole would need, in one line."""
    profile = crowd(1_000_000)
    text = "\n".join(plan_table(made(profile, scale=0.01, workers=2, machine=MACHINE), planned_facts(profile), MACHINE))
    assert "×0.01: subscriptions 1000000 → 10000" in text
    assert "as written: 1 000 001 connections from 102 addresses, 1 000 101 open files of the broker" in text
    assert f"512 Mbit/s out of the broker, {made(profile, workers=2, machine=MACHINE).needs.workers} workers" in text
    assert "10.0 k deliveries/s, 5.12 Mbit/s out of the broker" in text
    assert "10 001 from 2 addresses; 5 101 open files of a worker, 10 101 of the broker; a process here may have 20 000" in text
    assert len([reason for reason in beyond([made(profile, workers=2, machine=MACHINE)], MACHINE) if "files open" in reason]) == 2
