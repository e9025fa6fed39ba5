"""What a plan says of messages in chunks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders.plans import CLUSTER, HERE, made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.plan.chunking import chunk_buffers, expected_batch
from pytest_loadtest.plan.scaling import AUTO_LOAD, Machine
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.schedule.topology import Topology

if TYPE_CHECKING:
    from pytest_loadtest.plan.plan import Plan


TEXT = """\
name: x
producerRate: 1
testDuration: 1s
messageSize: 20MB
driver: {name: pulsar, chunkingEnabled: true, batchingEnabled: false}
"""
MB = 1024**2


@pytest.mark.parametrize(
    ("producers", "limit", "chunks", "incomplete"), [(4, "", 5, 3 * 2 * 4), (40, "", 5, 3 * 2 * 10), (4, "1048576", 21, 3 * 2 * 4)]
)
def test_buffers(producers: int, limit: str, chunks: int, incomplete: int) -> None:
    """A message for each producer; for each consumer at each partition as many as may be incomplete, or as there are producers."""
    text = TEXT + (f"broker: {{settings: {{maxMessageSize: {limit}}}}}\n" if limit else "")
    topology = Topology(topics=1, partitions=2, producers=producers, subscriptions=1, consumers=3, name=None)
    found = chunk_buffers(profiles.loads(text, "x.yaml"), topology, 20 * MB)
    assert found is not None
    assert (found.chunks, found.producers, found.incomplete) == (chunks, producers, incomplete)
    assert (found.sending, found.receiving) == (producers * 20 * MB, incomplete * 20 * MB)


def test_no_chunks() -> None:
    """Where messages are small enough, or chunks were not asked for."""
    topology = Topology(topics=1, partitions=1, producers=1, subscriptions=1, consumers=1, name=None)
    assert chunk_buffers(profiles.loads(TEXT, "x.yaml"), topology, 5 * MB - 1024) is None
    plain = profiles.loads("name: x\nproducerRate: 1\ntestDuration: 1s\nmessageSize: 1KB\ndriver: {name: pulsar}\n", "x.yaml")
    assert chunk_buffers(plain, topology, 20 * MB) is None


PROD = Path(__file__).parents[3] / "profiles" / "prod-2m.yaml"
LIMITS = "batchingMaxPublishDelayMs: 2, batchingMaxMessages: 50, batchingMaxBytes: 10000"


def pulsar(driver: str = "", more: str = "") -> profiles.Profile:
    text = f"name: p\nmessageSize: 100\nproducerRate: 1000\ntestDuration: 1s\ndriver: {{name: pulsar, {driver}}}\n{more}"
    return profiles.loads(text, "p.yaml")


def cpu(plan: Plan) -> str:
    """What the plan says of the CPU, to people."""
    return next(line for line in plan_table(plan, planned_facts(plan.profile), HERE) if line.startswith("CPU"))


def shape(*, topics: int = 2, partitions: int = 1, producers: int = 5) -> Topology:
    return Topology(topics=topics, partitions=partitions, producers=producers, subscriptions=1, consumers=1)


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
def test_what_a_producer_sends_while_a_batch_waits(driver: str, size: float, rate: float, batch: float) -> None:
    """Within the batch's limits, and at least one message; none wait where there are no batches. Partitions do not matter without keys."""
    for partitions in (1, 7):
        assert expected_batch(pulsar(driver), shape(partitions=partitions), size, rate) == pytest.approx(batch)


@pytest.mark.parametrize("keys", ["KEY_ROUND_ROBIN", "RANDOM_NANO"])
def test_keys_spread_a_producers_messages(keys: str) -> None:
    """Over all partitions; and where keys decide who gets a message, no batch has two of them."""
    keyed = f"keyDistributor: {keys}\n"
    assert expected_batch(pulsar(LIMITS, keyed), shape(partitions=4), 100, 60_000) == pytest.approx(3.0)
    assert expected_batch(pulsar(f"{LIMITS}, subscriptionType: Key_Shared", keyed), shape(), 100, 60_000) == 1.0
    assert expected_batch(pulsar(f"{LIMITS}, subscriptionType: Key_Shared"), shape(), 100, 60_000) == pytest.approx(12.0)


@pytest.mark.parametrize("driver", ["loopback", "mqtt"])
def test_other_drivers_have_no_batches(driver: str) -> None:
    """A message is a message."""
    profile = profiles.loads(f"name: p\nmessageSize: 100\nproducerRate: 1\ntestDuration: 1s\ndriver: {{name: {driver}}}\n", "p.yaml")
    assert expected_batch(profile, shape(), 100, 1e9) == 1.0


def test_nobody_sends_nothing() -> None:
    """A run that only consumes does not know how others fill their batches."""
    assert expected_batch(pulsar(), shape(producers=0), 100, 0.0) == 1.0


@given(rates=st.lists(st.floats(0.001, 1e9), min_size=2, max_size=2), size=st.floats(32, 1e6), producers=st.integers(1, 1000))
def test_more_messages_are_never_fewer_batches(rates: list[float], size: float, producers: int) -> None:
    """Nor smaller ones: what ``--load-scale auto`` relies on."""
    low, high = sorted(rates)
    profile, topology = pulsar(LIMITS), shape(producers=producers)
    small, big = (expected_batch(profile, topology, size, rate) for rate in (low, high))
    assert 1 <= small <= big
    assert low / small <= high / big * (1 + 1e-9)


def test_the_production_mix() -> None:
    """Each of 200 producers has 12.5 messages in a millisecond, but only 5.1 of its mean size are 128 KiB."""
    plan, cost = made(profiles.load(PROD), workers=2), shipped_costs()["pulsar-native"]
    assert plan.needs.batch == pytest.approx(131_072 / 25_614, rel=0.001)
    assert plan.needs.cores == pytest.approx(cost.cores(2.5e6, 1, plan.mean_size, broker_here=True, batch=plan.needs.batch))
    alone = cost.cores(2.5e6, 1, plan.mean_size, broker_here=True)
    travels_alone = (cost.produce + cost.consume + cost.broker) / 1e9  # s
    assert alone - plan.needs.cores == pytest.approx(2.5e6 * travels_alone * cost.shared * (1 - 1 / plan.needs.batch))
    assert cpu(made(profiles.load(PROD), workers=2)).endswith(
        "cores by calibrated cost at about 5.1 messages a batch, the broker on this machine included; this machine has 2"
    )


def test_the_production_mix_scaled() -> None:
    """By a factor, what is left of each producer's rate; what a small machine carries has messages that travel alone, and costs so."""
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
    """Few producers fill theirs, so one machine carries many times what it carries of many; of either as much as its cores are for."""
    rates = {}
    for producers in (1, 1000):
        profile = pulsar(more=f"producersPerTopic: {producers}\n").model_copy(update={"producer_rate": 1e6})
        plan = made(profile, scale="auto", workers=4, machine=Machine(cores=4, memory=1 << 36))
        assert max(plan.needs.cores / 4, plan.needs.busiest_worker) == pytest.approx(AUTO_LOAD, rel=0.05)
        rates[producers] = plan.rate
    assert rates[1] > 20 * rates[1000]


def test_the_library_costs_the_same_in_any_batch() -> None:
    """So its plan does not name one."""
    profile = pulsar("client: library").model_copy(update={"producer_rate": 1e5})
    plan = made(profile)
    assert plan.needs.batch is None
    assert plan.needs.cores == pytest.approx(shipped_costs()["pulsar"].cores(1e5, 1, 100, broker_here=True))
    assert "a batch" not in cpu(plan)
