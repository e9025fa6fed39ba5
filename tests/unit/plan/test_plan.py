"""Plans add up: every message, producer and consumer once, whatever the number of workers."""

from __future__ import annotations

import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders.pacing import share
from builders.plans import CLUSTER, HERE, loopback, made
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile as profiles
from pytest_loadtest.drivers import planned_facts
from pytest_loadtest.drivers.mqtt.kind import ARTEMIS
from pytest_loadtest.errors import UsageError
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.message.payloads import PayloadChooser
from pytest_loadtest.plan import needs as needs_module
from pytest_loadtest.plan.plan import overload_reasons, profile_pool
from pytest_loadtest.plan.scaling import Machine, profile_cost, profile_cost_key
from pytest_loadtest.report.plan import plan_table
from pytest_loadtest.schedule.changes import CHANGE_IN
from pytest_loadtest.schedule.topology import assign
from pytest_loadtest.values.quantities import HOUR, MINUTE, SECOND

PROFILES = Path(__file__).parents[3] / "profiles"
numbers = st.integers(1, 7)


@given(
    workers=st.integers(1, 40),
    topics=numbers,
    producers=numbers,
    subscriptions=st.integers(1, 3),
    consumers=numbers,
)
def test_every_producer_and_consumer_is_on_one_worker(
    workers: int, topics: int, producers: int, subscriptions: int, consumers: int
) -> None:
    """No worker has two more of either than another."""
    plan = made(
        loopback(
            topics=topics, producers=producers, subscriptions=subscriptions, consumers=consumers
        ),
        workers=workers,
    )
    assert len(plan.assignments) == workers
    streams = sorted(stream for a in plan.assignments for stream in a.streams)
    assert streams == list(range(topics * producers))
    placed = sorted(consumer for a in plan.assignments for consumer in a.consumers)
    assert placed == list(range(topics * subscriptions * consumers))
    groups = [
        (plan.topology.topic_of_consumer(c), plan.topology.subscription_of_consumer(c))
        for c in placed
    ]
    for topic in range(topics):
        assert (
            sum(plan.topology.topic_of_stream(stream) == topic for stream in streams) == producers
        )
        for subscription in range(subscriptions):
            assert groups.count((topic, subscription)) == consumers
    for counts in (
        [len(a.streams) for a in plan.assignments],
        [len(a.consumers) for a in plan.assignments],
    ):
        assert max(counts) - min(counts) <= 1


PAIRED = (
    "name: p\nproducerRate: 1000\nmessageSize: 64\ntestDuration: 3s\ndriver: {name: loopback}\n"
)


@given(
    topics=st.integers(1, 12),
    producers=numbers,
    hosts=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
)
def test_pairing_moves_streams_between_workers_and_changes_nothing_else(
    topics: int, producers: int, hosts: list[str]
) -> None:
    text = PAIRED + f"topics: {topics}\nproducersPerTopic: {producers}\n"
    plain, paired = (
        made(profiles.loads(text + more, "p.yaml"), workers=len(hosts), hosts=hosts)
        for more in ("", "pairConsumers: host\n")
    )
    assert (plain.phases, plain.topology, plain.rate, plain.needs) == (
        paired.phases,
        paired.topology,
        paired.rate,
        paired.needs,
    )
    assert plain.assignments == assign(plain.topology, len(hosts))
    alone, few = len(set(hosts)) == 1, topics < len(set(hosts))
    if alone or few:
        assert paired.assignments == plain.assignments
    assert paired.within_hosts is (
        alone or not few or (paired.placement is not None and paired.placement.complete)
    )
    assert bool(paired.host_shares) is not (alone or few)
    assert sum(paired.host_shares.values()) == pytest.approx(0 if alone or few else 1)
    assert ("withinHosts" in paired.document) is not alone


def test_the_share_of_a_host_is_that_of_its_topics_rate() -> None:
    """Of eight messages the first topic has four, and a host of its own."""
    profile = profiles.loads(
        PAIRED + "pairConsumers: host\ntopics: 3\nskew: {weights: [4, 1, 3]}\n", "p.yaml"
    )
    assert made(profile, workers=2, hosts=["a", "b"]).host_shares == {"a": 7 / 8, "b": 1 / 8}


def test_delayed_messages_need_the_relation_of_clocks_in_any_case() -> None:
    """They are due by the wall clock."""
    delayed = profiles.loads(
        PAIRED.replace("loopback", "pulsar, subscriptionType: Shared")
        + "pairConsumers: host\ntopics: 2\ndeliverAfter: 1s\n",
        "p.yaml",
    )
    plan = made(delayed, workers=2, hosts=["a", "b"])
    assert plan.placement == (1.0, True)
    assert not plan.within_hosts


@given(workers=st.integers(1, 40), rate=st.floats(0.5, 1e6), producers=st.integers(1, 50))
def test_messages_add_up_and_do_not_depend_on_workers(
    workers: int, rate: float, producers: int
) -> None:
    """Sequences are the same with any number of workers, and phases follow one another."""
    alone, shared = (
        made(loopback(rate=rate, producers=producers), workers=n) for n in (1, workers)
    )
    assert (alone.phases, alone.topology, alone.rate) == (
        shared.phases,
        shared.topology,
        shared.rate,
    )
    warmup, measure = shared.phases
    assert (warmup.recorded, measure.recorded) == (False, True)
    assert measure.first.tolist() == [
        share(warmup.pacer, warmup.total, stream) for stream in range(producers)
    ]
    assert warmup.first.tolist() == [0] * producers
    for phase in shared.phases:
        assert (
            (phase.ends.column() - phase.first).sum()
            == phase.ends.total - phase.before.total
            == phase.total
        )
        assert phase.total == phase.pacer.total(phase.duration)
        assert phase.total == pytest.approx(rate * phase.duration / SECOND, abs=1.001, rel=1e-3)


def test_payloads_do_not_depend_on_workers() -> None:
    """The seed is that of the profile and the number of the stream."""
    pool = profile_pool(profiles.load(PROFILES / "prod-2m.yaml"))
    seq = np.arange(1000)
    draws = [
        PayloadChooser(pool, 7, streams).draw(np.full(1000, i), seq)
        for streams, i in ((range(1), 0), (range(0, 8, 4), 0), (range(4), 1))
    ]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_prod_2m_needs_64_gb_a_second() -> None:
    """By the exact mean of its histogram: 25 614 B, 512 Gbit/s, 230 TB per hour."""
    profile = profiles.load(PROFILES / "prod-2m.yaml")
    plan = made(profile, workers=16)
    text = "\n".join(plan_table(plan, planned_facts(profile), HERE))
    assert "2.50 M msg/s of 25 614 B mean" in text
    assert "64.04 GB/s = 512.3 Gbit/s, 230.5 TB per hour out; 1 × that in" in text
    assert "10 × 100 partitions" in text
    assert "200 (20 000 partition producers)" in text
    assert "100 (10 000 partition consumers)" in text
    assert [phase.duration for phase in plan.phases] == [5 * MINUTE, HOUR]
    reasons = " ".join(overload_reasons([plan], HERE))
    assert "this machine has 2" in reasons
    assert "workers (-n) are enough" in reasons
    assert plan.scale is None


def test_cores_worker_and_memory_are_a_reason_each() -> None:
    plan = made(loopback(rate=1000))
    assert overload_reasons([plan], HERE) == ()
    heavy = made(loopback(rate=5_000_000), workers=1, machine=CLUSTER)
    (reason,) = overload_reasons([heavy], CLUSTER)
    assert reason.startswith("a worker would need")
    wanted = int(reason.rpartition(": ")[2].partition(" ")[0].replace(",", ""))
    assert overload_reasons([made(loopback(rate=5_000_000), workers=wanted)], CLUSTER) == ()
    (reason,) = overload_reasons([plan], Machine(cores=2, memory=1))
    assert "full windows and queues need" in reason


@pytest.mark.parametrize(
    "name",
    [
        "prod-2m",
        "soak-24h",
        "mqtt-telemetry",
        "mqtt-telemetry-qos0",
        "mqtt-telemetry-qos2",
        "smoke",
    ],
)
def test_auto_fits_this_machine(name: str) -> None:
    """The plan keeps its shape and has the changes."""
    profile = profiles.load(PROFILES / f"{name}.yaml")
    plan = made(profile, workers=2, scale="auto")
    assert overload_reasons([plan], HERE) == ()
    assert plan.mean_size == made(profile).mean_size
    assert plan.topology.subscriptions == profile.subscriptions_per_topic
    if plan.scale is not None:
        assert plan.scale.changes["rate"].endswith("msg/s")
        assert 0 < plan.scale.factor < 1


@given(
    factor=st.floats(0.001, 1.0, exclude_max=True),
    scalable=st.sets(st.sampled_from(["topics", "partitions", "producers", "consumers"])),
)
def test_scale_shrinks_only_what_is_scalable(factor: float, scalable: set[str]) -> None:
    """The rate always; topics and clients only if the profile lists them, and never below one."""
    profile = loopback(
        topics=40, producers=30, consumers=20, scalable=f"[{', '.join(sorted(scalable))}]"
    )
    plan = made(profile, scale=factor)
    assert plan.rate == pytest.approx(1000 * factor)
    for name, whole in (("topics", 40), ("producers", 30), ("consumers", 20), ("partitions", 1)):
        scaled = getattr(plan.topology, name)
        assert scaled == (max(1, round(whole * factor)) if name in scalable else whole)
        assert (name in (plan.scale.changes if plan.scale else {})) == (scaled != whole)


def test_auto_without_scalable_keeps_every_client() -> None:
    """Only the rate shrinks."""
    plan = made(loopback(topics=400, producers=30, rate=1e7), scale="auto")
    assert plan.topology == made(loopback(topics=400, producers=30)).topology
    assert plan.rate < 1e7


def test_a_short_run_is_scaled_too() -> None:
    """``--load-duration`` caps the measured phase, and the warm-up at half of it.

    A longer cap changes nothing.
    """
    plan = made(loopback(), duration_cap=SECOND)
    assert [phase.duration for phase in plan.phases] == [SECOND // 2, SECOND]
    assert plan.scale is not None
    assert plan.scale.changes == {"measured phase": "3.00 s → 1.00 s", "warm-up": "1.00 s → 500 ms"}
    assert made(loopback(), duration_cap=HOUR).scale is None


def test_more_messages_than_a_compact_envelope_can_number_are_an_error() -> None:
    """Before anything is started."""
    with pytest.raises(UsageError, match="payloads below 32 B"):
        made(loopback(size=20, rate=1e6, duration="24h"))


@pytest.mark.parametrize(
    ("workers", "shown"), [(1, "1: 3p+2c"), (2, "2: 2p+1c, 1p+1c"), (20, "and 4 more")]
)
def test_the_plan_shows_the_clients_of_the_first_sixteen_workers(workers: int, shown: str) -> None:
    profile = loopback(producers=3, consumers=2)
    text = "\n".join(plan_table(made(profile, workers=workers), planned_facts(profile), HERE))
    assert shown in text


def test_sizes_that_cannot_be_sent_are_shown() -> None:
    """The middle of 0-20 is smaller than any envelope, so another size is sent."""
    text = (
        "name: p\nproducerRate: 10\nmessageSizeDistribution: {'0-20': 1, '64-128':"
        " 1}\ntestDuration: 1s\ndriver: {name: loopback}\n"
    )
    plan = made(profiles.loads(text, "p.yaml"))
    assert "1 of the payloads have the nearest size" in "\n".join(
        plan_table(plan, planned_facts(plan.profile), HERE)
    )


LARGE = [
    pytest.param({"subscriptions": 1_000_000}, id="a million subscribers"),
    pytest.param({"topics": 10_000_000}, id="ten million topics"),
    pytest.param({"topics": 20_000_000, "rate": 1e8}, id="the most that can be"),
]


@pytest.mark.parametrize("how", LARGE)
def test_the_size_of_a_plan_does_not_depend_on_its_clients(how: dict[str, int]) -> None:
    """It is made and shown in a few MB, and a worker gets a few numbers."""
    profile = loopback(**how)
    small = made(loopback(), workers=16)
    tracemalloc.start()
    try:
        plan = made(profile, workers=16)
        shown = plan_table(plan, planned_facts(profile), HERE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert f"{plan.topology.all_consumers} (" in "\n".join(shown)
    assert len(pickle.dumps(plan)) < 2 * len(pickle.dumps(small))
    assert peak < 50 << 20


def test_a_scale_beyond_the_limits_is_an_error_about_the_option() -> None:
    """The profile itself is within the limits."""
    with pytest.raises(
        UsageError,
        match=r"scaled to 40,000,000 streams, at most 20,000,000 are possible:"
        r" use a smaller --load-scale",
    ):
        made(loopback(topics=10_000_000, scalable="[topics]"), scale=4.0)


@pytest.mark.parametrize(
    "lines",
    ["testDuration: 2s", "stages: [{duration: 1s}, {duration: 1s, consumerPerSubscription: 1}]"],
)
def test_a_run_that_only_consumes_has_a_plan(lines: str) -> None:
    """With stages, which change its consumers."""
    text = (
        f"name: p\ntopic: t\nproducersPerTopic: 0\nconsumerPerSubscription: 2\ndriver: {{name:"
        f" loopback}}\n{lines}\n"
    )
    plan = made(profiles.loads(text, "p.yaml"), duration_cap=SECOND)
    assert (plan.rate, plan.measure.total, plan.measure.duration) == (0, 0, SECOND)
    assert [change.consumers for change in plan.measure.changes] == (
        [2, 1] if "stages" in lines else []
    )
    assert plan.scale is not None
    assert plan.scale.messages == 1.0


@pytest.mark.parametrize(
    ("text", "scale", "cap", "share"),
    [
        ("producerRate: 1000\ntestDuration: 10s", 0.1, None, 0.1),
        ("producerRate: 1000\ntestDuration: 10s", None, 2 * SECOND, 0.2),
        ("producerRate: 1000\ntestDuration: 10s", 0.1, 2 * SECOND, 0.02),
        ("producerRate: 1000\nmessages: 5000", 0.1, None, 0.1),
        ("producerRate: 10KB/s\ntestDuration: 10s", 0.5, None, 0.5),
        (
            (
                "producerRate: 1000\nstages: [{duration: 6s, rate: 100}, {duration: 4s, rate: {from:"
                " 0, to: 50}}]"
            ),
            0.1,
            5 * SECOND,
            0.05,
        ),
        ("search: {hold: 10s}\nslo: {endToEndLatency: {p50: 1s}}", 0.1, 5 * SECOND, 0.05),
    ],
)
def test_the_share_of_messages_is_that_of_the_rate_times_that_of_the_duration(
    text: str, scale: float | None, cap: int | None, share: float
) -> None:
    """Bounds that are numbers of messages shrink by it."""
    plan = made(
        profiles.loads(f"name: p\nmessageSize: 64\ndriver: {{name: loopback}}\n{text}\n", "p.yaml"),
        scale=scale,
        duration_cap=cap,
    )
    assert plan.scale is not None
    assert plan.scale.messages == pytest.approx(share, rel=2e-3)


SCALED = """\
scaled:
  slo: {throughput: 50%, loss: 5}
  generator: {sendDelayP99: 3s}
"""


def test_only_a_scaled_run_has_the_bounds_under_scaled() -> None:
    """The plan names these keys."""
    text = (
        f"name: p\nmessageSize: 64\ndriver: {{name: loopback}}\nproducerRate: 10\ntestDuration:"
        f" 10s\nslo: {{sent: 90%, loss: 0}}\n{SCALED}"
    )
    profile = profiles.loads(text, "p.yaml")
    plan = made(profile)
    assert (plan.scale, plan.profile) == (None, profile)
    scaled = made(profile, scale=0.5)
    assert scaled.scale is not None
    assert (
        scaled.scale.changes["bounds"]
        == "as under scaled: slo.throughput, slo.loss, generator.sendDelayP99"
    )
    assert scaled.profile.slo == {"sent": "90%", "throughput": "50%", "loss": 5}
    assert (scaled.profile.generator.send_delay_p99, scaled.profile.generator.cpu) == (
        3 * SECOND,
        profile.generator.cpu,
    )


SEARCHED = (
    "name: p\nproducerRate: 0\nmessageSize: 64\ndriver: {name: loopback}\nslo: {loss: 0}\nsearch:"
    " {hold: 30s, confirm: 10min, warmup: 1min}\n"
)


def test_a_scale_does_not_shorten_a_search() -> None:
    """Only ``--load-duration`` does."""
    plan = made(profiles.loads(SEARCHED, "p.yaml"))
    assert plan.search is not None
    assert (plan.search.hold, plan.search.confirm, plan.search.warmup) == (
        30 * SECOND,
        10 * MINUTE,
        MINUTE,
    )
    assert plan.scale is None
    text = "\n".join(plan_table(plan, planned_facts(plan.profile), HERE))
    assert "each step 60.0 s warm-up and 30.0 s hold, the best one 10.0 min" in text


@pytest.mark.parametrize(
    ("cap", "lengths", "said"),
    [
        (
            20,
            (20, 40, 10),
            "hold 30.0 s → 20.0 s; confirm 10.0 min → 40.0 s; warm-up 60.0 s → 10.0 s",
        ),
        (60, (30, 120, 30), "confirm 10.0 min → 2.00 min; warm-up 60.0 s → 30.0 s"),
        (600, (30, 600, 60), ""),
    ],
)
def test_load_duration_caps_a_step_its_confirmation_at_twice_and_its_warm_up_at_half(
    cap: int, lengths: tuple[int, ...], said: str
) -> None:
    """The plan has before and after of each that is shortened."""
    plan = made(profiles.loads(SEARCHED, "p.yaml"), duration_cap=cap * SECOND)
    assert plan.search is not None
    assert (plan.search.hold, plan.search.confirm, plan.search.warmup) == tuple(
        length * SECOND for length in lengths
    )
    scaled = [
        line
        for line in plan_table(plan, planned_facts(plan.profile), HERE)
        if line.startswith("SHORTENED")
    ]
    assert [line.partition(" ")[2].strip() for line in scaled] == (
        [f"{said}. It says nothing about the full load."] if said else []
    )


def test_a_warm_up_is_capped_also_if_the_measured_phase_is_short_enough() -> None:
    plan = made(loopback(duration="1s"), duration_cap=SECOND)
    assert plan.phases[0].duration == SECOND // 2
    assert plan.scale is not None
    assert plan.scale.changes == {"warm-up": "1.00 s → 500 ms"}


def parsed(text: str) -> profiles.Profile:
    return profiles.loads(
        f"name: p\nmessageSize: 100\ndriver: {{name: loopback}}\n{text}\n", "p.yaml"
    )


def test_the_rates_of_a_search_are_scaled_and_have_a_floor() -> None:
    """Percentiles need a lowest rate, in the unit of the search."""
    asked = (
        "search: {start: 1000, max: 5000, hold: 10s, confirm: 20s, warmup: 3s, precision: 5%,"
        " repeats: 1}"
    )
    slo = "slo: {endToEndLatency: {p99: 1s}}"
    plan = made(parsed(f"producerRate: 0\n{asked}\n{slo}"), scale=0.5)
    assert plan.search is not None
    assert (plan.search.start, plan.search.maximum, plan.search.precision, plan.search.repeats) == (
        500,
        2500,
        0.05,
        1,
    )
    assert (plan.search.hold, plan.search.confirm, plan.search.warmup) == (
        10 * SECOND,
        20 * SECOND,
        3 * SECOND,
    )
    assert plan.search.floor == pytest.approx(105.0)  # 1 000 samples in 10 s, and a twentieth
    assert (plan.rate, plan.phases, plan.document["messages"]) == (500, (), 0)
    assert plan.needs.disk == 500 * 2 * 20 * needs_module.SAMPLE_BYTES
    without = made(parsed(f"producerRate: 0\nsearch: {{start: 1000, hold: 10s}}\n{slo}"))
    assert without.search is not None
    assert without.search.maximum is None


def test_the_needs_of_a_search_in_bytes_are_those_of_its_messages() -> None:
    plan = made(
        parsed("producerRate: 0\nsearch: {start: 1MB/s, max: 4MB/s, hold: 10s}\nslo: {loss: 0}")
    )
    assert plan.rate == pytest.approx(1024**2 / 100)
    assert plan.needs.bytes_per_second == pytest.approx(1024**2, rel=0.01)
    assert plan.needs.disk == pytest.approx(
        1024**2 / 100 * 2 * 20 * needs_module.SAMPLE_BYTES, rel=0.01
    )


def test_a_run_that_only_consumes_may_have_sizes() -> None:
    """They are those of others; without any there is one payload, as a pool is never empty."""
    text = "name: p\ntopic: t\nproducersPerTopic: 0\ntestDuration: 1s\ndriver: {name: loopback}\n"
    assert profile_pool(profiles.loads(text, "p.yaml")).sizes.tolist() == [32]
    assert profile_pool(
        profiles.loads(f"{text}messageSizeDistribution: {{64-65: 1, 100-101: 1}}\n", "p.yaml")
    ).sizes.tolist() == [64, 100]


def test_a_backlog_has_the_messages_of_its_scaled_size() -> None:
    """The measured phase has time for building, draining, the load after it, and the changes."""
    text = (
        "producerRate: 1000\nwarmupDuration: 1s\ntestDuration: 7s\nsubscriptionsPerTopic:"
        " 2\nconsumerBacklogSizeGB: 1\nbacklogDrainTimeout: 60s\n"
    )
    plan = made(parsed(text), scale=0.5)
    assert plan.backlog is not None
    size = 2**30 // 2
    assert (plan.backlog.size, plan.backlog.messages, plan.backlog.rate) == (
        size,
        round(size / 100),
        500,
    )
    assert (plan.backlog.drain_timeout, plan.backlog.after, plan.backlog.subscriptions) == (
        60 * SECOND,
        7 * SECOND,
        2,
    )
    warmup, measure = plan.phases
    assert (warmup.name, warmup.paused, measure.paused) == ("warm-up", False, True)
    build = round(size / 100) / 2 / 500 * SECOND
    assert measure.duration == pytest.approx(2 * build + 70 * SECOND + 3 * CHANGE_IN, abs=2)
    assert plan.measure is measure
    capped = made(parsed(text), scale=0.5, duration_cap=3 * SECOND)
    assert capped.backlog is not None
    assert capped.backlog.after == 3 * SECOND
    assert made(parsed("producerRate: 1000\ntestDuration: 7s")).backlog is None


@pytest.mark.parametrize("scale", [0.25, 0.5, 2])
def test_the_backlog_of_a_broadcast_scales_with_its_load(scale: float) -> None:
    """A scale changes its subscribers, and below 64 of them its rate: the time to build stays."""
    text = (
        "producerRate: 1000\ntestDuration: 7s\nsubscriptionsPerTopic: 128\n"
        "consumerBacklogSizeGB: 1\nbacklogDrainTimeout: 60s\n"
    )
    written = made(parsed(text), machine=CLUSTER).backlog
    plan = made(parsed(text), machine=CLUSTER, scale=scale)
    assert written is not None
    assert plan.backlog is not None
    assert plan.backlog.subscriptions == plan.topology.subscriptions == max(128 * scale, 64)
    assert plan.backlog.size == written.size * scale
    assert plan.backlog.longest == pytest.approx(written.longest, rel=1e-6)


def test_the_needs_of_a_plan_follow_from_profile_windows_and_costs() -> None:
    profile = loopback(
        rate=1000, topics=2, producers=3, subscriptions=2, consumers=2, size=1000, duration="3s"
    )
    plan, cost = made(profile, workers=2), shipped_costs()["loopback"]
    needs, driver = plan.needs, profile.driver
    assert needs.bytes_per_second == 1_000_000
    assert needs.disk == 1000 * 3 * 3 * needs_module.SAMPLE_BYTES
    assert needs.cores == pytest.approx(cost.cores(1000, 2, 1000, broker_here=True))
    assert needs.busiest_worker == pytest.approx(cost.busiest_worker(1000, 2, 1000, 2))
    assert needs.connections.total == driver.connections(6, 8, 2)
    waiting = min(
        bound
        for bound in (6 * driver.window(1) * 1000, (driver.memory_limit or 0) * 2, 1 << 62)
        if bound
    )
    waiting = 0 if waiting == 1 << 62 else waiting
    assert (
        needs.memory
        == waiting
        + 8 * driver.receive_window(1) * 1000
        + 2 * (1000 - 32)
        + needs.connections.memory
    )
    assert plan.document == {
        "workers": 2,
        "rate": 1000.0,
        "meanSize": 1000.0,
        "bytesPerSecond": 1e6,
        "topics": 2,
        "partitions": 1,
        "producers": 6,
        "consumers": 8,
        "messages": 3000,
        "cores": round(needs.cores, 3),
    }


@pytest.mark.parametrize("more", ["randomizedPayloadPoolSize: 65536", "payloadsPerBucket: 32769"])
def test_more_payloads_of_all_sizes_than_a_burst_can_number_are_a_usage_error(more: str) -> None:
    """Of the profile's own size and of the ranges of its stages together."""
    stage = 'stages: [{duration: 1s, messageSizeDistribution: {"64-128": 1}}]\n'
    text = f"name: p\nproducerRate: 1\nmessageSize: 64\nuseRandomizedPayloads: true\n{more}\n"
    profile = profiles.loads(text + stage, "p.yaml")
    with pytest.raises(UsageError, match="^profile p: .*at most 65536 payloads, write "):
        profile_pool(profile)


def test_a_short_peak_needs_cores_for_its_rate_and_disk_for_its_messages() -> None:
    """Not disk and aggregation for the whole phase at the rate of the peak."""
    text = "name: p\nmessageSize: 64\ndriver: {name: loopback}\n"
    stages = "stages: [{duration: 86340s, rate: 1000}, {duration: 60s, rate: 100000}]\n"
    peak = made(profiles.loads(text + stages, "p.yaml"), scale=0.5, machine=CLUSTER)
    even = "producerRate: 1068.75\ntestDuration: 86400s\n"
    same = made(profiles.loads(text + even, "p.yaml"), scale=0.5, machine=CLUSTER)
    assert peak.unscaled is not None
    assert same.unscaled is not None
    for needs, same_messages in ((peak.needs, same.needs), (peak.unscaled, same.unscaled)):
        assert needs.disk == pytest.approx(same_messages.disk)
        assert needs.aggregation.tasks == same_messages.aggregation.tasks
        assert needs.cores > 50 * same_messages.cores


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("client", ["native", "library"])
def test_another_broker_has_a_cost_of_its_own(qos: int, client: str) -> None:
    """Artemis's instead of mosquitto's, with either client; a broker elsewhere has no cost here."""
    text = "name: p\nproducerRate: 1000\nmessageSize: 64\ntestDuration: 1s\nslo: {loss: 0}\n"
    of = {
        broker: profiles.loads(
            f"{text}driver: {{name: mqtt, qos: {qos}, client: {client}, broker: {broker}}}\n",
            "p.yaml",
        )
        for broker in ("mosquitto", "artemis")
    }
    cost = {broker: profile_cost(profile, shipped_costs()) for broker, profile in of.items()}
    assert cost["mosquitto"] == shipped_costs()[profile_cost_key(of["mosquitto"])]
    assert cost["artemis"] == replace(cost["mosquitto"], broker=ARTEMIS[qos])
    cores = {broker: made(profile).needs.cores for broker, profile in of.items()}
    assert cores["artemis"] - cores["mosquitto"] == pytest.approx(
        (ARTEMIS[qos] - cost["mosquitto"].broker) * 1000 / 1e9
    )
    assert made(of["artemis"]).needs.busiest_worker == made(of["mosquitto"]).needs.busiest_worker


def test_a_broadcast_needs_disk_for_copies_and_rows() -> None:
    """More workers cut more rows in two."""
    profile = loopback(rate=10, subscriptions=1000)
    message = needs_module.SAMPLE_BYTES + 1000 * needs_module.COPY_BYTES
    for workers, rows in ((1, 16), (4, 19)):
        assert made(profile, workers=workers).needs.disk == int(
            30 * (message + rows * needs_module.ROW_BYTES)
        )


def test_a_compact_envelope_numbers_the_messages_of_warm_up_and_measured_phase() -> None:
    """Of each stream, exactly up to its limit."""
    rate = (1 << 32) // 4  # for four seconds
    with pytest.raises(
        UsageError,
        match=r"16,777,216 and 4,294,967,296 messages a stream;"
        r" this has 1 streams of 4,294,967,296 messages",
    ):
        made(loopback(size=20, rate=rate, duration="3s"))
    assert made(loopback(size=20, rate=rate - 1, duration="3s")).rate == rate - 1
    assert made(loopback(size=20, rate=rate, producers=2, duration="3s")).rate == rate
    assert made(loopback(size=32, rate=rate, duration="3s")).rate == rate
    with pytest.raises(UsageError, match="carry stream numbers below 16,777,216"):
        made(loopback(size=20, rate=1, producers=1 << 24))
    assert (
        made(loopback(size=20, rate=1, producers=(1 << 24) - 1)).topology.streams == (1 << 24) - 1
    )


SERVICE = """
name: orders
route: {input: orders, output: confirmed, envelope: "json:/ref"}
producerRate: 100
testDuration: 5s
driver: {name: mqtt}
payload: {templates: {order.json: 3, cancel.json: 1}, pool: 4}
"""
FILES = {
    "order.json": b'{"ref": "{{ envelope }}", "note": "{{ text(20) }}"}',
    "cancel.json": b'{"ref": "{{ envelope }}"}',
}


def test_templates_are_the_size_buckets_of_their_pool() -> None:
    profile = profiles.loads(SERVICE, "p.yaml")
    pool = profile_pool(profile, FILES)
    assert pool.bucket_names == ("order.json", "cancel.json")
    assert pool.sizes.tolist() == [91] * 4 + [59] * 4
    assert pool.mean_size == pytest.approx(91 * 0.75 + 59 * 0.25)
    again = profile_pool(profile, FILES)
    assert again.patterns == pool.patterns


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "order.json: is not UTF-8"),
        (b"{{ envelope }}", "order.json: renders no JSON"),
        (b"{{ unknown }}", "order.json:1: 'unknown' is undefined"),
    ],
)
def test_a_wrong_template_is_named(content: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        profile_pool(profiles.loads(SERVICE, "p.yaml"), {**FILES, "order.json": content})


def test_a_route_costs_the_broker_twice_and_tokens_cost_the_workers() -> None:
    """The service itself has no cost here; that of the loopback is part of the relay."""
    costs = shipped_costs()
    through = profiles.loads(SERVICE, "p.yaml")
    plain = costs[profile_cost_key(through)]
    cost = profile_cost(through, costs)
    assert cost.broker == 2 * plain.broker
    assert (cost.produce, cost.consume) == (plain.produce + 2_000, plain.consume + 2_000)
    binary = SERVICE.replace(', envelope: "json:/ref"', "").replace("payload:", "#")
    cost = profile_cost(profiles.loads(binary + "messageSize: 99\n", "p.yaml"), costs)
    assert cost == replace(plain, broker=2 * plain.broker)
    relay = profiles.loads(SERVICE.replace("mqtt", "loopback"), "p.yaml")
    assert profile_cost(relay, costs).broker == costs[profile_cost_key(relay)].broker


def test_bodies_of_other_templates_have_another_digest() -> None:
    """The profile has only their names."""
    profile = profiles.loads(SERVICE, "p.yaml")
    digests = []
    for note in ("note", "note", "NOTE"):
        files = {**FILES, "order.json": FILES["order.json"].replace(b"note", note.encode())}
        digests.append(made(profile, files=files).document["bodies"])
    assert digests[0] == digests[1] != digests[2]
    assert "bodies" not in made(loopback()).document


def test_a_tap_is_one_more_read_of_each_input() -> None:
    """It has connections of its own, and its rows are on disk and counted too."""
    plain = made(profiles.loads(SERVICE, "p.yaml"), files=FILES)
    tapped = made(
        profiles.loads(SERVICE.replace("output:", "tap: true, output:"), "p.yaml"), files=FILES
    )
    assert (tapped.topology.fan_out, tapped.topology.reads) == (1, 2)
    one, two = plain.needs, tapped.needs
    assert two.delivered == 2 * one.delivered
    assert two.connections.total == one.connections.total + 1
    assert two.cores > one.cores
    assert two.disk == pytest.approx(1.5 * one.disk)
    assert two.aggregation.parallel == pytest.approx(3 * one.aggregation.parallel)
