"""Plans add up: every message, producer and consumer once, whatever the number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.costs import SHIPPED
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.errors import UsageError
from pytest_loadtest.payloads import Chooser
from pytest_loadtest.plan import Machine, Plan, beyond, make_plan, profile_cost_key, profile_pool
from pytest_loadtest.quantities import HOUR, MINUTE, SECOND
from pytest_loadtest.report.plan import lines

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile

PROFILES = Path(__file__).parents[2] / "profiles"
HERE = Machine(cores=2, memory=16 << 30)
CLUSTER = Machine(cores=1e6, memory=1 << 50)


def made(
    profile: Profile, *, workers: int = 1, machine: Machine = HERE, scale: float | str | None = None, duration_cap: int | None = None
) -> Plan:
    return make_plan(
        profile, profile_pool(profile), workers=workers, cost=SHIPPED[profile_cost_key(profile)], machine=machine, broker_here=True,
        scale=scale, duration_cap=duration_cap,
    )  # fmt: skip


def loopback(
    *, rate: float = 1000, topics: int = 1, producers: int = 1, subscriptions: int = 1, consumers: int = 1, scalable: str = "[]", size: int = 64,
    duration: str = "3s",
) -> Profile:  # fmt: skip
    return profiles.loads(
        f"name: p\ntopics: {topics}\nproducersPerTopic: {producers}\nsubscriptionsPerTopic: {subscriptions}\nconsumerPerSubscription: {consumers}\n"
        f"producerRate: {rate}\nmessageSize: {size}\nwarmupDuration: 1s\ntestDuration: {duration}\ndriver: {{name: loopback}}\nscalable: {scalable}\n"
        "slo: {throughput: 99%}\n",
        "p.yaml",
    )


numbers = st.integers(1, 7)


@given(workers=st.integers(1, 40), topics=numbers, producers=numbers, subscriptions=st.integers(1, 3), consumers=numbers)
def test_everything_has_one_place(workers: int, topics: int, producers: int, subscriptions: int, consumers: int) -> None:
    """Each producer and each consumer is on exactly one worker; none has two more of either than another."""
    plan = made(loopback(topics=topics, producers=producers, subscriptions=subscriptions, consumers=consumers), workers=workers)
    assert len(plan.assignments) == workers
    streams = sorted(spec.stream for a in plan.assignments for spec in a.producers)
    assert streams == list(range(topics * producers))
    placed = sorted((c.index, c.topic.index, c.subscription) for a in plan.assignments for c in a.consumers)
    assert [index for index, _, _ in placed] == list(range(topics * subscriptions * consumers))
    for topic in range(topics):
        for subscription in range(subscriptions):
            assert sum((t, s) == (topic, subscription) for _, t, s in placed) == consumers
    for counts in ([len(a.producers) for a in plan.assignments], [len(a.consumers) for a in plan.assignments]):
        assert max(counts) - min(counts) <= 1


@given(workers=st.integers(1, 40), rate=st.floats(0.5, 1e6), producers=st.integers(1, 50))
def test_messages_add_up_and_do_not_depend_on_workers(workers: int, rate: float, producers: int) -> None:
    """Each stream has the same sequences with one worker and with many, the phases follow one another, and the sums are exact."""
    alone, shared = (made(loopback(rate=rate, producers=producers), workers=n) for n in (1, workers))
    assert (alone.phases, alone.topology, alone.rate) == (shared.phases, shared.topology, shared.rate)
    warmup, measure = shared.phases
    assert (warmup.recorded, measure.recorded) == (False, True)
    assert measure.first == warmup.count
    for phase in shared.phases:
        assert phase.total == phase.pacer.total(phase.duration)
        assert phase.total == pytest.approx(rate * phase.duration / SECOND, abs=1.001, rel=1e-3)


def test_payloads_do_not_depend_on_workers() -> None:
    """What a stream draws is seeded by the profile and the stream's number alone."""
    pool = profile_pool(profiles.load(PROFILES / "prod-2m.yaml"))
    draws = [Chooser(pool, 7, stream).draw(0, 1000) for stream in (0, 0, 1)]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_the_plan_of_prod_2m() -> None:
    """The exact mean of the histogram decides: 25 614 B mean, 64 GB/s, 512 Gbit/s, 230 TB per hour."""
    profile = profiles.load(PROFILES / "prod-2m.yaml")
    plan = made(profile, workers=16)
    text = "\n".join(lines(plan, planned_facts(profile.driver), HERE))
    assert "2.50 M msg/s of 25 614 B mean" in text
    assert "64.04 GB/s = 512.3 Gbit/s, 230.5 TB per hour out; 1 × that in" in text
    assert "10 × 100 partitions" in text
    assert "200 (20 000 partition producers)" in text
    assert "100 (10 000 partition consumers)" in text
    assert [phase.duration for phase in plan.phases] == [5 * MINUTE, HOUR]
    reasons = " ".join(beyond([plan], HERE))
    assert "this machine has 2" in reasons
    assert "workers (-n) would do" in reasons
    assert plan.scale is None


def test_a_machine_that_suffices_is_no_reason() -> None:
    """The gate opens when cores, each worker's core and memory suffice; each that does not is one reason."""
    plan = made(loopback(rate=1000))
    assert beyond([plan], HERE) == ()
    heavy = made(loopback(rate=5_000_000), workers=1, machine=CLUSTER)
    (reason,) = beyond([heavy], CLUSTER)
    assert reason.startswith("a worker would need")
    wanted = int(reason.rpartition(": ")[2].partition(" ")[0].replace(",", ""))
    assert beyond([made(loopback(rate=5_000_000), workers=wanted)], CLUSTER) == ()
    (reason,) = beyond([plan], Machine(cores=2, memory=1))
    assert "full windows and queues need" in reason


@pytest.mark.parametrize("name", ["prod-2m", "soak-24h", "mqtt-telemetry", "mqtt-telemetry-qos0", "mqtt-telemetry-qos2", "smoke"])
def test_auto_fits_this_machine(name: str) -> None:
    """What auto chooses passes the gate, keeps the shape, and says what it changed."""
    profile = profiles.load(PROFILES / f"{name}.yaml")
    plan = made(profile, workers=2, scale="auto")
    assert beyond([plan], HERE) == ()
    assert plan.mean_size == made(profile).mean_size
    assert plan.topology.subscriptions == profile.subscriptions_per_topic
    if plan.scale is not None:
        assert plan.scale.changes["rate"].endswith("msg/s")
        assert 0 < plan.scale.factor < 1


@given(
    factor=st.floats(0.001, 1.0, exclude_max=True), scalable=st.sets(st.sampled_from(["topics", "partitions", "producers", "consumers"]))
)
def test_scale_shrinks_only_what_is_scalable(factor: float, scalable: set[str]) -> None:
    """The rate always; topics and clients where the profile names them, never below one."""
    profile = loopback(topics=40, producers=30, consumers=20, scalable=f"[{', '.join(sorted(scalable))}]")
    plan = made(profile, scale=factor)
    assert plan.rate == pytest.approx(1000 * factor)
    for name, whole in (("topics", 40), ("producers", 30), ("consumers", 20), ("partitions", 1)):
        scaled = getattr(plan.topology, name)
        assert scaled == (max(1, round(whole * factor)) if name in scalable else whole)
        assert (name in (plan.scale.changes if plan.scale else {})) == (scaled != whole)


def test_auto_without_scalable_keeps_every_client() -> None:
    """A profile that names nothing keeps its topology; only the rate shrinks."""
    plan = made(loopback(topics=400, producers=30, rate=1e7), scale="auto")
    assert plan.topology == made(loopback(topics=400, producers=30)).topology
    assert plan.rate < 1e7


def test_a_short_run_is_scaled_too() -> None:
    """--load-duration caps the measured phase and halves into the warm-up; the plan says so, and a longer cap changes nothing."""
    plan = made(loopback(), duration_cap=SECOND)
    assert [phase.duration for phase in plan.phases] == [SECOND // 2, SECOND]
    assert plan.scale is not None
    assert plan.scale.changes == {"measured phase": "3.00 s → 1.00 s"}
    assert made(loopback(), duration_cap=HOUR).scale is None


def test_compact_payloads_have_limits() -> None:
    """An envelope of 16 bytes cannot number 2^32 messages of a stream: said before anything starts."""
    with pytest.raises(UsageError, match="payloads below 32 B"):
        made(loopback(size=20, rate=1e6, duration="24h"))


@pytest.mark.parametrize(("workers", "shown"), [(1, "1: 3p+2c"), (2, "2: 2p+1c, 1p+1c"), (20, "and 4 more")])
def test_workers_line(workers: int, shown: str) -> None:
    """Each worker's producers and consumers, the first sixteen of them."""
    profile = loopback(producers=3, consumers=2)
    text = "\n".join(lines(made(profile, workers=workers), planned_facts(profile.driver), HERE))
    assert shown in text


def test_sizes_that_cannot_be_sent_are_shown() -> None:
    """The middle of 0-20 is smaller than any envelope: the plan says that another size is sent."""
    text = "name: p\nproducerRate: 10\nmessageSizeDistribution: {'0-20': 1, '64-128': 1}\ntestDuration: 1s\ndriver: {name: loopback}\n"
    plan = made(profiles.loads(text, "p.yaml"))
    assert "1 of the payloads have the nearest size" in "\n".join(lines(plan, planned_facts(plan.profile.driver), HERE))
