"""The needs of a plan: connections, buffers of chunks, batches, and limits on connections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders.plans import CLUSTER, HERE, made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.plan.auto import AUTO_LOAD
from pytest_loadtest.plan.needs import (
    EACH_SOURCE,
    Connections,
    chunk_buffers,
    expected_batch,
    missing_for_connections,
)
from pytest_loadtest.plan.plan import overload_reasons
from pytest_loadtest.plan.scaling import OTHER_FILES, Machine
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.schedule.topology import Topology

if TYPE_CHECKING:
    from pytest_loadtest.plan.plan import Plan
    from pytest_loadtest.profile import Profile

MACHINE = Machine(cores=64, memory=1 << 40, files=20_000, ports=28_232)


def broadcast(subscribers: int, client: str = "native", more: str = "") -> Profile:
    return profiles.loads(
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\nsubscriptionsPerTopic:"
        f" {subscribers}\n"
        f"driver: {{name: mqtt, qos: 0, client: {client}}}\nslo: {{loss: 0}}\n{more}",
        "p.yaml",
    )


def connections_of(
    profile: Profile, workers: int = 1, machine: Machine = MACHINE, here: bool = True
) -> Connections:
    topology = Topology(
        topics=1,
        partitions=1,
        producers=1,
        subscriptions=profile.subscriptions_per_topic,
        consumers=1,
    )
    return Connections.of(profile, topology, workers, machine, broker_here=here)


def test_each_client_is_a_file_at_both_ends() -> None:
    """Native clients use one more source address for every ten thousand connections of a worker."""
    found = connections_of(broadcast(25_000), workers=2)
    assert (found.total, found.busiest) == (25_001, 12_501)
    assert (found.files, found.broker_files) == (12_501 + OTHER_FILES, 25_001 + OTHER_FILES)
    assert found.addresses == 4
    assert connections_of(broadcast(EACH_SOURCE - 1)).addresses == 1
    assert found.workers(MACHINE) == 2


def test_connections_to_another_machine_need_an_address_for_each_range_of_ports() -> None:
    """They are not spread over 127.0.0.0/8, with either client."""
    assert connections_of(broadcast(1_000_000), here=False).addresses == 36
    assert connections_of(broadcast(1_000_000, "library"), here=False).addresses == 36


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
def test_only_clients_that_use_tls_take_memory_for_it(target: str, over_tls: int) -> None:
    """Ten subscribers and a publisher.

    Measured were about 22 KiB more in a client and 15 in mosquitto.
    """
    profile = broadcast(10, more=f"target: {{{target}}}\n")
    assert connections_of(profile, here=False).memory == (11 * 3 + over_tls * 25) << 10
    assert connections_of(profile).memory == (11 * 7 + over_tls * 41) << 10


def test_a_client_of_the_library_takes_28_kib() -> None:
    """26 KiB were measured."""
    assert connections_of(broadcast(10, "library"), here=False).memory == 11 * 28 << 10


LIMIT = "files open, a process may have 20,000 (the hard limit, ulimit -Hn)"
PORTS = (
    "30,001 connections from one address need as many ports,"
    " this machine has 28,232 (net.ipv4.ip_local_port_range)"
)
REASONS = [
    (15_000, True),
    (
        25_000,
        True,
        f"a worker would have 25,101 {LIMIT}: 2 workers (-n) are enough, or raise it",
        f"the broker would have 25,101 {LIMIT}: raise it, or have the broker elsewhere",
    ),
    (
        30_000,
        False,
        f"a worker would have 30,101 {LIMIT}: 2 workers (-n) are enough, or raise it",
        f"{PORTS}: widen it, or use more machines",
    ),
]


@pytest.mark.parametrize(
    ("subscribers", "here", "reasons"),
    [(count, here, reasons) for count, here, *reasons in REASONS],
)
def test_a_reason_has_need_limit_and_remedy(
    subscribers: int, here: bool, reasons: list[str]
) -> None:
    assert (
        list(missing_for_connections([connections_of(broadcast(subscribers), here=here)], MACHINE))
        == reasons
    )


def test_source_addresses_with_too_few_ports_are_named() -> None:
    """A worker changes its address after a fixed number of connections.

    This does not depend on the number of ports of an address.
    """
    few = replace(MACHINE, ports=EACH_SOURCE - 1, source_ports=EACH_SOURCE - 1)
    (reason,) = missing_for_connections([connections_of(broadcast(EACH_SOURCE))], few)
    assert reason.startswith(
        "10,000 connections from each source address need as many ports,"
        " this machine has 9,999 for each (net.ipv4."
    )
    assert list(missing_for_connections([connections_of(broadcast(EACH_SOURCE - 2))], few)) == []


def test_workloads_share_the_files_of_a_process() -> None:
    """Each of the two would fit alone."""
    each = connections_of(broadcast(15_000))
    assert list(missing_for_connections([each], MACHINE)) == []
    assert len(list(missing_for_connections([each, each], MACHINE))) == 2
    assert list(missing_for_connections([each, each], replace(MACHINE, files=1 << 20))) == []


def test_the_plan_of_a_broadcast_shows_deliveries_addresses_and_files() -> None:
    """A scaled one shows also the needs of the whole, in one line."""
    profile = broadcast(1_000_000)
    text = "\n".join(
        plan_table(
            made(profile, scale=0.01, workers=2, machine=MACHINE), planned_facts(profile), MACHINE
        )
    )
    assert "×0.01: subscriptions 1000000 → 10000" in text
    assert (
        "as written: 1 000 001 connections from 102 addresses, 1 000 101 open files of the broker"
        in text
    )
    assert (
        f"512 Mbit/s out of the broker, {made(profile, workers=2, machine=MACHINE).needs.workers}"
        " workers" in text
    )
    assert "10.0 k deliveries/s, 5.12 Mbit/s out of the broker" in text
    assert (
        "10 001 from 2 addresses; 5 101 open files of a worker, 10 101 of the broker;"
        " a process here may have 20 000" in text
    )
    assert (
        len(
            [
                reason
                for reason in overload_reasons([made(profile, workers=2, machine=MACHINE)], MACHINE)
                if "files open" in reason
            ]
        )
        == 2
    )


CHUNKED = """\
name: x
producerRate: 1
testDuration: 1s
messageSize: 20MB
driver: {name: pulsar, chunkingEnabled: true, batchingEnabled: false}
"""
MB = 1024**2


@pytest.mark.parametrize(
    ("producers", "limit", "chunks", "incomplete"),
    [(4, "", 5, 3 * 2 * 4), (40, "", 5, 3 * 2 * 10), (4, "1048576", 21, 3 * 2 * 4)],
)
def test_each_producer_and_each_incomplete_message_has_a_buffer(
    producers: int, limit: str, chunks: int, incomplete: int
) -> None:
    """At each partition, a consumer has as many as allowed, or as there are producers."""
    text = CHUNKED + (f"broker: {{settings: {{maxMessageSize: {limit}}}}}\n" if limit else "")
    topology = Topology(
        topics=1, partitions=2, producers=producers, subscriptions=1, consumers=3, name=None
    )
    found = chunk_buffers(profiles.loads(text, "x.yaml"), topology, 20 * MB)
    assert found is not None
    assert (found.chunks, found.producers, found.incomplete) == (chunks, producers, incomplete)
    assert (found.sending, found.receiving) == (producers * 20 * MB, incomplete * 20 * MB)


def test_small_messages_and_profiles_without_chunking_have_no_buffers() -> None:
    topology = Topology(
        topics=1, partitions=1, producers=1, subscriptions=1, consumers=1, name=None
    )
    assert chunk_buffers(profiles.loads(CHUNKED, "x.yaml"), topology, 5 * MB - 1024) is None
    plain = profiles.loads(
        "name: x\nproducerRate: 1\ntestDuration: 1s\nmessageSize: 1KB\ndriver: {name: pulsar}\n",
        "x.yaml",
    )
    assert chunk_buffers(plain, topology, 20 * MB) is None


PROD = Path(__file__).parents[3] / "profiles" / "prod-2m.yaml"
LIMITS = "batchingMaxPublishDelayMs: 2, batchingMaxMessages: 50, batchingMaxBytes: 10000"


def pulsar(driver: str = "", more: str = "") -> profiles.Profile:
    text = (
        f"name: p\nmessageSize: 100\nproducerRate: 1000\ntestDuration: 1s\ndriver: {{name: pulsar,"
        f" {driver}}}\n{more}"
    )
    return profiles.loads(text, "p.yaml")


def cpu(plan: Plan) -> str:
    """Return the line of the plan about the CPU."""
    return next(
        line
        for line in plan_table(plan, planned_facts(plan.profile), HERE)
        if line.startswith("CPU")
    )


def shape(*, topics: int = 2, partitions: int = 1, producers: int = 5) -> Topology:
    return Topology(
        topics=topics, partitions=partitions, producers=producers, subscriptions=1, consumers=1
    )


@pytest.mark.parametrize(("driver", "size", "rate", "batch"), [
    (LIMITS, 100, 60_000, 12.0),  # ten producers of 6 000 msg/s each, 2 ms
    (LIMITS, 100, 4_000, 1.0),
    (LIMITS, 100, 0, 1.0),
    (LIMITS, 100, 1e9, 50.0),
    (LIMITS, 1000, 1e9, 10.0),
    (LIMITS, 20_000, 1e9, 1.0),
    ("batchingMaxMessages: 0", 100, 10e6, 1000.0),
    ("batchingMaxMessages: 0", 128, 100e6, 1024.0),
    ("batchingMaxMessages: 1", 100, 1e9, 1.0),
    ("batchingEnabled: false", 100, 1e9, 1.0),
])  # fmt: skip
def test_a_batch_has_what_a_producer_sends_while_it_waits(
    driver: str, size: float, rate: float, batch: float
) -> None:
    """Within the batch's limits, and at least one message.

    Partitions do not matter without keys.
    """
    for partitions in (1, 7):
        assert expected_batch(
            pulsar(driver), shape(partitions=partitions), size, rate
        ) == pytest.approx(batch)


@pytest.mark.parametrize("keys", ["KEY_ROUND_ROBIN", "RANDOM_NANO"])
def test_keys_spread_a_producers_messages(keys: str) -> None:
    """Over all partitions.

    If keys decide which consumer gets a message, a batch has one message.
    """
    keyed = f"keyDistributor: {keys}\n"
    assert expected_batch(pulsar(LIMITS, keyed), shape(partitions=4), 100, 60_000) == pytest.approx(
        3.0
    )
    assert (
        expected_batch(
            pulsar(f"{LIMITS}, subscriptionType: Key_Shared", keyed), shape(), 100, 60_000
        )
        == 1.0
    )
    assert expected_batch(
        pulsar(f"{LIMITS}, subscriptionType: Key_Shared"), shape(), 100, 60_000
    ) == pytest.approx(12.0)


@pytest.mark.parametrize("driver", ["loopback", "mqtt"])
def test_other_drivers_have_no_batches(driver: str) -> None:
    profile = profiles.loads(
        f"name: p\nmessageSize: 100\nproducerRate: 1\ntestDuration: 1s\ndriver: {{name:"
        f" {driver}}}\n",
        "p.yaml",
    )
    assert expected_batch(profile, shape(), 100, 1e9) == 1.0


def test_the_batches_of_a_run_without_producers_count_as_one_message() -> None:
    """How others fill their batches is unknown."""
    assert expected_batch(pulsar(), shape(producers=0), 100, 0.0) == 1.0


@given(
    rates=st.lists(st.floats(0.001, 1e9), min_size=2, max_size=2),
    size=st.floats(32, 1e6),
    producers=st.integers(1, 1000),
)
def test_more_messages_are_never_fewer_batches(
    rates: list[float], size: float, producers: int
) -> None:
    """Nor smaller batches: ``--load-scale auto`` relies on both."""
    low, high = sorted(rates)
    profile, topology = pulsar(LIMITS), shape(producers=producers)
    small, big = (expected_batch(profile, topology, size, rate) for rate in (low, high))
    assert 1 <= small <= big
    assert low / small <= high / big * (1 + 1e-9)


def test_bytes_limit_the_batches_of_the_production_mix() -> None:
    """Each of 200 producers has 12.5 messages in a millisecond, but 128 KiB are only 5.1."""
    plan, cost = made(profiles.load(PROD), workers=2), shipped_costs()["pulsar-native"]
    assert plan.needs.batch == pytest.approx(131_072 / 25_614, rel=0.001)
    assert plan.needs.cores == pytest.approx(
        cost.cores(2.5e6, 1, plan.mean_size, broker_here=True, batch=plan.needs.batch)
    )
    alone = cost.cores(2.5e6, 1, plan.mean_size, broker_here=True)
    travels_alone = (cost.produce + cost.consume + cost.broker) / 1e9  # s
    assert alone - plan.needs.cores == pytest.approx(
        2.5e6 * travels_alone * cost.shared * (1 - 1 / plan.needs.batch)
    )
    assert cpu(made(profiles.load(PROD), workers=2)).endswith(
        "cores by calibrated cost at about 5.1 messages a batch,"
        " the broker on this machine included; this machine has 2"
    )


def test_the_batches_of_a_scaled_plan_are_those_of_its_own_rate() -> None:
    """At the rate of a small machine, messages are alone in their batches, and cost as much."""
    profile = profiles.load(PROD)
    tenth = made(profile, scale=0.1, machine=CLUSTER)
    assert tenth.needs.batch == pytest.approx(5.1, rel=0.01)  # producers shrink with the rate
    fixed = made(profile.model_copy(update={"scalable": ()}), scale=0.1, machine=CLUSTER)
    assert fixed.needs.batch == pytest.approx(1.25)
    auto = made(profile, workers=2, scale="auto")
    assert auto.needs.batch == 1.0
    assert auto.needs.cores == pytest.approx(AUTO_LOAD * HERE.cores, rel=0.05)
    assert " at about 1 message a batch," in cpu(auto)


def test_auto_counts_on_batches() -> None:
    """Few producers fill their batches: a machine carries many times the rate of many producers."""
    rates = {}
    for producers in (1, 1000):
        profile = pulsar(more=f"producersPerTopic: {producers}\n").model_copy(
            update={"producer_rate": 1e6}
        )
        plan = made(profile, scale="auto", workers=4, machine=Machine(cores=4, memory=1 << 36))
        assert max(plan.needs.cores / 4, plan.needs.busiest_worker) == pytest.approx(
            AUTO_LOAD, rel=0.05
        )
        rates[producers] = plan.rate
    assert rates[1] > 20 * rates[1000]


def test_the_plan_for_the_library_names_no_batch() -> None:
    """Its costs do not depend on it."""
    profile = pulsar("client: library").model_copy(update={"producer_rate": 1e5})
    plan = made(profile)
    assert plan.needs.batch is None
    assert plan.needs.cores == pytest.approx(
        shipped_costs()["pulsar"].cores(1e5, 1, 100, broker_here=True)
    )
    assert "a batch" not in cpu(plan)
