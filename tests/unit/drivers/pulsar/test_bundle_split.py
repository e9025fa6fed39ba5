"""The models of Pulsar's split algorithms against the examples of PIP-169 and of upstream's tests; positions of topics and bundles."""

from __future__ import annotations

import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest.drivers.pulsar.bundle_split import (
    LAST,
    MB,
    Bundle,
    Ring,
    SplitLimits,
    TopicRate,
    flow_or_qps,
    position,
    range_boundary,
    suffix,
    topic_count_boundary,
    undecided,
)

HASHES = (10, 20, 80, 90, 100, 110)
# PIP-169 as first proposed on the mailing list, 2022-07-25
PROPOSED = [
    TopicRate(at, rate, mb * MB)
    for at, rate, mb in zip(
        HASHES, (100, 200, 300, 400, 500, 2000), (1, 2, 3, 4, 5, 190), strict=True
    )
]
# PIP-169 as accepted, apache/pulsar#16782
ACCEPTED = [TopicRate(at, 100 * n, 10 * n * MB) for n, at in enumerate(HASHES, 1)]
LIMITS = SplitLimits(rate=1100, megabytes=110)
TOPICS = st.lists(
    st.builds(TopicRate, st.integers(0, LAST), st.floats(0, 1e4), st.floats(0, 1e8)),
    max_size=12,
    unique_by=lambda topic: topic.position,
)
SOME_LIMITS = st.builds(
    SplitLimits,
    rate=st.integers(1, 20_000),
    megabytes=st.integers(1, 200),
    threshold=st.integers(0, 50),
)


def test_the_example_of_the_first_proposal_is_split_at_106() -> None:
    """The topic at 110 has more than half of the load. The boundary belongs to the upper bundle, so it is 106 and not 105."""
    assert flow_or_qps(PROPOSED, SplitLimits(rate=1750, megabytes=102)) == (106,)


def test_the_accepted_example_is_split_between_90_and_100() -> None:
    """100 + 200 + 300 + 400 are within 1100; the rest, 500 + 600, is exactly 1100, which does not exceed it."""
    assert flow_or_qps(ACCEPTED, LIMITS) == (96,)


def test_each_part_is_filled_up_to_a_limit() -> None:
    """The parts are (100 200) (300) (400) (500) (600)."""
    assert flow_or_qps(ACCEPTED, SplitLimits(rate=500, megabytes=1000)) == (51, 86, 96, 106)


def test_upstreams_equal_topics() -> None:
    """``testSplitBundleByFlowOrQps``: 241 partitions of 49.5, 50.5 and 60 msg/s; no part reaches 1010 msg/s."""
    rates = {
        f"persistent://test-tenant1/test-namespace1/test{i}-partition-{j}": 49.5 if i < 6 else 50.5
        for i in range(1, 13)
        for j in range(20)
    }
    rates["persistent://test-tenant1/test-namespace1/test695-partition-0"] = 60
    topics = sorted(TopicRate(position(name), rate, 4000) for name, rate in rates.items())
    found = flow_or_qps(topics, SplitLimits(rate=1010, megabytes=100))
    assert len(found) > 10
    for low, high in pairwise((0, *found, LAST)):
        assert sum(topic.rate for topic in topics if low <= topic.position < high) <= 1010


def test_upstreams_first_topic_that_exceeds_the_limit_alone() -> None:
    """``testFirstPositionIsOverLoad``: the boundary is after it."""
    places = sorted(
        position(f"persistent://test-tenant1/test-namespace1/test-partition-{i}") for i in range(5)
    )
    topics = [TopicRate(at, 2000 if i == 0 else 49.5, 2000) for i, at in enumerate(places)]
    assert (
        flow_or_qps(topics, SplitLimits(rate=1010, megabytes=100))[0]
        == places[0] + (places[1] - places[0]) // 2 + 1
    )


@pytest.mark.parametrize(
    ("topics", "limits"),
    [
        ([], SplitLimits(rate=1)),
        ([TopicRate(1, 1e6, 1e9)], SplitLimits(rate=1)),
        ([TopicRate(1, 1e6, 1e9), TopicRate(2, 0, 0)], SplitLimits(rate=1)),
        ([TopicRate(1, 50, 0), TopicRate(2, 59.9, 0)], SplitLimits(rate=100)),
        ([TopicRate(1, 0, 0), TopicRate(2, 0, 0)], SplitLimits(rate=1)),
    ],
    ids=[
        "no topic",
        "one topic",
        "one active topic",
        "less than the threshold beyond",
        "no rates yet",
    ],
)
def test_a_bundle_below_the_threshold_is_not_split(
    topics: list[TopicRate], limits: SplitLimits
) -> None:
    assert flow_or_qps(topics, limits) == ()


def test_a_bundle_exactly_at_the_threshold_is_split() -> None:
    """110 is not less than 10 % above 100."""
    assert flow_or_qps(
        [TopicRate(10, 50, 0), TopicRate(20, 60.0001, 0)], SplitLimits(rate=100)
    ) == (16,)


def test_topics_on_one_position_count_as_the_last_of_them() -> None:
    """The broker has a map by position and a list of positions: twice 300, not 100 and 300."""
    topics = [TopicRate(10, 100, 0), TopicRate(10, 300, 0), TopicRate(20, 50, 0)]
    assert flow_or_qps(topics, SplitLimits(rate=390, threshold=0)) == (11,)


@given(topics=TOPICS, limits=SOME_LIMITS)
def test_parts_are_within_the_limits_unless_they_are_one_topic(
    topics: list[TopicRate], limits: SplitLimits
) -> None:
    """Boundaries ascend and are between active topics, and there is a topic between any two of them."""
    found = flow_or_qps(topics, limits)
    active = [topic for topic in topics if topic.active]
    assert list(found) == sorted(set(found))
    if not found:
        return
    for low, high in pairwise((0, *found, LAST + 1)):
        inside = [topic for topic in active if low <= topic.position < high]
        assert inside
        whole = sum(topic.rate for topic in inside), sum(topic.throughput for topic in inside)
        assert len(inside) == 1 or not limits.exceeded(*whole, factor=1 + 1e-9)


@given(topics=TOPICS, limits=SOME_LIMITS, by=st.floats(0.97, 1.03))
def test_a_decided_split_does_not_depend_on_small_changes(
    topics: list[TopicRate], limits: SplitLimits, by: float
) -> None:
    """If all rates are a little higher or lower, the boundaries are the same."""
    later = [TopicRate(topic.position, topic.rate * by, topic.throughput * by) for topic in topics]
    if undecided(topics, limits) is None:
        assert flow_or_qps(later, limits) == flow_or_qps(topics, limits)


def test_the_accepted_example_is_undecided() -> None:
    """Its second part is exactly at both limits: a little more, and there are two boundaries."""
    reason = undecided(ACCEPTED, LIMITS)
    assert reason is not None
    assert reason.startswith(
        "a part of 1100.0 msg/s and 110.00 MB/s is within 5% of 1100 msg/s or 110 MB/s"
    )
    assert flow_or_qps([topic._replace(rate=topic.rate * 1.001) for topic in ACCEPTED], LIMITS) == (
        96,
        106,
    )


def test_a_sum_near_the_threshold_is_undecided() -> None:
    topics = [TopicRate(1, 50, 0), TopicRate(2, 58, 0)]
    assert undecided(topics, SplitLimits(rate=100)) == (
        "the whole, 108.0 msg/s and 0.00 MB/s, is within 5% of the least that is split, 10 % above 100 msg/s or 100 MB/s"
    )


def test_one_sum_far_above_its_limit_decides() -> None:
    """The other sum may then be near its limit."""
    assert (
        undecided(
            [TopicRate(10, 99, 3 * MB), TopicRate(20, 1, 3 * MB)],
            SplitLimits(rate=100, megabytes=2),
        )
        is None
    )


@pytest.mark.parametrize(
    ("bundle", "wanted"), [(Bundle(10, LAST), 10 + (LAST - 10) // 2), (Bundle(0, 0x200), 0x100)]
)
def test_a_range_is_split_in_its_middle(bundle: Bundle, wanted: int) -> None:
    """The first example is that of upstream's ``RangeEquallyDivideBundleSplitAlgorithmTest``."""
    assert range_boundary(bundle) == wanted


@pytest.mark.parametrize(
    ("places", "wanted"),
    [([], None), ([7], None), ([10, 20], 15), ([10, 20, 40], 15), ([10, 20, 40, 80], 30)],
)
def test_topics_are_split_in_their_middle(places: list[int], wanted: int | None) -> None:
    """Of three topics, one is below and two are above; idle topics count."""
    assert topic_count_boundary([TopicRate(at, 0, 0) for at in reversed(places)]) == wanted


POSITIONS = st.integers(0, LAST)
RINGS = st.sets(st.integers(1, LAST - 1), max_size=20).map(
    lambda inner: Ring((0, *sorted(inner), LAST))
)


def test_a_position_is_the_crc_of_the_full_name() -> None:
    """The check value of CRC-32 is that of the digits 1 to 9."""
    assert position("123456789") == 0xCBF43926
    assert position("persistent://öffentlich/ns/t") == zlib.crc32(
        "persistent://öffentlich/ns/t".encode()
    )


@given(prefix=st.text(max_size=60), wanted=POSITIONS)
def test_every_position_has_a_name(prefix: str, wanted: int) -> None:
    """It has twelve octal digits after any prefix, always the same."""
    found = suffix(prefix, wanted)
    assert position(prefix + found) == wanted
    assert len(found) == 12 and set(found) <= set("01234567")
    assert suffix(prefix, wanted) == found


@pytest.mark.parametrize("wanted", [-1, LAST + 1])
def test_a_number_that_is_no_position_is_an_error(wanted: int) -> None:
    with pytest.raises(ValueError, match=rf"{wanted} is not a position: 0 to 4294967295"):
        suffix("t", wanted)


@given(ring=RINGS, where=POSITIONS)
def test_a_position_is_in_exactly_one_bundle(ring: Ring, where: int) -> None:
    assert [bundle for bundle in ring.bundles if where in bundle] == [ring.bundle(where)]


def test_a_boundary_belongs_to_the_upper_bundle() -> None:
    """The last position belongs to the last bundle."""
    ring = Ring((0, 0x40, LAST))
    assert ring.bundle(0x3F) == Bundle(0, 0x40)
    assert ring.bundle(0x40) == ring.bundle(LAST) == Bundle(0x40, LAST)
    assert "0x40" not in ring.bundle(0x40)


@given(ring=RINGS, at=st.lists(st.integers(1, LAST - 1), max_size=5))
def test_a_cut_adds_boundaries(ring: Ring, at: list[int]) -> None:
    """Boundaries that exist change nothing."""
    cut = ring.cut(at)
    assert set(cut.boundaries) == set(ring.boundaries) | set(at)
    assert cut.cut(at) == cut
    assert sorted(cut.boundaries) == list(cut.boundaries)


def test_a_bundle_has_the_spelling_of_the_admin_rest() -> None:
    assert str(Bundle(0x6A, LAST)) == "0x0000006a_0xffffffff"
