"""Scaled plans: the load that a machine can carry, and the differences from the profile."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders.plans import CLUSTER, loopback, made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.plan.phases import PacedTraffic
from pytest_loadtest.plan.plan import overload_reasons
from pytest_loadtest.plan.scaling import (
    AUTO_BANDWIDTH,
    AUTO_LOAD,
    HANDLES_PER_CORE,
    Machine,
    auto_factor,
    auto_topology,
    durations,
    scaled_topology,
)
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
    factor = auto_factor(
        fan_out, traffic(rate), COST, Machine(cores=cores, memory=1), workers, here, alone
    )
    machine = COST.cores(rate, fan_out, 1000, broker_here=here) / (AUTO_LOAD * cores)
    worker = COST.busiest_worker(rate, fan_out, 1000, workers) / AUTO_LOAD
    assert factor == pytest.approx(min(1.0, 1 / max(machine, worker)), rel=0.05)
    assert factor <= 1.0


def test_auto_leaves_room_for_headers_in_the_busier_direction_of_the_network() -> None:
    """100 Mbit/s of payloads out, or three times that in; messages that nobody receives are still sent."""
    machine = Machine(cores=1000, memory=1, bandwidth=1e9)
    assert [machine.network_load(12.5e6, fan_out) for fan_out in (0, 1, 3)] == pytest.approx(
        [0.125, 0.125, 0.375]
    )
    factor = auto_factor(3, traffic(1e6), COST, machine, 1000, False, alone)  # 1 kB each: 24 Gbit/s
    assert factor == pytest.approx(AUTO_BANDWIDTH / 24, rel=0.05)
    assert replace(machine, bandwidth=None).network_load(1e12, 1) == 0


def test_auto_keeps_the_rate_of_a_run_that_only_consumes() -> None:
    """Others send, at their own rate."""
    assert auto_factor(1, traffic(0.0), COST, Machine(cores=1, memory=1), 1, True, alone) == 1.0


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
        at, sharing = rate * factor, replace(COST, shared=0.99)
        whole = sharing.cores(at, 1, 1000, broker_here=True, batch=batch(at)) / cores
        return max(whole, sharing.busiest_worker(at, 1, 1000, workers, batch=batch(at))) / AUTO_LOAD

    factor = auto_factor(
        1,
        traffic(rate),
        replace(COST, shared=0.99),
        Machine(cores=cores, memory=1),
        workers,
        True,
        batch,
    )
    assert load(factor) <= 1.06
    assert factor == 1.0 or load(min(1.0, factor * 1.06)) >= 1.0


@given(handles=st.integers(1, 40), cores=st.integers(1, 4))
def test_auto_opens_as_many_clients_as_the_machine_should_have(handles: int, cores: int) -> None:
    """Topics shrink by tenths until the clients fit, and only if the profile calls them scalable."""
    profile = profiles.loads(
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\nscalable: [topics]\n",
        "p.yaml",
    )
    wanted = Topology(topics=handles * 10, partitions=1, producers=1, subscriptions=1, consumers=1)
    machine, shares = Machine(cores=cores, memory=1), [0.9**step for step in range(60)]
    shapes = [wanted, *(scaled_topology(wanted, ("topics",), share) for share in shares[1:])]
    fitting = next(shape for shape in shapes if shape.partition_handles <= HANDLES_PER_CORE * cores)
    assert auto_topology(profile, wanted, machine) == fitting
    fixed = profiles.loads(
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\n", "p.yaml"
    )
    assert auto_topology(fixed, wanted, machine) == wanted


def test_a_topology_shrinks_to_one_of_each_at_least() -> None:
    """And the search for a factor ends."""
    profile = profiles.loads(
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\nscalable: [producers]\n",
        "p.yaml",
    )
    wanted = Topology(topics=1000, partitions=1, producers=50, subscriptions=0, consumers=1)
    assert auto_topology(profile, wanted, Machine(cores=1, memory=1)).producers == 1
    assert scaled_topology(wanted, ("producers", "topics"), 1e-9) == Topology(
        topics=1, partitions=1, producers=1, subscriptions=0, consumers=1
    )
    assert (
        scaled_topology(
            Topology(topics=1, partitions=1, producers=0, subscriptions=1, consumers=1),
            ("producers",),
            4.0,
        ).producers
        == 0
    )


@pytest.mark.parametrize(("text", "rate"), [
    ("producerRate: 1000\ntestDuration: 1s", "1 000 msg/s → 500 msg/s"),
    ("producerRate: 1000\nstages: [{duration: 1s, rate: 50}, {duration: 1s, rate: 400}]", "400 msg/s → 200 msg/s"),
    ("producerRate: 10MB/s\ntestDuration: 1s", "10.0 MiB/s → 5.00 MiB/s"),
    ("producerRate: 0\nsearch: {start: 3000, hold: 10s}\nslo: {loss: 0}", "3 000 msg/s → 1 500 msg/s"),
])  # fmt: skip
def test_the_changed_rate_is_the_highest_or_the_first_of_a_search(text: str, rate: str) -> None:
    plan = made(
        profiles.loads(f"name: p\nmessageSize: 64\ndriver: {{name: loopback}}\n{text}\n", "p.yaml"),
        scale=0.5,
        machine=CLUSTER,
    )
    assert plan.scale is not None
    assert plan.scale.factor == 0.5
    assert plan.scale.changes == {"rate": rate}
    assert plan.scale.messages == pytest.approx(0.5)


def test_a_shortened_plan_has_durations_before_and_after_and_the_share_of_messages() -> None:
    plan = made(
        loopback(duration="4s", topics=4, scalable="[topics]"),
        scale=0.5,
        duration_cap=SECOND,
        machine=CLUSTER,
    )
    assert plan.scale is not None
    assert plan.scale.changes == {
        "rate": "1 000 msg/s → 500 msg/s", "topics": "4 → 2", "measured phase": "4.00 s → 1.00 s", "warm-up": "1.00 s → 500 ms",
    }  # fmt: skip
    assert plan.scale.messages == pytest.approx(0.125)
    assert made(loopback(duration="4s"), scale=1.0, duration_cap=4 * SECOND).scale is None


def test_only_a_cap_shortens_durations() -> None:
    """A confirmation to twice the cap, a warm-up to half of it."""
    head = "name: p\nmessageSize: 64\ndriver: {name: loopback}\n"
    search = profiles.loads(
        f"{head}producerRate: 0\nsearch: {{hold: 10s, confirm: 50s, warmup: 8s}}\nslo: {{loss: 0}}\n",
        "p.yaml",
    )
    plain = profiles.loads(
        f"{head}producerRate: 1\nwarmupDuration: 8s\ntestDuration: 10s\n", "p.yaml"
    )
    whole = PacedTraffic(steps=((10 * SECOND, 1.0),), in_bytes=False, mean_size=64.0)
    for cap, hold, confirm, warmup in (
        (None, 10, 50, 8),
        (30, 10, 50, 8),
        (10, 10, 20, 5),
        (4, 4, 8, 2),
    ):
        capped = None if cap is None else cap * SECOND
        seconds = {"hold": (10, hold), "confirm": (50, confirm), "warm-up": (8, warmup)}
        assert durations(search, whole, capped) == {
            name: (asked * SECOND, given * SECOND) for name, (asked, given) in seconds.items()
        }
        seconds = {"measured phase": (10, hold), "warm-up": (8, warmup)}
        assert durations(plain, whole, capped) == {
            name: (asked * SECOND, given * SECOND) for name, (asked, given) in seconds.items()
        }


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


def test_a_broadcast_has_fewer_subscribers_at_the_same_rate() -> None:
    """Its load is its deliveries: rate, topics and producers stay. The plan shows the needs of the whole."""
    plan, whole = (
        made(profiles.loads(CROWD, "p.yaml"), scale=scale, machine=CLUSTER) for scale in (0.1, None)
    )
    assert plan.scale is not None
    assert (plan.scale.factor, plan.scale.changes) == (0.1, {"subscriptions": "4000 → 400"})
    assert (plan.scale.rate, plan.scale.messages) == (1.0, 0.1), (
        "msg/s for each subscriber are as many, deliveries are not"
    )
    assert (plan.rate, plan.topology.topics, plan.topology.all_consumers) == (10, 2, 800)
    assert plan.unscaled == whole.needs
    assert plan.needs.delivered == pytest.approx(whole.needs.delivered / 10)
    assert whole.unscaled is None


@pytest.mark.parametrize(
    ("subscriptions", "consumers", "of_the_rate"), [(63, 1, True), (128, 1, False), (128, 2, True)]
)
def test_a_broadcast_has_at_least_64_subscriptions_of_one_consumer(
    subscriptions: int, consumers: int, of_the_rate: bool
) -> None:
    text = CROWD.replace("4000", str(subscriptions)) + f"consumerPerSubscription: {consumers}\n"
    plan = made(profiles.loads(text, "p.yaml"), scale=0.5, machine=CLUSTER)
    assert plan.scale is not None
    assert ("rate" in plan.scale.changes) == of_the_rate
    assert ("subscriptions" in plan.scale.changes) != of_the_rate


def test_a_scaled_broadcast_keeps_64_subscribers() -> None:
    """Its own metrics stay defined; the rest of the factor is on the rate."""
    plan = made(profiles.loads(CROWD, "p.yaml"), scale=0.0016)
    assert (plan.topology.subscriptions, plan.topology.broadcasts) == (64, True)
    assert plan.rate == pytest.approx(1)
    assert plan.scale is not None
    assert (plan.scale.factor, plan.scale.rate) == (pytest.approx(0.0016), pytest.approx(0.1))


@pytest.mark.parametrize("rate", [1, 100, 10_000])
def test_auto_has_as_many_subscribers_as_the_machine_carries(rate: int) -> None:
    """Within a fifth of the cores and the open files, and one more would not be; of a search at its first rate."""
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
    ("slo", "message"),
    [
        (
            "{window: 3s, throughput: 99%}",
            "profile p: slo: a window of 3.00 s is longer than the 2.00 s that --load-duration leaves to measure: raise --load-duration",
        ),
        (
            "{drift: {throughput: 5%}}",
            "profile p: slo: drift needs 10 s, and --load-duration leaves 2.00 s to measure: raise --load-duration",
        ),
    ],
)
def test_a_duration_without_room_for_a_window_is_an_error(slo: str, message: str) -> None:
    """With a remedy; a shorter window for scaled runs avoids it."""
    text = f"name: p\nmessageSize: 64\nproducerRate: 1000\ntestDuration: 20s\ndriver: {{name: loopback}}\nslo: {slo}\n"
    made(profiles.loads(text, "p.yaml"))
    with pytest.raises(UsageError, match=re.escape(message)):
        made(profiles.loads(text, "p.yaml"), duration_cap=2 * SECOND)
    if "window" in slo:
        made(
            profiles.loads(text + "scaled: {slo: {window: 1s}}\n", "p.yaml"),
            duration_cap=2 * SECOND,
        )
