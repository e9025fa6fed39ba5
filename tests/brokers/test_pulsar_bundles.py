"""Bundles of a real Pulsar: positions of topics, split algorithms, errors, and a split during load."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from waiting_for import wait_until

from pytest_loadtest.drivers.pulsar.bundle_admin import Bundles
from pytest_loadtest.drivers.pulsar.bundle_split import (
    LAST,
    Bundle,
    Ring,
    position,
    range_boundary,
    suffix,
    topic_count_boundary,
)
from pytest_loadtest.drivers.pulsar.settings import PulsarSettings
from pytest_loadtest.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_loadtest import brokers

    from .conftest import OmbSession

pytestmark = pytest.mark.pulsar

HASHES = (10, 20, 80, 90, 4_000_000_000)
WHOLE = Bundle(0, LAST)

SPLIT = {
    "name": "split", "topics": 6, "producerRate": 140, "testDuration": "3min", "maxSendDelay": "60s", "drainTimeout": "60s",
    "skew": {"weights": [1, 2, 3, 4, 5, 20], "messageSizes": [100] * 5 + [1000], "hashes": [10, 20, 80, 90, 100, 110]},
    "driver": {"name": "pulsar", "namespaceBundles": 1},
    "slo": {"loss": 0, "outOfOrder": 0, "sent": "1%", "throughput": "1%"},
    "generator": {"sendDelayP99": "30s", "receiveLagP99": "30s", "stalled": 0.99},
}  # fmt: skip
TEST = """\
import json
from pathlib import Path

import pytest


@pytest.mark.load("workloads/split.yaml", live=True)
def test_split(load):
    load.begin()
    split = load.bundles.split_by_flow()
    load.bundles.settle()
    seen = {
        "made": split.made, "wanted": split.wanted, "ring": load.bundles.admin.ring().boundaries,
        "found": {topic: str(bundle) for topic, bundle in split.found.items()},
        "wrong": [topic for topic in split.found if split.found[topic] != split.looked_for[topic]],
        "rates": [split.topics[topic].rate for topic in load.bundles.topics],
        "positions": [split.topics[topic].position for topic in load.bundles.topics],
        "splits": {name: one.splits for name, one in split.balances().items()},
    }
    admin, limits = load.bundles.admin, split.limits
    assert admin.settled(limits)
    load.stop().assert_slo()
    Path("split.json").write_text(json.dumps(seen | {"limits": limits.rate, "restored": admin.split_settings()}))
"""


def omb_sessions(
    kind: str, facts: brokers.BrokerFacts, _names: object
) -> dict[str, tuple[dict[str, str], list[str]]]:
    """The load runs in a session in parallel with those of other modules."""
    files = {"test_split.py": TEST, "workloads/split.yaml": json.dumps(SPLIT)}
    return (
        {"bundles": (files, ["--load-target", facts.url, "--load-admin-url", str(facts.admin_url)])}
        if kind == "pulsar"
        else {}
    )


def test_a_split_during_load_is_the_expected_one_and_loses_nothing(
    omb_sessions: dict[str, OmbSession],
) -> None:
    """Each topic is found in its bundle, nothing is out of order, and rates count in and out."""
    session = omb_sessions["bundles"]
    counts, seen = session.counts("split"), session.seen("split")
    assert seen["made"] == seen["wanted"] == [106]
    assert seen["ring"] == [0, 106, LAST]
    assert seen["wrong"] == [] and len(set(seen["found"].values())) == 2
    assert seen["positions"] == [10, 20, 80, 90, 100, 110]
    assert seen["rates"] == pytest.approx([8, 16, 24, 32, 40, 160], rel=0.1)
    assert seen["splits"] == {
        "flow_or_qps_equally_divide": 1,
        "topic_count_equally_divide": 2,
        "range_equally_divide": 29,
    }
    assert (seen["limits"], seen["restored"]["loadBalancerNamespaceBundleMaxMsgRate"]) == (
        pytest.approx(140, rel=0.1),
        "30000",
    )
    assert seen["restored"]["defaultNamespaceBundleSplitAlgorithm"] == "range_equally_divide"
    assert counts["lost"] == counts["outOfOrder"] == 0 < counts["received"]


@pytest.fixture(scope="module")
def bundles(pulsar_process: brokers.Broker) -> Iterator[Bundles]:
    """A namespace of one bundle with idle topics at :data:`HASHES`."""
    made = Bundles(str(pulsar_process.facts.admin_url), PulsarSettings(), "public/bundles")
    made.create_namespace(made.namespace, bundles=1)
    for wanted in HASHES:
        made.create_topic(named(made, wanted), 1)
    yield made
    made.delete_namespace(made.namespace)


def named(bundles: Bundles, wanted: int) -> str:
    return f"persistent://{bundles.namespace}/t-{suffix(f'persistent://{bundles.namespace}/t-', wanted)}"


class TestIdleTopics:
    """One namespace, whose bundle is split repeatedly."""

    def test_the_broker_computes_the_same_positions(self, bundles: Bundles) -> None:
        """A lookup finds each topic in the only bundle."""
        assert bundles.ring() == Ring()
        positions = bundles.positions()
        for wanted in HASHES:
            assert positions[named(bundles, wanted)] == wanted
            assert bundles.bundle_of(named(bundles, wanted)) == WHOLE

    def test_idle_topics_are_reported_with_rates_of_zero(self, bundles: Bundles) -> None:
        rates = bundles.rates()
        assert {named(bundles, wanted) for wanted in HASHES} <= rates.keys()
        assert not any(topic.active for topic in rates.values())

    def test_the_brokers_other_algorithms_add_the_boundaries_of_the_model(
        self, bundles: Bundles
    ) -> None:
        wanted = topic_count_boundary(list(bundles.rates().values()))
        assert wanted is not None
        assert bundles.split(WHOLE, "topic_count_equally_divide") == (wanted,)
        low, high = bundles.ring().bundles
        assert bundles.split(high, "range_equally_divide") == (range_boundary(high),)
        assert bundles.split(low, "specified_positions_divide", at=[15]) == (15,)
        for where in HASHES:
            assert bundles.bundle_of(named(bundles, where)) == bundles.ring().bundle(where)

    @pytest.mark.parametrize(
        ("bundle", "algorithm", "said"),
        [
            (
                Bundle(0, 0x10),
                "range_equally_divide",
                "412 Invalid upper boundary for bundle public/bundles/0x00000000_0x00000010",
            ),
            (
                Bundle(0, 15),
                "alphabetically",
                "412 Unsupported namespace bundle split algorithm, supported algorithms are",
            ),
        ],
    )
    def test_a_rejected_split_names_request_status_and_reason(
        self, bundles: Bundles, bundle: Bundle, algorithm: str, said: str
    ) -> None:
        """Nothing is split."""
        before = bundles.ring()
        with pytest.raises(TargetError, match=r"PUT http://.*/split\?unload=true") as error:
            bundles.split(bundle, algorithm)
        assert said in str(error.value)
        assert bundles.ring() == before

    def test_unloaded_topics_are_not_there(self, bundles: Bundles) -> None:
        """The broker does not report the topics of a bundle that no broker owns; a lookup finds the bundle all the same.

        The bundle must not hold the namespace's ``__change_events``: the broker's own reader of it reconnects some 50 ms after an unload
        and takes its bundle over again, with all topics of that bundle.
        """
        topic = named(bundles, HASHES[0])
        bundle = bundles.ring().bundle(HASHES[0])
        assert position(f"persistent://{bundles.namespace}/__change_events") not in bundle
        bundles.unload(bundle)
        wait_until(lambda: topic not in bundles.rates(), "the end of the unload", seconds=30)
        assert bundles.bundle_of(topic) == bundle

    @pytest.mark.xfail(
        raises=TargetError,
        strict=True,
        reason="Pulsar 4.2.4 finds no bundle for the last hash there is: HTTP 500",
    )
    def test_the_last_position_has_a_bundle(self, bundles: Bundles) -> None:
        """The last bundle's upper end is closed. The broker's error is shown in one line, without its stack trace."""
        try:
            bundles.create_topic(named(bundles, LAST), 1)
        except TargetError as error:
            assert len(str(error).splitlines()) == 1
            raise
