"""Scaled plans: their topology, and the differences from the profile."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders.plans import CLUSTER, loopback, made

from pytest_loadtest import profile as profiles
from pytest_loadtest.errors import UsageError
from pytest_loadtest.plan.phases import PacedTraffic
from pytest_loadtest.plan.scaling import at, durations, scaled_topology
from pytest_loadtest.schedule.topology import Topology
from pytest_loadtest.values.quantities import SECOND


def test_a_topology_shrinks_to_one_of_each_at_least() -> None:
    profile = profiles.loads(
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\nscalable: [producers]\n",
        "p.yaml",
    )
    wanted = Topology(topics=1000, partitions=1, producers=50, subscriptions=0, consumers=1)
    topology, rate_factor = at(profile, wanted, 1e-9)
    assert (topology.topics, topology.producers, rate_factor) == (1000, 1, 1e-9)
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
    ("producerRate: 1MB/s\nstages: [{duration: 1s, rate: 8MB/s}]", "8.00 MiB/s → 4.00 MiB/s"),
    ("producerRate: 0\nsearch: {start: 2MB/s, hold: 10s}\nslo: {loss: 0}", "2.00 MiB/s → 1.00 MiB/s"),
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


@pytest.mark.parametrize(
    ("scale", "limit"),
    [(1e9, "less than 9e+09 can be timed"), (1e-7, "at least 0.001 can be paced")],
)
def test_a_scale_beyond_the_rates_of_a_search_is_an_error(scale: float, limit: str) -> None:
    text = "name: p\nmessageSize: 64\ndriver: {name: loopback}\nsearch: {start: 1000}\n"
    profile = profiles.loads(text, "p.yaml")
    with pytest.raises(UsageError, match=re.escape(limit)):
        made(profile, scale=scale, machine=CLUSTER)


@pytest.mark.parametrize("skew", ["{zipf: 1, swing: 10s}", "{zipf: 1}"])
def test_a_scale_with_more_turns_than_a_cycle_may_have_is_an_error(skew: str) -> None:
    text = "name: p\nmessageSize: 64\ndriver: {name: loopback}\nproducerRate: 1000\n"
    more = "testDuration: 60s\ntopics: 10\nproducersPerTopic: 10\nscalable: [producers]\n"
    profile = profiles.loads(f"{text}{more}skew: {skew}\n", "p.yaml")
    limit = "turns, at most 1,000,000 are possible: use a smaller --load-scale"
    with pytest.raises(UsageError, match=re.escape(limit)):
        made(profile, scale=20, machine=CLUSTER)


def test_a_shortened_plan_has_durations_before_and_after_and_the_share_of_messages() -> None:
    plan = made(
        loopback(duration="4s", topics=4, scalable="[topics]"),
        scale=0.5,
        duration_cap=SECOND,
        machine=CLUSTER,
    )
    assert plan.scale is not None
    assert plan.scale.changes == {
        "rate": "1 000 msg/s → 500 msg/s",
        "topics": "4 → 2",
        "measured phase": "4.00 s → 1.00 s",
        "warm-up": "1.00 s → 500 ms",
    }
    assert plan.scale.messages == pytest.approx(0.125)
    assert made(loopback(duration="4s"), scale=1.0, duration_cap=4 * SECOND).scale is None


def test_only_a_cap_shortens_durations() -> None:
    """A confirmation to twice the cap, a warm-up to half of it."""
    head = "name: p\nmessageSize: 64\ndriver: {name: loopback}\n"
    search = profiles.loads(
        f"{head}producerRate: 0\nsearch: {{hold: 10s, confirm: 50s, warmup: 8s}}\nslo:"
        f" {{loss: 0}}\n",
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


STAGES = """\
name: p
producerRate: 1000
messageSize: 64
consumerPerSubscription: 4
scalable: [consumers]
stages:
  - {name: all, duration: 2s}
  - {name: half, duration: 2s, consumerPerSubscription: 2}
  - {name: one, duration: 2s, consumerPerSubscription: 1}
driver: {name: mqtt}
slo: {loss: 0}
"""


@pytest.mark.parametrize(
    ("scale", "attached"), [(None, [4, 2, 1]), (0.5, [2, 1, None]), (2.0, [8, 4, 2])]
)
def test_stages_have_their_share_of_scaled_consumers(
    scale: float | None, attached: list[int | None]
) -> None:
    """And at least one; None is the number of the stage before."""
    plan = made(profiles.loads(STAGES, "p.yaml"), scale=scale, machine=CLUSTER)
    assert plan.measure.consumers == plan.topology.consumers == attached[0]
    assert [change.consumers for change in plan.measure.changes] == attached


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


def test_what_others_send_is_not_scaled() -> None:
    """Nor is the bound on its throughput; there are fewer consumers."""
    text = """\
name: others
topic: sensors/all
producersPerTopic: 0
consumerPerSubscription: 20
messageSize: 100
testDuration: 10s
driver: {name: mqtt}
target: {url: "mqtt://127.0.0.1"}
scalable: [consumers]
slo: {throughput: 1000/s}
"""
    plan = made(profiles.loads(text, "p.yaml"), scale=0.1)
    assert plan.scale is not None
    assert (plan.scale.rate, plan.scale.messages) == (1.0, 1.0)
    assert plan.scale.changes == {"consumers": "20 → 2"}


def test_a_broadcast_has_fewer_subscribers_at_the_same_rate() -> None:
    """Its load is its deliveries: rate, topics and producers stay.

    The plan shows the needs of the whole.
    """
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


@pytest.mark.parametrize(
    ("subscriptions", "consumers", "factor", "scaled"),
    [
        (640, 4, 0.1, (64, 2)),
        (640, 4, 0.01, (6, 1)),
        (32, 1, 0.5, (16, 1)),
        (32, 2, 8.0, (256, 16)),
    ],
)
def test_a_scale_makes_no_broadcast_of_another_profile(
    subscriptions: int, consumers: int, factor: float, scaled: tuple[int, int]
) -> None:
    """Metrics and rows of a broadcast differ, and the profile was checked without them."""
    whole = Topology(
        topics=1, partitions=1, producers=1, subscriptions=subscriptions, consumers=consumers
    )
    topology = scaled_topology(whole, ("subscriptions", "consumers"), factor)
    assert not topology.broadcasts
    assert (topology.subscriptions, topology.consumers) == scaled


def test_a_scale_of_subscriptions_alone_ends_below_a_broadcast() -> None:
    whole = Topology(topics=1, partitions=1, producers=1, subscriptions=32, consumers=1)
    assert scaled_topology(whole, ("subscriptions",), 8.0) == replace(whole, subscriptions=63)


@pytest.mark.parametrize(
    ("slo", "message"),
    [
        (
            "{window: 3s, throughput: 99%}",
            (
                "profile p: slo: a window of 3.00 s is longer than the 2.00 s that --load-duration"
                " leaves to measure: raise --load-duration"
            ),
        ),
        (
            "{drift: {throughput: 5%}}",
            (
                "profile p: slo: drift needs 10 s, more than the 2.00 s that --load-duration leaves"
                " to measure: raise --load-duration"
            ),
        ),
    ],
)
def test_a_duration_without_room_for_a_window_is_an_error(slo: str, message: str) -> None:
    """With a remedy; a shorter window for scaled runs avoids it."""
    text = (
        f"name: p\nmessageSize: 64\nproducerRate: 1000\ntestDuration: 20s\ndriver: {{name:"
        f" loopback}}\nslo: {slo}\n"
    )
    made(profiles.loads(text, "p.yaml"))
    with pytest.raises(UsageError, match=re.escape(message)):
        made(profiles.loads(text, "p.yaml"), duration_cap=2 * SECOND)
    if "window" in slo:
        made(
            profiles.loads(text + "scaled: {slo: {window: 1s}}\n", "p.yaml"),
            duration_cap=2 * SECOND,
        )
