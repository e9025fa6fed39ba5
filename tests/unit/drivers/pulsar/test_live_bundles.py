"""Splits in a live test, and how even the bundles are after each algorithm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar.bundle_admin import Bundles
from pytest_loadtest.drivers.pulsar.bundle_split import (
    LAST,
    MB,
    Bundle,
    Ring,
    SplitLimits,
    TopicRate,
    position,
)
from pytest_loadtest.drivers.pulsar.live_bundles import (
    ALGORITHMS,
    LiveBundles,
    Split,
    balance,
    bundle_rates,
    half_of,
    imbalance,
)
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import UsageError

SEEN = {
    "a": TopicRate(position("a"), 30.0, 3.0 * MB),
    "b": TopicRate(position("b"), 71.0, 0.0),
    "idle": TopicRate(5, 0.0, 0.0),
}


def made(**more: object) -> Split:
    whole = {
        "asked": 1, "done": 2, "limits": half_of(SEEN), "topics": SEEN, "after": SEEN, "wanted": (), "made": (), "ring": Ring(),
        "found": {"a": Bundle(0, LAST)},
    }  # fmt: skip
    return Split(**whole | more)  # type: ignore[arg-type]


def test_limits_that_would_replace_a_setting_of_the_profile_are_rejected() -> None:
    """The report shows the profile's setting as that of the broker; nothing is sent to it."""
    admin = Bundles("http://127.0.0.1:1", PulsarSettings(), "public/x")
    given = {"loadBalancerNamespaceBundleMaxMsgRate": "70"}
    bundles = LiveBundles(admin, {}, lambda: None, profile_settings=given)
    with pytest.raises(
        UsageError,
        match=r"loadBalancerNamespaceBundleMaxMsgRate 50 of the test would replace 70 of broker.settings: remove it",
    ):
        bundles.limit(SplitLimits(rate=50, megabytes=2))


def test_default_limits_are_half_of_the_load_in_whole_numbers() -> None:
    """They are 1 at least."""
    assert half_of(SEEN) == SplitLimits(rate=50, megabytes=2)
    assert half_of({}) == SplitLimits(rate=1, megabytes=1)


def test_the_expected_bundle_of_a_topic_is_that_of_its_position() -> None:
    """It does not matter whether the topic is loaded."""
    cut = position("a")
    split = made(ring=Ring((0, cut, LAST)), topics={})
    assert split.looked_for == {"a": Bundle(cut, LAST)}
    assert split.looked_for != split.found


def test_a_split_is_blind_if_no_topic_had_traffic_before_and_after() -> None:
    """A topic that is not loaded has no traffic either."""
    idle = {"idle": SEEN["idle"]}
    assert made(topics=idle, after={}).blind
    assert not made(topics=idle).blind
    assert not made(after=idle).blind


def test_every_algorithm_has_a_balance_on_the_same_load() -> None:
    assert {name: one.splits for name, one in made().balances().items()} == {
        "flow_or_qps_equally_divide": 1, "topic_count_equally_divide": 1 + (SEEN["idle"].position < min(position("a"), position("b"))), "range_equally_divide": 1,
    }  # fmt: skip


# PIP-169's first example at a tenth, in and out, and the broker's own topic that a namespace has
TENTH = [
    *(TopicRate(at, 20 * n, 0.2 * n * MB) for n, at in enumerate((10, 20, 80, 90, 100), 1)),
    TopicRate(110, 400, 38 * MB),
    TopicRate(0xDD000000, 0, 0),
]
HALF = SplitLimits(rate=350, megabytes=20)
TOPICS = st.lists(
    # not next to each other, where there is no room for a boundary that all algorithms could use
    st.builds(
        TopicRate,
        st.integers(0, LAST // 4).map(lambda at: 4 * at + 1),
        st.integers(0, 1000).map(float),
        st.just(0.0),
    ),
    max_size=10,
    unique_by=lambda topic: topic.position,
)


@pytest.mark.parametrize(
    ("algorithm", "splits", "uneven"),
    [
        ("flow_or_qps_equally_divide", 1, 400 / 350),
        ("topic_count_equally_divide", 2, 400 * 3 / 700),
        ("range_equally_divide", 29, 400 * 30 / 700),
    ],
)
def test_one_split_by_flow_does_what_takes_29_by_range(
    algorithm: str, splits: int, uneven: float
) -> None:
    """The hot topics have neighbouring hashes: this is the argument of the proposal."""
    found = balance(algorithm, TENTH, HALF)
    assert (found.splits, found.imbalance) == (splits, pytest.approx(uneven))


@given(algorithm=st.sampled_from(sorted(ALGORITHMS)), topics=TOPICS, limit=st.integers(1, 2000))
def test_every_bundle_is_within_the_limits_or_one_topic(
    algorithm: str, topics: list[TopicRate], limit: int
) -> None:
    """Or above them by less than the threshold, which flow or QPS does not split. The sum of the load is kept."""
    limits = SplitLimits(rate=limit)
    found = balance(algorithm, topics, limits)
    assert sum(found.rates) == sum(topic.rate for topic in topics)
    for bundle, rate in zip(found.ring.bundles, found.rates, strict=True):
        alone = len([topic for topic in topics if topic.active and topic.position in bundle]) < 2
        assert alone or rate <= limit * 1.1


def test_without_load_the_imbalance_is_unknown() -> None:
    assert imbalance(Ring(), []) is None
    assert bundle_rates(Ring(), []) == (0,)
