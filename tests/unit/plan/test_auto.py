"""The largest load that a machine can carry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.plans import made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.plan.auto import AUTO_LOAD, HANDLES_PER_CORE, Capacity, auto_scaled
from pytest_loadtest.plan.phases import PacedTraffic
from pytest_loadtest.plan.plan import overload_reasons
from pytest_loadtest.plan.scaling import AUTO_BANDWIDTH, Machine, fewer_connections
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import SECOND

COST = Cost(produce=10_000, consume=5_000, broker=40_000, per_byte=2)


def traffic(rate: float) -> PacedTraffic:
    return PacedTraffic(
        steps=((SECOND, rate / 2), (SECOND, rate)), in_bytes=False, mean_size=1000.0
    )


def alone(rate: float) -> float:
    """Return the batch of messages that are alone in theirs."""
    return 1.0


def capacity(machine: Machine, workers: int = 1, *, here: bool = True) -> Capacity:
    return Capacity(cost=COST, machine=machine, workers=workers, broker_here=here)


@given(
    rate=st.floats(1, 1e8),
    cores=st.integers(1, 64),
    workers=st.integers(1, 64),
    fan_out=st.integers(0, 5),
    here=st.booleans(),
)
def test_auto_loads_a_fifth_of_the_machine_and_of_each_worker(
    rate: float, cores: int, workers: int, fan_out: int, here: bool
) -> None:
    """At the highest rate, to two digits, and never more than the profile has."""
    small = capacity(Machine(cores=cores, memory=1), workers, here=here)
    factor = small.rate_factor(rate, fan_out, 1000, alone)
    machine = COST.cores(rate, fan_out, 1000, broker_here=here) / (AUTO_LOAD * cores)
    worker = COST.busiest_worker(rate, fan_out, 1000, workers) / AUTO_LOAD
    assert factor == pytest.approx(min(1.0, 1 / max(machine, worker)), rel=0.05)
    assert factor <= 1.0


def test_auto_leaves_room_for_headers_in_the_busier_direction_of_the_network() -> None:
    """100 Mbit/s of payloads out, or three times that in.

    Messages that nobody receives are still sent.
    """
    machine = Machine(cores=1000, memory=1, bandwidth=1e9)
    assert [machine.network_load(12.5e6, fan_out) for fan_out in (0, 1, 3)] == pytest.approx(
        [0.125, 0.125, 0.375]
    )
    slow_network = capacity(machine, workers=1000, here=False)
    factor = slow_network.rate_factor(1e6, 3, 1000, alone)  # 1 kB each: 24 Gbit/s
    assert factor == pytest.approx(AUTO_BANDWIDTH / 24, rel=0.05)
    assert replace(machine, bandwidth=None).network_load(1e12, 1) == 0


def test_auto_counts_all_outputs_of_a_service() -> None:
    """Each of them is one more message that the broker and the consumers handle."""
    document = """\
name: p
producerRate: 100000
messageSize: 100
testDuration: 2s
route: {input: in, output: out, outputs: %d}
driver: {name: mqtt}
"""
    small = capacity(Machine(cores=2, memory=1))
    one = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1)
    factors = []
    for topology in (one, replace(one, outputs=5)):
        profile = profiles.loads(document % topology.outputs, "p.yaml")
        factors.append(auto_scaled(profile, topology, traffic(1e5), small)[1])
    assert factors[1] == pytest.approx(small.rate_factor(1e5, 5, 1000, alone), rel=0.05)
    assert factors[1] < factors[0]


@pytest.mark.parametrize("rate", ["5000000", "5GB/s"])
def test_auto_scales_a_search_by_its_first_rate(rate: str) -> None:
    """As a profile that has this rate: the machine could not carry the first step."""
    head = "name: p\nmessageSize: 1024\ndriver: {name: loopback}\nslo: {loss: 0}\n"
    searched = profiles.loads(f"{head}search: {{start: {rate}}}\n", "p.yaml")
    plain = profiles.loads(f"{head}producerRate: {rate}\ntestDuration: 30s\n", "p.yaml")
    plan = made(searched, scale="auto")
    assert overload_reasons([plan], Machine(cores=2, memory=1 << 34)) == ()
    assert plan.rate == made(plain, scale="auto").rate


def test_auto_keeps_the_rate_of_a_run_that_only_consumes() -> None:
    """Others send, at their own rate."""
    assert capacity(Machine(cores=1, memory=1)).rate_factor(0.0, 1, 1000, alone) == 1.0


@given(
    rate=st.floats(1, 1e9),
    cores=st.integers(1, 64),
    workers=st.integers(1, 64),
    each=st.floats(1, 1e7),
    most=st.floats(1, 1e4),
)
def test_auto_counts_the_batches_of_the_rate_that_it_chooses(
    rate: float, cores: int, workers: int, each: float, most: float
) -> None:
    """The load is within a fifth, to two digits, and a higher one would not be.

    :param each: msg/s from which on batches have more than a message.
    """

    def batch(rate: float) -> float:
        return max(1.0, min(rate / each, most))

    def load(factor: float) -> float:
        at = rate * factor
        sharing = replace(COST, shared=0.99)
        whole = sharing.cores(at, 1, 1000, broker_here=True, batch=batch(at)) / cores
        return max(whole, sharing.busiest_worker(at, 1, 1000, workers, batch=batch(at))) / AUTO_LOAD

    batching = replace(
        capacity(Machine(cores=cores, memory=1), workers), cost=replace(COST, shared=0.99)
    )
    factor = batching.rate_factor(rate, 1, 1000, batch)
    assert load(factor) <= 1.06
    assert factor == 1.0 or load(min(1.0, factor * 1.06)) >= 1.0


@given(handles=st.integers(1, 40), cores=st.integers(1, 4))
def test_auto_opens_as_many_clients_as_the_machine_should_have(handles: int, cores: int) -> None:
    """The most topics that fit, and only if the profile calls them scalable."""
    profile = profiles.loads(
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\nscalable: [topics]\n",
        "p.yaml",
    )
    wanted = Topology(topics=handles * 10, partitions=1, producers=1, subscriptions=1, consumers=1)
    small = capacity(Machine(cores=cores, memory=1))
    most = HANDLES_PER_CORE * cores // 2
    topology, _ = auto_scaled(profile, wanted, traffic(1.0), small)
    assert topology == replace(wanted, topics=min(wanted.topics, most))
    fixed = profiles.loads(
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\n", "p.yaml"
    )
    assert auto_scaled(fixed, wanted, traffic(1.0), small)[0] == wanted


CROWD = """\
name: p
producerRate: 10
messageSize: 64
testDuration: 2s
subscriptionsPerTopic: 4000
topics: 2
scalable: [topics]
driver: {name: mqtt, qos: 0}
slo: {loss: 0}
"""


@pytest.mark.parametrize("rate", [1, 100, 10_000])
def test_auto_has_as_many_subscribers_as_the_machine_carries(rate: int) -> None:
    """Within a fifth of the cores and the open files, and one more would not be.

    Of a search at its first rate.
    """
    texts = [CROWD.replace("producerRate: 10", f"producerRate: {rate}")]
    if rate < 10_000:  # of a search, the rate is its own
        texts.append(
            CROWD.replace("producerRate: 10", f"search: {{start: {rate}}}\nproducerRate: 0")
        )
    for text in texts:
        profile = profiles.loads(
            text.replace("testDuration: 2s\n", "") if "search" in text else text, "p.yaml"
        )
        machine = Machine(cores=2, memory=1 << 36, files=3000)
        plan = made(profile, scale="auto", machine=machine)
        assert overload_reasons([plan], machine) == ()
        if plan.topology.subscriptions > 64:
            assert plan.rate == rate
        more = made(profile, scale=(plan.topology.subscriptions + 1) / 4000, machine=machine)
        share = max(more.needs.cores / machine.cores, more.needs.busiest_worker)
        assert (
            share > AUTO_LOAD
            or more.needs.connections.broker_files > machine.files
            or plan.topology.subscriptions == 64
        )


@pytest.mark.parametrize(("workers", "subscriptions"), [(1, 19_898), (4, 28_230)])
def test_auto_has_no_more_subscribers_than_one_address_has_ports(
    workers: int, subscriptions: int
) -> None:
    """For a broker elsewhere all workers share one source address."""
    text = (
        CROWD.replace("4000", "90000")
        .replace("topics: 2", "topics: 1")
        .replace("producerRate: 10", "producerRate: 0.01")
    )
    machine = Machine(cores=64, memory=1 << 36, files=20_000, ports=28_232)
    plan = made(
        profiles.loads(text.replace("2s", "500s"), "p.yaml"),
        scale="auto",
        machine=machine,
        workers=workers,
        broker_here=False,
    )
    assert overload_reasons([plan], machine) == ()
    assert plan.topology.subscriptions == pytest.approx(subscriptions, abs=2)


@pytest.mark.parametrize(
    ("here", "workers", "most"), [(True, 4, 900), (False, 4, 2000), (False, 2, 1800)]
)
def test_auto_takes_what_files_and_ports_allow(here: bool, workers: int, most: int) -> None:
    """A broker on this machine is one process.

    On another machine all workers share one source address.
    """
    only = profiles.loads(
        "name: a\nmessages: 0\nproducersPerTopic: 10\nsubscriptionsPerTopic: 0\ntestDuration: 5s\n"
        "driver: {name: mqtt, client: native}\nslo: {connectLatency: {p50: 1s}}\n",
        "p.yaml",
    )
    machine = Machine(cores=2, memory=1 << 34, files=1000, ports=2000)
    wanted = Topology(topics=1, partitions=1, producers=10_000, subscriptions=0, consumers=1)
    small = capacity(machine, workers, here=here)
    topology, _ = auto_scaled(only, wanted, traffic(0.0), small)
    assert topology.clients == most
    few = fewer_connections(wanted, 0.001)
    assert auto_scaled(only, few, traffic(0.0), small) == (few, 1.0)
