"""Observed traffic, and the profile with its shape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_loadtest import profile
from pytest_loadtest.message.payloads import parse_range
from pytest_loadtest.plan.plan import profile_pool
from pytest_loadtest.profile.observed import (
    MOST_RANGES,
    Seen,
    Source,
    Traffic,
    profile_text,
    summary,
)
from pytest_loadtest.values.quantities import SECOND

MQTT = Source(
    url="mqtt://host:1883",
    admin_url=None,
    driver={"name": "mqtt"},
    topics=0,
    partitions=1,
    at_least=False,
    date="today",
)


PULSAR = Source(
    url="pulsar://host:6650",
    admin_url="http://host:8080",
    driver={"name": "pulsar"},
    topics=2,
    partitions=4,
    at_least=True,
    date="today",
)


START = 1000 * SECOND


def made_traffic(seen: list[Seen], seconds: float = 10) -> Traffic:
    traffic = Traffic(START, end=START + int(seconds * SECOND))
    assert not traffic.add(seen, 10**9)
    return traffic


def message(at: float = 0, size: int = 100, topic: str = "a", key: str | None = None) -> Seen:
    return Seen(topic, size, key, START + int(at * SECOND))


def learned(traffic: Traffic, source: Source = MQTT, replay: bool = False) -> profile.Profile:
    return profile.loads(profile_text(traffic, source, replay), "learned.yaml")


SEEN = st.builds(
    message,
    at=st.floats(0, 9.99),
    size=st.integers(0, 5_000_000) | st.integers(0, 40),
    topic=st.text(max_size=8),
    key=st.none() | st.text(max_size=8),
)


@settings(max_examples=40)
@given(
    seen=st.lists(SEEN, min_size=1, max_size=200),
    replay=st.booleans(),
    source=st.sampled_from([MQTT, PULSAR]),
)
def test_any_traffic_becomes_a_valid_profile(
    seen: list[Seen], replay: bool, source: Source
) -> None:
    """It has as many messages, and a range for every size, whatever the topics and keys are."""
    found = learned(made_traffic(seen), source, replay)
    buckets = found.buckets or ()
    assert len(buckets) <= MOST_RANGES
    assert sum(bucket.weight for bucket in buckets) == len(seen)
    for one in seen:
        assert any(bucket.low <= one.size < bucket.high for bucket in buckets)
    assert found.producer_rate == pytest.approx(len(seen) / 10, rel=1e-3)
    assert found.test_duration == 10 * SECOND


def test_few_sizes_stay_exact() -> None:
    traffic = made_traffic([message(size=size) for size in (100, 100, 333, 5000)])
    assert traffic.distribution() == {"100-101": 2, "333-334": 1, "5000-5001": 1}


def test_many_sizes_become_ranges_near_powers_of_two() -> None:
    """There are at most eight ranges between two powers of two; the mean size stays within two per cent."""
    sizes = [64 + i * i // 50 for i in range(1, 2000)]
    traffic = made_traffic([message(size=size) for size in sizes])
    found = traffic.distribution()
    assert len(found) <= MOST_RANGES
    middles = sum(sum(parse_range(key)) / 2 * weight for key, weight in found.items()) / len(sizes)
    assert middles == pytest.approx(traffic.mean_size, rel=0.02)
    assert all(end % 8 == 0 for key in found for end in parse_range(key))


def test_a_size_below_an_envelope_is_not_sent_as_its_middle() -> None:
    """The comment has the mean size of the payloads that a run of the profile sends."""
    traffic = made_traffic([message(size=size) for size in (5, 5, 5, 100)])
    text = profile_text(traffic, MQTT, replay=False)
    mean = profile_pool(learned(traffic)).mean_size
    assert mean == 37
    least = "the middle of each range, at least 16 B"
    assert f"# mean 29 B; a run sends {least}: mean {mean:.0f} B" in text


def test_messages_before_the_start_are_left_out() -> None:
    """Readers open one after the other: before the last one is open, the first ones get more than their share."""
    assert made_traffic([message(-0.5), message(0.5)]).messages == 1


def test_sampling_ends_after_the_number_of_messages() -> None:
    """The rate is computed over the time until the last of them."""
    traffic = Traffic(START)
    assert traffic.add([message(1), message(2), message(3)], 2)
    assert (traffic.messages, traffic.elapsed, traffic.rate) == (2, 2 * SECOND, 1.0)


def test_a_replay_has_the_rate_of_every_second() -> None:
    """An incomplete second at the end is left out, as its rate would be too low."""
    traffic = made_traffic([message(at) for at in (0.1, 0.2, 0.3, 2.0, 3.2)], seconds=3.5)
    assert traffic.series == (3, 0, 1)
    (stage,) = learned(traffic, replay=True).stages
    assert (stage.name, stage.duration) == ("replay", 3 * SECOND)
    assert stage.steps(1.0) == ((SECOND, 3), (SECOND, 0), (SECOND, 1))


@pytest.mark.parametrize(
    ("keyed", "distributor"),
    [(0, "NO_KEY"), (3, "NO_KEY"), (5, "RANDOM_NANO"), (10, "RANDOM_NANO")],
)
def test_messages_get_keys_if_most_had_one(keyed: int, distributor: str) -> None:
    traffic = made_traffic([message(key="k" if i < keyed else None) for i in range(10)])
    assert learned(traffic).key_distributor == distributor


def test_facts_that_a_profile_cannot_express_are_in_its_comments() -> None:
    """They are the skew of keys, the shares of topics, and a sampler that was too slow."""
    seen = [message(key="hot", topic="a")] * 8 + [message(key=str(i), topic="b") for i in range(12)]
    lines = summary(made_traffic(seen), at_least=False)
    assert lines[0] == "20 messages in 10.0 s: 2 msg/s"
    assert lines[1] == "1 sizes, 100 B mean, 100 B largest"
    assert lines[2] == '2 topics: "b" 60 %, "a" 40 %; a run shares its rate evenly'
    assert "one of 13 keys; the most frequent has 40 % of them, the first ten 85 %" in lines[3]
    assert "at least 2 msg/s" in summary(made_traffic(seen), at_least=True)[-1]
    text = profile_text(made_traffic(seen), PULSAR, False)
    assert all(f"# {line}" in text for line in lines)


def test_a_learned_profile_has_the_target_and_the_number_of_topics() -> None:
    """That is the number of topics given, or seen if wildcards were given."""
    seen = [message(topic=topic) for topic in "abc"]
    pulsar, mqtt = learned(made_traffic(seen), PULSAR), learned(made_traffic(seen), MQTT)
    assert pulsar.target
    assert (pulsar.target.admin_url, pulsar.topics, pulsar.partitions_per_topic) == (
        "http://host:8080",
        2,
        4,
    )
    assert mqtt.target
    assert (mqtt.target.url, mqtt.topics, mqtt.partitions_per_topic, mqtt.driver.name) == (
        "mqtt://host:1883",
        3,
        1,
        "mqtt",
    )


@pytest.mark.parametrize(
    ("messages", "seconds"), [(1, 30_000), (1, 7), (3, 0.003), (5_000_000, 2), (123_456, 7)]
)
def test_rates_have_no_exponent(messages: int, seconds: float) -> None:
    """YAML reads 1e6 as text. The lowest rate is one message in a thousand seconds."""
    traffic = made_traffic([message()], seconds)
    traffic.messages = messages
    assert learned(traffic).producer_rate == pytest.approx(max(messages / seconds, 0.001), rel=2e-2)
